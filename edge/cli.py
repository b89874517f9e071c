"""The command line `specrag`: words -> one command, its errors told in one shape.

Commands live in edge/commands/, each imported only when it is called, so that a question pays for
nothing but answering. Exit codes: 0 done (an honest "not in these documents" is an answer too),
1 failed, 2 wrong usage, 70 a fault of specrag itself, 130 interrupted.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import IO, Any

import click

from edge.command import Deferred, common_options, show_error
from runtime.errors import SpecragError, UsageError

INTERRUPTED = 130
BROKEN_PIPE = 141
COMPLETION = "_SPECRAG_COMPLETE"  # click's variable, set by the completion scripts

# section -> command -> where it is; a stand-in for one that takes long to import.
SECTIONS: Mapping[str, Mapping[str, str | Deferred]] = {
    "Documents": {
        "add": "edge.commands.documents:add",
        "list": "edge.commands.documents:list_documents",
        "remove": "edge.commands.documents:remove",
        "status": "edge.commands.upkeep:status",
        "watch": "edge.commands.watch:watch",
        "verify": "edge.commands.upkeep:verify",
        "compact": "edge.commands.upkeep:compact",
    },
    "Questions": {
        "ask": "edge.commands.ask:ask",
        "show": "edge.commands.show:show",
        "eval": "edge.commands.evaluate:evaluate",
        "demo": "edge.demo:demo",
    },
    "This machine": {
        "doctor": "edge.doctor:doctor",
        "info": "edge.commands.info:info",
        "node": Deferred("node", "edge.node:node", "Serve models to other machines."),
        "completion": "edge.commands.completion:completion",
    },
    "Models": {
        "bundle": "edge.commands.bundle:bundle",
        "export": "edge.commands.workshop:export",
        "train": "edge.commands.workshop:train",
        "calibrate": "edge.commands.workshop:calibrate",
    },
}
LOCATIONS = {name: place for section in SECTIONS.values() for name, place in section.items()}


class InternalFault(SpecragError):
    """What no part of specrag has foreseen."""

    exit_code = 70  # sysexits.h: EX_SOFTWARE


class Interrupted(Exception):
    """Ctrl-C, told by `run_command`; click would begin a line for it first."""


class LazyGroup(click.Group):
    """A group that imports a command when it is looked up."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(LOCATIONS)

    def get_command(
        self,
        ctx: click.Context,  # noqa: ARG002 - click's signature
        cmd_name: str,
    ) -> click.Command | None:
        if cmd_name not in LOCATIONS:
            return None
        place = LOCATIONS[cmd_name]
        if isinstance(place, Deferred):
            return place
        module, attribute = place.split(":")
        found = getattr(import_module(module), attribute)
        assert isinstance(found, click.Command)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in LOCATIONS:
            from difflib import get_close_matches

            if close := get_close_matches(args[0], LOCATIONS, 1):
                raise click.UsageError(
                    f"No such command '{args[0]}'. Did you mean '{close[0]}'?", ctx
                )
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            raise Interrupted from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl(
                    [(name, self._short_help(ctx, name)) for name in names], col_max=14
                )

    def _short_help(self, ctx: click.Context, name: str) -> str:
        found = self.get_command(ctx, name)
        return found.get_short_help_str(70) if found else ""


def _print_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted or context.resilient_parsing:
        return
    from edge.commands.info import versions  # the packages' metadata take 50 ms to read

    found = versions()
    click.echo(f"specrag {found.get('specrag', 'not installed')}, Python {found['python']}")
    context.exit()


@click.group(
    cls=LazyGroup,
    epilog="\b\nExamples:\n  specrag add manuals/\n  specrag ask 'How often is the valve tested?'"
    "\n  specrag doctor",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
@click.option("--kb", type=click.Path(), metavar="DIR", help="Folder of the knowledge base.")
def cli(**_: object) -> None:
    """Ask a folder of documents, offline: a small model drafts, a larger one verifies, and every
    answer is an exact slice of your documents."""


cli.params.extend(common_options())


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script: run one command and exit with its code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if os.environ.get(COMPLETION):
        cli.main(arguments, prog_name="specrag")  # answers the shell, and exits
    _open_closed_streams()
    for stream in (
        sys.stdin,
        sys.stdout,
        sys.stderr,
    ):  # bytes that are not UTF-8 must not end a run
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    code = run_command(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _after_broken_pipe()
    except OSError as error:
        code = _after_full_disk(error)
    sys.exit(code)


def _open_closed_streams() -> None:
    """Stand-ins for streams that the caller has closed (`>&-`), which Python leaves as None."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115 - for the whole run
            setattr(sys, name, stream)


def run_command(arguments: Sequence[str]) -> int:
    """Run one command, telling its errors; returns the exit code."""
    as_json, debug = "--json" in arguments, "--debug" in arguments
    try:
        code = cli.main(list(arguments), prog_name="specrag", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except click.ClickException as error:
        return _usage_error(error, as_json)
    except SpecragError as error:
        if debug:
            _traceback()
        show_error(error, as_json=as_json)
        return error.exit_code
    except (Interrupted, click.Abort, KeyboardInterrupt):
        # On a terminal the cursor stands behind "^C" or what was being typed.
        print("\ninterrupted" if sys.stderr.isatty() else "interrupted", file=sys.stderr)
        return INTERRUPTED
    except (BrokenPipeError, SystemExit):  # click itself only exits where a pipe has broken
        return _after_broken_pipe()
    except Exception as error:
        return _fault(error, as_json, debug)


def _usage_error(error: click.ClickException, as_json: bool) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "specrag"
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # click 8.2 on
        print(error.format_message())
        return 2
    what = error.format_message().rstrip(".")
    show_error(UsageError(what, where=path, fix=f"See `{path} --help`"), as_json=as_json)
    return 2


def _fault(error: Exception, as_json: bool, debug: bool) -> int:
    """What no part of specrag has foreseen; a full disk apart, a fault of specrag itself."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return _after_full_disk(error)
    if debug:
        _traceback()
    if isinstance(error, FileNotFoundError) and not _has_working_folder():
        gone = UsageError("The working folder has gone", fix="Change to a folder that exists")
        show_error(gone, as_json=as_json)
        return gone.exit_code
    lines = "the lines above" if debug else "what the same command prints with --debug"
    fault = InternalFault(
        f"specrag itself failed: {type(error).__name__}: {error}",
        fix=f"Please report it (see CONTRIBUTING.md) with {lines}",
    )
    show_error(fault, as_json=as_json)
    return fault.exit_code


def _has_working_folder() -> bool:
    try:
        return bool(os.getcwd())
    except FileNotFoundError:
        return False


def _traceback() -> None:
    import traceback

    traceback.print_exc()


def _after_broken_pipe() -> int:
    """The reader has gone (`| head`): say nothing, not even when Python flushes at exit."""
    _silence(sys.stdout)
    return BROKEN_PIPE


def _after_full_disk(error: OSError) -> int:
    """Standard output goes to a file on a full disk, or temporary files have no room."""
    _silence(sys.stdout)
    print(f"error: {error.strerror}\n  fix: Free some space, or set TMPDIR", file=sys.stderr)
    return 1


def _silence(stream: IO[str]) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


if __name__ == "__main__":
    main()
