"""A fused FP32 graph -> two graphs over one FP16 weight file: FP16 for GPUs, FP32 for CPUs.

What cannot be said in FP16 stays in FP32, by a block list that is measured and not guessed: every
tensor of the graph is looked at while it answers real questions, heavy padding and a row without
a single visible token; nodes that touch a value near the end of FP16's range are left as they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, numpy_helper

from export import graph, parity
from export.latency import Feeds
from export.watching import watch

WEIGHTS = "weights.bin"
FP16_GRAPH = "model.fp16.onnx"
FP32_GRAPH = "model.fp32.onnx"
SAFE = float(np.finfo(np.float16).max) / 4  # room for inputs that were not measured
MASK_VALUE = -10000.0  # inside FP16's range, and exp() of it is still exactly 0
BLOCKED_OPERATORS = (
    "Range",
    "CumSum",
    "Min",
    "Max",
    "TopK",
    "If",
    "Loop",
    "Log",
    "Pow",
    "ReduceMean",
)


@dataclass(frozen=True, slots=True)
class HalfGraphs:
    """The two graphs, and which nodes of the FP16 one stay in FP32 because of their range."""

    half: onnx.ModelProto
    single: onnx.ModelProto
    blocked: tuple[str, ...]


def make_half_graphs(
    fused: onnx.ModelProto, blocked: tuple[str, ...], floats: Iterable[str]
) -> HalfGraphs:
    """Convert `fused` (which is changed) to FP16, and to FP32 over the same FP16 weights.

    Args:
        blocked: names of nodes that stay in FP32, from `out_of_range_nodes`.
        floats: names of all FP32 tensors between nodes, as `measure_peaks` found them.
    """
    from onnxruntime.transformers.onnx_model import OnnxModel

    single = onnx.ModelProto()
    single.CopyFrom(fused)
    _declare_floats(fused, floats)
    wrapped = OnnxModel(fused)
    with graph.quiet():
        wrapped.convert_float_to_float16(
            keep_io_types=True,
            use_symbolic_shape_infer=False,
            op_block_list=list(BLOCKED_OPERATORS),
            node_block_list=list(blocked),
        )
    half: onnx.ModelProto = wrapped.model
    graph.name_nodes(half)
    shared = {
        tensor.name
        for tensor in half.graph.initializer
        if tensor.data_type == TensorProto.FLOAT16
        and numpy_helper.to_array(tensor).nbytes >= graph.EXTERNAL_FROM
    }
    _copy_halves(half, single, shared)
    graph.take_apart(single)
    return HalfGraphs(half, graph.widen_half_weights(single, shared), blocked)


def _copy_halves(half: onnx.ModelProto, single: onnx.ModelProto, names: set[str]) -> None:
    """Both graphs hold the same rounding: the FP32 graph takes over the FP16 weights."""
    rounded = {tensor.name: tensor for tensor in half.graph.initializer if tensor.name in names}
    for tensor in single.graph.initializer:
        if tensor.name in rounded:
            tensor.CopyFrom(rounded[tensor.name])


def save_half_graphs(graphs: HalfGraphs, folder: Path) -> dict[str, str]:
    """Write both graphs and their weight file; returns precision -> file."""
    weights = graph.WeightFile(folder / WEIGHTS)
    graph.save(graphs.half, folder / FP16_GRAPH, weights)
    graph.save(graphs.single, folder / FP32_GRAPH, weights)
    return {"fp16": FP16_GRAPH, "fp32": FP32_GRAPH}


def out_of_range_nodes(fused: onnx.ModelProto, peaks: Mapping[str, float]) -> tuple[str, ...]:
    """Names of the nodes that produce or consume values too large for FP16.

    Args:
        peaks: from `measure_peaks`.
    """
    large = {name for name, peak in peaks.items() if not peak <= SAFE}
    large |= {
        tensor.name
        for tensor in fused.graph.initializer
        if tensor.data_type == TensorProto.FLOAT
        and not np.abs(numpy_helper.to_array(tensor)).max(initial=0.0) <= SAFE
    }
    return tuple(
        node.name
        for node in fused.graph.node
        if large.intersection(node.input) or large.intersection(node.output)
    )


def measure_peaks(fused: onnx.ModelProto, feeds: Iterator[Feeds], work: Path) -> dict[str, float]:
    """The largest absolute value that each float tensor between the graph's nodes takes.

    Args:
        feeds: what to run; the more varied, the better.
        work: folder for a copy of the graph in which every tensor is an output.
    """
    names = [name for node in fused.graph.node for name in node.output]
    peaks: dict[str, float] = {}
    for name, value in watch(fused, names, feeds, work):
        peaks[name] = max(peaks.get(name, 0.0), float(np.abs(value).max(initial=0.0)))
    return peaks


def _declare_floats(model: onnx.ModelProto, names: Iterable[str]) -> None:
    """Say that these tensors are FP32: the converter casts only what it knows the type of."""
    known = {value.name for value in (*model.graph.value_info, *model.graph.output)}
    for name in names:
        if name not in known:
            value = onnx.ValueInfoProto(name=name)
            value.type.tensor_type.elem_type = TensorProto.FLOAT
            model.graph.value_info.append(value)


def stress_feeds(inputs: Feeds, max_length: int) -> Iterator[Feeds]:
    """Inputs at the edges: heavy padding, one visible token, and a fully masked row.

    Args:
        inputs: one real batch, whose first row is used.
        max_length: rows are padded to this many tokens.
    """
    row = {name: values[:1, :max_length] for name, values in inputs.items()}
    width = row["input_ids"].shape[1]
    for visible in (width, 1, 0):
        feeds = {
            name: np.pad(values, ((0, 0), (0, max_length - width))) for name, values in row.items()
        }
        mask: NDArray[np.int64] = np.zeros((1, max_length), dtype=np.int64)
        mask[:, :visible] = 1
        yield {**feeds, "attention_mask": mask}


def is_finite(path: Path, feeds: Iterator[Feeds], threads: int) -> bool:
    """Whether all logits of the graph at `path` are finite on `feeds`."""
    run = parity.open_runner(path, threads)
    return all(bool(np.isfinite(output).all()) for batch in feeds for output in run(batch))
