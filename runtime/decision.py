"""Scores -> a confidence and a verdict on it: good enough to answer, or not.

A confidence is a probability only if a calibration map was fitted for this pair of models (see
`runtime/calibration.py`); without one it is the model's raw probability, and says so.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from runtime.calibration import CalibrationMap
from runtime.errors import UsageError
from runtime.spans import ScoredSpan, support_probability

# Accept an answer that is right with at least this probability: three times out of four, or more
# likely than not. Chosen for what they mean, not tuned.
MODES: dict[str, float] = {"strict": 0.75, "lenient": 0.5}


@dataclass(frozen=True, slots=True)
class Confidence:
    """A number in [0, 1], and whether it was calibrated on held-out questions."""

    value: float
    calibrated: bool

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.calibrated else " (uncalibrated)")


class Calibration:
    """The maps of one pair of models, by route: "speculative", "standard", "drafter"."""

    def __init__(self, maps: Mapping[str, CalibrationMap]) -> None:
        self._maps = dict(maps)

    def confidence(self, route: str, span: ScoredSpan) -> Confidence:
        """That `span` is right, by the model that had the last word on this route.

        How sure the drafter was chooses among drafts, but says nothing of whether the chosen one
        is right that the verifier's own margin does not say better (docs/pipeline.md).
        """
        found = self._maps.get(route)
        if found is None:
            return Confidence(support_probability(span.margin), calibrated=False)
        return Confidence(found.probability(span.log_odds), calibrated=True)


def threshold_value(threshold: str | float) -> float:
    """`"strict"`, `"lenient"`, or a number in [0, 1] (or its text) as a number.

    Raises:
        UsageError: neither.
    """
    if isinstance(threshold, str) and threshold in MODES:
        return MODES[threshold]
    try:
        value = float(threshold)
    except ValueError:
        value = float("nan")
    if not 0.0 <= value <= 1.0:
        raise UsageError(
            f"{threshold!r} is no threshold",
            fix=f"Give {' or '.join(MODES)}, or a number from 0 to 1",
        )
    return value


class CoolDown:
    """Whether the drafter is worth asking: not for a while after repeated failures.

    After `limit` questions in a row without a valid draft it rests for `seconds`; then the drafter
    gets one question to prove itself. Safe to share between threads.
    """

    def __init__(
        self, *, limit: int = 3, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._limit = limit
        self._seconds = seconds
        self._clock = clock
        self._failures = 0
        self._last = ""
        self._until = float("-inf")
        self._lock = threading.Lock()

    @property
    def resting(self) -> str | None:
        """Why the drafter rests, for people; None if it does not."""
        with self._lock:
            if self._clock() >= self._until:
                return None
            return (
                f"the drafter rests for {self._seconds:g} s after {self._limit} questions without "
                f"a draft; for the last one, {self._last}"
            )

    def record(self, failure: str | None) -> None:
        """Note why the drafter gave no valid draft for a question; None if it gave one."""
        with self._lock:
            self._failures = 0 if failure is None else self._failures + 1
            self._last = failure or ""
            if self._failures >= self._limit:
                self._until = self._clock() + self._seconds
