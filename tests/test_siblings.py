"""Sibling views: every label is exact, whatever chance makes of relations and real questions."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from itertools import combinations

import pytest

from export.designators import Designator, siblings
from export.sibling_facts import SiblingView, pair_view, relation_view
from export.sibling_words import pairs, relations, values, words
from export.siblings import Siblings
from export.training_records import Record
from runtime.documents import Span
from runtime.sentences import sentence_spans

VIEWS = 3000


def says(text: str, name: str) -> bool:
    """Whether the text has the name, as a whole, in any case."""
    pattern = rf"(?<![\w-])(?<!\d\.){re.escape(name)}(?![\w-]|[./]\d)"
    return re.search(pattern, text, re.IGNORECASE) is not None


def named(text: str, family: Sequence[Designator]) -> list[Designator]:
    return [one for one in family if says(text, one.name) or says(text, one.code)]


def told(view: SiblingView) -> str:
    """The sentence with the answer; the one before too, where it begins with "It"."""
    assert view.answer is not None
    spans = sentence_spans(view.context)
    [place] = [i for i, span in enumerate(spans) if span.contains(view.answer)]
    sentence = spans[place].of(view.context)
    if sentence.startswith("It ") and place:
        return spans[place - 1].of(view.context) + " " + sentence
    return sentence


def drawn(
    seed: int, make: object = relation_view
) -> Iterator[tuple[SiblingView, list[Designator]]]:
    rng = random.Random(seed)
    for _ in range(VIEWS):
        family = siblings(rng)
        yield make(family, rng), family  # type: ignore[operator]


def test_relations_are_labelled_with_the_asked_siblings_value() -> None:
    """Where its sentence names one sibling only, it is the one asked for."""
    alone = absent = 0
    for view, family in drawn(0):
        [asked] = named(view.question, family)
        if view.answer is None:
            absent += 1
            assert asked not in named(view.context, family), view
            continue
        answer = view.answer.of(view.context)
        assert answer == answer.strip() != ""
        here = named(told(view), family)
        assert asked in here, view
        alone += len(here) == 1
    assert 0.17 < absent / VIEWS < 0.23
    assert alone > VIEWS / 3


def test_siblings_of_one_sentence_are_told_apart() -> None:
    """Terse lists name all siblings in one sentence: the value is the one nearest by its way."""
    checked = 0
    for view, family in drawn(1):
        if view.answer is None or len(named(told(view), family)) < 2:
            continue
        [asked] = named(view.question, family)
        sentence, answer = told(view), view.answer.of(view.context)
        if "respectively" in sentence or sentence.count(answer) > 1:
            continue
        places = {
            one.code: sentence.lower().find(name.lower())
            for one in family
            for name in (one.code, one.name)
            if says(sentence, name)
        }
        value = sentence.find(answer)
        before = {code: place for code, place in places.items() if place < value}
        behind = {code: place for code, place in places.items() if place > value}
        nearest = [max(before, key=before.__getitem__)] if before else []
        nearest += [min(behind, key=behind.__getitem__)] if behind else []
        if "in this order" not in sentence:
            checked += 1
            assert asked.code in nearest, view
    assert checked > VIEWS / 10


def test_values_in_order_go_with_siblings_in_order() -> None:
    checked = 0
    for view, family in drawn(2):
        if view.answer is None or not re.search("respectively|in this order", told(view)):
            continue
        [asked] = named(view.question, family)
        sentence = told(view)
        by_place = sorted(
            named(sentence, family), key=lambda one: sentence.lower().find(one.name.lower())
        )
        count, place = len(by_place), by_place.index(asked)
        links = re.findall(r", | and ", sentence[: sentence.find(view.answer.of(view.context))])
        assert len(links) == count - 1 + place, view
        checked += 1
    assert checked > VIEWS / 100


def test_pairs_may_be_answered_with_a_sibling() -> None:
    of_siblings = 0
    for view, family in drawn(3, pair_view):
        assert view.answer is not None
        answer = view.answer.of(view.context)
        assert answer == answer.strip() != ""
        assert "{" not in view.question + view.context
        known = {form.lower() for one in family for form in (one.said(), one.code)}
        if view.question.startswith(("Which ", "What replaced", "What took over")):
            assert answer.lower() in known, view
        of_siblings += answer.lower() in known
    assert of_siblings > VIEWS / 3


CREW = "The crew of Oslo is green. "
TOWNS = ("Rome", "Lima", "Cairo", "Perth", "Kyoto", "Quito", "Delhi", "Bonn")


def records() -> list[Record]:
    """Questions alike enough to exchange answers, each sentence between two others."""
    made = []
    for part in ("pump", "valve", "Merlin", "filter"):
        for town in TOWNS:
            context = f"{CREW}The {part} was kept in {town} for years. It is checked every week."
            start = context.index(town)
            made.append(
                Record(f"Where was the {part} kept?", context, (Span(start, start + len(town)),))
            )
    return made


def test_real_questions_ask_for_one_of_their_copies() -> None:
    given, rng = records(), random.Random(4)
    source = Siblings(given)
    answered = absent = renamed = 0
    for _ in range(VIEWS):
        record, family = rng.choice(given), siblings(rng)
        view = source.real_view(record, family, rng)
        if view is None:  # too few names were drawn that the context does not know
            assert "Merlin" in record.question
            continue
        marked = [
            one for one in family if says(view.question, one.mark) or says(view.question, one.name)
        ]
        if not marked:  # another name instead of a designator, or the same
            renamed += 1
            assert "Merlin" in record.question
            continue
        [asked] = marked
        if view.answer is None:
            absent += 1
            assert not says(view.context, asked.mark), view
            continue
        answered += 1
        assert view.answer.of(view.context) == record.answers[0].of(record.context)
        sentence = told(view) if "; " not in view.context else _clause(view)
        assert says(sentence, asked.mark), view
        assert [one for one in family if says(sentence, one.mark)] == [asked], view
    assert absent / (absent + answered) == pytest.approx(0.2, abs=0.03)
    assert renamed > VIEWS / 50


def _clause(view: SiblingView) -> str:
    """What stands between semicolons around the answer."""
    assert view.answer is not None
    first = view.context.rfind("; ", 0, view.answer.start) + 1
    return view.context[first:].split("; ")[0].split(". It")[0]


def test_renamed_questions_ask_for_a_name() -> None:
    """The only name in common is Merlin's; others come from contexts that do not know it."""
    other = "People in Rome asked Ada Berg and Tom Reyes, Ines Rocha, and Sam Dube as well."
    given = [*records(), Record("Who?", other, ())]
    source, rng, none = Siblings(given), random.Random(5), 0
    merlin = [record for record in given if "Merlin" in record.question]
    for _ in range(VIEWS):
        view = source.real_view(rng.choice(merlin), siblings(rng), rng)
        if view is None or "Merlin" in view.question:
            continue
        asked = re.findall(r"Ada Berg|Tom Reyes|Ines Rocha|Sam Dube", view.question)
        if asked:
            none += 1
            assert view.answer is None
            assert asked[0] not in view.context
    assert none > 5


@pytest.mark.parametrize(
    ("question", "context", "answer"),
    [
        ("Where was it?", "The pump was kept in Rome.", "Rome"),  # no word in common
        ("Where was the pump kept?", "The pump was kept in Rome" + ", well" * 60, "Rome"),
        ("How much was the pump?", "The pump was kept for 12 euros.", "12 euros"),  # alone
        ("Where was the 100th kept?", "No answer here.", ""),
    ],
)
def test_questions_of_which_none_can_be_made(question: str, context: str, answer: str) -> None:
    start = context.index(answer)
    answers = (Span(start, start + len(answer)),) if answer else ()
    record = Record(question, context, answers)
    source, rng = Siblings([*records(), record]), random.Random(0)
    assert source.real_view(record, siblings(rng), rng) is None
    made = source.view(record, rng)  # one made up whole takes its place
    assert made.question != question


def test_ordinals_and_long_numbers_are_whole_words() -> None:
    """Guards: "100" of "100th" and of "100,000" is no word that a designator may replace."""
    context = "The 100th of 100,000 pumps was kept in Rome."
    start = context.index("Rome")
    record = Record("Where was number 100 kept?", context, (Span(start, start + 4),))
    source, rng = Siblings([*records(), record]), random.Random(6)
    for _ in range(200):
        view = source.real_view(record, siblings(rng), rng)
        assert view is not None
        assert "100th of 100,000 pumps" in view.context
        assert "number 100 " in view.question


def test_same_seed_gives_the_same_views() -> None:
    given = records()
    made = [
        [Siblings(given).view(record, rng) for record in given]
        for rng in (random.Random(7), random.Random(7), random.Random(8))
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_six_siblings_have_six_names_of_one_pattern() -> None:
    rng = random.Random(9)
    for _ in range(VIEWS):
        family = siblings(rng)
        assert len({one.name for one in family}) == len({one.code for one in family}) == 6
        assert len({(one.noun, one.article) for one in family}) == 1
        for one, other in combinations(family, 2):
            assert not says(one.name, other.code)


def test_names_that_need_an_article_have_one_in_sentences() -> None:
    """Guards: the first generator wrote "AWG 15 bolts is kept in"."""
    found = 0
    for view, family in drawn(10):
        assert "the the" not in view.context.lower()
        if not family[0].article or re.search("[:|=] | - ", view.context):
            continue
        for one in family:
            for place in re.finditer(re.escape(one.name), view.context):
                found += 1
                assert view.context[: place.start()].lower().endswith("the "), view
    assert found > VIEWS / 50


def test_the_data_file_fits_its_makers() -> None:
    rng = random.Random(0)
    for relation in relations():
        assert relation.says.count("{V}") == 1
        assert all(ask.count("{D}") == 1 and ask.endswith("?") for ask in relation.asks)
        assert len(set(values(relation.kind, 10, rng))) == 10
        assert any(not relation.clashes(other) for other in relations())
    for pair in pairs():
        for question, answer in pair.asks:
            assert answer in pair.text
            fields = set(re.findall(r"\{(\w+)\}", pair.text + question))
            assert fields <= {"1", "2", "3", "year", "time", "thing", "fault", "noun"}
    assert not set(words()["nouns"]) & set(words()["stores"])  # "box 3" is sibling or place
    assert not {"Both", "They"} & {word for text in words()["fillers"] for word in text.split()}
