"""Facts about siblings -> the ways in which manuals say such things: sentences, lists, tables.

Each way gives the text in pieces, so that the place of every value in it is known.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from export.sibling_words import Double, Property, Relation, Topic, capital, values, words

SECOND_FACT = 0.45  # share of texts in sentences that say two things of each sibling
BARE = 0.3  # share of tables that do not name the columns in each row
VALUES_LEAD = 0.3  # share of "respectively" with the siblings behind their values
# With these relations end before the value.
PREPOSITIONS = ("after", "at", "in", "on", "to", "with")


@dataclass(frozen=True, slots=True)
class Value:
    """A value inside a text, and what it tells of which sibling."""

    text: str
    tells: Property
    sibling: int


Piece = str | Value


@dataclass(frozen=True, slots=True)
class Facts:
    """One relation of one to four siblings.

    Attributes:
        topic: what else might be told of them.
        said: the siblings as a sentence says them.
        listed: the siblings as a table lists them: by name or by code.
        values: one for each.
    """

    topic: Topic
    said: list[str]
    listed: list[str]
    relation: Relation
    values: list[Value]


def values_of(relation: Relation, count: int, rng: random.Random) -> list[Value]:
    drawn = values(relation.kind, count, rng)
    return [Value(text, relation, sibling) for sibling, text in enumerate(drawn)]


def another(topic: Topic, relations_said: Sequence[Relation], rng: random.Random) -> Relation:
    """One more relation, whose values cannot be taken for answers to the others' questions."""
    free = [r for r in topic.relations if not any(r.clashes(said) for said in relations_said)]
    return rng.choice(free)


def _ends(count: int, link: str, last: str, end: str) -> list[str]:
    """What stands behind each of `count` things in a list: ", ", " and ", "."."""
    return [*[link] * (count - 2), last, end][-count:]


def _in_list(things: Sequence[Piece], ends: Sequence[str]) -> list[Piece]:
    """Each with what stands behind it."""
    return [piece for pair in zip(things, ends, strict=True) for piece in pair]


def clause(says: str, *told: Value) -> list[Piece]:
    """With the values in the places of {V}, or of {A} and {B}."""
    words_said = re.split(r"\{\w\}", says)
    pieces: list[Piece] = [words_said[0]]
    for (before, after), value in zip(pairwise(words_said), told, strict=True):
        pieces += [_capital(value) if before.endswith(". ") else value, after]
    return pieces


def _capital(value: Value) -> Value:
    return replace(value, text=capital(value.text))


def _sentences(facts: Facts, rng: random.Random) -> list[Piece]:
    """W1 is 3 m deep and is painted red. W2 is 4 m deep and is painted blue."""
    second = another(facts.topic, [facts.relation], rng) if rng.random() < SECOND_FACT else None
    more = values_of(second, len(facts.said), rng) if second else []
    between, linked = rng.choice((" ", " ", "\n")), rng.choice(facts.topic.links)
    pieces: list[Piece] = []
    for said, value in zip(facts.said, facts.values, strict=True):
        pieces += [capital(said), " ", *clause(facts.relation.says, value)]
        if second:
            pieces += [linked, *clause(second.says, more[value.sibling])]
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
        pieces += [said, " ", *clause(facts.relation.says, value), end]
    return pieces


def double_clauses(said: Sequence[str], double: Double, rng: random.Random) -> list[Piece]:
    """W1 delivers 3 l/min at 4 bar and W2 5 l/min at 6 bar."""
    link = rng.choice((". ", ". ", ".\n", "; ", " and ", ", ", " while "))
    further = double.short if link in (" and ", ", ") and rng.random() < 0.5 else double.says
    pieces: list[Piece] = []
    for subject, first, second in zip(said, *_both_values(double, len(said), rng), strict=True):
        begins = not pieces or link.startswith(".")
        says = further if pieces else double.says
        pieces += [link] if pieces else []
        pieces += [capital(subject) if begins else subject, " ", *clause(says, first, second)]
    return [*pieces, "."]


def _both_values(double: Double, count: int, rng: random.Random) -> list[list[Value]]:
    """Of either half one for each sibling, no two equal, those of one kind in one unit."""
    first, second = (half.kind for half in double.halves)
    drawn = values(first, 2 * count, rng)
    others = drawn[count:] if first == second else values(second, count, rng)
    return [
        [Value(text, half, sibling) for sibling, text in enumerate(texts)]
        for half, texts in zip(double.halves, (drawn[:count], others), strict=True)
    ]


def _ellipsis(facts: Facts, rng: random.Random) -> list[Piece]:
    """W1 opens at 3 bar, W2 at 4 bar and W3 at 5 bar; now and then without the "at"."""
    last = facts.relation.says.split(" {V}")[0].rpartition(" ")[2]
    link = f"{last} " if last in PREPOSITIONS and rng.random() < 0.7 else ""
    ends = _ends(len(facts.said), ", ", " and ", ".")
    first, *others = zip(facts.said, facts.values, ends, strict=True)
    pieces = [capital(first[0]), " ", *clause(facts.relation.says, first[1]), first[2]]
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
    """W1 and W2 are 3 m and 4 m deep, respectively; or 3 m and 4 m belong to W1 and W2."""
    count, last = len(facts.said), rng.choice((", respectively.", " respectively."))
    if facts.relation.kind != "place" and rng.random() < VALUES_LEAD:
        verb = rng.choice((" are for ", " belong to ", " are given for "))
        told = [_capital(facts.values[0]), *facts.values[1:]]
        return [
            *_in_list(told, _ends(count, ", ", " and ", verb)),
            *_in_list(facts.said, _ends(count, ", ", " and ", last)),
        ]
    before, after = facts.relation.says.split("{V}")
    subjects = [capital(facts.said[0]), *facts.said[1:]]
    return [
        *_in_list(subjects, _ends(count, ", ", " and ", f" {_plural(before)}")),
        *_in_list(facts.values, _ends(count, ", ", " and ", after)),
        rng.choice((last, last, " in this order.")),
    ]


def _rows(facts: Facts, rng: random.Random) -> list[Piece]:
    """Model: W1; depth: 3 m; colour: red"""
    columns = _columns(facts, rng)
    first = rng.choice(facts.topic.heads)
    if rng.random() < BARE:
        return _bare_rows(facts.listed, first, columns, rng)
    between, colon = rng.choice((("; ", ": "), (" | ", ": "), (", ", ": "), (" | ", " ")))
    pieces: list[Piece] = []
    for row, listed in enumerate(facts.listed):
        pieces += [f"{first}{colon}{listed}"]
        for heading, column in columns.items():
            pieces += [f"{between}{heading}{colon}", column[row]]
        pieces += ["\n"]
    return pieces


def _bare_rows(
    listed: Sequence[str], first: str, columns: dict[str, list[Value]], rng: random.Random
) -> list[Piece]:
    """W1 | 3 m | red; the columns may be named in a line of their own, numbers' always are."""
    between = rng.choice((" ", " | ", "   ", ", ", " - "))
    unclear = any(not re.search(r"[^\W\d]|[%°]", column[0].text) for column in columns.values())
    pieces: list[Piece] = []
    if unclear or rng.random() < 0.5:
        pieces = [between.join([first, *columns]) + "\n"]
    for name, *told in zip(listed, *columns.values(), strict=True):
        pieces += [name]
        for value in told:
            pieces += [between, value]
        pieces += ["\n"]
    return pieces


def _columns(facts: Facts, rng: random.Random) -> dict[str, list[Value]]:
    """The relation and one or two others, in any order, by heading."""
    told = [facts.relation]
    for _ in range(rng.choice((1, 1, 2))):
        told.append(another(facts.topic, told, rng))
    columns = [facts.values, *(values_of(one, len(facts.said), rng) for one in told[1:])]
    pairs = list(zip((relation.column for relation in told), columns, strict=True))
    return dict(rng.sample(pairs, len(pairs)))


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
        terse: leaves words out that some relations need, and a sibling that stands alone.
        places: may say where things are.
        plain: sentences, of which something may be asked that they do not tell.
    """

    write: Callable[[Facts, random.Random], list[Piece]]
    weight: int
    asks: tuple[str, ...] = ()
    terse: bool = False
    places: bool = True
    plain: bool = False

    def suits(self, relation: Relation, count: int) -> bool:
        whole = relation.in_full or count == 1
        return not (self.terse and whole) and (self.places or relation.kind != "place")


_CALLED = "What is the {called} of {D}?"
_WAYS = (
    Way(_sentences, 37, plain=True),
    Way(_joined, 13, plain=True),
    Way(_rows, 13, (_CALLED, "What {called} has {D}?")),
    Way(_lines, 6, (_CALLED,)),
    Way(_brackets, 6, (_CALLED,)),
    Way(_ellipsis, 12, terse=True, plain=True),
    Way(_values_first, 9, terse=True, places=False, plain=True),
    Way(_respectively, 6, terse=True, plain=True),
)


def choose_way(relation: Relation, count: int, rng: random.Random) -> Way:
    ways = [way for way in _WAYS if way.suits(relation, count)]
    [way] = rng.choices(ways, [way.weight for way in ways])
    return way
