"""eval: question files -> EM, F1, recall, tokens and latency of each route, in one run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import click

from edge.command import Run, command
from edge.screen import Column

if TYPE_CHECKING:
    from runtime.documents import ParsedDocument
    from runtime.pipeline import Pipeline


@command(
    "eval",
    scopes=("models", "question"),
    several="--distractors",
    examples=(
        "specrag eval --dataset xquad.en.json --limit 100",
        "specrag eval --dataset xquad.en.json --distractors new_wiki.json amazon.json --json",
    ),
)
@click.option(
    "--dataset",
    required=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Questions: SQuAD 1.1 or 2.0 JSON, or JSON lines.",
)
@click.option(
    "--distractors",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE...",
    help="Files whose contexts join the knowledge base.",
)
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", help="Ask N questions drawn with --seed."
)
def evaluate(run: Run, dataset: Path, distractors: tuple[Path, ...], limit: int | None) -> None:
    """Measure answers on a file of questions with known answers.

    All contexts become one knowledge base, in a folder of its own that is removed afterwards; all
    questions are asked by each route in turn.
    """
    from benchmarks.squad import EvalOptions
    from benchmarks.squad import evaluate as measure
    from edge.assembly import ask_options, assemble_with
    from edge.commands.documents import progress

    options = EvalOptions(
        dataset=dataset,
        distractors=distractors,
        limit=limit,
        seed=run.settings.seed,
        ask=ask_options(run.settings),
    )
    with progress(run, 1) as advance, TemporaryDirectory(prefix="specrag-eval-") as folder:

        def build(documents: Iterable[ParsedDocument]) -> Pipeline:
            assembled = assemble_with(run.settings, documents, Path(folder))
            for warning in assembled.warnings:
                run.warn(warning)
            return assembled.pipeline

        result = measure(options, build, lambda done, total, what: advance(done, what, total))
    if run.json:
        run.emit(result)
    else:
        _show(run, result)


def _show(run: Run, result: dict[str, Any]) -> None:
    recall = result["recall_at_k"]
    run.screen.pairs(
        [
            ("questions", f"{result['questions']:,}"),
            ("passages", f"{result['passages']:,}"),
            (f"recall@{result['k']}", "-" if recall is None else f"{100 * recall:.1f} %"),
        ]
    )
    run.screen.line()
    numbers = ("EM", "F1", "answered", "p50 ms", "p95 ms", "p99 ms", "verifier", "drafter")
    rows = [(name, *_route_row(route)) for name, route in result["routes"].items()]
    run.screen.table(
        "Routes (verifier and drafter: tokens read, mean of a question)",
        (Column("route"), *(Column(title, right=True) for title in numbers)),
        rows,
    )
    run.screen.line()
    stages = [
        (name, stage, *(f"{values[p]:.1f}" for p in ("p50", "p95", "p99")))
        for name, route in result["routes"].items()
        for stage, values in route["latency_ms"]["stages"].items()
    ]
    run.screen.table(
        "Stages, milliseconds",
        (
            Column("route"),
            Column("stage"),
            *(Column(title, right=True) for title in ("p50", "p95", "p99")),
        ),
        stages,
    )
    auto = result["routes"].get("auto")
    if auto:
        shares = ", ".join(f"{name} {100 * share:.0f} %" for name, share in auto["share"].items())
        run.screen.line()
        run.screen.line(f"Final routes of auto: {shares}")


def _route_row(route: dict[str, Any]) -> tuple[str, ...]:
    latency = route["latency_ms"]
    return (
        f"{route['em']:.1f}",
        f"{route['f1']:.1f}",
        f"{100 * route['answered']:.0f} %",
        *(f"{latency[p]:.0f}" for p in ("p50", "p95", "p99")),
        f"{route['verifier_tokens']:.0f}",
        f"{route['drafter_tokens']:.0f}",
    )
