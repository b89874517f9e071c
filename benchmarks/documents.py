"""A folder of documents and questions about them -> how many each route answers, and rightly.

What a user would see: the files are read as `specrag add` reads them, with their headings and
pages, and all lie in one knowledge base. An answer is right if it shares half its words with an
answer that the question's author gave (token F1 of at least 0.5, SQuAD's normalisation) and cites
the file that the author named. `auto` is told for several thresholds; the other routes always
answer, so questions without an answer count against none of them.

Questions are JSON lines of `question`, `answers`, `file` (a path below the folder) and
`answerable`.

    python -m benchmarks.documents tests/data/sections --questions tests/data/sections.jsonl
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import describe
from edge.api import Answer, Rag, open_rag
from runtime.answer_metrics import token_f1

RIGHT_F1 = 0.5
THRESHOLDS = (0.5, 0.75)
FORCED = ("speculative", "standard", "drafter")


@dataclass(frozen=True)
class Question:
    """A question, what answers it ([]: nothing does), and the file that does."""

    question: str
    answers: list[str]
    file: str


@dataclass(frozen=True)
class Measured:
    """One route over all questions.

    Attributes:
        route: with its threshold, if it has one.
        answered: answers given, to whatever question.
        right: of `answerable` questions.
        false: answers to the `unanswerable` questions.
        confidence: mean of the answers given.
        verifier_tokens: mean of all questions.
    """

    route: str
    answered: int
    right: int
    answerable: int
    false: int
    unanswerable: int
    confidence: float
    verifier_tokens: float


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.documents", description=__doc__)
    parser.add_argument("folder", type=Path, help="documents")
    parser.add_argument("--questions", type=Path, required=True, help="JSON lines")
    parser.add_argument("--drafter", type=Path, help="bundle instead of the default")
    parser.add_argument("--verifier", type=Path, help="bundle instead of the default")
    options = parser.parse_args(arguments)
    bundles: dict[str, Any] = {
        name: str(path)
        for name in ("drafter", "verifier")
        if (path := getattr(options, name)) is not None
    }
    questions = read_questions(options.questions)
    with (
        tempfile.TemporaryDirectory(prefix="specrag-bench-") as temporary,
        open_rag(Path(temporary) / "kb", create=True, deadline=60, **bundles) as rag,
    ):
        failed = [one.source for one in rag.add_paths([options.folder]) if one.error is not None]
        if failed:
            parser.error(f"These files cannot be read: {', '.join(failed)}")
        results = measure(rag, questions)
    for one in results:
        print(
            f"{one.route:<14} answered {one.answered:>4}   right {one.right:>4} of "
            f"{one.answerable}   answered without an answer {one.false:>3} of "
            f"{one.unanswerable}   confidence {one.confidence:.2f}   verifier tokens "
            f"{one.verifier_tokens:.0f}"
        )
    print(json.dumps({"machine": describe(), "results": [asdict(one) for one in results]}))


def read_questions(path: Path) -> list[Question]:
    rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    return [
        Question(row["question"], row["answers"] if row["answerable"] else [], row["file"])
        for row in rows
    ]


def measure(rag: Rag, questions: Sequence[Question]) -> list[Measured]:
    """`auto` at each threshold and the forced routes, over all questions."""
    results = []
    answers = [rag.ask(one.question, route="auto", threshold=min(THRESHOLDS)) for one in questions]
    for threshold in THRESHOLDS:
        given = [answer.confidence.value >= threshold for answer in answers]
        results.append(_count(f"auto, {threshold:g}", questions, answers, given))
    for route in FORCED:
        answers = [rag.ask(one.question, route=route) for one in questions]
        results.append(_count(route, questions, answers, [True] * len(answers)))
    return results


def _count(
    route: str, questions: Sequence[Question], answers: Sequence[Answer], given: Sequence[bool]
) -> Measured:
    told = [
        (question, answer)
        for question, answer, gives in zip(questions, answers, given, strict=True)
        if gives and answer.text is not None
    ]
    answerable = sum(bool(question.answers) for question in questions)
    return Measured(
        route=route,
        answered=len(told),
        right=sum(is_right(question, answer) for question, answer in told),
        answerable=answerable,
        false=sum(not question.answers for question, _ in told),
        unanswerable=len(questions) - answerable,
        confidence=sum(answer.confidence.value for _, answer in told) / max(1, len(told)),
        verifier_tokens=sum(answer.trace.verifier_tokens for answer in answers) / len(answers),
    )


def is_right(question: Question, answer: Answer) -> bool:
    """Whether the answer is one of the author's, from the file that the author named."""
    source = answer.citation.source if answer.citation else ""
    words = max((token_f1(answer.text or "", gold) for gold in question.answers), default=0.0)
    return words >= RIGHT_F1 and source.endswith(question.file)


if __name__ == "__main__":
    main()
