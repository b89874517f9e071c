"""Start and end logits -> the best spans, found jointly.

Independent argmax over starts and ends finds pairs that are no spans; this searches all pairs
start <= end < start + max_tokens at once. Scores of different windows are comparable as
`margin`: the span's start + end logits minus the same window's null score (Devlin et al. 2019,
arXiv 1810.04805, section 4.3). A softmax per window would hide that a window holds no answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.alignment import Bounds, TokenRange

# Readers are overconfident: margins are divided by this before they become probabilities (Guo et
# al. 2017, arXiv 1706.04599), or nearly all would round to 0 or 1 and their product rank nothing.
# Of 1, 2, 4 and 8, 4 and 8 chose the best drafts on 200 SquadShifts questions (docs/pipeline.md).
TEMPERATURE = 4.0


@dataclass(frozen=True, slots=True)
class ScoredSpan:
    """A span of context tokens with its logits; `null` is the window's no-answer score."""

    tokens: TokenRange
    start_logit: float
    end_logit: float
    null: float

    @property
    def total(self) -> float:
        """start + end logits."""
        return self.start_logit + self.end_logit

    @property
    def margin(self) -> float:
        """`total` minus the null score: comparable across windows."""
        return self.total - self.null

    @property
    def log_odds(self) -> float:
        """ln(p / (1 - p)) of p = `support_probability(margin)`: what confidences are made of."""
        return self.margin / TEMPERATURE


def best_spans(
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    null: float,
    bounds: Bounds,
    *,
    max_tokens: int,
    top: int = 1,
) -> list[ScoredSpan]:
    """The `top` best spans of one window's context, best first; ties go to the earlier, shorter.

    Args:
        start, end: float32 (n,), logits of the context tokens only; question, special and padding
            tokens are left out by the caller and so can never be part of a span.
        null: start + end logits at the model's null position.
        bounds: of the n tokens: which may begin or end a span, and the line each lies in.
        max_tokens: the longest span, in tokens.

    Returns:
        Fewer than `top` if there are fewer spans. Logits that are not finite never win.
    """
    return best_of(pair_scores(start, end, bounds, max_tokens), start, end, null, top=top)


def best_of(
    scores: NDArray[np.float32],
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    null: float,
    *,
    top: int = 1,
) -> list[ScoredSpan]:
    """`best_spans` of scores that `pair_scores` has made already."""
    flat = scores.ravel()
    candidates = int(np.isfinite(flat).sum())
    count = min(top, candidates)
    if count == 0:
        return []
    order = _top_indices(flat, count)
    width = scores.shape[1]
    return [
        ScoredSpan(
            TokenRange(int(i // width), int(i // width + i % width)),
            float(start[i // width]),
            float(end[i // width + i % width]),
            null,
        )
        for i in order
    ]


def pair_scores(
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    bounds: Bounds,
    max_tokens: int,
) -> NDArray[np.float32]:
    """start[i] + end[i + j] as float32 (n, min(max_tokens, n)); -inf where that is no span."""
    n = len(start)
    width = min(max_tokens, n)
    if n == 0:
        return np.empty((0, 0), dtype=np.float32)
    usable_start = np.where(bounds.may_bound & np.isfinite(start), start, -np.inf)
    usable_end = np.where(bounds.may_bound & np.isfinite(end), end, -np.inf)
    ends = _band(usable_end, width, -np.inf)
    same_line = _band(bounds.line, width, -1) == bounds.line[:, None]
    scores: NDArray[np.float32] = np.where(same_line, usable_start[:, None] + ends, -np.inf)
    return scores.astype(np.float32)


def _band(values: NDArray[Any], width: int, beyond: float) -> NDArray[Any]:
    """values[i + j] as (n, width); `beyond` where i + j is past the end."""
    padded = np.concatenate([values, np.full(width - 1, beyond, dtype=values.dtype)])
    return np.lib.stride_tricks.sliding_window_view(padded, width)


def span_probability(scores: NDArray[np.float32], tokens: TokenRange, null: float) -> float:
    """P(span | context): softmax over all spans of the context and the null answer.

    Args:
        scores: as `pair_scores` gives them. A span longer than their width has probability 0.
    """
    offset = tokens.last - tokens.first
    if offset >= scores.shape[1]:
        return 0.0
    peak = max(float(scores.max()), null)
    mass = float(np.exp(scores.astype(np.float64) - peak).sum()) + float(np.exp(null - peak))
    return float(np.exp(float(scores[tokens.first, offset]) - peak)) / mass


def support_probability(margin: float) -> float:
    """P(answered rather than null) for a span against its window's null score.

    The sigmoid of the margin divided by `TEMPERATURE`.
    """
    return float(np.exp(log_support(margin)))


def log_support(margin: float) -> float:
    """ln of `support_probability`, exact where the probability itself would round to 1."""
    return float(-np.logaddexp(0.0, -margin / TEMPERATURE))


def _top_indices(flat: NDArray[np.float32], count: int) -> NDArray[np.intp]:
    """Indices of the `count` largest values, largest first, ties by index: deterministic."""
    if count == 1:
        return np.asarray([np.argmax(flat)])
    threshold = np.partition(flat, -count)[-count]
    chosen = np.flatnonzero(flat >= threshold)
    return chosen[np.argsort(-flat[chosen], kind="stable")][:count]
