"""A pair of bundles and held-out questions -> `calibration.json` in the verifier's bundle.

All contexts become one knowledge base, except those of a share of the questions, whose answers
then are not in it: a confidence must also know those. Every question is asked by every route, and
the map from the route's raw score to the share of right answers is fitted (`fitting.py`).

    python -m export.calibration --drafter DIR --verifier DIR --data FILE
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from export.fitting import fit
from export.parity import GateQuestion, read_questions
from export.reporting import Progress
from models.bundle import Bundle, describe_file, write_manifest
from runtime.answer_metrics import token_f1
from runtime.calibration import FILE, SCORE, CalibrationMap
from runtime.documents import ParsedDocument
from runtime.drafting import Drafter
from runtime.encoding import PairEncoder
from runtime.knowledge_base import KnowledgeBase
from runtime.pipeline import AskOptions, Drafted, Pipeline, ReadWindows, Verified
from runtime.sessions import SessionOptions, open_session
from runtime.verification import Verifier
from runtime.windows import WindowTokenizer

ROUTES = ("speculative", "standard", "drafter")
DIAGRAM = "calibration.png"
RIGHT_F1 = 0.5  # an answer is right that shares half its words with a gold answer's
RIGHT = "token F1 of at least 0.5 with a gold answer"


@dataclass(frozen=True)
class CalibrationOptions:
    """What to ask.

    Attributes:
        data: files of questions that the models were not trained on.
        distractors: files whose contexts are searched but not asked about.
        questions: at most so many, drawn with `seed`.
        absent: share of contexts that are kept out of the knowledge base.
    """

    data: tuple[Path, ...]
    distractors: tuple[Path, ...] = ()
    questions: int = 1500
    absent: float = 0.2
    seed: int = 0
    threads: int | None = None
    ask: AskOptions = field(default_factory=lambda: AskOptions(drafter_deadline=None))


@dataclass(frozen=True, slots=True)
class Asked:
    """A question's raw scores (log-odds) by route, and whether each answer was right."""

    scores: dict[str, float]
    right: dict[str, bool]


def calibrate(
    drafter: Bundle, verifier: Bundle, options: CalibrationOptions, progress: Progress
) -> dict[str, CalibrationMap]:
    """Ask, fit one map a route, and return them without storing.

    Raises:
        UsageError: too few usable questions.
    """
    progress("reading the questions", 0.0)
    questions = [question for path in options.data for question in read_questions(path, least=1)]
    answered = [question for question in questions if question.answers]
    chosen = _sample(answered, options.questions, options.seed)
    contexts = [question.context for question in questions]
    for path in options.distractors:
        contexts += [question.context for question in read_questions(path, least=1)]
    kept = [
        context
        for context in dict.fromkeys(contexts)
        if not is_absent(context, options.absent, options.seed)
    ]
    with tempfile.TemporaryDirectory(prefix="specrag-calibrate-") as folder:
        path = Path(folder) / "kb"
        progress("adding the contexts", 0.0)
        _fill(path, drafter, kept)
        with _open_pipeline(path, drafter, verifier, options.threads) as pipeline:
            asked = list(_ask_all(pipeline, chosen, options, progress))
    data = [path.name for path in options.data]
    return {route: _fit_route(route, asked, data, options.seed) for route in ROUTES}


def _sample(questions: Sequence[GateQuestion], count: int, seed: int) -> list[GateQuestion]:
    order = np.random.default_rng(seed).permutation(len(questions))[:count]
    return [questions[index] for index in sorted(order)]


def is_absent(context: str, share: float, seed: int) -> bool:
    """Whether this context is kept out of the knowledge base; decided by its text alone."""
    digest = hashlib.sha256(f"absent {seed}\n{context}".encode()).digest()
    return int.from_bytes(digest[:4], "big") < share * 2**32


def _fill(path: Path, drafter: Bundle, contexts: Sequence[str]) -> None:
    """A knowledge base at `path` with one document for each context."""
    tokenizer = WindowTokenizer.from_file(drafter.tokenizer_path)
    with KnowledgeBase.open(path, tokenizer=tokenizer, create=True, stemmer="english") as filled:
        filled.add_many(_documents(contexts))


def _open_pipeline(path: Path, drafter: Bundle, verifier: Bundle, threads: int | None) -> Pipeline:
    sessions = SessionOptions(provider="cpu", threads=threads)
    return Pipeline(
        KnowledgeBase.open(path, tokenizer=WindowTokenizer.from_file(drafter.tokenizer_path)),
        Drafter(open_session(drafter, sessions), _encoder(drafter), drafter.manifest.null_index),
        Verifier(
            open_session(verifier, sessions),
            _encoder(verifier),
            verifier.manifest.null_index,
            reuses_windows=drafter.tokenizer_sha256 == verifier.tokenizer_sha256,
        ),
    )


def _encoder(bundle: Bundle) -> PairEncoder:
    return PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)


def _documents(contexts: Sequence[str]) -> Iterator[tuple[ParsedDocument, str, int]]:
    for number, text in enumerate(contexts):
        content = text.encode("utf-8")
        document = ParsedDocument(f"context-{number}", "", "text/plain", text, (0,))
        yield document, hashlib.sha256(content).hexdigest(), len(content)


def _ask_all(
    pipeline: Pipeline,
    questions: Sequence[GateQuestion],
    options: CalibrationOptions,
    progress: Progress,
) -> Iterator[Asked]:
    for done, question in enumerate(questions, start=1):
        yield _ask(pipeline, question, options.ask)
        progress("asking", done / len(questions))


def _ask(pipeline: Pipeline, question: GateQuestion, ask: AskOptions) -> Asked:
    """One question by both routes; the first draft of the speculative one is the drafter's."""
    scores: dict[str, float] = {}
    answers: dict[str, str] = {}
    for route in ("speculative", "standard"):
        for event in pipeline.ask(question.question, replace(ask, route=route)):
            if isinstance(event, Drafted) and event.drafts:
                draft = event.drafts[0]
                scores["drafter"] = draft.scored.log_odds
                answers["drafter"] = draft.answer
            elif isinstance(event, Verified) and event.verdicts:
                scores["speculative"] = event.verdicts[0].scored.log_odds
                answers["speculative"] = event.verdicts[0].answer
            elif isinstance(event, ReadWindows) and event.readings:
                scores["standard"] = event.readings[0].scored.log_odds
                answers["standard"] = event.readings[0].answer
    right = {
        route: max(token_f1(answer, gold) for gold in question.answers) >= RIGHT_F1
        for route, answer in answers.items()
    }
    return Asked(scores, right)


def _fit_route(
    route: str, asked: Sequence[Asked], data: Sequence[str], seed: int
) -> CalibrationMap:
    seen = [question for question in asked if route in question.scores]
    scores = np.array([question.scores[route] for question in seen], dtype=np.float64)
    right = np.array([question.right[route] for question in seen], dtype=np.bool_)
    fitted = fit(scores, right, seed=seed)
    facts = {**fitted.facts, "data": list(data), "right_means": RIGHT}
    return replace(fitted, facts=facts)


def store(verifier: Bundle, drafter: Bundle, maps: dict[str, CalibrationMap]) -> None:
    """Write the maps and their diagram into the verifier's bundle, and into its manifest.

    The drafter is named by the sha256 of its graph: with another one the maps do not hold.
    """
    from export.reliability import draw

    graph = drafter.manifest.graphs["int8"]
    raw = {
        "drafter": drafter.manifest.files[graph].sha256,
        "drafter_name": drafter.manifest.name,
        "score": SCORE,
        "maps": {route: fitted.to_json() for route, fitted in maps.items()},
    }
    text = json.dumps(raw, indent=1, ensure_ascii=False) + "\n"
    temporary = verifier.path / f".{FILE}.new"
    temporary.write_text(text, "utf-8")
    draw(maps, verifier.path / DIAGRAM)
    temporary.replace(verifier.path / FILE)
    files = {name: describe_file(verifier.path / name) for name in (FILE, DIAGRAM)}
    details = {
        **verifier.manifest.details,
        "calibration": {route: summary(fitted) for route, fitted in maps.items()},
    }
    manifest = replace(
        verifier.manifest, files={**verifier.manifest.files, **files}, details=details
    )
    write_manifest(verifier.path, manifest)


def summary(fitted: CalibrationMap) -> dict[str, Any]:
    """The figures of one map, without its table."""
    names = ("questions", "ece", "brier", "ece_uncalibrated", "brier_uncalibrated")
    return {"kind": fitted.kind, **{name: fitted.facts[name] for name in names}}


def print_maps(maps: dict[str, CalibrationMap]) -> None:
    """The figures as a table, to standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Calibration, cross-validated; in brackets before")
    for name in ("route", "map", "questions", "right", "ECE", "Brier"):
        table.add_column(name)
    for route, fitted in maps.items():
        facts = fitted.facts
        table.add_row(
            route,
            fitted.kind,
            str(facts["questions"]),
            f"{100 * facts['right']:.1f} %",
            f"{facts['ece']:.3f} ({facts['ece_uncalibrated']:.3f})",
            f"{facts['brier']:.3f} ({facts['brier_uncalibrated']:.3f})",
        )
    Console(highlight=False).print(table)


if __name__ == "__main__":
    from export.commands import calibrate_command, run_script

    run_script(calibrate_command)
