"""A raw score -> the probability that the answer is right, by a map fitted on held-out questions.

The map is a line through knots, whatever it was fitted with (isotonic, Platt or beta): reading it
needs numpy and nothing else. `export/calibration.py` fits it; a bundle or a knowledge base stores
it as `calibration.json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from runtime.errors import BundleDamaged

FILE = "calibration.json"
# What the maps read. Stored with them: maps of another score would promise what nobody measured.
SCORE = "log-odds of the answer's span against no answer"


@dataclass(frozen=True)
class CalibrationMap:
    """A non-decreasing map from score to probability.

    Attributes:
        kind: how it was fitted: "isotonic", "platt" or "beta".
        scores: the knots' scores, strictly ascending, shape (n,), n >= 2.
        probabilities: the knots' probabilities in [0, 1], non-decreasing, shape (n,). Below the
            first knot and above the last the map is flat.
        facts: what it was fitted on and how well it holds: ece, brier, questions, data, and the
            reliability table.
    """

    kind: str
    scores: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        usable = (
            self.scores.ndim == 1
            and self.scores.shape == self.probabilities.shape
            and len(self.scores) >= 2
            and bool(np.isfinite(self.scores).all())
            and bool((np.diff(self.scores) > 0).all())
            and bool((np.diff(self.probabilities) >= 0).all())
            and bool(self.probabilities[0] >= 0 and self.probabilities[-1] <= 1)
        )
        if not usable:
            raise BundleDamaged(
                "The calibration map is not a rising line through at least two knots",
                fix="Fit it again with `specrag calibrate`",
            )

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> CalibrationMap:
        """The map as `to_json` wrote it.

        Raises:
            BundleDamaged: a field is missing, or the knots do not rise.
        """
        try:
            knots = np.asarray(raw["knots"], dtype=np.float64).reshape(-1, 2)
            facts = {name: raw[name] for name in raw if name not in ("kind", "knots")}
            return cls(str(raw["kind"]), knots[:, 0].copy(), knots[:, 1].copy(), facts)
        except (KeyError, TypeError, ValueError) as error:
            raise BundleDamaged(
                f"The calibration lacks or garbles a field: {error!r}",
                fix="Fit it again with `specrag calibrate`",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """As stored in `calibration.json`."""
        knots = np.stack([self.scores, self.probabilities], axis=1)
        return {"kind": self.kind, "knots": knots.tolist(), **self.facts}

    def probability(self, score: float) -> float:
        """The probability that an answer with this raw score is right; 0 for a score of NaN."""
        if np.isnan(score):
            return 0.0
        return float(np.interp(score, self.scores, self.probabilities))

    def probabilities_of(self, scores: ArrayLike) -> NDArray[np.float64]:
        """`probability` for many scores at once; the shape of `scores` is kept."""
        values = np.asarray(scores, dtype=np.float64)
        mapped = np.interp(values, self.scores, self.probabilities)
        return np.where(np.isnan(values), 0.0, mapped)
