"""A drafter bundle -> what share of this machine's INT8 matrix-multiply peak it reaches.

Theory: a transformer's time is its matrix products plus everything else (norms, GELU, softmax,
quantising, copies). The products' own speed is measured by single-node graphs with the drafter's
very weights and shapes; the best of them is the peak that ONNX Runtime reaches here. From it follow
two shares: how near the products of these shapes come to the peak, and how much of a whole pass
is products at all. Products of activations with activations (attention's scores) are FP32 and
count as "everything else".

All graphs run interleaved, warmed up; medians of rounds; the last line is one JSON object.

    python -m benchmarks.int8_peak BUNDLE [--batch 10] [--length 128] [--threads 2]
"""

from __future__ import annotations

import argparse
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks import machine
from models.bundle import open_bundle

Feeds = dict[str, NDArray[Any]]


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and one JSON line last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--batch", type=int, default=10)
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--rounds", type=int, default=21)
    chosen = parser.parse_args(arguments)
    report = measure_bundle(
        chosen.bundle, chosen.batch, chosen.length, chosen.threads, chosen.rounds
    )
    print_report(report)
    print(json.dumps({"machine": machine.describe(), **report}))


def measure_bundle(
    path: Path, batch: int, length: int, threads: int, rounds: int
) -> dict[str, Any]:
    """The shapes' speeds, the pass's, and the shares."""
    from export.latency import measure, random_feeds
    from export.parity import open_runner

    bundle = open_bundle(path, role="drafter")
    shapes = quantised_shapes(onnx.load(str(bundle.graph("int8"))))
    rows = batch * length
    run = open_runner(bundle.graph("int8"), threads)
    feeds = random_feeds(int(bundle.manifest.details["vocabulary"]), batch, length)
    runners: dict[str, Callable[[Any], object]] = {"drafter": run}
    for shape in shapes:
        product = product_runner(*shape, rows, threads)
        runners[_name(shape)] = product
    times = measure(runners, feeds, threads=threads, rounds=rounds, seconds=120).median_ms
    speeds = {
        _name(shape): 2 * rows * shape[0] * shape[1] / times[_name(shape)] / 1e6 for shape in shapes
    }
    operations = sum(2 * rows * k * n * count for (k, n), count in shapes.items())
    products_ms = sum(times[_name(shape)] * count for shape, count in shapes.items())
    peak = max(speeds.values())
    return {
        "bundle": bundle.manifest.name,
        "batch": batch,
        "length": length,
        "threads": threads,
        "drafter_ms": round(times["drafter"], 2),
        "products_ms": round(products_ms, 2),
        "gops_by_shape": {name: round(speed, 1) for name, speed in speeds.items()},
        "peak_gops": round(peak, 1),
        "drafter_gops": round(operations / times["drafter"] / 1e6, 1),
        "share_of_peak": round(operations / times["drafter"] / 1e6 / peak, 3),
        "products_share_of_time": round(products_ms / times["drafter"], 3),
    }


def _name(shape: tuple[int, int]) -> str:
    return f"{shape[0]}x{shape[1]}"


def quantised_shapes(model: onnx.ModelProto) -> Counter[tuple[int, int]]:
    """(k, n) of each INT8 matrix in a product, and how many there are."""
    matrices = {
        tensor.name: tuple(tensor.dims)
        for tensor in model.graph.initializer
        if tensor.data_type in (TensorProto.INT8, TensorProto.UINT8) and len(tensor.dims) == 2
    }
    products = ("MatMulInteger", "MatMulIntegerToFloat", "QAttention")
    return Counter(
        matrices[node.input[1]]
        for node in model.graph.node
        if node.op_type in products and node.input[1] in matrices
    )


def product_runner(k: int, n: int, rows: int, threads: int) -> Callable[[object], object]:
    """One product (rows, k) x (k, n), unsigned by signed, as ONNX Runtime runs it."""
    import onnxruntime

    generator = np.random.default_rng(0)
    weights = generator.integers(-64, 65, (k, n)).astype(np.int8)
    body = helper.make_graph(
        [helper.make_node("MatMulInteger", ["a", "w", "zero"], ["y"], "product")],
        "product",
        [helper.make_tensor_value_info("a", TensorProto.UINT8, [rows, k])],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [rows, n])],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.uint8(128), "zero"),
        ],
    )
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    feeds = {"a": generator.integers(0, 256, (rows, k)).astype(np.uint8)}
    return lambda _: session.run(None, feeds)


def print_report(report: dict[str, Any]) -> None:
    print(
        f"{report['bundle']}: {report['batch']} x {report['length']} tokens, "
        f"{report['threads']} threads"
    )
    for name, speed in report["gops_by_shape"].items():
        print(f"  product {name:>10}: {speed:8.1f} GOP/s")
    print(
        f"  a pass: {report['drafter_ms']:.1f} ms, of which products "
        f"{report['products_ms']:.1f} ms ({100 * report['products_share_of_time']:.0f} %)\n"
        f"  {report['drafter_gops']:.1f} GOP/s, {100 * report['share_of_peak']:.0f} % of the peak"
        f" of {report['peak_gops']:.1f}"
    )


if __name__ == "__main__":
    main()
