"""What becomes of a superseded document's answers: behind a current one's, and never unmarked."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from runtime.calibration import CalibrationMap
from runtime.decision import Calibration
from runtime.documents import Citation, Flag
from runtime.flags import HIDDEN, NOT_INDEXED, SUPERSEDED
from runtime.knowledge_base import KnowledgeBase
from runtime.pipeline import AskOptions
from runtime.retrieval import retrieve
from runtime.windows import WindowTokenizer
from tests.knowledge import add, parsed, tokenizer
from tests.shell import VALVE, Shell, make_models
from tests.worlds import World

OLD = (Flag(SUPERSEDED, "SUPERSEDED by revision 4"),)
QUESTION = "What does fault code E-17 mean?"


def test_of_two_revisions_the_one_in_force_is_read(tmp_path: Path) -> None:
    """Two revisions nearly repeat each other: the better match alone was read, the old one."""
    revision = (
        "Grease both bearings of each high lift pump at rest with fresh lithium grease every 2000 "
        "running hours and write the date of the work into the log of the shift: {}."
    )
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(120), create=True) as kb:
        add(kb, parsed("old", revision.format("25 g"), flags=OLD))
        add(kb, parsed("new", revision.format("18 g")))
        (found,) = retrieve(kb, "How much is 25 g of grease?")
        assert kb.document(found.window.document_id).source == "new"
        kb.remove("new")
        (found,) = retrieve(kb, "How much is 25 g of grease?")
        assert "25 g" in found.window.text


def rising(low: float, high: float) -> CalibrationMap:
    """A map that tells the surer answers apart, all of them between `low` and `high`."""
    return CalibrationMap("platt", np.array([-9.0, 9.0]), np.array([low, high]))


@pytest.mark.parametrize("route", ["speculative", "standard"])
def test_an_answer_in_force_comes_before_a_surer_one(route: str, tmp_path: Path) -> None:
    """It stood behind where it was more than 0.1 less sure, so an old manual answered for a new."""
    world = World(tmp_path)
    calibration = Calibration({route: rising(0.55, 1.0)})

    def asked(question: str = QUESTION, threshold: float = 0.5) -> Citation:
        options = AskOptions(route=route, threshold=threshold)  # type: ignore[arg-type]
        with world.pipeline(calibration=calibration) as pipeline:
            answer = pipeline.answer(question, options)
            assert answer.citation is not None
            return answer.citation

    first = asked()
    assert first.superseded is None
    supersede(world, first.source)
    second = asked()
    assert second.source != first.source
    assert second.superseded is None
    unsure = asked(threshold=1.0)
    assert unsure.source == first.source, "no answer in force reaches the threshold"
    wanted = asked(f"{QUESTION} In the superseded text")
    assert wanted.superseded == OLD[0], "it was asked for"
    for number in range(20):
        supersede(world, f"text-{number}")
    third = asked()
    assert third.source == first.source, "all are superseded: the surest is first again"
    assert third.superseded == OLD[0]


@pytest.mark.parametrize(
    ("reading", "route"), [(rising(0.55, 1.0), "standard"), (rising(0.0, 0.4), "speculative")]
)
def test_where_only_old_drafts_are_sure_the_windows_are_read_for_one_in_force(
    reading: CalibrationMap, route: str, tmp_path: Path
) -> None:
    world = World(tmp_path)
    calibration = Calibration({"speculative": rising(0.55, 1.0), "standard": reading})
    options = AskOptions(subsets=1)
    with world.pipeline() as pipeline:
        [draft] = pipeline.answer(QUESTION, options).trace.drafts
    supersede(world, draft.source)
    with world.pipeline(calibration=calibration) as pipeline:
        answer = pipeline.answer(QUESTION, options)
    assert answer.citation is not None
    assert answer.route == route
    assert (answer.citation.superseded is None) == (route == "standard")
    if route == "standard":
        assert answer.reason == "the best draft is from a superseded document"


def test_without_a_verifier_a_draft_in_force_comes_first(tmp_path: Path) -> None:
    world = World(tmp_path)

    def asked() -> Citation:
        with world.pipeline(verifier=None) as pipeline:
            answer = pipeline.answer(QUESTION)
            assert answer.citation is not None
            return answer.citation

    first = asked()
    supersede(world, first.source)
    assert asked().superseded is None


def supersede(world: World, source: str) -> None:
    """Give a document of the world the flag."""
    windows = WindowTokenizer.from_file(world.drafter.tokenizer_path)
    with KnowledgeBase.open(world.kb, tokenizer=windows, writable=True) as kb:
        if (document := kb.find(source)) is not None:
            add(kb, parsed(source, kb.text(document.id), flags=OLD))


def test_the_warning_is_seen(tmp_path: Path) -> None:
    make_models(tmp_path)
    shell = Shell(tmp_path / "home")
    shell("add", shell.write("old.txt", f"OBSOLETE since 2022.\n\n{VALVE}"))
    said = shell("ask", "Who tests the relief valve?", "--route", "speculative")
    assert "warning: from a superseded document: OBSOLETE since 2022." in said.out
    told = shell("ask", "Who tests the valve?", "--route", "speculative", "--json").json
    assert told["citation"]["superseded"] == "OBSOLETE since 2022."
    assert any("superseded" in warning for warning in told["warnings"])
    closest = shell("ask", "Who tests the valve?", "--threshold", "1")
    assert "superseded document" in closest.out
    shown = shell("show", told["citation"]["reference"])
    assert "superseded document" in shown.out
    assert "superseded" in shell("list").out
    assert "OBSOLETE since 2022." in shell("status").out


def test_only_flags_about_safety_exclude(tmp_path: Path) -> None:
    """A document with one scanned page, or a superseded one, was left out as if it were hostile."""
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        for kind in (SUPERSEDED, NOT_INDEXED, HIDDEN):
            add(kb, parsed(kind, f"The relief valve of {kind}.", flags=(Flag(kind, "x"),)))
        hits = kb.search("relief valve", 5, exclude_flagged=True)
        windows = kb.windows([hit.passage_id for hit in hits])
        found = {kb.document(window.document_id).source for window in windows}
        assert found == {SUPERSEDED, NOT_INDEXED}
