"""demo: it reports what really happened, and fails when a kind of answer is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.demo import QUESTIONS, ROUTES, example_folder
from tests.shell import DEFAULT_PAIR, VALVE, Shell, make_models, needs_default_pair
from tests.test_cli_ask import CITATION, has_shape


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("demo")
    make_models(folder)
    return Shell(folder / "home")


def test_what_is_missing_is_a_failure_not_a_story(shell: Shell) -> None:
    """Tiny models cannot give all three kinds over one text: the demo has to say so."""
    folder = shell.write("documents/valve.txt", VALVE).parent
    result = shell("demo", "--documents", folder, "--threshold", "1", "--json")
    assert result.code == 1
    assert result.json["routes"] == {"abstained": len(QUESTIONS)}
    assert result.json["missing_routes"] == ["speculative", "standard"]
    assert [one["question"] for one in result.json["answers"]] == list(QUESTIONS)
    shown = shell("demo", "--documents", folder, "--threshold", "1")
    assert shown.code == 1
    assert "missing: no question took speculative, standard" in shown.out


def test_nothing_is_left_behind_unless_a_folder_is_named(shell: Shell, tmp_path: Path) -> None:
    folder = shell.write("documents/valve.txt", VALVE).parent
    shell("demo", "--documents", folder)
    assert not shell.kb.exists(), "not even in the knowledge base that the environment names"
    shell("demo", "--documents", folder, "--kb", tmp_path / "kept")
    assert shell("list", "--kb", tmp_path / "kept", "--json").json["documents"]


def test_a_folder_without_documents(shell: Shell, tmp_path: Path) -> None:
    """With --json its table of failures was printed where a JSON error belongs."""
    result = shell("demo", "--documents", tmp_path, "--json")
    assert result.code == 1
    assert result.json["error"]["kind"] == "DocumentError"


def test_the_example_manual_is_there() -> None:
    assert len(list(example_folder().rglob("*.*"))) >= 12


@needs_default_pair
def test_the_demo_itself(tmp_path: Path) -> None:
    """With the default models, each kind of answer occurs and every quote is an exact slice."""
    shell = Shell(tmp_path / "home", {**DEFAULT_PAIR})
    result = shell("demo", "--kb", tmp_path / "kb", "--deadline", "none", "--json")
    assert result.code == 0, result.json["routes"]
    assert set(ROUTES) <= set(result.json["routes"])
    for answer in result.json["answers"]:
        if answer["answer"] is None:
            continue
        has_shape(answer["citation"], CITATION)
        shown = shell("show", answer["citation"]["reference"], "--kb", tmp_path / "kb", "--json")
        assert shown.json["citation"]["quote"] == answer["answer"]
