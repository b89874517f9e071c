"""Matrix products of a float graph -> INT8 products with one activation scale for each token.

ONNX Runtime's dynamic quantisation takes one scale for a whole batch. In transformers a few tokens
(separators, mostly) carry values ten times larger than all others, which leaves three or four bits
for the rest: measured on a 3-layer MiniLM drafter, the products of the feed-forward layers were
off by 5 % of their spread, by 1 % with a scale a token. The scales also make a window's logits
nearly independent of the windows it is batched with.

    r = max |x| of each token                      (batch, sequence, 1)
    y = INT8 product of x / r, times r             scales and zero points are constants
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from export import graph

SIGNED_ZERO, SIGNED_STEPS = 128, 127.0  # -r .. r
# GELU never goes below -0.17: nearly all of the 256 steps are for what is above zero.
GELU_ZERO, GELU_STEPS, GELU_LEAST = 36, 219.0, -0.1701
GELUS = (*graph.BIASED_GELUS, "Gelu")
LARGEST, LARGEST_PAIRED = 127, 84  # 84 measured best: between cut pairs and lost steps
PAIR_LIMIT = 128  # 255 x 128 < 32768
TINIEST = 1e-6  # a row of zeros stays a row of zeros


def scale_rows(
    model: onnx.ModelProto,
    *,
    limit_pairs: bool,
    spared: list[str],
    fused: bool,
    only_after_gelu: bool = False,
) -> int:
    """Replace the MatMuls with constant weights, in place.

    Args:
        limit_pairs: keep 16-bit sums of neighbours exact, for x86 without VNNI.
        spared: names of nodes that are left as they are.
        fused: use ONNX Runtime's integer product; otherwise quantise and dequantise around a
            MatMul, in standard operators, which other compilers fuse by themselves.
        only_after_gelu: leave all others as they are; GELU's scales cost the least to find.

    Returns:
        How many products were replaced.
    """
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    producers = {name: node for node in model.graph.node for name in node.output}
    writer = _Writer(model, fused)
    count = 0
    for node in model.graph.node:
        weight = weights.get(node.input[1]) if node.op_type == "MatMul" else None
        after_gelu = weight is not None and _is_gelu(node.input[0], producers)
        kept = node.name in spared or (only_after_gelu and not after_gelu)
        if weight is None or len(weight.dims) != 2 or kept:
            writer.nodes.append(node)
            continue
        writer.product(node, numpy_helper.to_array(weight), limit_pairs, after_gelu)
        count += 1
    writer.finish()
    return count


def _is_gelu(name: str, producers: dict[str, onnx.NodeProto]) -> bool:
    """Whether a tensor is GELU's output: the fused operator's, or x * (1 + erf(...)) / 2."""
    for _ in range(4):
        node = producers.get(name)
        if node is None or node.op_type in GELUS:
            return node is not None
        if node.op_type != "Mul":
            return False
        inputs = [producers[each] for each in node.input if each in producers]
        if any(each.op_type == "Add" and _adds_erf(each, producers) for each in inputs):
            return True
        multiplied = [each for each in node.input if each in producers]
        if len(multiplied) != 1:
            return False
        name = multiplied[0]
    return False


def _adds_erf(node: onnx.NodeProto, producers: dict[str, onnx.NodeProto]) -> bool:
    return any(name in producers and producers[name].op_type == "Erf" for name in node.input)


def quantise_columns(
    weights: NDArray[np.float32], *, limit_pairs: bool
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """INT8 (k, n) and the scale of each column (n,).

    With `limit_pairs` no two neighbours of a column add up to more than 128, the most that 16-bit
    sums of products with unsigned activations hold. Few pairs come near; they alone are cut, so
    that all others keep more bits than by halving every weight.
    """
    largest = LARGEST_PAIRED if limit_pairs else LARGEST
    peak = np.abs(weights).max(axis=0)
    scales = np.where(peak > 0, peak / largest, 1.0).astype(np.float32)
    values = np.rint(weights / scales).clip(-largest, largest).astype(np.int16)
    if limit_pairs:
        _cut_pairs(values)
    return values.astype(np.int8), scales


def _cut_pairs(values: NDArray[np.int16]) -> None:
    """Shorten neighbours (2k, 2k + 1) of one sign to an absolute sum of PAIR_LIMIT, in place."""
    even, odd = values[0 : len(values) // 2 * 2 : 2], values[1::2]
    excess = np.where(even * odd > 0, np.abs(even) + np.abs(odd) - PAIR_LIMIT, 0).clip(0)
    even -= np.sign(even) * (excess // 2)
    odd -= np.sign(odd) * (excess - excess // 2)


class _Writer:
    """Collects the graph's new nodes and constants."""

    def __init__(self, model: onnx.ModelProto, fused: bool) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self._fused = fused
        self._model = model
        self._constants = graph.Constants(model)

    def product(
        self,
        node: onnx.NodeProto,
        weights: NDArray[np.float32],
        limit_pairs: bool,
        after_gelu: bool,
    ) -> None:
        """The nodes that stand for one MatMul."""
        values, scales = quantise_columns(weights, limit_pairs=limit_pairs)
        zero, steps = (GELU_ZERO, GELU_STEPS) if after_gelu else (SIGNED_ZERO, SIGNED_STEPS)
        step = self._constants.add(f"row_step_{zero}", np.float32(1 / steps))
        zero_point = self._constants.add(f"row_zero_{zero}", np.uint8(zero))
        name, source = node.name, node.input[0]
        peak = self._gelu_peak(name, source) if after_gelu else self._signed_peak(name, source)
        self._add("Div", [source, peak], f"{name}_unit")
        self._add("QuantizeLinear", [f"{name}_unit", step, zero_point], f"{name}_u8")
        weight = self._constants.add(f"{name}_weights", values)
        columns = self._constants.add(f"{name}_scales", scales)
        if self._fused:
            self._add(
                "MatMulIntegerToFloat",
                [f"{name}_u8", weight, step, columns, zero_point],
                f"{name}_unscaled",
                domain="com.microsoft",
            )
        else:
            self._add("DequantizeLinear", [f"{name}_u8", step, zero_point], f"{name}_activation")
            self._add("DequantizeLinear", [weight, columns], f"{name}_float", axis=1)
            self._add("MatMul", [f"{name}_activation", f"{name}_float"], f"{name}_unscaled")
        self._add("Mul", [f"{name}_unscaled", peak], node.output[0])

    def _signed_peak(self, name: str, source: str) -> str:
        axes = self._constants.add("row_axes", np.array([-1], dtype=np.int64))
        self._add("ReduceMax", [source, axes], f"{name}_highest", keepdims=1)
        self._add("ReduceMin", [source, axes], f"{name}_lowest", keepdims=1)
        self._add("Neg", [f"{name}_lowest"], f"{name}_depth")
        tiniest = self._constants.add("row_tiniest", np.float32(TINIEST))
        return self._add("Max", [f"{name}_highest", f"{name}_depth", tiniest], f"{name}_peak")

    def _gelu_peak(self, name: str, source: str) -> str:
        axes = self._constants.add("row_axes", np.array([-1], dtype=np.int64))
        self._add("ReduceMax", [source, axes], f"{name}_highest", keepdims=1)
        least = self._constants.add("row_gelu", np.float32(-GELU_LEAST * GELU_STEPS / GELU_ZERO))
        return self._add("Max", [f"{name}_highest", least], f"{name}_peak")

    def _add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(
            helper.make_node(operator, inputs, [output], f"{output}_{operator}", **attributes)
        )
        return output

    def finish(self) -> None:
        graph.replace_nodes(self._model, self.nodes)
        graph.drop_unused(self._model)
        if self._fused and not any(
            opset.domain == "com.microsoft" for opset in self._model.opset_import
        ):
            self._model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
