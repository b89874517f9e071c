"""Facts about siblings -> the ways in which manuals say such things: sentences, lists, tables.

Each way gives the text in pieces, so that the place of every value in it is known.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from export.sibling_words import Relation, capital, relations, values, words

SECOND_FACT = 0.45  # share of texts in sentences that say two things of each sibling
PREPOSITIONS = ("after", "at", "in", "to", "with")  # with which relations end before the value


@dataclass(frozen=True, slots=True)
class Value:
    """A value inside a text, and what it is of which sibling."""

    text: str
    relation: Relation
    sibling: int


Piece = str | Value


@dataclass(frozen=True, slots=True)
class Facts:
    """One relation of two to four siblings.

    Attributes:
        said: the siblings as a sentence says them.
        listed: the siblings as a table lists them: by name or by code.
        values: one for each.
    """

    said: list[str]
    listed: list[str]
    relation: Relation
    values: list[Value]


def values_of(relation: Relation, count: int, rng: random.Random) -> list[Value]:
    drawn = values(relation.kind, count, rng)
    return [Value(text, relation, sibling) for sibling, text in enumerate(drawn)]


def _other(relations_said: Sequence[Relation], rng: random.Random) -> Relation:
    """One more relation, whose values cannot be taken for answers to the others' questions."""
    free = [r for r in relations() if not any(r.clashes(said) for said in relations_said)]
    return rng.choice(free)


def _ends(count: int, link: str, last: str, end: str) -> list[str]:
    """What stands behind each of `count` things in a list: ", ", " and ", "."."""
    return [*[link] * (count - 2), last, end]


def _says(relation: Relation, value: Value) -> list[Piece]:
    before, after = relation.says.split("{V}")
    return [before, value, after]


def _sentences(facts: Facts, rng: random.Random) -> list[Piece]:
    """W1 is 3 m deep and is painted red. W2 is 4 m deep and is painted blue."""
    second = _other([facts.relation], rng) if rng.random() < SECOND_FACT else None
    more = values_of(second, len(facts.said), rng) if second else []
    between, linked = rng.choice((" ", " ", "\n")), rng.choice((" and ", ". It ", ", and it "))
    pieces: list[Piece] = []
    for said, value in zip(facts.said, facts.values, strict=True):
        pieces += [capital(said), " ", *_says(facts.relation, value)]
        if second:
            pieces += [linked, *_says(second, more[value.sibling])]
        pieces += ["." + between]
        if rng.random() < 0.15 and "action" not in (facts.relation.kind, second and second.kind):
            pieces += [capital(rng.choice(words()["words"]["action"])) + "." + between]
    return pieces


def _joined(facts: Facts, rng: random.Random) -> list[Piece]:
    """W1 is 3 m deep, while W2 is 4 m deep."""
    link = rng.choice((" and ", " while ", ", ", "; ", ", but "))
    last = rng.choice((" and ", " while ", link))
    pieces: list[Piece] = []
    ends = _ends(len(facts.said), link, last, ".")
    subjects = [capital(facts.said[0]), *facts.said[1:]]
    for said, value, end in zip(subjects, facts.values, ends, strict=True):
        pieces += [said, " ", *_says(facts.relation, value), end]
    return pieces


def _ellipsis(facts: Facts, rng: random.Random) -> list[Piece]:
    """W1 opens at 3 bar, W2 at 4 bar and W3 at 5 bar; now and then without the "at"."""
    last = facts.relation.says.split(" {V}")[0].rpartition(" ")[2]
    link = f"{last} " if last in PREPOSITIONS and rng.random() < 0.7 else ""
    ends = _ends(len(facts.said), ", ", " and ", ".")
    first, *others = zip(facts.said, facts.values, ends, strict=True)
    pieces = [capital(first[0]), " ", *_says(facts.relation, first[1]), first[2]]
    for said, value, end in others:
        pieces += [f"{said} {link}", value, end]
    return pieces


def _values_first(facts: Facts, rng: random.Random) -> list[Piece]:
    """The depth is 3 m for W1 and 4 m for W2."""
    called = facts.relation.called
    openings = [f"The {called} is ", f"{capital(called)}: ", "It is "]
    if facts.relation.measured:
        openings += [f"The {called} was set to ", "Use ", "Plan for "]
    pieces: list[Piece] = [rng.choice(openings)]
    by = rng.choice(("for", "for", "at", "with"))
    ends = _ends(len(facts.said), ", ", " and ", ".")
    for said, value, end in zip(facts.said, facts.values, ends, strict=True):
        pieces += [value, f" {by} {said}{end}"]
    return pieces


def _respectively(facts: Facts, rng: random.Random) -> list[Piece]:
    """W1 and W2 are 3 m and 4 m deep, respectively."""
    before, after = facts.relation.says.split("{V}")
    ends = _ends(len(facts.said), ", ", " and ", "")
    subjects = "".join(said + end for said, end in zip(facts.said, ends, strict=True))
    pieces: list[Piece] = [f"{capital(subjects)} {_plural(before)}"]
    for value, end in zip(facts.values, ends, strict=True):
        pieces += [value, end]
    pieces += [after, rng.choice((", respectively.", " respectively.", " in this order."))]
    return pieces


def _rows(facts: Facts, rng: random.Random) -> list[Piece]:
    """Model: W1; depth: 3 m; colour: red"""
    columns = [facts.values]
    for _ in range(rng.choice((1, 1, 2))):
        other = _other([column[0].relation for column in columns], rng)
        columns.append(values_of(other, len(facts.said), rng))
    rng.shuffle(columns)
    first = rng.choice(("Model", "Part", "Item", "No.", "Type", "Code", "Name", "Unit"))
    between, colon = rng.choice((("; ", ": "), (" | ", ": "), (", ", ": "), (" | ", " ")))
    pieces: list[Piece] = []
    for row, listed in enumerate(facts.listed):
        pieces += [f"{first}{colon}{listed}"]
        for column in columns:
            pieces += [f"{between}{column[row].relation.column}{colon}", column[row]]
        pieces += ["\n"]
    return pieces


def _lines(facts: Facts, rng: random.Random) -> list[Piece]:
    """E17: the motor is too hot. E18: a phase is missing."""
    colon, end = rng.choice((": ", " - ", " = ")), rng.choice((". ", "\n", "; "))
    pieces: list[Piece] = []
    for listed, value in zip(facts.listed, facts.values, strict=True):
        pieces += [capital(listed) + colon, value, end]
    return [*pieces[:-1], "." if end != "\n" else "\n"]


def _brackets(facts: Facts, rng: random.Random) -> list[Piece]:
    """The depth in brackets: W1 (3 m) and W2 (4 m)."""
    called = facts.relation.called
    opening = rng.choice((f"Note the {called}: ", f"The {called} in brackets: ", "We have "))
    pieces: list[Piece] = [opening]
    ends = _ends(len(facts.said), ", ", " and ", ".")
    for said, value, end in zip(facts.said, facts.values, ends, strict=True):
        pieces += [f"{said} (", value, f"){end}"]
    return pieces


def _plural(says: str) -> str:
    """The verb of several: "is set to" -> "are set to", "opens at" -> "open at"."""
    verb, _, rest = says.partition(" ")
    several = {"is": "are", "was": "were", "has": "have", "must": "must", "supplies": "supply"}
    return f"{several.get(verb, verb.removesuffix('s'))} {rest}"


@dataclass(frozen=True, slots=True)
class Way:
    """A way to say a relation of several siblings.

    Attributes:
        weight: how often it is drawn.
        asks: further questions, with {called} for what the relation is called.
        terse: leaves words out that some relations need.
        places: may say where things are.
    """

    write: Callable[[Facts, random.Random], list[Piece]]
    weight: int
    asks: tuple[str, ...] = ()
    terse: bool = False
    places: bool = True

    def suits(self, relation: Relation) -> bool:
        return not (self.terse and relation.in_full) and (self.places or relation.kind != "place")


_CALLED = "What is the {called} of {D}?"
_WAYS = (
    Way(_sentences, 37),
    Way(_joined, 13),
    Way(_rows, 13, (_CALLED, "What {called} has {D}?")),
    Way(_lines, 6, (_CALLED,)),
    Way(_brackets, 6, (_CALLED,)),
    Way(_ellipsis, 12, terse=True),
    Way(_values_first, 9, terse=True, places=False),
    Way(_respectively, 6, terse=True),
)


def choose_way(relation: Relation, rng: random.Random) -> Way:
    ways = [way for way in _WAYS if way.suits(relation)]
    [way] = rng.choices(ways, [way.weight for way in ways])
    return way
