"""A drafter bundle and gate questions -> the best spans of each question, as JSON, on this CPU.

Runs on x86 and, under emulation, on ARM; imports only the runtime and the gate, never PyTorch.

    python tests/arm64_box/ask.py BUNDLE OUT.json [QUESTIONS]
"""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent))

import onnxruntime

from export.parity import BUILT_IN, GateQuestion, read_questions
from models.bundle import open_bundle
from runtime.alignment import anywhere
from runtime.encoding import PairEncoder
from runtime.sessions import Session, SessionOptions, open_session
from runtime.spans import best_spans

TOP = 8
LENGTH = 128


def best_answers(session: Session, encoder: PairEncoder, question: GateQuestion) -> list[dict]:
    """The TOP spans of the context's first window: text, place, and margin."""
    asked = encoder.question(question.question)
    context = encoder.tokenize(question.context)
    room = encoder.room(asked) - encoder.max_length + LENGTH
    batch = encoder.batch(asked, [context.ids[:room]])
    outputs = session.run(batch.feeds)
    start, end = outputs["start_logits"][0], outputs["end_logits"][0]
    place = batch.context(0)
    found = best_spans(
        start[place],
        end[place],
        float(start[0] + end[0]),
        anywhere(batch.context_lengths[0]),
        max_tokens=30,
        top=TOP,
    )
    answers = []
    for span in found:
        first = int(context.offsets[span.tokens.first, 0])
        last = int(context.offsets[span.tokens.last, 1])
        answers.append(
            {"span": [first, last], "text": question.context[first:last], "margin": span.margin}
        )
    return answers


def main() -> None:
    bundle = open_bundle(Path(sys.argv[1]), role="drafter")
    count = int(sys.argv[3]) if len(sys.argv) > 3 else 50
    questions = read_questions(BUILT_IN, limit=count, least=1)
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    session = open_session(bundle, SessionOptions(provider="cpu", threads=1))
    record = {
        "machine": platform.machine(),
        "onnxruntime": onnxruntime.__version__,
        "provider": session.placement.provider,
        "answers": [best_answers(session, encoder, question) for question in questions],
    }
    Path(sys.argv[2]).write_text(json.dumps(record), "utf-8")
    print(f"{record['machine']}, onnxruntime {record['onnxruntime']}: {len(questions)} questions")


if __name__ == "__main__":
    main()
