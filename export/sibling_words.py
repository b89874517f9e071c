"""export/data/siblings.json -> the words, values and relations that sibling views are made of."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

WORDS = Path(__file__).parent / "data" / "siblings.json"


@dataclass(frozen=True, slots=True)
class Property:
    """What may be asked of each sibling, with another value for each.

    Attributes:
        kind: of the value, for `values`.
        asks: questions for the value, with {D} for the sibling.
    """

    kind: str
    asks: tuple[str, ...]

    def clashes(self, other: Property) -> bool:
        """Whether a question for this one's value might be answered with the other's."""
        return (
            self.kind == other.kind
            or not set(self.asks).isdisjoint(other.asks)
            or (self.asks[0].startswith("Where") and other.asks[0].startswith("Where"))
        )

    def resembles(self, other: Property) -> bool:
        """Whether a text that tells the other might be taken to tell this one: group by group."""
        groups = words()["groups"]
        return self.clashes(other) or (
            groups.get(self.kind, self.kind) == groups.get(other.kind, other.kind)
        )


@dataclass(frozen=True, slots=True)
class Relation(Property):
    """What may be said of each sibling.

    Attributes:
        says: what follows the sibling, with {V} for the value: "is {V} deep".
        called: what the value is: "depth".
        heading: of the value's column in a table; None: as it is called.
        in_full: it cannot be shortened to "W1 is 3 m deep, W2 4 m".
    """

    says: str
    called: str
    heading: str | None = None
    in_full: bool = False

    @property
    def column(self) -> str:
        return self.heading or self.called

    @property
    def measured(self) -> bool:
        return self.kind in words()["units"]


@dataclass(frozen=True, slots=True)
class Topic:
    """Siblings of one sort, things or people, and what may be told of them.

    Attributes:
        relations: of which a text tells one or more.
        heads: of a table's column of siblings.
        links: between two things that are told of one sibling.
        counts: how many siblings a text tells of, each as often.
        untold: share of questions, where plain sentences are asked, for what they do not tell.
    """

    relations: tuple[Relation, ...]
    heads: tuple[str, ...]
    links: tuple[str, ...]
    counts: tuple[int, ...]
    untold: float


@dataclass(frozen=True, slots=True)
class Double:
    """Two values of each sibling in one clause.

    Attributes:
        says: what follows the sibling, with {A} and {B} for the values: "delivers {A} at {B}".
        halves: what A is and what B is.
        short: what follows the second sibling and further ones in a list: "{A} at {B}".
    """

    says: str
    halves: tuple[Property, Property]
    short: str


@dataclass(frozen=True, slots=True)
class Pair:
    """A fact that names several siblings at once.

    Attributes:
        text: with {1}, {2}, {3} for siblings, and {year}, {time}, {thing}, {fault} for values.
        asks: questions, each with its answer, which is a part of `text` as it is written there.
    """

    text: str
    asks: tuple[tuple[str, str], ...]


@cache
def words() -> dict[str, Any]:
    """The file as it stands: lists of words by their name."""
    read: dict[str, Any] = json.loads(WORDS.read_text("utf-8"))
    return read


@cache
def topic(name: str) -> Topic:
    """ "things" or "people"."""
    row = words()["topics"][name]
    return Topic(
        relations=tuple(Relation(**_asking(relation)) for relation in row["relations"]),
        heads=tuple(row["heads"]),
        links=tuple(row["links"]),
        counts=tuple(row["counts"]),
        untold=row["untold"],
    )


@cache
def doubles() -> tuple[Double, ...]:
    def double(row: dict[str, Any]) -> Double:
        first, second = (Property(**_asking(half)) for half in row["halves"])
        return Double(row["says"], (first, second), row.get("short", row["says"]))

    return tuple(double(row) for row in words()["doubles"])


def _asking(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "asks": tuple(row["asks"])}


@cache
def pairs() -> tuple[Pair, ...]:
    return tuple(
        Pair(row["text"], tuple((question, answer) for question, answer in row["asks"]))
        for row in words()["pairs"]
    )


def capital(text: str) -> str:
    """With its first letter a capital; the others stay as they are."""
    return text[:1].upper() + text[1:]


def values(kind: str, count: int, rng: random.Random) -> list[str]:
    """Different values of one kind, measured ones in one unit. Each kind has at least ten."""
    draw = _drawing(kind, rng)
    drawn: dict[str, None] = {}
    while len(drawn) < count:
        drawn[draw(rng)] = None
    return list(drawn)


def _drawing(kind: str, rng: random.Random) -> Callable[[random.Random], str]:
    known = words()
    if kind in known["units"]:
        unit = rng.choice(known["units"][kind])
        return lambda rng: f"{_number(rng)} {unit}".rstrip()
    if kind in known["words"]:
        listed: Sequence[str] = known["words"][kind]
        return lambda rng: rng.choice(listed)
    return _COMPOSED[kind]


def _number(rng: random.Random) -> str:
    return rng.choice(
        (
            str(rng.randint(2, 99)),
            str(rng.randint(2, 99)),
            f"{rng.randint(0, 30)}.{rng.randint(1, 9)}",
            str(rng.randint(100, 990)),
            f"{rng.randint(1, 9)},{rng.randint(0, 999):03d}",
        )
    )


def _described(nouns: Sequence[str], rng: random.Random) -> str:
    adjective = rng.choice(words()["adjectives"]) + " " if rng.random() < 1 / 3 else ""
    return adjective + rng.choice(nouns)


def _place(rng: random.Random) -> str:
    return f"{rng.choice(words()['prepositions'])} the {_described(words()['places'], rng)}"


def _thing(rng: random.Random) -> str:
    return "the " + _described(words()["machines"] + words()["places"], rng)


def _day(rng: random.Random) -> str:
    return str(rng.choice(words()["days"])) + rng.choice(("", " nights", " mornings"))


def _date(rng: random.Random) -> str:
    day = f"{rng.randint(1, 28)} {rng.choice(words()['months'])}"
    return day + rng.choice(("", f" {rng.randint(1990, 2025)}"))


_COMPOSED: dict[str, Callable[[random.Random], str]] = {
    "place": _place,
    "thing": _thing,
    "day": _day,
    "date": _date,
    "phone": lambda rng: f"0{rng.randint(100, 999)} {rng.randint(100000, 999999)}",
    "extension": lambda rng: str(rng.randint(100, 9999)),
    "badge": lambda rng: f"{rng.choice(('', 'A', 'SN-', 'K'))}{rng.randint(1000, 99999)}",
    "share": lambda rng: f"{rng.randint(1, 99)} %",
    "year": lambda rng: str(rng.randint(1950, 2025)),
    "store": lambda rng: f"{rng.choice(words()['stores'])} {rng.randint(1, 40)}",
}
