"""A passage -> token windows of bounded length that end, where they can, at the end of a sentence.

Windows are derived, never stored: they are cut with the drafter's tokenizer from the passages that
a question finds. Tokens carry offsets in code points of the window's own text, and the windows of a
passage cover it without a gap.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from runtime.documents import Span
from runtime.encoding import TokenizedText
from runtime.errors import BundleDamaged
from runtime.sentences import sentence_starts
from runtime.word_cache import WordCache, is_word_by_word


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Sizes in tokens, special tokens not counted.

    Attributes:
        length: the most tokens of a window. With a question and the special tokens, the default
            makes about 128, the length that the default models read best.
        overlap: the most tokens that a window repeats from the one before.
    """

    length: int = 104
    overlap: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.overlap < self.length:
            raise ValueError(f"overlap {self.overlap} must be in [0, {self.length})")


@dataclass(frozen=True, slots=True, eq=False)
class WindowSlice:
    """A window of a passage: the passage's tokens `[begin, end)`.

    Attributes:
        span: its place in the passage's text.
    """

    span: Span
    tokens: TokenizedText = field(repr=False)
    begin: int
    end: int

    def __len__(self) -> int:
        return self.end - self.begin

    @property
    def token_ids(self) -> NDArray[np.int32]:
        """int32 (n,)."""
        return self.tokens.ids[self.begin : self.end]

    @property
    def offsets(self) -> NDArray[np.int32]:
        """int32 (n, 2), code points of the window's own text."""
        return self.tokens.offsets[self.begin : self.end] - self.span.start


class WindowTokenizer:
    """A tokenizer as windows need it: no special tokens, no truncation, no padding.

    Text that spells a special token ("[SEP]") is tokenised as the ordinary text it is.
    """

    def __init__(self, tokenizer: Tokenizer, options: WindowOptions | None = None) -> None:
        """The tokenizer is changed in place."""
        self.options = options or WindowOptions()
        self._tokenizer = tokenizer
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True

    @classmethod
    def from_file(cls, path: Path, options: WindowOptions | None = None) -> WindowTokenizer:
        """Read a `tokenizers` JSON file.

        Raises:
            BundleDamaged: it cannot be read as one.
        """
        try:
            tokenizer = Tokenizer.from_buffer(path.read_bytes())
        except Exception as error:  # the library raises bare Exception
            raise BundleDamaged(
                f"The tokenizer cannot be read: {error}",
                where=str(path),
                fix="Copy the bundle again from where it came from",
            ) from error
        return cls(tokenizer, options)

    @cached_property
    def _cache(self) -> WordCache | None:
        return WordCache(self._tokenizer) if is_word_by_word(self._tokenizer) else None

    def encode(self, text: str) -> TokenizedText:
        """The tokens of `text`: ids int32 (n,), offsets int32 (n, 2) in code points."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str]) -> list[TokenizedText]:
        """The tokens of each text. Equal to encoding them one by one, and faster."""
        if self._cache is not None:
            return self._cache.encode_batch(texts)
        return [
            TokenizedText(
                np.array(encoding.ids, dtype=np.int32),
                np.array(encoding.offsets, dtype=np.int32).reshape(-1, 2),
            )
            for encoding in self._tokenizer.encode_batch(list(texts), add_special_tokens=False)
        ]


def cut_windows(text: str, tokens: TokenizedText, options: WindowOptions) -> list[WindowSlice]:
    """The windows of a passage with the text `text` and the tokens `tokens`.

    Every token is in at least one window, no window has more than `options.length` tokens, and the
    windows' spans begin at 0, touch or overlap, and end at `len(text)`. A text without tokens
    (white space, control characters) has no windows.
    """
    count = len(tokens.ids)
    if count == 0:
        return []
    # Offsets need not ascend (normalisers may reorder marks), hence the running extremes.
    first = np.minimum.accumulate(tokens.offsets[::-1, 0])[::-1].tolist()
    last = np.maximum.accumulate(tokens.offsets[:, 1])
    windows = []
    for begin, end in [(0, count)] if count <= options.length else _cuts(text, first, options):
        start = 0 if begin == 0 else first[begin]
        stop = len(text) if end == count else max(int(last[end - 1]), first[end])
        windows.append(WindowSlice(Span(start, stop), tokens, begin, end))
    return windows


def _cuts(text: str, starts: list[int], options: WindowOptions) -> list[tuple[int, int]]:
    """Token ranges `[begin, end)` of the windows of tokens that begin at `starts`, ascending."""
    sentences = [bisect_left(starts, start) for start in sentence_starts(text)]
    count = len(starts)
    cuts: list[tuple[int, int]] = []
    begin = 0
    while begin + options.length < count:
        limit = begin + options.length
        end = _latest(sentences, max(begin + 1, begin + options.length // 2), limit)
        if end is None:
            least = max(begin + 1, begin + options.length * 3 // 4)
            end = _first_word(text, starts, range(limit, least - 1, -1)) or limit
        cuts.append((begin, end))
        # The next window repeats whole sentences where they fit, else words, and always moves on.
        earliest = max(end - options.overlap, begin + 1)
        following = _earliest(sentences, earliest, end - 1)
        if following is None:
            following = _first_word(text, starts, range(earliest, end + 1))
        begin = end if following is None else following
    cuts.append((begin, count))
    return cuts


def _first_word(text: str, starts: Sequence[int], tokens: range) -> int | None:
    """The first of these tokens that follows white space, or begins with it."""
    for token in tokens:
        start = starts[token]
        if 0 < start < len(text) and (text[start - 1].isspace() or text[start].isspace()):
            return token
    return None


def _latest(sorted_indices: list[int], low: int, high: int) -> int | None:
    """The greatest index in `[low, high]`."""
    position = bisect_right(sorted_indices, high)
    found = sorted_indices[position - 1] if position else -1
    return found if found >= low else None


def _earliest(sorted_indices: list[int], low: int, high: int) -> int | None:
    """The least index in `[low, high]`."""
    position = bisect_left(sorted_indices, low)
    found = sorted_indices[position] if position < len(sorted_indices) else high + 1
    return found if found <= high else None
