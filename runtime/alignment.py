"""Characters <-> tokens: a span of the document becomes another tokenizer's token range, and back.

Works by overlap of offsets alone, so it holds for WordPiece, byte-level BPE and Unigram under any
normaliser: whatever a tokenizer does to the text, it reports for each token which characters of
the original it came from. Several tokens may report the same character (an emoji in byte-level
BPE), and some none (inserted by a normaliser); both are handled by overlap.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.documents import Span
from runtime.graphemes import whole_graphemes
from runtime.sentences import trim


@dataclass(frozen=True, slots=True)
class TokenRange:
    """Tokens `[first, last]`, both included, counted from the first token of the context."""

    first: int
    last: int


def token_range(span: Span, offsets: NDArray[np.int32]) -> TokenRange | None:
    """The smallest range of tokens that covers what of `span` the tokens cover.

    Args:
        span: in code points of the text that was tokenised.
        offsets: int32 (n, 2), each token's `[start, end)` in the same text.

    Returns:
        None if no token overlaps the span.
    """
    touching = np.flatnonzero((offsets[:, 0] < span.end) & (offsets[:, 1] > span.start))
    if touching.size == 0:
        return None
    return TokenRange(int(touching[0]), int(touching[-1]))


def character_span(tokens: TokenRange, offsets: NDArray[np.int32], text: str) -> Span:
    """The characters of `text` under `tokens`: trimmed of white space, never half a grapheme.

    The result is empty (start == end) if the tokens stand for white space only.
    """
    covered = offsets[tokens.first : tokens.last + 1]
    covered = covered[covered[:, 1] > covered[:, 0]]
    if covered.size == 0:
        return Span(0, 0)
    widened = whole_graphemes(text, Span(int(covered[:, 0].min()), int(covered[:, 1].max())))
    return trim(text, widened)


@dataclass(frozen=True, slots=True, eq=False)
class Bounds:
    """Where answers may lie among n tokens.

    Attributes:
        may_bound: bool (n,), false for tokens of white space only. Byte-level BPE and Unigram emit
            such tokens ("Ġ", "▁"); an answer of them would be empty.
        line: int (n,), the line of the text that a token lies in. The readers put a line break
            only between blocks, so an answer that crosses one would join what is apart.
    """

    may_bound: NDArray[np.bool_]
    line: NDArray[np.intp]

    def first(self, count: int) -> Bounds:
        """The bounds of the first `count` tokens."""
        return Bounds(self.may_bound[:count], self.line[:count])


def anywhere(count: int) -> Bounds:
    """Bounds of `count` tokens that forbid nothing."""
    return Bounds(np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.intp))


def bounds(offsets: NDArray[np.int32], text: str) -> Bounds:
    """Where answers may lie.

    Args:
        offsets: int32 (n, 2), each token's `[start, end)` in `text`.
    """
    may_bound = np.fromiter(
        (end > start and not text[start:end].isspace() for start, end in offsets.tolist()),
        dtype=np.bool_,
        count=len(offsets),
    )
    breaks = [place for place, character in enumerate(text) if character == "\n"]
    return Bounds(may_bound, np.searchsorted(breaks, offsets[:, 0], side="left"))
