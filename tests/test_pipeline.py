"""The whole pipeline on tiny models: routes, reasons, failures, determinism."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from runtime.calibration import CalibrationMap
from runtime.decision import Calibration, CoolDown
from runtime.errors import (
    KnowledgeBaseEmpty,
    QuestionError,
    RemoteUnavailable,
    RunTimedOut,
    SessionError,
    UsageError,
)
from runtime.pipeline import (
    Answered,
    AskOptions,
    Drafted,
    ReadWindows,
    Retrieved,
    Verified,
)
from runtime.verification import VerificationOptions
from tests.worlds import World, make_drafter, make_verifier, open_local

QUESTION = "What does fault code E-17 mean?"
ANYTHING = AskOptions(threshold=0.0)
NOTHING = AskOptions(threshold=1.0)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return World(tmp_path_factory.mktemp("world"), verifier="bpe")


@pytest.fixture
def pipeline(world):
    with world.pipeline() as opened:
        yield opened


class Faulty:
    """A session that fails or dawdles: faults that a healthy ONNX Runtime does not provide."""

    def __init__(self, session, *, error=None, seconds=0.0):
        self._session = session
        self._error = error
        self._seconds = seconds
        self.placement = session.placement
        self.inputs = session.inputs
        self.runs = 0

    def run(self, feeds, *, timeout=None):
        self.runs += 1
        if timeout is not None and self._seconds > timeout:
            raise RunTimedOut(f"The model did not finish in {timeout:g} s")
        if self._error is not None:
            raise self._error
        return self._session.run(feeds)

    def close(self):
        self._session.close()


def faulty_drafter(world, **fault):
    return make_drafter(world.drafter, Faulty(open_local(world.drafter), **fault))


def faulty_verifier(world, **fault):
    return make_verifier(world.verifier, Faulty(open_local(world.verifier), **fault))


def kinds(pipeline, options):
    return [type(event) for event in pipeline.ask(QUESTION, options)]


def test_an_accepted_draft_is_answered_speculatively(pipeline):
    assert kinds(pipeline, ANYTHING) == [Retrieved, Drafted, Verified, Answered]
    answer = pipeline.answer(QUESTION, ANYTHING)
    assert (answer.route, answer.verified) == ("speculative", True)
    assert answer.citation is not None
    text = pipeline.knowledge_base.text(answer.citation.document_id)
    assert answer.citation.span.of(text) == answer.text == answer.citation.quote
    assert answer.text in answer.rationale
    [selected] = [draft for draft in answer.trace.drafts if draft.selected]
    assert selected.verified_answer == answer.text
    assert selected.subset == answer.trace.source_subset


def test_no_draft_good_enough_falls_back_then_abstains_with_the_closest_passages(pipeline):
    assert kinds(pipeline, NOTHING) == [Retrieved, Drafted, Verified, ReadWindows, Answered]
    answer = pipeline.answer(QUESTION, NOTHING)
    assert (answer.route, answer.text, answer.citation) == ("abstained", None, None)
    assert answer.reason == "the best answer is below 1"
    assert 1 <= len(answer.closest) <= 3
    for passage in answer.closest:
        text = pipeline.knowledge_base.text(passage.citation.document_id)
        assert passage.citation.span.of(text) == passage.citation.quote


def test_the_fallback_answers_where_it_reaches_the_threshold(world):
    """Each route has its own map: here a draft is right one time in three, a reading two."""
    seldom, often = (
        CalibrationMap("platt", np.array([-9.0, 9.0]), np.array([low, low + 0.2]))
        for low in (0.2, 0.6)
    )
    calibration = Calibration({"speculative": seldom, "standard": often})
    with world.pipeline(calibration=calibration) as pipeline:
        read = pipeline.answer(QUESTION, dataclasses.replace(ANYTHING, route="standard"))
        answer = pipeline.answer(QUESTION, AskOptions(threshold=0.5))
        assert answer.route == "standard"
        assert answer.reason.startswith("the best draft's confidence 0.")
        assert answer.text == read.text


@pytest.mark.parametrize(
    ("route", "events"),
    [
        ("speculative", [Retrieved, Drafted, Verified, Answered]),
        ("standard", [Retrieved, ReadWindows, Answered]),
        ("drafter", [Retrieved, Drafted, Answered]),
    ],
)
def test_forced_routes_answer_whatever_the_threshold(pipeline, route, events):
    options = dataclasses.replace(NOTHING, route=route)
    assert kinds(pipeline, options) == events
    answer = pipeline.answer(QUESTION, options)
    assert answer.route == route
    assert answer.text
    assert answer.verified is (route != "drafter")


def test_a_confidence_is_calibrated_only_for_the_options_it_was_fitted_with(world):
    """Guards against a map fitted for one score being read with another."""
    line = CalibrationMap("platt", np.array([-9.0, 9.0]), np.array([0.1, 0.9]))
    calibration = Calibration({"speculative": line, "standard": line})
    other = AskOptions(threshold=0.0, verification=VerificationOptions(terms=("reflection",)))
    with world.pipeline(calibration=calibration) as pipeline:
        assert pipeline.answer(QUESTION, ANYTHING).confidence.calibrated
        assert not pipeline.answer(QUESTION, other).confidence.calibrated


def test_a_failing_drafter_leaves_it_to_standard_rag(world):
    drafter = faulty_drafter(world, error=SessionError("the device was lost"))
    with world.pipeline(drafter=drafter) as pipeline:
        answer = pipeline.answer(QUESTION, ANYTHING)
    assert answer.route == "standard"
    assert "the device was lost" in answer.reason


def test_a_drafter_that_passes_its_deadline_leaves_it_to_standard_rag(world):
    drafter = faulty_drafter(world, seconds=0.5)
    options = dataclasses.replace(ANYTHING, drafter_deadline=0.05)
    with world.pipeline(drafter=drafter) as pipeline:
        answer = pipeline.answer(QUESTION, options)
        assert answer.route == "standard"
        assert "longer than its deadline of 0.05 s (--deadline)" in answer.reason
        patient = pipeline.answer(QUESTION, dataclasses.replace(options, drafter_deadline=None))
        assert patient.route == "speculative"


def test_after_three_failures_the_drafter_is_not_even_asked(world):
    now = [0.0]
    drafter = faulty_drafter(world, error=SessionError("lost"))
    cool_down = CoolDown(clock=lambda: now[0])
    with world.pipeline(drafter=drafter, cool_down=cool_down) as pipeline:
        for _ in range(3):
            assert "failed" in pipeline.answer(QUESTION, ANYTHING).reason
        assert drafter.session.runs == 3
        rests = pipeline.answer(QUESTION, ANYTHING).reason
        assert "rests for 60 s" in rests
        assert "the drafter failed: lost" in rests, "people must see what to mend"
        assert drafter.session.runs == 3
        now[0] = 61.0
        pipeline.answer(QUESTION, ANYTHING)
        assert drafter.session.runs == 4


@pytest.mark.parametrize("how", ["gone", "none"])
def test_without_verifier_the_draft_is_answered_and_marked_not_verified(world, how):
    gone = RemoteUnavailable("The other box does not answer")
    verifier = faulty_verifier(world, error=gone) if how == "gone" else None
    with world.pipeline(verifier=verifier) as pipeline:
        answer = pipeline.answer(QUESTION, ANYTHING)
    assert (answer.route, answer.verified) == ("drafter", False)
    assert (
        answer.reason == f"the verifier cannot be used: {gone.what}"
        if how == "gone"
        else "there is no verifier"
    )
    assert answer.text


def test_without_drafter_and_verifier_nothing_is_claimed(world):
    drafter = faulty_drafter(world, error=SessionError("lost"))
    with world.pipeline(drafter=drafter, verifier=None) as pipeline:
        answer = pipeline.answer(QUESTION, ANYTHING)
    assert answer.route == "abstained"
    assert "lost" in answer.reason


def test_no_shared_word_abstains_and_says_why(pipeline):
    answer = pipeline.answer("Ποιος ξέρει;", ANYTHING)
    assert (answer.route, answer.closest) == ("abstained", ())
    assert "no passage shares a word" in answer.reason


@pytest.mark.parametrize(
    ("question", "what"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("x" * 10_000, "10,000"),
        ("👍🏽 🇫🇷!", "word"),
        ("?!", "no"),
    ],
)
def test_what_is_no_question_is_refused(pipeline, question, what):
    with pytest.raises(QuestionError, match=what):
        pipeline.answer(question)


@pytest.mark.parametrize(
    "question",
    ['valve "AND', "text:valve^2 AND (NOT", "a\\b [valve TO pump]", "+valve -pump ~*?", "'; DROP"],
)
def test_query_syntax_is_only_text(pipeline, question):
    answer = pipeline.answer(question, ANYTHING)
    assert answer.route in ("speculative", "standard", "abstained")


def test_lone_surrogates_in_a_question_do_no_harm(pipeline):
    assert pipeline.answer("valve \ud800 pump", ANYTHING).text


def test_an_empty_knowledge_base_says_how_to_fill_it(tmp_path):
    world = World(tmp_path, texts=())
    with world.pipeline() as pipeline, pytest.raises(KnowledgeBaseEmpty, match="specrag add"):
        pipeline.ask(QUESTION)


def test_options_that_cannot_be_are_refused_before_anything_runs(pipeline):
    with pytest.raises(UsageError, match="threshold"):
        pipeline.ask(QUESTION, AskOptions(threshold=7.0))
    with pytest.raises(UsageError, match="strategy"):
        pipeline.answer(QUESTION, AskOptions(strategy="astrology"))


def test_more_subsets_than_windows_gives_a_draft_per_window(pipeline):
    answer = pipeline.answer(QUESTION, dataclasses.replace(ANYTHING, subsets=50))
    assert len(answer.trace.subsets) == answer.trace.windows
    assert answer.text


def without_times(answer):
    stages = tuple(dataclasses.replace(s, milliseconds=0.0) for s in answer.trace.stages)
    trace = dataclasses.replace(answer.trace, stages=stages, total_milliseconds=0.0)
    return dataclasses.replace(answer, trace=trace)


def test_the_same_question_gives_the_same_answer_across_runs_and_threads(world):
    """Everything but the times: subsets, drafts, scores to the last bit, reason."""
    questions = [QUESTION, "When does the relief valve open?", "When are bearings greased?"] * 4
    with world.pipeline() as first, world.pipeline() as second:
        alone = [without_times(first.answer(q, ANYTHING)) for q in questions]
        with ThreadPoolExecutor(4) as threads:
            together = list(
                threads.map(lambda q: without_times(second.answer(q, ANYTHING)), questions)
            )
    assert alone == together


def test_the_trace_accounts_for_every_stage_and_token(pipeline):
    trace = pipeline.answer(QUESTION, NOTHING).trace
    assert [s.name for s in trace.stages] == ["retrieve", "partition", "draft", "verify", "read"]
    assert trace.drafter_tokens == trace.stages[2].tokens > 0
    assert trace.verifier_tokens == trace.stages[3].tokens + trace.stages[4].tokens
    assert trace.total_milliseconds >= sum(s.milliseconds for s in trace.stages) * 0.99
    assert [p.role for p in trace.placements] == ["drafter", "verifier"]
    assert all(p.provider == "CPUExecutionProvider" for p in trace.placements)
    assert sum(len(s.ranks) for s in trace.subsets) == trace.windows


def test_verified_windows_and_rationales_are_both_possible(pipeline):
    options = dataclasses.replace(ANYTHING, verification=VerificationOptions(context="window"))
    assert pipeline.answer(QUESTION, options).route == "speculative"
