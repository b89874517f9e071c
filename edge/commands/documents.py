"""add, list, remove: which documents the knowledge base holds."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click

from edge.command import Run, command
from edge.screen import Column, counted, is_terminal, one_line
from runtime.documents import Document
from runtime.errors import UsageError

if TYPE_CHECKING:
    from edge.ingestion import Outcome
    from runtime.knowledge_base import KnowledgeBase

_SHOWN_ROWS = 40


@command(
    "add",
    scopes=("store", "creation"),
    examples=(
        "specrag add manuals/ circulars.txt",
        "specrag add 'reports/**/*.pdf' --kb /media/stick/station",
        "specrag add manuals/ --json",
    ),
)
@click.argument("paths", nargs=-1, required=True, metavar="PATH...")
@click.option("--again", is_flag=True, help="Read files again although they have not changed.")
@click.option("--no-ocr", is_flag=True, help="Do not read pictures of text.")
def add(run: Run, paths: tuple[str, ...], again: bool, no_ocr: bool) -> int:
    """Add files, folders and patterns of files.

    Files that have not changed are left alone, changed ones replace their old version. Fails if a
    path named on the command line could not be read, or nothing could; files found in folders that
    have no reader are skipped.
    """
    from edge.assembly import open_knowledge_base
    from edge.ingestion import exit_code, find, ingest
    from edge.settings import knowledge_base_path
    from runtime.readers import ReadOptions

    kb_path = knowledge_base_path(run.settings)
    found = find(paths, leave_out=kb_path)
    outcomes = [*found.problems]
    if found.files or any(not one.named and one.status == "failed" for one in found.problems):
        with (
            open_knowledge_base(run.settings, create=True, on_wait=_say_waiting(run)) as kb,
            progress(run, len(found.files)) as advance,
        ):
            say_stemmer(run, kb)
            outcomes += ingest(
                kb,
                found.files,
                options=ReadOptions(ocr=not no_ocr),
                problems=found.problems,
                folders=found.folders,
                again=again,
                on_progress=advance,
            )
    if run.json:
        run.emit({"kb": str(kb_path), **outcomes_json(outcomes)})
    else:
        show_outcomes(run, outcomes)
    return exit_code(outcomes)


def say_stemmer(run: Run, kb: KnowledgeBase) -> None:
    """A knowledge base keeps the stemmer that it was made with; say so to who names another.

    On the command line, that is: the default, and the user's usual one, are for new ones.
    """
    if run.options.get("stemmer") is None:
        return
    wanted, kept = run.settings.stemmer, kb.statistics().stemmer
    if wanted != kept:
        run.warn(
            f"the stemmer of this knowledge base stays {kept or 'none'}; for {wanted or 'none'}, "
            "add the documents to a new one (--kb)"
        )


def _say_waiting(run: Run) -> Callable[[str], None]:
    return lambda holder: run.warn(f"waiting for {holder}, which is writing to the knowledge base")


class Advance(Protocol):
    """Tells a progress bar how much is done, what comes next, and how much there is in all."""

    def __call__(self, done: int, what: str, total: int | None = None) -> None: ...


def _silent(done: int, what: str, total: int | None = None) -> None:
    """An `Advance` where nobody watches."""


@contextmanager
def progress(run: Run, total: int) -> Iterator[Advance]:
    """A progress bar on standard error; nothing where that is no terminal, or with `--json`."""
    if run.json or not is_terminal(sys.stderr):
        yield _silent
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    task = bar.add_task("", total=total)

    def advance(done: int, what: str, total: int | None = None) -> None:
        name = one_line(what.rsplit("/", 1)[-1], 40)
        bar.update(task, completed=done, description=name, total=total)

    try:
        try:
            bar.start()
            yield advance
        finally:
            bar.stop()  # `with bar` would not, where Ctrl-C comes while it starts
    except KeyboardInterrupt:
        sys.stderr.write("^C")  # the terminal's own went with the bar
        raise


def outcomes_json(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """`add`'s result, see docs/json.md."""
    from edge.ingestion import STATUSES

    counts = Counter(outcome.status for outcome in outcomes)
    return {
        "files": [_outcome_json(outcome) for outcome in outcomes],
        "summary": {status: counts[status] for status in STATUSES},
    }


def _outcome_json(outcome: Outcome) -> dict[str, Any]:
    error = outcome.error
    return {
        "source": outcome.source,
        "named": outcome.named,
        "status": outcome.status,
        "documents": [document_json(document) for document in outcome.documents],
        "error": None if error is None else error.to_json(),
        "failures": [failure.to_json() for failure in outcome.failures],
    }


def document_json(document: Document) -> dict[str, Any]:
    """A document, see docs/json.md."""
    return {
        "id": document.id,
        "source": document.source,
        "title": document.title,
        "media_type": document.media_type,
        "content_sha256": document.content_sha256,
        "size": document.size,
        "characters": document.characters,
        "passages": document.passages,
        "added_at": document.added_at,
        "flags": [{"kind": flag.kind, "detail": flag.words()} for flag in document.flags],
    }


def show_outcomes(run: Run, outcomes: Sequence[Outcome]) -> None:
    """A summary for people: what failed or was skipped first told, and why."""
    from edge.ingestion import STATUSES
    from edge.rendering import file_cell

    told = [outcome for outcome in outcomes if outcome.status != "unchanged"]
    order = {status: place for place, status in enumerate(STATUSES)}
    told.sort(key=lambda outcome: order[outcome.status])
    rows = [
        (outcome.status, file_cell(outcome.source), _note(outcome))
        for outcome in told[-_SHOWN_ROWS:]
    ]
    if rows:
        run.screen.table("", (Column("status"), Column("file"), Column("", wide=True)), rows)
    if len(told) > len(rows):
        run.screen.line((f"… and {len(told) - len(rows)} more; all of them with --json", "dim"))
    counts = Counter(outcome.status for outcome in outcomes)
    run.screen.line(
        ", ".join(f"{counts[status]} {status}" for status in STATUSES if counts[status])
    )


def _note(outcome: Outcome) -> str:
    if outcome.error is not None:
        fix = f". {outcome.error.fix}" if outcome.error.fix else ""
        kept = ". Its last good version still answers" if outcome.documents else ""
        return f"{outcome.error.what}{fix.rstrip('.')}{kept}"
    passages = sum(document.passages for document in outcome.documents)
    flags = sorted({flag.kind for document in outcome.documents for flag in document.flags})
    documents = f"{len(outcome.documents)} documents, " if len(outcome.documents) != 1 else ""
    notes = [f"{documents}{counted(passages, 'passage')}"]
    if flags:
        notes.append(f"flagged: {', '.join(flags)}")
    notes += [f"not read: {failure}" for failure in outcome.failures]
    return "; ".join(notes)


@command(
    "list",
    scopes=("store",),
    examples=("specrag list", "specrag list --flagged --json"),
)
@click.option("--flagged", is_flag=True, help="Only documents with flags, such as hidden text.")
def list_documents(run: Run, flagged: bool) -> None:
    """List the documents."""
    from edge.assembly import open_knowledge_base

    with open_knowledge_base(run.settings) as kb:
        documents = [document for document in kb.documents() if document.flags or not flagged]
        path = kb.path
    if run.json:
        run.emit({"kb": str(path), "documents": [document_json(one) for one in documents]})
        return
    if not documents:
        run.screen.line(("no documents", "dim"), f" in {path}")
        return
    from edge.rendering import file_cell

    columns = (
        Column("id", right=True), Column("file"), Column("title"),
        Column("characters", right=True), Column("passages", right=True),
        Column("flags", wide=True),
    )  # fmt: skip
    run.screen.table(
        "",
        columns,
        [
            (
                str(one.id), file_cell(one.source), one.title, f"{one.characters:,}",
                f"{one.passages:,}", ", ".join(sorted({flag.kind for flag in one.flags})),
            )
            for one in documents
        ],
    )  # fmt: skip


@command(
    "remove",
    scopes=("store",),
    examples=("specrag remove manuals/old.pdf", "specrag remove notes.txt && specrag compact"),
)
@click.argument("sources", nargs=-1, required=True, metavar="SOURCE...")
def remove(run: Run, sources: tuple[str, ...]) -> int:
    """Remove documents, each named by its file's path or last part, or all of a folder.

    A folder that was added is forgotten with its documents. Removed text leaves answers at once,
    and the knowledge base's files with `specrag compact`.
    """
    from edge.assembly import open_knowledge_base

    removed: dict[str, int] = {}
    with open_knowledge_base(run.settings, writable=True) as kb:
        known = [document.source for document in kb.documents()]
        known += [failure.source for failure in kb.failures()]
        known += kb.roots()
        matched = [match_source(known, source) for source in sources]
        with kb.batch():
            for source in matched:
                removed[source] = kb.remove(source)
    if run.json:
        run.emit({"removed": [{"source": s, "documents": n} for s, n in removed.items()]})
        return 0
    for source, count in removed.items():
        run.screen.line(("removed ", "good"), f"{source} ({counted(count, 'document')})")
    return 0


def match_source(known: Sequence[str], wanted: str) -> str:
    """The source that `wanted` names: exactly, as a path from here, or by its last parts.

    Raises:
        UsageError: none, or more than one.
    """
    from runtime.knowledge_base import MEMBER
    from runtime.readers.discovery import display_name

    archives = {source.split(MEMBER, 1)[0] for source in known if MEMBER in source}
    sources = dict.fromkeys((*known, *archives))
    for exact in (wanted, display_name(os.path.abspath(wanted))):
        if exact in sources:
            return exact
    tails = tuple("/" + name.lstrip("/") for name in (wanted, display_name(wanted)))
    close = [source for source in sources if source.endswith(tails)]
    if len(close) == 1:
        return close[0]
    raise UsageError(
        f"{len(close)} documents end in this name" if close else "No document has this source",
        where=wanted,
        fix=f"Name one of: {', '.join(close)}" if close else "See `specrag list` for all of them",
    )
