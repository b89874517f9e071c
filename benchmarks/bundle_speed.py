"""A bundle and its checkpoint -> the bundle's CPU graph beside PyTorch FP32 and the FP32 ONNX.

Theory: all three do the same matrix products. Against PyTorch the graph saves launching hundreds of
small operators and moves fewer bytes (fusions); INT8 products add up to four times the arithmetic
where the CPU has dot-product instructions (VNNI, AMX, ARM's SDOT) and about two where it has not.
Everything else (norms, GELU, softmax, quantising) stays FP32 and bounds the gain. A ratio below 1
for an FP32 graph means that PyTorch's products are the faster ones on this CPU.

The three run interleaved, warmed up, medians of rounds; the last line is one JSON object.

    python -m benchmarks.bundle_speed BUNDLE CHECKPOINT [--threads 2] [--shapes 10x128 4x64 1x384]
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import machine
from models.bundle import open_bundle


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure, print a table and one JSON line last."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("bundle", type=Path)
    parser.add_argument("checkpoint", type=Path)
    parser.add_argument("--threads", type=int, default=min(2, os.cpu_count() or 1))
    parser.add_argument("--shapes", nargs="+", type=_shape, default=[(10, 128), (4, 64), (1, 384)])
    parser.add_argument("--rounds", type=int, default=31)
    chosen = parser.parse_args(arguments)
    report = measure_bundle(
        chosen.bundle, chosen.checkpoint, chosen.shapes, chosen.threads, chosen.rounds
    )
    print_report(report)
    print(json.dumps({"machine": machine.describe(), **report}))


def _shape(text: str) -> tuple[int, int]:
    rows, _, tokens = text.partition("x")
    return int(rows), int(tokens)


def measure_bundle(
    path: Path, checkpoint: Path, shapes: Sequence[tuple[int, int]], threads: int, rounds: int
) -> dict[str, Any]:
    """Medians and ratios for each shape (rows, tokens)."""
    from export.checkpoint import load_model, open_checkpoint
    from export.graph import export_float
    from export.latency import measure, random_feeds, torch_runner
    from export.parity import open_runner

    bundle = open_bundle(path)
    precision = "int8" if "int8" in bundle.manifest.graphs else "fp32"
    model = load_model(open_checkpoint(str(checkpoint), offline=True))
    found = []
    with tempfile.TemporaryDirectory(prefix="specrag-speed-") as folder:
        runners = {
            f"bundle {precision}": open_runner(bundle.graph(precision), threads),
            "fp32 onnx": open_runner(export_float(model, Path(folder)), threads),
            "pytorch fp32": torch_runner(model, bundle.manifest.inputs, threads),
        }
        for rows, tokens in shapes:
            feeds = random_feeds(int(bundle.manifest.details["vocabulary"]), rows, tokens)
            times = measure(runners, feeds, threads=threads, rounds=rounds, seconds=60)
            first = next(iter(runners))
            found.append(
                {
                    **times.to_json(),
                    "times_faster_than": {
                        name: round(times.ratio(name, first), 2) for name in list(runners)[1:]
                    },
                }
            )
    return {"bundle": bundle.manifest.name, "precision": precision, "shapes": found}


def print_report(report: dict[str, Any]) -> None:
    print(f"{report['bundle']}, {report['precision']}")
    for shape in report["shapes"]:
        each = ", ".join(f"{name} {ms:.1f} ms" for name, ms in shape["median_ms"].items())
        ratios = ", ".join(f"{r:.2f} x {name}" for name, r in shape["times_faster_than"].items())
        print(
            f"  {shape['batch']} x {shape['length']} tokens, {shape['threads']} threads, "
            f"{shape['rounds']} rounds: {each} ({ratios})"
        )


if __name__ == "__main__":
    main()
