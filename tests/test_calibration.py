"""Scores become probabilities: the map's reading, its fits, and the command that stores it."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from export.calibration import is_absent
from export.commands import calibrate_command
from export.fitting import (
    KINDS,
    brier,
    expected_error,
    fit,
    pool_adjacent,
    reliability,
    sigmoid,
)
from models.bundle import open_bundle
from runtime.alignment import TokenRange
from runtime.calibration import CalibrationMap
from runtime.errors import BundleDamaged, UsageError
from runtime.spans import ScoredSpan
from tests.tiny_models import CORPUS, make_bundle


def line(*knots):
    return CalibrationMap.from_json({"kind": "isotonic", "knots": knots})


def test_the_map_is_a_line_through_its_knots_and_flat_beyond():
    fitted = line([-2, 0.1], [0, 0.5], [2, 0.9])
    assert fitted.probability(-100) == pytest.approx(0.1)
    assert fitted.probability(-1) == pytest.approx(0.3)
    assert fitted.probability(2) == fitted.probability(float("inf")) == pytest.approx(0.9)


def test_a_score_that_is_no_number_has_no_probability():
    fitted = line([0, 0.5], [1, 0.9])
    assert fitted.probability(float("nan")) == 0.0
    np.testing.assert_allclose(fitted.probabilities_of([np.nan, 0.5]), [0.0, 0.7])


def test_the_map_survives_json_with_its_facts():
    fitted = CalibrationMap.from_json(
        {"kind": "platt", "knots": [[0, 0.25], [1, 0.75]], "ece": 0.01, "questions": 300}
    )
    again = CalibrationMap.from_json(json.loads(json.dumps(fitted.to_json())))
    assert again.facts == {"ece": 0.01, "questions": 300}
    assert again.probability(0.5) == fitted.probability(0.5) == pytest.approx(0.5)


@pytest.mark.parametrize(
    "raw",
    [
        {},
        {"kind": "platt"},
        {"kind": "platt", "knots": [[0, 0.5]]},
        {"kind": "platt", "knots": [[0, 0.5], [0, 0.6]]},
        {"kind": "platt", "knots": [[0, 0.6], [1, 0.5]]},
        {"kind": "platt", "knots": [[0, -0.1], [1, 0.5]]},
        {"kind": "platt", "knots": [[0, 0.5], [1, 1.5]]},
        {"kind": "platt", "knots": [[0, 0.5], [float("nan"), 0.6]]},
        {"kind": "platt", "knots": [[0, 0.5, 1], [1, 0.6, 2], [1, 2, 3]]},
        {"kind": "platt", "knots": "x"},
    ],
)
def test_a_damaged_map_is_refused(raw):
    with pytest.raises(BundleDamaged):
        CalibrationMap.from_json(raw)


def drawn(count, curve, seed=0):
    """Scores and outcomes whose true probability is `curve(score)`."""
    generator = np.random.default_rng(seed)
    scores = generator.normal(0, 3, count)
    return scores, generator.random(count) < curve(scores)


CURVES = {
    "overconfident": lambda x: sigmoid(0.3 * x - 1),
    "honest": sigmoid,
    "step": lambda x: np.where(x > 1, 0.9, 0.2),
    "never sure": lambda x: 0.1 + 0.4 * sigmoid(2 * x),
}


@pytest.mark.parametrize("name", CURVES)
def test_every_curve_is_learnt(name):
    curve = CURVES[name]
    scores, right = drawn(3000, curve)
    fitted = fit(scores, right)
    fresh = np.random.default_rng(1).normal(0, 3, 2000)
    error = np.abs(fitted.probabilities_of(fresh) - curve(fresh))
    assert error.mean() < 0.04
    assert fitted.facts["ece"] < 0.04
    assert fitted.facts["brier"] <= fitted.facts["brier_uncalibrated"] + 0.002


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**32 - 1), st.sampled_from(sorted(KINDS)), st.booleans())
def test_every_fit_is_monotone_and_within_bounds(seed, kind, falling):
    """Even where high scores are wrong and low ones right, and with many equal scores."""
    scores, right = drawn(300, lambda x: sigmoid(-x if falling else x), seed)
    scores = np.round(scores)
    fitted = KINDS[kind](scores, right)
    probabilities = fitted.probabilities_of(np.linspace(-20, 20, 400))
    assert (np.diff(probabilities) >= -1e-12).all()
    assert probabilities.min() >= 0
    assert probabilities.max() <= 1


def test_equal_scores_get_the_share_of_right_answers():
    right = np.arange(200) % 4 == 0
    fitted = fit(np.full(200, 1.5), right)
    assert fitted.probability(1.5) == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize(
    "right", [np.ones(200, bool), np.zeros(200, bool), np.eye(1, 50, dtype=bool)[0]]
)
def test_too_little_to_learn_from(right):
    with pytest.raises(UsageError, match="too few to calibrate"):
        fit(np.linspace(-1, 1, len(right)), right)


def test_figures_are_of_questions_the_map_has_not_seen():
    """Guards flattering figures: on pure noise the fit must not claim to know more than chance."""
    scores, right = drawn(400, lambda x: np.full_like(x, 0.5), seed=5)
    assert fit(scores, right).facts["brier"] > 0.245


def test_pool_adjacent_against_brute_force():
    values = np.array([1.0, 3.0, 2.0, 2.0, 5.0, 4.0])
    weights = np.array([1.0, 1.0, 2.0, 1.0, 1.0, 3.0])
    expected = [1.0, 9 / 4, 9 / 4, 9 / 4, 17 / 4, 17 / 4]
    np.testing.assert_allclose(pool_adjacent(values, weights), expected)


def test_error_and_table():
    probabilities = np.array([0.05, 0.95, 0.95, 1.0])
    right = np.array([False, True, True, False])
    assert brier(probabilities, right) == pytest.approx((0.0025 * 3 + 1) / 4)
    low, high = reliability(probabilities, right)
    assert (low["questions"], high["questions"]) == (1, 3)
    assert expected_error(probabilities, right) == pytest.approx(
        (0.05 + 3 * abs(2.9 / 3 - 2 / 3)) / 4, abs=1e-3
    )


def test_absent_contexts_are_chosen_by_their_text_alone():
    texts = [f"context {number}" for number in range(2000)]
    chosen = {text for text in texts if is_absent(text, 0.2, 0)}
    assert len(chosen) == pytest.approx(400, abs=60)
    assert chosen != {text for text in texts if is_absent(text, 0.2, 1)}
    assert not any(is_absent(text, 0.0, 0) for text in texts)


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    make_bundle(folder / "drafter", role="drafter")
    make_bundle(folder / "verifier", role="verifier", family="bpe")
    return folder


@pytest.fixture(scope="module")
def questions(pair):
    """Half can be answered from the text beside the question's words, half cannot."""
    lines = []
    for number in range(120):
        text = CORPUS[number % 6]
        words = text.split()
        place = (5 * number) % (len(words) - 4)
        asked = " ".join(words[place : place + 3]).strip(".,;?") + "?"
        answer = words[place + 3].strip(".,;?") if number % 2 else words[-1].strip(".,;?")
        lines.append({"question": asked, "context": f"{text} {number // 6}.", "answer": answer})
    file = pair / "questions.jsonl"
    file.write_text("\n".join(json.dumps(line, ensure_ascii=False) for line in lines))
    return file


def invoke(pair, verifier, questions, *more):
    return CliRunner().invoke(
        calibrate_command,
        [
            *("--drafter", str(pair / "drafter"), "--verifier", str(verifier)),
            *("--data", str(questions), "--threads", "1", "--quiet", *more),
        ],
    )


def test_the_command_stores_maps_and_diagram_in_a_whole_bundle(pair, questions, tmp_path):
    pytest.importorskip("matplotlib")
    verifier = shutil.copytree(pair / "verifier", tmp_path / "verifier")
    result = invoke(pair, verifier, questions, "--json")
    assert result.exit_code == 0, result.output
    bundle = open_bundle(verifier)  # every file against its checksum
    stored = bundle.optional_json("calibration.json")
    drafter = open_bundle(pair / "drafter")
    assert stored["drafter"] == drafter.manifest.files["model.int8.onnx"].sha256
    assert set(stored["maps"]) == {"speculative", "standard", "drafter"}
    for raw in stored["maps"].values():
        fitted = CalibrationMap.from_json(raw)
        assert 0 <= fitted.probability(0.0) <= 1
        assert fitted.facts["questions"] >= 100
        assert fitted.facts["data"] == ["questions.jsonl"]
    assert (verifier / "calibration.png").read_bytes().startswith(b"\x89PNG")
    assert set(bundle.manifest.details["calibration"]) == set(stored["maps"])
    assert json.loads(result.stdout)["stored"] is True


def test_the_same_seed_gives_the_same_maps(pair, questions, tmp_path):
    verifier = shutil.copytree(pair / "verifier", tmp_path / "verifier")
    first, second = (
        invoke(pair, verifier, questions, "--json", "--dry-run").stdout for _ in range(2)
    )
    assert first == second
    assert not (verifier / "calibration.json").exists()


def test_the_pipeline_uses_the_stored_maps(pair, questions, tmp_path):
    from edge.assembly import calibration_of

    verifier = shutil.copytree(pair / "verifier", tmp_path / "verifier")
    assert invoke(pair, verifier, questions).exit_code == 0
    calibration, doubts = calibration_of(open_bundle(pair / "drafter"), open_bundle(verifier))
    assert doubts == ()
    even = ScoredSpan(TokenRange(0, 0), 0.0, 0.0, 0.0)
    assert calibration.confidence("speculative", even).calibrated


def test_questions_without_answers_are_refused(pair, tmp_path):
    file = tmp_path / "empty.jsonl"
    file.write_text("")
    assert invoke(pair, pair / "verifier", file).exit_code != 0
