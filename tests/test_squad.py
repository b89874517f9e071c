"""The evaluation's reading and metrics, against values worked out by hand."""

from __future__ import annotations

import json

import pytest

from benchmarks.squad import (
    Question,
    corpus,
    exact_match,
    f1,
    percentiles,
    read_dataset,
    sample,
)
from runtime.answer_metrics import overlap_f1
from runtime.documents import Span
from runtime.errors import UsageError

GOLD = Question("1", "q", "c", (("The 6.5 bar", Span(0, 11)), ("6.5", Span(4, 7))))
NONE = Question("2", "q", "c", ())


@pytest.mark.parametrize(
    ("text", "em", "f1_score"),
    [("6.5 bar!", 1.0, 1.0), ("the 6.5", 1.0, 1.0), ("opens at 6.5 bar", 0.0, 2 / 3), (None, 0, 0)],
)
def test_metrics_take_the_best_gold_answer(text, em, f1_score):
    assert exact_match(text, GOLD) == em
    assert f1(text, GOLD) == pytest.approx(f1_score)


def test_an_unanswerable_question_is_right_exactly_if_nothing_is_said():
    assert (exact_match(None, NONE), f1(None, NONE)) == (1.0, 1.0)
    assert (exact_match("6.5", NONE), f1("6.5", NONE)) == (0.0, 0.0)


def test_token_f1_counts_repeated_tokens_once_each():
    assert overlap_f1(["a", "a", "b"], ["a", "c"]) == pytest.approx(2 * (1 / 3) * (1 / 2) / (5 / 6))
    assert overlap_f1([], []) == 1.0
    assert overlap_f1(["a"], []) == 0.0


def squad(tmp_path, **qa):
    entry = {"id": "1", "question": "When?", "answers": [{"text": "now", "answer_start": 3}], **qa}
    paragraphs = [{"context": "It now is.", "qas": [entry]}, {"context": "No question.", "qas": []}]
    path = tmp_path / "s.json"
    path.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    return path


def test_squad_1_keeps_contexts_without_questions(tmp_path):
    dataset = read_dataset(squad(tmp_path))
    assert dataset.contexts == ("It now is.", "No question.")
    assert dataset.questions[0].answers == (("now", Span(3, 6)),)


def test_squad_2_impossible_questions_have_no_answers(tmp_path):
    assert read_dataset(squad(tmp_path, is_impossible=True)).questions[0].answers == ()


def test_json_lines_take_answer_or_answers(tmp_path):
    path = tmp_path / "q.jsonl"
    lines = [
        {"question": "a?", "context": "It is here.", "answer": "here"},
        {"question": "b?", "context": "It is.", "answers": {"text": ["It"], "answer_start": [0]}},
        {"question": "c?", "context": "It is.", "answers": []},
    ]
    path.write_text("\n".join(map(json.dumps, lines)) + "\n\n")
    answers = [question.answers for question in read_dataset(path).questions]
    assert answers == [(("here", Span(6, 10)),), (("It", Span(0, 2)),), ()]


@pytest.mark.parametrize(
    "content",
    ["[]", '{"data": 3}', '{"data": [{"paragraphs": [{"qas": []}]}]}', "\0\1", '{"a": 1}'],
)
def test_what_is_no_data_set_is_refused_with_its_name(tmp_path, content):
    for name in ("bad.json", "bad.jsonl"):
        path = tmp_path / name
        path.write_text(content)
        with pytest.raises(UsageError, match=r"bad\.json"):
            read_dataset(path)


def test_an_answer_that_is_not_in_its_context_is_refused(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_text(json.dumps({"question": "a?", "context": "It.", "answer": "elsewhere"}))
    with pytest.raises(UsageError, match="elsewhere"):
        read_dataset(path)


def test_samples_are_seeded_ordered_and_without_repeats():
    questions = [Question(str(i), "q", "c", ()) for i in range(50)]
    first = sample(questions, 10, 1)
    assert first == sample(questions, 10, 1) != sample(questions, 10, 2)
    assert len({q.id for q in first}) == 10
    assert sample(questions, None, 0) == questions


def test_every_paragraph_of_every_file_becomes_a_document(tmp_path):
    path = squad(tmp_path)
    documents = corpus(path, read_dataset(path), [path])
    assert [d.text for d in documents] == ["It now is.", "No question."] * 2
    assert len({d.source for d in documents}) == 4


def test_percentiles_are_named():
    assert percentiles(range(1, 102)) == {"p50": 51.0, "p95": 96.0, "p99": 100.0}
