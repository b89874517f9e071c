"""Loud channels behind a LayerNormalization -> channels of one height, with the product unchanged.

In transformers a few channels of a norm's output are ten times louder than the others, in every
token: one INT8 scale for all of them leaves the others three or four bits. How loud each will be
stands in the norm itself, which gives out scale * z + shift with z of unit variance:

    h = 3 |scale| + |shift|, over its own geometric mean
    y W = (y / h) (h W)                            one small Mul; exact in FP32

Measured on the default drafter, with one scale a token behind GELU: RMS error of the logits 3.3 %
of their spread, 4.4 % without this step, 2.9 % with heights and weights balanced over measured
windows instead, which is not worth the measuring.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from export import graph

DEVIATIONS = 3.0
QUIETEST = 1e-3  # of the median: a channel that is off must not become infinitely loud


def even_channels(model: onnx.ModelProto) -> int:
    """Even what products with constant weights read of norms, in place.

    Returns:
        How many products were changed.
    """
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    evener = _Evener(model, constants)
    for node in model.graph.node:
        evener.take(node)
    graph.replace_nodes(model, evener.nodes)
    graph.drop_unused(model)
    return evener.count


class _Evener:
    """Collects the graph's new nodes and constants; norms that share weights share those."""

    def __init__(self, model: onnx.ModelProto, constants: dict[str, onnx.TensorProto]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.count = 0
        self._new = graph.Constants(model)
        self._constants = constants
        self._norms: dict[str, onnx.NodeProto] = {}
        self._evened: set[str] = set()

    def take(self, node: onnx.NodeProto) -> None:
        if node.op_type == "LayerNormalization" and self._known(node.input[1:]):
            self._norms[node.output[0]] = node
        elif node.op_type == "MatMul" and node.input[0] in self._norms:
            weight = self._constants.get(node.input[1])
            if weight is not None and len(weight.dims) == 2:
                self._even(node, self._norms[node.input[0]], weight)
        self.nodes.append(node)

    def _known(self, names: Sequence[str]) -> bool:
        return len(names) == 2 and all(name in self._constants for name in names)

    def _even(self, node: onnx.NodeProto, norm: onnx.NodeProto, weight: onnx.TensorProto) -> None:
        scale = numpy_helper.to_array(self._constants[norm.input[1]])
        shift = numpy_helper.to_array(self._constants[norm.input[2]])
        height = channel_heights(scale, shift)
        inverse = self._new.add(f"{norm.input[1]}_evening", np.float32(1) / height)
        louder = numpy_helper.to_array(weight) * height[:, None]
        node.input[1] = self._new.add(f"{weight.name}_{norm.input[1]}", louder)
        even = f"{norm.output[0]}_even"
        if even not in self._evened:
            self._evened.add(even)
            self.nodes.append(helper.make_node("Mul", [norm.output[0], inverse], [even], even))
        node.input[0] = even
        self.count += 1


def channel_heights(scale: NDArray[np.float32], shift: NDArray[np.float32]) -> NDArray[np.float32]:
    """How loud each channel of a norm's output is beside the others, (width,), above zero."""
    height = DEVIATIONS * np.abs(scale) + np.abs(shift)
    least = max(QUIETEST * float(np.median(height)), float(np.finfo(np.float32).tiny))
    height = height.clip(least)
    return np.asarray(height / np.exp(np.log(height).mean()), dtype=np.float32)
