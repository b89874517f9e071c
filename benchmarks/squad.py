"""SQuAD-format questions -> exact match and F1 of each route, retrieval recall, tokens, latency.

All contexts of the data set, and of any number of distractor files, become one knowledge base; all
questions are then asked by every route in one run, route by route within each question, so that
whatever else the machine does meets them alike. The three forced routes always answer; `auto`
decides by the threshold, and may abstain.

Metrics are those of SQuAD (Rajpurkar et al. 2016, arXiv 1606.05250; 2.0: 2018, arXiv 1806.03822):
lower case, no punctuation, no articles, white space folded; the best over all gold answers. A
question without gold answers is right exactly if the route abstains.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from runtime.answer_metrics import normalise, token_f1
from runtime.documents import ParsedDocument, RetrievedWindow, Span
from runtime.errors import QuestionError, UsageError
from runtime.pipeline import (
    Answer,
    Answered,
    AskedRoute,
    AskOptions,
    Pipeline,
    Retrieved,
    checked_question,
)
from runtime.questions import AskedQuestion, read_question_file

ROUTES = ("speculative", "standard", "drafter", "auto")

# (done, total, what) -> shown to the person who waits.
Progress = Callable[[int, int, str], None]


@dataclass(frozen=True)
class Question:
    """One question; `answers` are gold spans of the context, none if it cannot be answered."""

    id: str
    question: str
    context: str
    answers: tuple[tuple[str, Span], ...]


@dataclass(frozen=True)
class Dataset:
    """The questions of a file, and all its contexts (also those without questions)."""

    questions: tuple[Question, ...]
    contexts: tuple[str, ...]


@dataclass(frozen=True)
class EvalOptions:
    """What to measure. `limit` questions are sampled with `seed`; None asks all."""

    dataset: Path
    distractors: tuple[Path, ...] = ()
    limit: int | None = None
    seed: int = 0
    routes: tuple[str, ...] = ROUTES
    ask: AskOptions = field(default_factory=AskOptions)


@dataclass
class _Tally:
    """What one route did, one entry a question."""

    em: list[float] = field(default_factory=list)
    f1: list[float] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)
    stages: dict[str, list[float]] = field(default_factory=dict)
    verifier_tokens: list[int] = field(default_factory=list)
    drafter_tokens: list[int] = field(default_factory=list)
    finals: Counter[str] = field(default_factory=Counter)

    def add(self, answer: Answer, em: float, f1: float, milliseconds: float) -> None:
        self.em.append(em)
        self.f1.append(f1)
        self.milliseconds.append(milliseconds)
        for stage in answer.trace.stages:
            self.stages.setdefault(stage.name, []).append(stage.milliseconds)
        self.verifier_tokens.append(answer.trace.verifier_tokens)
        self.drafter_tokens.append(answer.trace.drafter_tokens)
        self.finals[answer.route] += 1

    def to_json(self) -> dict[str, Any]:
        count = len(self.em)
        return {
            "em": round(100 * float(np.mean(self.em)), 2),
            "f1": round(100 * float(np.mean(self.f1)), 2),
            "answered": round(1 - self.finals["abstained"] / count, 4),
            "latency_ms": {
                **percentiles(self.milliseconds),
                "stages": {name: percentiles(values) for name, values in self.stages.items()},
            },
            "verifier_tokens": round(float(np.mean(self.verifier_tokens)), 1),
            "drafter_tokens": round(float(np.mean(self.drafter_tokens)), 1),
            "share": {
                route: round(number / count, 4) for route, number in self.finals.most_common()
            },
        }


def evaluate(
    options: EvalOptions,
    build: Callable[[Iterable[ParsedDocument]], Pipeline],
    progress: Progress,
) -> dict[str, Any]:
    """Build the knowledge base, ask every question by every route, and report.

    Args:
        build: makes a pipeline whose knowledge base holds exactly the given documents.

    Returns:
        The JSON object documented in docs/json.md: `questions`, `passages`, `k`, `recall_at_k`,
        `routes`, `placements`.

    Raises:
        UsageError: a file cannot be read as questions, or there is nothing to ask.
    """
    dataset = read_dataset(options.dataset)
    questions = sample(dataset.questions, options.limit, options.seed)
    if not questions:
        raise UsageError("The data set holds no questions", where=str(options.dataset))
    documents = corpus(options.dataset, dataset, options.distractors)
    with build(documents_with_progress(documents, progress)) as pipeline:
        tallies, recalled = ask_all(pipeline, questions, options, progress)
        answerable = sum(1 for question in questions if question.answers)
        return {
            "schema_version": 1,
            "dataset": options.dataset.name,
            "questions": len(questions),
            "answerable": answerable,
            "passages": len(documents),
            "k": options.ask.windows,
            "recall_at_k": round(recalled / answerable, 4) if answerable else None,
            "routes": {route: tally.to_json() for route, tally in tallies.items()},
            "placements": [placement_json(p) for p in pipeline.placements()],
        }


def placement_json(placement: Any) -> dict[str, Any]:
    """The fields of a placement that a report needs."""
    return {
        "role": placement.role,
        "provider": placement.provider,
        "precision": placement.precision,
        "threads": placement.threads,
        "location": placement.location,
    }


def routed(options: AskOptions, route: str) -> AskOptions:
    """`options` for one route."""
    return replace(options, route=cast("AskedRoute", route))


def ask_all(
    pipeline: Pipeline, questions: Sequence[Question], options: EvalOptions, progress: Progress
) -> tuple[dict[str, _Tally], int]:
    """Ask each question by each route; also count questions whose answer was retrieved."""
    tallies = {route: _Tally() for route in options.routes}
    # Nothing may be late because of a busy machine: the deadline is for people who wait.
    ask = replace(options.ask, drafter_deadline=None)
    warm_up(pipeline, questions[0].question, ask, options.routes)
    recalled = 0
    for done, question in enumerate(questions, start=1):
        windows: tuple[RetrievedWindow, ...] = ()
        for route in options.routes:
            started = time.perf_counter()
            for event in pipeline.ask(question.question, routed(ask, route)):
                if isinstance(event, Retrieved):
                    windows = event.windows
                elif isinstance(event, Answered):
                    elapsed = (time.perf_counter() - started) * 1e3
                    text = event.answer.text
                    tallies[route].add(
                        event.answer, exact_match(text, question), f1(text, question), elapsed
                    )
        recalled += bears_answer(windows, question)
        progress(done, len(questions), "asking")
    return tallies, recalled


def warm_up(pipeline: Pipeline, question: str, ask: AskOptions, routes: Sequence[str]) -> None:
    """Run every route a few times, so that the first question is not the one that allocates."""
    for _ in range(3):
        for route in routes:
            pipeline.answer(question, routed(ask, route))


def bears_answer(windows: Sequence[RetrievedWindow], question: Question) -> bool:
    """Whether a window of the question's own context holds one of its gold spans whole."""
    return any(
        found.window.passage_text.strip() in question.context
        and found.window.span.contains(span)
        and span.of(question.context)
        == span.shifted(-found.window.span.start).of(found.window.text)
        for found in windows
        for _, span in question.answers
    )


# Reading data sets


def read_dataset(path: Path) -> Dataset:
    """SQuAD 1.1 or 2.0 JSON, or JSON lines, as runtime/questions.py reads them.

    Raises:
        UsageError: unreadable, of neither form, a question that cannot be asked, or an answer that
            does not stand in its context; with the place in the file.
    """
    file = read_question_file(path)
    return Dataset(tuple(map(_question, file.questions)), file.contexts)


def _question(asked: AskedQuestion) -> Question:
    try:
        checked_question(asked.question)
    except QuestionError as error:
        raise UsageError(
            error.what, where=asked.place, fix="Correct it, or leave it out"
        ) from error
    spans = asked.answer_spans()
    answers = tuple((span.of(asked.context), span) for span in spans)
    return Question(asked.id, asked.question, asked.context, answers)


def sample(questions: Sequence[Question], limit: int | None, seed: int) -> list[Question]:
    """`limit` of the questions in their order, drawn with `seed`; all if limit is None."""
    if limit is None or limit >= len(questions):
        return list(questions)
    chosen = np.random.default_rng(seed).permutation(len(questions))[:limit]
    return [questions[int(i)] for i in sorted(chosen)]


def corpus(path: Path, dataset: Dataset, distractors: Sequence[Path]) -> list[ParsedDocument]:
    """One document for each paragraph, taken as it stands: gold offsets refer to it."""
    contexts = [(path.name, context) for context in dataset.contexts]
    for distractor in distractors:
        file = read_question_file(distractor)  # its questions are not asked
        contexts += [(distractor.name, context) for context in file.contexts]
    return [
        ParsedDocument(
            source=f"{name}#{number}",
            title="",
            media_type="text/plain",
            text=context,
            breaks=(0,),
        )
        for number, (name, context) in enumerate(contexts)
    ]


def as_added(document: ParsedDocument) -> tuple[ParsedDocument, str, int]:
    """(document, sha256 of its text, bytes), as a knowledge base's `add_many` takes them."""
    content = document.text.encode("utf-8")
    return document, hashlib.sha256(content).hexdigest(), len(content)


def documents_with_progress(
    documents: Sequence[ParsedDocument], progress: Progress
) -> Iterator[ParsedDocument]:
    for done, document in enumerate(documents, start=1):
        yield document
        progress(done, len(documents), "adding")


# Metrics


def exact_match(text: str | None, question: Question) -> float:
    """1.0 if `text` equals a gold answer after normalisation."""
    if not question.answers:
        return float(text is None)
    if text is None:
        return 0.0
    return float(any(normalise(text) == normalise(gold) for gold, _ in question.answers))


def f1(text: str | None, question: Question) -> float:
    """The best token F1 over the gold answers, in [0, 1]."""
    if not question.answers:
        return float(text is None)
    if text is None:
        return 0.0
    return max(token_f1(text, gold) for gold, _ in question.answers)


def percentiles(values: Sequence[float]) -> dict[str, float]:
    """p50, p95 and p99, rounded to hundredths."""
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {"p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2)}
