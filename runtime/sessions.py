"""A bundle -> `run(feeds) -> logits`, on the hardware that was named, and a report of what it got.

The session is the seam of the pipeline: this module holds its shape and the local one, over ONNX
Runtime; runtime/remote.py holds the other. There is no silent fall-back: hardware that was asked
for and not obtained is a warning in the placement, or an error where it is required.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from models.bundle import Bundle
from runtime.errors import MissingExtra, ProviderUnavailable, RunTimedOut, SessionError
from runtime.providers import (
    CPU_PROVIDER,
    PLUGINS,
    Bucket,
    Choice,
    CpuSettings,
    Provider,
    ProviderContext,
    ProviderSettings,
    choose_precision,
    choose_provider,
    fixed_shapes,
    physical_cores,
)

Feeds = Mapping[str, NDArray[np.int64]]
Outputs = dict[str, NDArray[np.float32]]

_ONNX_RUNTIME_ERRORS_ONLY = 3  # its severities: 2 warning, 3 error


@dataclass(frozen=True, slots=True)
class Placement:
    """What a session was asked for, and what it really got.

    Attributes:
        requested: the provider as it was named.
        provider: ONNX Runtime's name of the provider obtained; for a remote session, the server's.
        device: the device, for people.
        precision: of the graph that runs: "int8", "fp16", "fp32"; "unknown" where a server does
            not say.
        threads: CPU threads of one run; None where the hardware decides.
        location: "local", or the server's address.
        reason: why this placement.
        warnings: what differs from what was asked for, one sentence each.
    """

    requested: str
    provider: str
    device: str
    precision: str
    threads: int | None
    location: str
    reason: str
    warnings: tuple[str, ...] = ()


class Session(Protocol):
    """A model that can be run; several threads may share one."""

    @property
    def placement(self) -> Placement: ...

    @property
    def inputs(self) -> tuple[str, ...]:
        """The names of the graph's inputs."""
        ...

    def run(self, feeds: Feeds, *, timeout: float | None = None) -> Outputs:
        """Logits by output name, each float32 (batch, sequence).

        Args:
            feeds: int64 (batch, sequence) by input name; what the graph has no input for is
                left out.
            timeout: seconds after which the run is stopped.

        Raises:
            RunTimedOut: stopped at its deadline.
            SessionError: it cannot be run.
        """
        ...

    def close(self) -> None:
        """Release the model; running it afterwards is an error."""
        ...


@dataclass(frozen=True, slots=True)
class SessionOptions:
    """How a bundle is run on this machine.

    Attributes:
        provider: "auto", or a backend with or without a device ("cpu", "cuda:1", "openvino:NPU").
        threads: CPU threads of one run; None takes the physical cores.
        require_provider: fail if the provider cannot be used, instead of a warning and the CPU.
        cache: a folder for engines that TensorRT and OpenVINO compile; None keeps none.
    """

    provider: str = "auto"
    threads: int | None = None
    require_provider: bool = False
    cache: Path | None = None


def open_session(bundle: Bundle, options: SessionOptions | None = None) -> LocalSession:
    """Load a bundle's graph on the named provider.

    Raises:
        UsageError: no such provider.
        MissingExtra: no onnxruntime is installed.
        ProviderUnavailable: the provider cannot be used, and it is required.
        BundleIncompatible: the bundle has no graph for it.
        SessionError: ONNX Runtime cannot load the graph.
    """
    options = options or SessionOptions()
    ort = _onnxruntime()
    threads = options.threads or physical_cores()
    context = ProviderContext(bundle.manifest, threads, options.cache)
    choice = choose_provider(options.provider, context, ort.get_available_providers())
    loader = _Loader(ort, bundle, threads)
    try:
        graphs = loader.load(choice.settings)
    except ProviderUnavailable as error:
        if options.require_provider or choice.settings.provider == CPU_PROVIDER:
            raise
        return _on_cpu_instead(loader, options, choice, error)
    placement = _place(options, choice, graphs, threads)
    return LocalSession(ort, graphs, bundle.manifest.outputs, placement)


def _on_cpu_instead(
    loader: _Loader, options: SessionOptions, choice: Choice, error: ProviderUnavailable
) -> LocalSession:
    warning = f"{choice.settings.provider} is not used, the CPU is: {error}"
    fallen = Choice(CpuSettings(), f"{choice.reason}, but cannot be used")
    graphs = loader.load(fallen.settings)
    placement = _place(options, fallen, graphs, loader.threads, (warning,))
    return LocalSession(loader.ort, graphs, loader.bundle.manifest.outputs, placement)


def _place(
    options: SessionOptions,
    choice: Choice,
    graphs: _Graphs,
    threads: int,
    warnings: tuple[str, ...] = (),
) -> Placement:
    reason = choice.reason
    if graphs.bundle_precision == "fp16" and graphs.precision == "fp32":
        reason += "; FP16 bundle run as FP32: CPU has no FP16 kernels"
    return Placement(
        requested=options.provider,
        provider=choice.settings.provider,
        device=choice.settings.device,
        precision=graphs.precision,
        threads=threads if "CPU" in choice.settings.device else None,
        location="local",
        reason=reason,
        warnings=warnings,
    )


def _onnxruntime() -> ModuleType:
    """The module, imported when the first model is loaded."""
    try:
        import onnxruntime  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise MissingExtra(
            f"ONNX Runtime cannot be imported: {error}",
            where="onnxruntime",
            fix="pip install 'specrag[cpu]' (or 'specrag[gpu]' for NVIDIA, "
            "'specrag[openvino]' for Intel; only one of the three)",
        ) from error
    module: ModuleType = onnxruntime
    _load_plugins(module)
    return module


@cache
def _load_plugins(ort: ModuleType) -> None:
    """Make the installed providers known that come in wheels of their own."""
    for provider, package in PLUGINS.items():
        if _is_plugin(provider):
            library = import_module(package).get_library_path()
            ort.register_execution_provider_library(provider, library)


def _is_plugin(provider: str) -> bool:
    """Whether the provider comes from an installed wheel of its own, not from onnxruntime's."""
    return provider in PLUGINS and find_spec(PLUGINS[provider]) is not None


@dataclass(frozen=True, slots=True)
class _Graphs:
    """What was loaded: one graph of free shape, or several of fixed shape, shortest first."""

    precision: str
    bundle_precision: str
    free: Any | None
    fixed: tuple[tuple[Bucket, Any], ...] = ()

    @property
    def any(self) -> Any:
        return self.free if self.free is not None else self.fixed[0][1]


class _Loader:
    """Loads a bundle's graphs and makes sure that they run where they should."""

    def __init__(self, ort: ModuleType, bundle: Bundle, threads: int) -> None:
        self.ort = ort
        self.bundle = bundle
        self.threads = threads

    def load(self, settings: ProviderSettings) -> _Graphs:
        """
        Raises:
            ProviderUnavailable: the session runs elsewhere, or not at all.
            SessionError: the CPU cannot load the graph.
        """
        self._check_available(settings)
        manifest = self.bundle.manifest
        precision = choose_precision(manifest, settings)
        buckets = fixed_shapes(manifest, settings, precision)
        if buckets:
            fixed = tuple((b, self._open(self.bundle.graph(b.graph), settings)) for b in buckets)
            return _Graphs(precision, manifest.precision, None, fixed)
        free = self._open(self.bundle.graph(precision), settings)
        return _Graphs(precision, manifest.precision, free)

    def _check_available(self, settings: ProviderSettings) -> None:
        if settings.provider in self.ort.get_available_providers():
            return
        raise ProviderUnavailable(
            f"The installed onnxruntime {self.ort.__version__} has no {settings.provider}",
            where=settings.device,
            fix=_how_to_install(settings),
        )

    def _open(self, graph: Path, settings: ProviderSettings) -> Any:
        options = self._options()
        providers: list[Provider] | None = settings.providers()
        try:
            if _is_plugin(settings.provider):
                options.add_provider_for_devices(
                    [self._device(settings)], settings.providers()[0][1]
                )
                providers = None  # a plugin is named by its device; the CPU follows by itself
            # Its own fall-back prints and goes on; ours decides and reports.
            session = self.ort.InferenceSession(
                str(graph), options, providers=providers, enable_fallback=0
            )
        except Exception as error:  # ONNX Runtime's errors share no base class
            if settings.provider == CPU_PROVIDER:
                raise SessionError(
                    f"ONNX Runtime cannot load the model: {_one_line(error)}",
                    where=str(graph),
                    fix="Check the bundle with `specrag bundle verify`, or export it again",
                ) from error
            raise _not_started(settings, _one_line(error)) from error
        if settings.provider not in session.get_providers():
            raise _not_started(settings, f"it took {', '.join(session.get_providers())} instead")
        return session

    def _device(self, settings: ProviderSettings) -> Any:
        """A plugin's device: the NPU, or where there is none (an emulator) its first."""
        devices = [each for each in self.ort.get_ep_devices() if each.ep_name == settings.provider]
        npus = (each for each in devices if each.device.type.name == "NPU")
        return next(npus, devices[0])

    def _options(self) -> Any:
        """Threads are named and sleep when idle: the models of one question take turns on few
        cores. Memory patterns are off, because shapes differ with every question and each would
        be planned and kept (12 MB less at 10 x 128 tokens); the arena stays on (30 MB less)."""
        options = self.ort.SessionOptions()
        options.intra_op_num_threads = self.threads
        options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.enable_mem_pattern = False
        options.log_severity_level = _ONNX_RUNTIME_ERRORS_ONLY
        return options


def _how_to_install(settings: ProviderSettings) -> str:
    if settings.provider in PLUGINS:
        return f"pip install {PLUGINS[settings.provider].replace('_', '-')}"
    if settings.extra is None:
        return "Install an onnxruntime that is built with it"
    return (
        f"In an environment of its own: pip install 'specrag[{settings.extra}]' "
        "(the onnxruntime wheels exclude each other)"
    )


def _not_started(settings: ProviderSettings, detail: str) -> ProviderUnavailable:
    return ProviderUnavailable(
        f"ONNX Runtime could not start {settings.provider}: {detail}",
        where=settings.device,
        fix="Check its driver and libraries with `specrag doctor`, or choose provider cpu",
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:400]


class LocalSession:
    """ONNX Runtime on this machine. Safe to share between threads."""

    def __init__(
        self, ort: ModuleType, graphs: _Graphs, outputs: Sequence[str], placement: Placement
    ) -> None:
        self.placement = placement
        self._ort = ort
        self._graphs: _Graphs | None = graphs
        self._outputs = tuple(outputs)
        self._types = {node.name: _numpy_type(node.type) for node in graphs.any.get_inputs()}
        missing = set(outputs) - {node.name for node in graphs.any.get_outputs()}
        if missing:
            raise SessionError(
                f"The graph has no output {', '.join(sorted(missing))}",
                fix="Export the bundle again",
            )

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._types)

    def run(self, feeds: Feeds, *, timeout: float | None = None) -> Outputs:
        """See `Session.run`."""
        graphs = self._graphs
        if graphs is None:
            raise SessionError("The session is closed")
        wanted = self._wanted(feeds)
        with self._deadline(timeout) as run_options:
            if graphs.free is not None:
                return self._run(graphs.free, wanted, run_options, timeout)
            return self._run_fixed(graphs, wanted, run_options, timeout)

    def close(self) -> None:
        """See `Session.close`; a run in progress ends first."""
        self._graphs = None

    def _wanted(self, feeds: Feeds) -> dict[str, NDArray[Any]]:
        """Only what the graph has inputs for, in the types that it takes."""
        missing = [name for name in self._types if name not in feeds]
        if missing:
            raise SessionError(
                f"The model needs {', '.join(missing)}, which was not fed",
                fix="Use the bundle's own tokenizer",
            )
        return {
            name: np.ascontiguousarray(feeds[name], dtype=kind)
            for name, kind in self._types.items()
        }

    @contextmanager
    def _deadline(self, timeout: float | None) -> Iterator[Any]:
        """Run options whose run is terminated when `timeout` seconds have passed."""
        options = self._ort.RunOptions()
        if timeout is None:
            yield options
            return

        def terminate() -> None:
            options.terminate = True

        timer = threading.Timer(timeout, terminate)
        timer.daemon = True
        timer.start()
        try:
            yield options
        finally:
            timer.cancel()

    def _run(
        self,
        session: Any,
        feeds: Mapping[str, NDArray[Any]],
        run_options: Any,
        timeout: float | None,
    ) -> Outputs:
        try:
            results = session.run(list(self._outputs), dict(feeds), run_options)
        except Exception as error:  # ONNX Runtime's errors share no base class
            if run_options.terminate:
                raise RunTimedOut(f"The model did not finish in {timeout:g} s") from error
            raise SessionError(
                f"ONNX Runtime cannot run the model: {_one_line(error)}",
                where=self.placement.device,
                fix="Fewer or shorter windows need less memory; "
                "`specrag doctor` tries the model on its own",
            ) from error
        return {
            name: np.asarray(values, dtype=np.float32)
            for name, values in zip(self._outputs, results, strict=True)
        }

    def _run_fixed(
        self,
        graphs: _Graphs,
        feeds: Mapping[str, NDArray[Any]],
        run_options: Any,
        timeout: float | None,
    ) -> Outputs:
        """Rows in groups, padded with masked zeros to the shortest graph that holds them."""
        rows, length = next(iter(feeds.values())).shape
        bucket, session = self._fitting(graphs, length)
        outputs = {name: np.empty((rows, length), np.float32) for name in self._outputs}
        for first in range(0, rows, bucket.batch):
            group = slice(first, min(first + bucket.batch, rows))
            padded = {name: _pad(values[group], bucket) for name, values in feeds.items()}
            for name, values in self._run(session, padded, run_options, timeout).items():
                outputs[name][group] = values[: group.stop - first, :length]
        return outputs

    def _fitting(self, graphs: _Graphs, length: int) -> tuple[Bucket, Any]:
        for bucket, session in graphs.fixed:
            if length <= bucket.length:
                return bucket, session
        raise SessionError(
            f"A sequence of {length} tokens is longer than the model takes "
            f"({graphs.fixed[-1][0].length})",
            where=self.placement.device,
            fix="Use shorter windows",
        )


def _pad(values: NDArray[Any], bucket: Bucket) -> NDArray[Any]:
    padded = np.zeros((bucket.batch, bucket.length), values.dtype)
    padded[: values.shape[0], : values.shape[1]] = values
    return padded


def _numpy_type(kind: str) -> Any:
    """The type of an ONNX input such as "tensor(int64)"."""
    types = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}
    if kind not in types:
        raise SessionError(
            f"The model takes an input of type {kind}, not token ids",
            fix="Use a bundle for extractive question answering",
        )
    return types[kind]
