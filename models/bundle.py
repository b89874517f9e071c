"""A bundle folder -> a verified `Bundle`: an ONNX model, its tokenizer and a manifest of facts.

Nothing in a bundle is executed or unpickled: graphs and weights are ONNX, tokenizers and facts are
JSON. Every file is listed in `manifest.json` with size and sha256, and a bundle whose files differ
is refused with the name of the file. The manifest itself is only checked against a digest that the
reader brings along (`specrag bundle show` prints it): without one, the check finds damage and
tampering with single files, not a bundle forged as a whole.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from runtime.errors import BundleDamaged, BundleIncompatible, BundleNotFound

MANIFEST = "manifest.json"
FORMAT = 1

Role = Literal["drafter", "verifier"]
Precision = Literal["int8", "fp16", "fp32"]


@dataclass(frozen=True)
class FileFact:
    """Size in bytes and sha256 (hex) of one file of the bundle."""

    bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a bundle says of itself.

    Attributes:
        graphs: precision -> file. A verifier has "fp16" for GPUs and "fp32" for CPUs, two small
            graphs over the same FP16 weight file; a drafter has "int8".
        tokenizer: file name of the `tokenizers` JSON.
        max_length: the longest sequence in tokens, special tokens included.
        inputs, outputs: names in the graph; outputs are start logits, then end logits,
            each float (batch, sequence).
        null_index: the position whose start + end logits are the "no answer" score.
        gate: the accuracy gate's report (questions, delta_em, delta_f1, identical_spans, ...).
        details: everything else the exporter recorded: scheme, base model and revision, data,
            licences, opset, tool versions, shape profiles.
    """

    name: str
    role: Role
    task: str
    target: str
    precision: Precision
    graphs: dict[str, str]
    tokenizer: str
    max_length: int
    inputs: tuple[str, ...]
    outputs: tuple[str, str]
    null_index: int
    files: dict[str, FileFact]
    gate: dict[str, Any]
    details: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The manifest as it is written to `manifest.json`."""
        return {
            "format": FORMAT,
            "name": self.name,
            "role": self.role,
            "task": self.task,
            "target": self.target,
            "precision": self.precision,
            "graphs": self.graphs,
            "tokenizer": self.tokenizer,
            "max_length": self.max_length,
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "null_index": self.null_index,
            "files": {
                name: {"bytes": fact.bytes, "sha256": fact.sha256}
                for name, fact in sorted(self.files.items())
            },
            "gate": self.gate,
            "details": self.details,
        }


@dataclass(frozen=True)
class Bundle:
    """A verified bundle on this machine."""

    path: Path
    manifest: Manifest

    def graph(self, precision: str) -> Path:
        """The graph file for `precision`.

        Raises:
            BundleIncompatible: the bundle has no such graph.
        """
        try:
            return self.path / self.manifest.graphs[precision]
        except KeyError:
            raise BundleIncompatible(
                f"Bundle {self.manifest.name} has no {precision} graph",
                where=str(self.path),
                fix=f"It has: {', '.join(sorted(self.manifest.graphs))}",
            ) from None

    @property
    def tokenizer_path(self) -> Path:
        return self.path / self.manifest.tokenizer

    @property
    def tokenizer_sha256(self) -> str:
        return self.manifest.files[self.manifest.tokenizer].sha256

    def optional_json(self, name: str) -> dict[str, Any] | None:
        """A JSON file of the bundle (such as `calibration.json`), or None if it has none."""
        if name not in self.manifest.files:
            return None
        loaded: dict[str, Any] = json.loads((self.path / name).read_text("utf-8"))
        return loaded


def open_bundle(
    path: Path, *, role: Role | None = None, manifest_sha256: str | None = None
) -> Bundle:
    """Read the manifest of the bundle at `path` and check every file against it.

    Args:
        role: refuse a bundle of another role.
        manifest_sha256: what `manifest_digest` gave where the bundle came from; with it the whole
            bundle is vouched for.

    Raises:
        BundleNotFound: no manifest there.
        BundleDamaged: the manifest cannot be read or has another digest, or a file is missing or
            differs.
        BundleIncompatible: another format version or role.
    """
    bundle = Bundle(path, read_manifest(path))
    if manifest_sha256 is not None and manifest_digest(path) != manifest_sha256.strip().lower():
        raise BundleDamaged(
            f"The bundle's manifest has another sha256: {manifest_digest(path)}",
            where=str(path / MANIFEST),
            fix="Do not use it; copy the bundle again from where it came from",
        )
    if role is not None and bundle.manifest.role != role:
        raise BundleIncompatible(
            f"Bundle {bundle.manifest.name} is a {bundle.manifest.role}, not a {role}",
            where=str(path),
            fix=f"Name a {role} bundle instead",
        )
    check_files(bundle)
    return bundle


def read_manifest(path: Path) -> Manifest:
    """The manifest of the bundle at `path`, without a look at the other files."""
    file = path / MANIFEST
    try:
        raw = json.loads(file.read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise BundleNotFound(
            "No model bundle here",
            where=str(path),
            fix=f"A bundle is a folder with a {MANIFEST}; make one with `specrag export`",
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise BundleDamaged(
            f"The bundle's manifest cannot be read: {getattr(error, 'strerror', None) or error}",
            where=str(file),
            fix="Copy the bundle again from where it came from",
        ) from error
    return _parse_manifest(raw, file)


def manifest_digest(path: Path) -> str:
    """sha256 (hex) of the manifest of the bundle at `path`; it covers all files through theirs."""
    return describe_file(path / MANIFEST).sha256


def _parse_manifest(raw: Any, file: Path) -> Manifest:
    try:
        if not isinstance(raw, dict):
            raise TypeError("it is no object in braces")
        if raw["format"] != FORMAT:
            raise BundleIncompatible(
                f"The bundle's format is {raw['format']}, this version reads {FORMAT}",
                where=str(file),
                fix="Update specrag, or export the bundle again",
            )
        manifest = Manifest(
            name=_text(raw, "name"),
            role=_text(raw, "role"),  # type: ignore[arg-type]
            task=_text(raw, "task"),
            target=_text(raw, "target"),
            precision=_text(raw, "precision"),  # type: ignore[arg-type]
            graphs={name: _text(raw["graphs"], name) for name in raw["graphs"]},
            tokenizer=_text(raw, "tokenizer"),
            max_length=int(raw["max_length"]),
            inputs=tuple(raw["inputs"]),
            outputs=(raw["outputs"][0], raw["outputs"][1]),
            null_index=int(raw["null_index"]),
            files={
                name: FileFact(int(fact["bytes"]), _text(fact, "sha256"))
                for name, fact in raw["files"].items()
            },
            gate=dict(raw["gate"]),
            details=dict(raw["details"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else str(error)
        raise BundleDamaged(
            f"The bundle's manifest lacks or garbles a field: {reason}",
            where=str(file),
            fix="Copy the bundle again from where it came from",
        ) from error
    for name in (*manifest.files, *manifest.graphs.values(), manifest.tokenizer):
        if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
            raise BundleDamaged(
                f"The manifest names a file outside the bundle: {name}", where=str(file)
            )
    for name in (*manifest.graphs.values(), manifest.tokenizer):
        if name not in manifest.files:
            raise BundleDamaged(f"The manifest gives no checksum for {name}", where=str(file))
    return manifest


def _text(raw: dict[str, Any], name: str) -> str:
    value = raw[name]
    if not isinstance(value, str):
        raise TypeError(f"{name!r} is not text")
    return value


def check_files(bundle: Bundle) -> None:
    """Compare every file with its checksum.

    Raises:
        BundleDamaged: naming the first file that is missing or differs.
    """
    for name, fact in bundle.manifest.files.items():
        file = bundle.path / name
        try:
            measured = describe_file(file)
        except OSError as error:
            raise BundleDamaged(
                f"The bundle's file {name} cannot be read: {error.strerror}",
                where=str(file),
                fix="Copy the bundle again from where it came from",
            ) from error
        if measured != fact:
            raise BundleDamaged(
                f"The bundle's file {name} differs from its manifest "
                f"({measured.bytes} bytes, sha256 {measured.sha256[:12]}…; "
                f"expected {fact.bytes} bytes, {fact.sha256[:12]}…)",
                where=str(file),
                fix="Do not use it; copy the bundle again from where it came from",
            )


def describe_file(file: Path) -> FileFact:
    """Measure one file."""
    with file.open("rb") as stream:
        digest = hashlib.file_digest(stream, "sha256")
        return FileFact(stream.tell(), digest.hexdigest())


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Write `manifest.json` into the bundle folder `path`, atomically."""
    temporary = path / f".{MANIFEST}.new"
    temporary.write_text(json.dumps(manifest.to_json(), indent=1, ensure_ascii=False) + "\n")
    temporary.replace(path / MANIFEST)
