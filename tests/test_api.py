"""The Python interface: add, ask, stream, and the same errors as everywhere."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from edge.api import Answered, Drafted, Rag, ReadWindows, Retrieved, Text, Verified, open_rag
from runtime.errors import (
    EmptyDocument,
    KnowledgeBaseEmpty,
    KnowledgeBaseNotFound,
    QuestionError,
    UsageError,
)
from tests.shell import MOTOR, VALVE, make_models

QUESTION = "Who tests the relief valve?"


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("api")
    make_models(folder)
    return {"drafter": folder / "drafter", "verifier": folder / "verifier"}


@pytest.fixture
def rag(tmp_path: Path, models: dict[str, Path]) -> Rag:
    opened = open_rag(tmp_path / "kb", create=True, threads=1, **models)
    yield opened  # type: ignore[misc]
    opened.close()


def test_add_texts_and_ask(rag: Rag) -> None:
    documents = rag.add_texts([VALVE, Text(MOTOR, "motor-manual", title="Motor")])
    assert [one.source for one in documents][1] == "motor-manual"
    assert documents[1].title == "Motor"
    answer = rag.ask(QUESTION, route="speculative")
    assert answer.text is not None
    assert answer.citation is not None
    stored = rag.knowledge_base.text(answer.citation.document_id)
    assert answer.citation.span.of(stored) == answer.text


def test_the_stream_is_the_pipelines(rag: Rag) -> None:
    rag.add_texts([VALVE])
    kinds = [type(event) for event in rag.stream(QUESTION, route="speculative")]
    assert kinds == [Retrieved, Drafted, Verified, Answered]
    kinds = [type(event) for event in rag.stream(QUESTION, route="standard")]
    assert kinds == [Retrieved, ReadWindows, Answered]


def test_the_same_text_replaces_itself_and_a_source_its_older_version(rag: Rag) -> None:
    rag.add_texts([VALVE, VALVE])
    rag.add_texts([Text("Old text about pumps.", "note"), Text("New text about valves.", "note")])
    assert len(rag.documents()) == 2
    assert rag.remove("note") == 1
    assert len(rag.documents()) == 1


def test_texts_are_added_together_or_not_at_all(rag: Rag) -> None:
    with pytest.raises(EmptyDocument):
        rag.add_texts([VALVE, "  "])
    assert rag.documents() == []


def test_add_paths(rag: Rag, tmp_path: Path) -> None:
    (tmp_path / "valve.txt").write_text(VALVE)
    (tmp_path / "empty.txt").write_text("")
    outcomes = rag.add_paths([tmp_path / "valve.txt", tmp_path / "empty.txt", "missing.txt"])
    assert sorted(one.status for one in outcomes) == ["added", "failed", "failed"]
    assert rag.ask(QUESTION, route="drafter").text is not None


def test_what_was_added_stays(tmp_path: Path, models: dict[str, Path]) -> None:
    with open_rag(tmp_path / "kb", create=True, **models) as rag:
        rag.add_texts([VALVE])
    with open_rag(tmp_path / "kb", read_only=True, **models) as rag:
        assert len(rag.documents()) == 1
        with pytest.raises(UsageError, match="opened for reading"):
            rag.add_texts([MOTOR])


def test_errors(rag: Rag, tmp_path: Path, models: dict[str, Path]) -> None:
    with pytest.raises(KnowledgeBaseNotFound):
        open_rag(tmp_path / "none", **models)
    with pytest.raises(UsageError, match="no setting called 'treshold'"):
        open_rag(tmp_path / "kb", treshold=0.5)
    with pytest.raises(KnowledgeBaseEmpty):
        rag.ask(QUESTION)
    rag.add_texts([VALVE])
    with pytest.raises(QuestionError):
        rag.ask("?")
    with pytest.raises(UsageError, match="drafter cannot be set for one question"):
        rag.ask(QUESTION, drafter="other")
    with pytest.raises(UsageError):
        rag.ask(QUESTION, k=0)


def test_options_of_one_question_do_not_stay(rag: Rag) -> None:
    rag.add_texts([VALVE, MOTOR])
    assert rag.ask(QUESTION, k=1).trace.windows == 1
    assert rag.settings.k == 10


def test_several_threads_may_ask_at_once(rag: Rag) -> None:
    rag.add_texts([VALVE, MOTOR])
    expected = rag.ask(QUESTION, route="speculative", deadline="none")
    answers = []

    def ask() -> None:
        answers.append(rag.ask(QUESTION, route="speculative", deadline="none"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {(one.text, one.confidence.value) for one in answers} == {
        (expected.text, expected.confidence.value)
    }


def test_a_failed_opening_lets_go_of_the_knowledge_base(
    tmp_path: Path, models: dict[str, Path]
) -> None:
    """The knowledge base opens beside the models; when those fail, its lock must not stay."""
    with open_rag(tmp_path / "kb", create=True, **models) as rag:
        rag.add_texts([VALVE])
    for _ in range(2):
        with pytest.raises(UsageError):
            open_rag(tmp_path / "kb", provider="abacus", **models)
    with open_rag(tmp_path / "kb", **models) as rag:
        assert len(rag.documents()) == 1
