"""The commands of this folder: options and help, said without the libraries that the work needs.

Those load when a command runs; where one is missing, the error says how to install it. The same
commands run below `specrag` and as scripts (`python -m export.drafter`).
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from export import parity
from export.options import (
    DRAFTER_TARGETS,
    VERIFIER_TARGETS,
    DrafterTarget,
    ExportOptions,
    VerifierTarget,
)
from export.reporting import (
    SCHEMA_VERSION,
    ExportReport,
    NothingPassed,
    Progress,
    print_attempts,
    print_report,
    show_progress,
)
from export.training_options import TrainingOptions, TrainingReport, print_training
from runtime.errors import MissingExtra, SpecragError

USUAL = TrainingOptions("", (), Path())
INSTALL = "pip install 'specrag[export]'"


def run_script(command: click.Command) -> None:
    """Run a command as a script: our errors become one line, or one object, and an exit code."""
    try:
        command.main(standalone_mode=True)
    except SpecragError as error:
        if "--json" in sys.argv:
            _print_json({"error": error.to_json()})
        else:
            print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


def _command(name: str, *examples: str) -> Callable[[Callable[..., None]], click.Command]:
    # \b keeps click from joining the lines
    epilog = "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)
    return click.command(name, epilog=epilog)


def _options(*options: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Click's decorators as one, in the order of their help."""

    def decorate(command: Any) -> Any:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


@contextmanager
def _working(quiet: bool) -> Iterator[Progress]:
    """The progress of a command's work, which signals end and which needs the extra.

    Raises:
        MissingExtra: a library that the work needs is not installed.
    """
    try:
        with show_progress(not quiet) as show, _interruptible(show) as progress:
            yield progress
    except ModuleNotFoundError as error:
        path = click.get_current_context().command_path
        raise MissingExtra(f"`{path}` needs the package {error.name}", fix=INSTALL) from error


@contextmanager
def _interruptible(show: Progress) -> Iterator[Progress]:
    """SIGINT and SIGTERM raise KeyboardInterrupt, and so does the next progress if that was lost.

    Python drops what is raised in a destructor or a weak reference's callback, and a signal may
    well come while a library is in one.
    """
    asked = False

    def stop(*_: object) -> None:
        nonlocal asked
        asked = True
        raise KeyboardInterrupt

    def progress(stage: str, share: float) -> None:
        if asked:
            raise KeyboardInterrupt
        show(stage, share)

    previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield progress
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


# Exports


_export_options = _options(
    click.argument("model"),
    click.option(
        "-o", "--output", required=True, type=click.Path(path_type=Path), metavar="DIR",
        help="The new bundle's folder; it must not exist.",
    ),
    click.option(
        "--gate", type=click.Path(path_type=Path), metavar="FILE",
        help="Gate questions: SQuAD JSON or JSON lines, at least 300. Default: built in.",
    ),
    click.option(
        "--gate-limit", type=click.IntRange(min=parity.LEAST_QUESTIONS),
        help="Ask at most so many of the gate's questions.",
    ),
    click.option(
        "--gate-length", type=click.IntRange(min=32), default=parity.GATE_LENGTH,
        show_default=True, help="Tokens of question and context together in the gate.",
    ),
    click.option(
        "--accept-loss", type=click.FloatRange(min=0.0), metavar="POINTS",
        help="Accept a larger loss of F1 points; recorded in the manifest.",
    ),
    click.option("--offline", is_flag=True, help="Never use the network."),
    click.option("--revision", help="Branch, tag or commit of a hub model."),
    click.option(
        "--allow-pickle", is_flag=True,
        help="Load pickled weights. They can run code: only if you trust their maker.",
    ),
    click.option("--name", help="The bundle's name. Default: the folder's."),
    click.option("--licence", help="Licence of the weights, if the model card says none."),
    click.option("--trained-on", help="Data the weights were trained on, and its licence."),
    click.option(
        "--threads", type=click.IntRange(min=1), default=min(2, os.cpu_count() or 1),
        show_default=True, help="Threads for gate and latency.",
    ),
    click.option(
        "--batch", type=click.IntRange(min=1), default=10, show_default=True,
        help="Windows in the latency measurement.",
    ),
    click.option(
        "--length", type=click.IntRange(min=8), default=128, show_default=True,
        help="Tokens a window in the latency measurement.",
    ),
    click.option(
        "--seconds", type=click.FloatRange(min=0.0), default=30.0, show_default=True,
        help="Time for the latency measurement.",
    ),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
)  # fmt: skip


def run_export(
    export: Callable[[ExportOptions, Progress], ExportReport],
    chosen: dict[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run one export and print its report; signals end it so that nothing is left behind."""
    if chosen["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        with _working(quiet) as progress:
            report = export(ExportOptions(**chosen), progress)
    except NothingPassed as error:
        if not as_json:
            print_attempts(error.attempts)
        raise
    if as_json:
        _print_json(report.to_json())
    else:
        print_report(report)


@_command(
    "drafter",
    "specrag export drafter distilbert-base-cased-distilled-squad -o my-drafter",
    "specrag export drafter ./my-checkpoint -o my-drafter --target arm64 --offline",
)
@_export_options
@click.option(
    "--target", type=click.Choice(DRAFTER_TARGETS), default="x86", show_default=True,
    help="Where the drafter will run; x86 is right on every x86, x86-vnni needs VNNI.",
)  # fmt: skip
def drafter_command(
    model: str, output: Path, target: DrafterTarget, as_json: bool, quiet: bool, **chosen: Any
) -> None:
    """Make an INT8 drafter bundle from MODEL, a hub id or a folder."""

    def export(options: ExportOptions, progress: Progress) -> ExportReport:
        from export.drafter import export_drafter

        return export_drafter(model, output, target, options, progress)

    run_export(export, chosen, as_json=as_json, quiet=quiet)


@_command(
    "verifier",
    "specrag export verifier ./my-checkpoint -o my-verifier --offline",
    "specrag export verifier deepset/roberta-base-squad2 -o my-verifier --target tensorrt",
)
@_export_options
@click.option(
    "--target", type=click.Choice(VERIFIER_TARGETS), default="cuda", show_default=True,
    help="Where the verifier will run; every target's bundle also runs on a CPU, as FP32.",
)  # fmt: skip
def verifier_command(
    model: str, output: Path, target: VerifierTarget, as_json: bool, quiet: bool, **chosen: Any
) -> None:
    """Make an FP16 verifier bundle from MODEL, a hub id or a folder."""

    def export(options: ExportOptions, progress: Progress) -> ExportReport:
        from export.verifier import export_verifier

        return export_verifier(model, output, target, options, progress)

    run_export(export, chosen, as_json=as_json, quiet=quiet)


# Training and calibration


_training_options = _options(
    click.option("--data", type=click.Path(path_type=Path, exists=True, dir_okay=False),
                 multiple=True, required=True, metavar="FILE",
                 help="SQuAD JSON, or JSON lines of question, context, answer, rationale."),
    click.option("-o", "--output", type=click.Path(path_type=Path), required=True,
                 metavar="DIR", help="A new folder for the model."),
    click.option("--epochs", type=float, default=USUAL.epochs, show_default=True,
                 help="Passes over the questions."),
    click.option("--minutes", type=click.FloatRange(min=0.0, min_open=True),
                 help="End after so long, if that is sooner."),
    click.option("--learning-rate", type=float, default=USUAL.learning_rate,
                 show_default=True, help="Peak; falls linearly to 0."),
    click.option("--warmup-steps", type=click.IntRange(min=0), default=USUAL.warmup_steps,
                 show_default=True, help="Steps up to the peak."),
    click.option("--dropout", type=float, default=USUAL.dropout, show_default=True,
                 help="Share of hidden values left out."),
    click.option("--batch-tokens", type=click.IntRange(min=16), default=USUAL.batch_tokens,
                 show_default=True, help="Tokens a batch, padding included."),
    click.option("--window-tokens", type=click.IntRange(min=16), default=USUAL.window_tokens,
                 show_default=True, help="Longest example, in tokens."),
    click.option("--short-share", type=click.FloatRange(0, 1), default=USUAL.short_share,
                 show_default=True, help="Examples of only the answer's sentences."),
    click.option("--negative-share", type=click.FloatRange(0, 1),
                 default=USUAL.negative_share, show_default=True,
                 help="Examples without an answer for each one with."),
    click.option("--sibling-share", type=click.FloatRange(0, 1),
                 default=USUAL.sibling_share, show_default=True,
                 help='Made-up questions, for each one given, that tell like things apart by '
                      'a code ("well W1", not "well W2"). English: give 0 for others.'),
    click.option("--held-out", type=float, default=USUAL.held_out, show_default=True,
                 help="Share of contexts to evaluate on only."),
    click.option("--evaluated", type=click.IntRange(min=1), default=USUAL.evaluated,
                 show_default=True, help="Held-out questions asked."),
    click.option("--train-word-embeddings", is_flag=True,
                 help="Train the word embeddings too (slower)."),
    click.option("--precision", type=click.Choice(("auto", "bf16", "fp32")),
                 default=USUAL.precision, show_default=True, help="Of the arithmetic."),
    click.option("--half", is_flag=True, help="Store the weights in FP16."),
    click.option("--seed", type=int, default=USUAL.seed, show_default=True,
                 help="Of split, views and dropout."),
    click.option("--threads", type=click.IntRange(min=1), default=USUAL.threads,
                 show_default=True, help="CPU threads."),
    click.option("--checkpoint-steps", type=click.IntRange(min=1),
                 default=USUAL.checkpoint_steps, show_default=True,
                 help="Steps between checkpoints."),
    click.option("--resume", is_flag=True, help="Continue an interrupted run."),
    click.option("--offline", is_flag=True, help="Never use the network."),
    click.option("--json", "as_json", is_flag=True, help="Print one JSON object."),
    click.option("--quiet", is_flag=True, help="Show no progress."),
)  # fmt: skip


def _layers(_context: click.Context, _option: click.Parameter, text: str | None) -> Any:
    """A number of layers ("3"), or the layers themselves ("0,2,5")."""
    if text is None:
        return None
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise click.BadParameter('give a number, such as 3, or layers, such as "0,2,5"') from error
    return numbers if "," in text else numbers[0]


def _train(kind: str, chosen: dict[str, Any], *, as_json: bool, quiet: bool) -> None:
    with _working(quiet) as progress:
        from export import training

        run = {"finetune": training.finetune, "distil": training.distil}[kind]
        report: TrainingReport = run(TrainingOptions(**chosen), progress)
    if as_json:
        _print_json(report.to_json())
    else:
        print_training(report)


@_command(
    "finetune",
    "specrag train finetune ./my-checkpoint --data questions.jsonl -o better",
    "specrag train finetune ./my-checkpoint --data questions.jsonl -o better --resume",
)
@click.argument("model")
@_training_options
def finetune_command(as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Train MODEL, a hub id or a folder, on questions with answers."""
    _train("finetune", chosen, as_json=as_json, quiet=quiet)


_distil_options = _options(
    click.option("--layers", callback=_layers,
                 help='How many of the teacher\'s, or which: "0,2,5"; half if left out.'),
    click.option("--intermediate-size", type=click.IntRange(min=1),
                 help="Neurons to keep in each feed-forward layer of the student."),
    click.option("--student", metavar="MODEL",
                 help="Start from this checkpoint, of any tokenizer, not from TEACHER's layers."),
    click.option("--ensemble", multiple=True, metavar="MODEL",
                 help="A further teacher: the mean of all their logits teaches. Repeatable."),
    click.option("--temperature", type=float, default=USUAL.temperature, show_default=True,
                 help="Softens the teacher's distributions."),
    click.option("--hard-share", type=click.FloatRange(0, 1), default=USUAL.hard_share,
                 show_default=True, help="Weight of the labels against the teacher."),
    click.option("--hidden-weight", type=click.FloatRange(min=0), default=USUAL.hidden_weight,
                 show_default=True, help="Weight of the hidden states' distance."),
    click.option("--substitution-share", type=click.FloatRange(0, 1),
                 default=USUAL.substitution_share, show_default=True,
                 help="Examples with words replaced by others like them."),
    click.option("--cloze-share", type=click.FloatRange(0, 1), default=USUAL.cloze_share,
                 show_default=True, help="Cloze questions, without a label, for each question."),
)  # fmt: skip


@_command(
    "distil",
    "specrag train distil ./teacher --data squad.json -o student --layers 0,2,5",
    "specrag train distil ./roberta --student ./minilm --hidden-weight 0 --data squad.json -o out",
)
@click.argument("teacher")
@_training_options
@_distil_options
def distil_command(teacher: str, as_json: bool, quiet: bool, **chosen: Any) -> None:
    """Teach a student with fewer, narrower or equal layers what TEACHER knows."""
    _train("distil", {"model": teacher, **chosen}, as_json=as_json, quiet=quiet)


@click.group("train")
def train() -> None:
    """Fine-tune a model, or distil a smaller one from it."""


train.add_command(finetune_command)
train.add_command(distil_command)


@_command(
    "calibrate",
    "specrag calibrate --drafter my-drafter --verifier my-verifier --data held-out.jsonl",
    "specrag calibrate --drafter my-drafter --verifier my-verifier --data held-out.jsonl --dry-run",
)
@click.option(
    "--drafter", required=True, type=click.Path(path_type=Path), metavar="DIR", help="Its bundle."
)
@click.option(
    "--verifier", required=True, type=click.Path(path_type=Path), metavar="DIR",
    help="Its bundle; the maps are stored in it.",
)  # fmt: skip
@click.option(
    "--data", required=True, multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Questions that neither model was trained on: SQuAD JSON or JSON lines. Repeatable.",
)  # fmt: skip
@click.option(
    "--distractors", multiple=True, type=click.Path(path_type=Path), metavar="FILE",
    help="Contexts to search besides. Repeatable.",
)  # fmt: skip
@click.option(
    "--questions", type=click.IntRange(min=100), default=1500, show_default=True,
    help="Ask at most so many.",
)  # fmt: skip
@click.option(
    "--absent", type=click.FloatRange(0.0, 0.9), default=0.2, show_default=True,
    help="Share of contexts kept out, so that their questions have no answer.",
)  # fmt: skip
@click.option(
    "--seed", type=int, default=0, show_default=True,
    help="Chooses the questions and the contexts kept out.",
)  # fmt: skip
@click.option("--threads", type=click.IntRange(min=1), help="Threads of each model.")
@click.option("--dry-run", is_flag=True, help="Report, but store nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
def calibrate_command(
    drafter: Path, verifier: Path, dry_run: bool, as_json: bool, quiet: bool, **chosen: Any
) -> None:
    """Fit the map from scores to probabilities, and store it in the verifier's bundle."""
    with _working(quiet) as progress:
        from export.calibration import CalibrationOptions, calibrate, print_maps, store
        from models.bundle import open_bundle
        from runtime.calibration import FILE

        reads, judges = open_bundle(drafter, role="drafter"), open_bundle(verifier, role="verifier")
        maps = calibrate(reads, judges, CalibrationOptions(**chosen), progress)
        if not dry_run:
            store(judges, reads, maps)
    if as_json:
        raw = {route: fitted.to_json() for route, fitted in maps.items()}
        _print_json({"stored": not dry_run, "maps": raw})
    else:
        print_maps(maps)
        print("Nothing stored." if dry_run else f"Stored in {verifier / FILE}", file=sys.stderr)


def _print_json(value: dict[str, Any]) -> None:
    print(json.dumps({"schema_version": SCHEMA_VERSION, **value}, ensure_ascii=False))
