"""eval on the command line: the format of the issue text, both outputs, files that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from edge.command import repeated
from tests.shell import MOTOR, VALVE, Shell, make_models
from tests.tiny_models import CORPUS


def squad(contexts: list[tuple[str, list[tuple[str, str | None]]]]) -> str:
    """SQuAD 2.0 JSON of (context, [(question, answer or None)])."""
    paragraphs = []
    for number, (context, asked) in enumerate(contexts):
        questions = [
            {
                "id": f"{number}-{place}",
                "question": question,
                "is_impossible": answer is None,
                "answers": []
                if answer is None
                else [{"text": answer, "answer_start": context.index(answer)}],
            }
            for place, (question, answer) in enumerate(asked)
        ]
        paragraphs.append({"context": context, "qas": questions})
    return json.dumps({"version": "2.0", "data": [{"title": "T", "paragraphs": paragraphs}]})


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    folder = tmp_path_factory.mktemp("eval")
    make_models(folder)
    shell = Shell(folder / "home")
    shell.write(
        "questions.json",
        squad(
            [
                (VALVE, [("Who tests the relief valve?", "the shift engineer")]),
                (MOTOR, [("What does E-17 mean?", "the motor is too hot"), ("Who is Ann?", None)]),
            ]
        ),
    )
    for name, text in (("a", CORPUS[3]), ("b", CORPUS[4]), ("c", CORPUS[0])):
        shell.write(f"{name}.json", squad([(text, [("What?", text[:5])])]))
    return shell


def test_several_distractors_after_one_flag(shell: Shell) -> None:
    """As the issue text writes it; click alone takes one value a flag."""
    dataset = shell.home / "questions.json"
    files = [shell.home / f"{name}.json" for name in "abc"]
    result = shell("eval", "--dataset", dataset, "--distractors", *files, "--json", "-k", "3")
    assert result.code == 0, result.out
    report = result.json
    assert report["passages"] == 5
    assert report["questions"] == 3
    assert report["k"] == 3
    assert 0.0 <= report["recall_at_k"] <= 1.0
    assert set(report["routes"]) == {"speculative", "standard", "drafter", "auto"}
    for route in report["routes"].values():
        assert {"em", "f1", "answered", "latency_ms", "verifier_tokens", "drafter_tokens",
                "share"} <= set(route)  # fmt: skip
        assert {"p50", "p95", "p99"} <= set(route["latency_ms"])


def test_limit_and_seed_choose_the_questions(shell: Shell) -> None:
    dataset = shell.home / "questions.json"
    assert shell("eval", "--dataset", dataset, "--limit", "2", "--json").json["questions"] == 2


def test_text_for_people(shell: Shell) -> None:
    out = shell("eval", "--dataset", shell.home / "questions.json").out
    assert re.search(r"^questions +3$", out, re.MULTILINE)
    assert "recall@10" in out
    for route in ("speculative", "standard", "drafter", "auto"):
        assert re.search(rf"^{route} ", out, re.MULTILINE)
    assert "Final routes of auto:" in out


@pytest.mark.parametrize("content", ["", "not json", "[]", '{"data": 3}'])
def test_files_that_hold_no_questions(shell: Shell, content: str) -> None:
    file = shell.write("bad.json", content)
    result = shell("eval", "--dataset", file, "--json")
    assert result.code == 2
    assert result.json["error"]["kind"] == "UsageError"
    assert str(file) in str(result.json["error"])


def test_a_missing_file(shell: Shell) -> None:
    assert shell("eval", "--dataset", Path("/no/such.json"), "--json").code == 2


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["--x", "a", "b", "--y", "c"], ["--x", "a", "--x", "b", "--y", "c"]),
        (["--x", "a", "--x", "b", "c"], ["--x", "a", "--x", "b", "--x", "c"]),
        (["--y", "a", "b"], ["--y", "a", "b"]),
        (["--x"], ["--x"]),
    ],
)
def test_words_after_a_flag(given: list[str], meant: list[str]) -> None:
    assert repeated(given, "--x") == meant
