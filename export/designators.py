"""Chance -> siblings: like things told apart by a code, a number or a word, as manuals name them.

"pump W1" and "pump W2", "TK-103" and "TK-104", "version 2.3", "the M8 bolt", "24 V", "the left
valve"; and people, told apart by their names.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass

from export.sibling_words import capital, words

FAMILY = 6  # siblings that are drawn together
PEOPLE = 4  # people that are
LETTERS = "ABCDEFGHKLMNPRSTVWXZ"
VOLTAGES = (6, 12, 24, 48, 60, 110)  # and other nominal values


@dataclass(frozen=True, slots=True)
class Designator:
    """The name of one of several siblings.

    Attributes:
        name: in full, "pump W1"; equal to `code` where that is the whole name.
        code: as short as it may be said: "W1".
        noun: what it is, "pump"; None where it is not said.
        article: the name needs one: "the M8 bolt".
        word: an adjective tells it from its siblings, which needs its noun: "left valve".
    """

    name: str
    code: str
    noun: str | None = None
    article: bool = False
    word: bool = False

    @property
    def mark(self) -> str:
        """What tells it from its siblings, without the noun: "W1", "3", "left"."""
        return self.code.removeprefix(f"{self.noun} ").removesuffix(f" {self.noun}")

    @property
    def alone(self) -> bool:
        """Whether the mark says enough without a noun: "W1", not "3", "B" or "left"."""
        return len(self.mark) > 1 and self.mark[0].isalpha() and not self.word

    def beside(self, noun: str) -> str:
        """The mark, given to something else: "rice W1", "left rice"."""
        before = self.word and self.mark.islower()
        return f"{self.mark} {noun}" if before else f"{noun} {self.mark}"

    def said(self, *, definite: bool = False) -> str:
        """The name inside a sentence; `definite`: with an article wherever it may have one."""
        wanted = self.article or (definite and self.noun is not None and self.name[0].islower())
        return f"the {self.name}" if wanted else self.name


_Family = Callable[[int], Designator]  # 0, 1, 2 ... -> the siblings in order


def siblings(rng: random.Random) -> list[Designator]:
    """Six siblings of one family, in any order."""
    [draw] = rng.choices([draw for draw, _ in _FAMILIES], [weight for _, weight in _FAMILIES])
    family = draw(rng)
    return [family(number) for number in rng.sample(range(FAMILY), FAMILY)]


def people(rng: random.Random) -> list[Designator]:
    """Four people; for short one of their two names, where no other of them has it."""
    names: dict[tuple[str, str], None] = {}
    while len(names) < PEOPLE:
        names[rng.choice(words()["first names"]), rng.choice(words()["last names"])] = None
    known = [part for name in names for part in name]

    def person(first: str, last: str) -> Designator:
        short, full = rng.choice((first, last)), f"{first} {last}"
        return Designator(full, short if known.count(short) == 1 else full)

    return [person(*name) for name in names]


def _noun(rng: random.Random) -> str:
    noun: str = rng.choice(words()["nouns"])
    return noun


def _counting(rng: random.Random) -> Callable[[int], int]:
    """Numbers of one, two or three digits, mostly one after the other."""
    base = rng.choice(
        (rng.randint(1, 9), rng.randint(1, 9), rng.randint(10, 99), rng.randint(100, 999))
    )
    step = rng.choice((1, 1, 1, 2, 5, 10))
    return lambda number: base + number * step


def _coding(rng: random.Random, *, padded: bool) -> Callable[[int], str]:
    """Letters and a number: "W1", "TK-103", "P 007"."""
    letters = "".join(rng.choice(LETTERS) for _ in range(rng.choice((1, 1, 1, 2, 2, 3))))
    between = rng.choice(("", "", "-", "-", " "))
    digits = rng.choice((0, 0, 2, 3)) if padded else 0
    count = _counting(rng)
    return lambda number: f"{letters}{between}{count(number):0{digits}d}"


def _coded(rng: random.Random) -> _Family:
    noun, code, short = _noun(rng), _coding(rng, padded=True), rng.random() < 0.8

    def name(number: int) -> Designator:
        full = f"{noun} {code(number)}"
        return Designator(full, code(number) if short else full, noun)

    return name


def _bare(rng: random.Random) -> _Family:
    code = _coding(rng, padded=False)
    return lambda number: Designator(code(number), code(number))


def _numbered(rng: random.Random) -> _Family:
    noun, count = _noun(rng), _counting(rng)
    return lambda number: _whole(f"{noun} {count(number)}", noun)


def _lettered(rng: random.Random) -> _Family:
    """Mostly from A on, or near it."""
    noun, first = _noun(rng), ord("A") + rng.choice((0, 0, 0, 1, 2, rng.randint(0, 15)))
    return lambda number: _whole(f"{noun} {chr(first + number)}", noun)


def _described(rng: random.Random) -> _Family:
    """By an adjective before the noun, or after it, with a capital: "left valve", "valve Left"."""
    noun, after, article = _noun(rng), rng.random() < 0.2, rng.random() < 0.5
    contrasts, further = rng.choice(words()["contrasts"]), words()["further"]
    marks = list(dict.fromkeys([*contrasts, *further]))

    def name(number: int) -> Designator:
        mark = marks[number]
        full = f"{noun} {capital(mark)}" if after else f"{mark} {noun}"
        return Designator(full, full, noun, article=article and not after, word=True)

    return name


def _versioned(rng: random.Random) -> _Family:
    noun = rng.choice(words()["versioned"])
    major, minor = rng.randint(1, 9), rng.randint(0, 9)
    return lambda number: _whole(f"{noun} {major}.{minor + number}", noun)


def _sized(rng: random.Random) -> _Family:
    """By a standard: "the M8 bolt", or "M8"."""
    sign, nouns = rng.choice(list(words()["sizes"].items()))
    noun, smallest, step = rng.choice(nouns), rng.randint(6, 65), rng.choice((2, 2, 5, 10))

    def name(number: int) -> Designator:
        code = f"{sign}{smallest + number * step}"
        return Designator(f"{code} {noun}", code, noun, article=True)

    return name


def _rated(rng: random.Random) -> _Family:
    """By a rating: "the 24 V relay", or as tables name it, "24 V"."""
    unit, nouns = rng.choice(list(words()["ratings"].items()))
    noun, first, whole = rng.choice(nouns), rng.randint(0, 2), rng.random() < 0.5

    def name(number: int) -> Designator:
        code = f"{VOLTAGES[(first + number) % FAMILY]}{unit}"
        return Designator(f"{code} {noun}", code, noun, article=True) if whole else _whole(code)

    return name


def _catalogued(rng: random.Random) -> _Family:
    noun, base, count = _noun(rng), rng.randint(1000, 9999), rng.choice((1, 1, 1, 2, 5, 10))
    suffix = rng.choice(("", "-A", "-B", "/2", "X"))

    def name(number: int) -> Designator:
        code = f"{base + number * count}{suffix}"
        return Designator(f"{noun} {code}", code, noun)

    return name


def _whole(name: str, noun: str | None = None) -> Designator:
    return Designator(name, name, noun)


_FAMILIES: tuple[tuple[Callable[[random.Random], _Family], int], ...] = (
    (_coded, 20),
    (_bare, 15),
    (_numbered, 17),
    (_lettered, 10),
    (_described, 10),
    (_versioned, 8),
    (_sized, 7),
    (_rated, 6),
    (_catalogued, 7),
)
