"""A bundle folder -> what it says of itself, and whether its files are what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from edge.command import Run, command, group
from edge.screen import Column

bundle = group(
    "bundle",
    help="Look at a model bundle.",
    examples=("specrag bundle show models/drafter-minilm-l4",),
)


@command("show", examples=("specrag bundle show models/drafter-minilm-l4",))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
def show(run: Run, folder: Path) -> None:
    """Print a bundle's manifest."""
    from models.bundle import manifest_digest, read_manifest

    manifest = read_manifest(folder)
    digest = manifest_digest(folder)
    if run.json:
        run.emit({"path": str(folder), "manifest_sha256": digest, "manifest": manifest.to_json()})
        return
    run.screen.pairs(
        [
            ("name", manifest.name),
            ("role", f"{manifest.role}, {manifest.task}"),
            ("target", manifest.target),
            ("precision", manifest.precision),
            ("manifest's sha256", digest),
            ("graphs", ", ".join(f"{k}: {v}" for k, v in manifest.graphs.items())),
            ("longest input", f"{manifest.max_length} tokens"),
            *_facts("gate", manifest.gate),
            *_facts("", manifest.details),
        ]
    )
    run.screen.line()
    run.screen.table(
        "Files",
        (Column("file"), Column("bytes", right=True), Column("sha256", wide=True)),
        [(name, f"{fact.bytes:,}", fact.sha256) for name, fact in sorted(manifest.files.items())],
    )


def _facts(prefix: str, facts: dict[str, Any]) -> list[tuple[str, str]]:
    """Nested facts as lines; lists of more than a few values are counted."""
    lines: list[tuple[str, str]] = []
    for key, value in facts.items():
        name = f"{prefix} {key}".strip()
        if isinstance(value, dict):
            lines += _facts(name, value)
        elif isinstance(value, list) and len(value) > 12:
            lines.append((name, f"{len(value)} values; see --json"))
        elif isinstance(value, list):
            lines.append((name, ", ".join(map(str, value))))
        else:
            lines.append((name, f"{value:.4g}" if isinstance(value, float) else str(value)))
    return lines


@command("verify", examples=("specrag bundle verify /media/stick/drafter",))
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option(
    "--manifest-digest",
    metavar="HEX",
    help="What `bundle show` printed where the bundle came from; the manifest must match it.",
)
def verify(run: Run, folder: Path, manifest_digest: str | None) -> None:
    """Compare a bundle's files with their checksums."""
    from models.bundle import open_bundle

    opened = open_bundle(folder, manifest_sha256=manifest_digest)
    size = sum(fact.bytes for fact in opened.manifest.files.values())
    if run.json:
        run.emit({"path": str(folder), "ok": True, "files": len(opened.manifest.files)})
        return
    run.screen.line(
        ("intact: ", "good"),
        f"{opened.manifest.name}, {len(opened.manifest.files)} files, {size / 1e6:,.1f} MB",
    )


bundle.add_command(show)
bundle.add_command(verify)
