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
class Relation:
    """What may be said of each sibling, with another value for each.

    Attributes:
        kind: of the value, for `values`.
        says: what follows the sibling, with {V} for the value: "is {V} deep".
        called: what the value is: "depth".
        asks: questions for the value, with {D} for the sibling.
        heading: of the value's column in a table; None: as it is called.
        in_full: it cannot be shortened to "W1 is 3 m deep, W2 4 m".
    """

    kind: str
    says: str
    called: str
    asks: tuple[str, ...]
    heading: str | None = None
    in_full: bool = False

    @property
    def column(self) -> str:
        return self.heading or self.called

    @property
    def measured(self) -> bool:
        return self.kind in words()["units"]

    def clashes(self, other: Relation) -> bool:
        """Whether a question for this one's value might be answered with the other's."""
        return self.kind == other.kind or (
            self.asks[0].startswith("Where") and other.asks[0].startswith("Where")
        )


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
def relations() -> tuple[Relation, ...]:
    return tuple(Relation(**{**row, "asks": tuple(row["asks"])}) for row in words()["relations"])


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


def _date(rng: random.Random) -> str:
    day = f"{rng.randint(1, 28)} {rng.choice(words()['months'])}"
    return day + rng.choice(("", f" {rng.randint(1990, 2025)}"))


_COMPOSED: dict[str, Callable[[random.Random], str]] = {
    "place": _place,
    "thing": _thing,
    "date": _date,
    "share": lambda rng: f"{rng.randint(1, 99)} %",
    "year": lambda rng: str(rng.randint(1950, 2025)),
    "store": lambda rng: f"{rng.choice(words()['stores'])} {rng.randint(1, 40)}",
}
