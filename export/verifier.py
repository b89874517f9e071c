"""A question-answering checkpoint -> an FP16 verifier bundle for GPUs that CPUs run as FP32.

python -m export.verifier MODEL -o DIR --target cuda
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import onnx

from export import bundling, graph, half, static
from export.latency import Feeds
from export.options import ExportOptions, VerifierTarget
from export.parity import GateReport
from export.reporting import Attempt, ExportReport, NothingPassed, Progress
from export.source import Source, float_bytes, make_manifest, measure_latency, open_source
from models.bundle import write_manifest

MEASURED_QUESTIONS = 24  # whose tensors are looked at for FP16's range


@dataclass(frozen=True, slots=True)
class _Candidate:
    """One way to FP16: which nodes stay in FP32."""

    name: str
    head: bool  # the question-answering head is FP16 too


CANDIDATES = (_Candidate("fp16", True), _Candidate("fp16-head-fp32", False))


def export_verifier(
    model: str, output: Path, target: VerifierTarget, options: ExportOptions, progress: Progress
) -> ExportReport:
    """Export `model` to an FP16 bundle in the new folder `output`.

    Raises:
        ExportError: the model cannot become a bundle.
        GateFailed: neither graph may lose more than the gate allows, and one did.
        UsageError: `output` exists, or an option cannot be carried out.
    """
    begin = time.monotonic()
    with open_source(model, output, options, progress) as source:
        graphs, attempts, blocked, single_gate = _first_that_passes(source, target)
        latency = measure_latency(source, {"fp32": source.folder / graphs["fp32"]})
        gate = attempts[-1].gate
        assert gate is not None  # the last attempt is the one that passed
        details: dict[str, Any] = {
            "scheme": attempts[-1].scheme,
            "blocked_nodes": list(blocked),
            "gate_fp32": single_gate.to_json(),
            "gate_ran_on": "cpu: FP16 weights and tensors, sums in FP32",
            "latency": latency.to_json(),
        }
        if target == "tensorrt":
            details["profiles"] = _profiles(source.checkpoint.max_length)
        manifest = make_manifest(
            source,
            name=output.name,
            role="verifier",
            target=target,
            precision="fp16",
            graphs=graphs,
            gate=gate,
            details=details,
        )
        write_manifest(source.folder, manifest)
        made = {name: _load(source.folder / file) for name, file in graphs.items()}
        sizes = {
            "bundle": bundling.bundle_bytes(manifest.files),
            "weights": (source.folder / half.WEIGHTS).stat().st_size,
            "fp32 onnx": float_bytes(source),
        }
    return ExportReport(
        output=output,
        manifest=manifest,
        why="FP16 weights and tensors, finite at the edges, and it passed the gate",
        attempts=tuple(attempts),
        nodes={name: graph.node_counts(model) for name, model in made.items()},
        weights={name: graph.weight_bytes(model) for name, model in made.items()},
        fused=graph.fused_patterns(made["fp16"]),
        sizes=sizes,
        latency=latency,
        seconds=time.monotonic() - begin,
        notes=(f"{len(blocked)} nodes stay in FP32: their values do not fit FP16",)
        if blocked
        else (),
    )


def _load(path: Path) -> onnx.ModelProto:
    return onnx.load(str(path))


def _first_that_passes(
    source: Source, target: VerifierTarget
) -> tuple[dict[str, str], list[Attempt], tuple[str, ...], GateReport]:
    """Try the candidates; the last attempt in the list is the one that passed."""
    attempts: list[Attempt] = []
    for candidate in CANDIDATES:
        source.progress(f"converting: {candidate.name}", 0.0)
        fused = _base(source, target)
        head = [] if candidate.head else graph.head_nodes(fused)
        peaks = half.measure_peaks(fused, _measured_feeds(source), source.work)
        blocked = tuple(dict.fromkeys((*half.out_of_range_nodes(fused, peaks), *head)))
        graphs = half.save_half_graphs(half.make_half_graphs(fused, blocked, peaks), source.folder)
        half_attempt, single_gate = _try(source, candidate, graphs)
        attempts.append(half_attempt)
        if half_attempt.passed and single_gate is not None:
            return graphs, attempts, blocked, single_gate
    raise NothingPassed(
        "The FP16 weights did not pass the accuracy gate: "
        + "; ".join(f"{attempt.scheme}: {attempt.note}" for attempt in attempts),
        where=source.checkpoint.name,
        fix="Accept a loss by name (--accept-loss POINTS), or name another checkpoint",
        attempts=attempts,
    )


def _try(
    source: Source, candidate: _Candidate, graphs: dict[str, str]
) -> tuple[Attempt, GateReport | None]:
    """Hold both graphs against FP32; the attempt passes when both do."""
    limits = source.options.limits("fp16")
    size = (source.folder / half.WEIGHTS).stat().st_size
    for precision, file in graphs.items():
        if not half.is_finite(source.folder / file, _stress_feeds(source), source.options.threads):
            note = f"logits of the {precision} graph are not finite under heavy padding"
            return Attempt(candidate.name, False, None, note, size), None
    gate = source.gate.check(source.folder / graphs["fp16"], limits, candidate.name)
    single = source.gate.check(source.folder / graphs["fp32"], limits, "fp16 weights as fp32")
    reasons = (*gate.reasons, *(f"as FP32: {reason}" for reason in single.reasons))
    attempt = Attempt(candidate.name, gate.passed and single.passed, gate, "; ".join(reasons), size)
    return attempt, single


def _base(source: Source, target: VerifierTarget) -> onnx.ModelProto:
    """TensorRT fuses by itself and knows none of ONNX Runtime's operators."""
    plain = target == "tensorrt"
    model = static.load_plain(source.float_graph) if plain else source.fuse()
    graph.bound_masks(model, half.MASK_VALUE)
    return model


def _measured_feeds(source: Source) -> Iterator[Feeds]:
    return chain(source.gate.feeds(MEASURED_QUESTIONS), _stress_feeds(source))


def _stress_feeds(source: Source) -> Iterator[Feeds]:
    real = next(source.gate.feeds(1))
    return half.stress_feeds(real, source.checkpoint.max_length)


def _profiles(max_length: int) -> dict[str, dict[str, int]]:
    """TensorRT's shape profile: rationales are short and few, fallback windows long and many."""
    return {
        "min": {"batch": 1, "length": 8},
        "opt": {"batch": 4, "length": min(64, max_length)},
        "max": {"batch": 32, "length": min(384, max_length)},
    }


if __name__ == "__main__":
    from export.commands import run_script, verifier_command

    run_script(verifier_command)
