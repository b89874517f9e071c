"""A file of questions (SQuAD 1.1 or 2.0 JSON, or JSON lines) -> questions with their contexts.

The one reader of such files: the evaluation, the export's gate and the training read them alike. A
line of JSON lines holds `question`, `context`, and `answer` (a text) or `answers` (texts, or
objects with `text` and perhaps `answer_start`, or the columns of tabular copies), and may hold an
`id` and a `rationale`. An answer that a file places somewhere must stand there, word for word.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.documents import Span
from runtime.errors import UsageError

FORMS = 'SQuAD JSON, or JSON lines like {"question": "...", "context": "...", "answer": "..."}'


@dataclass(frozen=True, slots=True)
class Gold:
    """An answer as the file gives it; `start` is its first character in the context, if given."""

    text: str
    start: int | None = None


@dataclass(frozen=True, slots=True)
class AskedQuestion:
    """A question of a file.

    Attributes:
        id: the file's, or the question's number in the file, from 1.
        golds: one for each annotator; none means "not in this context".
        rationale: the text that carries the evidence, where the file names it.
        place: file and line or id, for messages.
    """

    id: str
    question: str
    context: str
    golds: tuple[Gold, ...]
    rationale: str | None
    place: str

    def rationale_span(self) -> Span | None:
        """Where the rationale stands in the context.

        Raises:
            UsageError: it does not.
        """
        if self.rationale is None:
            return None
        return self._find(self.rationale, Span(0, len(self.context)), "rationale", "context")

    def answer_spans(self) -> tuple[Span, ...]:
        """Where the answers stand in the context; one without a place is looked for, inside the
        rationale if there is one.

        Raises:
            UsageError: an answer does not stand where it should.
        """
        rationale = self.rationale_span()
        return tuple(self._answer_span(gold, rationale) for gold in self.golds)

    def _answer_span(self, gold: Gold, rationale: Span | None) -> Span:
        if gold.start is None:
            inside = rationale or Span(0, len(self.context))
            return self._find(gold.text, inside, "answer", "rationale" if rationale else "context")
        end = gold.start + len(gold.text)
        if not gold.text or gold.start < 0 or self.context[gold.start : end] != gold.text:
            raise UsageError(
                f"The answer {gold.text[:60]!r} does not stand at character {gold.start} of its "
                "context",
                where=self.place,
                fix="Offsets count code points; correct answer_start, or leave it out",
            )
        return Span(gold.start, end)

    def _find(self, text: str, inside: Span, what: str, home: str) -> Span:
        start = self.context.find(text, inside.start, inside.end) if text.strip() else -1
        if start < 0:
            raise UsageError(
                f"The {what} {text[:60]!r} does not stand in its {home}",
                where=self.place,
                fix="It is needed word for word; leave the answer empty for none",
            )
        return Span(start, start + len(text))


@dataclass(frozen=True, slots=True)
class QuestionFile:
    """The questions of a file, and all its contexts, those without questions included."""

    questions: tuple[AskedQuestion, ...]
    contexts: tuple[str, ...]


def read_question_file(path: Path) -> QuestionFile:
    """All questions of the file, in order; an empty file holds none.

    Raises:
        UsageError: it cannot be read, or is of neither form; with the place in the file.
    """
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(
            f"The questions cannot be read: {reason}", where=str(path), fix=f"Name a file: {FORMS}"
        ) from error
    whole = _parsed(text)
    if isinstance(whole, dict) and "data" in whole:
        return _squad(whole, path)
    questions = tuple(_lines(text, path))
    # A line holds a question with its context, so a context stands there as often as it is asked.
    return QuestionFile(questions, tuple(dict.fromkeys(each.context for each in questions)))


def _parsed(text: str) -> Any:
    """The file as one JSON value, or None if it is not one."""
    try:
        return json.loads(text)
    except ValueError:
        return None


def _squad(whole: dict[str, Any], path: Path) -> QuestionFile:
    questions: list[AskedQuestion] = []
    contexts: list[str] = []
    try:
        for article in whole["data"]:
            for paragraph in article["paragraphs"]:
                contexts.append(_text(paragraph["context"]))
                for asked in paragraph["qas"]:
                    name = str(asked.get("id", len(questions) + 1))
                    raw = {**asked, "context": contexts[-1]}
                    questions.append(_question(raw, name, f"{path}, question {name}"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _malformed(str(path), error) from error
    return QuestionFile(tuple(questions), tuple(contexts))


def _lines(text: str, path: Path) -> Iterator[AskedQuestion]:
    # Not splitlines(): JSON strings may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            raw = json.loads(line)
            yield _question(raw, str(raw.get("id", number)), place)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise _malformed(place, error) from error


def _question(raw: dict[str, Any], name: str, place: str) -> AskedQuestion:
    given = raw.get("answers", raw.get("answer"))
    golds = () if raw.get("is_impossible") or not given else _golds(given)
    rationale = _text(raw["rationale"]) if raw.get("rationale") else None
    return AskedQuestion(
        name, _text(raw["question"]), _text(raw["context"]), golds, rationale, place
    )


def _golds(given: Any) -> tuple[Gold, ...]:
    if isinstance(given, str):
        return (Gold(given),)
    if isinstance(given, dict):  # the columns of tabular copies
        starts = given.get("answer_start", [None] * len(given["text"]))
        pairs = list(zip(given["text"], starts, strict=True))
    else:
        pairs = [
            (each["text"], each.get("answer_start")) if isinstance(each, dict) else (each, None)
            for each in given
        ]
    return tuple(Gold(_text(text), None if at is None else int(at)) for text, at in pairs)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


def _malformed(place: str, error: Exception) -> UsageError:
    return UsageError(
        f"Neither SQuAD JSON nor JSON lines: {error!r}",
        where=place,
        fix='A line looks like {"question": "...", "context": "...", "answer": "..."}',
    )
