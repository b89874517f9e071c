"""Drafts -> verdicts, from one batched run of the large model over the drafts' rationales.

The verifier never sees the raw passages here: it reads m short rationales where standard RAG reads
k whole windows, and that is where the time is saved. Two probabilities come of it (Wang et al.,
arXiv 2407.08223, section 3.4, adapted from a generator's to an extractive reader's probabilities):

rho_self_containment   P(the draft's span | question, rationale), over all spans and "no answer"
rho_self_reflection    P(the rationale supports an answer rather than none)

The same reader, given the windows themselves, is standard RAG.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from runtime.alignment import Bounds, TokenRange, bounds, character_span, token_range
from runtime.documents import RetrievedWindow, Span, Window
from runtime.drafting import Draft
from runtime.encoding import PairEncoder, TokenizedText
from runtime.outline import Outline
from runtime.sessions import Session
from runtime.spans import (
    ScoredSpan,
    best_of,
    log_support,
    pair_scores,
    span_probability,
    support_probability,
)

Term = Literal["draft", "containment", "reflection"]
ALL_TERMS: tuple[Term, ...] = ("draft", "containment", "reflection")


@dataclass(frozen=True, slots=True)
class VerificationOptions:
    """How drafts are verified.

    Attributes:
        context: what the verifier reads of a draft, its rationale or its whole window.
        refine: let the verifier move the span's boundaries within what it reads.
        terms: which of the three probabilities enter the score. Containment is measured but left
            out by default: it asks for the drafter's very boundaries, which a small drafter
            misses far more often than the place (docs/pipeline.md has the figures).
        max_answer_tokens: the longest refined answer, in the verifier's tokens.
        prune: drafts whose margin lies this many logits below the best draft's are not read. The
            verifier would have to disagree with the drafter by as much to choose one of them.
    """

    context: Literal["rationale", "window"] = "rationale"
    refine: bool = True
    terms: tuple[Term, ...] = ("draft", "reflection")
    max_answer_tokens: int = 30
    prune: float = 6.0


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """What the verifier says of one draft.

    Attributes:
        span, answer: the final answer's place and text; the draft's own unless refined.
        score: the sum of the natural logarithms of the chosen probabilities, so <= 0.
        scored: the verifier's best span in what it read, tokens counted from its first token.
        context_tokens: tokens of that context.
    """

    draft: Draft
    span: Span
    answer: str
    rho_self_containment: float
    rho_self_reflection: float
    score: float
    scored: ScoredSpan
    context_tokens: int

    @property
    def window(self) -> Window:
        """The window in which the answer was drafted."""
        return self.draft.window


@dataclass(frozen=True, slots=True)
class Verdicts:
    """The verdicts, best score first, and the tokens the verifier read for them."""

    verdicts: tuple[Verdict, ...]
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class Reading:
    """Standard RAG's answer from one window.

    Attributes:
        score: ln P(supported), comparable with a verdict's reflection term.
    """

    window: Window
    span: Span
    answer: str
    score: float
    scored: ScoredSpan


@dataclass(frozen=True, slots=True)
class Readings:
    """The windows' answers, best margin first, and the tokens the verifier read for them."""

    readings: tuple[Reading, ...]
    tokens: int


@dataclass(frozen=True, slots=True, eq=False)
class _Context:
    """A piece of the stored text that the verifier reads; `start` is its place in the document."""

    text: str
    start: int
    tokens: TokenizedText
    outline: Outline


@dataclass(frozen=True, slots=True, eq=False)
class _Logits:
    """The verifier's logits over the tokens of one context, and its null score."""

    context: _Context
    start: NDArray[np.float32]
    end: NDArray[np.float32]
    bounds: Bounds
    null: float

    def scores(self, max_tokens: int) -> NDArray[np.float32]:
        """Of all spans, as `pair_scores` gives them."""
        return pair_scores(self.start, self.end, self.bounds, max_tokens)

    def place(self, tokens: TokenRange) -> Span:
        """`tokens` as a span of the document."""
        return character_span(tokens, self.context.tokens.offsets, self.context.text).shifted(
            self.context.start
        )


class Verifier:
    """The large model with its tokenizer. Safe to share between threads."""

    def __init__(
        self, session: Session, encoder: PairEncoder, null_index: int, *, reuses_windows: bool
    ) -> None:
        """
        Args:
            reuses_windows: the knowledge base's windows were tokenised with this very tokenizer,
                so their tokens need not be made again.
        """
        self.session = session
        self.encoder = encoder
        self.null_index = null_index
        self.reuses_windows = reuses_windows

    def verify(
        self, question: str, drafts: Sequence[Draft], options: VerificationOptions
    ) -> Verdicts:
        """Read the rationale (or window) of each draft worth it once and judge the draft."""
        drafts = _worth_reading(drafts, options.prune)
        if not drafts:
            return Verdicts((), 0)
        contexts = [self._draft_context(draft, options) for draft in drafts]
        rows, tokens = self._read(question, contexts)
        verdicts = [_judge(draft, row, options) for draft, row in zip(drafts, rows, strict=True)]
        verdicts.sort(key=lambda verdict: -verdict.score)
        return Verdicts(tuple(verdicts), tokens)

    def read(
        self,
        question: str,
        windows: Sequence[RetrievedWindow],
        *,
        max_answer_tokens: int,
    ) -> Readings:
        """Standard RAG: read the windows themselves and take the best span of each."""
        if not windows:
            return Readings((), 0)
        ordered = sorted((found.window for found in windows), key=len, reverse=True)
        rows, tokens = self._read(question, [self._window_context(window) for window in ordered])
        readings = []
        for window, row in zip(ordered, rows, strict=True):
            best = _best(row, row.scores(max_answer_tokens))
            if best is None:
                continue
            span = row.place(best.tokens)
            readings.append(
                Reading(
                    window=window,
                    span=span,
                    answer=span.shifted(-window.span.start).of(window.text),
                    score=log_support(best.margin),
                    scored=best,
                )
            )
        readings.sort(key=lambda reading: -reading.scored.margin)
        return Readings(tuple(readings), tokens)

    def _draft_context(self, draft: Draft, options: VerificationOptions) -> _Context:
        if options.context == "window":
            return self._window_context(draft.window)
        text = draft.rationale_text
        tokens = self.encoder.tokenize(text)
        return _Context(text, draft.rationale.start, tokens, draft.window.outline)

    def _window_context(self, window: Window) -> _Context:
        tokens = (
            TokenizedText(window.token_ids, window.offsets)
            if self.reuses_windows
            else self.encoder.tokenize(window.text)
        )
        return _Context(window.text, window.span.start, tokens, window.outline)

    def _read(self, question: str, contexts: Sequence[_Context]) -> tuple[list[_Logits], int]:
        batch = self.encoder.batch(
            self.encoder.question(question),
            [context.tokens.ids for context in contexts],
            [self.encoder.header(context.outline.header(context.start)) for context in contexts],
        )
        outputs = self.session.run(batch.feeds)
        start, end = outputs["start_logits"], outputs["end_logits"]
        null = start[:, self.null_index] + end[:, self.null_index]
        rows = [
            _Logits(
                context,
                start[row, batch.context(row)],
                end[row, batch.context(row)],
                bounds(context.tokens.offsets, context.text).first(batch.context_lengths[row]),
                float(null[row]),
            )
            for row, context in enumerate(contexts)
        ]
        return rows, batch.tokens


def _worth_reading(drafts: Sequence[Draft], prune: float) -> list[Draft]:
    best = max((draft.scored.margin for draft in drafts), default=0.0)
    return [draft for draft in drafts if draft.scored.margin >= best - prune]


def _best(row: _Logits, scores: NDArray[np.float32]) -> ScoredSpan | None:
    spans = best_of(scores, row.start, row.end, row.null)
    return spans[0] if spans and len(row.place(spans[0].tokens)) else None


def _judge(draft: Draft, row: _Logits, options: VerificationOptions) -> Verdict:
    read = row.context.tokens.offsets[: len(row.start)]
    aligned = token_range(draft.span.shifted(-row.context.start), read)
    scores = row.scores(options.max_answer_tokens)
    containment = 0.0 if aligned is None else span_probability(scores, aligned, row.null)
    best = _best(row, scores)
    if best is None:
        best = ScoredSpan(TokenRange(0, 0), -math.inf, -math.inf, row.null)
    reflection = support_probability(best.margin)
    refined = options.refine and math.isfinite(best.margin)
    span = row.place(best.tokens) if refined else draft.span
    logs = {
        "draft": log_support(draft.scored.margin),
        "containment": _log(containment),
        "reflection": _log(0.0) if math.isinf(best.margin) else log_support(best.margin),
    }
    return Verdict(
        draft=draft,
        span=span,
        answer=span.shifted(-draft.window.passage.start).of(draft.window.passage_text),
        rho_self_containment=containment,
        rho_self_reflection=reflection,
        score=sum(logs[term] for term in options.terms),
        scored=best,
        context_tokens=len(read),
    )


def _log(probability: float) -> float:
    """The natural logarithm; a probability of 0 counts as the smallest positive float."""
    return math.log(max(probability, 5e-324))
