"""Drafts and verdicts, with real sessions on tiny models of three tokenizer families."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.documents import Span, Window
from runtime.drafting import DraftingOptions, rationale_span
from runtime.outline import Outline
from runtime.retrieval import retrieve
from runtime.spans import log_support
from runtime.subsets import partition
from runtime.verification import ALL_TERMS, VerificationOptions
from tests.tiny_models import FAMILIES
from tests.worlds import World, make_drafter, make_verifier

QUESTIONS = (
    "At what pressure does the relief valve open?",
    "What does fault code E-17 mean?",
    "How much water does the reservoir hold?",
    "水泵站有几台水泵？",
)


@pytest.fixture(scope="module", params=list(itertools.product(FAMILIES, FAMILIES)), ids="-".join)
def world(request, tmp_path_factory):
    """Every pair of drafter and verifier tokenizer families."""
    drafter, verifier = request.param
    return World(tmp_path_factory.mktemp("world"), drafter=drafter, verifier=verifier)


def draft(world, question, m=3, **options):
    with world.knowledge_base() as knowledge_base:
        windows = retrieve(knowledge_base, question)
    subsets = partition(windows, m, strategy="clusters", question=question)
    drafter = make_drafter(world.drafter)
    return drafter.draft(question, subsets, DraftingOptions(**options)), subsets


@pytest.mark.parametrize("question", QUESTIONS)
def test_answers_are_slices_of_the_document_in_drafts_and_verdicts(world, question):
    """The invariant of the whole product, for each pairing of tokenizers."""
    made, subsets = draft(world, question)
    assert 1 <= len(made.drafts) <= len(subsets)
    verdicts = make_verifier(world.verifier).verify(
        question, made.drafts, VerificationOptions(terms=ALL_TERMS, prune=np.inf)
    )
    assert len(verdicts.verdicts) == len(made.drafts)
    with world.knowledge_base() as knowledge_base:
        for item in (*made.drafts, *verdicts.verdicts):
            window = item.window if hasattr(item, "window") else item.draft.window
            text = knowledge_base.text(window.document_id)
            assert item.span.of(text) == item.answer == item.answer.strip() != ""
    for made_draft in made.drafts:
        assert made_draft.rationale.contains(made_draft.span)
        assert made_draft.window.span.contains(made_draft.span)
    for verdict in verdicts.verdicts:
        assert verdict.draft.rationale.contains(verdict.span)


def test_the_overlap_model_finds_the_right_sentence(world):
    """The tiny models answer beside the question's words: the pipeline must carry that through."""
    made, _ = draft(world, QUESTIONS[1])
    best = made.drafts[0]
    assert "E-17" in best.rationale_text


def test_one_draft_per_subset_and_no_place_twice(world):
    made, subsets = draft(world, QUESTIONS[0], m=4)
    assert len({d.subset for d in made.drafts}) == len(made.drafts)
    by_subset = {s.index: {f.window.id for f in s.windows} for s in subsets}
    for one, other in itertools.combinations(made.drafts, 2):
        same_document = one.window.document_id == other.window.document_id
        assert not (same_document and one.span.overlaps(other.span))
    assert all(d.window.id in by_subset[d.subset] for d in made.drafts)


def test_tokens_read_are_counted_without_padding(world):
    made, subsets = draft(world, QUESTIONS[0])
    windows = [f.window for s in subsets for f in s.windows]
    content = sum(len(w) for w in windows)
    encoder = make_drafter(world.drafter).encoder
    question = len(encoder.question(QUESTIONS[0]))
    specials = encoder.max_length - encoder.room(encoder.question(QUESTIONS[0])) - question
    assert made.tokens == content + len(windows) * (question + specials)


def test_both_models_read_the_header_before_each_text(world):
    """No answer lies in it, and all places are those of the text."""
    with world.knowledge_base() as knowledge_base:
        plain = retrieve(knowledge_base, QUESTIONS[0])
        texts = {f.window.id: knowledge_base.text(f.window.document_id) for f in plain}
    outline = Outline("What pressure does the relief valve open at")  # the question's own words
    headed = [replace(f, window=replace(f.window, outline=outline)) for f in plain]
    drafter, verifier = make_drafter(world.drafter), make_verifier(world.verifier)
    before = {}
    for name, windows in (("plain", plain), ("headed", headed)):
        subsets = partition(windows, 3, strategy="clusters", question=QUESTIONS[0])
        drafts = drafter.draft(QUESTIONS[0], subsets, DraftingOptions())
        verdicts = verifier.verify(QUESTIONS[0], drafts.drafts, VerificationOptions(prune=np.inf))
        readings = verifier.read(QUESTIONS[0], windows, max_answer_tokens=30)
        for item in (*drafts.drafts, *verdicts.verdicts, *readings.readings):
            assert item.span.of(texts[item.window.id]) == item.answer != ""
        made = (drafts, len(windows)), (verdicts, len(drafts.drafts)), (readings, len(windows))
        before[name] = [(one.tokens, texts_read) for one, texts_read in made]
    for encoder, stages in ((drafter.encoder, [0]), (verifier.encoder, [2])):
        longer = len(encoder.header(outline.header(0)))
        assert longer > 5
        for stage in stages:
            tokens, read = before["headed"][stage]
            assert tokens - before["plain"][stage][0] == read * longer
    assert before["headed"][1][0] > before["plain"][1][0]


def test_answers_keep_to_the_longest_allowed(world):
    made, _ = draft(world, QUESTIONS[0], max_answer_tokens=2)
    assert all(d.scored.tokens.last - d.scored.tokens.first < 2 for d in made.drafts)


def test_each_term_of_the_score_can_be_switched_off(world):
    """The score is the sum of the logarithms of exactly the chosen probabilities."""
    made, _ = draft(world, QUESTIONS[0])
    verifier = make_verifier(world.verifier)
    for size in (1, 2, 3):
        for terms in itertools.combinations(ALL_TERMS, size):
            found = verifier.verify(
                QUESTIONS[0], made.drafts, VerificationOptions(terms=terms)
            ).verdicts
            assert [v.score for v in found] == sorted((v.score for v in found), reverse=True)
            for verdict in found:
                logs = {
                    "draft": log_support(verdict.draft.scored.margin),
                    "containment": np.log(max(verdict.rho_self_containment, 5e-324)),
                    "reflection": log_support(verdict.scored.margin),
                }
                assert verdict.score == pytest.approx(sum(logs[t] for t in terms))


def test_without_refinement_the_drafts_own_span_is_kept(world):
    made, _ = draft(world, QUESTIONS[0])
    kept = make_verifier(world.verifier).verify(
        QUESTIONS[0], made.drafts, VerificationOptions(refine=False, prune=np.inf)
    )
    assert {v.span for v in kept.verdicts} == {d.span for d in made.drafts}


def test_the_verifier_may_read_whole_windows_instead(world):
    made, _ = draft(world, QUESTIONS[0])
    verifier = make_verifier(world.verifier)
    short = verifier.verify(QUESTIONS[0], made.drafts, VerificationOptions())
    long = verifier.verify(QUESTIONS[0], made.drafts, VerificationOptions(context="window"))
    assert short.tokens <= long.tokens


def test_hopeless_drafts_are_not_read(world):
    """Drafts far below the best cost the verifier nothing; the best always is read."""
    made, _ = draft(world, QUESTIONS[0])
    verifier = make_verifier(world.verifier)
    everything = verifier.verify(QUESTIONS[0], made.drafts, VerificationOptions(prune=np.inf))
    margins = [d.scored.margin for d in made.drafts]
    for prune in (0.0, (margins[0] - margins[-1]) / 2):
        found = verifier.verify(QUESTIONS[0], made.drafts, VerificationOptions(prune=prune))
        read = {id(v.draft) for v in found.verdicts}
        assert read == {id(d) for d in made.drafts if d.scored.margin >= margins[0] - prune}
        assert found.tokens <= everything.tokens


def test_reusing_the_windows_tokens_changes_nothing(tmp_path):
    """Fast path (stored tokens) against the plain one (tokenised again)."""
    world = World(tmp_path)
    with world.knowledge_base() as knowledge_base:
        windows = retrieve(knowledge_base, QUESTIONS[0])
    read = [
        make_verifier(world.verifier, reuses_windows=reuses)
        .read(QUESTIONS[0], windows, max_answer_tokens=30)
        .readings
        for reuses in (False, True)
    ]
    assert [(r.span, r.scored) for r in read[0]] == [(r.span, r.scored) for r in read[1]]


def test_nothing_to_verify_or_read_costs_nothing(tmp_path):
    verifier = make_verifier(World(tmp_path).verifier)
    assert verifier.verify("q", [], VerificationOptions()).tokens == 0
    assert verifier.read("q", [], max_answer_tokens=9).readings == ()


PASSAGE = "One is here. Two is there. The valve opens at 6.5 bar. Four follows. Five ends."


def window_of(passage: str) -> Window:
    words = len(passage.split())
    span = Span(100, 100 + len(passage))
    return Window(
        1, 1, 1, span, passage, np.zeros(words, np.int32), np.zeros((words, 2), np.int32),
        span, passage, Outline(""),
    )  # fmt: skip


def at(text: str) -> Span:
    start = PASSAGE.index(text)
    return Span(100 + start, 100 + start + len(text))


@pytest.mark.parametrize(
    ("answer", "budget", "expected"),
    [
        ("6.5 bar", 1, "The valve opens at 6.5 bar."),
        ("6.5 bar", 9, "Two is there. The valve opens at 6.5 bar."),
        ("6.5 bar", 12, "Two is there. The valve opens at 6.5 bar. Four follows."),
        ("there. The valve", 1, "Two is there. The valve opens at 6.5 bar."),
        ("6.5 bar", 99, PASSAGE),
    ],
)
def test_a_rationale_grows_by_whole_sentences_within_its_budget(answer, budget, expected):
    assert rationale_span(window_of(PASSAGE), at(answer), budget) == at(expected)


def test_a_sentence_without_end_is_cut_to_its_window():
    text = "word " * 400
    window = window_of(text)
    assert rationale_span(window, Span(200, 204), 10) == Span(100, 100 + len(text.rstrip()))


@given(st.text(alphabet="ab. \n", min_size=1, max_size=60).filter(str.strip), st.data())
def test_a_rationale_always_holds_its_answer(text, data):
    start = data.draw(st.sampled_from([i for i, c in enumerate(text) if not c.isspace()]))
    ends = [i + 1 for i, c in enumerate(text) if i >= start and not c.isspace()]
    answer = Span(100 + start, 100 + data.draw(st.sampled_from(ends)))
    rationale = rationale_span(window_of(text), answer, data.draw(st.integers(1, 30)))
    assert rationale.contains(answer)
