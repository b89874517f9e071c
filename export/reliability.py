"""Calibration maps -> a reliability diagram as PNG: what was promised against what was right."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from runtime.calibration import CalibrationMap


def draw(maps: Mapping[str, CalibrationMap], path: Path) -> None:
    """One panel a route: bins of cross-validated confidence, their size as the dots' area."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4 * len(maps), 4.2), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(maps), sharey=True))
    for panel, (route, fitted) in zip(panels, maps.items(), strict=True):
        rows = fitted.facts["reliability"]
        total = sum(row["questions"] for row in rows)
        panel.plot([0, 1], [0, 1], color="0.7", linewidth=1)
        panel.scatter(
            [row["confidence"] for row in rows],
            [row["right"] for row in rows],
            s=[20 + 600 * row["questions"] / total for row in rows],
            color="tab:blue",
            alpha=0.6,
        )
        panel.plot(
            [row["confidence"] for row in rows], [row["right"] for row in rows], color="tab:blue"
        )
        panel.set(
            title=f"{route}: ECE {fitted.facts['ece']:.3f}, Brier {fitted.facts['brier']:.3f}",
            xlabel="confidence",
            xlim=(0, 1),
            ylim=(0, 1),
        )
    panels[0].set_ylabel("share of right answers")
    figure.savefig(path, dpi=90, metadata={"Software": None})
