"""A qnn drafter bundle -> its answers from Qualcomm's NPU compiler and emulator, beside the CPU's.

Runs in `.venv-qnn`; imports only the runtime and the gate, never PyTorch. The compiler is the one
that a phone or laptop with the chip uses; what it compiles runs here bit for bit, slowly.

    .venv-qnn/bin/python tests/qnn_box/check.py BUNDLE [QUESTIONS]
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import onnxruntime

from export.parity import BUILT_IN, LIMITS, Runner, logit_errors, predict, read_questions, scores
from models.bundle import Bundle, open_bundle
from runtime.encoding import PairEncoder
from runtime.providers import QnnSettings
from runtime.sessions import Session, SessionOptions, open_session

BUCKET = 128  # tokens of the gate's windows
LOGIT_LIMIT = 0.1  # RMS error over RMS spread, between the NPU and ONNX Runtime's CPU kernels


def main() -> int:
    bundle = open_bundle(Path(sys.argv[1]), role="drafter")
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 345
    on_npu = open_session(bundle, SessionOptions(provider="qnn", require_provider=True))
    print(f"the runtime obtained: {on_npu.placement.provider}, {on_npu.placement.device}")
    for bucket in bundle.manifest.details["buckets"]:
        prove_placement(bundle, bucket["graph"])
    on_cpu = onnxruntime.InferenceSession(
        bundle.graph(f"int8-1x{BUCKET}"), providers=["CPUExecutionProvider"]
    )
    questions = read_questions(BUILT_IN, limit=count, least=1)
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    expected = predict(padded(on_cpu), encoder, questions, BUCKET)
    found = predict(through(on_npu), encoder, questions, BUCKET)
    same = sum(a == b for a, b in zip(expected.spans, found.spans, strict=True))
    worst, relative = logit_errors(expected.logits, found.logits)
    f1_cpu, f1_npu = (float(scores(questions, p.answers)[1].mean()) for p in (expected, found))
    print(
        f"{len(questions)} questions, NPU beside CPU: {same} spans the same, logits off by "
        f"{100 * relative:.1f} % of their spread (at most {worst:.2f}), "
        f"F1 {f1_npu:.2f} and {f1_cpu:.2f}"
    )
    passed = relative <= LOGIT_LIMIT
    if len(questions) == bundle.manifest.gate["questions"]:  # fewer say little of F1
        lost = bundle.manifest.gate["f1_fp32"] - f1_npu
        print(f"F1 lost against FP32: {lost:+.2f}")
        passed = passed and lost <= LIMITS["int8"]
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


def prove_placement(bundle: Bundle, graph: str) -> None:
    """Load with ONNX Runtime's CPU kernels forbidden: it fails unless the NPU takes every node."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    provider, chosen = QnnSettings().providers()[0]
    devices = [each for each in onnxruntime.get_ep_devices() if each.ep_name == provider]
    options.add_provider_for_devices(devices[:1], chosen)
    session = onnxruntime.InferenceSession(bundle.graph(graph), options)
    print(f"{graph}: every node on {session.get_providers()[0]}", flush=True)


def through(session: Session) -> Runner:
    """The runtime's session, which pads and groups by itself."""

    def run(feeds: dict) -> list:
        outputs = session.run(feeds)
        return [outputs[name] for name in ("start_logits", "end_logits")]

    return run


def padded(session: onnxruntime.InferenceSession) -> Runner:
    """The graph of one row and BUCKET tokens as a function of any rows that are no longer."""
    wanted = [value.name for value in session.get_inputs()]

    def run(feeds: dict) -> list:
        rows, length = feeds["input_ids"].shape
        outputs = np.empty((2, rows, length), np.float32)
        for row in range(rows):
            one = {
                name: np.pad(feeds[name][row : row + 1], ((0, 0), (0, BUCKET - length)))
                for name in wanted
            }
            outputs[:, row] = np.concatenate(session.run(None, one))[:, :length]
        return list(outputs)

    return run


if __name__ == "__main__":
    sys.exit(main())
