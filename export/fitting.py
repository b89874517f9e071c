"""Scores and whether their answers were right -> the monotone map from score to probability.

Three kinds are fitted and the one with the lowest Brier score on questions it has not seen is
kept: Platt's sigmoid (Platt 1999), beta calibration (Kull et al. 2017, AISTATS), and isotonic
regression (Zadrozny, Elkan 2002) smoothed by taking steps of at least some questions as knots.
Scores are log-odds of the uncalibrated probability. All figures of a fit are cross-validated:
each question is judged by a map that was fitted without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.calibration import CalibrationMap
from runtime.errors import UsageError

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

LEAST_QUESTIONS = 100
FOLDS = 5
KNOTS = 40  # of the curved maps
STEP_QUESTIONS = 20  # questions behind a knot of the isotonic map, at least
BINS = 10
LOUDEST = 30.0  # log-odds beyond this say no more


def fit(scores: Floats, right: Flags, *, seed: int = 0) -> CalibrationMap:
    """The best of the three maps, with its cross-validated figures as facts.

    Args:
        scores: log-odds (n,).
        right: whether each answer was right (n,).

    Raises:
        UsageError: too few questions, or all of them right or wrong.
    """
    if len(scores) < LEAST_QUESTIONS or right.all() or not right.any():
        raise UsageError(
            f"{len(scores)} answers, {int(right.sum())} of them right, are too few to calibrate",
            fix=f"Ask at least {LEAST_QUESTIONS} questions, some answerable and some not",
        )
    scores = np.clip(scores, -LOUDEST, LOUDEST)
    trials = {kind: _cross_validated(fitter, scores, right, seed) for kind, fitter in KINDS.items()}
    kind = min(trials, key=lambda name: brier(trials[name], right))
    fitted = KINDS[kind](scores, right)
    raw = sigmoid(scores)
    facts = {
        "questions": len(scores),
        "right": round(float(right.mean()), 4),
        "ece": round(expected_error(trials[kind], right), 4),
        "brier": round(brier(trials[kind], right), 4),
        "ece_uncalibrated": round(expected_error(raw, right), 4),
        "brier_uncalibrated": round(brier(raw, right), 4),
        "brier_by_kind": {name: round(brier(trial, right), 4) for name, trial in trials.items()},
        "reliability": reliability(trials[kind], right),
    }
    return CalibrationMap(kind, fitted.scores, fitted.probabilities, facts)


def _cross_validated(
    fitter: Callable[[Floats, Flags], CalibrationMap], scores: Floats, right: Flags, seed: int
) -> Floats:
    """Each question's probability by a map fitted on the other folds."""
    fold = np.random.default_rng(seed).permutation(len(scores)) % FOLDS
    probabilities = np.empty(len(scores))
    for number in range(FOLDS):
        held = fold == number
        fitted = fitter(scores[~held], right[~held])
        probabilities[held] = fitted.probabilities_of(scores[held])
    return probabilities


def fit_platt(scores: Floats, right: Flags) -> CalibrationMap:
    """sigmoid(a x + b), a >= 0, by maximum likelihood with Platt's own smoothed targets."""
    weights = _logistic(np.stack([scores, np.ones_like(scores)], axis=1), right)
    slope = max(weights[0], 0.0)
    return _sampled("platt", scores, lambda x: sigmoid(slope * x + weights[1]))


def fit_beta(scores: Floats, right: Flags) -> CalibrationMap:
    """sigmoid(a ln p - b ln(1 - p) + c), a, b >= 0, of p = sigmoid(score)."""

    def features(x: Floats) -> Floats:
        return np.stack([-np.logaddexp(0, -x), np.logaddexp(0, x), np.ones_like(x)], axis=1)

    used = np.array([True, True, True])
    weights = np.zeros(3)
    weights[used] = _logistic(features(scores), right)
    for index in (0, 1):
        if weights[index] < 0:  # a falling side is dropped, and the rest fitted again
            used[index] = False
            weights = np.zeros(3)
            weights[used] = _logistic(features(scores)[:, used], right)
    weights[:2] = weights[:2].clip(0)
    return _sampled("beta", scores, lambda x: sigmoid(features(x) @ weights))


def fit_isotonic(scores: Floats, right: Flags) -> CalibrationMap:
    """Non-decreasing steps of at least STEP_QUESTIONS questions, joined by lines."""
    order = np.argsort(scores, kind="stable")
    groups = max(2, len(scores) // STEP_QUESTIONS)
    parts = [part for part in np.array_split(order, groups) if len(part)]
    centres = np.array([scores[part].mean() for part in parts])
    # One right and one wrong answer are added to each step: none is certain.
    means = np.array([(right[part].sum() + 1) / (len(part) + 2) for part in parts])
    sizes = np.array([float(len(part)) for part in parts])
    levels = pool_adjacent(means, sizes)
    distinct = np.concatenate([[True], np.diff(centres) > 1e-9])
    if distinct.sum() < 2:
        return _sampled("isotonic", scores, lambda x: np.full_like(x, right.mean()))
    return CalibrationMap("isotonic", centres[distinct], levels[distinct])


def pool_adjacent(values: Floats, weights: Floats) -> Floats:
    """The closest non-decreasing sequence (n,), in weighted squares: pool adjacent violators."""
    pooled: list[list[float]] = []  # mean, weight, length
    for value, weight in zip(values, weights, strict=True):
        pooled.append([float(value), float(weight), 1])
        while len(pooled) > 1 and pooled[-2][0] > pooled[-1][0]:
            mean, mass, length = pooled.pop()
            before = pooled[-1]
            before[0] = (before[0] * before[1] + mean * mass) / (before[1] + mass)
            before[1] += mass
            before[2] += length
    return np.concatenate([np.full(int(length), mean) for mean, _, length in pooled])


KINDS: dict[str, Callable[[Floats, Flags], CalibrationMap]] = {
    "platt": fit_platt,
    "beta": fit_beta,
    "isotonic": fit_isotonic,
}


def _sampled(kind: str, scores: Floats, curve: Callable[[Floats], Floats]) -> CalibrationMap:
    """A curve as knots over the scores' range, half of them where the scores are."""
    low, high = float(scores.min()), float(scores.max())
    if high - low < 1e-6:
        low, high = low - 1.0, high + 1.0
    even = np.linspace(low, high, KNOTS // 2)
    dense = np.quantile(scores, np.linspace(0, 1, KNOTS // 2))
    knots = np.unique(np.round(np.concatenate([even, dense]), 6))
    return CalibrationMap(kind, knots, np.maximum.accumulate(curve(knots)).clip(0.0, 1.0))


def _logistic(features: Floats, right: Flags, *, steps: int = 50) -> Floats:
    """Weights (k,) of a logistic regression by damped Newton steps, slightly regularised."""
    positives, negatives = float(right.sum()), float((~right).sum())
    targets = np.where(right, (positives + 1) / (positives + 2), 1 / (negatives + 2))
    weights = np.zeros(features.shape[1])
    ridge = 1e-6 * len(features) * np.eye(features.shape[1])
    for _ in range(steps):
        given = sigmoid(features @ weights)
        gradient = features.T @ (given - targets) + ridge @ weights
        curvature = (features * (given * (1 - given))[:, None]).T @ features + ridge
        step = np.linalg.solve(curvature, gradient)
        weights -= step / max(1.0, float(np.abs(step).max()))
        if np.abs(step).max() < 1e-9:
            break
    return weights


def sigmoid(x: Floats) -> Floats:
    """1 / (1 + exp(-x)), without overflow."""
    return np.exp(-np.logaddexp(0.0, -x))


def brier(probabilities: Floats, right: Flags) -> float:
    """Mean squared error of the probabilities."""
    return float(np.mean((probabilities - right) ** 2))


def expected_error(probabilities: Floats, right: Flags) -> float:
    """Expected calibration error over BINS bins of equal width (Guo et al. 2017)."""
    rows = reliability(probabilities, right)
    gaps = [row["questions"] * abs(row["confidence"] - row["right"]) for row in rows]
    return float(sum(gaps)) / len(right)


def reliability(probabilities: Floats, right: Flags) -> list[dict[str, Any]]:
    """Per bin of equal width that holds any: questions, mean confidence, share right."""
    bins = np.minimum((probabilities * BINS).astype(int), BINS - 1)
    rows = []
    for number in range(BINS):
        inside = bins == number
        if inside.any():
            rows.append(
                {
                    "from": number / BINS,
                    "to": (number + 1) / BINS,
                    "questions": int(inside.sum()),
                    "confidence": round(float(probabilities[inside].mean()), 4),
                    "right": round(float(right[inside].mean()), 4),
                }
            )
    return rows
