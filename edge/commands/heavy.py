"""export, train, calibrate: the offline workshop, loaded by name only when one of them is called.

It needs PyTorch, which answering questions never does; where it is missing, the error says how to
install it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click

from edge.command import Deferred, group
from runtime.errors import MissingExtra, SpecragError

INSTALL = "pip install 'specrag[export]'"


class Workshop(Deferred):
    """A command of `export/`."""

    def load(self) -> click.Command:
        """
        Raises:
            MissingExtra: what it needs is not installed.
        """
        try:
            return _Reporting(super().load())
        except ModuleNotFoundError as error:
            above = click.get_current_context(silent=True)  # of the group it stands in
            path = above.command_path if above else "specrag"
            raise MissingExtra(
                f"`{path} {self.name}` needs the package {error.name}", fix=INSTALL
            ) from error


class _Reporting(click.Command):
    """A command of `export/` as this command line runs it.

    With `--json` those commands print their own errors, with what was tried, as the one object.
    """

    def __init__(self, inner: click.Command) -> None:
        super().__init__(inner.name, add_help_option=False)
        self._inner = inner

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        as_json = "--json" in args
        context = self._inner.make_context(info_name, args, parent, **extra)
        if as_json:
            context.command = self
        return context

    def invoke(self, ctx: click.Context) -> Any:
        ctx.command = self._inner
        try:
            return self._inner.invoke(ctx)
        except SpecragError as error:
            ctx.exit(error.exit_code)


def _workshop(
    name: str, help: str, examples: Sequence[str], commands: Sequence[Workshop]
) -> click.Group:
    made = group(name, help=help, examples=examples)
    for command in commands:
        made.add_command(command)
    return made


export = _workshop(
    "export",
    "Make a bundle from a Hugging Face model, behind an accuracy gate.",
    (
        "specrag export drafter distilbert-base-cased-distilled-squad -o my-drafter",
        "specrag export verifier ./my-verifier-checkpoint -o my-verifier --offline",
    ),
    (
        Workshop("drafter", "export.drafter:command", "Make an INT8 drafter bundle."),
        Workshop("verifier", "export.verifier:command", "Make an FP16 verifier bundle."),
    ),
)

train = _workshop(
    "train",
    "Fine-tune a model, or distil a smaller one from it.",
    (
        "specrag train distil ./teacher --data squadshifts.json -o student --layers 0,2,5",
        "specrag train finetune ./checkpoint --data questions.jsonl -o better",
    ),
    (
        Workshop("distil", "export.training:distil_command", "Teach a smaller model."),
        Workshop("finetune", "export.training:finetune_command", "Train a model on questions."),
    ),
)

calibrate = Workshop(
    "calibrate",
    "export.calibration:command",
    "Fit the map from scores to probabilities.",
)
