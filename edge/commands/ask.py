"""ask: questions -> answers, one from the command line, or as they are typed or piped in."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TextIO

import click

from edge.command import SCHEMA_VERSION, Run, command, show_error
from edge.screen import counted, one_line
from runtime.byte_order_marks import marked_encoding
from runtime.errors import QuestionError, UsageError

if TYPE_CHECKING:
    from edge.assembly import Assembled
    from runtime.pipeline import Answer, Event

_LONGEST_REPEATED = 2000  # characters of a piped question above its answer
_HELP = ":explain  show how the last answer came about\n:quit     leave (as does Ctrl-D)"


@command(
    "ask",
    scopes=("store", "models", "question"),
    examples=(
        "specrag ask 'How often is the relief valve tested?'",
        "specrag ask --explain --threshold strict 'Which oil does pump 3 need?'",
        "specrag ask --verifier-url http://10.0.0.7:8600 --token SECRET 'What does E-17 mean?'",
        "specrag ask --json < questions.txt",
    ),
)
@click.argument("question", nargs=-1, metavar="[QUESTION]")
@click.option("--explain", is_flag=True, help="Show subsets, drafts, every score and timings.")
def ask(run: Run, question: tuple[str, ...], explain: bool) -> int:
    """Ask a question; without one, ask many.

    Without a QUESTION, questions are read from the terminal, or one a line from a pipe. An answer
    is always an exact slice of a document; where nothing is sure enough, the answer is that it is
    not in these documents, with the closest passages.
    """
    if question:
        with _assembled(run) as assembled:
            _answer(run, assembled, " ".join(question), explain)
        return 0
    if sys.stdin.isatty():
        _converse(run, explain)
        return 0
    return _answer_lines(run, explain)


@contextmanager
def _assembled(run: Run) -> Iterator[Assembled]:
    from edge.assembly import assemble

    # The screen (rich, on a terminal) is imported while the models load. Neither in this thread:
    # Ctrl-C in the middle of an import leaves the other thread waiting for it for ever.
    with ThreadPoolExecutor(2) as threads:
        work = threads.submit(assemble, run.settings)
        if not run.json:
            threads.submit(lambda: run.screen)
        assembled = work.result()
    with assembled.pipeline:
        for warning in assembled.warnings:
            run.warn(warning)
        yield assembled


def _answer_lines(run: Run, explain: bool) -> int:
    """Answer the questions on standard input, one a line, each repeated above its answer."""
    code = 0
    with _assembled(run) as assembled:
        for line in _questions(sys.stdin):
            if not run.json:
                run.screen.line(("? ", "dim"), one_line(line, _LONGEST_REPEATED))
            if not _try(run, assembled, line, explain):
                code = QuestionError.exit_code
            if not run.json:
                run.screen.line()
    return code


def _questions(stream: TextIO) -> Iterator[str]:
    """The lines that hold something, in the encoding that a byte order mark names, if there is one.

    Raises:
        UsageError: there are NULs in it, as in UTF-16 without a mark.
    """
    if isinstance(stream, io.TextIOWrapper) and isinstance(stream.buffer, io.BufferedReader):
        encoding = marked_encoding(stream.buffer.peek(4))  # of the first write into a pipe
        if encoding is not None:
            stream.reconfigure(encoding=encoding, errors="backslashreplace")
    for number, line in enumerate(stream, 1):
        if "\0" in line:
            raise UsageError(
                "The questions hold NULs, as UTF-16 without a byte order mark does",
                where=f"standard input, line {number}",
                fix="Save them as UTF-8",
            )
        if question := line.strip():
            yield question


def _answer(run: Run, assembled: Assembled, question: str, explain: bool) -> list[Event]:
    from edge.assembly import ask_options
    from edge.rendering import answer_json, explanation_json, show_answer

    pipeline = assembled.pipeline
    events = list(pipeline.ask(question, ask_options(run.settings)))
    answer = _last(events)
    as_json = answer_json(answer, assembled.warnings) if run.json or run.settings.log else {}
    if run.settings.log is not None:
        from runtime.trace import append_line

        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        append_line(run.settings.log, {"schema_version": SCHEMA_VERSION, "time": now, **as_json})
    if run.json:
        run.emit({**as_json, **(explanation_json(events) if explain else {})})
        return events
    show_answer(run.screen, answer, pipeline.knowledge_base)
    if explain:
        _explain(run, assembled, events)
    return events


def _explain(run: Run, assembled: Assembled, events: list[Event]) -> None:
    from edge.rendering import show_explanation

    show_explanation(run.screen, _last(events), events, assembled.pipeline.knowledge_base)


def _try(run: Run, assembled: Assembled, question: str, explain: bool) -> list[Event]:
    """Answer one of many questions; one that cannot be asked does not end the others.

    Returns its events, none if it cannot be asked.
    """
    try:
        return _answer(run, assembled, question, explain)
    except QuestionError as error:
        show_error(error, as_json=run.json)
        return []


def _last(events: list[Event]) -> Answer:
    from runtime.pipeline import Answered

    last = events[-1]
    assert isinstance(last, Answered)  # the stream always ends with it
    return last.answer


def _converse(run: Run, explain: bool) -> None:
    """Read questions from the terminal until it ends; one failing question does not end it."""
    import readline  # noqa: F401  input() then has editing and history

    with _assembled(run) as assembled:
        documents = assembled.pipeline.knowledge_base.statistics().documents
        run.notices.line((f"{counted(documents, 'document')}. Ask, or :help.", "dim"))
        last: list[Event] = []
        while True:
            try:
                line = input("? ").strip()
            except EOFError:
                run.notices.line()
                return
            if line in (":quit", ":q", ":exit"):
                return
            if line == ":explain" and last and not run.json:
                _explain(run, assembled, last)
            elif line.startswith(":"):
                run.notices.line(_HELP)
            elif line:
                last = _try(run, assembled, line, explain) or last
