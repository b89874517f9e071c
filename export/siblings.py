"""Questions with answers, and chance -> questions about one of several like things, labels exact.

A model trained on encyclopaedias answers "How deep is well W1?" with the depth of well W2: nothing
there has taught it that a code makes all the difference. Sibling views do. Some are made of real
questions: a word that question and answer sentence share gets a designator (or a name becomes
another name), and the sentence is repeated for siblings with other answers of its kind, or stands
alone under a header that names one. The others are made up whole (`export.sibling_facts`,
`export.sibling_sections`). In one of five or more the sibling asked for is not there, and the label
says so. A teacher that confuses siblings has no say here: its word would be wrong.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import regex

from export.designators import FAMILY, Designator, people, siblings
from export.sibling_facts import (
    ABSENT,
    SiblingView,
    double_view,
    pair_view,
    people_view,
    relation_view,
    unmarked,
)
from export.sibling_sections import ABSENT as ABSENT_SECTION
from export.sibling_sections import header_of, section_view
from export.sibling_words import capital
from export.training_records import Record
from runtime.documents import Span
from runtime.sentences import sentence_spans

REAL = 0.42  # share of views that are tried with a real question; two of three can be made
MADE_UP = (  # the others, and how often each is drawn
    (relation_view, siblings, 33),
    (double_view, siblings, 12),
    (people_view, people, 6),
    (pair_view, siblings, 7),
    (section_view, siblings, 30),
)
HEADED = 0.3  # share of these in which a header names the sibling, not the text
LONGEST_SENTENCE = 260  # characters
LONGEST_ANSWER = 60  # characters of an answer that may take another's place
BESIDE = 0.3  # share of texts that begin with the sentence before; as many end with the one after
NEIGHBOUR = 160  # characters of these, at most
NAMES = 6  # taken from each context
CANDIDATES = 8  # other answers looked at
NAMED = 0.6  # share of questions with a name in common that lose it rather than another word
RENAMED = 0.35  # share of names that become another name instead of a designator
REPLACED = 0.08  # share of other words whose place a designator takes; mostly it joins them

_BOUNDS = r"(?<![\w-])(?<!\d[.,])", r"(?![\w-]|[.,]\d)"  # of a whole word or number
_WORD = re.compile(r"(?:\d[\d.,]*\d|\w[\w']*(?:-[\w']+)*)".join(_BOUNDS))
_NAME = regex.compile(r"(?<=[\p{Ll},] )\p{Lu}\p{Ll}+(?: \p{Lu}\p{Ll}+)?")
_ASKING = ("who", "when", "where", "why", "how", "which", "what")
_AMOUNT = frozenset("many much long old far big".split())
_COMMON = frozenset(
    (
        "the and was were are been did does has have had what who when where which why how many "
        "much for from with that this its his her their they she into than then not any some all "
        "most more first last new one two can could would will there about after before between "
        "during"
    ).split()
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """The sentence of an answer, where in it the answer stands, and the sentences beside it."""

    text: str
    answer: Span
    before: str
    after: str


@dataclass(frozen=True, slots=True)
class _Copy:
    """The sentence once more, for one sibling, and where in it its answer stands."""

    text: str
    answer: Span


class Siblings:
    """Makes sibling views of the questions of a training set."""

    def __init__(self, records: Sequence[Record]) -> None:
        """
        Args:
            records: the training questions; their answers and names take each other's places.
        """
        self._answers: defaultdict[tuple[str, str, int], list[str]] = defaultdict(list)
        for record in records:
            if record.answers:
                answer = _shortest(record).of(record.context)
                if len(answer) <= LONGEST_ANSWER:
                    self._answers[_kind(record.question, answer)].append(answer)
        contexts = dict.fromkeys(record.context for record in records)
        self._names = [name for text in contexts for name in _NAME.findall(text)[:NAMES]]

    def view(self, record: Record, rng: random.Random) -> SiblingView:
        """A view of this question, where one can be made of it, or one that is made up whole."""
        if rng.random() < REAL:
            make_real = headed_view if rng.random() < HEADED else self.real_view
            real = make_real(record, siblings(rng), rng)
            if real is not None:
                return real
        [(make, draw, _)] = rng.choices(MADE_UP, [weight for *_, weight in MADE_UP])
        return make(draw(rng), rng)

    def real_view(
        self, record: Record, family: Sequence[Designator], rng: random.Random
    ) -> SiblingView | None:
        """The question asked for one of several siblings, in copies of its answer's sentence.

        Returns:
            None where the sentence is too long, shares no word with the question, or no other
            answer is of the same kind.
        """
        sentence = _answer_sentence(record)
        if sentence is None:
            return None
        others = self._other_answers(record, sentence, rng)
        shared = _shared_word(record, sentence, rng)
        if not others or shared is None:
            return None
        renamed = shared[0].isupper() and rng.random() < RENAMED
        names = (
            self._other_names(shared, record, rng)
            if renamed
            else _marked(shared, _unsaid(family, sentence), rng)
        )
        count = min(rng.choice((1, 1, 1, 2, 3)), len(others))
        if len(names) < count + 2:
            return None
        word = _whole(shared)
        own = sentence.answer.of(sentence.text)
        copies = [
            _copy(sentence, word, name[0], answer)
            for name, answer in zip(names, [own, *others[:count]], strict=False)
        ]
        asked = names[count + 1] if rng.random() < ABSENT else names[0]
        question = _renamed(record.question, word, rng.choice(asked))
        wanted = copies[0] if asked is names[0] else None
        text, answer = _composed(sentence, copies, wanted, rng)
        return SiblingView(unmarked(question, rng), text, answer)

    def _other_answers(self, record: Record, sentence: _Sentence, rng: random.Random) -> list[str]:
        """Answers of the same kind that the sentence does not have."""
        alike = self._answers[_kind(record.question, sentence.answer.of(sentence.text))]
        drawn = rng.sample(alike, min(CANDIDATES, len(alike)))
        told = sentence.text.lower()
        return [answer for answer in dict.fromkeys(drawn) if answer.lower() not in told]

    def _other_names(
        self, shared: str, record: Record, rng: random.Random
    ) -> list[tuple[str, ...]]:
        """The name itself, and others that neither question nor context knows, nor one another."""
        told = f"{record.question}\n{record.context}".lower()
        names = [shared]
        for name in rng.sample(self._names, min(FAMILY - 1, len(self._names))):
            if name.lower() not in told and not any(n in name or name in n for n in names):
                names.append(name)
        return [(name,) for name in names]


def headed_view(
    record: Record, family: Sequence[Designator], rng: random.Random
) -> SiblingView | None:
    """The question asked for one of several siblings, of which a header names the text's.

    Asked of "rice 43", a text that says "rice" answers under the header "Rice 43".

    Returns:
        None where the answer's sentence is too long or shares no word with the question.
    """
    sentence = _answer_sentence(record)
    shared = sentence and _shared_word(record, sentence, rng)
    if not sentence or not shared:
        return None
    names = [sibling.beside(shared) for sibling in _unsaid(family, sentence)]
    asked, above = names[0], names[1 if rng.random() < ABSENT_SECTION else 0]
    left = f"{sentence.before[-NEIGHBOUR:]} " if sentence.before and rng.random() < BESIDE else ""
    right = f" {sentence.after[:NEIGHBOUR]}" if sentence.after and rng.random() < BESIDE else ""
    question = _renamed(record.question, _whole(shared), asked)
    return SiblingView(
        unmarked(question, rng),
        left + sentence.text + right,
        sentence.answer.shifted(len(left)) if above == asked else None,
        header_of(above, rng),
    )


def _shortest(record: Record) -> Span:
    return min(record.answers, key=len)


def _kind(question: str, answer: str) -> tuple[str, str, int]:
    """What questions are alike enough to exchange answers: by wh-word, first letter and length."""
    words = question.lower().split()
    asking = next((word for word in words if word in _ASKING), "what")
    if asking == "how" and _AMOUNT & set(words):
        asking = "how much"
    first = "number" if answer[0].isdecimal() else "name" if answer[0].isupper() else "word"
    return asking, first, min(3, len(answer.split()) // 2)


def _answer_sentence(record: Record) -> _Sentence | None:
    """The sentence that holds the shortest answer, unless it is long."""
    if not record.answers:
        return None
    answer, context = _shortest(record), record.context
    spans = sentence_spans(context)
    beside = ["", *(span.of(context) for span in spans), ""]
    for number, span in enumerate(spans):
        if span.contains(answer) and len(span) <= LONGEST_SENTENCE:
            inside = answer.shifted(-span.start)
            return _Sentence(span.of(context), inside, beside[number], beside[number + 2])
    return None


def _shared_word(record: Record, sentence: _Sentence, rng: random.Random) -> str | None:
    """A word that the question and the rest of the answer's sentence have; rather a name."""
    asked = {word[0].lower() for word in _WORD.finditer(record.question)} - _COMMON
    shared = [
        word
        for word in _WORD.finditer(sentence.text)
        if len(word[0]) > 2
        and word[0].lower() in asked
        and not Span(*word.span()).overlaps(sentence.answer)
    ]
    names = [word for word in shared if word[0][0].isupper() and word.start() > 0]
    if names and rng.random() < NAMED:
        shared = names
    return rng.choice(shared)[0] if shared else None


def _unsaid(family: Sequence[Designator], sentence: _Sentence) -> list[Designator]:
    """Those whose mark the sentence does not have: an old pump is no sibling of the old pump."""
    said = {word[0].lower() for word in _WORD.finditer(sentence.text)}
    return [sibling for sibling in family if sibling.mark.lower() not in said]


def _marked(shared: str, family: Sequence[Designator], rng: random.Random) -> list[tuple[str, ...]]:
    """For each sibling what may be said instead of the word: the first in the text as well."""
    if shared[0].isupper() or rng.random() < REPLACED:
        return [(sibling.name, sibling.code) for sibling in family]
    return [
        (sibling.beside(shared), *([sibling.mark] if sibling.alone else ())) for sibling in family
    ]


def _whole(word: str) -> re.Pattern[str]:
    return re.compile(re.escape(word).join(_BOUNDS), re.IGNORECASE)


def _renamed(text: str, word: re.Pattern[str], name: str) -> str:
    """With the name in the word's place; its capital too, where it begins the text with one."""

    def replacement(found: re.Match[str]) -> str:
        return capital(name) if found.start() == 0 and found[0][0].isupper() else name

    return word.sub(replacement, text)


def _copy(sentence: _Sentence, word: re.Pattern[str], name: str, answer: str) -> _Copy:
    left = _renamed(sentence.text[: sentence.answer.start], word, name)
    right = word.sub(lambda _: name, sentence.text[sentence.answer.end :])
    return _Copy(left + answer + right, Span(len(left), len(left) + len(answer)))


def _composed(
    sentence: _Sentence, copies: Sequence[_Copy], wanted: _Copy | None, rng: random.Random
) -> tuple[str, Span | None]:
    """The copies in any order, at times with a sentence beside them; where the answer stands."""
    text, answer = "", None
    if sentence.before and rng.random() < BESIDE:
        text = sentence.before[-NEIGHBOUR:] + " "
    between = rng.choice((" ", " ", " ", "\n", "; "))
    for copy in rng.sample(copies, len(copies)):
        if copy is wanted:
            answer = copy.answer.shifted(len(text))
        told = copy.text
        if between == "; " and copy.answer.end < len(told):
            told = told.removesuffix(".")
        text += told + between
    text = text.removesuffix("; ")
    if sentence.after and rng.random() < BESIDE:
        text += ("" if text[-1].isspace() else ". ") + sentence.after[:NEIGHBOUR]
    return text.rstrip(), answer
