"""Graphs and a PyTorch model -> milliseconds per batch, measured in turn within one run.

What is compared is run interleaved, round by round: a load from elsewhere then slows all of them,
and the ratios hold although the milliseconds may not. Before each run there is a rest, because
threads that wait for more work (OpenMP's, of PyTorch) keep a core busy for some milliseconds,
which would be charged to whoever comes next.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Feeds = dict[str, NDArray[np.int64]]

REST = 0.02  # seconds before each run


@dataclass(frozen=True, slots=True)
class LatencyReport:
    """Median milliseconds per batch of each competitor, fastest and slowest round beside it."""

    batch: int
    length: int
    threads: int
    rounds: int
    median_ms: dict[str, float]
    spread_ms: dict[str, tuple[float, float]]

    def ratio(self, slow: str, fast: str) -> float:
        """How many times faster `fast` is than `slow`."""
        return self.median_ms[slow] / self.median_ms[fast]

    def to_json(self) -> dict[str, Any]:
        return {
            "batch": self.batch,
            "length": self.length,
            "threads": self.threads,
            "rounds": self.rounds,
            "median_ms": {name: round(value, 3) for name, value in self.median_ms.items()},
            "spread_ms": {
                name: [round(bound, 3) for bound in bounds]
                for name, bounds in self.spread_ms.items()
            },
        }


def random_feeds(vocabulary: int, batch: int, length: int, *, seed: int = 0) -> Feeds:
    """Full rows of random tokens; speed does not depend on which."""
    generator = np.random.default_rng(seed)
    ids = generator.integers(min(1000, vocabulary // 2), vocabulary, (batch, length))
    types = np.zeros_like(ids)
    types[:, length // 8 :] = 1
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": types}


def torch_runner(model: Any, inputs: tuple[str, ...], threads: int) -> Callable[[Feeds], object]:
    """The PyTorch model as a function of feeds."""
    import torch

    torch.set_num_threads(threads)

    def run(feeds: Feeds) -> object:
        with torch.inference_mode():
            return model(**{name: torch.from_numpy(feeds[name]) for name in inputs})

    return run


def measure(
    runners: Mapping[str, Callable[[Feeds], object]],
    feeds: Feeds,
    *,
    threads: int,
    rounds: int = 11,
    seconds: float = 30.0,
) -> LatencyReport:
    """Run all competitors `rounds` times in turn, after one round to warm up.

    Args:
        seconds: stop early after this time, but never before three rounds.
    """
    times: dict[str, list[float]] = {name: [] for name in runners}
    for run in runners.values():
        run(feeds)
    begin = time.perf_counter()
    for done in range(rounds):
        if done >= 3 and time.perf_counter() - begin > seconds:
            break
        for name, run in runners.items():
            time.sleep(REST)
            start = time.perf_counter()
            run(feeds)
            times[name].append(1000 * (time.perf_counter() - start))
    batch, length = feeds["input_ids"].shape
    return LatencyReport(
        batch=batch,
        length=length,
        threads=threads,
        rounds=min(len(taken) for taken in times.values()),
        median_ms={name: statistics.median(taken) for name, taken in times.items()},
        spread_ms={name: (min(taken), max(taken)) for name, taken in times.items()},
    )
