"""The span search: joint, bounded, and equal to trying every pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from runtime.alignment import Bounds, TokenRange, anywhere
from runtime.spans import (
    ScoredSpan,
    best_spans,
    log_support,
    pair_scores,
    span_probability,
    support_probability,
)

LOGITS = st.integers(1, 24).flatmap(
    lambda n: st.tuples(
        *(arrays(np.float32, n, elements=st.floats(-9, 9, width=32)) for _ in range(2)),
        st.builds(
            Bounds,
            arrays(np.bool_, n),
            arrays(np.intp, n, elements=st.integers(0, 2)).map(np.sort),
        ),
        st.integers(1, 30),
    )
)


def every_pair(start, end, bounds, max_tokens):
    """The plain path: (score, -first, -length) of every admissible pair."""
    n = len(start)
    return [
        (float(np.float32(start[i] + end[j])), i, j)
        for i, j in itertools.product(range(n), range(n))
        if i <= j < i + max_tokens
        and bounds.may_bound[i]
        and bounds.may_bound[j]
        and bounds.line[i] == bounds.line[j]
    ]


@given(LOGITS)
def test_the_banded_search_finds_what_trying_every_pair_finds(drawn):
    start, end, bounds, max_tokens = drawn
    found = best_spans(start, end, 0.0, bounds, max_tokens=max_tokens, top=5)
    plain = sorted(every_pair(start, end, bounds, max_tokens), key=lambda p: (-p[0], p[1], p[2]))
    assert [s.total for s in found] == pytest.approx([p[0] for p in plain[:5]], abs=1e-5)
    for span in found:
        assert bounds.may_bound[span.tokens.first]
        assert bounds.may_bound[span.tokens.last]
        assert 0 <= span.tokens.last - span.tokens.first < max_tokens


def test_start_and_end_are_chosen_together():
    """Guards against independent argmax: here the best end lies before the best start."""
    start = np.array([0.0, 1.0, 5.0, 0.0], np.float32)
    end = np.array([6.0, 0.0, 1.0, 2.0], np.float32)
    [best] = best_spans(start, end, 0.0, anywhere(4), max_tokens=4)
    assert best.tokens == TokenRange(2, 3)


def test_an_answer_never_crosses_a_line():
    """Guards against answers that join a heading with the paragraph below it."""
    high = np.array([9.0, 0.0, 0.0, 9.0], np.float32)
    bounds = Bounds(np.ones(4, bool), np.array([0, 0, 1, 1]))
    [best] = best_spans(high, high, 0.0, bounds, max_tokens=4)
    assert best.tokens in (TokenRange(0, 0), TokenRange(3, 3))


def test_logits_that_are_not_finite_never_win():
    start = np.array([np.nan, np.inf, 1.0], np.float32)
    end = np.array([np.inf, np.nan, 1.0], np.float32)
    found = best_spans(start, end, 0.0, anywhere(3), max_tokens=3, top=9)
    assert [span.tokens for span in found] == [TokenRange(2, 2)]


def test_nothing_selectable_gives_no_span():
    zeros = np.zeros(3, np.float32)
    nowhere = Bounds(np.zeros(3, bool), np.zeros(3, np.intp))
    assert best_spans(zeros, zeros, 0.0, nowhere, max_tokens=3) == []
    empty = np.zeros(0, np.float32)
    assert best_spans(empty, empty, 0.0, anywhere(0), max_tokens=3) == []


@given(LOGITS, st.floats(-9, 9))
def test_span_probabilities_and_null_sum_to_one(drawn, null):
    start, end, bounds, max_tokens = drawn
    scores = pair_scores(start, end, bounds, max_tokens)
    pairs = every_pair(start, end, bounds, max_tokens)
    spans = [span_probability(scores, TokenRange(i, j), null) for _, i, j in pairs]
    peak = max([null, *(p[0] for p in pairs)])
    mass = sum(math.exp(p[0] - peak) for p in pairs) + math.exp(null - peak)
    assert sum(spans) + math.exp(null - peak) / mass == pytest.approx(1.0, abs=1e-5)


def test_a_span_longer_than_allowed_has_no_probability():
    scores = pair_scores(np.ones(5, np.float32), np.ones(5, np.float32), anywhere(5), 2)
    assert span_probability(scores, TokenRange(0, 3), 0.0) == 0.0


@given(st.floats(-100, 100))
def test_log_odds_are_those_of_the_support(margin):
    odds = ScoredSpan(TokenRange(0, 0), margin, 0.0, 0.0).log_odds
    assert 1 / (1 + math.exp(-odds)) == pytest.approx(support_probability(margin), rel=1e-9)


@given(st.floats(-30, 30))
def test_log_support_is_the_logarithm_of_support(margin):
    assert math.exp(log_support(margin)) == pytest.approx(support_probability(margin), rel=1e-9)
