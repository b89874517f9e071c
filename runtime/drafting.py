"""Subsets of windows -> one draft per subset, from one batched run of the small model.

A draft is an answer span, the sentences around it that carry the evidence (its rationale), and
`rho_draft`, the drafter's own probability that the span answers the question rather than nothing
does (Wang et al., arXiv 2407.08223, section 3.3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from runtime.alignment import bounds, character_span
from runtime.documents import Span, Window
from runtime.encoding import PairEncoder
from runtime.sentences import sentence_spans
from runtime.sessions import Session
from runtime.spans import ScoredSpan, best_spans, support_probability
from runtime.subsets import Subset


@dataclass(frozen=True, slots=True)
class DraftingOptions:
    """How drafts are made.

    Attributes:
        max_answer_tokens: the longest answer, in the drafter's tokens.
        rationale_tokens: the rationale grows by neighbouring sentences up to about this many of
            the drafter's tokens; a single longer sentence is kept whole up to its window.
        candidates: spans kept per window, so that a subset whose best span another subset has
            drafted already can offer its next.
    """

    max_answer_tokens: int = 30
    rationale_tokens: int = 128
    candidates: int = 4


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """One subset's answer.

    Attributes:
        span, answer: the answer's place in the document and its text there.
        rationale: the place of the evidence, whole sentences around `span`.
        rho_draft: probability in (0, 1).
        scored: the winning tokens and logits in `window`.
        context_tokens: tokens of the window's context that the drafter read.
    """

    subset: int
    window: Window
    span: Span
    answer: str
    rationale: Span
    rationale_text: str
    rho_draft: float
    scored: ScoredSpan
    context_tokens: int


@dataclass(frozen=True, slots=True)
class Drafts:
    """The drafts, best `rho_draft` first, and the tokens the drafter read for them."""

    drafts: tuple[Draft, ...]
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class _Candidate:
    """A span of one window, placed in its document."""

    window: Window
    scored: ScoredSpan
    span: Span
    context_tokens: int


class Drafter:
    """The small model with its tokenizer. Safe to share between threads."""

    def __init__(self, session: Session, encoder: PairEncoder, null_index: int) -> None:
        self.session = session
        self.encoder = encoder
        self.null_index = null_index

    def draft(
        self,
        question: str,
        subsets: Sequence[Subset],
        options: DraftingOptions,
        *,
        timeout: float | None = None,
    ) -> Drafts:
        """Read all windows of all subsets at once and draft one answer per subset.

        A subset is left without a draft if its windows hold no span at all, or only spans that a
        better-scored subset has drafted already.

        Args:
            timeout: seconds the model may take.

        Raises:
            RunTimedOut: it took longer.
            SessionError: the model cannot be run.
        """
        windows = sorted(
            (found.window for subset in subsets for found in subset.windows), key=len, reverse=True
        )
        candidates, tokens = self._read(question, windows, options, timeout)
        drafts = [
            _to_draft(subset, candidate, options)
            for subset, candidate in _choose(subsets, candidates)
        ]
        drafts.sort(key=lambda draft: -draft.scored.margin)
        return Drafts(tuple(drafts), tokens)

    def _read(
        self,
        question: str,
        windows: Sequence[Window],
        options: DraftingOptions,
        timeout: float | None,
    ) -> tuple[Mapping[int, list[_Candidate]], int]:
        """Candidates of each window by its id, best first, and the tokens read."""
        batch = self.encoder.batch(
            self.encoder.question(question),
            [window.token_ids for window in windows],
            [self.encoder.header(window.outline.header(window.span.start)) for window in windows],
        )
        outputs = self.session.run(batch.feeds, timeout=timeout)
        start, end = outputs["start_logits"], outputs["end_logits"]
        null = start[:, self.null_index] + end[:, self.null_index]
        found = {
            window.id: _candidates(
                window,
                start[row, batch.context(row)],
                end[row, batch.context(row)],
                float(null[row]),
                options,
            )
            for row, window in enumerate(windows)
        }
        return found, batch.tokens


def _candidates(
    window: Window,
    start: NDArray[np.float32],
    end: NDArray[np.float32],
    null: float,
    options: DraftingOptions,
) -> list[_Candidate]:
    read = len(start)
    offsets = window.offsets[:read]
    spans = best_spans(
        start,
        end,
        null,
        bounds(offsets, window.text),
        max_tokens=options.max_answer_tokens,
        top=options.candidates,
    )
    placed = (
        _Candidate(
            window,
            scored,
            character_span(scored.tokens, offsets, window.text).shifted(window.span.start),
            read,
        )
        for scored in spans
    )
    return [candidate for candidate in placed if len(candidate.span)]


def _choose(
    subsets: Sequence[Subset], candidates: Mapping[int, list[_Candidate]]
) -> list[tuple[int, _Candidate]]:
    """For each subset its best span that no better subset has taken: (subset index, candidate).

    Windows overlap and repeat each other; without this, the m drafts would often be one answer
    m times, and the verifier's time would be spent on reading it m times.
    """
    offers = [
        (subset.index, candidate)
        for subset in subsets
        for found in subset.windows
        for candidate in candidates[found.window.id]
    ]
    offers.sort(key=lambda offer: -offer[1].scored.margin)
    chosen: dict[int, _Candidate] = {}
    for index, candidate in offers:
        if index not in chosen and not any(
            _same_place(candidate, taken) for taken in chosen.values()
        ):
            chosen[index] = candidate
    return list(chosen.items())


def _same_place(one: _Candidate, other: _Candidate) -> bool:
    return one.window.document_id == other.window.document_id and one.span.overlaps(other.span)


def _to_draft(subset: int, candidate: _Candidate, options: DraftingOptions) -> Draft:
    window = candidate.window
    rationale = rationale_span(window, candidate.span, options.rationale_tokens)
    return Draft(
        subset=subset,
        window=window,
        span=candidate.span,
        answer=candidate.span.shifted(-window.span.start).of(window.text),
        rationale=rationale,
        rationale_text=rationale.shifted(-window.passage.start).of(window.passage_text),
        rho_draft=support_probability(candidate.scored.margin),
        scored=candidate.scored,
        context_tokens=candidate.context_tokens,
    )


def rationale_span(window: Window, answer: Span, budget: int) -> Span:
    """The sentences around `answer`, in document code points.

    Begins with the sentences that the answer touches, then adds the previous, the next, … while
    the whole stays within `budget` tokens (estimated from the window's characters per token) and
    within the passage. Sentences that alone exceed four budgets are cut to the window.
    """
    density = len(window) / max(1, len(window.text))
    sentences = [s.shifted(window.passage.start) for s in sentence_spans(window.passage_text)]
    touched = [i for i, sentence in enumerate(sentences) if sentence.overlaps(answer)]
    if not touched:
        return window.span
    first, last = touched[0], touched[-1]

    def cost(low: int, high: int) -> float:
        return (sentences[high].end - sentences[low].start) * density

    if cost(first, last) > 4 * budget:
        return Span(
            max(window.span.start, sentences[first].start),
            min(window.span.end, sentences[last].end),
        )
    grown = True
    while grown:
        grown = False
        if first > 0 and cost(first - 1, last) <= budget:
            first, grown = first - 1, True
        if last + 1 < len(sentences) and cost(first, last + 1) <= budget:
            last, grown = last + 1, True
    return Span(sentences[first].start, sentences[last].end)
