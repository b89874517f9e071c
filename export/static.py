"""An FP32 graph -> QDQ graphs with constant scales and fixed shapes, for NPUs and OpenVINO.

NPUs take no free dimensions and no fused operators of ONNX Runtime: the graph stays in standard
operators, every scale is a constant, and each bucket of sequence lengths has a
graph of its own with one row, in which what follows from its shape is a constant; all of them share
one weight file. Beside them lies the same graph with free shapes, which the gate and CPUs run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from export import graph, npu, rows
from export.quantization import Scheme

if TYPE_CHECKING:
    from export.source import Source

BUCKETS = (64, 128, 256, 384)  # tokens
BATCH = 1
CALIBRATION_WINDOWS = 64
WEIGHTS = "weights.bin"


def load_plain(float_graph: Path) -> onnx.ModelProto:
    """The FP32 graph in standard operators, constants folded by ONNX Runtime."""
    from onnxruntime.transformers.optimizer import optimize_model

    with graph.quiet():
        model: onnx.ModelProto = optimize_model(
            str(float_graph), "bert", opt_level=1, only_onnxruntime=True
        ).model
    graph.name_nodes(model)
    return model


def quantise_static(base: Path, scheme: Scheme, target: Path, source: Source) -> None:
    """Quantise the graph at `base`; writes `target`.

    The scales of tokens are computed in the graph: what is quantised is then always within -1 .. 1,
    so that its scale is a constant. For NPUs without floats they are measured beforehand, on
    windows of gate questions.
    """
    if scheme.whole:
        npu.quantise_whole(base, target, source.gate.feeds(CALIBRATION_WINDOWS), source.inputs)
        return
    model = onnx.load(str(base))
    spared = [] if scheme.head else graph.head_nodes(model)
    rows.scale_rows(model, limit_pairs=False, spared=spared, fused=False)
    graph.save(model, target)


def buckets(max_length: int) -> tuple[int, ...]:
    """The lengths, in tokens, that a model has positions for."""
    return tuple(length for length in BUCKETS if length <= max_length) or (max_length,)


def place(made: Path, folder: Path, name: str, lengths: tuple[int, ...]) -> dict[str, str]:
    """Write the free graph and one of each bucket into the bundle, over one weight file."""
    weights = graph.WeightFile(folder / WEIGHTS)
    model = onnx.load(str(made))
    graphs = {"int8": name}
    for length in lengths:
        shape = f"{BATCH}x{length}"
        frozen = graph.fold_shapes(graph.freeze_shapes(model, BATCH, length), f"_{shape}")
        graphs[f"int8-{shape}"] = f"model.int8.{shape}.onnx"
        graph.save(frozen, folder / graphs[f"int8-{shape}"], weights)
    graph.save(model, folder / name, weights)
    return graphs


def bucket_facts(lengths: tuple[int, ...]) -> list[dict[str, Any]]:
    """The fixed shapes, for the manifest: shortest first."""
    return [
        {"graph": f"int8-{BATCH}x{length}", "batch": BATCH, "length": length} for length in lengths
    ]
