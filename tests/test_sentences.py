"""Sentences: cut where people would, and never losing a word."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.sentences import _BREAK, _BREAK_ASCII, sentence_spans, sentence_starts


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("It opens. It closes.", ["It opens.", "It closes."]),
        ("Dr. Smith set 3.5 bar. He left.", ["Dr. Smith set 3.5 bar.", "He left."]),
        ('"Stop!" she said. "Now?"', ['"Stop!" she said.', '"Now?"']),
        ("See sec. 4.2 and fig. 3. Then go.", ["See sec. 4.2 and fig. 3.", "Then go."]),
        ("第一句。第二句！好？", ["第一句。", "第二句！", "好？"]),
        ("E-17: Overheat\nE-18: Stall", ["E-17: Overheat", "E-18: Stall"]),
        ("J. R. Hale signed.", ["J. R. Hale signed."]),
        ("", []),
        (" \n ", []),
        ("no end", ["no end"]),
    ],
)
def test_where_sentences_end(text, sentences):
    assert [span.of(text) for span in sentence_spans(text)] == sentences


@given(st.text(alphabet="aB.!?\n 。\"')3é\u0301", max_size=80))
def test_sentences_are_ordered_trimmed_and_lose_nothing(text):
    spans = sentence_spans(text)
    assert all(s.of(text) == s.of(text).strip() != "" for s in spans)
    assert all(a.end <= b.start for a, b in itertools.pairwise(spans))
    kept = "".join(s.of(text) for s in spans)
    assert "".join(kept.split()) == "".join(text.split())
    assert sentence_starts(text) == [s.start for s in spans]


@given(st.text(alphabet="aB.!?\n\r\v\x1c \t\"')]3,", max_size=40))
@settings(max_examples=500)
def test_the_pattern_for_ascii_breaks_where_the_full_one_does(text):
    assert [m.span() for m in _BREAK_ASCII.finditer(text)] == [
        m.span() for m in _BREAK.finditer(text)
    ]
