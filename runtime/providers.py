"""A provider's name -> what ONNX Runtime is asked for: provider, options, and which graph it runs.

A name is a backend, with a device after a colon where there is a choice: "cpu", "cuda:1",
"openvino:NPU". "auto" takes the best that the installed onnxruntime offers and says why. Nothing
here touches hardware: whether a provider really starts is found out in runtime/sessions.py.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

from models.bundle import Manifest
from runtime.errors import BundleIncompatible, UsageError

CPU_PROVIDER = "CPUExecutionProvider"
# Providers that come in a wheel of their own, beside the onnxruntime of the CPU: name -> module.
PLUGINS = {"QNNExecutionProvider": "onnxruntime_qnn"}
Provider = tuple[str, dict[str, str]]


class ProviderSettings(Protocol):
    """What a backend needs to know.

    Attributes:
        provider: ONNX Runtime's name of it.
        precisions: which of a bundle's graphs it should run, best first.
        fixed_shapes: whether it wants the bundle's graphs of fixed shape, where it has some.
        extra: the extra of `specrag` whose onnxruntime wheel holds it; None where none does.
    """

    provider: ClassVar[str]
    fixed_shapes: ClassVar[bool]
    extra: ClassVar[str | None]

    @property
    def precisions(self) -> tuple[str, ...]: ...

    @property
    def device(self) -> str:
        """The device, for people."""
        ...

    def providers(self) -> list[Provider]:
        """Names and options in the order in which ONNX Runtime should try them for each node."""
        ...


@dataclass(frozen=True, slots=True)
class CpuSettings:
    """ONNX Runtime's own kernels. There are none for FP16, so FP32 stands in for it."""

    provider: ClassVar[str] = CPU_PROVIDER
    fixed_shapes: ClassVar[bool] = False
    extra: ClassVar[str | None] = "cpu"
    precisions: tuple[str, ...] = ("int8", "fp32")
    device: str = "CPU"

    def providers(self) -> list[Provider]:
        return [(self.provider, {})]


@dataclass(frozen=True, slots=True)
class CudaSettings:
    """An NVIDIA GPU through CUDA.

    TF32 is off, so that what stays in FP32 is FP32; memory grows by what is asked for instead of
    by doubling, so that other programs keep theirs.
    """

    provider: ClassVar[str] = "CUDAExecutionProvider"
    fixed_shapes: ClassVar[bool] = False
    extra: ClassVar[str | None] = "gpu"
    precisions: tuple[str, ...] = ("fp16", "int8", "fp32")
    device_id: int = 0

    @property
    def device(self) -> str:
        return f"GPU {self.device_id}"

    def providers(self) -> list[Provider]:
        options = {
            "device_id": str(self.device_id),
            "arena_extend_strategy": "kSameAsRequested",
            "use_tf32": "0",
        }
        return [(self.provider, options), (CPU_PROVIDER, {})]


@dataclass(frozen=True, slots=True)
class TensorRtSettings:
    """An NVIDIA GPU through TensorRT, which compiles an engine on first use (minutes) and keeps it.

    Attributes:
        cache: where engines are kept; None compiles at every start.
        profiles: "min", "opt", "max" -> {"batch": rows, "length": tokens}, from the manifest.
            Without them every new shape compiles anew.
        inputs: the graph's input names, all (batch, sequence).
    """

    provider: ClassVar[str] = "TensorrtExecutionProvider"
    fixed_shapes: ClassVar[bool] = False
    extra: ClassVar[str | None] = "gpu"
    precisions: tuple[str, ...] = ("fp16", "int8", "fp32")
    device_id: int = 0
    cache: Path | None = None
    profiles: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    inputs: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        return f"GPU {self.device_id}"

    def providers(self) -> list[Provider]:
        options = {"device_id": str(self.device_id), "trt_fp16_enable": "1"}
        if self.cache is not None:
            options |= {
                "trt_engine_cache_enable": "1",
                "trt_engine_cache_path": str(self.cache),
                "trt_timing_cache_enable": "1",
                "trt_timing_cache_path": str(self.cache),
            }
        for which, shape in self.profiles.items():
            options[f"trt_profile_{which}_shapes"] = ",".join(
                f"{name}:{shape['batch']}x{shape['length']}" for name in self.inputs
            )
        return [(self.provider, options), *CudaSettings(device_id=self.device_id).providers()]


@dataclass(frozen=True, slots=True)
class OpenVinoSettings:
    """Intel CPU, GPU or NPU through OpenVINO."""

    provider: ClassVar[str] = "OpenVINOExecutionProvider"
    fixed_shapes: ClassVar[bool] = True
    extra: ClassVar[str | None] = "openvino"
    target: str = "CPU"
    threads: int | None = None
    cache: Path | None = None

    @property
    def precisions(self) -> tuple[str, ...]:
        return ("int8", "fp32") if self.target == "CPU" else ("int8", "fp16", "fp32")

    @property
    def device(self) -> str:
        return f"OpenVINO {self.target}"

    def providers(self) -> list[Provider]:
        options = {"device_type": self.target}
        if self.threads is not None and self.target == "CPU":
            options["num_of_threads"] = str(self.threads)
        if self.cache is not None:
            options["cache_dir"] = str(self.cache)
        return [(self.provider, options), (CPU_PROVIDER, {})]


@dataclass(frozen=True, slots=True)
class QnnSettings:
    """Qualcomm NPU ("htp"), through the wheel onnxruntime-qnn or an onnxruntime built with it.

    "cpu" is its reference backend, for trials without the chip; on x86-64 Linux "htp" is emulated.
    """

    provider: ClassVar[str] = "QNNExecutionProvider"
    fixed_shapes: ClassVar[bool] = True
    extra: ClassVar[str | None] = None
    precisions: tuple[str, ...] = ("int8", "fp16", "fp32")
    backend: str = "htp"

    @property
    def device(self) -> str:
        return f"QNN {self.backend}"

    def providers(self) -> list[Provider]:
        options = {"backend_type": self.backend}
        if self.backend == "htp":
            options["htp_performance_mode"] = "burst"
        return [(self.provider, options), (CPU_PROVIDER, {})]


@dataclass(frozen=True, slots=True)
class CoreMlSettings:
    """Apple's CPU, GPU and Neural Engine; `units` are Core ML's compute units."""

    provider: ClassVar[str] = "CoreMLExecutionProvider"
    fixed_shapes: ClassVar[bool] = False
    extra: ClassVar[str | None] = "cpu"
    precisions: tuple[str, ...] = ("fp16", "fp32", "int8")
    units: str = "ALL"

    @property
    def device(self) -> str:
        return f"Core ML {self.units}"

    def providers(self) -> list[Provider]:
        options = {"ModelFormat": "MLProgram", "MLComputeUnits": self.units}
        return [(self.provider, options), (CPU_PROVIDER, {})]


@dataclass(frozen=True, slots=True)
class DirectMlSettings:
    """Any GPU under Windows, through DirectX 12."""

    provider: ClassVar[str] = "DmlExecutionProvider"
    fixed_shapes: ClassVar[bool] = False
    extra: ClassVar[str | None] = None
    precisions: tuple[str, ...] = ("fp16", "int8", "fp32")
    device_id: int = 0

    @property
    def device(self) -> str:
        return f"GPU {self.device_id}"

    def providers(self) -> list[Provider]:
        return [(self.provider, {"device_id": str(self.device_id)}), (CPU_PROVIDER, {})]


@dataclass(frozen=True, slots=True)
class ProviderContext:
    """What settings may depend on besides the name: the model, threads, a folder for caches."""

    manifest: Manifest
    threads: int | None = None
    cache: Path | None = None


def _cpu(device: str, _: ProviderContext) -> CpuSettings:
    _reject_device("cpu", device)
    return CpuSettings()


def _cuda(device: str, _: ProviderContext) -> CudaSettings:
    return CudaSettings(device_id=_number("cuda", device))


def _tensorrt(device: str, context: ProviderContext) -> TensorRtSettings:
    return TensorRtSettings(
        device_id=_number("tensorrt", device),
        cache=context.cache,
        profiles=context.manifest.details.get("profiles", {}),
        inputs=context.manifest.inputs,
    )


def _openvino(device: str, context: ProviderContext) -> OpenVinoSettings:
    return OpenVinoSettings(
        target=device.upper() or "CPU", threads=context.threads, cache=context.cache
    )


def _qnn(device: str, _: ProviderContext) -> QnnSettings:
    return QnnSettings(backend=_one_of("qnn", device or "htp", ("htp", "cpu", "gpu")))


def _coreml(device: str, _: ProviderContext) -> CoreMlSettings:
    units = ("ALL", "CPUOnly", "CPUAndGPU", "CPUAndNeuralEngine")
    return CoreMlSettings(units=_one_of("coreml", device or "ALL", units))


def _directml(device: str, _: ProviderContext) -> DirectMlSettings:
    return DirectMlSettings(device_id=_number("directml", device))


BACKENDS: Mapping[str, Callable[[str, ProviderContext], ProviderSettings]] = {
    "cpu": _cpu,
    "cuda": _cuda,
    "tensorrt": _tensorrt,
    "openvino": _openvino,
    "qnn": _qnn,
    "coreml": _coreml,
    "directml": _directml,
}


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings for a name, and why these."""

    settings: ProviderSettings
    reason: str


def choose_provider(name: str, context: ProviderContext, available: Sequence[str]) -> Choice:
    """The settings that `name` stands for.

    Args:
        name: "auto", or a backend with or without a device.
        available: the providers that the installed onnxruntime was built with.

    Raises:
        UsageError: no such backend or device.
    """
    if name == "auto":
        backend, reason = _best(context.manifest, available)
        return Choice(BACKENDS[backend]("", context), reason)
    backend, _, device = name.partition(":")
    if backend.lower() not in BACKENDS:
        raise UsageError(
            f"There is no provider named {backend!r}",
            where=name,
            fix=f"Choose one of: auto, {', '.join(BACKENDS)}",
        )
    return Choice(BACKENDS[backend.lower()](device, context), f"{name} was asked for")


def _best(manifest: Manifest, available: Sequence[str]) -> tuple[str, str]:
    """A backend that suits the bundle and the installed onnxruntime, and why."""
    made_for = {"tensorrt": "tensorrt", "openvino": "openvino", "qnn": "qnn"}.get(manifest.target)
    if made_for is not None and PROVIDER_NAMES[made_for] in available:
        return made_for, f"the bundle was made for {made_for}"
    if manifest.precision != "int8":
        for backend in ("cuda", "directml"):
            if PROVIDER_NAMES[backend] in available:
                return backend, f"the installed onnxruntime has {backend}"
        return "cpu", "the installed onnxruntime has no GPU provider"
    return "cpu", "an INT8 graph is at home on a CPU"


PROVIDER_NAMES: Mapping[str, str] = {
    "cpu": CpuSettings.provider,
    "cuda": CudaSettings.provider,
    "tensorrt": TensorRtSettings.provider,
    "openvino": OpenVinoSettings.provider,
    "qnn": QnnSettings.provider,
    "coreml": CoreMlSettings.provider,
    "directml": DirectMlSettings.provider,
}


@dataclass(frozen=True, slots=True)
class Bucket:
    """A graph of fixed shape: its key in the manifest, rows and tokens."""

    graph: str
    batch: int
    length: int


def choose_precision(manifest: Manifest, settings: ProviderSettings) -> str:
    """Which of the bundle's graphs these settings should run.

    Raises:
        BundleIncompatible: none of them suits.
    """
    for precision in settings.precisions:
        if precision in manifest.graphs:
            return precision
    raise BundleIncompatible(
        f"Bundle {manifest.name} has no graph that can run on {settings.device}",
        where=f"graphs: {', '.join(sorted(manifest.graphs))}",
        fix=f"Export it for this device; one of these is needed: {', '.join(settings.precisions)}",
    )


def fixed_shapes(
    manifest: Manifest, settings: ProviderSettings, precision: str
) -> tuple[Bucket, ...]:
    """The bundle's graphs of fixed shape in this precision, shortest first; none if unwanted."""
    if not settings.fixed_shapes:
        return ()
    listed: list[dict[str, Any]] = manifest.details.get("buckets", [])
    found = [Bucket(str(b["graph"]), int(b["batch"]), int(b["length"])) for b in listed]
    return tuple(
        sorted(
            (b for b in found if b.graph.split("-")[0] == precision and b.graph in manifest.graphs),
            key=lambda bucket: bucket.length,
        )
    )


def physical_cores() -> int:
    """Physical cores that this process may use; two threads of one core count once."""
    usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    cores = set()
    for cpu in usable:
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        try:
            cores.add(siblings.read_text("ascii").strip())
        except OSError:
            cores.add(str(cpu))
    return len(cores) or os.cpu_count() or 1


def _reject_device(backend: str, device: str) -> None:
    if device:
        raise UsageError(
            f"The provider {backend!r} takes no device", where=device, fix=f"Say only {backend!r}"
        )


def _number(backend: str, device: str) -> int:
    if not device:
        return 0
    if not (device.isascii() and device.isdigit()):
        raise UsageError(
            "A GPU is named by its number", where=f"{backend}:{device}", fix=f"Say {backend}:0"
        )
    return int(device)


def _one_of(backend: str, device: str, known: Sequence[str]) -> str:
    for name in known:
        if name.lower() == device.lower():
            return name
    raise UsageError(
        f"{backend!r} has no device {device!r}",
        where=f"{backend}:{device}",
        fix=f"Choose one of: {', '.join(known)}",
    )
