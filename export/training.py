"""A checkpoint and questions with answers -> a better checkpoint, or a smaller one taught by it.

    python -m export.training finetune MODEL --data FILE... -o DIR
    python -m export.training distil TEACHER --data FILE... -o DIR --layers 3

Fine-tuning minimises cross-entropy to the annotators' starts and ends, all of them as one
distribution; windows without the answer are labelled with the null position. Distillation adds
the Kullback-Leibler divergence to the teacher's starts and ends at a temperature (Hinton et al.
2015, arXiv 1503.02531) and the squared distance of hidden states (Jiao et al. 2020, arXiv
1909.10351); some of its views are made up, for the teacher to label (`export.augmentation`).
Both learn from sibling views, whose labels are exact (`export.siblings`). Held-out contexts are
never trained on. Checkpoints are folders of safetensors and JSON, written aside and renamed;
nothing pickled is ever read.
"""

from __future__ import annotations

import copy
import itertools
import json
import math
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from export.graph import quiet
from export.narrowing import narrow
from export.reporting import Progress
from export.teaching import Teacher, Teachers
from export.training_data import Asked, Batch, Corpus, Position, ViewOptions, Views
from export.training_evaluation import evaluate
from export.training_model import (
    Trainee,
    arithmetic,
    as_tensors,
    choose_layers,
    depth_of,
    distillation_loss,
    frozen,
    label_losses,
    load_trainable,
    longest_sequence,
    same_tokens,
    seeded,
)
from export.training_options import (
    POINT_STEPS,
    Kind,
    Point,
    Score,
    TrainingOptions,
    TrainingReport,
    check_options,
    clock,
    draw_curve,
)
from export.training_records import hold_out, read_records
from runtime.encoding import PairEncoder
from runtime.errors import ExportError, UsageError

CHECKPOINT_VERSION = 1
NARROWING_BATCHES = 24  # whose activations choose the neurons that stay


def finetune(options: TrainingOptions, progress: Progress | None = None) -> TrainingReport:
    """Train `options.model` on and write it to `options.output`, with report and loss curve.

    Args:
        progress: called with what is done and the share done.

    Raises:
        UsageError: the data or an option is no use; says which line or option.
        ExportError: the model cannot be loaded, or a checkpoint is damaged.
    """
    check_options(options)
    model, tokenizer = load_trainable(options.model, options.offline, head_required=False)
    return _Run("finetune", options, model, tokenizer, progress=progress).execute()


def distil(options: TrainingOptions, progress: Progress | None = None) -> TrainingReport:
    """Teach a student what `options.model` knows; writes it to `options.output`.

    It has fewer layers, or narrower ones (`export.narrowing`), or both; or it is the teacher's
    equal, born again (Furlanello et al. 2018, arXiv 1805.04770).

    Raises:
        UsageError: the data or an option is no use, or the student would be deeper.
        ExportError: the teacher cannot be loaded, or a checkpoint is damaged.
    """
    check_options(options)
    teacher, spelling = load_trainable(options.model, options.offline, head_required=True)
    if options.student is not None:
        student, tokenizer = load_trainable(options.student, options.offline, head_required=True)
    else:
        student, tokenizer = choose_layers(teacher, options.layers), spelling
    if depth_of(student) > depth_of(teacher):
        raise UsageError(
            f"The student has {depth_of(student)} layers, the teacher {depth_of(teacher)}",
            where="--layers" if options.student is None else "--student",
            fix="A student has at most as many layers as its teacher",
        )
    dtype = arithmetic(options.precision)
    first = _teacher(teacher, spelling, tokenizer, dtype)
    if options.hidden_weight > 0:
        _require_comparable(student, first)
    further = (
        load_trainable(name, options.offline, head_required=True) for name in options.ensemble
    )
    teachers = Teachers([first, *(_teacher(*other, tokenizer, dtype) for other in further)])
    run = _Run("distil", options, student, tokenizer, teachers=teachers, progress=progress)
    return run.execute()


def _teacher(model: Any, spelling: Any, tokenizer: Any, dtype: torch.dtype) -> Teacher:
    """A teacher of a student with `tokenizer`; `spelling` is the teacher's own."""
    alike = same_tokens(spelling, tokenizer)
    return Teacher(frozen(model, dtype), None if alike else _encoder(model, spelling))


def _require_comparable(student: Any, teacher: Teacher) -> None:
    """Hidden states can be compared token by token, and number by number."""
    widths = [model.config.hidden_size for model in (student, teacher.model)]
    if teacher.encoder is not None or widths[0] != widths[1]:
        other = "another tokenizer" if teacher.encoder is not None else "another width"
        raise UsageError(
            f"The teacher has {other} than the student: their hidden states cannot be compared",
            where="--hidden-weight",
            fix="Give --hidden-weight 0: starts and ends alone will teach",
        )


def _encoder(model: Any, tokenizer: Any) -> PairEncoder:
    with tempfile.TemporaryDirectory(prefix="specrag-train-") as folder:
        path = Path(folder) / "tokenizer.json"
        tokenizer.backend_tokenizer.save(str(path))
        return PairEncoder(path, min(longest_sequence(model), tokenizer.model_max_length))


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
        teachers: Teachers | None = None,
        progress: Progress | None = None,
    ) -> None:
        self.kind, self.options = kind, options
        self.progress: Progress = progress or _silent
        torch.set_num_threads(options.threads)
        torch.manual_seed(options.seed)
        self.dtype = arithmetic(options.precision)
        self.tokenizer = tokenizer
        self.trainee: Trainee
        self._model = model
        self.teachers = teachers
        self.step, self.position = 0, Position()
        self.epochs, self.seconds, self.tokens = 0.0, 0.0, 0
        self.curve: list[Point] = []
        self.narrowing: list[float] = []
        self._recent: list[float] = []

    def execute(self) -> TrainingReport:
        options = self.options
        with _output(options) as folder, _corpus(options, self._model, self.tokenizer) as c:
            views = self._views(c)
            if options.intermediate_size is not None:
                self._narrow(views, options.intermediate_size)
            self.trainee = Trainee(self._model, options, self.dtype)
            asked = seeded(options.seed).sample(c.held, min(len(c.held), options.evaluated))
            self.progress("evaluating: before", 0.0)
            before = self._evaluate(self.trainee.master, c, asked)
            teacher = evaluate(self.teachers.read, c, asked) if self.teachers else None
            if options.resume:
                self._restore(folder)
            self._train(views, folder)
            self.progress("evaluating: after", 1.0)
            after = self._evaluate(self.trainee.master, c, asked)
            report = self._report(c, before, after, teacher)
            self._finish(folder, report)
        return report

    def _narrow(self, views: Views, width: int) -> None:
        """Before the first step, and again when resuming: the same views give the same neurons."""
        self.progress(f"choosing {width} neurons for each layer", 0.0)
        first = itertools.islice(views.batches(Position()), NARROWING_BATCHES)
        feeds = [as_tensors(batch.feeds) for batch, _, _ in first]
        self.narrowing = narrow(self._model, width, feeds)

    def _train(self, views: Views, folder: Path) -> None:
        options = self.options
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

    def _views(self, corpus: Corpus) -> Views:
        """The stream of batches; with a teacher to label it, what is made up joins it."""
        options = self.options
        cut = ViewOptions(
            options.window_tokens,
            options.short_share,
            options.negative_share,
            options.batch_tokens,
            options.sibling_share,
        )
        if self.teachers is None:
            return Views(corpus, cut, options.seed)
        substitution = None
        if options.substitution_share:
            table = self._model.get_input_embeddings().weight.detach().numpy()
            substitution = corpus.substitution(table, options.substitution_share)
        asking = replace(cut, cloze_share=options.cloze_share)
        return Views(corpus, asking, options.seed, substitution)

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
        feeds = as_tensors(batch.feeds)
        targets = torch.from_numpy(batch.targets)
        self.trainee.reseed(self.options.seed, self.step)
        wanted = self.teachers is not None and self.options.hidden_weight > 0
        output, mask = self.trainee(feeds, hidden=wanted), feeds["attention_mask"]
        if self.teachers is None:
            loss = label_losses(output, mask, targets).mean()
        else:
            said = self.teachers(batch, self.options.temperature, hidden=wanted)
            believed = torch.from_numpy(batch.believed)
            loss = distillation_loss(output, said, mask, targets, believed, self.options)
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
        stage = f"step {self.step}, loss {loss:.3f}, {speed:.0f} tokens/s, {clock(left)} left"
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
        alone = Teachers([Teacher(frozen(model, self.dtype), None)])
        return evaluate(alone.read, corpus, asked)

    def _report(
        self, corpus: Corpus, before: Score, after: Score, teacher: Score | None
    ) -> TrainingReport:
        return TrainingReport(
            kind=self.kind,
            output=self.options.output,
            options=self.options.fingerprint(),
            layers=depth_of(self.trainee.master),
            narrowing=tuple(round(error, 5) for error in self.narrowing),
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
    encoder = _encoder(model, tokenizer)
    if options.window_tokens > encoder.max_length:
        raise UsageError(
            f"The model reads at most {encoder.max_length} tokens",
            where="--window-tokens",
            fix="Choose shorter windows",
        )
    corpus = Corpus(train, held, encoder, options.window_tokens)
    try:
        yield corpus
    finally:
        corpus.close()


if __name__ == "__main__":
    from export.commands import run_script, train

    run_script(train)
