"""A provider's name becomes exactly the options that its backend documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from models.bundle import Manifest
from runtime.errors import BundleIncompatible, UsageError
from runtime.providers import (
    BACKENDS,
    PROVIDER_NAMES,
    ProviderContext,
    choose_precision,
    choose_provider,
    fixed_shapes,
    physical_cores,
)

VERIFIER = Manifest(
    name="some-verifier",
    role="verifier",
    task="extractive-question-answering",
    target="cuda",
    precision="fp16",
    graphs={"fp16": "model.fp16.onnx", "fp32": "model.fp32.onnx"},
    tokenizer="tokenizer.json",
    max_length=384,
    inputs=("input_ids", "attention_mask"),
    outputs=("start_logits", "end_logits"),
    null_index=0,
    files={},
    gate={},
    details={},
)
DRAFTER = replace(
    VERIFIER, role="drafter", target="x86", precision="int8", graphs={"int8": "model.int8.onnx"}
)
NPU_DRAFTER = replace(
    DRAFTER,
    target="openvino",
    graphs={"int8": "m.onnx", "int8-1x128": "m128.onnx", "int8-1x64": "m64.onnx"},
    details={
        "buckets": [
            {"graph": "int8-1x128", "batch": 1, "length": 128},
            {"graph": "int8-1x64", "batch": 1, "length": 64},
        ]
    },
)
PROFILES = {
    "min": {"batch": 1, "length": 8},
    "opt": {"batch": 4, "length": 64},
    "max": {"batch": 32, "length": 384},
}
CUDA = ("CUDAExecutionProvider", "CPUExecutionProvider")


def providers(name: str, manifest: Manifest = VERIFIER, **context: Any) -> Any:
    return choose_provider(name, ProviderContext(manifest, **context), CUDA).settings.providers()


def test_cpu_asks_for_nothing_else() -> None:
    assert providers("cpu") == [("CPUExecutionProvider", {})]


def test_cuda_names_the_device_and_keeps_the_cpu_for_shape_nodes() -> None:
    first, second = providers("cuda:1")
    assert first == (
        "CUDAExecutionProvider",
        {"device_id": "1", "arena_extend_strategy": "kSameAsRequested", "use_tf32": "0"},
    )
    assert second == ("CPUExecutionProvider", {})


def test_tensorrt_keeps_its_engines_and_knows_the_shapes() -> None:
    manifest = replace(VERIFIER, details={"profiles": PROFILES})
    listed = providers("tensorrt", manifest, cache=Path("/var/cache/specrag"))
    assert [name for name, _ in listed] == [
        "TensorrtExecutionProvider",
        "CUDAExecutionProvider",
        "CPUExecutionProvider",
    ]
    options = listed[0][1]
    assert options["trt_fp16_enable"] == "1"
    assert options["trt_engine_cache_path"] == "/var/cache/specrag"
    assert options["trt_profile_min_shapes"] == "input_ids:1x8,attention_mask:1x8"
    assert options["trt_profile_opt_shapes"] == "input_ids:4x64,attention_mask:4x64"
    assert options["trt_profile_max_shapes"] == "input_ids:32x384,attention_mask:32x384"


def test_tensorrt_without_a_cache_or_profiles_says_nothing_of_them() -> None:
    assert providers("tensorrt")[0][1] == {"device_id": "0", "trt_fp16_enable": "1"}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("openvino", {"device_type": "CPU", "num_of_threads": "3"}),
        ("openvino:npu", {"device_type": "NPU"}),
        ("qnn", {"backend_type": "htp", "htp_performance_mode": "burst"}),
        ("qnn:cpu", {"backend_type": "cpu"}),
        ("coreml", {"ModelFormat": "MLProgram", "MLComputeUnits": "ALL"}),
        (
            "coreml:cpuandneuralengine",
            {"ModelFormat": "MLProgram", "MLComputeUnits": "CPUAndNeuralEngine"},
        ),
        ("directml:2", {"device_id": "2"}),
    ],
)
def test_other_backends(name: str, expected: dict[str, str]) -> None:
    first, last = providers(name, threads=3)
    assert first == (PROVIDER_NAMES[name.partition(":")[0]], expected)
    assert last[0] == "CPUExecutionProvider"


def test_every_backend_has_its_provider_name() -> None:
    assert set(BACKENDS) == set(PROVIDER_NAMES)
    for name, make in BACKENDS.items():
        assert make("", ProviderContext(VERIFIER)).provider == PROVIDER_NAMES[name]


@pytest.mark.parametrize("name", ["", "gpu", "cuda:one", "cuda:-1", "cpu:0", "qnn:dsp"])
def test_names_that_mean_nothing_are_refused(name: str) -> None:
    with pytest.raises(UsageError):
        providers(name)


@pytest.mark.parametrize(
    ("manifest", "available", "backend"),
    [
        (VERIFIER, CUDA, "cuda"),
        (VERIFIER, ("CPUExecutionProvider",), "cpu"),
        (VERIFIER, ("DmlExecutionProvider", "CPUExecutionProvider"), "directml"),
        (replace(VERIFIER, target="tensorrt"), ("TensorrtExecutionProvider", *CUDA), "tensorrt"),
        (VERIFIER, ("TensorrtExecutionProvider", *CUDA), "cuda"),
        (DRAFTER, CUDA, "cpu"),
        (NPU_DRAFTER, ("OpenVINOExecutionProvider", "CPUExecutionProvider"), "openvino"),
        (NPU_DRAFTER, CUDA, "cpu"),
    ],
)
def test_auto_takes_what_suits_bundle_and_wheel(
    manifest: Manifest, available: tuple[str, ...], backend: str
) -> None:
    choice = choose_provider("auto", ProviderContext(manifest), available)
    assert choice.settings.provider == PROVIDER_NAMES[backend]
    assert choice.reason


@pytest.mark.parametrize(
    ("name", "precision"),
    [("cpu", "fp32"), ("cuda", "fp16"), ("tensorrt", "fp16"), ("openvino", "fp32")],
)
def test_the_verifier_runs_the_graph_that_the_device_has_kernels_for(
    name: str, precision: str
) -> None:
    settings = choose_provider(name, ProviderContext(VERIFIER), CUDA).settings
    assert choose_precision(VERIFIER, settings) == precision


def test_a_drafter_runs_int8_everywhere() -> None:
    for name in BACKENDS:
        settings = choose_provider(name, ProviderContext(DRAFTER), CUDA).settings
        assert choose_precision(DRAFTER, settings) == "int8"


def test_a_bundle_without_a_graph_for_the_device_is_refused() -> None:
    manifest = replace(VERIFIER, graphs={"fp16": "model.fp16.onnx"})
    settings = choose_provider("cpu", ProviderContext(manifest), CUDA).settings
    with pytest.raises(BundleIncompatible, match="no graph that can run on CPU"):
        choose_precision(manifest, settings)


def test_fixed_shapes_are_for_devices_that_want_them() -> None:
    def lengths(name: str) -> list[int]:
        settings = choose_provider(name, ProviderContext(NPU_DRAFTER), CUDA).settings
        return [bucket.length for bucket in fixed_shapes(NPU_DRAFTER, settings, "int8")]

    assert lengths("openvino") == [64, 128]
    assert lengths("qnn") == [64, 128]
    assert lengths("cpu") == []


def test_physical_cores_are_at_least_one() -> None:
    assert 1 <= physical_cores() <= 4096
