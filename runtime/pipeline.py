"""A question -> a stream of stage events that ends with the answer.

`Pipeline.ask` is the product: the command line, the service and the Python interface all consume
this one generator. Its routes:

speculative   the verifier accepted one of the drafts
standard      no draft was good enough, or there was none: the verifier read the windows itself
drafter       there is no verifier to be had: the best draft, marked as not verified
abstained     nothing reached the threshold: no answer, but the closest passages
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Literal, TypeVar

from runtime.decision import Calibration, Confidence, CoolDown, threshold_value
from runtime.documents import Citation, RetrievedWindow, Span, Window
from runtime.drafting import Draft, Drafter, DraftingOptions, Drafts, rationale_span
from runtime.errors import KnowledgeBaseEmpty, QuestionError, RunTimedOut, SessionError
from runtime.knowledge_base import KnowledgeBase
from runtime.retrieval import RetrievalOptions, retrieve
from runtime.subsets import Subset, partition
from runtime.trace import DraftTrace, PlacementTrace, Stage, SubsetTrace, Trace
from runtime.verification import (
    Reading,
    Readings,
    Verdict,
    Verdicts,
    VerificationOptions,
    Verifier,
)

Route = Literal["speculative", "standard", "drafter", "abstained"]
AskedRoute = Literal["auto", "speculative", "standard", "drafter"]
Judged = TypeVar("Judged", Verdicts, Readings)
MAX_QUESTION_CHARACTERS = 2000


@dataclass(frozen=True, slots=True)
class AskOptions:
    """What may differ from question to question.

    Attributes:
        route: "auto" decides by the threshold; the others take that route and no other, and
            answer whenever there is any span at all (for measuring).
        windows: how many windows are retrieved, k.
        subsets: how many drafts at most, m.
        threshold: "strict", "lenient", or the least confidence of an accepted answer.
        drafter_deadline: seconds the drafter may take before standard RAG takes over; None waits.
    """

    route: AskedRoute = "auto"
    windows: int = 10
    subsets: int = 4
    strategy: str = "clusters"
    seed: int = 0
    threshold: str | float = "lenient"
    drafter_deadline: float | None = 1.0
    retrieval: RetrievalOptions = field(default_factory=RetrievalOptions)
    drafting: DraftingOptions = field(default_factory=DraftingOptions)
    verification: VerificationOptions = field(default_factory=VerificationOptions)


@dataclass(frozen=True, slots=True)
class Retrieved:
    """Windows in rank order, and the subsets they were dealt into."""

    question: str
    windows: tuple[RetrievedWindow, ...]
    subsets: tuple[Subset, ...]
    stages: tuple[Stage, ...]


@dataclass(frozen=True, slots=True)
class Drafted:
    """The drafts, best first; `failure` says why there are none."""

    drafts: tuple[Draft, ...]
    failure: str | None
    stage: Stage


@dataclass(frozen=True, slots=True)
class Verified:
    """The verdicts, best first; `failure` says why there are none."""

    verdicts: tuple[Verdict, ...]
    failure: str | None
    stage: Stage


@dataclass(frozen=True, slots=True)
class ReadWindows:
    """Standard RAG's readings, best first; `failure` says why there are none."""

    readings: tuple[Reading, ...]
    failure: str | None
    stage: Stage


@dataclass(frozen=True, slots=True)
class ClosestPassage:
    """A passage offered instead of an answer."""

    citation: Citation
    score: float


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of the stream.

    Attributes:
        text: the exact slice of the document at `citation.span`; None if abstained.
        confidence: that the answer is right; of the best rejected answer if abstained.
        reason: why this route, in one sentence.
        rationale: the sentences that carry the evidence, empty if abstained.
    """

    question: str
    text: str | None
    citation: Citation | None
    rationale: str
    confidence: Confidence
    route: Route
    reason: str
    verified: bool
    closest: tuple[ClosestPassage, ...]
    trace: Trace


@dataclass(frozen=True, slots=True)
class Answered:
    """The last event."""

    answer: Answer


Event = Retrieved | Drafted | Verified | ReadWindows | Answered


@dataclass(frozen=True, slots=True)
class _Proposal:
    """An answer that one route would give, not yet accepted.

    `stands_back`: its document is superseded, and the question does not ask for such a one.
    """

    route: Route
    window: Window
    span: Span
    rationale: str
    confidence: Confidence
    draft: Draft | None
    stands_back: bool


class Pipeline:
    """A knowledge base and the two models, ready to be asked. Safe to share between threads."""

    def __init__(
        self,
        knowledge_base: KnowledgeBase,
        drafter: Drafter,
        verifier: Verifier | None,
        *,
        calibration: Calibration | None = None,
        cool_down: CoolDown | None = None,
        without_verifier: str = "there is no verifier",
    ) -> None:
        """
        Args:
            verifier: None where there is none to be had; answers are then not verified.
            without_verifier: why there is none, as the reason of such an answer.
        """
        self.knowledge_base = knowledge_base
        self.drafter = drafter
        self.verifier = verifier
        self.calibration = calibration or Calibration({})
        self._cool_down = cool_down or CoolDown()
        self._without_verifier = without_verifier

    def close(self) -> None:
        """Close the sessions and the knowledge base."""
        self.drafter.session.close()
        if self.verifier is not None:
            self.verifier.session.close()
        self.knowledge_base.close()

    def __enter__(self) -> Pipeline:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def answer(self, question: str, options: AskOptions | None = None) -> Answer:
        """The answer alone; see `ask`."""
        for event in self.ask(question, options):
            if isinstance(event, Answered):
                return event.answer
        raise AssertionError("the stream always ends with Answered")

    def ask(self, question: str, options: AskOptions | None = None) -> Iterator[Event]:
        """Answer `question`, yielding each stage's result as soon as it is there.

        Raises:
            QuestionError: nothing to ask, or too long.
            KnowledgeBaseEmpty: nothing to answer from.
            UsageError: an option that cannot be.
        """
        options = options or AskOptions()
        question = checked_question(question)
        threshold = threshold_value(options.threshold)
        if self.knowledge_base.is_empty:
            raise KnowledgeBaseEmpty(
                "The knowledge base holds no documents",
                where=str(self.knowledge_base.path),
                fix="Add some with `specrag add PATH`",
            )
        return self._ask(question, options, threshold)

    def _ask(self, question: str, options: AskOptions, threshold: float) -> Iterator[Event]:
        started = time.perf_counter()
        retrieved = self._retrieve(question, options)
        record = _Record(started, retrieved)
        yield retrieved

        proposal: _Proposal | None = None
        why = "no passage shares a word with the question"
        if retrieved.windows:
            if options.route != "standard":
                drafted = self._draft(question, retrieved.subsets, options)
                record.drafted = drafted
                yield drafted
                why = drafted.failure or ""
                if drafted.drafts and options.route != "drafter":
                    verified = self._verify(question, drafted.drafts, options)
                    record.verified = verified
                    yield verified
                    why = verified.failure or ""
                proposal = _preferred(self._speculative_proposals(record, options), threshold)
            if self._wants_standard(proposal, options, threshold):
                why = why or _why_standard(proposal, threshold)
                reading = self._read(question, retrieved.windows, options)
                record.read = reading
                yield reading
                read = self._standard_proposals(question, reading, options)
                proposal = _better(proposal, _preferred(read, threshold), threshold)
        yield Answered(self._finish(question, proposal, record, options, threshold, why))

    # Stages

    def _retrieve(self, question: str, options: AskOptions) -> Retrieved:
        started = time.perf_counter()
        windows = retrieve(self.knowledge_base, question, options.windows, options.retrieval)
        found = time.perf_counter()
        subsets = partition(
            windows,
            options.subsets,
            strategy=options.strategy,
            question=question,
            seed=options.seed,
        )
        stages = (
            Stage("retrieve", (found - started) * 1e3),
            Stage("partition", (time.perf_counter() - found) * 1e3),
        )
        return Retrieved(question, tuple(windows), tuple(subsets), stages)

    def _draft(self, question: str, subsets: Sequence[Subset], options: AskOptions) -> Drafted:
        started = time.perf_counter()
        deciding = options.route == "auto"
        if deciding and (rest := self._cool_down.resting):
            return Drafted((), rest, Stage("draft", 0.0))
        drafts, failure = Drafts((), 0), None
        deadline = options.drafter_deadline if deciding else None
        try:
            drafts = self.drafter.draft(question, subsets, options.drafting, timeout=deadline)
        except RunTimedOut:
            failure = f"the drafter took longer than its deadline of {deadline:g} s (--deadline)"
        except SessionError as error:
            failure = f"the drafter failed: {error.what}"
        if failure is None and not drafts.drafts:
            failure = "the drafter found no span"
        self._cool_down.record(failure)
        stage = Stage("draft", (time.perf_counter() - started) * 1e3, drafts.tokens)
        return Drafted(drafts.drafts, failure, stage)

    def _verify(self, question: str, drafts: Sequence[Draft], options: AskOptions) -> Verified:
        found, failure, stage = self._with_verifier(
            "verify",
            lambda verifier: verifier.verify(question, drafts, options.verification),
            Verdicts((), 0),
        )
        return Verified(found.verdicts, failure, stage)

    def _read(
        self, question: str, windows: Sequence[RetrievedWindow], options: AskOptions
    ) -> ReadWindows:
        found, failure, stage = self._with_verifier(
            "read",
            lambda verifier: verifier.read(
                question,
                windows,
                max_answer_tokens=options.verification.max_answer_tokens,
            ),
            Readings((), 0),
        )
        return ReadWindows(found.readings, failure, stage)

    def _with_verifier(
        self, name: str, work: Callable[[Verifier], Judged], nothing: Judged
    ) -> tuple[Judged, str | None, Stage]:
        """What `work` makes of the verifier; `nothing`, and why, if there is none to be had."""
        started = time.perf_counter()
        found, failure = nothing, None
        if self.verifier is None:
            failure = self._without_verifier
        else:
            try:
                found = work(self.verifier)
            except SessionError as error:
                failure = f"the verifier cannot be used: {error.what}"
        return found, failure, Stage(name, (time.perf_counter() - started) * 1e3, found.tokens)

    # Proposals

    def _calibration_for(self, options: AskOptions) -> Calibration:
        """The maps, if these options make the scores that the maps were fitted on."""
        fitted = (
            options.drafting == DraftingOptions() and options.verification == VerificationOptions()
        )
        return self.calibration if fitted else Calibration({})

    def _speculative_proposals(self, record: _Record, options: AskOptions) -> Iterator[_Proposal]:
        """The verdicts, best first; the drafts, unverified, where no verifier could be asked."""
        calibration, question = self._calibration_for(options), record.retrieved.question
        if record.verified is not None and record.verified.verdicts:
            for verdict in record.verified.verdicts:
                yield _Proposal(
                    "speculative",
                    verdict.window,
                    verdict.span,
                    verdict.draft.rationale_text,
                    calibration.confidence("speculative", verdict.scored),
                    verdict.draft,
                    self._stands_back(question, verdict.window),
                )
        elif record.drafted is not None:
            for draft in record.drafted.drafts:
                yield _Proposal(
                    "drafter",
                    draft.window,
                    draft.span,
                    draft.rationale_text,
                    calibration.confidence("drafter", draft.scored),
                    draft,
                    self._stands_back(question, draft.window),
                )

    def _standard_proposals(
        self, question: str, reading: ReadWindows, options: AskOptions
    ) -> Iterator[_Proposal]:
        """The readings, best first."""
        calibration = self._calibration_for(options)
        for found in reading.readings:
            window = found.window
            rationale = rationale_span(window, found.span, options.drafting.rationale_tokens)
            yield _Proposal(
                "standard",
                window,
                found.span,
                rationale.shifted(-window.passage.start).of(window.passage_text),
                calibration.confidence("standard", found.scored),
                None,
                self._stands_back(question, window),
            )

    def _stands_back(self, question: str, window: Window) -> bool:
        """Whether the window's document is superseded and the question does not ask for it."""
        document = self.knowledge_base.document(window.document_id)
        old = document.superseded
        if old is None:
            return False
        from runtime.supersession import asks_for_superseded  # 20 ms of patterns, seldom needed

        return not asks_for_superseded(question, document.title, old.detail)

    def _wants_standard(
        self, proposal: _Proposal | None, options: AskOptions, threshold: float
    ) -> bool:
        if options.route != "auto":
            return options.route == "standard"
        if proposal is None:
            return True
        return proposal.route == "speculative" and (
            proposal.stands_back or not _is_sure(proposal, threshold)
        )

    # The end

    def _finish(
        self,
        question: str,
        proposal: _Proposal | None,
        record: _Record,
        options: AskOptions,
        threshold: float,
        why: str,
    ) -> Answer:
        accepted = proposal is not None and _accepts(proposal, options, threshold)
        trace = self._trace(record, proposal if accepted else None)
        if proposal is None or not accepted:
            return Answer(
                question=question,
                text=None,
                citation=None,
                rationale="",
                confidence=proposal.confidence if proposal else Confidence(0.0, calibrated=False),
                route="abstained",
                reason=_abstention(proposal, threshold, why),
                verified=proposal is not None and proposal.route != "drafter",
                closest=self._closest(record.retrieved.windows),
                trace=trace,
            )
        citation = self.knowledge_base.citation(proposal.window.document_id, proposal.span)
        return Answer(
            question=question,
            text=citation.quote,
            citation=citation,
            rationale=proposal.rationale,
            confidence=proposal.confidence,
            route=proposal.route,
            reason=_acceptance(proposal, options, threshold, why),
            verified=proposal.route != "drafter",
            closest=(),
            trace=trace,
        )

    def _closest(self, windows: Sequence[RetrievedWindow]) -> tuple[ClosestPassage, ...]:
        return tuple(
            ClosestPassage(
                self.knowledge_base.citation(found.window.document_id, found.window.span),
                found.score,
            )
            for found in windows[:3]
        )

    def _trace(self, record: _Record, accepted: _Proposal | None) -> Trace:
        retrieved = record.retrieved
        stages = [*retrieved.stages]
        stages += [event.stage for event in (record.drafted, record.verified, record.read) if event]
        verdicts = {
            id(verdict.draft): verdict
            for verdict in (record.verified.verdicts if record.verified else ())
        }
        drafts = record.drafted.drafts if record.drafted else ()
        winner = accepted.draft if accepted else None
        return Trace(
            stages=tuple(stages),
            total_milliseconds=(time.perf_counter() - record.started) * 1e3,
            drafter_tokens=record.drafted.stage.tokens if record.drafted else 0,
            verifier_tokens=sum(e.stage.tokens for e in (record.verified, record.read) if e),
            windows=len(retrieved.windows),
            subsets=tuple(
                SubsetTrace(subset.index, tuple(found.rank for found in subset.windows))
                for subset in retrieved.subsets
            ),
            drafts=tuple(
                self._draft_trace(draft, verdicts.get(id(draft)), draft is winner)
                for draft in drafts
            ),
            source_subset=winner.subset if winner else None,
            placements=self.placements(),
        )

    def _draft_trace(self, draft: Draft, verdict: Verdict | None, selected: bool) -> DraftTrace:
        return DraftTrace(
            subset=draft.subset,
            source=self.knowledge_base.document(draft.window.document_id).source,
            start=draft.span.start,
            end=draft.span.end,
            answer=draft.answer,
            rationale=draft.rationale_text,
            context_tokens=draft.context_tokens,
            answer_characters=len(draft.span),
            start_logit=draft.scored.start_logit,
            end_logit=draft.scored.end_logit,
            null_logit=draft.scored.null,
            rho_draft=draft.rho_draft,
            rho_self_containment=verdict.rho_self_containment if verdict else None,
            rho_self_reflection=verdict.rho_self_reflection if verdict else None,
            score=verdict.score if verdict else None,
            verified_answer=verdict.answer if verdict else None,
            verified_start=verdict.span.start if verdict else None,
            verified_end=verdict.span.end if verdict else None,
            selected=selected,
        )

    def placements(self) -> tuple[PlacementTrace, ...]:
        """What the sessions really run on."""
        sessions = [("drafter", self.drafter.session)]
        if self.verifier is not None:
            sessions.append(("verifier", self.verifier.session))
        return tuple(
            PlacementTrace(role=role, **asdict(session.placement)) for role, session in sessions
        )


@dataclass(slots=True)
class _Record:
    """What has happened to one question so far."""

    started: float
    retrieved: Retrieved
    drafted: Drafted | None = None
    verified: Verified | None = None
    read: ReadWindows | None = None


def checked_question(question: str) -> str:
    """The question without surrounding white space.

    Raises:
        QuestionError: empty, too long, or without a letter or digit.
    """
    stripped = question.strip()
    if not stripped:
        raise QuestionError("The question is empty", fix="Ask something, in quotes")
    if len(stripped) > MAX_QUESTION_CHARACTERS:
        raise QuestionError(
            f"The question has {len(stripped):,} characters; the most is "
            f"{MAX_QUESTION_CHARACTERS:,}",
            fix="Ask for one thing; add longer texts as documents",
        )
    if not any(character.isalnum() for character in stripped):
        raise QuestionError(
            "The question has no word and no number in it", fix="Ask in words; search needs them"
        )
    return stripped.encode("utf-8", "replace").decode("utf-8")


def _preferred(proposals: Iterable[_Proposal], threshold: float) -> _Proposal | None:
    """The first of one route's proposals, which are best first; None if there is none.

    If it stands back, the first sure one that does not comes before it.
    """
    ordered = iter(proposals)
    first = next(ordered, None)
    if first is None or not first.stands_back:
        return first
    in_force = (one for one in ordered if not one.stands_back and _is_sure(one, threshold))
    return next(in_force, first)


def _better(
    speculative: _Proposal | None, read: _Proposal | None, threshold: float
) -> _Proposal | None:
    """What was read instead of the best draft, unless that was sure and only stood back."""
    if speculative is None or read is None:
        return speculative or read
    if not _is_sure(speculative, threshold):
        return read
    return speculative if read.stands_back or not _is_sure(read, threshold) else read


def _is_sure(proposal: _Proposal, threshold: float) -> bool:
    if proposal.route == "drafter" and proposal.draft is not None:
        # Unverified answers are marked as such; the drafter need only prefer its span to nothing.
        return proposal.draft.rho_draft >= 0.5
    return proposal.confidence.value >= threshold


def _accepts(proposal: _Proposal, options: AskOptions, threshold: float) -> bool:
    return options.route != "auto" or _is_sure(proposal, threshold)


def _why_standard(proposal: _Proposal | None, threshold: float) -> str:
    if proposal is None:
        return "there was no draft"
    if _is_sure(proposal, threshold):
        return "the best draft is from a superseded document"
    return f"the best draft's confidence {proposal.confidence.value:.2f} is below {threshold:g}"


def _acceptance(proposal: _Proposal, options: AskOptions, threshold: float, why: str) -> str:
    """Why this route, without its name and the answer's confidence, which are told beside it."""
    if options.route != "auto":
        return f"the route {options.route} was asked for"
    if proposal.route == "speculative":
        return f"the verified draft reaches {threshold:g}"
    return why


def _abstention(proposal: _Proposal | None, threshold: float, why: str) -> str:
    if proposal is None:
        return why or "no span was found"
    if proposal.route == "drafter":
        return f"the drafter prefers no answer, and {why}"
    return f"the best answer is below {threshold:g}"
