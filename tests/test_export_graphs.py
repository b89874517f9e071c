"""Edits of graphs keep their meaning: INT8 rows and columns, FP16 weights shared by two graphs."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("optimum", reason="needs the export extra")

from export import channels, graph, half, rows
from export.options import DRAFTER_TARGETS
from export.quantization import (
    pair_sum_range,
    prove_no_saturation,
    quantise_dynamic,
    quantised_share,
    schemes_for,
)


def run(model, **feeds):
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    return session.run(None, feeds)[0]


def product_graph(weights, *, gelu=False):
    """x (batch, sequence, k) -> x @ weights, or Gelu(x) @ weights."""
    source = "x"
    nodes = []
    if gelu:
        nodes.append(helper.make_node("Gelu", ["x"], ["g"], "gelu", domain="com.microsoft"))
        source = "g"
    nodes.append(helper.make_node("MatMul", [source, "w"], ["y"], "product"))
    body = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", weights.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", weights.shape[1]])],
        [numpy_helper.from_array(weights, "w")],
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(body, opset_imports=opsets, ir_version=9)


def relative(measured, expected):
    return float(np.sqrt(np.mean((measured - expected) ** 2)) / expected.std())


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("gelu", [False, True])
def test_a_loud_token_does_not_cost_the_others_their_bits(gelu, fused):
    """Guards one scale a batch: one token 300 times as loud would leave the others 1 step."""
    generator = np.random.default_rng(0)
    weights = generator.normal(size=(64, 32)).astype(np.float32)
    x = generator.normal(size=(2, 9, 64)).astype(np.float32)
    x[0, 4] *= 300
    model = product_graph(weights, gelu=gelu)
    expected = run(model, x=x)
    assert rows.scale_rows(model, limit_pairs=False, spared=[], fused=fused) == 1
    assert quantised_share(model) == 1.0
    measured = run(model, x=x)
    quiet = np.ones((2, 9), dtype=bool)
    quiet[0, 4] = False
    assert relative(measured[quiet], expected[quiet]) < 0.02
    assert relative(measured[~quiet], expected[~quiet]) < 0.02


def test_a_window_does_not_depend_on_its_batch():
    generator = np.random.default_rng(1)
    model = product_graph(generator.normal(size=(64, 32)).astype(np.float32))
    rows.scale_rows(model, limit_pairs=True, spared=[], fused=True)
    x = generator.normal(size=(3, 5, 64)).astype(np.float32)
    alone = run(model, x=x[:1])
    x[1:] *= 100
    np.testing.assert_array_equal(run(model, x=x)[:1], alone)


def test_rows_of_zeros_stay_zero_and_finite():
    model = product_graph(np.ones((8, 4), dtype=np.float32))
    rows.scale_rows(model, limit_pairs=True, spared=[], fused=True)
    x = np.zeros((1, 3, 8), dtype=np.float32)
    np.testing.assert_array_equal(run(model, x=x), np.zeros((1, 3, 4), dtype=np.float32))


def test_gelu_below_its_least_value_is_not_clipped():
    """GELU's lowest value, alone in a row of small ones, must survive its own zero point."""
    x = np.full((1, 1, 8), -0.7517916, dtype=np.float32)
    model = product_graph(np.eye(8, dtype=np.float32), gelu=True)
    expected = run(model, x=x)
    rows.scale_rows(model, limit_pairs=False, spared=[], fused=True)
    np.testing.assert_allclose(run(model, x=x), expected, atol=0.003)


def erf_gelu_graph(weights):
    """x * (1 + erf(x / sqrt 2)) / 2 @ weights, as PyTorch exports it."""
    constants = {"root": np.sqrt(2.0), "one": 1.0, "half": 0.5}
    body = helper.make_graph(
        [
            helper.make_node("Div", ["x", "root"], ["d"]),
            helper.make_node("Erf", ["d"], ["e"]),
            helper.make_node("Add", ["e", "one"], ["a"]),
            helper.make_node("Mul", ["x", "a"], ["m"]),
            helper.make_node("Mul", ["m", "half"], ["g"]),
            helper.make_node("MatMul", ["g", "w"], ["y"], "product"),
        ],
        "gelu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", weights.shape[0]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", weights.shape[1]])],
        [
            numpy_helper.from_array(weights, "w"),
            *(
                numpy_helper.from_array(np.float32(value), name)
                for name, value in constants.items()
            ),
        ],
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_an_unfused_gelu_is_recognised():
    """Its outputs are nearly all positive: the zero point must not waste half of the steps."""
    generator = np.random.default_rng(8)
    model = erf_gelu_graph(generator.normal(size=(64, 32)).astype(np.float32))
    x = generator.normal(size=(2, 5, 64)).astype(np.float32)
    expected = run(model, x=x)
    rows.scale_rows(model, limit_pairs=False, spared=[], fused=False)
    assert "row_zero_36" in {tensor.name for tensor in model.graph.initializer}
    assert relative(run(model, x=x), expected) < 0.01


def test_spared_products_stay_float():
    model = product_graph(np.ones((8, 4), dtype=np.float32))
    assert rows.scale_rows(model, limit_pairs=True, spared=["product"], fused=True) == 0
    assert [node.op_type for node in model.graph.node] == ["MatMul"]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(1, 20))
def test_limited_pairs_never_saturate(seed, depth, width):
    """Heavy-tailed weights, odd depths: the sum of any pair fits 16 bits, exactly."""
    weights = np.random.default_rng(seed).standard_cauchy((depth, width)).astype(np.float32)
    values, scales = rows.quantise_columns(weights, limit_pairs=True)
    low, high = pair_sum_range(values)
    assert low >= -32768
    assert high <= 32767
    assert np.isfinite(scales).all()


def test_full_range_weights_can_saturate_and_the_proof_sees_it():
    weights = np.full((4, 2), 1.0, dtype=np.float32)
    model = product_graph(weights)
    rows.scale_rows(model, limit_pairs=False, spared=[], fused=True)
    proof = prove_no_saturation(model)
    assert not proof.safe
    assert proof.highest == 255 * 254
    limited = product_graph(weights)
    rows.scale_rows(limited, limit_pairs=True, spared=[], fused=True)
    assert prove_no_saturation(limited).safe


def test_pair_sums_against_the_instruction():
    """The bound is reached by the 16-bit saturating arithmetic itself, emulated here."""
    generator = np.random.default_rng(3)
    weights = generator.integers(-127, 128, (64, 5)).astype(np.int8)
    low, high = pair_sum_range(weights)
    pairs = weights.reshape(-1, 2, 5).astype(np.int32)
    loudest = 255 * (pairs > 0)  # the activations that drive each pair highest
    assert (pairs * loudest).sum(axis=1).max() == high
    quietest = 255 * (pairs < 0)
    assert (pairs * quietest).sum(axis=1).min() == low


def test_every_target_has_schemes_fastest_first():
    for target in DRAFTER_TARGETS:
        schemes = schemes_for(target)
        assert len({scheme.name for scheme in schemes}) == len(schemes)
        assert schemes[0].attention
        assert schemes[0].embeddings or schemes[0].whole
    assert all(s.reduced for s in schemes_for("x86") if s.weights == "int8")
    assert not any(s.reduced for s in schemes_for("x86-vnni"))
    assert all(s.weights == "int8" for s in schemes_for("arm64"))
    assert all(s.static for s in (*schemes_for("openvino"), *schemes_for("qnn")))


def embedding_graph(table):
    body = helper.make_graph(
        [helper.make_node("Gather", ["table", "ids"], ["y"], "lookup")],
        "lookup",
        [helper.make_tensor_value_info("ids", TensorProto.INT64, ["b", "s"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", table.shape[1]])],
        [numpy_helper.from_array(table, "table")],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(body, opset_imports=opsets, ir_version=9)


def test_int8_embeddings_keep_each_row_to_its_own_scale():
    generator = np.random.default_rng(4)
    table = generator.normal(size=(2000, 16)).astype(np.float32)
    table[7] *= 1000
    table[9] = 0
    model = embedding_graph(table)
    ids = np.array([[0, 7, 9, 1999]])
    assert graph.load_int8_embeddings(model) == 1
    measured = run(model, ids=ids)[0]
    peaks = np.abs(table[ids[0]]).max(axis=1, keepdims=True)
    assert (np.abs(measured - table[ids[0]]) <= peaks / 254 + 1e-6).all()
    assert graph.weight_bytes(model)["int8"] == table.size


def test_small_tables_stay_float():
    model = embedding_graph(np.ones((512, 4), dtype=np.float32))
    assert graph.load_int8_embeddings(model) == 0


def two_layer_graph(bias):
    """x -> x @ a + bias -> @ b, weights large enough for the weight file."""
    generator = np.random.default_rng(5)
    weights = {
        "a": generator.normal(size=(32, 32)).astype(np.float32),
        "b": (generator.normal(size=(32, 32)) / 100).astype(np.float32),
        "bias": np.full(32, bias, dtype=np.float32),
    }
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "a"], ["h"], "first"),
            helper.make_node("Add", ["h", "bias"], ["hb"], "shift"),
            helper.make_node("MatMul", ["hb", "b"], ["y"], "second"),
        ],
        "two",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 32])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 32])],
        [numpy_helper.from_array(values, name) for name, values in weights.items()],
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


@pytest.mark.parametrize("bias", [0.0, 60_000.0])
def test_two_graphs_share_one_fp16_file(tmp_path, bias):
    x = np.random.default_rng(6).normal(size=(4, 32)).astype(np.float32)
    model = two_layer_graph(bias)
    expected = run(model, x=x)
    peaks = half.measure_peaks(model, iter([{"x": x}]), tmp_path)
    blocked = half.out_of_range_nodes(model, peaks)
    assert bool(blocked) == (bias > 0)
    graphs = half.make_half_graphs(model, blocked, peaks)
    files = half.save_half_graphs(graphs, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"weights.bin", *files.values()}
    for file in files.values():
        session = onnxruntime.InferenceSession(tmp_path / file, providers=["CPUExecutionProvider"])
        [measured] = session.run(None, {"x": x})
        assert measured.dtype == np.float32
        np.testing.assert_allclose(
            measured, expected, rtol=0.01, atol=0.01 * np.abs(expected).max()
        )


@pytest.mark.parametrize(("bias", "kept"), [(True, False), (False, False), (True, True)])
def test_split_norms_compute_what_the_fused_ones_did(bias, kept):
    """With and without the bias, and where the sum is read by others too."""
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=8).astype(np.float32) for name in ("scale", "shift", "bias")}
    node = helper.make_node(
        "SkipLayerNormalization",
        ["x", "skip", "scale", "shift", *(["bias"] if bias else [])],
        ["normed", "", "", "sum"] if kept else ["normed"],
        name="norm",
        domain="com.microsoft",
        epsilon=1e-5,
    )
    nodes = [node, helper.make_node("Add", ["normed", "sum" if kept else "x"], ["out"])]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length", 8])
        for name in ("x", "skip", "out")
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "norm", values[:2], values[2:], initializers),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )
    feeds = {name: rng.normal(size=(2, 3, 8)).astype(np.float32) for name in ("x", "skip")}
    before = run(model, **feeds)
    graph.take_apart(model)
    assert "SkipLayerNormalization" not in graph.node_counts(model)
    np.testing.assert_allclose(run(model, **feeds), before, atol=1e-5)


def norms_and_gelus():
    """A norm with its residual, then GELUs with their biases, as the optimiser fuses them."""
    rng = np.random.default_rng(0)
    constants = {
        name: rng.normal(size=8).astype(np.float32) for name in ("scale", "shift", "bias")
    } | {"w": rng.normal(size=(8, 8)).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["xw"], "first"),
        helper.make_node(
            "SkipLayerNormalization",
            ["xw", "x", "scale", "shift", "bias"],
            ["y"],
            "norm",
            domain="com.microsoft",
            epsilon=1e-5,
        ),
        helper.make_node("MatMul", ["y", "w"], ["yw"], "second"),
        helper.make_node("BiasGelu", ["yw", "bias"], ["g"], "gelu", domain="com.microsoft"),
        helper.make_node("MatMul", ["g", "w"], ["gw"], "third"),
        helper.make_node("FastGelu", ["gw", "bias"], ["f"], "fast", domain="com.microsoft"),
        helper.make_node("FastGelu", ["f"], ["out"], "without", domain="com.microsoft"),
    ]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", "length", 8])
        for name in ("x", "out")
    ]
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return helper.make_model(
        helper.make_graph(nodes, "norms", values[:1], values[1:], initializers),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )


def test_parts_compute_what_the_fused_operators_did():
    model = norms_and_gelus()
    x = np.random.default_rng(1).normal(size=(2, 3, 8)).astype(np.float32)
    before = run(model, x=x)
    graph.take_apart(model)
    counts = graph.node_counts(model)
    assert counts == {
        "MatMul": 3,
        "Add": 3,
        "FastGelu": 2,
        "Sum": 1,
        "LayerNormalization": 1,
        "Gelu": 1,
    }
    np.testing.assert_allclose(run(model, x=x), before, atol=1e-5)


def norm_graph(scale, shift, weights):
    """Norms of x and of 2 x with one scale and shift, each times the same matrix, and the first."""
    norm = {"axis": -1, "epsilon": 1e-5}
    nodes = [
        helper.make_node("LayerNormalization", ["x", "scale", "shift"], ["n"], "norm", **norm),
        helper.make_node("MatMul", ["n", "w"], ["nw"], "product"),
        helper.make_node("Add", ["x", "n"], ["x2"], "sum"),
        helper.make_node("LayerNormalization", ["x2", "scale", "shift"], ["m"], "again", **norm),
        helper.make_node("MatMul", ["m", "w"], ["mw"], "another"),
        helper.make_node("Add", ["nw", "mw"], ["y"], "both"),
    ]
    values = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", "s", len(scale)]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", "s", weights.shape[1]]),
    ]
    constants = {"scale": scale, "shift": shift, "w": weights}
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return helper.make_model(
        helper.make_graph(nodes, "norms", values[:1], values[1:], initializers),
        opset_imports=[helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)],
        ir_version=10,
    )


def loud_norm():
    """A norm with two loud channels and one that is off."""
    rng = np.random.default_rng(3)
    scale = rng.uniform(0.5, 1.5, 64).astype(np.float32)
    scale[[5, 40]] *= 20
    shift = rng.normal(size=64).astype(np.float32)
    scale[9] = shift[9] = 0
    weights = rng.normal(size=(64, 32)).astype(np.float32)
    weights[[5, 40]] /= 20  # training leaves them small where the channel is loud
    return norm_graph(scale, shift, weights), rng.normal(size=(2, 9, 64)).astype(np.float32)


def test_even_channels_compute_the_same_in_float():
    """Also where two norms share their weights, as ALBERT's layers do, and a channel is off."""
    model, x = loud_norm()
    before = run(model, x=x)
    assert channels.even_channels(model) == 2
    assert graph.node_counts(model)["Mul"] == 2
    names = {tensor.name for tensor in model.graph.initializer}
    assert names == {"scale", "shift", "scale_evening", "w_scale"}
    np.testing.assert_allclose(run(model, x=x), before, rtol=1e-4, atol=1e-4)


def test_loud_channels_do_not_cost_the_others_their_bits(tmp_path):
    """Guards one scale for loud and quiet channels: their error is at least halved."""
    errors = {}
    for scheme in schemes_for("x86")[:2]:
        model, x = loud_norm()
        expected = run(model, x=x)
        graph.save(model, tmp_path / "base.onnx")
        quantised = quantise_dynamic(tmp_path / "base.onnx", scheme, tmp_path / "int8.onnx")
        errors[scheme.even] = relative(run(quantised, x=x), expected)
    assert errors[True] < 0.02
    assert errors[True] < errors[False] / 2


def test_only_products_behind_gelu_take_a_scale_a_token():
    model = norms_and_gelus()
    count = rows.scale_rows(model, limit_pairs=True, spared=[], fused=True, only_after_gelu=True)
    assert count == 1
    assert graph.node_counts(model)["MatMul"] == 2


def test_onnx_runtime_leaves_the_parts_of_an_int8_graph_apart(tmp_path):
    """Guards the speed: fused again at load, the same graph took a quarter more time."""
    model = norms_and_gelus()
    graph.take_apart(model)
    graph.save(model, tmp_path / "base.onnx")
    plain = schemes_for("x86")[0]
    quantise_dynamic(tmp_path / "base.onnx", plain, tmp_path / "int8.onnx")
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "loaded.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(
        tmp_path / "int8.onnx", options, providers=["CPUExecutionProvider"]
    )
    counts = graph.node_counts(onnx.load(str(tmp_path / "loaded.onnx")))
    assert counts["DynamicQuantizeMatMul"] == 3
    assert counts["LayerNormalization"] == counts["Gelu"] == 1
    assert not {"SkipLayerNormalization", "BiasGelu", "Add"} & set(counts)


def test_a_bundle_of_graphs_is_relocatable(tmp_path):
    """External data is found beside the graph, wherever the folder is moved to."""
    x = np.ones((1, 32), dtype=np.float32)
    model = two_layer_graph(0.0)
    (tmp_path / "here").mkdir()
    peaks = half.measure_peaks(model, iter([{"x": x}]), tmp_path)
    half.save_half_graphs(half.make_half_graphs(model, (), peaks), tmp_path / "here")
    (tmp_path / "here").rename(tmp_path / "there")
    session = onnxruntime.InferenceSession(
        tmp_path / "there" / "model.fp32.onnx", providers=["CPUExecutionProvider"]
    )
    assert np.isfinite(session.run(None, {"x": x})[0]).all()


def test_gathered_halves_are_widened_after_the_lookup():
    """Guards memory: the embedding table stays FP16, only the rows looked up become FP32."""
    table = np.random.default_rng(7).normal(size=(2000, 16)).astype(np.float32)
    model = graph.widen_half_weights(embedding_graph(table), {"table"})
    assert [node.op_type for node in model.graph.node] == ["Gather", "Cast"]
    ids = np.array([[3, 4]])
    np.testing.assert_array_equal(
        run(model, ids=ids)[0], table[[3, 4]].astype(np.float16).astype(np.float32)
    )


def test_frozen_shapes_are_written_and_the_original_kept():
    model = embedding_graph(np.ones((1000, 4), dtype=np.float32))
    model.graph.output.pop()
    frozen = graph.freeze_shapes(model, 1, 64)
    dims = frozen.graph.input[0].type.tensor_type.shape.dim
    assert [dim.dim_value for dim in dims] == [1, 64]
    assert model.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "b"


def test_weight_file_keeps_pages_apart(tmp_path):
    weights = graph.WeightFile(tmp_path / "weights.bin")
    tensors = [
        numpy_helper.from_array(np.full(3000, value, dtype=np.float32), str(value))
        for value in range(3)
    ]
    for tensor in tensors:
        weights.move(tensor)
    offsets = [int(tensor.external_data[1].value) for tensor in tensors]
    assert all(offset % 4096 == 0 for offset in offsets)
    assert len(set(offsets)) == 3
    body = helper.make_graph([], "g", [], [], tensors)
    onnx.save(helper.make_model(body), tmp_path / "m.onnx")
    loaded = onnx.load(tmp_path / "m.onnx")
    for value, tensor in enumerate(loaded.graph.initializer):
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), np.full(3000, value))
