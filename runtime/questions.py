"""A file of questions (SQuAD 1.1 or 2.0 JSON, or JSON lines) -> questions with their contexts.

The one reader of such files: the evaluation, the export's gate and the training read them alike. A
line of JSON lines holds `question`, `context`, and `answer` (a text) or `answers` (texts, or
objects with `text` and perhaps `answer_start`, or the columns of tabular copies), and may hold an
`id` and a `rationale`. An answer that a file places somewhere must stand there, word for word.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.documents import Span
from runtime.errors import UsageError

_HALF = re.compile("[\ud800-\udfff]")  # a surrogate alone, which no encoding takes
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
        reason, fix = "it is not UTF-8 text", "Save it as UTF-8"
        if isinstance(error, OSError):
            reason, fix = str(error.strerror), f"Name a file: {FORMS}"
        raise UsageError(
            f"The questions cannot be read: {reason}", where=str(path), fix=fix
        ) from error
    squad = _whole(text, path) if text.strip() else None
    if squad is not None:
        return _squad(squad, path)
    questions = tuple(_lines(text, path))
    # A line holds a question with its context, so a context stands there as often as it is asked.
    return QuestionFile(questions, tuple(dict.fromkeys(each.context for each in questions)))


class _Malformed(Exception):
    """What is wrong with a question, in words; its place is known further up."""


def _whole(text: str, path: Path) -> dict[str, Any] | None:
    """The file as one SQuAD object; None if it is one of lines.

    Raises:
        UsageError: it is one JSON value over several lines, and not SQuAD, or broken.
    """
    lines = text.strip().split("\n")
    try:
        whole = _json(text)
    except json.JSONDecodeError as error:
        if len(lines) == 1 or _is_json(lines[0]):
            return None  # what is wrong with a line is told with the line
        raise _broken(path, error) from error
    except _Malformed as error:
        raise _refused(str(path), error) from error
    if isinstance(whole, dict) and "data" in whole:
        return whole
    if len(lines) == 1:
        return None
    kind = "one list" if isinstance(whole, list) else 'one JSON object without "data"'
    raise _refused(str(path), _Malformed(f"The file is {kind}"))


def _is_json(line: str) -> bool:
    try:
        _json(line)
    except (json.JSONDecodeError, _Malformed):
        return False
    return True


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except (RecursionError, ValueError):
        raise _Malformed("It is nested too deep, or a number in it is too long") from None


def _squad(whole: dict[str, Any], path: Path) -> QuestionFile:
    questions: list[AskedQuestion] = []
    contexts: list[str] = []
    place = str(path)
    try:
        for article_number, article in enumerate(_list(whole, "data"), start=1):
            place = f"{path}, article {article_number}"
            for number, paragraph in enumerate(_list(article, "paragraphs"), start=1):
                place = f"{path}, article {article_number}, paragraph {number}"
                contexts.append(_text(paragraph, "context"))
                for asked in _list(paragraph, "qas"):
                    name = str(_object(asked).get("id", len(questions) + 1))
                    place = f"{path}, question {name}"
                    raw = {**asked, "context": contexts[-1]}
                    questions.append(_question(raw, name, place))
    except _Malformed as error:
        raise _refused(place, error) from error
    return QuestionFile(tuple(questions), tuple(contexts))


def _lines(text: str, path: Path) -> Iterator[AskedQuestion]:
    # Not splitlines(): JSON strings may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        place = f"{path}, line {number}"
        try:
            raw = _object(_json(line))
            yield _question(raw, str(raw.get("id", number)), place)
        except json.JSONDecodeError as error:
            raise _broken(path, error, line=number) from error
        except _Malformed as error:
            raise _refused(place, error) from error


def _question(raw: dict[str, Any], name: str, place: str) -> AskedQuestion:
    given = raw.get("answers", raw.get("answer"))
    golds = () if raw.get("is_impossible") or not given else tuple(_golds(given))
    rationale = _text(raw, "rationale") if raw.get("rationale") else None
    return AskedQuestion(
        name, _text(raw, "question"), _text(raw, "context"), golds, rationale, place
    )


def _golds(given: Any) -> Iterator[Gold]:
    if isinstance(given, str):
        yield _gold({"text": given})
    elif isinstance(given, dict):  # the columns of tabular copies
        texts = _list(given, "text")
        starts = _list(given, "answer_start") if "answer_start" in given else [None] * len(texts)
        if len(texts) != len(starts):
            raise _Malformed('Of "answers", "text" and "answer_start" are not equally many')
        for text, start in zip(texts, starts, strict=True):
            yield _gold({"text": text, "answer_start": start})
    elif isinstance(given, list):
        for each in given:
            yield _gold({"text": each} if isinstance(each, str) else _object(each, "An answer"))
    else:
        raise _Malformed(f'"answer" is {_kind(given)}, not text')


def _gold(answer: dict[str, Any]) -> Gold:
    start = answer.get("answer_start")
    if start is not None and (isinstance(start, bool) or not isinstance(start, int)):
        raise _Malformed(f'"answer_start" is {_kind(start)}, not a whole number')
    return Gold(_text(answer, "text"), start)


def _object(value: Any, what: str = "A question") -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _Malformed(f"{what} is {_kind(value)}, not an object in braces")
    return value


def _list(holder: Any, name: str) -> list[Any]:
    found = _member(holder, name)
    if not isinstance(found, list):
        raise _Malformed(f'"{name}" is {_kind(found)}, not a list')
    return found


def _text(holder: Any, name: str) -> str:
    found = _member(holder, name)
    if not isinstance(found, str):
        raise _Malformed(f'"{name}" is {_kind(found)}, not text')
    if not found.isascii() and _HALF.search(found):
        raise _Malformed(f'"{name}" holds half a character, such as \\ud83d without \\ude00')
    return found


def _member(holder: Any, name: str) -> Any:
    holder = _object(holder, f'What should hold "{name}"')
    if name not in holder:
        raise _Malformed(f'"{name}" is missing')
    return holder[name]


def _kind(value: Any) -> str:
    """What a JSON value is, in words."""
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    shown = json.dumps(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"


def _broken(path: Path, error: json.JSONDecodeError, line: int | None = None) -> UsageError:
    """
    Args:
        line: the number of the line that was parsed alone.
    """
    place = f"{path}, line {line or error.lineno}, column {error.colno}"
    reason = error.msg.removesuffix(" at").rstrip(":")
    return _refused(place, _Malformed(f"This is not JSON: {reason[:1].lower()}{reason[1:]}"))


def _refused(place: str, error: _Malformed) -> UsageError:
    return UsageError(
        f"The questions cannot be used. {error}", where=place, fix=f"Correct it; a file is {FORMS}"
    )
