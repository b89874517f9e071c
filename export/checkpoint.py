"""A hub id or folder -> a checked question-answering checkpoint: model, tokenizer, facts.

Everything that cannot become a bundle is refused here, before minutes are spent on it: no
question-answering head, weights only as pickle, no fast tokenizer, an architecture that cannot be
exported.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from export.graph import quiet
from runtime.errors import ExportError, MissingExtra

PICKLES = ("pytorch_model.bin", "pytorch_model.bin.index.json")
SAFE = ("model.safetensors", "model.safetensors.index.json")
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "*.model",
)
HEAD_SUFFIX = "ForQuestionAnswering"
LARGEST_TOKENIZER_LENGTH = 1_000_000  # above this, tokenizers say "no limit"


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on this machine that can become a bundle.

    Attributes:
        name: as the user named it.
        revision: the hub's commit, or "sha256:..." of a local folder's weights.
        max_length: the longest sequence in tokens, special tokens included.
        licence: what the model card says, or None.
    """

    name: str
    folder: Path
    revision: str
    config: Any
    max_length: int
    licence: str | None

    @property
    def model_type(self) -> str:
        return str(self.config.model_type)

    @property
    def heads(self) -> int:
        return int(self.config.num_attention_heads)

    @property
    def hidden(self) -> int:
        return int(self.config.hidden_size)


def open_checkpoint(
    model: str, *, offline: bool, revision: str | None = None, allow_pickle: bool = False
) -> Checkpoint:
    """Find and check a checkpoint without loading its weights.

    Raises:
        ExportError: it is not there, or cannot become a bundle; says why.
        MissingExtra: transformers is not installed.
    """
    folder, found = _locate(model, offline, revision, allow_pickle)
    config = _read_config(folder, model)
    _require_head(config, model)
    _require_architecture(config, model)
    _require_safe_weights(folder, model, allow_pickle)
    return Checkpoint(
        name=_display_name(model),
        folder=folder,
        revision=found or _weights_digest(folder),
        config=config,
        max_length=_max_length(folder, config),
        licence=_licence(folder),
    )


def load_model(checkpoint: Checkpoint, *, allow_pickle: bool = False) -> Any:
    """The PyTorch model in FP32, in evaluation mode.

    Raises:
        ExportError: the weights cannot be read, or lack the question-answering head.
    """
    import torch
    from transformers import AutoModelForQuestionAnswering

    try:
        with quiet():
            model, info = AutoModelForQuestionAnswering.from_pretrained(
                checkpoint.folder,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                use_safetensors=None if allow_pickle else True,
                output_loading_info=True,
            )
    except Exception as error:
        raise ExportError(
            f"The model's weights cannot be loaded: {_first_line(error)}",
            where=str(checkpoint.folder),
            fix="Check that the download or the training finished",
        ) from error
    untrained = [name for name in info["missing_keys"] if name.startswith("qa_outputs")]
    if untrained:
        raise ExportError(
            "The weights hold no question-answering head; it would be random",
            where=checkpoint.name,
            fix="Fine-tune it first (`specrag train finetune`), or name a model that is",
        )
    return model.eval()


def save_tokenizer(checkpoint: Checkpoint, path: Path) -> Tokenizer:
    """Write the checkpoint's tokenizer as one `tokenizers` JSON, truncation and padding off.

    Raises:
        ExportError: only a slow (pure Python) tokenizer exists, or it cannot encode pairs.
    """
    tokenizer = _fast_tokenizer(checkpoint)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    if len(set(tokenizer.encode("a", "b").sequence_ids) - {None}) != 2:
        raise ExportError(
            "The tokenizer does not encode a question together with its context",
            where=checkpoint.name,
            fix="It needs a post-processor for pairs in tokenizer.json",
        )
    tokenizer.save(str(path), pretty=False)
    return tokenizer


def special_tokens(checkpoint: Checkpoint, tokenizer: Tokenizer) -> dict[str, dict[str, Any]]:
    """The special tokens by their role ("cls", "sep", "pad", ...), with token and id."""
    from transformers import AutoTokenizer

    with quiet():
        slow = AutoTokenizer.from_pretrained(checkpoint.folder, local_files_only=True)
    roles = {}
    for role in ("cls", "sep", "pad", "unk", "mask", "bos", "eos"):
        token = getattr(slow, f"{role}_token", None)
        index = tokenizer.token_to_id(str(token)) if token is not None else None
        if index is not None:
            roles[role] = {"token": str(token), "id": index}
    return roles


def _locate(
    model: str, offline: bool, revision: str | None, allow_pickle: bool
) -> tuple[Path, str | None]:
    folder = Path(model).expanduser()
    if folder.is_dir():
        return folder.resolve(), None
    if folder.exists() or model.startswith((".", "/", "~")) or model.count("/") > 1:
        raise ExportError(
            "There is no model folder here",
            where=model,
            fix="Name a folder with config.json and model.safetensors, or a hub id",
        )
    return _download(model, offline, revision, allow_pickle)


def _download(
    model: str, offline: bool, revision: str | None, allow_pickle: bool
) -> tuple[Path, str | None]:
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.errors import (
            HFValidationError,
            LocalEntryNotFoundError,
            RepositoryNotFoundError,
            RevisionNotFoundError,
        )
    except ImportError as error:
        raise _missing_extra() from error
    patterns = ["config.json", "README.md", "*.safetensors", "*.safetensors.index.json"]
    patterns += [*TOKENIZER_FILES, *((*PICKLES, "pytorch_model-*.bin") if allow_pickle else ())]
    try:
        with quiet():
            path = snapshot_download(
                model,
                revision=revision,
                allow_patterns=patterns,
                local_files_only=offline,
            )
    except (RepositoryNotFoundError, RevisionNotFoundError, HFValidationError) as error:
        raise ExportError(
            "No model of this name or revision is known",
            where=model,
            fix="Check the spelling; a private model needs a login; a local model its folder",
        ) from error
    except (LocalEntryNotFoundError, OSError) as error:
        what = (
            "The model is not on this machine, and --offline forbids the network"
            if offline
            else "The model cannot be downloaded: the network or the hub does not answer"
        )
        raise ExportError(
            what,
            where=model,
            fix="Download it where there is a network, copy it here and name its folder",
        ) from error
    return Path(path), Path(path).name


def _read_config(folder: Path, model: str) -> Any:
    try:
        from transformers import AutoConfig
    except ImportError as error:
        raise _missing_extra() from error
    if not (folder / "config.json").is_file():
        raise ExportError(
            "The folder holds no config.json, so it is no model checkpoint",
            where=str(folder),
            fix="Name a folder as `save_pretrained` of transformers writes it",
        )
    try:
        with quiet():
            return AutoConfig.from_pretrained(
                folder, local_files_only=True, trust_remote_code=False
            )
    except (ValueError, OSError, KeyError) as error:
        raise ExportError(
            f"The model's architecture is not supported: {_first_line(error)}",
            where=model,
            fix=f"Supported: {', '.join(supported_families())}",
        ) from error


def supported_families() -> tuple[str, ...]:
    """Model families that are tested from checkpoint to bundle."""
    return (
        "bert",
        "distilbert",
        "roberta",
        "albert",
        "electra",
        "mpnet",
        "deberta-v2",
        "xlm-roberta",
    )


def _require_head(config: Any, model: str) -> None:
    heads = list(getattr(config, "architectures", None) or [])
    if heads and not any(head.endswith(HEAD_SUFFIX) for head in heads):
        raise ExportError(
            f"The model has no question-answering head; its head is {', '.join(heads)}",
            where=model,
            fix="Name a model fine-tuned for extractive question answering, or fine-tune this one "
            "(`specrag train finetune`)",
        )


def _require_architecture(config: Any, model: str) -> None:
    import optimum.exporters.onnx.model_configs  # noqa: F401  registers what can be exported
    from optimum.exporters.tasks import TasksManager
    from transformers.models.auto.modeling_auto import MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES

    family = config.model_type
    try:
        with quiet():
            tasks = TasksManager.get_supported_tasks_for_model_type(
                family, "onnx", library_name="transformers"
            )
    except KeyError:
        tasks = {}
    exportable = "question-answering" in tasks
    if not exportable or family not in MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES:
        raise ExportError(
            f"The architecture {family} cannot be exported for question answering",
            where=model,
            fix=f"Tested families: {', '.join(supported_families())}",
        )


def _require_safe_weights(folder: Path, model: str, allow_pickle: bool) -> None:
    if any((folder / name).is_file() for name in SAFE):
        return
    if not any((folder / name).is_file() for name in PICKLES):
        raise ExportError(
            "The checkpoint has no weights (model.safetensors)",
            where=model,
            fix="A pickle-only checkpoint on the hub needs --allow-pickle, if you trust its maker",
        )
    if not allow_pickle:
        raise ExportError(
            "The weights come only as a pickle, which can run code when it is loaded",
            where=model,
            fix="Convert them to safetensors, or pass --allow-pickle if you trust their maker",
        )


def _fast_tokenizer(checkpoint: Checkpoint) -> Tokenizer:
    from transformers import AutoTokenizer

    refusal = ExportError(
        "The model has only a slow tokenizer; the runtime needs a tokenizer.json",
        where=checkpoint.name,
        fix="Convert it with transformers (`AutoTokenizer.from_pretrained(..., use_fast=True)`)",
    )
    try:
        with quiet():
            tokenizer = AutoTokenizer.from_pretrained(
                checkpoint.folder, local_files_only=True, use_fast=True, trust_remote_code=False
            )
    except Exception as error:  # transformers raises whatever its converters meet
        raise refusal from error
    if not tokenizer.is_fast:
        raise refusal
    return Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())


def _max_length(folder: Path, config: Any) -> int:
    """The shorter of the model's positions and the tokenizer's own limit, in tokens."""
    positions = int(getattr(config, "max_position_embeddings", 512))
    if config.model_type in ("roberta", "xlm-roberta", "mpnet", "camembert"):
        positions -= int(config.pad_token_id) + 1  # positions are counted from behind the padding's
    try:
        facts = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
        limit = int(facts.get("model_max_length") or LARGEST_TOKENIZER_LENGTH)
    except (OSError, ValueError):
        limit = LARGEST_TOKENIZER_LENGTH
    return min(positions, limit) if limit < LARGEST_TOKENIZER_LENGTH else positions


def _licence(folder: Path) -> str | None:
    """The `license:` line of the model card's header, if there is one."""
    try:
        lines = (folder / "README.md").read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    if not lines or lines[0].strip() != "---":
        return None
    for line in lines[1:]:
        if line.strip() == "---":
            return None
        if line.startswith("license:"):
            return line.removeprefix("license:").strip() or None
    return None


def _weights_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for file in sorted((*folder.glob("*.safetensors"), *folder.glob("pytorch_model*.bin"))):
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return f"sha256:{digest.hexdigest()}"


def _display_name(model: str) -> str:
    folder = Path(model).expanduser()
    return folder.resolve().name if folder.is_dir() else model


def _missing_extra() -> MissingExtra:
    return MissingExtra(
        "Exporting needs torch, transformers and optimum", fix="pip install 'specrag[export]'"
    )


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
