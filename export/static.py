"""An FP32 graph -> QDQ graphs with measured scales and fixed shapes, for NPUs and OpenVINO.

NPUs take no free dimensions and no fused operators of ONNX Runtime: the graph stays in standard
operators, activations get scales measured beforehand, and each bucket of sequence lengths has a
graph of its own with one row; all of them share one weight file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from export import graph, rows
from export.quantization import Scheme

if TYPE_CHECKING:
    from export.source import Source

BUCKETS = (64, 128, 256, 384)  # tokens
BATCH = 1
CALIBRATION_WINDOWS = 64
PRODUCTS = ("MatMul", "Gemm")
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
    """Quantise the graph at `base`: scales measured on windows of gate questions, or one a token.

    The scales of tokens are computed in the graph; what is quantised is then always within
    -1 .. 1, so that the scale is a constant and needs no measuring.
    """
    from onnxruntime.quantization import CalibrationMethod, QuantFormat, QuantType, quantize_static

    model = onnx.load(str(base))
    spared = [] if scheme.head else graph.head_nodes(model)
    if scheme.rows:
        rows.scale_rows(model, limit_pairs=False, spared=spared, fused=False)
        graph.save(model, target)
        return
    with graph.quiet():
        quantize_static(
            model,
            str(target),
            _Windows(source.gate.feeds(CALIBRATION_WINDOWS), source.inputs),
            quant_format=QuantFormat.QDQ,
            op_types_to_quantize=list(PRODUCTS),
            per_channel=scheme.per_channel,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            calibrate_method=CalibrationMethod.MinMax,
            nodes_to_exclude=spared,
            # What products give goes on in float: norms and sums gain nothing from 8 bits.
            extra_options={
                "MatMulConstBOnly": True,
                "OpTypesToExcludeOutputQuantization": list(PRODUCTS),
            },
        )


class _Windows:
    """Feeds one window at a time to the quantiser's calibration."""

    def __init__(
        self, feeds: Iterator[dict[str, NDArray[np.int64]]], inputs: tuple[str, ...]
    ) -> None:
        self._feeds = feeds
        self._inputs = inputs

    def get_next(self) -> dict[str, Any] | None:
        feeds = next(self._feeds, None)
        return None if feeds is None else {name: feeds[name] for name in self._inputs}


def place(made: Path, folder: Path, name: str) -> dict[str, str]:
    """Write the free graph and one of each bucket into the bundle, over one weight file."""
    model = onnx.load(str(made))
    weights = graph.WeightFile(folder / WEIGHTS)
    graph.save(model, folder / name, weights)
    graphs = {"int8": name}
    for length in BUCKETS:
        file = f"model.int8.{BATCH}x{length}.onnx"
        graph.save(graph.freeze_shapes(model, BATCH, length), folder / file)
        graphs[f"int8-{BATCH}x{length}"] = file
    return graphs


def bucket_facts() -> list[dict[str, Any]]:
    """The fixed shapes, for the manifest: shortest first."""
    return [
        {"graph": f"int8-{BATCH}x{length}", "batch": BATCH, "length": length} for length in BUCKETS
    ]
