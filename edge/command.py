"""A function -> a command of the command line, with the settings that it needs as options.

Every command takes `--json`, `--debug` and `--config`, before or after the command's name, and the
settings of its scopes (see edge/settings.py). The function is given a `Run`: the resolved settings
and the places where results go.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from edge.screen import Screen, open_screen, printable
from edge.settings import FLAG, PATH, SETTINGS, Scope, Setting, Settings, resolve
from runtime.errors import SpecragError

SCHEMA_VERSION = 1


@dataclass
class Run:
    """One run of one command."""

    command: str
    json: bool = False
    debug: bool = False
    config: Path | None = None
    options: dict[str, Any] = field(default_factory=dict)
    _unsaid: list[str] = field(default_factory=list, init=False)

    @cached_property
    def settings(self) -> Settings:
        """
        Raises:
            UsageError: a setting that cannot be.
        """
        return resolve(self.options, config=self.config)

    @cached_property
    def screen(self) -> Screen:
        """For results people read; with `--json` nothing is written to it."""
        return open_screen()

    @cached_property
    def notices(self) -> Screen:
        """Standard error, for what is said beside the result."""
        return open_screen(sys.stderr)

    def emit(self, result: Mapping[str, Any]) -> None:
        """Write the command's result as one JSON object, a line of its own.

        Warnings since the last one are added, unless the result has its own.
        """
        said = {"warnings": list(self._unsaid)} if self._unsaid else {}
        self._unsaid.clear()
        write_json({"schema_version": SCHEMA_VERSION, "command": self.command, **said, **result})

    def warn(self, message: str) -> None:
        """Say something on standard error; in JSON mode it becomes part of the next result."""
        if self.json:
            self._unsaid.append(message)
        else:
            self.notices.line(("warning: ", "warning"), message)


def write_json(value: Mapping[str, Any]) -> None:
    """`value` to standard output: indented on a terminal, one line in a pipe."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    text = json.dumps(
        value,
        ensure_ascii=encoding != "utf8",  # lone surrogates are escaped by the stream either way
        indent=2 if sys.stdout.isatty() else None,
        allow_nan=False,
    )
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def command(
    name: str,
    *,
    scopes: Sequence[Scope] = (),
    examples: Sequence[str],
    several: str | None = None,
) -> Callable[[Callable[..., int | None]], click.Command]:
    """Make a command of a function `f(run, **own parameters) -> exit code or None`.

    Args:
        examples: command lines, shown at the end of the help.
        several: an option that takes all words after it up to the next option.
    """

    def make(function: Callable[..., int | None]) -> click.Command:
        params: list[click.Parameter] = list(reversed(getattr(function, "__click_params__", [])))
        params += [
            _setting_option(setting) for setting in SETTINGS if setting.scope in tuple(scopes)
        ]
        params += common_options()

        def callback(**values: Any) -> None:
            context = click.get_current_context()
            run = _start(context, values)
            code = function(run, **values)
            context.exit(code or 0)

        return _Command(
            name,
            callback=callback,
            params=params,
            help=function.__doc__,
            epilog=_examples(examples),
            several=several,
        )

    return make


def group(name: str, *, help: str, examples: Sequence[str]) -> click.Group:
    """A command that only holds others."""
    return click.Group(name, help=help, epilog=_examples(examples))


def common_options() -> list[click.Option]:
    """The options that every command takes."""
    return [
        click.Option(["--json"], is_flag=True, default=None, help="Print JSON; see docs/json.md."),
        click.Option(
            ["--config"], type=click.Path(dir_okay=False), help="Read this config file.",
            metavar="FILE",
        ),
        click.Option(
            ["--debug"], is_flag=True, default=None, help="Show where in the code an error arose."
        ),
    ]  # fmt: skip


class _Command(click.Command):
    """A command whose option `several` may be followed by more than one value."""

    def __init__(self, *args: Any, several: str | None = None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._several = several

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, repeated(args, self._several) if self._several else args)


class Deferred(click.Command):
    """Stands in lists for a command elsewhere, which is imported when it is called."""

    def __init__(self, name: str, place: str, summary: str) -> None:
        """
        Args:
            place: `module:attribute`.
        """
        super().__init__(name, help=summary, add_help_option=False)
        self._place = place

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        return self.load().make_context(info_name, args, parent, **extra)

    def load(self) -> click.Command:
        """The command itself."""
        module, attribute = self._place.split(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found


def repeated(args: list[str], option: str) -> list[str]:
    """`--x a b` as `--x a --x b`."""
    spread: list[str] = []
    collecting, values = False, 0
    for argument in args:
        if argument.startswith("-"):
            collecting, values = argument == option, 0
        elif collecting:
            values += 1
            if values > 1:
                spread.append(option)
        spread.append(argument)
    return spread


def _setting_option(setting: Setting) -> click.Option:
    names = [setting.option, *([setting.short] if setting.short else [])]
    help = f"{setting.help}  [default: {setting.shown}]"
    if setting.kind is FLAG:
        on, off = setting.option, f"--no-{setting.option.removeprefix('--')}"
        return click.Option([f"{on}/{off}", setting.name], default=None, help=help)
    if setting.kind.choices:
        kind: Any = click.Choice(setting.kind.choices)
        return click.Option([*names, setting.name], type=kind, help=help)
    kind = click.Path() if setting.kind is PATH else click.STRING
    metavar = setting.kind.name.upper()
    return click.Option([*names, setting.name], type=kind, metavar=metavar, help=help)


def _start(context: click.Context, values: dict[str, Any]) -> Run:
    """Take the common options and the settings out of `values`, into a `Run`."""
    outer = context.find_root().params
    chosen = {name: values.pop(name, None) for name in ("json", "debug", "config", "kb")}
    for name, value in chosen.items():
        if value is None:
            chosen[name] = outer.get(name)
    own = {setting.name for setting in SETTINGS if setting.name in values}
    options = {name: values.pop(name) for name in own}
    config = chosen["config"]
    return Run(
        command=" ".join(context.command_path.split()[1:]),
        json=bool(chosen["json"]),
        debug=bool(chosen["debug"]),
        config=Path(config) if config else None,
        options={**options, "kb": chosen["kb"]},
    )


def _examples(examples: Sequence[str]) -> str:
    # \b keeps click from joining the lines
    return "\b\nExamples:\n" + "\n".join(f"  {example}" for example in examples)


def show_error(error: SpecragError, *, as_json: bool) -> None:
    """One error, in the one shape: JSON on standard output, or red on standard error."""
    if as_json:
        write_json({"schema_version": SCHEMA_VERSION, "error": error.to_json()})
        return
    what, where, fix = error.what, error.where, error.fix
    screen = open_screen(sys.stderr)
    screen.line(("error: ", "bad"), (printable(what), "strong"))
    if where:
        screen.line(("where: ", "dim"), where)
    if fix:
        screen.line(("  fix: ", "dim"), fix)
