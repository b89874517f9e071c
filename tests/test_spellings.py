"""Measures and codes that question and document spell differently find each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.knowledge_base import KnowledgeBase
from runtime.spellings import other_spellings
from tests.knowledge import add, parsed

# Of each line both spellings; the others are what must not come first.
MEASURES = (
    ("24 V AC", "24VAC", "24 V DC", "24VDC", "230 V AC"),
    ("0.5 mm", "0.5mm", "0.8 mm", "5 mm", "0.8mm"),
    ("M8 x 40", "M8x40", "M8 x 30", "M6 x 40", "M8x30"),
    ("M8 × 40", "M8x40", "M8 × 30", "M8x45"),
    ("5 A", "5A", "6 A", "6A"),
    ("IP 67", "IP67", "IP 54", "IP54"),
    ("1,500 h", "1,500h", "1,600 h", "500 h", "1,600h", "500h"),
    ("0,5 mm", "0,5mm", "0,8 mm", "5 mm", "0,8mm", "5mm"),
    ("0,5 mm", "0.5mm", "0.8 mm", "5mm"),
    ("0.5 mm", "0,5mm", "0,8 mm", "5mm"),
    ("10,5 kV", "10,5kV", "105 kV", "105kV", "5 kV", "10 kV"),
    ("12.5 bar", "12.5bar", "125 bar", "125bar", "5bar"),
)


@pytest.mark.parametrize("line", MEASURES, ids=lambda line: line[1])
def test_each_spelling_finds_the_other(line: tuple[str, ...], tmp_path: Path) -> None:
    apart, together, *others = line
    for asked, written in ((apart, together), (together, apart)):
        with KnowledgeBase.open(tmp_path / asked.replace(" ", "_"), create=True) as kb:
            for number, measure in enumerate(others):
                add(kb, parsed(f"other-{number}", f"The part is marked {measure} on its plate."))
            add(kb, parsed("right", f"The part is marked {written} on its plate."))
            hits = kb.search(f"Which part is marked {asked}?", 5)
            first = kb.documents()[-1]
            assert first.source == "right"
            assert hits[0].passage_id == len(others) + 1
            assert len(hits) == 1 or hits[0].score > hits[1].score


@pytest.mark.parametrize(
    ("question", "spelling"),
    [
        ("What opens at 0.5 mm?", "0.5mm"),
        ("Which fuse is for 24 V AC?", "24VAC"),
        ("Is it due in 1,500 h?", "1,500h"),
        ("Where is the DN 50 valve?", "DN50"),
    ],
)
def test_a_short_word_before_a_measure_is_no_part_of_it(question: str, spelling: str) -> None:
    """Guards: "at 0", "for 24" were taken for codes, and the measure was not seen."""
    assert spelling in other_spellings(question).split()


def test_a_decimal_is_not_found_without_its_point(tmp_path: Path) -> None:
    """Guards: "12.5 bar" was also asked for as "125bar", which has the term "125", so that a
    passage with 125 bar came as near."""
    with KnowledgeBase.open(tmp_path / "kb", create=True) as kb:
        add(kb, parsed("other", "The part is marked 125 bar on its plate."))
        add(kb, parsed("right", "The part is marked 12.5 bar on its plate."))
        first, second = kb.search("Which part is marked 12.5 bar?", 5)
        assert (first.passage_id, second.passage_id) == (2, 1)
        assert first.score > second.score


def test_words_are_left_alone() -> None:
    assert other_spellings("How often is the relief valve of pump P-101 tested?") == ""
