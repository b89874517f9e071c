"""A question -> the k windows that most likely hold its answer.

Two levels: BM25 over passages, with the index; then the windows of the best passages are scored by
the question's terms in them, with the index's term statistics. Near-duplicates are removed before
anything downstream sees them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from runtime.documents import RetrievedWindow, Window
from runtime.index import PassageHit
from runtime.knowledge_base import CutPassage, KnowledgeBase

_K1 = 1.2
_B = 0.75


@dataclass(frozen=True, slots=True)
class RetrievalOptions:
    """
    Attributes:
        passages: how many of the best passages are looked into, as a multiple of k.
        passage_weight: what the passage's score counts for beside the window's own.
        further: what a passage's second best window counts for beside its best one, and so on down
            (0.9: 90 %, 81 %, ...), so that the best passages do not take all places.
        duplicate_share: a window is left out when this share of its word triples (of those of
            either window together) is in a better one.
        exclude_flagged: keep documents with flags about safety out.
    """

    passages: float = 2.0
    passage_weight: float = 1.0
    further: float = 0.9
    duplicate_share: float = 0.8
    exclude_flagged: bool = False


def retrieve(
    kb: KnowledgeBase, question: str, k: int = 10, options: RetrievalOptions | None = None
) -> list[RetrievedWindow]:
    """The best `k` windows, best first; empty when no word of the question occurs anywhere.

    The same knowledge base and question give the same windows in the same order, always.

    Raises:
        UsageError: the knowledge base has no tokenizer to cut windows with.
    """
    options = options or RetrievalOptions()
    limit = math.ceil(options.passages * k)
    with kb.snapshot():
        hits = kb.search(question, limit, exclude_flagged=options.exclude_flagged)
        passages = kb.cut([hit.passage_id for hit in hits])
        scores = _score(kb, question, hits, passages, options)
        _spread(scores, options.further)
        return _best_distinct(kb, _ranked(passages, scores), k, options.duplicate_share)


def _score(
    kb: KnowledgeBase,
    question: str,
    hits: Sequence[PassageHit],
    passages: Sequence[CutPassage],
    options: RetrievalOptions,
) -> list[list[float]]:
    """BM25 of each passage's windows among all (lengths in tokens), plus the passage's own."""
    rarity = kb.rarity(question)
    windows = [(passage.row, one) for passage in passages for one in passage.slices]
    texts = [window.span.of(row.text) for row, window in windows]
    counts = kb.analyzer.occurrences(texts, frozenset(rarity))
    mean = sum(len(window) for _, window in windows) / max(1, len(windows))
    of_passage = {hit.passage_id: hit.score for hit in hits}
    scores: dict[int, list[float]] = {passage.row.id: [] for passage in passages}
    for (row, window), count in zip(windows, counts, strict=True):
        norm = _K1 * (1 - _B + _B * len(window) / mean)
        own = sum(rarity[term] * n * (_K1 + 1) / (n + norm) for term, n in count.items())
        scores[row.id].append(own + options.passage_weight * of_passage[row.id])
    return list(scores.values())


def _spread(scores: Sequence[list[float]], further: float) -> None:
    """Lower the scores of all but the best window of each passage, in place."""
    for of_passage in scores:
        order = sorted(range(len(of_passage)), key=of_passage.__getitem__, reverse=True)
        for better, place in enumerate(order):
            of_passage[place] *= further**better


@dataclass(frozen=True, slots=True)
class _Candidate:
    """The window at `place` in its passage; of many, few are made into a `Window`."""

    passage: CutPassage
    place: int
    score: float


def _ranked(passages: Sequence[CutPassage], scores: Sequence[Sequence[float]]) -> list[_Candidate]:
    """All windows by falling score; ties in the order in which they were added."""
    candidates = [
        _Candidate(passage, place, score)
        for passage, of_passage in zip(passages, scores, strict=True)
        for place, score in enumerate(of_passage)
    ]
    return sorted(candidates, key=lambda one: (-one.score, one.passage.row.id, one.place))


def _best_distinct(
    kb: KnowledgeBase, candidates: Sequence[_Candidate], k: int, duplicate_share: float
) -> list[RetrievedWindow]:
    """The first `k` without those that nearly repeat a better one.

    Of two revisions of one text the one in force is kept, in the place of the better one. What
    differs in a word and lies under other headings says it of something else.
    """
    chosen: list[RetrievedWindow] = []
    shingles: list[frozenset[tuple[str, ...]]] = []
    for candidate in candidates:
        if len(chosen) == k:
            break
        window = candidate.passage.window(candidate.place)
        own = _shingles(window.text)
        shares = (_jaccard(own, other) for other in shingles)
        alike = (n for n, share in enumerate(shares) if share >= duplicate_share)
        twin = next((n for n in alike if _says_the_same(kb, window, chosen[n].window)), None)
        if twin is None:
            shingles.append(own)
            chosen.append(RetrievedWindow(window, candidate.score, len(chosen)))
        elif kb.is_superseded(chosen[twin].window) and not kb.is_superseded(window):
            chosen[twin] = replace(chosen[twin], window=window)
    return chosen


def _says_the_same(kb: KnowledgeBase, window: Window, other: Window) -> bool:
    """Whether two windows that are nearly alike are about one thing."""
    return (
        window.text == other.text
        or window.outline.above(window.span.start) == other.outline.above(other.span.start)
        or kb.is_superseded(window) != kb.is_superseded(other)
    )


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    """The word triples of `text`; of characters where words are not spaced."""
    words = text.casefold().split()
    units = words if len(words) > 3 else list("".join(words))
    return frozenset(zip(units, units[1:], units[2:], strict=False)) or frozenset([tuple(units)])


def _jaccard(one: frozenset[tuple[str, ...]], other: frozenset[tuple[str, ...]]) -> float:
    return len(one & other) / len(one | other)
