"""An FP32 graph -> a graph without a single float operator, for NPUs that compute integers only.

Qualcomm's NPU takes a graph whole or hands nodes back to the CPU: every tensor has a scale of its
own, activations 16 bits wide, weights 8, by ONNX Runtime's own quantiser for that NPU. Three things
that it lacks are ours, each in standard operators:

- one scale for a whole weight matrix leaves small columns few bits: columns are stretched to one
  height before, and their product is shrunk again after (`even_columns`). RMS error of the logits
  of a 3-layer drafter: 8.1 % of their spread without, 1.8 % with it;
- the attention mask's -3e38 would take all steps of its tensor: -100 masks as well;
- shapes of the graph are facts once its inputs are fixed: they are folded (export/static.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from export import graph
from export.latency import Feeds

MASK = -100.0  # exp() of it is nothing beside any visible token, and 16 bits still hold the scores
HIDDEN = 8  # hidden tokens behind each window: a mask measured without would learn to hide nothing
FLATTEST = 1 / 64  # a column is stretched by at most 64: its product must fit the tensor's scale


def quantise_whole(
    base: Path, target: Path, feeds: Iterator[Feeds], inputs: tuple[str, ...]
) -> None:
    """Quantise every operator of the float graph at `base`; writes `target`.

    Args:
        feeds: windows on which the scales are measured, one after the other.
        inputs: the graph's inputs.
    """
    from onnxruntime.quantization import QuantType, quantize
    from onnxruntime.quantization.execution_providers.qnn import (
        get_qnn_qdq_config,
        qnn_preprocess_model,
    )

    model = onnx.load(str(base))
    graph.bound_masks(model, MASK)
    even_columns(model)
    prepared = target.with_suffix(".prepared.onnx")
    with graph.quiet():
        if not qnn_preprocess_model(model, prepared):
            graph.save(model, prepared)
        settings = get_qnn_qdq_config(
            prepared,
            _Windows(feeds, inputs),
            activation_type=QuantType.QUInt16,
            weight_type=QuantType.QUInt8,
            nodes_to_exclude=graph.shape_nodes(onnx.load(str(prepared))),
        )
        # Where and its like are quantised too although a constant goes in unquantised.
        settings.extra_options["ForceQuantizeNoInputCheck"] = True
        quantize(prepared, target, settings)
    prepared.unlink()


class _Windows:
    """Feeds one window at a time to the quantiser's calibration."""

    def __init__(self, feeds: Iterator[Feeds], inputs: tuple[str, ...]) -> None:
        self._feeds = feeds
        self._inputs = inputs

    def get_next(self) -> Feeds | None:
        feeds = next(self._feeds, None)
        if feeds is None:
            return None
        return {name: np.pad(feeds[name], ((0, 0), (0, HIDDEN))) for name in self._inputs}


def even_columns(model: onnx.ModelProto) -> int:
    """Turn `x W` into `(x W/s) s`, s the height of each column of a constant W, in place.

    Returns:
        How many products were changed.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[onnx.NodeProto] = []
    count = 0
    for node in model.graph.node:
        weight = constants.get(node.input[1]) if node.op_type in ("MatMul", "Gemm") else None
        if weight is None or len(weight.dims) != 2:
            nodes.append(node)
            continue
        nodes.extend(_evened(model, node, _matrix(node, weight)))
        count += 1
    graph.replace_nodes(model, nodes)
    graph.drop_unused(model)
    return count


def _matrix(node: onnx.NodeProto, weight: onnx.TensorProto) -> NDArray[np.float32]:
    """The constant (k, n) that is multiplied with, whatever a Gemm says of it."""
    attributes = {each.name: helper.get_attribute_value(each) for each in node.attribute}
    values = numpy_helper.to_array(weight)
    turned = values.T if attributes.get("transB") else values
    return np.asarray(turned * attributes.get("alpha", 1.0), dtype=np.float32)


def _evened(
    model: onnx.ModelProto, node: onnx.NodeProto, values: NDArray[np.float32]
) -> list[onnx.NodeProto]:
    """The nodes that stand for one product: MatMul, Mul, and a Gemm's Add."""
    peaks = np.abs(values).max(axis=0)
    heights = np.maximum(peaks / max(float(peaks.max()), 1e-12), FLATTEST).astype(np.float32)
    name = node.name
    parts = {f"{name}_even": (values / heights).astype(np.float32), f"{name}_heights": heights}
    model.graph.initializer.extend(numpy_helper.from_array(v, n) for n, v in parts.items())
    bias = node.input[2] if len(node.input) > 2 else ""
    scaled = f"{name}_scaled" if bias else node.output[0]
    nodes = [
        helper.make_node("MatMul", [node.input[0], f"{name}_even"], [f"{name}_flat"], name),
        helper.make_node("Mul", [f"{name}_flat", f"{name}_heights"], [scaled], f"{name}_shrink"),
    ]
    if bias:
        nodes.append(helper.make_node("Add", [scaled, bias], [node.output[0]], f"{name}_bias"))
    return nodes
