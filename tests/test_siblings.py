"""Sibling views: every label is exact, whatever chance makes of facts and real questions."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations

import pytest

from export.designators import FAMILY, PEOPLE, Designator, people, siblings
from export.sibling_facts import (
    SiblingView,
    double_view,
    pair_view,
    people_view,
    relation_view,
)
from export.sibling_sections import any_header, section_view
from export.sibling_words import (
    Double,
    Property,
    Relation,
    capital,
    doubles,
    pairs,
    topic,
    values,
    words,
)
from export.siblings import MADE_UP, REAL, Siblings, headed_view
from export.training_records import Record
from runtime.documents import Span
from runtime.sentences import sentence_spans

VIEWS = 3000
Make = Callable[[Sequence[Designator], random.Random], SiblingView]
Draw = Callable[[random.Random], list[Designator]]
RELATED = [(relation_view, siblings, "things"), (people_view, people, "people")]


def whole(name: str) -> str:
    return rf"(?i)(?<![\w-])(?<!\d\.){re.escape(name)}(?![\w-]|[./]\d)"


def says(text: str, name: str) -> bool:
    """Whether the text has the name, as a whole, in any case."""
    return name.lower() in text.lower() and re.search(whole(name), text) is not None


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
    seed: int, make: Make = relation_view, draw: Draw = siblings
) -> Iterator[tuple[SiblingView, list[Designator]]]:
    rng = random.Random(seed)
    for _ in range(VIEWS):
        family = draw(rng)
        yield make(family, rng), family


def asks_for(question: str, wanted: Property) -> bool:
    asks = [*wanted.asks]
    if isinstance(wanted, Relation):
        asks += [f"What is the {wanted.called} of {{D}}?", f"What {wanted.called} has {{D}}?"]
    parts = [ask.rstrip("?").split("{D}") for ask in asks]
    return any(question.startswith(a) and question.rstrip("?").endswith(b) for a, b in parts)


@pytest.mark.parametrize(("make", "draw", "sort"), RELATED)
def test_relations_are_labelled_with_the_asked_siblings_value(
    make: Make, draw: Draw, sort: str
) -> None:
    """Where its sentence names one sibling only, it is the one asked for."""
    alone = absent = untold = 0
    for view, family in drawn(0, make, draw):
        [asked] = named(view.question, family)
        if view.answer is None:
            untold += asked in named(view.context, family)
            absent += asked not in named(view.context, family)
            continue
        answer = view.answer.of(view.context)
        assert answer == answer.strip() != ""
        here = named(told(view), family)
        assert asked in here, view
        alone += len(here) == 1
    assert 0.17 < absent / VIEWS < 0.23
    assert untold / VIEWS == pytest.approx(0.6 * topic(sort).untold, abs=0.02)
    assert alone > VIEWS / 3


@pytest.mark.parametrize(("make", "draw", "sort"), RELATED)
def test_what_is_not_told_has_no_answer(make: Make, draw: Draw, sort: str) -> None:
    """A sibling that the text has is asked for what no word of the text is about."""
    checked = 0
    for view, family in drawn(1, make, draw):
        [asked] = named(view.question, family)
        if view.answer is not None or asked not in named(view.context, family):
            continue
        wanted = [one for one in topic(sort).relations if asks_for(view.question, one)]
        assert wanted, view
        for one in topic(sort).relations:
            begin = one.says.split(" {V}")[0]
            if any(one.resembles(asked_for) for asked_for in wanted) and begin != "is":
                assert f" {begin} " not in view.context, view
                assert f"the {one.called} " not in view.context.lower(), view
        checked += 1
    assert checked > VIEWS / 25


@pytest.mark.parametrize(("make", "draw", "sort"), RELATED)
def test_siblings_of_one_sentence_are_told_apart(make: Make, draw: Draw, sort: str) -> None:
    """Terse lists name all siblings in one sentence: the value is the one nearest by its way."""
    checked = 0
    for view, family in drawn(2, make, draw):
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


@pytest.mark.parametrize(("make", "draw", "sort"), RELATED)
def test_values_in_order_go_with_siblings_in_order(make: Make, draw: Draw, sort: str) -> None:
    """Siblings, then values, or values, then siblings."""
    checked = values_lead = 0
    for view, family in drawn(3, make, draw):
        if view.answer is None or not re.search("respectively|in this order", told(view)):
            continue
        [asked] = named(view.question, family)
        sentence = told(view)
        by_place = sorted(
            named(sentence, family), key=lambda one: sentence.lower().find(one.name.lower())
        )
        count, place = len(by_place), by_place.index(asked)
        before = view.context[view.context.index(sentence) : view.answer.start]
        links = re.findall(r", | and ", before)
        leads = re.search(" are for | belong to | are given for ", sentence) is not None
        assert len(links) == place + (0 if leads else count - 1), view
        checked += 1
        values_lead += leads
    assert checked > VIEWS / 100
    assert VIEWS / 600 < values_lead < checked / 2


@pytest.mark.parametrize(("make", "draw", "sort"), RELATED)
def test_bare_rows_have_their_values_under_the_headings(make: Make, draw: Draw, sort: str) -> None:
    under = without = 0
    for view, family in drawn(4, make, draw):
        if view.answer is None or " | " not in view.context:
            continue
        lines = [line.split(" | ") for line in view.context.splitlines()]
        answer = view.answer.of(view.context)
        rows = [cells for cells in lines if answer in cells[1:]]
        if not rows:  # each cell names its own column
            continue
        [asked] = named(view.question, family)
        [row] = [cells for cells in rows if any(one == asked for one in named(cells[0], family))]
        heads = next((cells for cells in lines if cells[0].endswith(topic(sort).heads)), [])
        under += bool(heads)
        without += not heads
        if heads:
            wanted = [one.column for one in topic(sort).relations if asks_for(view.question, one)]
            assert heads[row.index(answer)] in wanted, view
        else:
            assert not any(cell.isdecimal() for cell in row[1:]), view
    assert under > without > 5


def test_doubles_are_labelled_with_the_half_that_is_asked_for() -> None:
    absent = short = 0
    for view, family in drawn(5, double_view):
        [asked] = named(view.question, family)
        if view.answer is None:
            absent += 1
            assert asked not in named(view.context, family), view
            continue
        before = view.context[: view.answer.start]
        places = {
            found.start(): one for one in family for found in re.finditer(whole(one.name), before)
        }
        assert places[max(places)] == asked, view
        assert any(_stands(view, view.answer, double) for double in doubles()), view
        short += any(
            f"{asked.name} {double.short.split('{A}')[0]}{view.answer.of(view.context)}"
            in view.context
            for double in doubles()
            if double.short.startswith("{A}")
        )
    assert 0.17 < absent / VIEWS < 0.23
    assert short > VIEWS / 100


def _stands(view: SiblingView, answer: Span, double: Double) -> bool:
    """Whether the answer is the value of the half that the question is for."""
    between, end = re.split(r"\{A\}|\{B\}", double.says)[1:]
    first, second = double.halves
    after = view.context[answer.end :]
    return (asks_for(view.question, first) and after.startswith(between)) or (
        asks_for(view.question, second)
        and view.context[: answer.start].endswith(between)
        and after.startswith(end)
    )


def test_people_are_asked_for_by_either_name_where_it_is_theirs_alone() -> None:
    full = first = last = shared = single = 0
    for view, family in drawn(6, people_view, people):
        [asked] = named(view.question, family)
        full += says(view.question, asked.name)
        first += says(view.question, asked.name.split()[0])
        last += says(view.question, asked.name.split()[1])
        there = [one.name for one in family if says(view.context, one.name)]
        assert len(named(view.context, family)) <= 3
        single += len(named(view.context, family)) == 1
        for part in asked.name.split():
            if sum(part in name.split() for name in {*there, asked.name}) > 1:
                shared += 1
                assert says(view.question, asked.name) or not says(view.question, part), view
    assert full > VIEWS / 3
    assert min(first - full, last - full) > VIEWS / 6
    assert shared > VIEWS / 100
    assert 0.15 < single / VIEWS < 0.25


def test_pairs_may_be_answered_with_a_sibling() -> None:
    of_siblings = 0
    for view, family in drawn(7, pair_view):
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
    given, rng = records(), random.Random(14)
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


def test_headers_say_what_a_section_is_about() -> None:
    """The answer stands below the last heading, or the header, that names the sibling asked for."""
    rng, absent, headed, parts = random.Random(31), 0, 0, 0
    for _ in range(VIEWS):
        family = siblings(rng)
        view = section_view(family, rng)
        asked = [one for one in family if says(view.question, one.mark)]
        if len(asked) != 1:  # a value or a part has the same mark
            continue
        headed += bool(named(view.header, family))
        parts += " of " in view.question or "'s " in view.question
        if view.answer is None:
            absent += 1
            continue
        above = f"{view.header}\n{view.context[: view.answer.start]}"
        headings = [
            found
            for line in above.split("\n")
            if (found := named(line, family)) and not line.endswith(".")
        ]
        assert headings[-1] == asked, view
    assert 0.3 * VIEWS < absent < 0.45 * VIEWS
    assert headed > 0.6 * VIEWS
    assert parts > 0.2 * VIEWS


def test_real_questions_are_asked_of_a_text_under_a_header() -> None:
    given, rng = records(), random.Random(32)
    absent = answered = 0
    for _ in range(VIEWS):
        record, family = rng.choice(given), siblings(rng)
        view = headed_view(record, family, rng)
        assert view is not None
        [asked] = [one for one in family if says(view.question, one.mark)]
        assert not named(view.context, [asked])
        if view.answer is None:
            absent += 1
            assert not says(view.header, asked.mark), view
        else:
            answered += 1
            assert says(view.header, asked.mark), view
            assert view.answer.of(view.context) == record.answers[0].of(record.context)
    assert absent / (absent + answered) == pytest.approx(0.3, abs=0.03)


def test_any_header_names_nothing() -> None:
    rng = random.Random(33)
    known = {*words()["titles"], *words()["aspects"]}
    headers = {any_header(rng) for _ in range(300)}
    assert len(headers) > 50
    assert all(set(header.removesuffix(": ").split(": ")) <= known for header in headers)


def test_same_seed_gives_the_same_views() -> None:
    given = records()
    made = [
        [Siblings(given).view(record, rng) for record in given]
        for rng in (random.Random(7), random.Random(7), random.Random(8))
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


@pytest.mark.parametrize(("make", "draw", "_weight"), MADE_UP)
def test_same_seed_gives_the_same_made_up_views(make: Make, draw: Draw, _weight: int) -> None:
    made = [
        [make(draw(rng), rng) for _ in range(100)]
        for rng in (random.Random(15), random.Random(15), random.Random(16))
    ]
    assert made[0] == made[1]
    assert made[0] != made[2]


def test_every_source_is_drawn_with_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """Real questions by two shares: how many are tried, and here each of them gives a view."""
    made: Counter[Make] = Counter()

    def counted(make: Make) -> Make:
        def count(family: Sequence[Designator], rng: random.Random) -> SiblingView:
            made[make] += 1
            return make(family, rng)

        return count

    shares = [(counted(make), draw, weight) for make, draw, weight in MADE_UP]
    monkeypatch.setattr("export.siblings.MADE_UP", shares)
    given, rng = records()[:8], random.Random(17)  # of the pump
    source = Siblings(given)
    for _ in range(VIEWS):
        source.view(rng.choice(given), rng)
    assert 1 - made.total() / VIEWS == pytest.approx(REAL, abs=0.03)
    total = sum(weight for *_, weight in MADE_UP)
    for make, _, weight in MADE_UP:
        assert made[make] / VIEWS == pytest.approx((1 - REAL) * weight / total, abs=0.02)


def test_adjectives_stand_before_the_noun_or_behind_it_with_a_capital() -> None:
    rng, before, after = random.Random(11), 0, 0
    for _ in range(VIEWS):
        family = siblings(rng)
        for one in family:
            if not one.word:
                continue
            assert one.name == one.code
            assert not one.alone
            assert one.mark in one.name.split()
            before += one.name == f"{one.mark} {one.noun}" == one.beside(one.noun or "")
            after += one.name == f"{one.noun} {one.mark}" == one.beside(one.noun or "")
            assert one.beside("rice") in (f"{one.mark.lower()} rice", f"rice {capital(one.mark)}")
    assert 0.08 < (before + after) / FAMILY / VIEWS < 0.12
    assert before > after > before / 8


def test_a_mark_that_the_sentence_has_is_not_given_to_its_copies() -> None:
    """Guards: "the old left pump" beside a question for the old pump, with no answer."""
    context = "The old pump was kept in Rome."
    start = context.index("Rome")
    record = Record("Where was the pump kept?", context, (Span(start, start + 4),))
    source, rng, made = Siblings([*records(), record]), random.Random(12), 0
    for _ in range(VIEWS):
        family = siblings(rng)
        view = source.real_view(record, family, rng) if family[0].word else None
        if view is not None and "kept" not in [one.mark for one in family]:
            made += 1
            assert "old old" not in view.context
            assert not says(view.question, "old pump"), view
    assert made > VIEWS / 50


def test_people_have_names_of_their_own() -> None:
    rng, shared = random.Random(13), 0
    for _ in range(VIEWS):
        family = people(rng)
        assert len({one.name for one in family}) == len({one.code for one in family}) == PEOPLE
        for one, other in combinations(family, 2):
            assert not says(one.name, other.code)
            assert not says(other.name, one.code)
            shared += one.name.split()[0] == other.name.split()[0]
    assert shared > VIEWS / 20


def test_six_siblings_have_six_names_of_one_pattern() -> None:
    rng = random.Random(9)
    for _ in range(VIEWS):
        family = siblings(rng)
        assert len({one.name for one in family}) == len({one.code for one in family}) == 6
        assert len({(one.noun, one.article, one.word) for one in family}) == 1
        for one, other in combinations(family, 2):
            assert not says(one.name, other.code)


def test_names_that_need_an_article_have_one_in_sentences() -> None:
    """Guards: the first generator wrote "AWG 15 bolts is kept in"."""
    found = 0
    for view, family in drawn(10):
        assert "the the" not in view.context.lower()
        if not family[0].article or re.search("[:|=] | - |\n", view.context):
            continue
        for one in family:
            for place in re.finditer(re.escape(one.name), view.context):
                found += 1
                assert view.context[: place.start()].lower().endswith("the "), view
    assert found > VIEWS / 50


def test_the_data_file_fits_its_makers() -> None:
    rng = random.Random(0)
    told = {name: topic(name).relations for name in words()["topics"]}
    asked = [*told["things"], *told["people"], *(half for two in doubles() for half in two.halves)]
    for one in asked:
        assert all(ask.count("{D}") == 1 and ask.endswith("?") for ask in one.asks)
        assert len(set(values(one.kind, 10, rng))) == 10
    for relations in told.values():
        for relation in relations:
            assert relation.says.count("{V}") == 1
            assert any(not relation.resembles(other) for other in relations)
        for one, other in combinations(relations, 2):  # columns are told apart by their headings
            assert one.clashes(other) or one.column != other.column
    for double in doubles():
        assert re.findall(r"\{\w\}", double.says) == ["{A}", "{B}"]
        assert double.says.endswith(double.short)
    assert set(words()["groups"]) <= {one.kind for one in asked}
    for pair in pairs():
        for question, answer in pair.asks:
            assert answer in pair.text
            fields = set(re.findall(r"\{(\w+)\}", pair.text + question))
            assert fields <= {"1", "2", "3", "year", "time", "thing", "fault", "noun"}
    elsewhere = {*words()["stores"], *words()["places"], *words()["machines"]}
    assert not set(words()["nouns"]) & elsewhere  # "box 3", "the old tower" is sibling or place
    assert not set(words()["first names"]) & set(words()["last names"])
    assert all(len({*pair, *words()["further"]}) >= FAMILY for pair in words()["contrasts"])
    assert not {"Both", "They"} & {word for text in words()["fillers"] for word in text.split()}
