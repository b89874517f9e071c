"""Alignment across tokenizers: the slice of the document always is the answer."""

from __future__ import annotations

import unicodedata

import numpy as np
import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.alignment import TokenRange, bounds, character_span, token_range
from runtime.documents import Span
from runtime.graphemes import whole_graphemes
from tests.tiny_models import FAMILIES, make_tokenizer

WORDS = [
    "valve", "Éze", "cafe\u0301", "naïve", "E-17", "6.5", "bar,", "水泵站", "阀门", "Насос",
    "👩‍👩‍👧", "🇫🇷", "👍🏽", "ﬁlter", "so\u00adft", "\u00adhyphen\u00ad", "nul\0byte", "क्षि", "กำ",
    "\u200bzero", "ß", "İstanbul", "x" * 40, "½", "㎏", "(", "\u0301", "\t",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(WORDS) | st.text(max_size=5), min_size=1, max_size=12).map(
    lambda words: " ".join(words).encode("utf-8", "replace").decode() or "a"
)
TOKENIZERS = {
    family: make_tokenizer(family, ["the valve opens at 6.5 bar café 水泵站 Насос filter"])
    for family in FAMILIES
}


def offsets_of(family: str, text: str) -> np.ndarray:
    encoding = TOKENIZERS[family].encode(text, add_special_tokens=False)
    return np.asarray(encoding.offsets, np.int32).reshape(-1, 2)


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, data=st.data())
def test_any_token_range_slices_the_text_cleanly(family, text, data):
    """Trimmed, inside the text, and never half a grapheme, whatever the tokenizer did to it."""
    offsets = offsets_of(family, text)
    if len(offsets) == 0:
        return
    first = data.draw(st.integers(0, len(offsets) - 1))
    last = data.draw(st.integers(first, len(offsets) - 1))
    span = character_span(TokenRange(first, last), offsets, text)
    answer = span.of(text)
    assert 0 <= span.start <= span.end <= len(text)
    assert answer == answer.strip()
    boundaries = {0, *(m.end() for m in regex.finditer(r"\X", text))}
    trimmed_inside = {i for i, c in enumerate(text) if c.isspace()}
    assert span.start in boundaries or span.start - 1 in trimmed_inside or not answer
    assert span.end in boundaries or span.end in trimmed_inside or not answer


@pytest.mark.parametrize("family", FAMILIES)
@settings(max_examples=150, deadline=None)
@given(text=TEXTS, data=st.data())
def test_a_span_survives_the_way_through_another_tokenizer(family, text, data):
    """characters -> tokens -> characters covers at least every character the tokens know."""
    offsets = offsets_of(family, text)
    start = data.draw(st.integers(0, len(text) - 1))
    end = data.draw(st.integers(start + 1, len(text)))
    tokens = token_range(Span(start, end), offsets)
    known = {i for a, b in offsets.tolist() for i in range(a, b)}
    wanted = {i for i in range(start, end) if i in known and not text[i].isspace()}
    if tokens is None:
        assert not {i for i in range(start, end) if i in known}
        return
    back = character_span(tokens, offsets, text)
    assert wanted <= set(range(back.start, back.end))


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "text",
    [
        "The relief\u00ad valve opens.",
        "The relief val\u00adve opens.",
        "The \u00advalve opens.",
        "a\0b the valve\0 opens",
        "ﬁve ﬂow valve",
    ],
)
def test_soft_hyphens_nul_and_ligatures_around_the_answer(family, text):
    """Normalisers delete these; the slice must still begin and end where the answer does."""
    start = text.index("val")
    end = text.index("ve", start) + 2
    tokens = token_range(Span(start, end), offsets_of(family, text))
    assert tokens is not None
    answer = character_span(tokens, offsets_of(family, text), text).of(text)
    assert unicodedata.normalize("NFKC", answer).replace("\u00ad", "").strip("\0").startswith("val")


def test_no_overlap_gives_no_range():
    offsets = np.array([[0, 3], [4, 8]], np.int32)
    assert token_range(Span(3, 4), offsets) is None
    assert token_range(Span(3, 5), offsets) == TokenRange(1, 1)


def test_tokens_of_white_space_may_not_bound_an_answer():
    offsets = np.array([[0, 1], [1, 2], [2, 2], [2, 3]], np.int32)
    assert bounds(offsets, "a b").may_bound.tolist() == [True, False, False, True]


def test_tokens_know_their_line():
    """A break belongs to the line before it; tokens after it to the next."""
    offsets = np.array([[0, 1], [1, 2], [2, 3], [4, 5]], np.int32)
    assert bounds(offsets, "a\nb\nc").line.tolist() == [0, 0, 1, 2]


@given(st.text(max_size=40), st.data())
def test_widening_to_graphemes_agrees_with_segmenting_the_whole_text(text, data):
    """Fast path (a look around the cut) against the plain one (all clusters of the text)."""
    start = data.draw(st.integers(0, len(text)))
    end = data.draw(st.integers(start, len(text)))
    boundaries = [0, *(m.end() for m in regex.finditer(r"\X", text))]
    widened = whole_graphemes(text, Span(start, end))
    assert widened.start == max(b for b in boundaries if b <= start)
    assert widened.end == min(b for b in boundaries if b >= end)


def test_a_kilometre_of_combining_marks_is_cut_in_bounded_time():
    """Clusters longer than the reach are mischief: the cut stays, and nothing hangs."""
    text = "a" + "\u0301" * 100_000
    widened = whole_graphemes(text, Span(0, 50_000))
    assert 50_000 <= widened.end <= len(text)
