"""Files of an export -> a bundle folder that appears whole or not at all.

Everything is written into a hidden folder beside the output and renamed at the end. What an
interrupted export leaves (after kill -9, say) is removed by the next one to the same place.
"""

from __future__ import annotations

import errno
import importlib.metadata
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from export.checkpoint import Checkpoint
from models.bundle import FileFact, describe_file
from runtime.errors import ExportError, UsageError

TOOLS = ("torch", "transformers", "optimum", "optimum-onnx", "onnx", "onnxruntime", "tokenizers")
WORK = ".work"  # inside the unfinished bundle: intermediate graphs, gone before it is renamed


@contextmanager
def unfinished_folder(output: Path, needed: int) -> Iterator[Path]:
    """A new folder that becomes `output` when the block ends well, and vanishes otherwise.

    Args:
        needed: bytes that the export will need on that disk for a while.

    Raises:
        UsageError: `output` exists, or its folder cannot be written to.
        ExportError: not enough disk, before or while writing.
    """
    if output.exists() or output.is_symlink():
        raise UsageError(
            "The output folder exists already",
            where=str(output),
            fix="Name a new folder, or remove this one first",
        )
    parent = output.absolute().parent
    folder = parent / f".{output.name}.unfinished-{os.getpid()}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent, output.name)
        _require_disk(parent, needed)
        (folder / WORK).mkdir(parents=True)
        yield folder
        shutil.rmtree(folder / WORK)
        folder.rename(output)
    except OSError as error:
        raise _translate(error, output) from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def describe_files(folder: Path) -> dict[str, FileFact]:
    """Size and checksum of every file of the bundle, work files left out."""
    return {file.name: describe_file(file) for file in sorted(folder.iterdir()) if file.is_file()}


def tool_versions() -> dict[str, str]:
    """Versions of the tools that take part in an export."""
    found = {}
    for name in TOOLS:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def base_model_facts(
    checkpoint: Checkpoint, licence: str | None, trained_on: str | None
) -> dict[str, Any]:
    """Where the weights come from, for the manifest."""
    config = checkpoint.config
    return {
        "base_model": checkpoint.name,
        "revision": checkpoint.revision,
        "licence": licence or checkpoint.licence or "not stated by the checkpoint",
        "data": trained_on or "not stated by the checkpoint",
        "family": checkpoint.model_type,
        "layers": int(getattr(config, "num_hidden_layers", 0)),
        "hidden": checkpoint.hidden,
        "heads": checkpoint.heads,
        "vocabulary": int(getattr(config, "vocab_size", 0)),
    }


def bundle_bytes(files: Mapping[str, FileFact]) -> int:
    return sum(fact.bytes for fact in files.values())


def _remove_abandoned(parent: Path, name: str) -> None:
    """Remove the unfinished folders of processes that are gone."""
    prefix = f".{name}.unfinished-"
    for folder in parent.glob(f"{prefix}*"):
        process = folder.name.removeprefix(prefix)
        if process.isdigit() and not _is_running(int(process)):
            shutil.rmtree(folder, ignore_errors=True)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return process != os.getpid()


def _require_disk(parent: Path, needed: int) -> None:
    free = shutil.disk_usage(parent).free
    if free < needed:
        raise ExportError(
            f"Not enough disk: the export needs about {needed / 1e6:.0f} MB for a while, "
            f"{free / 1e6:.0f} MB are free",
            where=str(parent),
            fix="Free some space, or name an output folder on another disk",
        )


def _translate(error: OSError, output: Path) -> Exception:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return ExportError(
            "The disk is full; nothing was kept",
            where=str(output),
            fix="Free some space, or name an output folder on another disk",
        )
    if error.errno in (errno.EACCES, errno.EROFS, errno.EPERM, errno.ENOTDIR, errno.EEXIST):
        return UsageError(
            f"The output folder cannot be written: {error.strerror}",
            where=str(output),
            fix="Name a folder that you may write to",
        )
    return error
