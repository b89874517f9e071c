"""Speculative against standard RAG on the same questions: what each stage costs, and the ratio.

The theory. With k windows of about W tokens, m rationales of about R tokens, a drafter that costs d
and a verifier that costs v per token,

    standard      retrieval + k W v
    speculative   retrieval + k W d + m R v
    ratio         about d / v + m R / (k W)

so what counts is a small drafter, short rationales, and no padding. The predicted ratio is printed
beside the measured one, from the tokens and times of this very run.

The method. Every question is asked by both routes in turn, the order alternating, in several
repetitions after a warm-up: whatever else the machine does meets both alike. The ratio is taken per
question, from its medians over the repetitions; its spread is the interquartile range over
questions, and the interval is a bootstrap of the median. The last line is one JSON object.

    python -m benchmarks.latency                         the example manual and its questions
    python -m benchmarks.latency --dataset xquad.en.json --distractors new_wiki_v1.0.json …
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks import machine, squad
from edge.assembly import ask_options, assemble, open_knowledge_base
from edge.settings import Settings
from runtime.documents import ParsedDocument
from runtime.pipeline import Answer, AskOptions, Pipeline

ROUTES = ("speculative", "standard")
ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = ROOT / "examples" / "pumping-station"
EXAMPLE_QUESTIONS = ROOT / "tests" / "data" / "pumping-station.jsonl"


@dataclass
class Measured:
    """Milliseconds of one route: totals (questions, repetitions), and by stage."""

    totals: list[list[float]] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    drafter_tokens: list[int] = field(default_factory=list)
    verifier_tokens: list[int] = field(default_factory=list)

    def add(self, answer: Answer, milliseconds: float) -> None:
        self.totals[-1].append(milliseconds)
        for stage in answer.trace.stages:
            self.stages.setdefault(stage.name, []).append(stage.milliseconds)
        self.drafter_tokens.append(answer.trace.drafter_tokens)
        self.verifier_tokens.append(answer.trace.verifier_tokens)

    def medians(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """The median over repetitions, for each question."""
        return np.asarray(np.median(np.asarray(self.totals), axis=1), dtype=np.float64)


def measure(
    pipeline: Pipeline, questions: Sequence[str], options: AskOptions, repetitions: int
) -> dict[str, Measured]:
    """Ask each question `repetitions` times by both routes, interleaved."""
    options = replace(options, drafter_deadline=None)
    squad.warm_up(pipeline, questions[0], options, ROUTES)
    measured = {route: Measured() for route in ROUTES}
    for question in questions:
        for of_route in measured.values():
            of_route.totals.append([])
        for repetition in range(repetitions):
            for route in ROUTES if repetition % 2 == 0 else reversed(ROUTES):
                started = time.perf_counter()
                answer = pipeline.answer(question, squad.routed(options, route))
                measured[route].add(answer, (time.perf_counter() - started) * 1e3)
    return measured


def summarise(measured: dict[str, Measured], questions: int, repetitions: int) -> dict[str, Any]:
    """The report as one JSON-ready object."""
    speculative, standard = (measured[route] for route in ROUTES)
    ratios = speculative.medians() / standard.medians()
    low, high = np.percentile(ratios, (25, 75))
    return {
        "schema_version": 1,
        "questions": questions,
        "repetitions": repetitions,
        "routes": {
            route: {
                "latency_ms": {
                    **squad.percentiles(np.asarray(of_route.totals).ravel().tolist()),
                    "stages": {
                        name: squad.percentiles(values) for name, values in of_route.stages.items()
                    },
                },
                "drafter_tokens": round(float(np.mean(of_route.drafter_tokens)), 1),
                "verifier_tokens": round(float(np.mean(of_route.verifier_tokens)), 1),
            }
            for route, of_route in measured.items()
        },
        "ratio": {
            "median": round(float(np.median(ratios)), 4),
            "interquartile": [round(float(low), 4), round(float(high), 4)],
            "interval_95": bootstrap_median(ratios),
            "of_medians": round(
                float(np.median(speculative.medians()) / np.median(standard.medians())), 4
            ),
            "predicted": predicted_ratio(speculative, standard),
        },
        "machine": machine.describe(),
    }


def predicted_ratio(speculative: Measured, standard: Measured) -> float:
    """d / v + m R / (k W) from this run's own times and tokens: the ratio without overheads."""
    drafter_cost = np.median(speculative.stages["draft"]) / np.mean(speculative.drafter_tokens)
    verifier_cost = np.median(standard.stages["read"]) / np.mean(standard.verifier_tokens)
    share = np.mean(speculative.verifier_tokens) / np.mean(standard.verifier_tokens)
    return round(float(drafter_cost / verifier_cost + share), 4)


def bootstrap_median(
    values: np.ndarray[Any, np.dtype[np.float64]], samples: int = 2000
) -> list[float]:
    """The 95 % interval of the median, by resampling questions; seeded."""
    generator = np.random.default_rng(0)
    drawn = generator.integers(len(values), size=(samples, len(values)))
    low, high = np.percentile(np.median(values[drawn], axis=1), (2.5, 97.5))
    return [round(float(low), 4), round(float(high), 4)]


def table(report: dict[str, Any]) -> str:
    """The report for people."""
    lines = [f"{'milliseconds':<24}{'p50':>9}{'p95':>9}{'p99':>9}"]
    for route, figures in report["routes"].items():
        latency = figures["latency_ms"]
        lines.append(_row(route, latency))
        lines += [_row(f"  {name}", values) for name, values in latency["stages"].items()]
        lines.append(
            f"  tokens a question: drafter {figures['drafter_tokens']:.0f}, "
            f"verifier {figures['verifier_tokens']:.0f}"
        )
    ratio, of = report["ratio"], report["machine"]
    lines += [
        "",
        f"speculative / standard   {ratio['median']:.3f}   (median over questions; half of them "
        f"within {ratio['interquartile'][0]:.3f}-{ratio['interquartile'][1]:.3f}; 95 % interval "
        f"{ratio['interval_95'][0]:.3f}-{ratio['interval_95'][1]:.3f}; "
        f"predicted without overheads {ratio['predicted']:.3f})",
        f"{report['questions']} questions, {report['repetitions']} repetitions; {of['cpu']}, "
        f"{of['cores']} cores, {' '.join(of['instruction_sets'])}, {of['memory_gib']} GiB, "
        f"onnxruntime {of['onnxruntime']}",
    ]
    lines += [
        f"{p['role']}: {p['precision']} on {p['provider']}, {p['threads']} threads, {p['location']}"
        for p in report["placements"]
    ]
    return "\n".join(lines)


def _row(name: str, values: dict[str, float]) -> str:
    return f"{name:<24}{values['p50']:>9.1f}{values['p95']:>9.1f}{values['p99']:>9.1f}"


@dataclass(frozen=True)
class Workload:
    """What to ask, and of which documents."""

    questions: tuple[str, ...]
    documents: tuple[ParsedDocument, ...]


def example_workload() -> Workload:
    """The example manual and all its questions."""
    from runtime.readers import find_files, read_document

    questions = [json.loads(line)["question"] for line in EXAMPLE_QUESTIONS.open(encoding="utf-8")]
    documents = [d for found in find_files([EXAMPLE]).files for d in read_document(found.path)]
    return Workload(tuple(questions), tuple(documents))


def squad_workload(dataset: Path, distractors: Sequence[Path]) -> Workload:
    """The questions and contexts of SQuAD-format files."""
    read = squad.read_dataset(dataset)
    documents = squad.corpus(dataset, read, distractors)
    return Workload(tuple(q.question for q in read.questions), tuple(documents))


def fill(settings: Settings, documents: Iterable[ParsedDocument]) -> None:
    """Add `documents` to the knowledge base that the settings name."""
    with open_knowledge_base(settings, create=True, writable=True) as knowledge_base:
        knowledge_base.add_many(squad.as_added(document) for document in documents)


@click.command(help=__doc__)
@click.option("--dataset", type=click.Path(path_type=Path), help="SQuAD-format questions.")
@click.option(
    "--distractors",
    type=click.Path(path_type=Path),
    multiple=True,
    help="More SQuAD-format files whose contexts are added; give the option once for each.",
)
@click.option("--limit", default=60, show_default=True, help="Questions asked.")
@click.option("--repetitions", default=5, show_default=True, help="Times each is asked by a route.")
@click.option("--seed", default=0, show_default=True, help="Seed of the choice of questions.")
@click.option("--threads", type=int, help="CPU threads of each model.")
@click.option("--drafter", type=click.Path(path_type=Path), help="Drafter bundle.")
@click.option("--verifier", type=click.Path(path_type=Path), help="Verifier bundle.")
@click.option("--verifier-url", help="Ask the verifier at this address instead.")
@click.option("--token", help="The remote verifier's token.")
def main(
    dataset: Path | None,
    distractors: tuple[Path, ...],
    limit: int,
    repetitions: int,
    seed: int,
    threads: int | None,
    drafter: Path | None,
    verifier: Path | None,
    verifier_url: str | None,
    token: str | None,
) -> None:
    workload = squad_workload(dataset, distractors) if dataset else example_workload()
    chosen = np.random.default_rng(seed).permutation(len(workload.questions))[:limit]
    questions = [workload.questions[int(i)] for i in sorted(chosen)]
    with tempfile.TemporaryDirectory(prefix="specrag-latency-") as folder:
        settings = Settings(
            kb=Path(folder) / "kb",
            drafter=drafter,
            verifier=verifier,
            verifier_url=verifier_url,
            token=token,
            threads=threads,
        )
        fill(settings, workload.documents)
        with assemble(settings).pipeline as pipeline:
            measured = measure(pipeline, questions, ask_options(settings), repetitions)
            report = summarise(measured, len(questions), repetitions)
            report["placements"] = [squad.placement_json(p) for p in pipeline.placements()]
    click.echo(table(report))
    click.echo(json.dumps(report))


if __name__ == "__main__":
    main()
