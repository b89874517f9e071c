"""A graph and inputs -> the values that its inner tensors take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray

from export.latency import Feeds


def watch(
    model: onnx.ModelProto, names: Iterable[str], feeds: Iterator[Feeds], work: Path
) -> Iterator[tuple[str, NDArray[np.float32]]]:
    """Run `model` without any optimisation and yield (name, value) of its FP32 tensors.

    Args:
        names: which of the graph's tensors to watch; those of another type are left out.
        work: folder for a copy of the graph in which the tensors are outputs.
    """
    import onnxruntime

    watched = onnx.ModelProto()
    watched.CopyFrom(model)
    outputs = {output.name for output in watched.graph.output}
    # An output without a type takes the one that ONNX Runtime infers.
    wanted = dict.fromkeys(name for name in names if name)
    watched.graph.output.extend(
        onnx.ValueInfoProto(name=name) for name in wanted if name not in outputs
    )
    path = work / "watched.onnx"
    onnx.save(watched, str(path), save_as_external_data=True, location="watched.bin")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (work / "watched.bin").unlink(missing_ok=True)
    path.unlink()
    inputs = [value.name for value in session.get_inputs()]
    floats = [
        value.name
        for value in session.get_outputs()
        if value.type == "tensor(float)" and value.name in wanted
    ]
    for batch in feeds:
        values = session.run(floats, {name: batch[name] for name in inputs})
        yield from zip(floats, values, strict=True)
