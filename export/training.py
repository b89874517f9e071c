"""A checkpoint and questions with answers -> a better checkpoint, or a smaller one taught by it.

    python -m export.training finetune MODEL --data FILE... -o DIR
    python -m export.training distil TEACHER --data FILE... -o DIR --layers 3

Fine-tuning minimises cross-entropy to the annotators' starts and ends, all of them as one
distribution; windows without the answer are labelled with the null position. Distillation adds
the Kullback-Leibler divergence to the teacher's starts and ends at a temperature (Hinton et al.
2015, arXiv 1503.02531) and the squared distance of hidden states (Jiao et al. 2020, arXiv
1909.10351). Forward and backward run in bfloat16 where the CPU multiplies it in hardware, with
FP32 master weights; dropout draws slices of one random mask, since random numbers would cost more
than the matrix products. Held-out contexts are never trained on. Checkpoints are folders of
safetensors and JSON, written aside and renamed; nothing pickled is ever read.
"""

from __future__ import annotations

import copy
import json
import math
import random
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import click
import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812  its usual name
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from export.checkpoint import open_checkpoint
from export.graph import quiet
from export.options import run_script
from export.parity import normalise, token_f1
from export.reporting import Progress, show_progress
from export.training_data import (
    Asked,
    Batch,
    Corpus,
    Position,
    ViewOptions,
    Views,
    Window,
    hold_out,
    read_records,
)
from runtime.encoding import PairEncoder
from runtime.errors import ExportError, UsageError
from runtime.spans import best_spans

Kind = Literal["finetune", "distil"]
Precision = Literal["auto", "bf16", "fp32"]

ANSWER_TOKENS = 30
EVALUATED_WINDOWS = 10
MASK_ELEMENTS = 1 << 25  # of the random mask that dropout draws slices of
PADDING_LOGIT = -1e4
POINT_STEPS = 25  # steps that one point of the loss curve averages
CHECKPOINT_VERSION = 1
FREE_OPTIONS = (  # may differ when a run is resumed
    "output",
    "resume",
    "threads",
    "checkpoint_steps",
    "offline",
    "minutes",
    "evaluated",
)
ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")


@dataclass(frozen=True, slots=True)
class TrainingOptions:
    """What to train, on what, and how.

    Attributes:
        model: hub id or folder: the start of fine-tuning, the teacher of distillation.
        data: SQuAD JSON or JSON lines.
        output: a new folder; with `resume` one with checkpoints in it.
        student: distillation starts from this smaller checkpoint instead of the teacher's layers.
        layers: how many layers the student gets, or which of the teacher's, counted from 0.
        epochs: passes over the training questions; the learning rate falls linearly to 0.
        minutes: end after so long instead, if that comes first; the learning rate follows.
        learning_rate: its peak, after `warmup_steps`.
        window_tokens: longest training view, question and context together.
        held_out: share of contexts that are only evaluated on.
        evaluated: at most so many held-out questions are asked, before and after.
        hard_share: weight of the labels against the teacher's distributions.
        hidden_weight: weight of the hidden states' distance; 0 leaves it out.
        half: store the weights in FP16.
    """

    model: str
    data: tuple[Path, ...]
    output: Path
    student: str | None = None
    layers: int | tuple[int, ...] | None = None
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
    held_out: float = 0.1
    evaluated: int = 300
    temperature: float = 2.0
    hard_share: float = 0.2
    hidden_weight: float = 1.0
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
        free = (
            "output",
            "resume",
            "threads",
            "checkpoint_steps",
            "offline",
            "minutes",
            "evaluated",
        )
        raw = {name: value for name, value in asdict(self).items() if name not in free}
        raw["data"] = [path.name for path in self.data]
        return json.loads(json.dumps(raw))


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
        before, after: of the model trained; `teacher`: of the teacher, when distilling.
        tokens_per_second: padded tokens, forward and backward, of this process alone.
    """

    kind: Kind
    output: Path
    options: dict[str, Any]
    layers: int
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


def finetune(options: TrainingOptions, progress: Progress | None = None) -> TrainingReport:
    """Train `options.model` on and write it to `options.output`, with report and loss curve.

    Args:
        progress: called with what is done and the share done.

    Raises:
        UsageError: the data or an option is no use; says which line or option.
        ExportError: the model cannot be loaded, or a checkpoint is damaged.
    """
    _check(options)
    model, tokenizer = _load(options.model, options.offline, head_required=False)
    return _Run("finetune", options, model, tokenizer, progress=progress).execute()


def distil(options: TrainingOptions, progress: Progress | None = None) -> TrainingReport:
    """Teach a student of fewer layers what `options.model` knows; writes it to `options.output`.

    Raises:
        UsageError: the data or an option is no use, or the student would not be smaller.
        ExportError: the teacher cannot be loaded, or a checkpoint is damaged.
    """
    _check(options)
    teacher, tokenizer = _load(options.model, options.offline, head_required=True)
    if options.student is not None:
        student, _ = _load(options.student, options.offline, head_required=True)
        _require_same_vocabulary(student, teacher, options.student)
    else:
        student = choose_layers(teacher, options.layers)
    if _depth(student) >= _depth(teacher):
        raise UsageError(
            f"The student has {_depth(student)} layers, the teacher {_depth(teacher)}",
            where="--layers",
            fix="A student needs fewer layers than its teacher",
        )
    run = _Run("distil", options, student, tokenizer, teacher=teacher, progress=progress)
    return run.execute()


def choose_layers(teacher: Any, layers: int | tuple[int, ...] | None) -> Any:
    """A copy of `teacher` with only some of its layers: as named, or so many, evenly spread.

    Without `layers` it gets half of them.

    Raises:
        UsageError: there is no such layer, or the architecture does not list its layers.
    """
    depth = _depth(teacher)
    chosen = layers if isinstance(layers, tuple) else _spread(depth, layers or max(1, depth // 2))
    if not chosen or not all(0 <= layer < depth for layer in chosen):
        raise UsageError(
            f"The teacher has the layers 0 to {depth - 1}",
            where="--layers " + ",".join(map(str, chosen)),
            fix="Name some of these, or fewer than there are",
        )
    student = copy.deepcopy(teacher)
    name, stack = _layer_stack(student)
    parent = student.get_submodule(name.rpartition(".")[0])
    kept = torch.nn.ModuleList([stack[layer] for layer in chosen])
    setattr(parent, name.rpartition(".")[2], kept)
    student.config.num_hidden_layers = len(chosen)
    return student


def _silent(stage: str, share: float) -> None:
    """Progress for those who do not want any."""
    del stage, share


class _Run:
    """One training run: the state that steps, checkpoints and the report share."""

    def __init__(
        self,
        kind: Kind,
        options: TrainingOptions,
        model: Any,
        tokenizer: Any,
        *,
        teacher: Any = None,
        progress: Progress | None = None,
    ) -> None:
        self.kind, self.options = kind, options
        self.progress: Progress = progress or _silent
        torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        self.dtype = _resolve(options.precision)
        self.tokenizer = tokenizer
        self.trainee = _Trainee(model, options, self.dtype)
        self.teacher = None if teacher is None else _frozen(teacher, self.dtype)
        self.step, self.position = 0, Position()
        self.epochs, self.seconds, self.tokens = 0.0, 0.0, 0
        self.curve: list[Point] = []
        self._recent: list[float] = []

    def execute(self) -> TrainingReport:
        options = self.options
        model = self.trainee.master
        with _output(options) as folder, _corpus(options, model, self.tokenizer) as c:
            asked = _seeded(options.seed).sample(c.held, min(len(c.held), options.evaluated))
            self.progress("evaluating: before", 0.0)
            before = self._evaluate(self.trainee.master, c, asked)
            teacher = self.teacher and self._evaluate(self.teacher, c, asked)
            if options.resume:
                self._restore(folder)
            self._train(c, folder)
            self.progress("evaluating: after", 1.0)
            after = self._evaluate(self.trainee.master, c, asked)
            report = self._report(c, before, after, teacher)
            self._finish(folder, report)
        return report

    def _train(self, corpus: Corpus, folder: Path) -> None:
        options = self.options
        views = Views(
            corpus,
            ViewOptions(
                options.window_tokens,
                options.short_share,
                options.negative_share,
                options.batch_tokens,
            ),
            options.seed,
        )
        begin, before = time.monotonic(), self.seconds
        for batch, position, epochs in views.batches(self.position):
            done = self._done()
            if done >= 1.0:
                break
            rate = self._rate(done)
            self._recent.append(self._learn(batch, rate))
            self.step, self.position, self.epochs = self.step + 1, position, epochs
            self.tokens += batch.feeds["input_ids"].size
            self.seconds = before + time.monotonic() - begin
            if self.step % POINT_STEPS == 0:
                self._mark(rate)
            if self.step % options.checkpoint_steps == 0:
                self._save(folder)
        if self._recent:
            self._mark(0.0)
        self._save(folder)

    def _done(self) -> float:
        """The share of the run that is done, by epochs or by the clock."""
        by_epochs = self.epochs / self.options.epochs
        if self.options.minutes is None:
            return by_epochs
        return max(by_epochs, self.seconds / 60 / self.options.minutes)

    def _rate(self, done: float) -> float:
        warm = min(1.0, (self.step + 1) / max(1, self.options.warmup_steps))
        return self.options.learning_rate * warm * (1.0 - done)

    def _learn(self, batch: Batch, rate: float) -> float:
        feeds = {name: torch.from_numpy(value) for name, value in batch.feeds.items()}
        targets = torch.from_numpy(batch.targets)
        self.trainee.reseed(self.options.seed, self.step)
        wanted = self.teacher is not None and self.options.hidden_weight > 0
        output = self.trainee(feeds, hidden=wanted)
        loss = _label_loss(output, feeds["attention_mask"], targets)
        if self.teacher is not None:
            with torch.no_grad():
                taught = _forward(self.teacher, feeds, hidden=wanted)
            share = self.options.hard_share
            soft = _soft_loss(output, taught, feeds["attention_mask"], self.options.temperature)
            loss = share * loss + (1 - share) * soft
            if wanted:
                near = _hidden_loss(output, taught, feeds["attention_mask"])
                loss = loss + self.options.hidden_weight * near
        value = float(loss.detach())
        if not math.isfinite(value):
            raise ExportError(
                f"The loss became {value} at step {self.step + 1}",
                where=str(self.options.output),
                fix="Train with a lower --learning-rate, or --precision fp32",
            )
        loss.backward()
        self.trainee.descend(rate)
        return value

    def _mark(self, rate: float) -> None:
        loss = float(np.mean(self._recent))
        self.curve.append(Point(self.step, round(self.epochs, 4), round(loss, 5), rate))
        self._recent.clear()
        done = self._done()
        left = self.seconds * (1 - done) / done if done else 0.0
        speed = self.tokens / self.seconds
        stage = f"step {self.step}, loss {loss:.3f}, {speed:.0f} tokens/s, {_clock(left)} left"
        self.progress(stage, min(1.0, done))

    def _save(self, folder: Path) -> None:
        """Write a checkpoint aside, rename it into place, then remove the ones before it."""
        place = folder / "checkpoints" / f"step-{self.step:08d}"
        if place.is_dir():
            return
        aside = place.with_name(f".{place.name}.part")
        shutil.rmtree(aside, ignore_errors=True)
        aside.mkdir(parents=True)
        save_file(self.trainee.state(), aside / "state.safetensors")
        state = {
            "version": CHECKPOINT_VERSION,
            "kind": self.kind,
            "options": self.options.fingerprint(),
            "step": self.step,
            "position": asdict(self.position),
            "epochs": self.epochs,
            "seconds": self.seconds,
            "tokens": self.tokens,
            "curve": [asdict(point) for point in self.curve],
            "recent": self._recent,
        }
        (aside / "state.json").write_text(json.dumps(state), "utf-8")
        aside.rename(place)
        for old in place.parent.iterdir():
            if old != place:
                shutil.rmtree(old, ignore_errors=True)

    def _restore(self, folder: Path) -> None:
        place = max((folder / "checkpoints").glob("step-*"), default=None)
        if place is None:
            raise UsageError(
                "There is no checkpoint to resume from",
                where=str(folder),
                fix="Leave --resume out, and name a folder that does not exist",
            )
        try:
            state = json.loads((place / "state.json").read_text("utf-8"))
            tensors = load_file(place / "state.safetensors")
            if state["version"] != CHECKPOINT_VERSION:
                raise ValueError(f"version {state['version']}")
            self._require_same(state)
            self.step, self.position = state["step"], Position(**state["position"])
            self.epochs, self.seconds = state["epochs"], state["seconds"]
            self.tokens, self._recent = state["tokens"], state["recent"]
            self.curve = [Point(**point) for point in state["curve"]]
            self.trainee.restore(tensors, self.step)
        except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
            raise ExportError(
                f"The checkpoint cannot be read: {error!r}",
                where=str(place),
                fix="Remove this checkpoint's folder, or start again in a new one",
            ) from error

    def _require_same(self, state: dict[str, Any]) -> None:
        now = {"kind": self.kind, **self.options.fingerprint()}
        then = {"kind": state["kind"], **state["options"]}
        changed = sorted(name for name in now if now[name] != then.get(name))
        if changed:
            raise UsageError(
                f"The interrupted run had other options: {', '.join(changed)}",
                where=str(self.options.output),
                fix="Resume with the same ones, or start anew in another folder",
            )

    def _evaluate(self, model: Any, corpus: Corpus, asked: list[Asked]) -> Score:
        return evaluate(_frozen(model, self.dtype), corpus, asked)

    def _report(
        self, corpus: Corpus, before: Score, after: Score, teacher: Score | None
    ) -> TrainingReport:
        return TrainingReport(
            kind=self.kind,
            output=self.options.output,
            options=self.options.fingerprint(),
            layers=_depth(self.trainee.master),
            training_questions=len(corpus.train),
            held_out_questions=len(corpus.held),
            steps=self.step,
            epochs=round(self.epochs, 4),
            seconds=round(self.seconds, 1),
            tokens_per_second=round(self.tokens / max(self.seconds, 1e-9), 1),
            before=before,
            after=after,
            teacher=teacher,
            curve=tuple(self.curve),
            versions={name: version(name) for name in ("torch", "transformers", "tokenizers")},
        )

    def _finish(self, folder: Path, report: TrainingReport) -> None:
        """The model, its tokenizer, the report and the curve; then the checkpoints may go."""
        model = copy.deepcopy(self.trainee.master).eval()
        with quiet():
            (model.half() if self.options.half else model).save_pretrained(folder)
        self.tokenizer.save_pretrained(folder)
        text = json.dumps(report.to_json(), ensure_ascii=False, indent=1)
        (folder / "training.json").write_text(text + "\n", "utf-8")
        draw_curve(report, folder / "loss.png")
        shutil.rmtree(folder / "checkpoints", ignore_errors=True)


class _Trainee:
    """FP32 master weights, a copy in the dtype of the arithmetic, and AdamW over the masters."""

    def __init__(self, model: Any, options: TrainingOptions, dtype: torch.dtype) -> None:
        self.master = model.float().eval()
        table = self.master.get_input_embeddings().weight
        table.requires_grad_(options.train_word_embeddings)
        self._copy = copy.deepcopy(self.master).to(dtype)
        self._mask = _MaskDropout(options.dropout, dtype, options.seed)
        _replace_dropout(self._copy, self._mask)
        self._copy.train()
        named = [(n, p) for n, p in self.master.named_parameters() if p.requires_grad]
        self._names = [name for name, _ in named]
        self._masters = [parameter for _, parameter in named]
        self._low = [p for p in self._copy.parameters() if p.requires_grad]
        decayed = [p for p in self._masters if p.ndim > 1]
        others = [p for p in self._masters if p.ndim <= 1]
        self._adam = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": options.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            betas=(0.9, 0.98),
            fused=True,
        )

    def __call__(self, feeds: dict[str, torch.Tensor], *, hidden: bool) -> Any:
        return _forward(self._copy, feeds, hidden=hidden)

    def reseed(self, seed: int, step: int) -> None:
        """Dropout depends on the step alone, so that a resumed run draws what it would have."""
        self._mask.draw = _seeded(f"{seed}/{step}")

    def descend(self, rate: float) -> None:
        """One step of AdamW along the gradients of the last backward, clipped to norm 1."""
        for master, low in zip(self._masters, self._low, strict=True):
            master.grad = None if low.grad is None else low.grad.float()
            low.grad = None
        torch.nn.utils.clip_grad_norm_(self._masters, 1.0, foreach=True)
        for group in self._adam.param_groups:
            group["lr"] = rate
        self._adam.step()
        self._publish()

    def state(self) -> dict[str, torch.Tensor]:
        """Masters and both moments, by name."""
        tensors = {}
        for name, master in zip(self._names, self._masters, strict=True):
            tensors[f"weight.{name}"] = master.detach().contiguous()
            for moment in ("exp_avg", "exp_avg_sq"):
                kept = self._adam.state[master].get(moment, torch.zeros_like(master))
                tensors[f"{moment}.{name}"] = kept.contiguous()
        return tensors

    def restore(self, tensors: dict[str, torch.Tensor], step: int) -> None:
        """Take up `state` as it was after `step` steps."""
        for name, master in zip(self._names, self._masters, strict=True):
            with torch.no_grad():
                master.copy_(tensors[f"weight.{name}"])
            self._adam.state[master] = {
                "step": torch.tensor(float(step)),
                "exp_avg": tensors[f"exp_avg.{name}"].clone(),
                "exp_avg_sq": tensors[f"exp_avg_sq.{name}"].clone(),
            }
        self._publish()

    def _publish(self) -> None:
        with torch.no_grad():
            for low, master in zip(self._low, self._masters, strict=True):
                low.copy_(master)


class _MaskDropout(torch.nn.Module):
    """Dropout by a random slice of one mask: reads memory where the usual one draws numbers."""

    def __init__(self, share: float, dtype: torch.dtype, seed: int) -> None:
        super().__init__()
        self.draw = _seeded(seed)
        keep = torch.rand(MASK_ELEMENTS, generator=torch.Generator().manual_seed(seed)) >= share
        self._mask = keep.to(dtype) / (1.0 - share)
        self._share = share

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        if not self.training or self._share == 0.0 or values.numel() >= MASK_ELEMENTS:
            return values
        first = self.draw.randrange(MASK_ELEMENTS - values.numel())
        return values * self._mask[first : first + values.numel()].view_as(values)


def _replace_dropout(model: Any, mask: _MaskDropout) -> None:
    """Put `mask` where the model has dropout. Dropout of attention is off: see `_load`."""
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, torch.nn.Dropout):
                setattr(parent, name, mask if child.p > 0 else torch.nn.Identity())


def evaluate(model: Any, corpus: Corpus, asked: list[Asked]) -> Score:
    """Ask `model` held-out questions: from the ten retrieved windows, and from the answer's own."""
    f1 = em = given = recall = 0.0
    questions = [question for question in asked if question.answers]
    for question in questions:
        windows = corpus.retrieve(question, EVALUATED_WINDOWS)
        recall += any(window.context == question.context for window in windows)
        answer = _read(model, corpus, question, windows)
        f1 += max(token_f1(answer, gold) for gold in question.golds)
        em += any(normalise(answer) == normalise(gold) for gold in question.golds)
        own = _read(model, corpus, question, [_own_window(corpus, question)])
        given += max(token_f1(own, gold) for gold in question.golds)
    share = 100 / max(1, len(questions))
    rounded = (round(share * total, 2) for total in (f1, em, given, recall))
    return Score(len(questions), *rounded)


def _own_window(corpus: Corpus, question: Asked) -> Window:
    """A window of full length with the first annotator's answer in its middle."""
    room, answer = corpus.room(question), question.answers[0]
    tokens = len(corpus.contexts[question.context].ids)
    middle = (answer.first + answer.last + 1 - room) // 2
    first = max(0, min(middle, tokens - room))
    return Window(question.context, first, min(tokens, first + room))


def _read(model: Any, corpus: Corpus, question: Asked, windows: list[Window]) -> str:
    """The best span of all windows, by start + end logits minus the window's null score."""
    if not windows:
        return ""
    contexts = [corpus.contexts[w.context].ids[w.first : w.end] for w in windows]
    batch = corpus.encoder.batch(question.ids, contexts)
    with torch.inference_mode():
        feeds = {name: torch.from_numpy(value) for name, value in batch.feeds.items()}
        output = _forward(model, feeds, hidden=False)
    start, end = output.start_logits.float().numpy(), output.end_logits.float().numpy()
    best, found = -math.inf, ""
    for row, window in enumerate(windows):
        place, null = batch.context(row), float(start[row, 0] + end[row, 0])
        free = np.ones(batch.context_lengths[row], dtype=np.bool_)
        spans = best_spans(start[row, place], end[row, place], null, free, max_tokens=ANSWER_TOKENS)
        if spans and spans[0].margin > best:
            best, tokens = spans[0].margin, spans[0].tokens
            answer = Window(
                window.context, window.first + tokens.first, window.first + tokens.last + 1
            )
            found = corpus.text(answer)
    return found


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


def _forward(model: Any, feeds: dict[str, torch.Tensor], *, hidden: bool) -> Any:
    given = {"input_ids": feeds["input_ids"], "attention_mask": feeds["attention_mask"]}
    if getattr(model.config, "type_vocab_size", 0) > 1:
        given["token_type_ids"] = feeds["token_type_ids"]
    return model(**given, output_hidden_states=hidden)


def _label_loss(output: Any, mask: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy of starts and ends. Logits (batch, tokens), targets (2, batch, tokens)."""
    sides = zip((output.start_logits, output.end_logits), targets, strict=True)
    losses = [-(share * _log_softmax(logits, mask)).sum(-1).mean() for logits, share in sides]
    return (losses[0] + losses[1]) / 2


def _soft_loss(output: Any, taught: Any, mask: torch.Tensor, temperature: float) -> torch.Tensor:
    """Mean KL divergence to the teacher's starts and ends, times the temperature squared."""
    losses = []
    for side in ("start_logits", "end_logits"):
        student = _log_softmax(output[side], mask, temperature)
        teacher = _log_softmax(taught[side], mask, temperature)
        losses.append((teacher.exp() * (teacher - student)).sum(-1).mean())
    return (losses[0] + losses[1]) / 2 * temperature**2


def _log_softmax(
    logits: torch.Tensor, mask: torch.Tensor, temperature: float = 1.0
) -> torch.Tensor:
    real = logits.float().masked_fill(mask == 0, PADDING_LOGIT)
    return F.log_softmax(real / temperature, dim=-1)


def _hidden_loss(output: Any, taught: Any, mask: torch.Tensor) -> torch.Tensor:
    """Mean squared distance of each layer's output to that of the teacher's layer as deep."""
    student, teacher = output.hidden_states[1:], taught.hidden_states[1:]
    real = mask.bool()
    distances = [
        F.mse_loss(states[real].float(), teacher[place][real].float())
        for states, place in zip(student, _depths(len(student), len(teacher)), strict=True)
    ]
    return torch.stack(distances).mean()


def _depths(student: int, teacher: int) -> list[int]:
    """For each of the student's layers, the teacher's that ends at the same share of the way."""
    return [round((layer + 1) * teacher / student) - 1 for layer in range(student)]


def _spread(depth: int, count: int) -> tuple[int, ...]:
    """`count` of `depth` layers, evenly spread, the first and the last among them."""
    if count > depth:
        return tuple(range(count))
    return tuple(round(i * (depth - 1) / max(1, count - 1)) for i in range(count))


def _depth(model: Any) -> int:
    return int(model.config.num_hidden_layers)


def _layer_stack(model: Any) -> tuple[str, torch.nn.ModuleList]:
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == _depth(model) and name:
            return name, module
    raise UsageError(
        f"The layers of the architecture {model.config.model_type} cannot be chosen from",
        where=str(model.config.name_or_path),
        fix="Name a smaller checkpoint to start from (--student)",
    )


def _require_same_vocabulary(student: Any, teacher: Any, name: str) -> None:
    if student.config.vocab_size != teacher.config.vocab_size:
        raise UsageError(
            f"The student's vocabulary has {student.config.vocab_size} tokens, the teacher's "
            f"{teacher.config.vocab_size}",
            where=name,
            fix="Student and teacher must share one tokenizer",
        )


def _frozen(model: Any, dtype: torch.dtype) -> Any:
    """A copy to read with: no gradients, no dropout."""
    return copy.deepcopy(model).to(dtype).eval().requires_grad_(False)


def _resolve(precision: Precision) -> torch.dtype:
    """bfloat16 where "auto" finds hardware for its products; elsewhere it would only cost."""
    if precision == "auto":
        return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _load(model: str, offline: bool, *, head_required: bool) -> tuple[Any, Any]:
    """The model in FP32 and its fast tokenizer. Only fine-tuning may begin with a new head.

    Attention is written out ("eager"): on CPUs the backward of the fused one is several times
    slower. Its dropout is off, since its probabilities are most of what dropout would touch.
    """
    from transformers import AutoConfig, AutoModelForQuestionAnswering, AutoTokenizer

    place: str | Path = model
    if head_required:
        place = open_checkpoint(model, offline=offline).folder
    elif Path(model).expanduser().is_dir():
        place = Path(model).expanduser()
    try:
        with quiet():
            config = AutoConfig.from_pretrained(
                place, trust_remote_code=False, local_files_only=offline
            )
            usual = {
                name: getattr(config, name) for name in ATTENTION_DROPOUT if hasattr(config, name)
            }
            config.update(dict.fromkeys(usual, 0.0))
            loaded = AutoModelForQuestionAnswering.from_pretrained(
                place,
                config=config,
                dtype=torch.float32,
                attn_implementation="eager",
                use_safetensors=True,
                trust_remote_code=False,
                local_files_only=offline,
            )
            tokenizer = AutoTokenizer.from_pretrained(
                place, use_fast=True, trust_remote_code=False, local_files_only=offline
            )
    except Exception as error:  # transformers raises whatever its loaders meet
        raise ExportError(
            f"The checkpoint cannot be loaded: {str(error).strip().splitlines()[0]}",
            where=model,
            fix="Name a folder with config.json, model.safetensors and tokenizer.json, or a hub id",
        ) from error
    if not tokenizer.is_fast:
        raise ExportError(
            "The model has only a slow tokenizer; the runtime needs a tokenizer.json",
            where=model,
            fix="Convert it with transformers: AutoTokenizer.from_pretrained(..., use_fast=True)",
        )
    loaded.config.update(usual)  # as it was: the checkpoint written later should say so
    return loaded, tokenizer


def _check(options: TrainingOptions) -> None:
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


@contextmanager
def _output(options: TrainingOptions) -> Iterator[Path]:
    """The output folder. It is removed after a failure that left no checkpoint to resume from."""
    folder = options.output
    if (folder / "training.json").exists() or (folder.exists() and not options.resume):
        raise UsageError(
            "The output folder exists",
            where=str(folder),
            fix="Name a new one, or continue an interrupted run there with --resume",
        )
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield folder
    finally:
        if not any(folder.glob("checkpoints/step-*")) and not (folder / "training.json").exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _corpus(options: TrainingOptions, model: Any, tokenizer: Any) -> Iterator[Corpus]:
    train, held = hold_out(read_records(options.data), options.held_out, options.seed)
    longest = min(_positions(model), tokenizer.model_max_length)
    if options.window_tokens > longest:
        raise UsageError(
            f"The model reads at most {longest} tokens",
            where="--window-tokens",
            fix="Choose shorter windows",
        )
    with tempfile.TemporaryDirectory(prefix="specrag-train-") as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.backend_tokenizer.save(str(path))
        encoder = PairEncoder(path, longest)
    corpus = Corpus(train, held, encoder, options.window_tokens)
    try:
        yield corpus
    finally:
        corpus.close()


def _positions(model: Any) -> int:
    config = model.config
    positions = int(getattr(config, "max_position_embeddings", 512))
    if config.model_type in ("roberta", "xlm-roberta", "mpnet", "camembert"):
        positions -= int(config.pad_token_id) + 1  # counted from behind the padding's
    return positions


def _seeded(seed: int | str) -> random.Random:
    return random.Random(seed)  # noqa: S311  no secret is made here


def _clock(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60:02d} min" if minutes >= 60 else f"{minutes} min"


def print_report(report: TrainingReport) -> None:
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
        f"{report.steps} steps, {report.epochs:.2f} epochs, {_clock(report.seconds)}, "
        f"{report.tokens_per_second:.0f} tokens/s. Model: {report.output}",
        soft_wrap=True,
    )


def _layers(_context: click.Context, _option: click.Parameter, text: str | None) -> Any:
    """A number of layers ("3"), or the layers themselves ("0,2,5")."""
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter('give a number, such as 3, or layers, such as "0,2,5"') from error
    return numbers if "," in text else numbers[0]


def _common(command: Callable[..., None]) -> Callable[..., None]:
    """The options that both commands have."""
    usual = TrainingOptions("", (), Path())
    file = click.Path(path_type=Path, exists=True, dir_okay=False)
    decorators = (
        click.option("--data", type=file, multiple=True, required=True, metavar="FILE",
                     help="SQuAD JSON, or JSON lines of question, context, answer, rationale."),
        click.option("-o", "--output", type=click.Path(path_type=Path), required=True,
                     help="A new folder for the model."),
        click.option("--epochs", type=float, default=usual.epochs, show_default=True,
                     help="Passes over the questions."),
        click.option("--minutes", type=click.FloatRange(min=0.0, min_open=True),
                     help="End after so long, if that is sooner."),
        click.option("--learning-rate", type=float, default=usual.learning_rate,
                     show_default=True, help="Peak; falls linearly to 0."),
        click.option("--warmup-steps", type=click.IntRange(min=0), default=usual.warmup_steps,
                     show_default=True, help="Steps up to the peak."),
        click.option("--dropout", type=float, default=usual.dropout, show_default=True,
                     help="Share of hidden values left out."),
        click.option("--batch-tokens", type=click.IntRange(min=16), default=usual.batch_tokens,
                     show_default=True, help="Tokens a batch, padding included."),
        click.option("--window-tokens", type=click.IntRange(min=16), default=usual.window_tokens,
                     show_default=True, help="Longest example, in tokens."),
        click.option("--short-share", type=click.FloatRange(0, 1), default=usual.short_share,
                     show_default=True, help="Examples of only the answer's sentences."),
        click.option("--negative-share", type=click.FloatRange(0, 1),
                     default=usual.negative_share, show_default=True,
                     help="Examples without an answer for each one with."),
        click.option("--held-out", type=float, default=usual.held_out, show_default=True,
                     help="Share of contexts to evaluate on only."),
        click.option("--evaluated", type=click.IntRange(min=1), default=usual.evaluated,
                     show_default=True, help="Held-out questions asked."),
        click.option("--train-word-embeddings", is_flag=True,
                     help="Train the word embeddings too (slower)."),
        click.option("--precision", type=click.Choice(("auto", "bf16", "fp32")),
                     default=usual.precision, show_default=True, help="Of the arithmetic."),
        click.option("--half", is_flag=True, help="Store the weights in FP16."),
        click.option("--seed", type=int, default=usual.seed, show_default=True,
                     help="Of split, views and dropout."),
        click.option("--threads", type=click.IntRange(min=1), default=usual.threads,
                     show_default=True, help="CPU threads."),
        click.option("--checkpoint-steps", type=click.IntRange(min=1),
                     default=usual.checkpoint_steps, show_default=True,
                     help="Steps between checkpoints."),
        click.option("--resume", is_flag=True, help="Continue an interrupted run."),
        click.option("--offline", is_flag=True, help="Never use the network."),
        click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
        click.option("--quiet", is_flag=True, help="Show no progress."),
    )  # fmt: skip
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def _run(
    train: Callable[[TrainingOptions, Progress], TrainingReport],
    chosen: dict[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    options = TrainingOptions(**chosen)
    with show_progress(not quiet) as progress:
        report = train(options, progress)
    if as_json:
        print(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        print_report(report)


@click.command("finetune")
@click.argument("model")
@_common
def finetune_command(as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Train MODEL, a hub id or a folder, on questions with answers."""
    _run(finetune, chosen, as_json=as_json, quiet=quiet)


@click.command("distil")
@click.argument("teacher")
@_common
@click.option("--layers", callback=_layers, help='How many of the teacher\'s, or which: "0,2,5".')
@click.option("--student", help="Start from this smaller checkpoint instead of TEACHER's layers.")
@click.option(
    "--temperature",
    type=float,
    default=2.0,
    show_default=True,
    help="Softens the teacher's distributions.",
)
@click.option(
    "--hard-share",
    type=click.FloatRange(0, 1),
    default=0.2,
    show_default=True,
    help="Weight of the labels against the teacher.",
)
@click.option(
    "--hidden-weight",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="Weight of the hidden states' distance.",
)
def distil_command(teacher: str, as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Teach a student with fewer layers what TEACHER knows."""
    _run(distil, {"model": teacher, **chosen}, as_json=as_json, quiet=quiet)


@click.group("train")
def command() -> None:
    """Fine-tune a model, or distil a smaller one from it."""


command.add_command(finetune_command)
command.add_command(distil_command)


if __name__ == "__main__":
    run_script(command)
