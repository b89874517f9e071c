"""An export's facts -> a table for people, one JSON object for machines, and its progress."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from export.latency import LatencyReport
from export.parity import GateReport
from models.bundle import Manifest
from runtime.errors import GateFailed

Progress = Callable[[str, float], None]
SCHEMA_VERSION = 1  # of the JSON that every command prints


@dataclass(frozen=True, slots=True)
class Attempt:
    """One scheme that was tried, and why it was kept or not."""

    scheme: str
    passed: bool
    gate: GateReport | None
    note: str
    bytes: int

    def to_json(self) -> dict[str, Any]:
        return {
            "scheme": self.scheme,
            "passed": self.passed,
            "note": self.note,
            "bytes": self.bytes,
            "gate": self.gate.to_json() if self.gate else None,
        }


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What an export made, for the final table and `--json`.

    Attributes:
        nodes: per graph of the bundle, how many nodes of each type.
        weights: per graph, bytes of weights in each element type.
        fused: fused operators and how many of each.
        sizes: bytes: the bundle's files, and "fp32_onnx" for comparison.
    """

    output: Path
    manifest: Manifest
    why: str
    attempts: tuple[Attempt, ...]
    nodes: dict[str, dict[str, int]]
    weights: dict[str, dict[str, int]]
    fused: dict[str, int]
    sizes: dict[str, int]
    latency: LatencyReport
    seconds: float
    notes: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "bundle": str(self.output),
            "name": self.manifest.name,
            "role": self.manifest.role,
            "target": self.manifest.target,
            "precision": self.manifest.precision,
            "scheme": self.manifest.details["scheme"],
            "why": self.why,
            "sizes": self.sizes,
            "nodes": self.nodes,
            "weight_bytes": self.weights,
            "fused": self.fused,
            "gate": self.manifest.gate,
            "attempts": [attempt.to_json() for attempt in self.attempts],
            "latency": self.latency.to_json(),
            "seconds": round(self.seconds, 1),
            "notes": list(self.notes),
        }


class NothingPassed(GateFailed):
    """No scheme met the gate; `attempts` says how each failed."""

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        fix: str | None = None,
        attempts: Sequence[Attempt] = (),
    ) -> None:
        super().__init__(what, where=where, fix=fix)
        self.attempts = tuple(attempts)

    def to_json(self) -> dict[str, Any]:
        """The error, and what was tried before it."""
        return {**super().to_json(), "attempts": [one.to_json() for one in self.attempts]}


def print_report(report: ExportReport) -> None:
    """The tables, to standard output."""
    from rich.console import Console

    console = Console(highlight=False)
    console.print(_facts_table(report))
    console.print(_attempts_table(report.attempts))
    console.print(_latency_table(report.latency))
    for note in report.notes:
        console.print(f"Note: {note}")
    console.print(f"Bundle: {report.output}", soft_wrap=True)


def print_attempts(attempts: Sequence[Attempt]) -> None:
    """What was tried in vain, to standard output."""
    from rich.console import Console

    Console(highlight=False).print(_attempts_table(attempts))


def _facts_table(report: ExportReport) -> Any:
    from rich.table import Table

    table = Table(
        title=f"{report.manifest.name}: {report.manifest.role} for {report.manifest.target}"
    )
    table.add_column("what")
    table.add_column("value")
    table.add_row("scheme", f"{report.manifest.details['scheme']}: {report.why}")
    for name, size in report.sizes.items():
        table.add_row(f"size of {name}", f"{size / 1e6:.1f} MB")
    table.add_row("fused", _counts(report.fused))
    for name, counts in report.nodes.items():
        table.add_row(f"nodes, {name}", _counts(counts))
        table.add_row(
            f"weights, {name}",
            ", ".join(f"{kind} {size / 1e6:.1f} MB" for kind, size in report.weights[name].items()),
        )
    table.add_row("time", f"{report.seconds:.0f} s")
    return table


def _attempts_table(attempts: Sequence[Attempt]) -> Any:
    from rich.table import Table

    table = Table(title="Accuracy gate against FP32")
    for name in ("scheme", "verdict", "dF1", "dEM", "identical spans", "worst logit error", "note"):
        table.add_column(name)
    for attempt in attempts:
        gate = attempt.gate
        figures = ("", "", "", "")
        if gate is not None:
            figures = (
                f"{gate.delta_f1:+.2f} ± {gate.delta_f1_error:.2f}",
                f"{gate.delta_em:+.2f}",
                f"{100 * gate.identical_spans:.1f} %",
                f"{gate.worst_logit_error:.3f}",
            )
        table.add_row(
            attempt.scheme, "passed" if attempt.passed else "failed", *figures, attempt.note
        )
    return table


def _latency_table(latency: LatencyReport) -> Any:
    from rich.table import Table

    table = Table(
        title=f"{latency.batch} windows of {latency.length} tokens, {latency.threads} threads, "
        f"{latency.rounds} interleaved rounds"
    )
    for name in ("graph", "median ms", "from - to", "ms a window", "this is slower by"):
        table.add_column(name)
    first = next(iter(latency.median_ms))
    for name, median in latency.median_ms.items():
        low, high = latency.spread_ms[name]
        table.add_row(
            name,
            f"{median:.1f}",
            f"{low:.1f} - {high:.1f}",
            f"{median / latency.batch:.2f}",
            f"{latency.ratio(name, first):.2f} x",
        )
    return table


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{number} {name}" for name, number in counts.items()) or "none"


@contextmanager
def show_progress(enabled: bool) -> Iterator[Progress]:
    """A function that shows a stage and the share of it that is done, on standard error.

    On a terminal a moving bar; elsewhere one line for each new stage.
    """
    if not enabled:
        yield lambda *_: None
    elif sys.stderr.isatty():
        yield from _bar()
    else:
        yield _lines()


def _bar() -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda stage, share: bar.update(task, description=stage, completed=share)


def _lines() -> Progress:
    last = ""

    def show(stage: str, _: float) -> None:
        nonlocal last
        if stage != last:
            print(stage, file=sys.stderr, flush=True)
            last = stage

    return show
