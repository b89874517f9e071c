"""Text -> tokens, with each distinct word tokenised only once.

Only for tokenizers that treat words on either side of a blank independently of each other, which
BERT's normaliser, pre-tokenizer and WordPiece do. For those it is many times faster than the
tokenizer, and gives exactly the same; for the others there is no cache.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from runtime.encoding import TokenizedText

# An ideograph is a word of its own: BERT's normaliser puts blanks around it.
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
_BLANKS = " \n\r\t"
_CLASS = "".join(f"{chr(first)}-{chr(last)}" for first, last in _IDEOGRAPHS)
_WORD = re.compile(f"[{_CLASS}]|[^{_BLANKS}{_CLASS}]+")
_BLANK_POINTS = np.array([ord(blank) for blank in _BLANKS], np.uint32)
_LONGEST_CACHED = 40  # characters
_CACHE_LIMIT = 200_000  # distinct words, about 40 MB
_TOKEN_BYTES = 12  # id, start and end as int32; start and end count from the word's first character


def is_word_by_word(tokenizer: Tokenizer) -> bool:
    """Whether the tokenizer is one of those for which this is exact."""
    return (
        isinstance(tokenizer.normalizer, BertNormalizer)
        and tokenizer.normalizer.handle_chinese_chars
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
        and isinstance(tokenizer.model, WordPiece)
        and all(token.special for token in tokenizer.get_added_tokens_decoder().values())
    )


class WordCache:
    """Tokenises like `tokenizer.encode(text, add_special_tokens=False)`. One thread at a time."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._words: dict[str, bytes] = {}

    def encode_batch(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts are looked at as one, in which no word crosses from one into the next."""
        joined = "\n".join(texts)
        words = _WORD.findall(joined)
        of_words = self._look_up(words)
        starts = _word_starts(joined)
        counts = np.fromiter(map(len, of_words), np.intp, len(words)) // _TOKEN_BYTES
        rows = _rows(b"".join(of_words))
        offsets = rows[:, 1:] + np.repeat(starts, counts)[:, None]
        lengths = np.fromiter((len(text) + 1 for text in texts), np.intp, len(texts))
        ends = lengths.cumsum()
        stops = np.append(0, counts.cumsum())[np.searchsorted(starts, ends)].tolist()
        return [
            TokenizedText(rows[begin:stop, 0].copy(), offsets[begin:stop] - np.int32(at))
            for begin, stop, at in zip([0, *stops], stops, ends - lengths, strict=False)
        ]

    def _look_up(self, words: list[str]) -> list[bytes]:
        """The tokens of each word, from the cache where they are in it."""
        known = self._words
        missing = [word for word in dict.fromkeys(words) if word not in known]
        if missing:
            if len(known) + len(missing) > _CACHE_LIMIT:
                missing = list(dict.fromkeys(words))
                known.clear()
            known |= self._tokenized(missing)
        found = [known[word] for word in words]
        for word in missing:
            if len(word) > _LONGEST_CACHED:
                del known[word]
        return found

    def _tokenized(self, words: list[str]) -> dict[str, bytes]:
        """The tokens of new words. As one text: a call of the tokenizer costs several words."""
        joined = " ".join(words)
        encoding = self._tokenizer.encode(joined, add_special_tokens=False)
        rows = np.empty((len(encoding.ids), 3), np.int32)
        rows[:, 0] = encoding.ids
        rows[:, 1:] = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        lengths = np.fromiter((len(word) + 1 for word in words), np.intp, len(words))
        starts = lengths.cumsum() - lengths
        of_word = np.searchsorted(starts, rows[:, 1], side="right") - 1
        rows[:, 1:] -= starts[of_word].astype(np.int32)[:, None]
        stops = np.searchsorted(of_word, np.arange(len(words)), side="right") * _TOKEN_BYTES
        raw = rows.tobytes()
        ends = stops.tolist()
        return {
            word: raw[begin:stop]
            for word, begin, stop in zip(words, [0, *ends], ends, strict=False)
        }


def _rows(raw: bytes) -> NDArray[np.int32]:
    return np.frombuffer(raw, np.int32).reshape(-1, 3)


def _word_starts(text: str) -> NDArray[np.int32]:
    """Where the matches of `_WORD` begin."""
    characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
    is_blank = np.isin(characters, _BLANK_POINTS)
    is_alone = is_blank.copy()
    for first, last in _IDEOGRAPHS:
        is_alone |= (characters >= first) & (characters <= last)
    begins = ~is_blank
    begins[1:] &= is_alone[1:] | is_alone[:-1]
    return np.flatnonzero(begins).astype(np.int32)
