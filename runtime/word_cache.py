"""Text -> tokens, with each distinct word, and each distinct piece of one, tokenised only once.

Only for tokenizers that treat words on either side of a blank independently of each other, and what
is on either side of ASCII punctuation too, which BERT's normaliser, pre-tokenizer and WordPiece do.
For those it is many times faster than the tokenizer, and gives exactly the same; for the others
there is no cache.

Two caches, because most words that are new have only their punctuation to be new: "(pump)," is
looked up whole, then as "(", "pump", ")", ",", and the tokenizer sees what is in neither.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from runtime.encoding import TokenizedText

_BLANKS = " \n\r\t"
# What is white space to `str.split` as well. BERT's normaliser removes some of these.
_OTHER_SPACES = (
    "\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008"
    "\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)
# An ideograph is a word of its own: BERT's normaliser puts blanks around it.
_IDEOGRAPHS = ((0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xF900, 0xFAFF))
_PUNCTUATION = ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E))  # of ASCII
_LONGEST_CACHED = 40  # characters
_CACHE_LIMIT = 200_000  # distinct words, about 40 MB; and as many distinct pieces
_ROW = struct.Struct("=3i")  # a token: id, start and end from the unit's first character
# Kinds of characters. The odd ones end what is before them.
_ORDINARY, _BLANK, _OTHER_SPACE, _ALONE = range(4)

Rows = NDArray[np.int32]  # (tokens, 3): id, start and end


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
        self._model = tokenizer.model
        self._is_lower_case = tokenizer.normalizer.lowercase
        self._pieces = _Units(_Splitter(_PUNCTUATION), self._of_pieces)
        self._words = _Units(_Splitter(_IDEOGRAPHS), self._of_words)

    def encode_batch(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The texts are looked at as one, in which no word crosses from one into the next."""
        rows = self._words.tokens("\n".join(texts))
        lengths = np.fromiter((len(text) + 1 for text in texts), np.intp, len(texts))
        ends = lengths.cumsum()
        stops = np.searchsorted(rows[:, 1], ends).tolist()
        return [
            TokenizedText(rows[begin:stop, 0].copy(), rows[begin:stop, 1:] - np.int32(at))
            for begin, stop, at in zip([0, *stops], stops, ends - lengths, strict=False)
        ]

    def _of_words(self, words: list[str]) -> dict[str, bytes]:
        return _by_unit(words, self._pieces.tokens(" ".join(words)))

    def _of_pieces(self, pieces: list[str]) -> dict[str, bytes]:
        """Of plain ASCII by the model alone: what comes before it only lowers the case of these."""
        plain = {
            piece: self._of_plain(piece)
            for piece in pieces
            if piece.isascii() and piece.isprintable()
        }
        others = [piece for piece in pieces if piece not in plain]
        return plain | _by_unit(others, self._encode(" ".join(others)))

    def _of_plain(self, piece: str) -> bytes:
        tokens = self._model.tokenize(piece.lower() if self._is_lower_case else piece)
        return b"".join([_ROW.pack(token.id, *token.offsets) for token in tokens])

    def _encode(self, text: str) -> Rows:
        # As one text: a call of the tokenizer costs several words.
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        rows = np.empty((len(encoding.ids), 3), np.int32)
        rows[:, 0] = encoding.ids
        rows[:, 1:] = np.array(encoding.offsets, np.int32).reshape(-1, 2)
        return rows


class _Units:
    """Text -> its tokens, unit by unit; `tokenise` is asked for units that are new."""

    def __init__(self, split: _Splitter, tokenise: Callable[[list[str]], dict[str, bytes]]) -> None:
        self._split = split
        self._tokenise = tokenise
        self._known: dict[str, bytes] = {}

    def tokens(self, text: str) -> Rows:
        units, starts = self._split(text)
        of_units = self._look_up(units)
        counts = np.fromiter(map(len, of_units), np.intp, len(units)) // _ROW.size
        rows = np.frombuffer(b"".join(of_units), np.int32).reshape(-1, 3).copy()
        rows[:, 1:] += np.repeat(starts, counts)[:, None]
        return rows

    def _look_up(self, units: list[str]) -> list[bytes]:
        """The tokens of each unit, from the cache where they are in it."""
        known = self._known
        missing = [unit for unit in dict.fromkeys(units) if unit not in known]
        if missing:
            if len(known) + len(missing) > _CACHE_LIMIT:
                missing = list(dict.fromkeys(units))
                known.clear()
            known |= self._tokenise(missing)
        found = list(map(known.__getitem__, units))
        for unit in missing:
            if len(unit) > _LONGEST_CACHED:
                del known[unit]
        return found


def _by_unit(units: list[str], rows: Rows) -> dict[str, bytes]:
    """`rows` of all units, one blank between them -> those of each."""
    lengths = np.fromiter((len(unit) + 1 for unit in units), np.intp, len(units))
    starts = lengths.cumsum() - lengths
    of_unit = np.searchsorted(starts, rows[:, 1], side="right") - 1
    rows[:, 1:] -= starts[of_unit].astype(np.int32)[:, None]
    stops = np.searchsorted(of_unit, np.arange(len(units)), side="right") * _ROW.size
    raw = rows.tobytes()
    ends = stops.tolist()
    return {unit: raw[begin:end] for unit, begin, end in zip(units, [0, *ends], ends, strict=False)}


class _Splitter:
    """Text -> its units and where they begin.

    A character of the ranges `alone` is a unit, and so is what is between these and blanks.
    """

    def __init__(self, alone: Sequence[tuple[int, int]]) -> None:
        ranges = "".join(f"{re.escape(chr(first))}-{re.escape(chr(last))}" for first, last in alone)
        self._find = re.compile(f"[{ranges}]|[^{_BLANKS}{ranges}]+").findall
        self._kinds = np.full(0x10000, _ORDINARY, np.uint8)  # of the characters of the first plane
        self._kinds[list(map(ord, _BLANKS))] = _BLANK
        self._kinds[list(map(ord, _OTHER_SPACES))] = _OTHER_SPACE
        for first, last in alone:
            self._kinds[first : last + 1] = _ALONE

    def __call__(self, text: str) -> tuple[list[str], NDArray[np.int32]]:
        characters = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        kinds = self._kinds[np.minimum(characters, 0xFFFF)]
        begins = kinds != _BLANK
        begins[1:] &= (kinds[1:] == _ALONE) | (kinds[:-1] & 1 == 1)
        # Where nothing stands alone or is white space to one of them only, `split` is faster.
        units = text.split() if kinds.max(initial=0) <= _BLANK else self._find(text)
        return units, np.flatnonzero(begins).astype(np.int32)
