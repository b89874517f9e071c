"""Local sessions: real ONNX Runtime on tiny bundles."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from models.bundle import Bundle, describe_file
from runtime.encoding import PairEncoder
from runtime.errors import (
    MissingExtra,
    ProviderUnavailable,
    RunTimedOut,
    SessionError,
    UsageError,
)
from runtime.providers import CpuSettings
from runtime.sessions import LocalSession, Placement, SessionOptions, _Loader, open_session
from tests.tiny_models import CORPUS, FAMILIES, Family, Kind, make_bundle

QUESTION = "When does the relief valve open?"


@pytest.fixture(scope="module")
def drafter(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("drafter"), role="drafter")


@pytest.fixture(scope="module")
def verifier(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("verifier"), role="verifier")


def feeds_for(bundle: Bundle, contexts: tuple[str, ...] = CORPUS) -> dict[str, NDArray[np.int64]]:
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    tokens = [encoder.tokenize(context).ids for context in contexts]
    return encoder.batch(encoder.question(QUESTION), tokens).feeds


def test_a_drafter_on_the_cpu(drafter: Bundle) -> None:
    session = open_session(drafter, SessionOptions(provider="cpu", threads=1))
    feeds = feeds_for(drafter)
    outputs = session.run(feeds)
    assert set(outputs) == {"start_logits", "end_logits"}
    for logits in outputs.values():
        assert logits.dtype == np.float32
        assert logits.shape == feeds["input_ids"].shape
        assert np.isfinite(logits).all()
    assert session.placement == Placement(
        requested="cpu",
        provider="CPUExecutionProvider",
        device="CPU",
        precision="int8",
        threads=1,
        location="local",
        reason="cpu was asked for",
    )


def test_an_fp16_bundle_runs_as_fp32_on_the_cpu_and_says_so(verifier: Bundle) -> None:
    session = open_session(verifier, SessionOptions(provider="cpu"))
    assert session.placement.precision == "fp32"
    assert "FP16 bundle run as FP32: CPU has no FP16 kernels" in session.placement.reason
    feeds = feeds_for(verifier)
    half = onnxruntime.InferenceSession(str(verifier.graph("fp16")))
    for ours, theirs in zip(session.run(feeds).values(), half.run(None, feeds), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=0.02)


@pytest.mark.parametrize("family", FAMILIES)
def test_only_inputs_that_the_graph_has_are_fed(tmp_path: Path, family: Family) -> None:
    bundle = make_bundle(tmp_path, family=family)
    session = open_session(bundle, SessionOptions(provider="cpu"))
    feeds = feeds_for(bundle)
    assert "token_type_ids" in feeds
    assert ("token_type_ids" in session.inputs) == (family == "wordpiece")
    assert session.run(feeds)["start_logits"].shape == feeds["input_ids"].shape


def test_an_input_that_is_not_fed_is_named(drafter: Bundle) -> None:
    session = open_session(drafter)
    feeds = feeds_for(drafter)
    del feeds["token_type_ids"]
    with pytest.raises(SessionError, match="token_type_ids"):
        session.run(feeds)


@pytest.mark.parametrize("kind", ["overlap", "random"])
def test_a_row_does_not_depend_on_padding_or_on_other_rows(tmp_path: Path, kind: Kind) -> None:
    """Guards the tiny models themselves: tests of batching rely on this property of theirs."""
    bundle = make_bundle(tmp_path, kind=kind)
    session = open_session(bundle)
    together = session.run(feeds_for(bundle))
    for row, context in enumerate(CORPUS):
        alone = session.run(feeds_for(bundle, (context,)))
        for name, logits in alone.items():
            np.testing.assert_allclose(
                together[name][row, : logits.shape[1]], logits[0], rtol=0, atol=1e-5
            )


def test_the_same_bundle_is_made_every_time(tmp_path: Path) -> None:
    first = make_bundle(tmp_path / "a", role="verifier", family="unigram")
    second = make_bundle(tmp_path / "b", role="verifier", family="unigram")
    assert first.manifest == second.manifest


def test_a_graph_with_int32_inputs_is_fed_int32(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path, family="bpe")
    expected = open_session(bundle).run(feeds_for(bundle))
    graph = bundle.graph("int8")
    model = onnx.load(str(graph))
    for node in reversed(range(len(model.graph.input))):
        entry = model.graph.input[node]
        entry.type.tensor_type.elem_type = TensorProto.INT32
        for other in model.graph.node:
            for place, name in enumerate(other.input):
                if name == entry.name:
                    other.input[place] = f"{name}_64"
        cast = helper.make_node("Cast", [entry.name], [f"{entry.name}_64"], to=TensorProto.INT64)
        model.graph.node.insert(0, cast)
    onnx.save(model, str(graph))
    actual = open_session(bundle).run(feeds_for(bundle))
    for name, logits in expected.items():
        np.testing.assert_array_equal(actual[name], logits)


@pytest.mark.parametrize(
    ("provider", "name", "fix"),
    [
        ("cuda", "CUDAExecutionProvider", "specrag[gpu]"),
        ("qnn", "QNNExecutionProvider", "pip install onnxruntime-qnn"),
        ("directml", "DmlExecutionProvider", "an onnxruntime that is built with it"),
    ],
)
def test_hardware_that_is_required_and_missing_is_an_error(
    verifier: Bundle, provider: str, name: str, fix: str
) -> None:
    with pytest.raises(ProviderUnavailable, match=name) as caught:
        open_session(verifier, SessionOptions(provider=provider, require_provider=True))
    assert fix in str(caught.value.fix)


def test_hardware_that_is_wished_for_and_missing_is_a_warning(verifier: Bundle) -> None:
    """Guards against the silent fall-back: an FP16 graph must not end up on the CPU either."""
    session = open_session(verifier, SessionOptions(provider="cuda"))
    placement = session.placement
    assert (placement.requested, placement.provider) == ("cuda", "CPUExecutionProvider")
    assert placement.precision == "fp32"
    assert len(placement.warnings) == 1
    assert "CUDAExecutionProvider is not used, the CPU is" in placement.warnings[0]


def test_a_provider_that_does_not_start_is_not_taken_for_one_that_did(verifier: Bundle) -> None:
    """A wheel may list a provider that cannot start: ONNX Runtime then creates a session without
    it. Azure's is in every wheel, and never takes a node of an ordinary graph on its own."""

    class ListedOnly(CpuSettings):
        provider: ClassVar[str] = "AzureExecutionProvider"

        def providers(self) -> list[tuple[str, dict[str, str]]]:
            return [("CPUExecutionProvider", {})]

    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime lists no provider besides the CPU")
    with pytest.raises(ProviderUnavailable, match="took CPUExecutionProvider instead"):
        _Loader(onnxruntime, verifier, 1).load(ListedOnly())


def test_a_name_that_is_no_provider(verifier: Bundle) -> None:
    with pytest.raises(UsageError, match="no provider named 'gpu'"):
        open_session(verifier, SessionOptions(provider="gpu"))


def test_without_onnxruntime_the_extra_is_named(
    drafter: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(MissingExtra) as caught:
        open_session(drafter)
    assert "pip install 'specrag[cpu]'" in str(caught.value.fix)


def test_a_graph_that_is_not_onnx(tmp_path: Path) -> None:
    bundle = make_bundle(tmp_path)
    bundle.graph("int8").write_bytes(b"\x08\x09 not a graph")
    with pytest.raises(SessionError, match="cannot load the model"):
        open_session(bundle)


def test_a_token_id_beyond_the_vocabulary_is_an_error_and_no_more(drafter: Bundle) -> None:
    session = open_session(drafter)
    feeds = feeds_for(drafter)
    expected = session.run(feeds)
    broken = {**feeds, "input_ids": feeds["input_ids"] + 1_000_000}
    with pytest.raises(SessionError, match="cannot run the model"):
        session.run(broken)
    np.testing.assert_array_equal(session.run(feeds)["start_logits"], expected["start_logits"])


def test_many_threads_share_one_session(drafter: Bundle) -> None:
    session = open_session(drafter, SessionOptions(threads=2))
    feeds = feeds_for(drafter)
    expected = session.run(feeds)
    with ThreadPoolExecutor(8) as pool:
        for outputs in pool.map(lambda _: session.run(feeds), range(64)):
            for name, logits in expected.items():
                np.testing.assert_array_equal(outputs[name], logits)


def test_a_closed_session_cannot_be_run(drafter: Bundle) -> None:
    session = open_session(drafter)
    session.close()
    session.close()
    with pytest.raises(SessionError, match="closed"):
        session.run(feeds_for(drafter))


def test_a_run_is_stopped_at_its_deadline(tmp_path: Path) -> None:
    """The graph would loop for hours; afterwards the session still works."""
    bundle = _endless_when_first_id_is_zero(make_bundle(tmp_path, family="bpe"))
    session = open_session(bundle, SessionOptions(threads=1))
    ids = np.zeros((1, 4), np.int64)
    started = time.monotonic()
    with pytest.raises(RunTimedOut, match=r"0\.2 s"):
        session.run({"input_ids": ids, "attention_mask": ids}, timeout=0.2)
    assert 0.2 <= time.monotonic() - started < 10
    outputs = session.run({"input_ids": ids + 1, "attention_mask": ids}, timeout=30)
    assert outputs["start_logits"].shape == (1, 4)


def test_a_run_that_ends_in_time_leaves_no_timer(drafter: Bundle) -> None:
    session = open_session(drafter)
    before = threading.active_count()
    session.run(feeds_for(drafter), timeout=60)
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() == before


def test_threads_are_as_many_as_named_and_sleep_when_idle(drafter: Bundle) -> None:
    code = f"""
import json, pathlib, re
from models.bundle import open_bundle
from runtime.sessions import SessionOptions, open_session
def threads():
    return int(re.search(r"Threads:\\s+(\\d+)", pathlib.Path("/proc/self/status").read_text())[1])
bundle = open_bundle(pathlib.Path({str(drafter.path)!r}))
open_session(bundle, SessionOptions(threads=1)).close()
before = threads()
session = open_session(bundle, SessionOptions(threads=4))
options = session._graphs.free.get_session_options()
print(json.dumps([threads() - before, session.placement.threads, options.inter_op_num_threads,
    options.get_session_config_entry("session.intra_op.allow_spinning")]))
"""
    if not Path("/proc/self/status").exists():
        pytest.skip("threads are counted in /proc, which is not here")
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert json.loads(done.stdout) == [3, 4, 1, "0"]  # the caller's own thread works too


def test_graphs_of_fixed_shape_give_the_same_logits(tmp_path: Path) -> None:
    """Fast equals slow: padded to the bucket, row by row, against one free batch."""
    bundle = _with_buckets(make_bundle(tmp_path, family="wordpiece"), (32, 128), batch=2)

    class FixedCpu(CpuSettings):
        fixed_shapes: ClassVar[bool] = True

    graphs = _Loader(onnxruntime, bundle, 1).load(FixedCpu())
    assert [bucket.length for bucket, _ in graphs.fixed] == [32, 128]
    free = open_session(bundle)
    fixed = LocalSession(onnxruntime, graphs, bundle.manifest.outputs, free.placement)
    feeds = feeds_for(bundle, CORPUS[:5])  # an odd number of rows for graphs of two
    expected = free.run(feeds)
    for name, logits in fixed.run(feeds).items():
        np.testing.assert_allclose(logits, expected[name], rtol=0, atol=1e-5)
    too_long = {name: np.zeros((1, 129), np.int64) for name in feeds}
    with pytest.raises(SessionError, match="129 tokens is longer"):
        fixed.run(too_long)


def _with_buckets(bundle: Bundle, lengths: tuple[int, ...], batch: int) -> Bundle:
    manifest = bundle.manifest
    graphs, files, buckets = dict(manifest.graphs), dict(manifest.files), []
    for length in lengths:
        model = onnx.load(str(bundle.graph("int8")))
        for entry in (*model.graph.input, *model.graph.output):
            first, second = entry.type.tensor_type.shape.dim
            first.dim_value, second.dim_value = batch, length
        key, file = f"int8-{batch}x{length}", bundle.path / f"model.{batch}x{length}.onnx"
        onnx.save(model, str(file))
        graphs[key], files[file.name] = file.name, describe_file(file)
        buckets.append({"graph": key, "batch": batch, "length": length})
    details = {**manifest.details, "buckets": buckets}
    return Bundle(bundle.path, replace(manifest, graphs=graphs, files=files, details=details))


def _endless_when_first_id_is_zero(bundle: Bundle) -> Bundle:
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["going"], ["still"]),
            helper.make_node("Add", ["sum", "one"], ["next"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("going", TensorProto.BOOL, []),
            helper.make_tensor_value_info("sum", TensorProto.FLOAT, None),
        ],
        [
            helper.make_tensor_value_info("still", TensorProto.BOOL, []),
            helper.make_tensor_value_info("next", TensorProto.FLOAT, None),
        ],
        [helper.make_tensor("one", TensorProto.FLOAT, [], [1.0])],
    )
    nodes = [
        helper.make_node("ReduceMax", ["input_ids"], ["largest"], keepdims=0),
        helper.make_node("Equal", ["largest", "zero"], ["go"]),
        helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
        helper.make_node("Loop", ["rounds", "go", "mask"], ["start_logits"], body=body),
        helper.make_node("Identity", ["start_logits"], ["end_logits"]),
    ]
    shape = ("batch", "sequence")
    graph = helper.make_graph(
        nodes,
        "endless",
        [
            helper.make_tensor_value_info(name, TensorProto.INT64, shape)
            for name in ("input_ids", "attention_mask")
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name in ("start_logits", "end_logits")
        ],
        [
            helper.make_tensor("zero", TensorProto.INT64, [], [0]),
            helper.make_tensor("rounds", TensorProto.INT64, [], [10**12]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    bundle.graph("int8").write_bytes(model.SerializeToString())
    return bundle
