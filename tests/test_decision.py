"""Confidence, thresholds, and when the drafter may rest."""

from __future__ import annotations

import numpy as np
import pytest

from runtime.alignment import TokenRange
from runtime.calibration import CalibrationMap
from runtime.decision import MODES, Calibration, CoolDown, threshold_value
from runtime.errors import UsageError
from runtime.spans import ScoredSpan, support_probability


def span_with(margin: float) -> ScoredSpan:
    return ScoredSpan(TokenRange(0, 0), margin, 0.0, 0.0)


def test_a_calibrated_confidence_comes_from_the_routes_own_map():
    low = CalibrationMap("platt", np.array([-4.0, 4.0]), np.array([0.1, 0.5]))
    high = CalibrationMap("platt", np.array([-4.0, 4.0]), np.array([0.5, 0.9]))
    calibration = Calibration({"speculative": low, "standard": high})
    even = span_with(margin=0.0)
    assert calibration.confidence("speculative", even).value == pytest.approx(0.3)
    assert calibration.confidence("standard", even).value == pytest.approx(0.7)
    assert calibration.confidence("standard", even).calibrated


def test_without_a_map_the_confidence_is_the_raw_probability_and_says_so():
    confidence = Calibration({}).confidence("speculative", span_with(margin=2.0))
    assert confidence.value == pytest.approx(support_probability(2.0))
    assert "uncalibrated" in str(confidence)


def test_thresholds_are_modes_or_numbers():
    assert threshold_value("strict") == MODES["strict"] > threshold_value("lenient")
    assert threshold_value("0.25") == threshold_value(0.25) == 0.25


@pytest.mark.parametrize("wrong", ["loose", "", "1.5", "-0.1", "nan", 2.0])
def test_anything_else_is_refused(wrong):
    with pytest.raises(UsageError, match="strict"):
        threshold_value(wrong)


def test_the_drafter_rests_after_three_failures_in_a_row_and_then_proves_itself():
    now = 0.0
    cool_down = CoolDown(limit=3, seconds=60, clock=lambda: now)
    for failure in ("lost", "lost", None, "lost", "lost"):
        cool_down.record(failure)
        assert not cool_down.resting
    cool_down.record("it was late")
    assert cool_down.resting == (
        "the drafter rests for 60 s after 3 questions without a draft; "
        "for the last one, it was late"
    )
    now = 61.0
    assert not cool_down.resting
    cool_down.record("lost")
    assert cool_down.resting, "one more failure sends it back"
    now = 122.0
    cool_down.record(None)
    cool_down.record("lost")
    assert not cool_down.resting
