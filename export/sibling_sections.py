"""Siblings -> sections that do not name what they are about, their header, a question, its answer.

Handbooks tell of each thing under its own heading: "The oil is changed every 500 hours", under
"Pump P1", and elsewhere the same of pump P2. What a model reads of a document begins anywhere, and
the headings above it come before it as a header (`runtime.outline`). These views teach that header
and headings say what a text is about. The texts are English.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from export.designators import Designator
from export.sibling_facts import SiblingView, composed, in_question, unmarked
from export.sibling_ways import Piece, Value, another, clause, values_of
from export.sibling_words import Relation, capital, topic, words
from runtime.outline import as_header

ABSENT = 0.3  # share of questions for a sibling that has no section in the text
UNTOLD = 0.1  # share of questions for a property that is not told
OF_PARTS = 0.5  # share of texts about parts of the siblings: the oil of pump P1
CUT = 0.75  # share of texts that begin below their first heading
TITLED = 0.4  # share of headers that begin with a title; as many headings have one below them
IN_FULL = 0.7  # share of texts whose headings say what the things are, not only their codes
LISTED = 0.2  # share of texts in lines ("Depth: 3 m") instead of sentences
IDLE = 0.3  # share of sections with a sentence about nothing


def section_view(siblings: Sequence[Designator], rng: random.Random) -> SiblingView:
    """A question for one sibling's value, where only a heading says whose it is.

    Args:
        siblings: six of one family.
    """
    told, shown = topic("things"), rng.choice((1, 1, 1, 2, 2, 3))
    relations = [rng.choice(told.relations)]
    for _ in range(rng.choice((0, 1, 1, 2))):
        relations.append(another(told, relations, rng))
    subjects = _subjects(siblings[0], len(relations), rng)
    headings = _headings(siblings, rng)
    cut = rng.random() < CUT
    pieces: list[Piece] = []
    for number, section in enumerate(_sections(relations, subjects, shown, rng)):
        named = [] if cut and number == 0 else [f"{part}\n" for part in headings[number]]
        pieces += [*named, *section]
    header = [*_title(rng), *(headings[0] if cut else ())]

    wanted, part = rng.choice(list(zip(relations, subjects, strict=True)))
    if rng.random() < UNTOLD:
        wanted = rng.choice([one for one in told.relations if not _is_told(one, relations)])
    asked = shown if rng.random() < ABSENT else rng.randrange(shown)
    text, answer = composed(pieces, wanted, asked, rng)
    thing = _asked_for(part, in_question(siblings[asked], rng), rng)
    question = rng.choice(wanted.asks).replace("{D}", thing)
    return SiblingView(unmarked(question, rng), text, answer, as_header(header))


def any_header(rng: random.Random) -> str:
    """A header that says nothing of what a text is about."""
    known = words()
    return as_header([rng.choice(known["titles"]), *_aspect(0.5, rng)])


def header_of(name: str, rng: random.Random) -> str:
    """The header of a section about something of this name."""
    return as_header([*_title(rng), capital(name), *_aspect(TITLED, rng)])


def _subjects(sibling: Designator, count: int, rng: random.Random) -> list[str]:
    """What is told about in each sentence: a part of the sibling each, or always the sibling."""
    if rng.random() < OF_PARTS:
        parts = [f"the {noun}" for noun in words()["nouns"] if noun != sibling.noun]
        return rng.sample(parts, count)
    return [rng.choice(("it", f"the {sibling.noun}") if sibling.noun else ("it",))] * count


def _headings(siblings: Sequence[Designator], rng: random.Random) -> list[list[str]]:
    """Of each sibling's section, all in one form; at times with one for an aspect below it."""
    full, below = rng.random() < IN_FULL, _aspect(TITLED, rng)
    return [[capital(one.name if full else one.code), *below] for one in siblings]


def _sections(
    relations: Sequence[Relation], subjects: Sequence[str], count: int, rng: random.Random
) -> list[list[Piece]]:
    """For each of `count` siblings the same relations in the same order."""
    listed, between = rng.random() < LISTED, rng.choice((" ", " ", "\n"))
    columns = [values_of(relation, count, rng) for relation in relations]
    order = rng.sample(range(len(relations)), len(relations))
    sections: list[list[Piece]] = []
    for number in range(count):
        section: list[Piece] = []
        for column in order:
            subject, value = subjects[column], columns[column][number]
            told = (
                _line(subject, relations[column], value)
                if listed
                else [f"{capital(subject)} ", *clause(relations[column].says, value), "."]
            )
            section += [*told, "\n" if listed else between]
        if rng.random() < IDLE:
            section += [rng.choice(words()["fillers"]), between]
        sections.append([*section[:-1], "\n"])
    return sections


def _line(subject: str, relation: Relation, value: Value) -> list[Piece]:
    """ "Depth: 3 m", or "Valve, depth: 3 m" of a part."""
    part = subject.removeprefix("the ")
    named = f"{part}, {relation.column}" if subject != "it" else relation.column
    return [f"{capital(named)}: ", value]


def _title(rng: random.Random) -> list[str]:
    return [rng.choice(words()["titles"])] if rng.random() < TITLED else []


def _aspect(share: float, rng: random.Random) -> list[str]:
    return [rng.choice(words()["aspects"])] if rng.random() < share else []


def _is_told(relation: Relation, told: Sequence[Relation]) -> bool:
    return any(relation.resembles(one) for one in told)


def _asked_for(subject: str, thing: str, rng: random.Random) -> str:
    """The sibling itself, or its part: "the valve of pump P1"."""
    part = subject.removeprefix("the ")
    if part in (subject, thing.split(maxsplit=1)[0]) or subject == "it":
        return thing
    return rng.choice((f"the {part} of {thing}", f"the {part} of {thing}", f"{thing}'s {part}",
                       f"the {part} on {thing}", f"the {part} in {thing}"))  # fmt: skip
