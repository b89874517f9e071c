"""Windows: every token once at least, exact offsets, bounded length, no gaps, on three families."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer

from runtime.errors import BundleDamaged
from runtime.windows import WindowOptions, WindowSlice, WindowTokenizer, cut_windows
from runtime.word_cache import _BLANKS, _OTHER_SPACES, WordCache, is_word_by_word
from tests.tiny_models import FAMILIES, Family, make_tokenizer

# Accents, combining marks, ligatures, emoji with joiners, CJK, NUL, soft hyphen, zero width, RTL.
_PIECES = (
    *("pump", "valve.", "greased!", "café", "e\u0301", "a\u0308\u0323", "ﬁne", "ﬃ", "👩‍🔧", "🇫🇷"),
    *("水泵站。阀门", "ポンプ", "\x00", "mo\u00adtor", "\u200b", "العربية", "नमस्ते", "ภาษาไทย"),
    *("E-17", "6.5", "[SEP]", "</s>", "<unk>", "\t", "½", "㎏", "ǅ", "İ", "ß"),
)
_TEXTS = st.lists(
    st.one_of(st.sampled_from([*_PIECES, " ", ". ", "\n"]), st.text(max_size=6)), max_size=60
).map(" ".join)
_OPTIONS = st.integers(1, 24).flatmap(
    lambda length: st.builds(WindowOptions, st.just(length), st.integers(0, length - 1))
)
_TOKENIZERS = {family: WindowTokenizer(make_tokenizer(family)) for family in FAMILIES}

_CACHE = WordCache(make_tokenizer("wordpiece"))
_CACHE._tokenizer.encode_special_tokens = True


def _cut(family: Family, text: str, options: WindowOptions) -> list[WindowSlice]:
    return cut_windows(text, _TOKENIZERS[family].encode(text), options)


@pytest.mark.parametrize("family", FAMILIES)
@given(text=_TEXTS, options=_OPTIONS)
@settings(max_examples=150, deadline=None)
def test_windows_hold_every_token_at_its_place(
    family: Family, text: str, options: WindowOptions
) -> None:
    tokens = _TOKENIZERS[family].encode(text)
    windows = cut_windows(text, tokens, options)
    assert bool(windows) == bool(len(tokens.ids))
    covered = np.zeros(len(tokens.ids), dtype=bool)
    begin = -1
    for window in windows:
        begin += 1  # each window begins after the one before
        count = len(window.token_ids)
        assert 1 <= count <= options.length
        absolute = window.offsets + window.span.start
        while not np.array_equal(tokens.offsets[begin : begin + count], absolute) or not (
            np.array_equal(tokens.ids[begin : begin + count], window.token_ids)
        ):
            begin += 1
            assert begin + count <= len(tokens.ids)
        covered[begin : begin + count] = True
        own = window.span.of(text)
        assert window.offsets.min() >= 0
        assert window.offsets.max() <= len(own)
        for (start, end), (there, stop) in zip(
            window.offsets.tolist(), absolute.tolist(), strict=True
        ):
            assert own[start:end] == text[there:stop]
    assert covered.all()


@pytest.mark.parametrize("family", FAMILIES)
@given(text=_TEXTS, options=_OPTIONS)
@settings(max_examples=150, deadline=None)
def test_windows_cover_the_passage_and_always_move_on(
    family: Family, text: str, options: WindowOptions
) -> None:
    windows = _cut(family, text, options)
    if not windows:
        return
    assert windows[0].span.start == 0
    assert windows[-1].span.end == len(text)
    for one, other in pairwise(windows):
        assert one.span.start <= other.span.start <= one.span.end <= len(text)


@given(texts=st.lists(_TEXTS, max_size=4))
@settings(max_examples=200, deadline=None)
def test_the_word_cache_gives_what_the_tokenizer_gives(texts: list[str]) -> None:
    tokenizer = make_tokenizer("wordpiece")
    tokenizer.encode_special_tokens = True
    assert is_word_by_word(tokenizer)
    for text, tokens in zip(texts, _CACHE.encode_batch(texts), strict=True):
        plain = tokenizer.encode(text, add_special_tokens=False)
        assert tokens.ids.tolist() == plain.ids
        assert tokens.offsets.tolist() == [list(offsets) for offsets in plain.offsets]


# What splits words and what the normaliser drops, without blanks between.
_GLUED = st.text(
    alphabet="aZ9éİß.-_'#~\u0301\u0338\u0323=\x00\x0b\x1c\x85\xa0\u200b\u2003\u2028\u3000水€≠\t\r ",
    max_size=24,
)


@pytest.mark.parametrize("is_lower_case", [True, False])
@given(texts=st.lists(_GLUED, max_size=3))
@settings(max_examples=200, deadline=None)
def test_the_word_cache_splits_at_punctuation_as_the_tokenizer_does(
    is_lower_case: bool, texts: list[str]
) -> None:
    """Guards pieces that are tokenised alone, and white space that only `str.split` knows."""
    tokenizer = make_tokenizer("wordpiece", ["a Z z 9 é e ß ss i . - _ ' # ~ = 水 ≠ €"])
    tokenizer.normalizer = BertNormalizer(lowercase=is_lower_case, strip_accents=is_lower_case)
    tokenizer.encode_special_tokens = True
    for text, tokens in zip(texts, WordCache(tokenizer).encode_batch(texts), strict=True):
        plain = tokenizer.encode(text, add_special_tokens=False)
        assert tokens.ids.tolist() == plain.ids
        assert tokens.offsets.tolist() == [list(offsets) for offsets in plain.offsets]


def test_white_space_is_what_split_takes_for_it() -> None:
    everything = map(chr, range(sys.maxunicode + 1))
    assert {one for one in everything if not one.split()} == set(_BLANKS + _OTHER_SPACES)


def test_only_wordpiece_is_word_by_word() -> None:
    assert [is_word_by_word(make_tokenizer(family)) for family in FAMILIES] == [True, False, False]


def test_a_full_word_cache_starts_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runtime.word_cache._CACHE_LIMIT", 3)
    cache = WordCache(make_tokenizer("wordpiece"))
    one = cache.encode_batch(["pump valve", "motor filter pump"])
    two = cache.encode_batch(["pump valve", "tank filter pump", "motor"])
    again = cache.encode_batch(["pump valve", "motor filter pump"])
    assert [t.ids.tolist() for t in one] == [t.ids.tolist() for t in again]
    assert two[2].ids.tolist() == one[1].ids.tolist()[:1]


def test_a_word_too_long_to_be_kept_is_tokenised_each_time() -> None:
    """Guards the words that are in the cache for the length of one call only."""
    cache = WordCache(make_tokenizer("wordpiece"))
    long = "pump" * 30
    one, other, last = cache.encode_batch([f"{long} valve {long}", long, "valve"])
    assert one.ids.tolist() == [*other.ids.tolist(), *last.ids.tolist(), *other.ids.tolist()]
    assert cache.encode_batch([long])[0].offsets.tolist() == other.offsets.tolist()


def test_a_window_ends_with_a_sentence_where_one_ends_in_its_second_half() -> None:
    sentence = "The pump runs. "
    text = sentence * 12
    windows = _cut("wordpiece", text, WindowOptions(length=14, overlap=5))
    assert len(windows) > 3
    for window in windows[:-1]:
        assert window.span.of(text).rstrip().endswith(".")
        assert window.span.of(text).startswith("The")


def test_consecutive_windows_share_the_last_sentence() -> None:
    text = "The pump runs. The valve opens. The motor is hot. The filter is new. The tank is full."
    options = WindowOptions(length=11, overlap=6)
    one, other = _cut("wordpiece", text, options)[:2]
    shared = text[other.span.start : one.span.end]
    assert shared.strip()
    assert shared.startswith("The")


def test_text_that_spells_a_special_token_is_ordinary_text() -> None:
    """Guards against "[SEP]" in a document ending the context in the middle of a window."""
    tokenizer = make_tokenizer("wordpiece")
    special = tokenizer.token_to_id("[SEP]")
    tokens = WindowTokenizer(tokenizer).encode("press [SEP] now")
    assert special not in tokens.ids.tolist()


@pytest.mark.parametrize("options", [(8, 8), (0, 0), (8, -1)])
def test_options_that_cannot_move_on_are_refused(options: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="overlap"):
        WindowOptions(*options)


def test_a_tokenizer_file_that_is_none_is_named(tmp_path: Path) -> None:
    file = tmp_path / "tokenizer.json"
    file.write_text('{"model": 3}')
    with pytest.raises(BundleDamaged, match="tokenizer"):
        WindowTokenizer.from_file(file)
