"""info: what is installed, which models there are, what the knowledge base holds."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from edge.command import Run, command
from edge.settings import SETTINGS, Settings, config_path, knowledge_base_path
from models.bundle import Role
from runtime.errors import SpecragError

_PACKAGES = (
    "onnxruntime",
    "onnxruntime-gpu",
    "onnxruntime-openvino",
    "tokenizers",
    "tantivy",
    "numpy",
)
_ROLES: tuple[Role, ...] = ("drafter", "verifier")


@command(
    "info",
    scopes=("store", "models"),
    examples=("specrag info", "specrag info --json --provider cuda"),
)
def info(run: Run) -> None:
    """Show versions, bundles, placements, statistics and settings."""
    facts = {
        "versions": versions(),
        "bundles": {role: _bundle(run.settings, role) for role in _ROLES},
        "placements": {role: _placement(run.settings, role) for role in _ROLES},
        "kb": _knowledge_base(run.settings),
        "config": str(run.config or config_path()),
        "settings": {setting.name: _plain(run.settings, setting.name) for setting in SETTINGS},
    }
    if run.json:
        run.emit(facts)
        return
    for title, lines in facts.items():
        run.screen.line((title, "strong"))
        run.screen.pairs(_lines(lines) if isinstance(lines, dict) else [("", str(lines))])
        run.screen.line()


def versions() -> dict[str, str]:
    """Versions of specrag, Python and what it stands on; absent where not installed."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in ("specrag", *_PACKAGES):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _bundle(settings: Settings, role: Role) -> dict[str, Any]:
    from edge.assembly import bundle_path
    from models.bundle import read_manifest

    path = bundle_path(settings, role)
    try:
        manifest = read_manifest(path)
    except SpecragError as error:
        return {"path": str(path), "error": str(error)}
    facts = manifest.to_json()
    del facts["files"]
    return {"path": str(path), **facts}


def _placement(settings: Settings, role: Role) -> dict[str, Any]:
    from dataclasses import asdict

    from edge.assembly import open_session_of

    try:
        session = open_session_of(settings, role)
    except SpecragError as error:
        return {"error": str(error)}
    placement = asdict(session.placement)
    session.close()
    return placement


def _knowledge_base(settings: Settings) -> dict[str, Any]:
    from dataclasses import asdict

    from edge.assembly import open_knowledge_base

    path = knowledge_base_path(settings)
    try:
        with open_knowledge_base(settings) as kb:
            return {"path": str(path), **asdict(kb.statistics())}
    except SpecragError as error:
        return {"path": str(path), "error": str(error)}


def _plain(settings: Settings, name: str) -> Any:
    """A setting's value as JSON has it; a secret only as being there."""
    value = getattr(settings, name)
    if name == "token":
        return None if value is None else "***"
    return value if value is None or isinstance(value, bool | int | float) else _text(value)


def _text(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else str(value)


def _lines(facts: dict[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    lines: list[tuple[str, str]] = []
    for name, value in facts.items():
        if isinstance(value, dict):
            lines += _lines(value, f"{prefix}{name} ")
        elif isinstance(value, list | tuple):
            lines.append((prefix + name, ", ".join(map(str, value))))
        elif value is not None:
            lines.append((prefix + name, str(value)))
    return lines
