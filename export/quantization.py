"""A fused FP32 graph and a scheme -> an INT8 graph, and the proof that its sums cannot saturate.

On x86 without VNNI the INT8 product of unsigned activations and signed weights adds two 16-bit
products with saturation (`vpmaddubsw`): 255 x 127 x 2 does not fit. The hazard is silent and shows
on old processors only. Whether it can happen is decided by the weights alone, so it is proven here
arithmetically for every pair of neighbouring weights, whatever machine the export runs on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import numpy_helper

from export import channels, graph, rows
from export.options import DrafterTarget

LARGEST_ACTIVATION = 255
INT16 = (-32768, 32767)
# For each node type: where its quantised weight stands among the inputs.
WEIGHT_INPUT = {"MatMulInteger": 1, "QAttention": 1, "MatMulIntegerToFloat": 1}


@dataclass(frozen=True, slots=True)
class Scheme:
    """One way to quantise.

    Attributes:
        weights: element type of the weights; activations are unsigned in dynamic schemes.
        reduced: weights use 7 bits, so that x86 without VNNI cannot saturate.
        rows: products take one activation scale for each token instead of one for the batch.
        even: the same only behind GELU; channels behind norms are brought to one height instead.
        attention: the projections inside fused attention are quantised too.
        head: the question-answering head is quantised too.
        embeddings: the word embeddings are INT8, each row with its own scale.
        static: QDQ with constant scales in standard operators, for OpenVINO and NPUs; otherwise
            dynamic.
        whole: every operator is quantised, with 16-bit activations, for NPUs without floats.
    """

    name: str
    weights: Literal["int8", "uint8"]
    per_channel: bool = True
    reduced: bool = False
    rows: bool = False
    even: bool = False
    attention: bool = True
    head: bool = True
    embeddings: bool = True
    static: bool = False
    whole: bool = False


def schemes_for(target: DrafterTarget) -> tuple[Scheme, ...]:
    """The schemes of a target, fastest first."""
    if target == "openvino":
        return _static_ladder()
    if target == "qnn":  # no float may remain; its embeddings are 16-bit rows of one scale
        return (
            Scheme("qdq-a16w8", "uint8", per_channel=False, embeddings=False, static=True,
                   whole=True),
        )  # fmt: skip
    reduced = target == "x86"
    plain = Scheme("s8-reduced" if reduced else "s8", "int8", reduced=reduced)
    even = replace(plain, name=f"{plain.name}-even", even=True)
    rows = replace(plain, name=f"{plain.name}-rows", rows=True)
    signed = (plain, even, *_with_less_and_less(rows))
    return signed if target == "arm64" else (*signed, *_with_less_and_less(Scheme("u8", "uint8")))


def _with_less_and_less(scheme: Scheme) -> tuple[Scheme, ...]:
    """The scheme, then again with the head, attention and embeddings in float."""
    head = replace(scheme, name=f"{scheme.name}-head-fp32", head=False)
    attention = replace(head, name=f"{scheme.name}-attention-fp32", attention=False)
    embeddings = replace(attention, name=f"{scheme.name}-embeddings-fp32", embeddings=False)
    return scheme, head, attention, embeddings


def _static_ladder() -> tuple[Scheme, ...]:
    # One measured scale a tensor is not on the ladder: three times the error, and 1.2 times the
    # time of a scale a token through OpenVINO's CPU device.
    plain = Scheme("qdq-s8-rows", "int8", rows=True, static=True)
    head = replace(plain, name="qdq-s8-rows-head-fp32", head=False)
    embeddings = replace(head, name="qdq-s8-rows-embeddings-fp32", embeddings=False)
    return plain, head, embeddings


def quantise_dynamic(fused: Path, scheme: Scheme, target: Path) -> onnx.ModelProto:
    """Quantise the graph at `fused`: activations at run time, weights now. Writes `target`."""
    from onnxruntime.quantization import QuantType, quantize_dynamic

    operators = ["MatMul", "Gemm", *(["Attention"] if scheme.attention else [])]
    source = onnx.load(str(fused))
    spared = [] if scheme.head else graph.head_nodes(source)
    if scheme.even:
        channels.even_channels(source)
    if scheme.rows or scheme.even:
        rows.scale_rows(
            source,
            limit_pairs=scheme.reduced,
            spared=spared,
            fused=True,
            only_after_gelu=scheme.even,
        )
    with graph.quiet():
        quantize_dynamic(
            source,
            str(target),
            op_types_to_quantize=operators,
            per_channel=scheme.per_channel,
            reduce_range=scheme.reduced,
            weight_type=QuantType.QInt8 if scheme.weights == "int8" else QuantType.QUInt8,
            nodes_to_exclude=spared,
            extra_options={
                "MatMulConstBOnly": True,
                # Shapes are not inferred through fused operators; all their tensors are floats.
                "DefaultTensorType": onnx.TensorProto.FLOAT,
            },
        )
    return onnx.load(str(target))


@dataclass(frozen=True, slots=True)
class SaturationProof:
    """How far 16-bit pair sums can go in the quantised graph.

    Attributes:
        weights: how many signed weight matrices were looked at.
        lowest, highest: the extreme sums of any two neighbouring products, all activations
            allowed; within the 16-bit range, `vpmaddubsw` adds exactly.
        unsafe: names of the weights that can saturate.
    """

    weights: int
    lowest: int
    highest: int
    unsafe: tuple[str, ...]

    @property
    def safe(self) -> bool:
        return not self.unsafe

    def to_json(self) -> dict[str, object]:
        """As recorded in the manifest."""
        return {
            "weights": self.weights,
            "lowest_pair_sum": self.lowest,
            "highest_pair_sum": self.highest,
            "unsafe": list(self.unsafe),
        }


def prove_no_saturation(model: onnx.ModelProto) -> SaturationProof:
    """Bound the 16-bit pair sums of every signed weight matrix in the graph."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    lowest, highest, count = 0, 0, 0
    unsafe: list[str] = []
    for name in signed_weights(model):
        low, high = pair_sum_range(numpy_helper.to_array(tensors[name]))
        lowest, highest, count = min(lowest, low), max(highest, high), count + 1
        if low < INT16[0] or high > INT16[1]:
            unsafe.append(name)
    return SaturationProof(count, lowest, highest, tuple(unsafe))


def signed_weights(model: onnx.ModelProto) -> list[str]:
    """The INT8 matrices that the graph multiplies unsigned activations with."""
    signed = {
        tensor.name
        for tensor in model.graph.initializer
        if tensor.data_type == onnx.TensorProto.INT8 and len(tensor.dims) >= 2
    }
    found: list[str] = []
    for node in model.graph.node:
        place = WEIGHT_INPUT.get(node.op_type)
        if place is not None and node.input[place] in signed:
            found.append(node.input[place])
    return found


def pair_sum_range(weights: NDArray[np.int8]) -> tuple[int, int]:
    """Extremes of u8 x s8 sums over neighbours (2k, 2k + 1) along the reduced axis.

    Args:
        weights: int8 (k, n), multiplied from the right.
    """
    rows = weights.reshape(-1, weights.shape[-1]).astype(np.int32)
    if len(rows) % 2:
        rows = np.concatenate([rows, np.zeros_like(rows[:1])])
    pairs = rows.reshape(-1, 2, rows.shape[-1])
    high = np.maximum(pairs, 0).sum(axis=1).max() * LARGEST_ACTIVATION
    low = np.minimum(pairs, 0).sum(axis=1).min() * LARGEST_ACTIVATION
    return int(low), int(high)


def quantised_share(model: onnx.ModelProto) -> float:
    """Share of the weights in matrix products that are 8 bits wide, by number of weights."""
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    dequantised = {
        node.output[0]: node.input[0]
        for node in model.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in tensors
    }
    small, all_of_them = 0, 0
    for node in model.graph.node:
        if node.op_type not in (*WEIGHT_INPUT, "MatMul", "Gemm", "Attention"):
            continue
        weight = tensors.get(dequantised.get(node.input[1], node.input[1]))
        if weight is None:
            continue
        size = int(np.prod(weight.dims))
        all_of_them += size
        if weight.data_type in (onnx.TensorProto.INT8, onnx.TensorProto.UINT8):
            small += size
    return small / all_of_them if all_of_them else 0.0
