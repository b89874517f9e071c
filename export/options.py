"""The options that both exports share, and how their commands run: progress, report, errors."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from export import parity
from export.checkpoint import Checkpoint
from export.reporting import ExportReport, Progress, print_failure, print_report, show_progress
from runtime.errors import SpecragError, UsageError


@dataclass(frozen=True)
class ExportOptions:
    """What a user may choose for an export.

    Attributes:
        gate: file of gate questions; None is the built-in set.
        gate_limit: at most so many of its questions (never fewer than 300).
        gate_length: tokens of a pair in the gate.
        limit_f1: F1 points that may be lost; None is the precision's default.
        accept_loss: a larger loss the user accepts, recorded in the manifest.
        batch, length: shape of the latency measurement.
    """

    gate: Path | None = None
    gate_limit: int | None = None
    gate_length: int = parity.GATE_LENGTH
    accept_loss: float | None = None
    offline: bool = False
    revision: str | None = None
    allow_pickle: bool = False
    name: str | None = None
    licence: str | None = None
    trained_on: str | None = None
    threads: int = 2
    batch: int = 10
    length: int = 128
    seconds: float = 30.0

    def questions(self) -> tuple[list[parity.GateQuestion], str]:
        """The gate's questions and the name of their file."""
        path = self.gate or parity.BUILT_IN
        data = path.name if self.gate else "built-in: 345 questions of SquadShifts new_wiki"
        return parity.read_questions(path, limit=self.gate_limit), data

    def limits(self, precision: str) -> parity.Limits:
        return parity.Limits(parity.LIMITS[precision], self.accept_loss)

    def check_length(self, checkpoint: Checkpoint) -> None:
        """
        Raises:
            UsageError: a wished length is more than the model has positions for.
        """
        for option, length in (("--gate-length", self.gate_length), ("--length", self.length)):
            if length > checkpoint.max_length:
                raise UsageError(
                    f"{length} tokens are more than the model's {checkpoint.max_length} positions",
                    where=option,
                    fix=f"Give at most {checkpoint.max_length}",
                )


def common_options(command: Callable[..., None]) -> Callable[..., None]:
    """The click options of both exports, in the order of their help."""
    decorators = (
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
    for decorate in reversed(decorators):
        command = decorate(command)
    return command


def run_command(
    export: Callable[[ExportOptions, Progress], ExportReport],
    chosen: dict[str, Any],
    *,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run one export for the command line and print its report.

    A SIGTERM ends it like Ctrl-C does, so that the unfinished folder is removed.
    """
    if chosen["offline"]:
        os.environ["HF_HUB_OFFLINE"] = "1"
    try:
        with show_progress(not quiet) as show, _interruptible(show) as progress:
            report = export(ExportOptions(**chosen), progress)
    except SpecragError as error:
        print_failure(error, as_json)
        raise
    if as_json:
        print(json.dumps(report.to_json(), ensure_ascii=False))
    else:
        print_report(report)


def run_script(command: click.Command) -> None:
    """Run a command as a script: errors of ours become one line and an exit code."""
    try:
        command.main(standalone_mode=True)
    except SpecragError as error:
        print(f"Error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)


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
