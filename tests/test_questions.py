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
    line = {"question": "Why?", "context": CONTEXT, "answers": [{"text": "red", "answer_start": 3}]}
    with pytest.raises(UsageError, match=r"character 3.*line 1"):
        read_dataset(write(tmp_path / "q.jsonl", line))


@pytest.mark.parametrize("question", ["", "?!", "x" * 2001])
def test_the_evaluation_refuses_a_question_that_cannot_be_asked(tmp_path, question):
    """Guards the error without a place that came after all contexts had been added."""
    lines = [{"question": each, "context": CONTEXT, "answer": "red"} for each in ("Who?", question)]
    with pytest.raises(UsageError, match=r"The question .*line 2"):
        read_dataset(write(tmp_path / "q.jsonl", *lines))


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


GOOD = {"question": "?", "context": "A b.", "answer": "b"}
NOT_JSON = '{"question": "?" "context": "A b."}'


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (json.dumps({**GOOD, "answer": "\ud800"}), "line 1", '"text" holds half a character'),
        (json.dumps({**GOOD, "context": "\ud800"}), "line 1", '"context" holds half'),
        (f"{json.dumps(GOOD)[:-1]}\n", "line 1, column 51", "expecting ',' delimiter"),
        (f"{json.dumps(GOOD)}\n{NOT_JSON}", "line 2, column 18", "expecting ',' delimiter"),
        (NOT_JSON, "line 1, column 18", "expecting ',' delimiter"),
        ('{"data": [\n {"paragraphs": [],}\n]}', "line 2, column 20", "property name"),
        (f"{json.dumps(GOOD, indent=1)}\n{json.dumps(GOOD, indent=1)}", "line 6", "extra data"),
        (json.dumps(GOOD)[:-2], "line 1, column 48", "unterminated string"),
        ("a question?", "line 1, column 1", "expecting value"),
        (json.dumps([GOOD], indent=1), "q.json", "The file is one list"),
        (json.dumps(GOOD, indent=1), "q.json", 'one JSON object without "data"'),
        (f"{json.dumps(GOOD)}\n[1]", "line 2", "A question is a list"),
        ('{"question": "?"}', "line 1", '"context" is missing'),
        (json.dumps({**GOOD, "answer": 3}), "line 1", '"answer" is 3, not text'),
        (json.dumps({**GOOD, "answer": [{"txt": "b"}]}), "line 1", '"text" is missing'),
        (json.dumps({**GOOD, "answer": {"text": ["b"], "answer_start": []}}), "1", "equally many"),
        ('{"question": "?", "context": "A", "answer": [{"text": "A", "answer_start": 1e999}]}',
         "line 1", '"answer_start" is Infinity, not a whole number'),
        (json.dumps({"data": [{"paragraphs": [{}]}]}), "article 1, paragraph 1", '"context"'),
        (json.dumps({"data": [{"paragraphs": [{"context": "A", "qas": [{"id": "x7"}]}]}]}),
         "question x7", '"question" is missing'),
        ("[" * 100_000, "q.json", "nested too deep"),
        (f"{json.dumps(GOOD)}\n{'9' * 5000}", "line 2", "a number in it is too long"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_said_in_words(tmp_path, text, place, what):
    """Guards `JSONDecodeError("Expecting ',' delimiter: ...")` and `KeyError('context')`, which
    people saw, the blame of line 1 for what stands in line 2, and the traceback for an
    answer_start of infinity, for deep nesting and for very long numbers."""
    path = tmp_path / "q.json"
    path.write_text(text, "utf-8")
    with pytest.raises(UsageError) as caught:
        read_question_file(path)
    error = caught.value
    assert what in error.what
    assert "Error" not in error.what
    assert str(error.where).startswith(str(path))
    assert place in str(error.where)
    assert '{"question": ' in str(error.fix)


def test_a_file_in_another_encoding_is_to_be_saved_anew(tmp_path):
    """The fix was to name a file, which it was."""
    path = tmp_path / "q.json"
    path.write_text('{"data": []}', "utf-16")
    with pytest.raises(UsageError, match="not UTF-8") as caught:
        read_question_file(path)
    assert caught.value.fix == "Save it as UTF-8"


@pytest.mark.parametrize("text", ["", " \n\n", "\n" + json.dumps(GOOD) + "\r\n\r\n"])
def test_empty_lines_are_no_questions(tmp_path, text):
    path = tmp_path / "q.jsonl"
    path.write_text(text, "utf-8", newline="")
    assert len(read_question_file(path).questions) == text.count("{")
