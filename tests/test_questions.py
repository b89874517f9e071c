"""One reader for files of questions: every form, every place named, the same answers for all."""

from __future__ import annotations

import json

import pytest

from benchmarks.squad import read_dataset
from runtime.errors import UsageError
from runtime.questions import read_question_file

CONTEXT = "The pump is red. The valve is red."


def write(path, *lines):
    path.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines), "utf-8")
    return path


@pytest.mark.parametrize(
    "answers",
    [
        {"answer": "red"},
        {"answers": ["red"]},
        {"answers": [{"text": "red"}]},
        {"answers": [{"text": "red", "answer_start": 12}]},
        {"answers": {"text": ["red"]}},
        {"answers": {"text": ["red"], "answer_start": [12]}},
    ],
)
def test_every_form_of_a_line_gives_the_same_span(tmp_path, answers):
    line = {"question": "Which pump?", "context": CONTEXT, **answers}
    [asked] = read_question_file(write(tmp_path / "q.jsonl", line)).questions
    [span] = asked.answer_spans()
    assert (span.start, span.of(CONTEXT)) == (12, "red")


def test_a_line_may_hold_any_character_of_a_json_string(tmp_path):
    """Guards splitlines(), which took a raw U+2028 inside a context for the end of the line."""
    context = "One\u2028two\x85three"
    line = {"question": "?", "context": context, "answer": "two"}
    file = read_question_file(write(tmp_path / "q.jsonl", line))
    assert file.contexts == (context,)


def test_a_byte_order_mark_is_no_part_of_the_first_line(tmp_path):
    path = tmp_path / "q.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"question": "?", "context": "A", "answer": ""}')
    assert read_question_file(path).questions[0].golds == ()


def test_the_evaluation_refuses_an_answer_at_the_wrong_place(tmp_path):
    """Guards the evaluation's own reader, which believed any answer_start."""
    line = {"question": "?", "context": CONTEXT, "answers": [{"text": "red", "answer_start": 3}]}
    with pytest.raises(UsageError, match=r"character 3.*line 1"):
        read_dataset(write(tmp_path / "q.jsonl", line))


def test_an_answer_is_looked_for_inside_the_rationale(tmp_path):
    line = {
        "question": "?", "context": CONTEXT, "answer": "red", "rationale": "The valve is red."
    }  # fmt: skip
    [asked] = read_question_file(write(tmp_path / "q.jsonl", line)).questions
    assert asked.answer_spans()[0].start == CONTEXT.rindex("red")


@pytest.mark.parametrize("field", ["question", "context", "answer", "rationale"])
def test_what_is_no_text_is_refused_with_its_line(tmp_path, field):
    good = {"question": "?", "context": "A b.", "answer": "b"}
    path = write(tmp_path / "q.jsonl", good, {**good, field: 3})
    with pytest.raises(UsageError, match="line 2"):
        read_question_file(path)
