"""Siblings -> a made-up text with a fact about each of them, a question about one, and its answer.

A relation ("is 3 m deep") is said of two to four siblings in one of the ways in which manuals say
such things: sentences, lists, tables, fault lists. Of people, who are siblings too, other things
are said. A double tells two things in one clause ("delivers 4 l/min at 3 bar"). A pair is a fact
that names several siblings at once ("P1 was replaced by P2"), so that a sibling may be the answer.
Some questions are for a sibling or a value that the text does not have. The texts are English.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from export.designators import Designator
from export.sibling_ways import Facts, Piece, Value, Way, choose_way, double_clauses, values_of
from export.sibling_words import (
    Property,
    Relation,
    Topic,
    capital,
    doubles,
    pairs,
    topic,
    values,
    words,
)
from runtime.documents import Span

ABSENT = 0.2  # share of questions for a sibling that the text does not have
UNMARKED = 0.2  # share of questions without their question mark
FILLED = 0.25  # share of texts that begin with something else; as many end with something else
SECOND_ASKED = 0.4  # share of texts with more than one relation that are asked for another one


@dataclass(frozen=True, slots=True)
class SiblingView:
    """A question about one of several siblings.

    Attributes:
        answer: of the context, `[start, end)` in code points; None: the context has none.
        header: what is read before the context.
    """

    question: str
    context: str
    answer: Span | None
    header: str = ""


def relation_view(siblings: Sequence[Designator], rng: random.Random) -> SiblingView:
    """A question for one sibling's value among the values of several.

    Args:
        siblings: six of one family; those that are not said may be asked for.
    """
    return _relation_view(topic("things"), siblings, rng)


def people_view(people: Sequence[Designator], rng: random.Random) -> SiblingView:
    """The same of one to three of four people."""
    return _relation_view(topic("people"), people, rng)


def double_view(siblings: Sequence[Designator], rng: random.Random) -> SiblingView:
    """A question for one of the two values that a clause gives of each sibling."""
    double, count = rng.choice(doubles()), rng.choice((2, 2, 2, 3))
    pieces = double_clauses(_said(siblings[:count], rng), double, rng)
    wanted = rng.choice(double.halves)
    return _view(pieces, siblings, count, wanted, wanted.asks, rng)


def pair_view(siblings: Sequence[Designator], rng: random.Random) -> SiblingView:
    """A question about a fact that names several siblings; the answer may be one of them."""
    pair = rng.choice(pairs())
    question, answer = rng.choice(pair.asks)
    said = {kind: values(kind, 1, rng)[0] for kind in ("year", "time", "thing", "fault")}
    written = said | _named(siblings, rng)
    asked = said | _named(siblings, rng) | {"noun": siblings[0].noun or "one"}
    left, right = _fillers(rng)
    begin = pair.text.index(answer)
    start = len(left) + len(_filled_in(pair.text[:begin], written))
    span = Span(start, start + len(_filled_in(answer, written)))
    text = left + capital(_filled_in(pair.text, written)) + (f" {right}" if right else "")
    return SiblingView(unmarked(_filled_in(question, asked), rng), text, span)


def _named(siblings: Sequence[Designator], rng: random.Random) -> dict[str, str]:
    """{1}, {2}, {3}: by name or by code."""
    return {str(i + 1): rng.choice((s.said(), s.code)) for i, s in enumerate(siblings[:3])}


def _filled_in(template: str, fields: dict[str, str]) -> str:
    return re.sub(r"\{(\w+)\}", lambda field: fields[field[1]], template)


def unmarked(question: str, rng: random.Random) -> str:
    """Now and then without its question mark, as people type."""
    return question.rstrip("?") if rng.random() < UNMARKED else question


def _relation_view(told: Topic, siblings: Sequence[Designator], rng: random.Random) -> SiblingView:
    relation, count = rng.choice(told.relations), rng.choice(told.counts)
    way = choose_way(relation, count, rng)
    pieces = way.write(_facts(told, relation, siblings[:count], rng), rng)
    wanted = _wanted(pieces, relation, told, way, rng)
    asks = (*wanted.asks, *(ask.replace("{called}", wanted.called) for ask in way.asks))
    return _view(pieces, siblings, count, wanted, asks, rng)


def _view(
    pieces: Sequence[Piece],
    siblings: Sequence[Designator],
    count: int,
    wanted: Property,
    asks: Sequence[str],
    rng: random.Random,
) -> SiblingView:
    """One of `asks`, put of one of the first `count` siblings, or of the next, who is not there."""
    asked = count if rng.random() < ABSENT else rng.randrange(count)
    text, answer = composed(pieces, wanted, asked, rng)
    question = rng.choice(asks).replace("{D}", in_question(siblings[asked], rng))
    return SiblingView(unmarked(question, rng), text, answer)


def _facts(
    told: Topic, relation: Relation, siblings: Sequence[Designator], rng: random.Random
) -> Facts:
    return Facts(
        topic=told,
        said=_said(siblings, rng),
        listed=[rng.choice((sibling.name, sibling.code)) for sibling in siblings],
        relation=relation,
        values=values_of(relation, len(siblings), rng),
    )


def _said(siblings: Sequence[Designator], rng: random.Random) -> list[str]:
    definite = rng.random() < 0.25
    return [sibling.said(definite=definite) for sibling in siblings]


def in_question(sibling: Designator, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return sibling.code
    return sibling.said(definite=rng.random() < 0.15)


def _wanted(
    pieces: Sequence[Piece], main: Relation, told: Topic, way: Way, rng: random.Random
) -> Relation:
    """What is asked for: the main relation, another that the text has, or one that it has not."""
    said = {piece.tells for piece in pieces if isinstance(piece, Value)}
    if way.plain and rng.random() < told.untold:
        return rng.choice([r for r in told.relations if not _may_be_told(r, said)])
    others = [relation for relation in told.relations if relation in said - {main}]
    return rng.choice(others) if others and rng.random() < SECOND_ASKED else main


def _may_be_told(relation: Relation, said: Iterable[Property]) -> bool:
    """What is to be done may stand between any sentences, of no sibling in particular."""
    return relation.kind == "action" or any(relation.resembles(one) for one in said)


def _fillers(rng: random.Random) -> tuple[str, str]:
    """What a text begins and ends with besides: mostly nothing."""
    first, last = rng.sample(words()["fillers"], 2)
    return (
        f"{first} " if rng.random() < FILLED else "",
        last if rng.random() < FILLED else "",
    )


def composed(
    pieces: Sequence[Piece], wanted: Property, sibling: int, rng: random.Random
) -> tuple[str, Span | None]:
    """The text, and where in it the sibling's value of this property stands, if it does."""
    text, after = _fillers(rng)
    answer = None
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if piece.tells == wanted and piece.sibling == sibling:
            answer = Span(len(text), len(text) + len(piece.text))
        text += piece.text
    end = "\n" if text.endswith("\n") else " "
    return (text.rstrip() + end + after).rstrip(), answer
