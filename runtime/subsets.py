"""Retrieved windows -> m subsets, each holding several perspectives on the question.

Multi-perspective sampling (Wang et al., arXiv 2407.08223, section 3.2): the windows are clustered
by topic, and each subset takes one window of each cluster, so that no subset repeats itself and
every subset sees the whole range. Here the clusters hold at most m windows each, so the m subsets
use every window exactly once: nothing that was retrieved is lost, nothing is read twice.

Everything is seeded from the question's text: the same question gives the same subsets, always.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.documents import RetrievedWindow, Window
from runtime.errors import UsageError


@dataclass(frozen=True, slots=True)
class Subset:
    """The windows that one draft may use, best-ranked first; `index` counts subsets from 0."""

    index: int
    windows: tuple[RetrievedWindow, ...]


# (windows in rank order, number of subsets, seeded generator) -> for each window its subset.
Strategy = Callable[[Sequence[RetrievedWindow], int, np.random.Generator], NDArray[np.intp]]


def partition(
    windows: Sequence[RetrievedWindow], m: int, *, strategy: str, question: str, seed: int = 0
) -> list[Subset]:
    """Deal `windows` (in rank order) into `m` subsets, or into as many as there are windows.

    Raises:
        UsageError: no such strategy.
    """
    if strategy not in STRATEGIES:
        raise UsageError(
            f"No subset strategy is called {strategy!r}", fix=f"Choose of: {', '.join(STRATEGIES)}"
        )
    count = min(m, len(windows))
    if count == 0:
        return []
    membership = STRATEGIES[strategy](windows, count, seeded_generator(question, seed))
    subsets = [
        tuple(w for w, owner in zip(windows, membership, strict=True) if owner == index)
        for index in range(count)
    ]
    return [Subset(index, members) for index, members in enumerate(filter(None, subsets))]


def seeded_generator(question: str, seed: int) -> np.random.Generator:
    """The generator that belongs to this question and seed, on every machine alike."""
    digest = hashlib.sha256(f"{seed}\0{question}".encode("utf-8", "surrogatepass")).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "little"))


def by_clusters(
    windows: Sequence[RetrievedWindow], m: int, generator: np.random.Generator
) -> NDArray[np.intp]:
    """One window of each topic cluster per subset, drawn at random within the cluster."""
    clusters = -(-len(windows) // m)
    labels = topic_clusters([found.window for found in windows], clusters, m, generator)
    membership = np.empty(len(windows), dtype=np.intp)
    filled = np.zeros(m, dtype=np.intp)
    for label in range(clusters):
        members = generator.permutation(np.flatnonzero(labels == label))
        # Subsets that hold the fewest windows are served first; ties go to the lower index.
        order = np.argsort(filled, kind="stable")[: len(members)]
        membership[members] = order
        filled[order] += 1
    return membership


def by_round_robin(
    windows: Sequence[RetrievedWindow], m: int, _: np.random.Generator
) -> NDArray[np.intp]:
    """Ranks dealt like cards: 0 1 2 … m-1 0 1 2 …"""
    return np.arange(len(windows), dtype=np.intp) % m


def by_source(
    windows: Sequence[RetrievedWindow], m: int, _: np.random.Generator
) -> NDArray[np.intp]:
    """Windows of one document stay together; documents go to the emptiest subset, best first."""
    membership = np.empty(len(windows), dtype=np.intp)
    filled = np.zeros(m, dtype=np.intp)
    home: dict[int, int] = {}
    for position, found in enumerate(windows):
        document = found.window.document_id
        if document not in home:
            home[document] = int(np.argmin(filled))
        membership[position] = home[document]
        filled[home[document]] += 1
    return membership


def at_random(
    windows: Sequence[RetrievedWindow], m: int, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Even-sized subsets, drawn at random: the baseline the others must beat."""
    return generator.permutation(len(windows)) % m


STRATEGIES: dict[str, Strategy] = {
    "clusters": by_clusters,
    "round-robin": by_round_robin,
    "by-source": by_source,
    "random": at_random,
}


def topic_clusters(
    windows: Sequence[Window], clusters: int, capacity: int, generator: np.random.Generator
) -> NDArray[np.intp]:
    """Balanced spherical k-means over TF-IDF vectors of the windows' tokens.

    Args:
        capacity: the most windows a cluster may hold; clusters * capacity >= len(windows).

    Returns:
        A cluster label for each window, intp (n,).
    """
    vectors = _tf_idf([window.token_ids for window in windows])
    centres = vectors[_spread_start(vectors, clusters, generator)]
    labels = np.full(len(windows), -1, dtype=np.intp)
    for _ in range(10):
        assigned = _assign_balanced(vectors @ centres.T, capacity)
        if np.array_equal(assigned, labels):
            break
        labels = assigned
        for label in range(clusters):
            members = labels == label
            if members.any():
                centres[label] = _unit(vectors[members].mean(axis=0))
    return labels


def _tf_idf(token_ids: Sequence[NDArray[np.int32]]) -> NDArray[np.float32]:
    """Unit-length TF-IDF rows, float32 (windows, distinct tokens)."""
    vocabulary, columns = np.unique(np.concatenate(token_ids), return_inverse=True)
    counts = np.zeros((len(token_ids), len(vocabulary)), dtype=np.float32)
    rows = np.repeat(np.arange(len(token_ids)), [len(ids) for ids in token_ids])
    np.add.at(counts, (rows, columns), 1.0)
    frequency = (counts > 0).sum(axis=0)
    weighted = np.log1p(counts) * np.log((1 + len(token_ids)) / frequency)
    return np.stack([_unit(row) for row in weighted]).astype(np.float32)


def _unit(vector: NDArray[np.float32]) -> NDArray[np.float32]:
    norm = float(np.linalg.norm(vector))
    return vector / norm if norm > 0 else vector


def _spread_start(
    vectors: NDArray[np.float32], clusters: int, generator: np.random.Generator
) -> list[int]:
    """Farthest-first centres from a seeded first one."""
    chosen = [int(generator.integers(len(vectors)))]
    nearest = vectors @ vectors[chosen[0]]
    while len(chosen) < clusters:
        nearest[chosen] = np.inf
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, vectors @ vectors[chosen[-1]])
    return chosen


def _assign_balanced(similarity: NDArray[np.float32], capacity: int) -> NDArray[np.intp]:
    """Each window to its most similar cluster with room, the surest windows choosing first."""
    windows, clusters = similarity.shape
    labels = np.full(windows, -1, dtype=np.intp)
    room = np.full(clusters, capacity)
    for flat in np.argsort(-similarity, axis=None, kind="stable"):
        window, label = divmod(int(flat), clusters)
        if labels[window] < 0 and room[label] > 0:
            labels[window] = label
            room[label] -= 1
    return labels
