"""What one question cost and how it was decided, as plain values that turn into JSON.

The JSON shape is documented in docs/json.md and only ever grows.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.errors import UsageError
from runtime.sessions import Placement


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage's wall-clock milliseconds and the tokens its model read (0 if it has no model)."""

    name: str
    milliseconds: float
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class DraftTrace:
    """One draft: its scores are logits (raw) and probabilities (rho_*); lengths as named.

    Verifier fields are None if the draft was not verified.
    """

    subset: int
    source: str
    start: int
    end: int
    answer: str
    rationale: str
    context_tokens: int
    answer_characters: int
    start_logit: float
    end_logit: float
    null_logit: float
    rho_draft: float
    rho_self_containment: float | None
    rho_self_reflection: float | None
    score: float | None
    verified_answer: str | None
    verified_start: int | None
    verified_end: int | None
    selected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementTrace(Placement):
    """What the session of one model really runs on; `role` says whose."""

    role: str


@dataclass(frozen=True, slots=True)
class SubsetTrace:
    """The retrieval ranks of a subset's windows."""

    index: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """Everything measured for one question."""

    stages: tuple[Stage, ...]
    total_milliseconds: float
    drafter_tokens: int
    verifier_tokens: int
    windows: int
    subsets: tuple[SubsetTrace, ...]
    drafts: tuple[DraftTrace, ...]
    source_subset: int | None
    placements: tuple[PlacementTrace, ...]


def append_line(path: Path, record: dict[str, Any]) -> None:
    """Append `record` to the JSON-lines file at `path`.

    Raises:
        UsageError: the file cannot be written.
    """
    line = json.dumps(record, ensure_ascii=False) + "\n"
    try:
        with path.open("a", encoding="utf-8") as stream:
            stream.write(line)
    except OSError as error:
        raise UsageError(
            f"The log cannot be written: {error.strerror}",
            where=str(path),
            fix="Name another file with --log",
        ) from error


def as_json(value: Any) -> dict[str, Any]:
    """A trace dataclass as JSON-ready values."""
    return asdict(value)
