"""The accuracy gate: SQuAD's figures, question files of every form, and its verdicts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from export.parity import (
    BUILT_IN,
    GateQuestion,
    Limits,
    Predictions,
    compare,
    logit_errors,
    predict,
    read_questions,
)
from runtime.answer_metrics import normalise, token_f1
from runtime.encoding import PairEncoder
from tests.tiny_models import make_bundle

QUESTION = GateQuestion("Who?", "Ada met Bob.", ("Ada",))


@pytest.mark.parametrize(
    ("answer", "gold", "f1"),
    [
        ("the Ada", "Ada.", 1.0),
        ("Ada met", "Ada", 2 / 3),
        ("Bob", "Ada", 0.0),
        ("", "", 1.0),
        ("", "Ada", 0.0),
        ("the", "", 1.0),
    ],
)
def test_f1_is_squads(answer, gold, f1):
    assert token_f1(answer, gold) == pytest.approx(f1)


def test_normalisation_is_squads():
    assert normalise(" The  U.S. “quote” an apple-pie!") == "us “quote” applepie"


def test_the_built_in_set_is_large_enough_and_attributed():
    questions = read_questions(BUILT_IN)
    assert len(questions) >= 300
    assert all(question.answers for question in questions)
    assert all(answer in q.context for q in questions for answer in q.answers)
    assert "CC BY 4.0" in json.loads(BUILT_IN.read_text("utf-8"))["licence"]


LINES = {
    "answer": '{"question": "Who?", "context": "Ada met Bob.", "answer": "Ada"}',
    "answers": '{"question": "Who?", "context": "Ada met Bob.", "answers": ["Ada", "Ada"]}',
    "columns": '{"question": "Who?", "context": "Ada met Bob.", "answers": {"text": ["Ada"]}}',
    "objects": '{"question": "Who?", "context": "Ada met Bob.", "answers": [{"text": "Ada"}]}',
}


@pytest.mark.parametrize("form", LINES)
def test_json_lines(tmp_path, form):
    file = tmp_path / "gate.jsonl"
    file.write_text(LINES[form] + "\n\n" + LINES[form] + "\n")
    assert read_questions(file, least=1) == [QUESTION, QUESTION]


def test_squad_2_with_unanswerable_questions(tmp_path):
    paragraph = {
        "context": "Ada met Bob.",
        "qas": [
            {"question": "Who?", "answers": [{"text": "Ada", "answer_start": 0}]},
            {"question": "When?", "answers": [], "is_impossible": True},
        ],
    }
    file = tmp_path / "gate.json"
    file.write_text(json.dumps({"data": [{"paragraphs": [paragraph]}]}))
    assert read_questions(file, least=2) == [QUESTION, GateQuestion("When?", "Ada met Bob.", ())]


def test_limit_takes_even_steps(tmp_path):
    file = tmp_path / "gate.jsonl"
    records = (
        {"question": str(number), "context": "Ada", "answer": "Ada"} for number in range(100)
    )
    file.write_text("\n".join(json.dumps(record) for record in records))
    taken = read_questions(file, limit=4, least=4)
    assert [question.question for question in taken] == ["0", "33", "66", "99"]


def predictions(answer, span, logits):
    return Predictions((answer,), (span,), (np.asarray(logits, dtype=np.float32),))


GOOD = predictions("Ada", (0, 3), [[0.0, 5.0, 1.0], [0.0, 5.0, 1.0]])


def test_an_equal_graph_passes():
    report = compare([QUESTION], GOOD, GOOD, Limits(0.1), "x")
    assert report.passed
    assert (report.delta_f1, report.identical_spans, report.worst_logit_error) == (0, 1, 0)


def test_lost_f1_fails_with_the_figure():
    worse = predictions("Ada met", (0, 7), [[0.0, 5.1, 1.0], [0.0, 5.0, 1.0]])
    report = compare([QUESTION], GOOD, worse, Limits(0.5), "x")
    assert not report.passed
    assert report.delta_f1 == pytest.approx(100 / 3)
    assert "F1 falls by 33.33 points (limit 0.5)" in report.reasons[0]


def test_an_accepted_loss_is_recorded():
    worse = predictions("Ada met", (0, 7), [[0.0, 5.1, 1.0], [0.0, 5.0, 1.0]])
    report = compare([QUESTION], GOOD, worse, Limits(0.5, accepted_loss=40.0), "x")
    assert report.passed
    assert report.to_json()["accepted_loss"] == 40.0


def test_gained_f1_passes():
    worse = predictions("Ada met", (0, 7), GOOD.logits[0])
    assert compare([QUESTION], worse, GOOD, Limits(0.0), "x").passed


@pytest.mark.parametrize("broken", [np.nan, np.inf, 50.0])
def test_nonsense_fails_although_f1_holds(broken):
    """F1 cannot judge a model that does not answer the set; its logits can."""
    other = predictions("Ada", (0, 3), [[0.0, 5.0, broken], [0.0, 5.0, 1.0]])
    report = compare([QUESTION], GOOD, other, Limits(0.5, accepted_loss=100.0), "x")
    assert not report.passed
    assert "of their spread" in report.reasons[0]


def test_logit_errors_are_absolute_and_relative():
    reference = [np.array([[0.0, 2.0]], dtype=np.float32)]
    candidate = [np.array([[0.5, 2.0]], dtype=np.float32)]
    worst, relative = logit_errors(reference, candidate)
    assert worst == pytest.approx(0.5)
    assert relative == pytest.approx(0.5 / np.sqrt(2))


def test_long_contexts_are_read_to_their_end(tmp_path):
    """The answer of a context of many windows may stand in the last one."""
    bundle = make_bundle(tmp_path / "bundle")
    from export.parity import open_runner

    filler = "Bearings are greased every 500 hours with lithium grease. " * 20
    context = filler + "The relief valve opens at 6.5 bar."
    question = GateQuestion("When does the relief valve open?", context, ("6.5 bar",))
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    run = open_runner(bundle.graph("int8"), 1)
    found = predict(run, encoder, [question], 64)
    assert found.spans[0] is not None
    start, end = found.spans[0]
    assert start >= len(filler)
    assert context[start:end] == found.answers[0]
    assert len(found.logits) > 3
    assert all(window.shape[1] <= 64 for window in found.logits)
