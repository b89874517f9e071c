"""A question-answering checkpoint -> an INT8 drafter bundle, the fastest scheme that loses nothing.

Fuse first, quantise after: the schemes of the target are tried in order of speed, and the first
that passes the accuracy gate is kept. When none does, nothing is left behind.

    python -m export.drafter MODEL -o DIR --target x86
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import onnx

from export import bundling, graph, static
from export.options import DrafterTarget, ExportOptions
from export.quantization import (
    SaturationProof,
    Scheme,
    prove_no_saturation,
    quantise_dynamic,
    quantised_share,
    schemes_for,
)
from export.reporting import Attempt, ExportReport, NothingPassed, Progress
from export.source import (
    Source,
    discard,
    float_bytes,
    make_manifest,
    measure_latency,
    open_source,
)
from models.bundle import write_manifest

GRAPH = "model.int8.onnx"


def export_drafter(
    model: str, output: Path, target: DrafterTarget, options: ExportOptions, progress: Progress
) -> ExportReport:
    """Export `model` to an INT8 bundle in the new folder `output`.

    Raises:
        ExportError: the model cannot become a bundle.
        GateFailed: no scheme passed the accuracy gate.
        UsageError: `output` exists, or an option cannot be carried out.
    """
    begin = time.monotonic()
    with open_source(model, output, options, progress) as source:
        scheme, attempts, made = _first_that_passes(source, target)
        lengths = static.buckets(source.checkpoint.max_length)
        if scheme.static:
            graphs = static.place(made, source.folder, GRAPH, lengths)
        else:
            made.rename(source.folder / GRAPH)
            graphs = {"int8": GRAPH}
        latency = measure_latency(source, {"int8": source.folder / GRAPH})
        quantised = onnx.load(str(source.folder / GRAPH))
        gate = attempts[-1].gate
        assert gate is not None  # the last attempt is the one that passed
        manifest = make_manifest(
            source,
            name=output.name,
            role="drafter",
            target=target,
            precision="int8",
            graphs=graphs,
            gate=gate,
            details=_details(scheme, target, quantised, latency.to_json(), lengths),
        )
        write_manifest(source.folder, manifest)
        sizes = {
            "bundle": bundling.bundle_bytes(manifest.files),
            "int8 graph": (source.folder / GRAPH).stat().st_size,
            "fp32 onnx": float_bytes(source),
        }
    return ExportReport(
        output=output,
        manifest=manifest,
        why=_why(attempts),
        attempts=tuple(attempts),
        nodes={"int8": graph.node_counts(quantised)},
        weights={"int8": graph.weight_bytes(quantised)},
        fused=graph.fused_patterns(quantised),
        sizes=sizes,
        latency=latency,
        seconds=time.monotonic() - begin,
    )


def _first_that_passes(source: Source, target: DrafterTarget) -> tuple[Scheme, list[Attempt], Path]:
    """Try the schemes in order of speed; the last attempt in the list is the one that passed."""
    attempts: list[Attempt] = []
    bases = _Bases(source)
    limits = source.options.limits("int8")
    for scheme in schemes_for(target):
        source.progress(f"quantising: {scheme.name}", 0.0)
        made = source.work / f"{scheme.name}.onnx"
        if scheme.static:
            static.quantise_static(bases.path(scheme), scheme, made, source)
        else:
            quantise_dynamic(bases.path(scheme), scheme, made)
        size = made.stat().st_size
        proof = _saturation(made, target)
        if proof is not None and not proof.safe:
            note = f"16-bit sums can saturate without VNNI in {len(proof.unsafe)} weights"
            attempts.append(Attempt(scheme.name, False, None, note, size))
            continue
        gate = source.gate.check(made, limits, scheme.name)
        note = "; ".join(gate.reasons)
        attempts.append(Attempt(scheme.name, gate.passed, gate, note, size))
        if gate.passed:
            return scheme, attempts, made
        discard(made)
    raise NothingPassed(
        f"No scheme for {target} passed the accuracy gate: "
        + "; ".join(f"{attempt.scheme}: {attempt.note}" for attempt in attempts),
        where=source.checkpoint.name,
        fix="Accept a loss by name (--accept-loss POINTS), or quantise another checkpoint",
        attempts=attempts,
    )


class _Bases:
    """The FP32 graphs that schemes quantise: with INT8 or FP32 embeddings, fused or not."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._made: dict[tuple[bool, bool], Path] = {}

    def path(self, scheme: Scheme) -> Path:
        key = (scheme.static, scheme.embeddings)
        if key not in self._made:
            self._made[key] = self._make(*key)
        return self._made[key]

    def _make(self, is_static: bool, embeddings: bool) -> Path:
        source = self._source
        if is_static:
            model = static.load_plain(source.float_graph)
        else:
            model = source.fuse()
            graph.take_apart(model)
        if embeddings:
            graph.load_int8_embeddings(model)
        path = source.work / f"base-{is_static}-{embeddings}.onnx"
        graph.save(model, path)
        return path


def _saturation(made: Path, target: DrafterTarget) -> SaturationProof | None:
    """The proof for the one target whose instructions add with saturation."""
    return prove_no_saturation(onnx.load(str(made))) if target == "x86" else None


def _details(
    scheme: Scheme,
    target: DrafterTarget,
    quantised: onnx.ModelProto,
    latency: dict[str, Any],
    lengths: tuple[int, ...],
) -> dict[str, Any]:
    details: dict[str, Any] = {
        "scheme": scheme.name,
        "quantised_share": round(quantised_share(quantised), 4),
        "latency": latency,
    }
    if target == "x86":
        details["saturation"] = prove_no_saturation(quantised).to_json()
    if scheme.static:
        details["buckets"] = static.bucket_facts(lengths)
    return details


def _why(attempts: list[Attempt]) -> str:
    failed = [attempt.scheme for attempt in attempts if not attempt.passed]
    if not failed:
        return "the fastest for this target, and it passed the gate"
    return f"the fastest that passed the gate; before it failed {', '.join(failed)}"


if __name__ == "__main__":
    from export.commands import drafter_command, run_script

    run_script(drafter_command)
