"""Files of questions with answers in their contexts -> records, some of them held out.

SQuAD JSON (1.1 or 2.0) and JSON lines of `question, context, answer, rationale`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runtime.documents import Span
from runtime.errors import UsageError
from runtime.questions import AskedQuestion, read_question_file


@dataclass(frozen=True, slots=True)
class Record:
    """One question about one context.

    Attributes:
        answers: spans of the context, one for each annotator; empty means "not in this context".
        rationale: the span that carries the evidence, where the data names it.
    """

    question: str
    context: str
    answers: tuple[Span, ...]
    rationale: Span | None = None


def read_records(paths: Sequence[Path]) -> list[Record]:
    """All records of the files, in order.

    Raises:
        UsageError: a file cannot be read, is of neither form, or has an answer that is not in its
            context; or no question at all has an answer.
    """
    records = [_record(asked) for path in paths for asked in read_question_file(path).questions]
    if not any(record.answers for record in records):
        raise UsageError(
            f"None of the {len(records)} questions has an answer" if records else "No questions",
            where=", ".join(map(str, paths)) or None,
            fix="Training needs questions with answers that stand in their contexts",
        )
    return records


def hold_out(
    records: Sequence[Record], share: float, seed: int
) -> tuple[list[Record], list[Record]]:
    """Training and held-out records. A context goes to one side with all of its questions.

    Raises:
        UsageError: either side would be without an answered question.
    """
    train: list[Record] = []
    held: list[Record] = []
    for record in records:
        digest = hashlib.sha256(f"{seed}\n{record.context}".encode()).digest()
        side = held if int.from_bytes(digest[:4], "big") < share * 2**32 else train
        side.append(record)
    for name, records_of in (("train on", train), ("evaluate on", held)):
        if not any(record.answers for record in records_of):
            raise UsageError(
                f"Too few contexts: nothing is left to {name}",
                fix="Give more data, or another share to hold out",
            )
    return train, held


def _record(asked: AskedQuestion) -> Record:
    for name, text in (("question", asked.question), ("context", asked.context)):
        if not text.strip():
            raise UsageError(
                f"An empty {name}", where=asked.place, fix="Fill it in, or leave it out"
            )
    spans = asked.answer_spans()
    return Record(asked.question, asked.context, spans, asked.rationale_span())
