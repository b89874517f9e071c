"""Subsets: every window once, one of each cluster, the same for the same question."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.documents import RetrievedWindow, Span, Window
from runtime.errors import UsageError
from runtime.outline import Outline
from runtime.subsets import STRATEGIES, partition, topic_clusters

TOPICS = ["pump motor bearing grease", "chlorine dose tank sampling", "relay fuse cable breaker"]


def windows(count: int, *, documents: int = 4) -> list[RetrievedWindow]:
    """`count` windows whose tokens come from one topic each, in turn."""
    words = sorted({word for topic in TOPICS for word in topic.split()})
    made = []
    for number in range(count):
        text = TOPICS[number % len(TOPICS)]
        ids = np.array([words.index(word) for word in text.split()], np.int32)
        span = Span(0, len(text))
        window = Window(
            number, number % documents, number, span, text, ids, np.zeros((len(ids), 2), np.int32),
            span, text, Outline(""),
        )  # fmt: skip
        made.append(RetrievedWindow(window, float(count - number), number))
    return made


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(count=st.integers(1, 25), m=st.integers(1, 8), seed=st.integers(0, 5))
def test_every_window_is_in_exactly_one_subset(strategy, count, m, seed):
    subsets = partition(windows(count), m, strategy=strategy, question="why?", seed=seed)
    ranks = [found.rank for subset in subsets for found in subset.windows]
    assert sorted(ranks) == list(range(count))
    assert len(subsets) <= min(m, count)
    assert [subset.index for subset in subsets] == list(range(len(subsets)))
    for subset in subsets:
        assert [f.rank for f in subset.windows] == sorted(f.rank for f in subset.windows)


@given(count=st.integers(1, 25), m=st.integers(1, 8), seed=st.integers(0, 5))
def test_a_subset_takes_at_most_one_window_of_each_cluster(count, m, seed):
    """The multi-perspective property: clusters hold at most m windows, each in another subset."""
    made = windows(count)
    m = min(m, count)
    clusters = -(-count // m)
    subsets = partition(made, m, strategy="clusters", question="why?", seed=seed)
    generator = np.random.default_rng(0)
    labels = topic_clusters([f.window for f in made], clusters, m, generator)
    assert np.bincount(labels, minlength=clusters).max() <= m
    assert max(len(subset.windows) for subset in subsets) <= clusters


def test_clusters_separate_the_topics():
    """Nine windows of three topics and room for three each: each cluster is one topic."""
    made = windows(9)
    labels = topic_clusters([f.window for f in made], 3, 3, np.random.default_rng(1))
    for topic in range(3):
        assert len({int(labels[i]) for i in range(topic, 9, 3)}) == 1


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_question_gives_the_same_subsets(strategy):
    first, second = (
        partition(windows(10), 4, strategy=strategy, question="why?", seed=3) for _ in range(2)
    )
    assert [[f.rank for f in s.windows] for s in first] == [
        [f.rank for f in s.windows] for s in second
    ]


def test_another_question_or_seed_gives_other_subsets():
    """Guards against a generator that ignores what it is seeded with."""

    def ranks(question, seed):
        subsets = partition(windows(12), 4, strategy="random", question=question, seed=seed)
        return [[f.rank for f in s.windows] for s in subsets]

    assert ranks("why?", 0) != ranks("when?", 0)
    assert ranks("why?", 0) != ranks("why?", 1)


def test_by_source_keeps_a_document_together():
    subsets = partition(windows(12, documents=4), 4, strategy="by-source", question="q")
    homes = [{f.window.document_id for f in subset.windows} for subset in subsets]
    assert all(len(home) == 1 for home in homes)


def test_fewer_windows_than_subsets_gives_one_window_each():
    subsets = partition(windows(2), 5, strategy="clusters", question="q")
    assert [len(subset.windows) for subset in subsets] == [1, 1]
    assert partition([], 5, strategy="clusters", question="q") == []


def test_an_unknown_strategy_is_named_with_the_known_ones():
    with pytest.raises(UsageError, match="round-robin"):
        partition(windows(2), 2, strategy="astrology", question="q")
