"""Siblings -> a made-up text with a fact about each of them, a question about one, and its answer.

A relation ("is 3 m deep") is said of two to four siblings in one of the ways in which manuals say
such things: sentences, lists, tables, fault lists. A pair is a fact that names several siblings at
once ("P1 was replaced by P2"), so that a sibling may be the answer. The texts are English.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from export.designators import Designator
from export.sibling_ways import Facts, Piece, Value, choose_way, values_of
from export.sibling_words import Relation, capital, pairs, relations, values, words
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
    """

    question: str
    context: str
    answer: Span | None


def relation_view(siblings: Sequence[Designator], rng: random.Random) -> SiblingView:
    """A question for one sibling's value among the values of several.

    Args:
        siblings: six of one family; those that are not said may be asked for.
    """
    relation = rng.choice(relations())
    way = choose_way(relation, rng)
    facts = _facts(siblings, relation, rng)
    asked = rng.randrange(len(facts.said))
    pieces = way.write(facts, rng)
    wanted = _wanted(pieces, relation, rng)
    text, answer = _composed(pieces, wanted, asked, rng)
    absent = rng.random() < ABSENT
    sibling = siblings[len(facts.said) if absent else asked]
    asks = (*wanted.asks, *(ask.replace("{called}", wanted.called) for ask in way.asks))
    question = rng.choice(asks).replace("{D}", _in_question(sibling, rng))
    return SiblingView(unmarked(question, rng), text, None if absent else answer)


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


def _facts(siblings: Sequence[Designator], relation: Relation, rng: random.Random) -> Facts:
    count, definite = rng.choice((2, 2, 2, 3, 3, 4)), rng.random() < 0.25
    chosen = siblings[:count]
    return Facts(
        said=[sibling.said(definite=definite) for sibling in chosen],
        listed=[rng.choice((sibling.name, sibling.code)) for sibling in chosen],
        relation=relation,
        values=values_of(relation, count, rng),
    )


def _in_question(sibling: Designator, rng: random.Random) -> str:
    if rng.random() < 0.5:
        return sibling.code
    return sibling.said(definite=rng.random() < 0.15)


def _wanted(pieces: Sequence[Piece], main: Relation, rng: random.Random) -> Relation:
    """What is asked for: mostly the main relation, else another that the text has."""
    others = {piece.relation for piece in pieces if isinstance(piece, Value)} - {main}
    if others and rng.random() < SECOND_ASKED:
        return rng.choice(sorted(others, key=lambda relation: relation.says))
    return main


def _fillers(rng: random.Random) -> tuple[str, str]:
    """What a text begins and ends with besides: mostly nothing."""
    first, last = rng.sample(words()["fillers"], 2)
    return (
        f"{first} " if rng.random() < FILLED else "",
        last if rng.random() < FILLED else "",
    )


def _composed(
    pieces: Sequence[Piece], wanted: Relation, sibling: int, rng: random.Random
) -> tuple[str, Span | None]:
    """The text, and where in it the sibling's value of the relation stands."""
    text, after = _fillers(rng)
    answer = None
    for piece in pieces:
        if isinstance(piece, str):
            text += piece
            continue
        if piece.relation == wanted and piece.sibling == sibling:
            answer = Span(len(text), len(text) + len(piece.text))
        text += piece.text
    end = "\n" if text.endswith("\n") else " "
    return (text.rstrip() + end + after).rstrip(), answer
