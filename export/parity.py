"""Two graphs of one model and a set of questions -> what the second lost, and whether it passes.

The gate: F1 and exact match (SQuAD's own normalisation, macro-averaged, in percentage points), the
share of identical spans, and the logits' errors over all tokens that are not padding. F1 alone
says nothing of a model that cannot answer the set (another language, random weights); therefore
the logits have a limit of their own, and a graph that answers nonsense fails either way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from runtime.alignment import anywhere
from runtime.answer_metrics import normalise, token_f1
from runtime.encoding import PairBatch, PairEncoder
from runtime.errors import ExportError
from runtime.questions import Gold, read_question_file
from runtime.spans import best_spans

BUILT_IN = Path(__file__).parent / "data" / "gate.json"
LEAST_QUESTIONS = 300
GATE_LENGTH = 128  # tokens of a whole pair, as the runtime reads its windows
ANSWER_TOKENS = 30
LIMITS = {"int8": 0.5, "fp16": 0.1, "fp32": 0.1}  # F1 points that may be lost
LOGIT_LIMIT = 0.35  # RMS error over RMS spread of the FP32 logits


@dataclass(frozen=True, slots=True)
class GateQuestion:
    """A question, its context, and gold answers; no answers means "not in this context"."""

    question: str
    context: str
    answers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Limits:
    """What a bundle may lose.

    Attributes:
        f1: F1 points.
        accepted_loss: the user's own larger limit in F1 points, recorded in the manifest.
        logits: RMS error of the logits over the RMS spread of the FP32 logits.
    """

    f1: float
    accepted_loss: float | None = None
    logits: float = LOGIT_LIMIT

    @property
    def allowed(self) -> float:
        return self.f1 if self.accepted_loss is None else max(self.f1, self.accepted_loss)


@dataclass(frozen=True, slots=True, eq=False)
class Predictions:
    """What one graph answered: per question the text, and the logits of each of its windows.

    Attributes:
        spans: (start, end) code points in the question's context; None for "no answer".
        logits: per window, start and end logits, float32 (2, tokens), padding cut off.
    """

    answers: tuple[str, ...]
    spans: tuple[tuple[int, int] | None, ...]
    logits: tuple[NDArray[np.float32], ...]


@dataclass(frozen=True, slots=True)
class GateReport:
    """The gate's figures; F1, EM and their losses in percentage points.

    Attributes:
        delta_f1_error: the standard error of `delta_f1`: what chance alone makes of it.
        identical_spans: share of the questions, 0 to 1.
        reasons: why it failed; empty when it passed.
    """

    data: str
    questions: int
    em_fp32: float
    f1_fp32: float
    em: float
    f1: float
    delta_em: float
    delta_f1: float
    delta_f1_error: float
    identical_spans: float
    worst_logit_error: float
    relative_logit_error: float
    limit_f1: float
    accepted_loss: float | None
    passed: bool
    reasons: tuple[str, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """As recorded in the manifest."""
        raw = asdict(self)
        raw["reasons"] = list(self.reasons)
        return {
            name: round(value, 5) if isinstance(value, float) else value
            for name, value in raw.items()
        }


class Gate:
    """Questions, and one model's FP32 answers to them, against which its other graphs are held."""

    def __init__(
        self,
        reference: Path,
        encoder: PairEncoder,
        questions: Sequence[GateQuestion],
        data: str,
        *,
        threads: int = 2,
        length: int = GATE_LENGTH,
        progress: Callable[[str, float], None] | None = None,
    ) -> None:
        """
        Args:
            reference: the FP32 graph, as exported, before any fusion.
            length: longest pair in tokens; longer contexts are read in overlapping windows.
            progress: called with what is done and the share done.
        """
        self.questions = tuple(questions)
        self.data = data
        self._encoder = encoder
        self._threads = threads
        self._length = length
        self._progress = progress
        self.reference = self._predict(reference, "FP32")

    def check(self, graph: Path, limits: Limits, name: str = "bundle") -> GateReport:
        """Ask `graph` the same questions and compare."""
        return compare(
            self.questions, self.reference, self._predict(graph, name), limits, self.data
        )

    def feeds(self, questions: int) -> Iterator[dict[str, NDArray[np.int64]]]:
        """Padded feeds of some of the questions, at even steps through the set."""
        steps = np.linspace(0, len(self.questions) - 1, questions).round().astype(int)
        for index in steps:
            yield _windows(self._encoder, self.questions[index], self._length).batch.feeds

    def _predict(self, graph: Path, name: str) -> Predictions:
        run = open_runner(graph, self._threads)
        report = None
        if self._progress is not None:
            progress = self._progress
            report = lambda share: progress(f"gate: {name}", share)  # noqa: E731
        return predict(run, self._encoder, self.questions, self._length, report)


Runner = Callable[[dict[str, NDArray[np.int64]]], list[NDArray[np.float32]]]


def open_runner(graph: Path, threads: int) -> Runner:
    """The graph on the CPU, as a function from feeds to start and end logits."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    wanted = [value.name for value in session.get_inputs()]

    def run(feeds: dict[str, NDArray[np.int64]]) -> list[NDArray[np.float32]]:
        outputs = session.run(
            ["start_logits", "end_logits"], {name: feeds[name] for name in wanted}
        )
        return [np.asarray(output) for output in outputs]

    return run


def predict(
    run: Runner,
    encoder: PairEncoder,
    questions: Sequence[GateQuestion],
    length: int,
    progress: Callable[[float], None] | None = None,
) -> Predictions:
    """Answer every question from its own context, all windows of a question in one batch.

    "No answer" is only given where the set holds questions without one.
    """
    may_abstain = any(not question.answers for question in questions)
    answers: list[str] = []
    spans: list[tuple[int, int] | None] = []
    logits: list[NDArray[np.float32]] = []
    for done, question in enumerate(questions, start=1):
        span, windows = _answer(run, encoder, question, length, may_abstain)
        spans.append(span)
        answers.append(question.context[slice(*span)] if span else "")
        logits.extend(windows)
        if progress is not None and (done % 20 == 0 or done == len(questions)):
            progress(done / len(questions))
    return Predictions(tuple(answers), tuple(spans), tuple(logits))


@dataclass(frozen=True, slots=True, eq=False)
class _Windows:
    """A question's windows: first tokens, the context's offsets, and the padded batch."""

    starts: tuple[int, ...]
    offsets: NDArray[np.int32]
    batch: PairBatch


def _windows(encoder: PairEncoder, question: GateQuestion, length: int) -> _Windows:
    asked = encoder.question(question.question)
    context = encoder.tokenize(question.context)
    room = max(1, encoder.room(asked) - max(0, encoder.max_length - length))
    starts = _window_starts(len(context.ids), room)
    batch = encoder.batch(asked, [context.ids[start : start + room] for start in starts])
    return _Windows(tuple(starts), context.offsets, batch)


def _answer(
    run: Runner, encoder: PairEncoder, question: GateQuestion, length: int, may_abstain: bool
) -> tuple[tuple[int, int] | None, list[NDArray[np.float32]]]:
    windows = _windows(encoder, question, length)
    batch = windows.batch
    start_logits, end_logits = run(batch.feeds)
    best_margin, best = -np.inf, None
    for row, first in enumerate(windows.starts):
        place = batch.context(row)
        found = best_spans(
            start_logits[row, place],
            end_logits[row, place],
            float(start_logits[row, 0] + end_logits[row, 0]),
            anywhere(batch.context_lengths[row]),
            max_tokens=ANSWER_TOKENS,
        )
        if found and found[0].margin > best_margin:
            best_margin, tokens = found[0].margin, found[0].tokens
            offsets = windows.offsets[first + tokens.first : first + tokens.last + 1]
            best = (int(offsets[0, 0]), int(offsets[-1, 1]))
    if may_abstain and best_margin < 0:
        best = None
    lengths = batch.feeds["attention_mask"].sum(axis=1)
    logits = [
        np.stack([start_logits[row, :used], end_logits[row, :used]])
        for row, used in enumerate(lengths)
    ]
    return best, logits


def _window_starts(tokens: int, room: int) -> list[int]:
    """Starts of windows of `room` tokens that overlap by half, the last one flush with the end."""
    if tokens <= room:
        return [0]
    step = max(1, room // 2)
    return [*range(0, tokens - room, step), tokens - room]


def compare(
    questions: Sequence[GateQuestion],
    reference: Predictions,
    candidate: Predictions,
    limits: Limits,
    data: str,
) -> GateReport:
    """The gate's figures for `candidate` against `reference`, and its verdict."""
    exact_fp32, overlap_fp32 = scores(questions, reference.answers)
    exact, overlap = scores(questions, candidate.answers)
    lost = overlap_fp32 - overlap
    delta_f1 = float(lost.mean())
    same = [a == b for a, b in zip(reference.spans, candidate.spans, strict=True)]
    worst, relative = logit_errors(reference.logits, candidate.logits)
    reasons = []
    if delta_f1 > limits.allowed:
        reasons.append(f"F1 falls by {delta_f1:.2f} points (limit {limits.allowed:g})")
    if not relative <= limits.logits:  # also true of NaN
        reasons.append(
            f"the logits' error is {relative:.2f} of their spread (limit {limits.logits:g})"
        )
    return GateReport(
        data=data,
        questions=len(questions),
        em_fp32=float(exact_fp32.mean()),
        f1_fp32=float(overlap_fp32.mean()),
        em=float(exact.mean()),
        f1=float(overlap.mean()),
        delta_em=float((exact_fp32 - exact).mean()),
        delta_f1=delta_f1,
        delta_f1_error=float(lost.std() / np.sqrt(len(questions))),
        identical_spans=float(np.mean(same)),
        worst_logit_error=worst,
        relative_logit_error=relative,
        limit_f1=limits.allowed,
        accepted_loss=limits.accepted_loss,
        passed=not reasons,
        reasons=tuple(reasons),
    )


def logit_errors(
    reference: Sequence[NDArray[np.float32]], candidate: Sequence[NDArray[np.float32]]
) -> tuple[float, float]:
    """Largest absolute error, and RMS error over the RMS spread of the reference's logits.

    Both are infinite when a logit is not finite.
    """
    expected = np.concatenate([window.ravel() for window in reference]).astype(np.float64)
    measured = np.concatenate([window.ravel() for window in candidate]).astype(np.float64)
    if not np.isfinite(measured).all():
        return float("inf"), float("inf")
    error = measured - expected
    spread = max(float(expected.std()), 1e-12)
    return float(np.abs(error).max()), float(np.sqrt(np.mean(error**2))) / spread


def scores(
    questions: Sequence[GateQuestion], answers: Sequence[str]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact match and F1 of each question, in percent."""
    exact, overlap = [], []
    for question, answer in zip(questions, answers, strict=True):
        golds = question.answers or ("",)
        exact.append(100.0 * max(normalise(answer) == normalise(gold) for gold in golds))
        overlap.append(100.0 * max(token_f1(answer, gold) for gold in golds))
    return np.asarray(exact), np.asarray(overlap)


def read_questions(
    path: Path, *, limit: int | None = None, least: int = LEAST_QUESTIONS
) -> list[GateQuestion]:
    """The questions of a file that a gate can ask: those with a text and a context.

    Args:
        limit: at most so many, taken at even steps through the file.
        least: fewer usable questions are refused.

    Raises:
        UsageError: the file cannot be read or is of neither form.
        ExportError: it holds fewer than `least` usable questions.
    """
    usable = [
        GateQuestion(asked.question, asked.context, _distinct(asked.golds))
        for asked in read_question_file(path).questions
        if asked.question.strip() and asked.context.strip()
    ]
    if not any(question.answers for question in usable) or len(usable) < least:
        raise ExportError(
            f"The gate needs at least {least} questions with their contexts and answers; "
            f"this file holds {len(usable)}",
            where=str(path),
            fix="Name a larger file, or leave --gate out for the built-in set",
        )
    if limit is not None and len(usable) > limit:
        steps = np.linspace(0, len(usable) - 1, max(limit, least)).round().astype(int)
        usable = [usable[index] for index in steps]
    return usable


def _distinct(golds: Sequence[Gold]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(gold.text for gold in golds))
