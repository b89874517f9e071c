"""A checkpoint -> what both exports start from: its FP32 graph, tokenizer, gate and latencies."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from export import bundling, graph, parity
from export.checkpoint import (
    Checkpoint,
    load_model,
    open_checkpoint,
    save_tokenizer,
    special_tokens,
)
from export.latency import LatencyReport, measure, random_feeds, torch_runner
from export.options import ExportOptions
from export.reporting import Progress
from models.bundle import Manifest, Precision, Role
from runtime.encoding import PairEncoder
from runtime.errors import ExportError

TASK = "extractive-question-answering"
TOKENIZER = "tokenizer.json"
TORCH_TOLERANCE = 1e-3  # largest difference of logits between PyTorch and its FP32 export
_DISK_COPIES = 4  # FP32 copies of the weights that an export holds on disk at once


@dataclass(frozen=True)
class Source:
    """A checkpoint on its way into the unfinished bundle `folder`.

    Attributes:
        work: folder for intermediate graphs; it does not become part of the bundle.
        float_graph: the FP32 graph as exported, before any fusion.
        inputs: the graph's inputs.
    """

    checkpoint: Checkpoint
    model: Any
    folder: Path
    work: Path
    float_graph: Path
    tokenizer: Any
    gate: parity.Gate
    inputs: tuple[str, ...]
    options: ExportOptions
    progress: Progress

    def fuse(self) -> onnx.ModelProto:
        """The FP32 graph with ONNX Runtime's transformer fusions."""
        self.progress("fusing", 0.0)
        checkpoint = self.checkpoint
        return graph.fuse(
            self.float_graph, checkpoint.model_type, checkpoint.heads, checkpoint.hidden
        )


@contextmanager
def open_source(
    model: str, output: Path, options: ExportOptions, progress: Progress
) -> Iterator[Source]:
    """Check and export `model`; the block that follows fills the bundle.

    Raises:
        ExportError, UsageError: as the parts raise them; nothing is left at `output` then.
    """
    progress("checking the model", 0.0)
    questions, data = options.questions()
    checkpoint = open_checkpoint(
        model,
        offline=options.offline,
        revision=options.revision,
        allow_pickle=options.allow_pickle,
    )
    options.check_length(checkpoint)
    torch_model = load_model(checkpoint, allow_pickle=options.allow_pickle)
    weights = 4 * sum(parameter.numel() for parameter in torch_model.parameters())
    with bundling.unfinished_folder(output, _DISK_COPIES * weights) as folder:
        work = folder / bundling.WORK
        tokenizer = save_tokenizer(checkpoint, folder / TOKENIZER)
        progress("exporting to ONNX", 0.0)
        float_graph = graph.export_float(torch_model, work / "float")
        inputs = _check_against_torch(float_graph, torch_model, checkpoint, options.threads)
        gate = parity.Gate(
            float_graph,
            PairEncoder(folder / TOKENIZER, checkpoint.max_length),
            questions,
            data,
            threads=options.threads,
            length=options.gate_length,
            progress=progress,
        )
        yield Source(
            checkpoint, torch_model, folder, work, float_graph, tokenizer, gate, inputs,
            options, progress,
        )  # fmt: skip


def _check_against_torch(
    float_graph: Path, model: Any, checkpoint: Checkpoint, threads: int
) -> tuple[str, ...]:
    """Compare one padded batch with PyTorch; returns the graph's inputs."""
    inputs = tuple(
        value.name for value in onnx.load(str(float_graph), load_external_data=False).graph.input
    )
    length = min(48, checkpoint.max_length)
    feeds = random_feeds(int(checkpoint.config.vocab_size), 2, length)
    feeds["token_type_ids"] %= max(1, int(getattr(checkpoint.config, "type_vocab_size", 1)))
    feeds["attention_mask"][1, length // 2 :] = 0
    start, end = parity.open_runner(float_graph, threads)(feeds)
    expected: Any = torch_runner(model, inputs, threads)(feeds)
    real = feeds["attention_mask"] > 0
    error = max(
        float(np.abs(start - expected.start_logits.numpy())[real].max()),
        float(np.abs(end - expected.end_logits.numpy())[real].max()),
    )
    if not error <= TORCH_TOLERANCE:
        raise ExportError(
            f"The ONNX export differs from PyTorch by {error:.3g} in its logits",
            where=checkpoint.name,
            fix="This model's architecture is not exported right; please report it",
        )
    return inputs


def measure_latency(source: Source, graphs: dict[str, Path]) -> LatencyReport:
    """The bundle's graphs, then the FP32 ONNX and PyTorch, interleaved in one run."""
    options = source.options
    source.progress("measuring latency", 0.0)
    feeds = random_feeds(int(source.checkpoint.config.vocab_size), options.batch, options.length)
    feeds["token_type_ids"] %= max(1, int(getattr(source.checkpoint.config, "type_vocab_size", 1)))
    runners: dict[str, Any] = {
        name: parity.open_runner(path, options.threads) for name, path in graphs.items()
    }
    runners["fp32 onnx"] = parity.open_runner(source.float_graph, options.threads)
    runners["pytorch fp32"] = torch_runner(source.model, source.inputs, options.threads)
    return measure(runners, feeds, threads=options.threads, seconds=options.seconds)


def float_bytes(source: Source) -> int:
    """Size of the FP32 ONNX, external data included."""
    return sum(
        file.stat().st_size
        for file in source.float_graph.parent.iterdir()
        if file.name.startswith("model.onnx")
    )


def make_manifest(
    source: Source,
    *,
    name: str,
    role: Role,
    target: str,
    precision: Precision,
    graphs: dict[str, str],
    gate: parity.GateReport,
    details: dict[str, Any],
) -> Manifest:
    """The manifest of the files that now lie in the bundle's folder."""
    checkpoint, options = source.checkpoint, source.options
    return Manifest(
        name=options.name or name,
        role=role,
        task=TASK,
        target=target,
        precision=precision,
        graphs=graphs,
        tokenizer=TOKENIZER,
        max_length=checkpoint.max_length,
        inputs=source.inputs,
        outputs=(graph.OUTPUTS[0], graph.OUTPUTS[1]),
        null_index=0,
        files=bundling.describe_files(source.folder),
        gate=gate.to_json(),
        details={
            **bundling.base_model_facts(checkpoint, options.licence, options.trained_on),
            **details,
            "special_tokens": special_tokens(checkpoint, source.tokenizer),
            "opset": graph.opset(source.folder / graphs[precision]),
            "tools": bundling.tool_versions(),
        },
    )


def discard(path: Path) -> None:
    """Remove an intermediate file or folder that is no longer needed."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
