"""A checkpoint -> something that takes training steps, fast on a CPU; the losses it descends.

Forward and backward run in bfloat16 where the CPU multiplies it in hardware, with FP32 master
weights. Attention is written out, since the backward of PyTorch's fused one is several times
slower on CPUs, and dropout reads slices of one random mask instead of drawing numbers.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from numpy.typing import NDArray

from export.checkpoint import open_checkpoint
from export.graph import quiet
from export.training_options import Precision, TrainingOptions
from runtime.errors import ExportError, UsageError

MASK_ELEMENTS = 1 << 25  # of the random mask that dropout draws slices of
PADDING_LOGIT = -1e4
PROBE = "The Größe of 12.5 km², in the U.S.: it doesn't ﬁt"
ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")


def load_trainable(model: str, offline: bool, *, head_required: bool) -> tuple[Any, Any]:
    """The model in FP32 and its fast tokenizer. Only fine-tuning may begin with a new head.

    Attention is written out ("eager"): on CPUs the backward of the fused one is several times
    slower. Its dropout is off, since its probabilities are most of what dropout would touch.
    """
    from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer

    place: str | Path = model
    if head_required:
        place = open_checkpoint(model, offline=offline).folder
    elif Path(model).expanduser().is_dir():
        place = Path(model).expanduser()
    try:
        with quiet():
            config = AutoConfig.from_pretrained(
                place, trust_remote_code=False, local_files_only=offline
            )
            usual = {
                name: getattr(config, name) for name in ATTENTION_DROPOUT if hasattr(config, name)
            }
            config.update(dict.fromkeys(usual, 0.0))
            loaded = AutoModelForQuestionAnswering.from_pretrained(
                place,
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=offline,
            )
            tokenizer = AutoTokenizer.from_pretrained(
                place, use_fast=True, trust_remote_code=False, local_files_only=offline
            )
    except Exception as error:  # transformers raises whatever its loaders meet
        raise ExportError(
            f"The checkpoint cannot be loaded: {str(error).strip().splitlines()[0]}",
            where=model,
            fix="Name a folder with config.json, model.safetensors and tokenizer.json, or a hub id",
        ) from error
    if not tokenizer.is_fast:
        raise ExportError(
            "The model has only a slow tokenizer; the runtime needs a tokenizer.json",
            where=model,
            fix="Convert it with transformers: AutoTokenizer.from_pretrained(..., use_fast=True)",
        )
    loaded.config.update(usual)  # as it was: the checkpoint written later should say so
    return loaded, tokenizer


def choose_layers(teacher: Any, layers: int | tuple[int, ...] | None) -> Any:
    """A copy of `teacher` with only some of its layers: as named, or so many, evenly spread.

    Without `layers` it gets half of them.

    Raises:
        UsageError: there is no such layer, or the architecture does not list its layers.
    """
    depth = depth_of(teacher)
    chosen = layers if isinstance(layers, tuple) else _spread(depth, layers or max(1, depth // 2))
    if not chosen or not all(0 <= layer < depth for layer in chosen):
        raise UsageError(
            f"The teacher has the layers 0 to {depth - 1}",
            where="--layers " + ",".join(map(str, chosen)),
            fix="Name some of these, or fewer than there are",
        )
    student = copy.deepcopy(teacher)
    name, stack = layer_stack(student)
    parent = student.get_submodule(name.rpartition(".")[0])
    kept = torch.nn.ModuleList([stack[layer] for layer in chosen])
    setattr(parent, name.rpartition(".")[2], kept)
    student.config.num_hidden_layers = len(chosen)
    return student


def same_tokens(one: Any, other: Any) -> bool:
    """Whether two tokenizers cut text alike, into tokens of the same numbers."""
    first, second = (tokenizer(PROBE, PROBE)["input_ids"] for tokenizer in (one, other))
    return bool(one.get_vocab() == other.get_vocab() and first == second)


class Trainee:
    """FP32 master weights, a copy in the dtype of the arithmetic, and AdamW over the masters."""

    def __init__(self, model: Any, options: TrainingOptions, dtype: torch.dtype) -> None:
        self.master = model.float().eval()
        table = self.master.get_input_embeddings().weight
        table.requires_grad_(options.train_word_embeddings)
        self._copy = copy.deepcopy(self.master).to(dtype)
        self._mask = _MaskDropout(options.dropout, dtype, options.seed)
        _replace_dropout(self._copy, self._mask)
        self._copy.train()
        named = [(n, p) for n, p in self.master.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._masters = [parameter for _, parameter in named]
        self._low = [p for p in self._copy.parameters() if p.requires_grad]
        decayed = [p for p in self._masters if p.ndim > 1]
        others = [p for p in self._masters if p.ndim <= 1]
        self._adam = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
            fused=True,
        )

    def __call__(self, feeds: dict[str, torch.Tensor], *, hidden: bool) -> Any:
        return forward(self._copy, feeds, hidden=hidden)

    def reseed(self, seed: int, step: int) -> None:
        """Dropout depends on the step alone, so that a resumed run draws what it would have."""
        self._mask.draw = seeded(f"{seed}/{step}")

    def descend(self, rate: float) -> None:
        """One step of AdamW along the gradients of the last backward, clipped to norm 1."""
        for master, low in zip(self._masters, self._low, strict=True):
            master.grad = None if low.grad is None else low.grad.float()
            low.grad = None
        torch.nn.utils.clip_grad_norm_(self._masters, 1.0, foreach=True)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._publish()

    def state(self) -> dict[str, torch.Tensor]:
        """Masters and both moments, by name."""
        tensors = {}
        for name, master in zip(self._names, self._masters, strict=True):
            tensors[f"weight.{name}"] = master.detach().contiguous()
            for moment in ("exp_avg", "exp_avg_sq"):
                kept = self._adam.state[master].get(moment, torch.zeros_like(master))
                tensors[f"{moment}.{name}"] = kept.contiguous()
        return tensors

    def restore(self, tensors: dict[str, torch.Tensor], step: int) -> None:
        """Take up `state` as it was after `step` steps."""
        for name, master in zip(self._names, self._masters, strict=True):
            with torch.no_grad():
                master.copy_(tensors[f"weight.{name}"])
            self._adam.state[master] = {
                "step": torch.tensor(float(step)),
                "exp_avg": tensors[f"exp_avg.{name}"].clone(),
                "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].clone(),
            }
        self._publish()

    def _publish(self) -> None:
        with torch.no_grad():
            for low, master in zip(self._low, self._masters, strict=True):
                low.copy_(master)


class _MaskDropout(torch.nn.Module):  # type: ignore[misc]
    """Dropout by a random slice of one mask: reads memory where the usual one draws numbers."""

    def __init__(self, share: float, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.draw = seeded(seed)
        keep = torch.rand(MASK_ELEMENTS, generator=torch.Generator().manual_seed(seed)) >= share
        self._mask = keep.to(dtype) / (1.0 - share)
        self._share = share

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or self._share == 0.0 or values.numel() >= MASK_ELEMENTS:
            return values
        first = self.draw.randrange(MASK_ELEMENTS - values.numel())
        return values * self._mask[first : first + values.numel()].view_as(values)


def _replace_dropout(model: Any, mask: _MaskDropout) -> None:
    """Put `mask` where the model has dropout. Dropout of attention is off: see `load_trainable`."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Dropout):
                setattr(parent, name, mask if child.p > 0 else torch.nn.Identity())


def as_tensors(feeds: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
    return {name: torch.from_numpy(value) for name, value in feeds.items()}


def forward(model: Any, feeds: dict[str, torch.Tensor], *, hidden: bool) -> Any:
    given = {"input_ids": feeds["input_ids"], "attention_mask": feeds["attention_mask"]}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = feeds["token_type_ids"]
    return model(**given, output_hidden_states=hidden)


@dataclass(frozen=True, slots=True, eq=False)
class Said:
    """What teachers say of a batch: log-probabilities of starts and ends, float32 (batch, tokens).

    Attributes:
        hidden_states: of the first teacher, a tensor for the embeddings and one for each layer.
    """

    start: torch.Tensor
    end: torch.Tensor
    hidden_states: tuple[torch.Tensor, ...] = ()


def label_losses(output: Any, mask: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of starts and ends, float32 (batch,): their mean, 0 in rows without a label.

    Args:
        output: logits (batch, tokens); `mask` likewise.
        targets: (2, batch, tokens), as in `Batch`.
    """
    sides = zip((output.start_logits, output.end_logits), targets, strict=True)
    losses = [-(share * log_softmax(logits, mask)).sum(-1) for logits, share in sides]
    return (losses[0] + losses[1]) / 2


def soft_losses(output: Any, said: Said, mask: torch.Tensor, temperature: float) -> torch.Tensor:
    """KL divergence to the teachers' starts and ends, times the temperature squared: (batch,)."""
    sides = ((output.start_logits, said.start), (output.end_logits, said.end))
    losses = [
        (taught.exp() * (taught - log_softmax(logits, mask, temperature))).sum(-1)
        for logits, taught in sides
    ]
    return (losses[0] + losses[1]) / 2 * temperature**2


def distillation_loss(
    output: Any,
    said: Said,
    mask: torch.Tensor,
    targets: torch.Tensor,
    believed: torch.Tensor,
    options: TrainingOptions,
) -> torch.Tensor:
    """Mean over rows: label and teacher weighed where the teacher is believed, else the label.

    The hidden states' distance joins it, over the tokens of the rows that believe the teacher.

    Args:
        output, said: of student and teachers; with hidden states where they have a weight.
        believed: (batch,), 1 or 0, as in `Batch`.
    """
    labels = label_losses(output, mask, targets)
    soft = soft_losses(output, said, mask, options.temperature)
    weighed = options.hard_share * labels + (1 - options.hard_share) * soft
    loss = torch.where(believed > 0, weighed, labels).mean()
    if options.hidden_weight > 0:
        near = hidden_loss(output, said, mask * believed[:, None])
        loss = loss + options.hidden_weight * near
    return loss


def log_softmax(logits: torch.Tensor, mask: torch.Tensor, temperature: float = 1.0) -> torch.Tensor:
    """Over the last dimension, float32; next to nothing where `mask` is 0."""
    real = logits.float().masked_fill(mask == 0, PADDING_LOGIT)
    return F.log_softmax(real / temperature, dim=-1)


def hidden_loss(output: Any, said: Said, mask: torch.Tensor) -> torch.Tensor:
    """Mean squared distance of each layer's output to that of the teacher's layer as deep.

    Over the tokens of `mask`; 0 where it has none.
    """
    student, teacher = output.hidden_states[1:], said.hidden_states[1:]
    real = mask.bool()
    if not real.any():
        return torch.zeros(())
    distances = [
        F.mse_loss(states[real].float(), teacher[place][real].float())
        for states, place in zip(student, _depths(len(student), len(teacher)), strict=True)
    ]
    return torch.stack(distances).mean()


def _depths(student: int, teacher: int) -> list[int]:
    """For each of the student's layers, the teacher's that ends at the same share of the way."""
    return [round((layer + 1) * teacher / student) - 1 for layer in range(student)]


def _spread(depth: int, count: int) -> tuple[int, ...]:
    """`count` of `depth` layers, evenly spread, the first and the last among them."""
    if count > depth:
        return tuple(range(count))
    return tuple(round(i * (depth - 1) / max(1, count - 1)) for i in range(count))


def depth_of(model: Any) -> int:
    return int(model.config.num_hidden_layers)


def layer_stack(model: Any) -> tuple[str, torch.nn.ModuleList]:
    """The list of the model's layers, and its name in the model."""
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == depth_of(model) and name:
            return name, module
    raise UsageError(
        f"The layers of the architecture {model.config.model_type} cannot be chosen from",
        where=str(model.config.name_or_path),
        fix="Name a smaller checkpoint to start from (--student)",
    )


def frozen(model: Any, dtype: torch.dtype) -> Any:
    """A copy to read with: no gradients, no dropout."""
    return copy.deepcopy(model).to(dtype).eval().requires_grad_(False)


def arithmetic(precision: Precision) -> torch.dtype:
    """bfloat16 where "auto" finds hardware for its products; elsewhere it would only cost."""
    if precision == "auto":
        return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    return torch.bfloat16 if precision == "bf16" else torch.float32


def longest_sequence(model: Any) -> int:
    config = model.config
    positions = int(getattr(config, "max_position_embeddings", 512))
    if config.model_type in ("roberta", "xlm-roberta", "mpnet", "camembert"):
        positions -= int(config.pad_token_id) + 1  # counted from behind the padding's
    return positions


def seeded(seed: int | str) -> random.Random:
    return random.Random(seed)  # noqa: S311  no secret is made here
