"""A PyTorch question-answering model -> ONNX graphs: exported, fused, and edited without loss.

The exporter is optimum's, the fusions are ONNX Runtime's. Ours is only what they lack: word
embeddings in INT8 with one scale a row, and two graphs (FP16 for GPUs, FP32 for CPUs) over one
FP16 weight file.
"""

from __future__ import annotations

import logging
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

OPSET = 18
OUTPUTS = ("start_logits", "end_logits")
FUSED_OPERATORS = (
    "Attention",
    "MultiHeadAttention",
    "EmbedLayerNormalization",
    "SkipLayerNormalization",
    "LayerNormalization",
    "BiasGelu",
    "FastGelu",
    "Gelu",
)
BIASED_GELUS = {"BiasGelu": "Gelu", "FastGelu": "FastGelu"}  # and the same without a bias
# Models of this kind keep their attention as it is: relative positions are not in the fused op.
UNFUSED_ATTENTION = ("deberta-v2", "mpnet")
EMBEDDING_ROWS = 1000  # tables with fewer rows (positions, types) are too small to quantise
EXTERNAL_FROM = 1024  # bytes; smaller tensors stay inside the graph file
_MASKS_BELOW = -1e30
_ALIGNMENT = 4096  # bytes; external tensors begin on a page, so that they can be memory-mapped


def export_float(model: Any, folder: Path) -> Path:
    """Export a PyTorch model to `folder/model.onnx`, FP32, batch and sequence free.

    Args:
        model: a transformers `...ForQuestionAnswering` in FP32.
    """
    from optimum.exporters.onnx import onnx_export_from_model

    with quiet():
        onnx_export_from_model(
            model,
            output=folder,
            task="question-answering",
            opset=OPSET,
            do_validation=False,
        )
    return folder / "model.onnx"


def fuse(path: Path, model_type: str, heads: int, hidden: int) -> onnx.ModelProto:
    """Apply ONNX Runtime's transformer fusions to the FP32 graph at `path`.

    Args:
        model_type: the Hugging Face family, such as "bert".

    The embedding layer stays apart: as one fused operator it would hold its table in FP32.
    """
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    options = FusionOptions("bert")
    options.enable_embed_layer_norm = False
    options.enable_attention = model_type not in UNFUSED_ATTENTION
    options.use_raw_attention_mask(True)  # lengths alone would misread padding on the left
    with quiet():
        optimised = optimize_model(
            str(path),
            "bert",
            num_heads=heads,
            hidden_size=hidden,
            optimization_options=options,
            opt_level=1,
        )
    model: onnx.ModelProto = optimised.model
    name_nodes(model)
    return model


def take_apart(model: onnx.ModelProto) -> None:
    """Undo, in place, the fusions whose CPU kernels are slower than their parts.

    SkipLayerNormalization becomes additions and a LayerNormalization: 3.8 ms against 0.8 for
    1,280 x 384 with ONNX Runtime 1.32, no difference with 1.23. A biased GELU becomes an addition
    and a GELU: an INT8 product adds the bias in passing. The residual is added by a Sum, because
    ONNX Runtime would fuse an Add again when it loads the graph.
    """
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        if node.op_type == "SkipLayerNormalization":
            nodes += _norm_parts(node)
        elif node.op_type in BIASED_GELUS and len(node.input) > 1:
            nodes += _gelu_parts(node)
        else:
            nodes.append(node)
    replace_nodes(model, nodes)


def _gelu_parts(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    biased = f"{node.name}_biased"
    yield helper.make_node("Add", list(node.input), [biased], name=biased)
    operator = BIASED_GELUS[node.op_type]
    yield helper.make_node(operator, [biased], node.output, name=node.name, domain=node.domain)


def _norm_parts(node: onnx.NodeProto) -> Iterator[onnx.NodeProto]:
    first, skip, scale, shift, *bias = node.input
    kept = node.output[3] if len(node.output) > 3 else ""  # the sum, where others read it too
    if bias and bias[0]:
        biased = f"{node.name}_biased"
        yield helper.make_node("Add", [first, bias[0]], [biased], name=biased)
        first = biased
    total = kept or f"{node.name}_sum"
    yield helper.make_node("Sum", [first, skip], [total], name=f"{node.name}_sum")
    epsilon = helper.get_node_attr_value(node, "epsilon")
    yield helper.make_node(
        "LayerNormalization",
        [total, scale, shift],
        [node.output[0]],
        name=f"{node.name}_norm",
        axis=-1,
        epsilon=epsilon,
    )


def replace_nodes(model: onnx.ModelProto, nodes: Sequence[onnx.NodeProto]) -> None:
    """Put `nodes` in the place of the graph's own, among which they may be."""
    del model.graph.node[:]
    model.graph.node.extend(nodes)


class Constants:
    """Constants added to a graph, each name once."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._model = model
        self._names: set[str] = set()

    def add(self, name: str, values: Any) -> str:
        """The name, of an initializer from now on."""
        if name not in self._names:
            self._names.add(name)
            self._model.graph.initializer.append(numpy_helper.from_array(np.asarray(values), name))
        return name


def node_counts(model: onnx.ModelProto) -> dict[str, int]:
    """How many nodes of each type, most frequent first."""
    return dict(Counter(node.op_type for node in model.graph.node).most_common())


def fused_patterns(model: onnx.ModelProto) -> dict[str, int]:
    """How many of each fused operator."""
    counts = node_counts(model)
    counts["Attention"] = counts.get("Attention", 0) + counts.get("QAttention", 0)
    return {name: counts[name] for name in FUSED_OPERATORS if counts.get(name)}


def weight_bytes(model: onnx.ModelProto) -> dict[str, int]:
    """Bytes of weights held in each element type, largest first."""
    totals: Counter[str] = Counter()
    for tensor in model.graph.initializer:
        name = TensorProto.DataType.Name(tensor.data_type).lower()
        totals[name] += numpy_helper.to_array(tensor).nbytes
    return dict(totals.most_common())


def opset(path: Path) -> int:
    """The version of the standard operators in the graph file at `path`."""
    model = onnx.load(str(path), load_external_data=False)
    return int(next(each.version for each in model.opset_import if not each.domain))


def head_nodes(model: onnx.ModelProto) -> list[str]:
    """The names of the matrix products nearest to the outputs: the question-answering head."""
    producers = {name: node for node in model.graph.node for name in node.output}
    found: list[str] = []
    pending = [output.name for output in model.graph.output]
    seen: set[str] = set()
    while pending:
        node = producers.get(pending.pop())
        if node is None or node.name in seen:
            continue
        seen.add(node.name)
        if node.op_type in ("MatMul", "Gemm"):
            found.append(node.name)
        else:
            pending.extend(node.input)
    return found


def name_nodes(model: onnx.ModelProto) -> None:
    """Give every node a name of its own; the quantiser and the block lists go by names."""
    taken: set[str] = set()
    for index, node in enumerate(model.graph.node):
        if not node.name or node.name in taken:
            node.name = f"{node.op_type}_{index}"
        taken.add(node.name)


def load_int8_embeddings(model: onnx.ModelProto) -> int:
    """Replace the large FP32 embedding tables by INT8 rows, each with its own scale.

    `Gather(table, ids)` becomes `Cast(Gather(rows, ids)) * Gather(scales, ids)`: standard
    operators only, and an error of at most 1/254 of the row's largest weight.

    Returns:
        How many tables were replaced.
    """
    tables = {tensor.name: tensor for tensor in model.graph.initializer}
    replaced: dict[str, tuple[str, str]] = {}
    nodes: list[onnx.NodeProto] = []
    for node in model.graph.node:
        table = tables.get(node.input[0]) if node.op_type == "Gather" else None
        if table is None or not _is_embedding(table):
            nodes.append(node)
            continue
        if table.name not in replaced:
            replaced[table.name] = _quantise_rows(model, table)
        nodes.extend(_gather_rows(node, *replaced[table.name]))
    replace_nodes(model, nodes)
    drop_unused(model)
    return len(replaced)


def quantise_rows(
    table: NDArray[np.float32],
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """INT8 rows (n, width) and their scales (n, 1), so that rows * scales is close to `table`."""
    peak = np.abs(table).max(axis=1, keepdims=True)
    scales = np.where(peak > 0, peak / 127.0, 1.0).astype(np.float32)
    return np.rint(table / scales).clip(-127, 127).astype(np.int8), scales


def _is_embedding(tensor: onnx.TensorProto) -> bool:
    return (
        tensor.data_type == TensorProto.FLOAT
        and len(tensor.dims) == 2
        and tensor.dims[0] >= EMBEDDING_ROWS
    )


def _quantise_rows(model: onnx.ModelProto, table: onnx.TensorProto) -> tuple[str, str]:
    rows, scales = quantise_rows(numpy_helper.to_array(table))
    names = (f"{table.name}_int8", f"{table.name}_scales")
    model.graph.initializer.append(numpy_helper.from_array(rows, names[0]))
    model.graph.initializer.append(numpy_helper.from_array(scales, names[1]))
    return names


def _gather_rows(node: onnx.NodeProto, rows: str, scales: str) -> list[onnx.NodeProto]:
    ids, output = node.input[1], node.output[0]
    picked, as_float, scale = (f"{output}_{part}" for part in ("int8", "float", "scale"))
    return [
        helper.make_node("Gather", [rows, ids], [picked], f"{node.name}_int8", axis=0),
        helper.make_node("Cast", [picked], [as_float], f"{node.name}_cast", to=TensorProto.FLOAT),
        helper.make_node("Gather", [scales, ids], [scale], f"{node.name}_scale", axis=0),
        helper.make_node("Mul", [as_float, scale], [output], f"{node.name}_mul"),
    ]


def drop_unused(model: onnx.ModelProto) -> None:
    """Remove the initializers that no node reads."""
    used = {name for node in model.graph.node for name in node.input}
    used |= {output.name for output in model.graph.output}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)


def bound_masks(model: onnx.ModelProto, least: float) -> None:
    """Raise what attention adds to hidden tokens, from FP32's lowest number to `least`, in place.

    That number fits no 16 bits. Constants and the fused operators' attribute are changed.
    """
    for tensor in model.graph.initializer:
        if tensor.data_type == TensorProto.FLOAT:
            values = numpy_helper.to_array(tensor)
            if values.size and values.min() < _MASKS_BELOW:
                tensor.CopyFrom(numpy_helper.from_array(np.maximum(values, least), tensor.name))
    for node in model.graph.node:
        for attribute in node.attribute:
            if attribute.name == "mask_filter_value":
                attribute.f = max(attribute.f, least)


def shape_nodes(model: onnx.ModelProto) -> list[str]:
    """Names of the nodes whose values follow from shapes and constants alone.

    Dequantised constants are not among them: those are weights.
    """
    known = {tensor.name for tensor in model.graph.initializer}
    found: list[str] = []
    for node in model.graph.node:
        follows = node.op_type == "Shape" or all(not name or name in known for name in node.input)
        if follows and node.op_type != "DequantizeLinear":
            known.update(node.output)
            found.append(node.name)
    return found


def fold_shapes(model: onnx.ModelProto, mark: str) -> onnx.ModelProto:
    """Replace the shape nodes of a graph with fixed inputs by the constants that they compute.

    Args:
        model: with its weights inside; it is changed and returned.
        mark: ends the new constants' names, which differ from one fixed shape to the next.
    """
    import onnxruntime

    names = set(shape_nodes(model))
    computed = {o for node in model.graph.node if node.name in names for o in node.output}
    kept = [node for node in model.graph.node if node.name not in names]
    wanted = sorted({name for node in kept for name in node.input if name in computed})
    if not wanted:
        return model
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    probe.graph.output.extend(onnx.ValueInfoProto(name=name) for name in wanted)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(
        probe.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {value.name: np.zeros(value.shape, np.int64) for value in session.get_inputs()}
    for name, value in zip(wanted, session.run(wanted, feeds), strict=True):
        model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name + mark))
    for node in kept:
        for index, name in enumerate(node.input):
            node.input[index] = name + mark if name in computed else name
    replace_nodes(model, kept)
    drop_unused(model)
    return model


def freeze_shapes(model: onnx.ModelProto, batch: int, length: int) -> onnx.ModelProto:
    """A copy of the graph with `batch` x `length` written into inputs and outputs."""
    frozen = onnx.ModelProto()
    frozen.CopyFrom(model)
    for value in (*frozen.graph.input, *frozen.graph.output):
        dims = value.type.tensor_type.shape.dim
        for dim, size in zip(dims, (batch, length), strict=True):
            dim.ClearField("dim_param")
            dim.dim_value = size
    del frozen.graph.value_info[:]
    return frozen


class WeightFile:
    """Tensors appended to one external data file that several graphs point into."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._places: dict[tuple[str, int], tuple[int, int]] = {}
        path.write_bytes(b"")

    def move(self, tensor: onnx.TensorProto) -> None:
        """Move the tensor's bytes into the file, once for each name and element type."""
        key = (tensor.name, tensor.data_type)
        if key not in self._places:
            self._places[key] = self._append(numpy_helper.to_array(tensor))
        offset, length = self._places[key]
        tensor.ClearField("raw_data")
        for values in ("float_data", "int32_data", "int64_data", "double_data", "uint64_data"):
            tensor.ClearField(values)
        del tensor.external_data[:]
        tensor.data_location = TensorProto.EXTERNAL
        facts = {"location": self.path.name, "offset": str(offset), "length": str(length)}
        for name, value in facts.items():
            tensor.external_data.add(key=name, value=value)

    def _append(self, values: NDArray[Any]) -> tuple[int, int]:
        with self.path.open("ab") as stream:
            end = stream.tell()
            stream.write(b"\0" * (-end % _ALIGNMENT if values.nbytes >= _ALIGNMENT else -end % 64))
            offset = stream.tell()
            stream.write(np.ascontiguousarray(values).tobytes())
        return offset, values.nbytes


def save(model: onnx.ModelProto, path: Path, weights: WeightFile | None = None) -> None:
    """Write a graph; with `weights`, its larger tensors go to that file beside it."""
    if weights is not None:
        for tensor in model.graph.initializer:
            if numpy_helper.to_array(tensor).nbytes >= EXTERNAL_FROM:
                weights.move(tensor)
    path.write_bytes(model.SerializeToString())


def widen_half_weights(model: onnx.ModelProto, halves: set[str]) -> onnx.ModelProto:
    """An FP32 graph whose weights named in `halves` are FP16, each behind a Cast to FP32.

    ONNX Runtime folds the Cast of a constant when it loads the graph, so running costs nothing.
    Tables that are only gathered from are widened behind the Gather instead: their rows, not the
    whole, so that they stay FP16 in memory. The model passed in is changed and returned.
    """
    for tensor in model.graph.initializer:
        if tensor.name in halves and tensor.data_type == TensorProto.FLOAT:
            values = to_half(numpy_helper.to_array(tensor))
            tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    gathered = halves & _only_gathered(model)
    nodes = [_widening(name, f"{name}_fp32") for name in sorted(halves - gathered)]
    renamed = {node.input[0]: node.output[0] for node in nodes}
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            node.input[index] = renamed.get(name, name)
        nodes.append(node)
        if node.op_type == "Gather" and node.input[0] in gathered:
            wide = node.output[0]
            node.output[0] = f"{wide}_half"
            nodes.append(_widening(node.output[0], wide))
    replace_nodes(model, nodes)
    return model


def _only_gathered(model: onnx.ModelProto) -> set[str]:
    """Names that appear as a Gather's table and nowhere else."""
    tables: set[str] = set()
    others: set[str] = set()
    for node in model.graph.node:
        for index, name in enumerate(node.input):
            (tables if node.op_type == "Gather" and index == 0 else others).add(name)
    return tables - others


def _widening(source: str, target: str) -> onnx.NodeProto:
    return helper.make_node("Cast", [source], [target], f"widen_{source}", to=TensorProto.FLOAT)


def to_half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Rounded to FP16; what would overflow becomes the largest finite FP16 number."""
    limit = np.finfo(np.float16).max
    return np.clip(values, -limit, limit).astype(np.float16)


@contextmanager
def quiet() -> Iterator[None]:
    """Hold back the warnings and notes of the exporters; errors still come through."""
    loggers = [logging.getLogger(name) for name in ("optimum", "transformers", "onnxruntime", "")]
    levels = [logger.level for logger in loggers]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)
