"""What a training run is told and what it reports: options, figures, the table, the loss curve."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from runtime.errors import UsageError

Kind = Literal["finetune", "distil"]
Precision = Literal["auto", "bf16", "fp32"]

POINT_STEPS = 25  # steps that one point of the loss curve averages
FREE_OPTIONS = (  # may differ when a run is resumed
    "output",
    "resume",
    "threads",
    "checkpoint_steps",
    "offline",
    "minutes",
    "evaluated",
)


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """What to train, on what, and how.

    Attributes:
        model: hub id or folder: the start of fine-tuning, the teacher of distillation.
        data: SQuAD JSON or JSON lines.
        output: a new folder; with `resume` one with checkpoints in it.
        student: distillation starts from this checkpoint instead of the teacher's layers; it may
            have another tokenizer, and then `hidden_weight` is 0.
        ensemble: further teachers, of any tokenizer; the mean of the logits of all teaches.
        layers: how many layers the student gets, or which of the teacher's, counted from 0.
        intermediate_size: neurons the student keeps in each feed-forward layer; None: all.
        epochs: passes over the training questions; the learning rate falls linearly to 0.
        minutes: end after so long instead, if that comes first; the learning rate follows.
        learning_rate: its peak, after `warmup_steps`.
        window_tokens: longest training view, question and context together.
        held_out: share of contexts that are only evaluated on.
        evaluated: at most so many held-out questions are asked, before and after.
        hard_share: weight of the labels against the teacher's distributions.
        hidden_weight: weight of the hidden states' distance; 0 leaves it out.
        sibling_share: made-up English questions for one of several like things told apart by a
            code, for each question; their label alone teaches.
        substitution_share: share of views with words replaced by their like; distillation only.
        cloze_share: cloze questions for each question, which only the teacher answers; the same.
        half: store the weights in FP16.
    """

    model: str
    data: tuple[Path, ...]
    output: Path
    student: str | None = None
    ensemble: tuple[str, ...] = ()
    layers: int | tuple[int, ...] | None = None
    intermediate_size: int | None = None
    epochs: float = 3.0
    minutes: float | None = None
    learning_rate: float = 1.5e-4
    warmup_steps: int = 100
    weight_decay: float = 0.01
    dropout: float = 0.1
    batch_tokens: int = 4096
    window_tokens: int = 128
    short_share: float = 0.3
    negative_share: float = 0.45
    sibling_share: float = 0.4
    held_out: float = 0.1
    evaluated: int = 300
    temperature: float = 2.0
    hard_share: float = 0.2
    hidden_weight: float = 1.0
    substitution_share: float = 0.5
    cloze_share: float = 0.7
    train_word_embeddings: bool = False
    precision: Precision = "auto"
    half: bool = False
    seed: int = 0
    threads: int = 2
    checkpoint_steps: int = 200
    resume: bool = False
    offline: bool = False

    def fingerprint(self) -> dict[str, Any]:
        """The options that a resumed run must share with the interrupted one."""
        raw = {name: value for name, value in asdict(self).items() if name not in FREE_OPTIONS}
        raw["data"] = [path.name for path in self.data]
        plain: dict[str, Any] = json.loads(json.dumps(raw))  # as a checkpoint gives it back
        return plain


@dataclass(frozen=True, slots=True)
class Point:
    """One point of the loss curve: an average over the steps since the last one."""

    step: int
    epochs: float
    loss: float
    learning_rate: float


@dataclass(frozen=True, slots=True)
class Score:
    """Held-out questions, each asked of the ten windows that BM25 finds among all contexts.

    Attributes:
        f1, em: of the best span of all windows, in percent, SQuAD normalisation.
        given_f1: F1 with the answer's own window given.
        recall: share of questions, in percent, whose own context is among the ten.
    """

    questions: int
    f1: float
    em: float
    given_f1: float
    recall: float


@dataclass(frozen=True, slots=True)
class TrainingReport:
    """What a run did, as written to `training.json`.

    Attributes:
        narrowing: for each layer that was narrowed, the share of its output (mean square) that the
            neurons left could not give.
        before, after: of the model trained; `teacher`: of the teacher, when distilling.
        tokens_per_second: padded tokens, forward and backward, of this process alone.
    """

    kind: Kind
    output: Path
    options: dict[str, Any]
    layers: int
    narrowing: tuple[float, ...]
    training_questions: int
    held_out_questions: int
    steps: int
    epochs: float
    seconds: float
    tokens_per_second: float
    before: Score
    after: Score
    teacher: Score | None
    curve: tuple[Point, ...]
    versions: dict[str, str]

    def to_json(self) -> dict[str, Any]:
        raw = asdict(self)
        raw["output"] = str(self.output)
        return raw


def check_options(options: TrainingOptions) -> None:
    bounds = {
        "epochs": (options.epochs, 0.0, math.inf),
        "learning_rate": (options.learning_rate, 0.0, 1.0),
        "held_out": (options.held_out, 0.0, 0.9),
        "dropout": (options.dropout, -0.1, 0.9),
        "temperature": (options.temperature, 0.0, math.inf),
    }
    for name, (value, low, high) in bounds.items():
        if not low < value <= high:
            raise UsageError(
                f"{name} is {value:g}",
                where=f"--{name.replace('_', '-')}",
                fix=f"Choose a value above {max(low, 0):g} and up to {high:g}",
            )
    if not options.data:
        raise UsageError("No training data", where="--data", fix="Name at least one file")


def print_training(report: TrainingReport) -> None:
    """The figures as a table, to standard output."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"{report.kind}: {report.output.name}, {report.layers} layers")
    for name in ("held-out questions", "F1", "EM", "F1, window given", "recall@10"):
        table.add_column(name)
    rows = {"before": report.before, "after": report.after, "teacher": report.teacher}
    for name, score in rows.items():
        if score is not None:
            figures = (score.f1, score.em, score.given_f1, score.recall)
            table.add_row(f"{score.questions}, {name}", *(f"{value:.1f}" for value in figures))
    console = Console(highlight=False)
    console.print(table)
    console.print(
        f"{report.steps} steps, {report.epochs:.2f} epochs, {clock(report.seconds)}, "
        f"{report.tokens_per_second:.0f} tokens/s. Model: {report.output}",
        soft_wrap=True,
    )


def draw_curve(report: TrainingReport, path: Path) -> None:
    """The loss by epochs, as a PNG."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.plot([p.epochs for p in report.curve], [p.loss for p in report.curve], marker=".")
    axes.set_xlabel("epochs")
    axes.set_ylabel(f"loss, mean of {POINT_STEPS} steps")
    axes.set_title(
        f"{report.kind}: held-out F1 {report.before.f1:.1f} -> {report.after.f1:.1f} "
        f"after {report.steps} steps"
    )
    axes.grid(alpha=0.3)
    figure.savefig(path, dpi=120)


def clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"
