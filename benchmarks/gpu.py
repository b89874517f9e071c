"""A verifier bundle on a GPU -> FP16 against FP32: same answers, and how much faster.

Theory: a verifier call of few short rows is bound by kernel launches, not by arithmetic: its
milliseconds stay flat while the batch grows, until the GPU is full; from there they grow with
tokens. FP16 halves the bytes moved and uses tensor cores, so it wins late on small models and
early on large ones. Copying inputs and logits costs little (kilobytes), but synchronises; with IO
binding the inputs lie on the device already, which shows what the copies cost.

All configurations run interleaved, warmed up, medians of rounds; the last line is one JSON object.
Needs onnxruntime-gpu and an NVIDIA GPU; without one it says so and exits with 2.

    python -m benchmarks.gpu BUNDLE [--provider cuda|tensorrt]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import machine
from models.bundle import Bundle, open_bundle
from runtime.encoding import PairEncoder
from runtime.providers import CudaSettings, TensorRtSettings

Feeds = dict[str, NDArray[np.int64]]
Runner = Callable[[Feeds], list[NDArray[np.float32]]]

BATCHES = (1, 2, 4, 8, 16, 32, 64)
LENGTHS = (64, 128, 384)
ROUNDS = 30
WARM_UP = 5


@dataclass(frozen=True, slots=True)
class Timing:
    """Median milliseconds of one configuration."""

    provider: str
    precision: str
    bound: bool
    batch: int
    length: int
    ms: float

    def to_json(self) -> dict[str, Any]:
        return {
            "provider": self.provider,
            "precision": self.precision,
            "io_binding": self.bound,
            "batch": self.batch,
            "length": self.length,
            "ms": round(self.ms, 3),
            "tokens_per_second": round(1000 * self.batch * self.length / self.ms),
        }


def main(arguments: Sequence[str] | None = None) -> int:
    """Check parity, sweep, print; returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--provider", choices=("cuda", "tensorrt"), default="cuda")
    parser.add_argument("--cache", type=Path, help="where TensorRT keeps its engines")
    chosen = parser.parse_args(arguments)
    bundle = open_bundle(chosen.bundle, role="verifier")
    wanted = _providers(bundle, chosen.provider, chosen.cache)
    name = wanted[0][0]
    import onnxruntime

    if name not in onnxruntime.get_available_providers():
        print(f"{name} is not in this onnxruntime; install specrag[gpu]", file=sys.stderr)
        return 2
    sessions = {p: _open(bundle, p, wanted) for p in ("fp16", "fp32")}
    obtained = {precision: session.get_providers()[0] for precision, session in sessions.items()}
    if set(obtained.values()) != {name}:
        print(f"asked for {name}, obtained {obtained}: no GPU, or its libraries", file=sys.stderr)
        return 2
    parity = _parity(bundle, sessions)
    timings = list(_sweep(bundle, sessions, name))
    _print(parity, timings)
    print(
        json.dumps(
            {
                "machine": {**machine.describe(), "gpu": _gpu_name()},
                "bundle": bundle.manifest.name,
                "parity": parity,
                "timings": [timing.to_json() for timing in timings],
            }
        )
    )
    return 0


def _providers(bundle: Bundle, provider: str, cache: Path | None) -> list[Any]:
    if provider == "cuda":
        return CudaSettings().providers()
    profiles = bundle.manifest.details.get("profiles", {})
    return TensorRtSettings(
        cache=cache, profiles=profiles, inputs=bundle.manifest.inputs
    ).providers()


def _open(bundle: Bundle, precision: str, providers: list[Any]) -> Any:
    import onnxruntime

    return onnxruntime.InferenceSession(bundle.graph(precision), providers=providers)


def _runner(session: Any) -> Runner:
    wanted = [value.name for value in session.get_inputs()]

    def run(feeds: Feeds) -> list[Any]:
        outputs = session.run(["start_logits", "end_logits"], {n: feeds[n] for n in wanted})
        return [np.asarray(output) for output in outputs]

    return run


def _parity(bundle: Bundle, sessions: dict[str, Any]) -> dict[str, Any]:
    """Both GPU graphs against FP32 on the CPU, over the built-in gate questions."""
    from export.parity import BUILT_IN, Gate, Limits, compare, predict, read_questions

    questions = read_questions(BUILT_IN)
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    gate = Gate(bundle.graph("fp32"), encoder, questions, "built-in")
    found = {}
    for precision, session in sessions.items():
        answers = predict(_runner(session), encoder, questions, 128)
        report = compare(questions, gate.reference, answers, Limits(0.1), "built-in")
        found[precision] = report.to_json()
    return found


def _sweep(bundle: Bundle, sessions: dict[str, Any], provider: str) -> list[Timing]:
    from export.latency import random_feeds

    timings = []
    vocabulary = int(bundle.manifest.details["vocabulary"])
    for length in LENGTHS:
        if length > bundle.manifest.max_length:
            continue
        for batch in BATCHES:
            feeds = random_feeds(vocabulary, batch, length)
            calls = {
                (precision, bound): _call(session, feeds, bound)
                for precision, session in sessions.items()
                for bound in (False, True)
            }
            for (precision, bound), ms in _interleaved(calls).items():
                timings.append(Timing(provider, precision, bound, batch, length, ms))
    return timings


def _call(session: Any, feeds: Feeds, bound: bool) -> Callable[[], object]:
    """One run: through Python arrays, or with inputs that lie on the device already."""
    names = [value.name for value in session.get_inputs()]
    if not bound:
        return lambda: session.run(None, {name: feeds[name] for name in names})
    import onnxruntime

    binding = session.io_binding()
    for name in names:
        on_device = onnxruntime.OrtValue.ortvalue_from_numpy(feeds[name], "cuda", 0)
        binding.bind_ortvalue_input(name, on_device)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cuda", 0)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def _interleaved(calls: dict[Any, Callable[[], object]]) -> dict[Any, float]:
    times: dict[Any, list[float]] = {key: [] for key in calls}
    for call in calls.values():
        for _ in range(WARM_UP):
            call()
    for _ in range(ROUNDS):
        for key, call in calls.items():
            start = time.perf_counter()
            call()
            times[key].append(1000 * (time.perf_counter() - start))
    return {key: statistics.median(taken) for key, taken in times.items()}


def _gpu_name() -> str:
    import subprocess

    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        found = subprocess.run(query, capture_output=True, text=True, check=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return found.stdout.strip().splitlines()[0]


def _print(parity: dict[str, Any], timings: Sequence[Timing]) -> None:
    for precision, report in parity.items():
        print(
            f"{precision} on the GPU against FP32 on the CPU: dF1 {report['delta_f1']:+.2f}, "
            f"identical spans {100 * report['identical_spans']:.1f} %, "
            f"worst logit error {report['worst_logit_error']:.4f}"
        )
    print(f"{'length':>6} {'batch':>5} {'fp32':>9} {'fp16':>9} {'fp16 bound':>10}  ms; fp16 is")
    cells = {(t.length, t.batch, t.precision, t.bound): t.ms for t in timings}
    for length, batch in dict.fromkeys((t.length, t.batch) for t in timings):
        single, half, bound = (
            cells[length, batch, *key] for key in (("fp32", False), ("fp16", False), ("fp16", True))
        )
        print(
            f"{length:>6} {batch:>5} {single:>9.2f} {half:>9.2f} {bound:>10.2f}"
            f"  {single / half:.2f} x faster"
        )


if __name__ == "__main__":
    sys.exit(main())
