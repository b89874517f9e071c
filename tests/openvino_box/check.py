"""A static drafter bundle -> answered gate questions through OpenVINO, and the proof it ran there.

Runs in `.venv-openvino`; imports only the runtime and the gate, never PyTorch.

    .venv-openvino/bin/python tests/openvino_box/check.py BUNDLE [DEVICE [QUESTIONS LIMIT]]
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import onnxruntime

from export.parity import BUILT_IN, LIMITS, GateQuestion, predict, read_questions, scores
from models.bundle import Bundle, open_bundle
from runtime.encoding import PairEncoder
from runtime.providers import OpenVinoSettings
from runtime.sessions import Session, SessionOptions, open_session


def main() -> int:
    bundle = open_bundle(Path(sys.argv[1]), role="drafter")
    device = sys.argv[2] if len(sys.argv) > 2 else "CPU"
    for bucket in bundle.manifest.details["buckets"]:
        prove_placement(bundle, bucket["graph"], device)
    session = open_session(
        bundle,
        SessionOptions(
            provider=f"openvino:{device}",
            threads=len(os.sched_getaffinity(0)),
            require_provider=True,
        ),
    )
    print(f"the runtime obtained: {session.placement.provider}, {session.placement.device}")
    file, limit = (Path(sys.argv[3]), int(sys.argv[4])) if len(sys.argv) > 4 else (BUILT_IN, None)
    questions = read_questions(file, limit=limit)
    if len(questions) != bundle.manifest.gate["questions"]:
        print("these are not the questions of the bundle's own gate")
        return 2
    through_openvino = ask(bundle, session, questions)
    expected = bundle.manifest.gate["f1_fp32"]
    lost = expected - through_openvino
    print(
        f"F1: FP32 {expected:.2f}, INT8 through OpenVINO {through_openvino:.2f}, {lost:+.2f} lost"
    )
    allowed = max(LIMITS["int8"], bundle.manifest.gate["accepted_loss"] or 0.0)
    passed = session.placement.provider == OpenVinoSettings.provider and lost <= allowed
    print("passed" if passed else "FAILED")
    return 0 if passed else 1


def prove_placement(bundle: Bundle, graph: str, device: str) -> None:
    """Load with ONNX Runtime's CPU kernels forbidden, and see in a profile where each node ran."""
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.enable_profiling = True
    with tempfile.TemporaryDirectory() as folder:
        options.profile_file_prefix = f"{folder}/profile"
        session = onnxruntime.InferenceSession(
            bundle.graph(graph),
            options,
            providers=[(OpenVinoSettings.provider, {"device_type": device})],
        )
        feeds = {each.name: np.ones(each.shape, np.int64) for each in session.get_inputs()}
        session.run(None, feeds)
        events = json.loads(Path(session.end_profiling()).read_text("utf-8"))
    ran_on = [e["args"]["provider"] for e in events if "provider" in e.get("args", {})]
    if not ran_on or set(ran_on) != {OpenVinoSettings.provider}:
        raise SystemExit(f"{graph}: nodes ran on {sorted(set(ran_on))}")
    print(f"{graph}: {len(ran_on)} of {len(ran_on)} profiled runs of nodes on {ran_on[0]}")


def ask(bundle: Bundle, session: Session, questions: list[GateQuestion]) -> float:
    """F1 over the questions, read in the windows of the bundle's own gate."""
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)

    def run(feeds: dict) -> list:
        outputs = session.run(feeds)
        return [np.asarray(outputs[name]) for name in ("start_logits", "end_logits")]

    answers = predict(run, encoder, questions, 128).answers
    return float(scores(questions, answers)[1].mean())


if __name__ == "__main__":
    sys.exit(main())
