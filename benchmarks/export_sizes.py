"""Real model sizes with random weights -> export time, disk, peak memory, latency per window.

Theory: speed and size depend on shapes, not on values, so random weights measure what
`distilbert-base` as drafter and `bert-large` as verifier cost without a download. Each export runs
in a process of its own, whose peak resident memory is read from the kernel. Latency is interleaved
with PyTorch FP32 and the unfused FP32 ONNX in one run, round by round. Ceilings: INT8 weights are a
quarter of FP32, FP16 a half; without VNNI an INT8 product is at most about twice as fast as an FP32
one.

    python -m benchmarks.export_sizes [--models drafter verifier] [--threads 2] [--out FILE.json]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import machine
from models.bundle import open_bundle

ROOT = Path(__file__).resolve().parent.parent
LENGTHS = (128, 384)
BATCH = 2
GATE_QUESTIONS = 300
# Random weights have nothing to lose: short questions and contexts judge the logits alike.
QUESTION_CHARACTERS, CONTEXT_CHARACTERS = 30, 60


@dataclass(frozen=True)
class Case:
    """One model size and the role it is exported for."""

    role: str
    target: str
    precision: str
    family: str


CASES = (
    Case("drafter", "x86", "int8", "distilbert-base"),
    Case("verifier", "cuda", "fp32", "bert-large"),
)


def main(arguments: list[str] | None = None) -> None:
    """Measure, print a table and one JSON line last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    roles = [case.role for case in CASES]
    parser.add_argument("--models", nargs="+", choices=roles, default=roles)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--out", type=Path, help="Write the JSON object to this file too.")
    chosen = parser.parse_args(arguments)
    rows = []
    for case in CASES:
        if case.role in chosen.models:
            with tempfile.TemporaryDirectory(prefix="specrag-sizes-") as folder:
                rows.append(measure_case(case, Path(folder), chosen.threads))
            print_row(rows[-1])
    report = {"machine": machine.describe(), "cases": rows}
    if chosen.out is not None:
        chosen.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")
    print(json.dumps(report))


def measure_case(case: Case, folder: Path, threads: int) -> dict[str, Any]:
    """Export one size and measure the bundle beside PyTorch."""
    from export.graph import export_float
    from export.latency import measure, random_feeds, torch_runner
    from export.parity import open_runner

    model = make_model(case.family)
    checkpoint = folder / "checkpoint"
    model.save_pretrained(checkpoint)
    save_tokenizer(checkpoint)
    bundle = folder / "bundle"
    exported = run_export(case, checkpoint, bundle, gate_file(folder / "gate.jsonl"), threads)
    opened = open_bundle(bundle)
    float_graph = export_float(model, folder / "float")
    latencies = {}
    for length in LENGTHS:
        runners: dict[str, Any] = {
            case.precision: open_runner(opened.graph(case.precision), threads),
            "fp32 onnx": open_runner(float_graph, threads),
            "pytorch fp32": torch_runner(model, opened.manifest.inputs, threads),
        }
        feeds = random_feeds(int(model.config.vocab_size), BATCH, length)
        report = measure(runners, feeds, threads=threads, rounds=7, seconds=60)
        latencies[str(length)] = {
            "ms_per_window": {
                name: round(median / BATCH, 2) for name, median in report.median_ms.items()
            },
            "times_faster_than_pytorch": round(report.ratio("pytorch fp32", case.precision), 2),
            "times_faster_than_fp32_onnx": round(report.ratio("fp32 onnx", case.precision), 2),
            "rounds": report.rounds,
        }
    return {
        "role": case.role,
        "model": case.family,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "scheme": opened.manifest.details["scheme"],
        **exported,
        "checkpoint_bytes": (checkpoint / "model.safetensors").stat().st_size,
        "bundle_bytes": sum(fact.bytes for fact in opened.manifest.files.values()),
        "threads": threads,
        "batch": BATCH,
        "latency": latencies,
    }


def make_model(family: str) -> Any:
    """A question-answering model of that size with seeded random weights."""
    import torch
    import transformers

    from export.graph import quiet

    torch.manual_seed(0)
    with quiet():
        if family == "distilbert-base":
            config: Any = transformers.DistilBertConfig()
        else:
            config = transformers.BertConfig(
                hidden_size=1024,
                num_hidden_layers=24,
                num_attention_heads=16,
                intermediate_size=4096,
            )
        return transformers.AutoModelForQuestionAnswering.from_config(config).eval()


def save_tokenizer(checkpoint: Path) -> None:
    """A WordPiece tokenizer trained on the gate's contexts."""
    from tokenizers import BertWordPieceTokenizer

    from export.parity import BUILT_IN, read_questions

    tokenizer = BertWordPieceTokenizer()
    contexts = [question.context for question in read_questions(BUILT_IN)]
    tokenizer.train_from_iterator(contexts, vocab_size=8000, show_progress=False)
    tokenizer.save(str(checkpoint / "tokenizer.json"))
    facts = {"tokenizer_class": "BertTokenizer", "model_max_length": 512}
    (checkpoint / "tokenizer_config.json").write_text(json.dumps(facts), "utf-8")


def gate_file(path: Path) -> Path:
    """Short contexts for a model whose F1 means nothing: its logits are what is compared."""
    from export.parity import BUILT_IN, read_questions

    questions = read_questions(BUILT_IN)[:GATE_QUESTIONS]
    records = (
        {
            "question": question.question[:QUESTION_CHARACTERS],
            "context": question.context[:CONTEXT_CHARACTERS],
            "answer": question.answers[0],
        }
        for question in questions
    )
    path.write_text("\n".join(json.dumps(record) for record in records), "utf-8")
    return path


def run_export(
    case: Case, checkpoint: Path, bundle: Path, gate: Path, threads: int
) -> dict[str, Any]:
    """Export in a process of its own; seconds of its life and its peak memory."""
    command = [
        *(sys.executable, "-m", f"export.{case.role}", str(checkpoint), "-o", str(bundle)),
        *("--target", case.target, "--gate", str(gate), "--accept-loss", "100", "--offline"),
        *("--threads", str(threads), "--batch", "1", "--seconds", "0", "--quiet", "--json"),
    ]
    with tempfile.TemporaryFile() as printed:
        begin = time.monotonic()
        process = subprocess.Popen(command, cwd=ROOT, stdout=printed)
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise SystemExit(f"The export of {case.family} failed ({process.returncode})")
        printed.seek(0)
        report = json.load(printed)
    return {
        "export_seconds": round(seconds, 1),
        "export_peak_bytes": usage.ru_maxrss * 1024,
        "fp32_onnx_bytes": report["sizes"]["fp32 onnx"],
    }


def print_row(row: dict[str, Any]) -> None:
    print(
        f"{row['model']} as {row['role']} ({row['parameters'] / 1e6:.0f} M parameters): "
        f"exported in {row['export_seconds']:.0f} s, "
        f"peak memory {row['export_peak_bytes'] / 1e9:.1f} GB; "
        f"checkpoint {row['checkpoint_bytes'] / 1e6:.0f} MB, "
        f"bundle {row['bundle_bytes'] / 1e6:.0f} MB"
    )
    for length, figures in row["latency"].items():
        each = ", ".join(f"{name} {ms:.1f} ms" for name, ms in figures["ms_per_window"].items())
        print(
            f"  {length} tokens, a window: {each}"
            f" ({figures['times_faster_than_pytorch']:.2f} x PyTorch,"
            f" {figures['times_faster_than_fp32_onnx']:.2f} x FP32 ONNX)"
        )


if __name__ == "__main__":
    main()
