"""What NPUs and TensorRT get: integers and fixed shapes; standard operators and profiles."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("optimum", reason="needs the export extra")

from export import graph, npu
from export.drafter import export_drafter
from export.options import ExportOptions
from export.verifier import export_verifier
from models.bundle import open_bundle
from runtime.providers import ProviderContext, choose_provider
from runtime.sessions import SessionOptions, open_session
from tests.hf_models import gate_file, make_checkpoint

QUANTISING = ("QuantizeLinear", "DequantizeLinear")


def silent(*_):
    pass


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    gate = gate_file(tmp_path_factory.mktemp("gate") / "gate.jsonl")
    return ExportOptions(
        gate=gate, accept_loss=100.0, offline=True, batch=1, length=16, seconds=0.0, threads=1
    )


@pytest.fixture(scope="module", params=["bert", "distilbert", "roberta", "deberta-v3"])
def qnn(request, options, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    checkpoint = make_checkpoint(folder / "checkpoint", request.param)
    export_drafter(str(checkpoint), folder / "bundle", "qnn", options, silent)
    return open_bundle(folder / "bundle", role="drafter")


def bucket_graphs(bundle):
    return [
        onnx.load(bundle.graph(bucket["graph"])) for bucket in bundle.manifest.details["buckets"]
    ]


def test_no_float_operator_is_left_for_the_cpu(qnn):
    """Every tensor between operators is an integer with a scale: a float one falls off the NPU."""
    for model in bucket_graphs(qnn):
        inferred = onnx.shape_inference.infer_shapes(model)
        types = {v.name: v.type.tensor_type.elem_type for v in inferred.graph.value_info}
        types |= {tensor.name: tensor.data_type for tensor in model.graph.initializer}
        scaled = {n.output[0] for n in model.graph.node if n.op_type == "DequantizeLinear"}
        outputs = {value.name for value in model.graph.output}
        for node in model.graph.node:
            if node.op_type in QUANTISING:
                continue
            floats = {name for name in node.input if types.get(name) == TensorProto.FLOAT}
            assert floats <= scaled, f"{node.op_type} reads floats: {floats - scaled}"
            assert not outputs.intersection(node.output)


def test_every_shape_is_written_down(qnn):
    """A shape that is computed would be computed on the CPU, for an NPU that wants it at once."""
    lengths = [bucket["length"] for bucket in qnn.manifest.details["buckets"]]
    assert lengths == [64, 128]  # the tiny models have 180 positions
    for length, model in zip(lengths, bucket_graphs(qnn), strict=True):
        operators = {node.op_type for node in model.graph.node}
        assert not operators & {"Shape", "ConstantOfShape", "Erf", "Range"}
        for value in (*model.graph.input, *model.graph.output):
            assert [d.dim_value for d in value.type.tensor_type.shape.dim] == [1, length]


def test_activations_have_16_bits_and_weights_8(qnn):
    [model, *_] = bucket_graphs(qnn)
    weights = {t.name: t.data_type for t in model.graph.initializer}
    kinds = {node.op_type: [] for node in model.graph.node}
    producers = {name: node for node in model.graph.node for name in node.output}
    for node in model.graph.node:
        kinds[node.op_type].append([weights.get(producers[i].input[0]) for i in node.input[:2]
                                    if i in producers])  # fmt: skip
    assert [None, TensorProto.UINT8] in kinds["MatMul"]
    assert qnn.manifest.details["quantised_share"] == 1.0
    zero_points = {weights[n.input[2]] for n in model.graph.node if n.op_type == "QuantizeLinear"}
    assert zero_points == {TensorProto.UINT16}


def test_buckets_answer_as_the_free_graph_whatever_their_padding(qnn):
    """Guards two faults: a mask calibrated on windows without padding, which hid nothing, and
    folded constants of one bucket that stand in for another's in the weight file."""
    generator = np.random.default_rng(0)
    feeds = {
        "input_ids": generator.integers(5, 40, (1, 50)),
        "attention_mask": np.ones((1, 50), np.int64),
        "token_type_ids": np.zeros((1, 50), np.int64),
    }
    with_free = open_session(qnn, SessionOptions(provider="cpu", threads=1)).run(feeds)
    spread = float(with_free["start_logits"].std())
    for bucket in qnn.manifest.details["buckets"]:
        session = onnxruntime.InferenceSession(
            qnn.graph(bucket["graph"]), providers=["CPUExecutionProvider"]
        )
        padded = {
            value.name: np.pad(feeds[value.name], ((0, 0), (0, bucket["length"] - 50)))
            for value in session.get_inputs()
        }
        start = session.run(["start_logits"], padded)[0][:, :50]
        assert np.sqrt(np.mean((start - with_free["start_logits"]) ** 2)) < 0.05 * spread


def test_buckets_share_one_weight_file(qnn):
    sizes = {name: fact.bytes for name, fact in qnn.manifest.files.items()}
    graphs = [size for name, size in sizes.items() if name.startswith("model.")]
    assert sizes["weights.bin"] > 0
    assert sum(graphs) < 1_500_000


def test_the_manifest_names_the_opset_of_its_graphs(qnn):
    """Guards a manifest that named the exporter's opset where the quantiser had raised it."""
    [model, *_] = bucket_graphs(qnn)
    written = {each.domain: each.version for each in model.opset_import}
    assert qnn.manifest.details["opset"] == written[""] >= 21


def uneven_graph(weights):
    body = helper.make_graph(
        [helper.make_node("Gemm", ["x", "w", "c"], ["y"], "product", transB=1)],
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", weights.shape[1]])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", weights.shape[0]])],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.ones(weights.shape[0], np.float32), "c"),
        ],
    )
    return helper.make_model(body, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_even_columns_change_heights_and_nothing_else():
    """A column 30 times as flat as the others would keep three of its eight bits."""
    generator = np.random.default_rng(2)
    weights = generator.normal(size=(6, 16)).astype(np.float32)
    weights[3] /= 30
    x = generator.normal(size=(4, 16)).astype(np.float32)

    def run(model):
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        return session.run(None, {"x": x})[0]

    model = uneven_graph(weights)
    expected = run(model)
    assert npu.even_columns(model) == 1
    np.testing.assert_allclose(run(model), expected, rtol=1e-4, atol=1e-5)
    [even] = [numpy_helper.to_array(t) for t in model.graph.initializer if t.name.endswith("_even")]
    peaks = np.abs(even).max(axis=0)
    np.testing.assert_allclose(peaks, peaks.max(), rtol=1e-5)


@pytest.fixture(scope="module")
def tensorrt(options, tmp_path_factory):
    folder = tmp_path_factory.mktemp("tensorrt")
    checkpoint = make_checkpoint(folder / "checkpoint", "bert")
    export_verifier(str(checkpoint), folder / "bundle", "tensorrt", options, silent)
    return open_bundle(folder / "bundle", role="verifier")


def test_tensorrt_gets_standard_operators_all_in_fp16(tensorrt):
    """Guards the mask's -3e38, which kept every attention's softmax in FP32."""
    assert tensorrt.manifest.details["blocked_nodes"] == []
    model = onnx.load(tensorrt.graph("fp16"))
    assert {node.domain for node in model.graph.node} == {""}
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {v.name: v.type.tensor_type.elem_type for v in inferred.graph.value_info}
    softmaxes = [node.output[0] for node in model.graph.node if node.op_type == "Softmax"]
    assert softmaxes
    assert {types[name] for name in softmaxes} == {TensorProto.FLOAT16}


def test_tensorrt_is_told_the_shapes_of_the_manifest(tensorrt):
    settings = choose_provider("tensorrt", ProviderContext(tensorrt.manifest), ()).settings
    [name, options], *_ = settings.providers()
    assert name == "TensorrtExecutionProvider"
    profiles = tensorrt.manifest.details["profiles"]
    assert profiles["max"]["length"] == tensorrt.manifest.max_length  # 180: fewer than 384
    for which, shape in profiles.items():
        told = options[f"trt_profile_{which}_shapes"].split(",")
        written = f"{shape['batch']}x{shape['length']}"
        assert told == [f"{each}:{written}" for each in tensorrt.manifest.inputs]


def test_a_tensorrt_bundle_runs_on_a_cpu(tensorrt):
    session = open_session(tensorrt, SessionOptions(provider="cpu", threads=1))
    feeds = {name: np.ones((2, 9), np.int64) for name in session.inputs}
    assert np.isfinite(session.run(feeds)["start_logits"]).all()
    assert session.placement.precision == "fp32"


def test_masks_are_bounded_and_other_constants_kept():
    least = float(np.finfo(np.float32).min)
    tensors = [
        numpy_helper.from_array(np.float32(least), "mask"),
        numpy_helper.from_array(np.array([-5e4, 3.0], np.float32), "weights"),
    ]
    model = helper.make_model(helper.make_graph([], "g", [], [], tensors))
    graph.bound_masks(model, -100.0)
    mask, weights = (numpy_helper.to_array(each) for each in model.graph.initializer)
    assert mask == -100.0
    assert weights.tolist() == [-5e4, 3.0]
