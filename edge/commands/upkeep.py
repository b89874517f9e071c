"""status, verify, compact: the knowledge base itself, is it whole and up to date."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from edge.command import Run, command
from edge.screen import Column, counted

if TYPE_CHECKING:
    from edge.completeness import Completeness
    from runtime.knowledge_base import Failure

_SHOWN_ROWS = 20  # of what is not in step


@command("status", scopes=("store",), examples=("specrag status", "specrag status --json"))
def status(run: Run) -> None:
    """Show what is complete and what is not.

    Documents, files that failed, flags; and how the disk is now: files that are still to be added
    (pending), that have changed since (stale), that are gone.
    """
    from edge.assembly import open_knowledge_base
    from edge.commands.documents import document_json
    from edge.completeness import compare, places
    from edge.rendering import file_cell, short_path

    with open_knowledge_base(run.settings) as kb:
        statistics, failures = kb.statistics(), kb.failures()
        documents = kb.documents()
        now = compare(kb)
        path = kb.path
    flagged = [one for one in documents if one.flags]
    held = {place for one in documents for place in places(one.source)}
    if run.json:
        run.emit(
            {
                "kb": str(path),
                "statistics": asdict(statistics),
                "failures": [
                    {**asdict(failure), "still_answers": failure.source in held}
                    for failure in failures
                ],
                "flagged": [document_json(one) for one in flagged],
                "pending_files": now.pending,
                "stale_files": now.stale,
                "missing_files": now.gone,
            }
        )
        return
    run.screen.pairs(
        [
            ("knowledge base", str(path)),
            ("documents", f"{statistics.documents:,} ({statistics.characters:,} characters)"),
            ("passages", f"{statistics.passages:,}"),
            ("stemmer", statistics.stemmer or "none"),
            ("on disk", f"{(statistics.database_bytes + statistics.index_bytes) / 1e6:,.1f} MB"),
            ("failed", counted(len(failures), "file")),
            ("flagged", counted(len(flagged), "document")),
            ("pending", counted(len(now.pending), "file")),
            ("stale", counted(len(now.stale), "file")),
            ("files gone", f"{len(now.gone):,}"),
        ]
    )
    if rows := _not_in_step(now):
        run.screen.line()
        shown = rows[:_SHOWN_ROWS]
        run.screen.table("Not in step", (Column("state"), Column("file", wide=True)), shown)
    if len(rows) > _SHOWN_ROWS:
        more = len(rows) - _SHOWN_ROWS
        run.screen.line((f"… and {more:,} more; all of them with --json", "dim"))
    if failures:
        run.screen.line()
        run.screen.table(
            "Failed",
            (Column("file"), Column("why", wide=True)),
            [(file_cell(one.source), _why(one, one.source in held)) for one in failures],
        )
    if flagged:
        run.screen.line()
        run.screen.table(
            "Flagged",
            (Column("file"), Column("kind"), Column("what", wide=True)),
            [
                (file_cell(one.source), flag.kind, flag.words(short_path))
                for one in flagged
                for flag in one.flags
            ],
        )


def _not_in_step(now: Completeness) -> list[tuple[str, str]]:
    """State and file of each that is stale, gone or pending."""
    from edge.rendering import file_cell

    states = {"stale": now.stale, "gone": now.gone, "pending": now.pending}
    return [(state, file_cell(source)) for state, found in states.items() for source in found]


def _why(failure: Failure, still_answers: bool) -> str:
    kept = "Its last good version still answers" if still_answers else ""
    parts = (failure.what, failure.fix.rstrip("."), kept)
    return ". ".join(part for part in parts if part)


@command("verify", scopes=("store",), examples=("specrag verify --kb /media/stick/station",))
def verify(run: Run) -> int:
    """Prove that the knowledge base is whole.

    Fails and says what is damaged if database, texts and index do not agree.
    """
    from edge.assembly import open_knowledge_base

    with open_knowledge_base(run.settings) as kb:
        problems = kb.verify()
        documents = kb.statistics().documents
    if run.json:
        run.emit({"ok": not problems, "documents": documents, "problems": list(problems)})
    elif problems:
        for problem in problems:
            run.screen.line(("damaged: ", "bad"), problem)
    else:
        run.screen.line(("intact: ", "good"), counted(documents, "document"))
    return 1 if problems else 0


@command("compact", scopes=("store",), examples=("specrag remove old.pdf && specrag compact",))
def compact(run: Run) -> None:
    """Give space back, and leave no trace of removed text."""
    from edge.assembly import open_knowledge_base

    with open_knowledge_base(run.settings, writable=True) as kb:
        before = kb.statistics()
        kb.compact()
        after = kb.statistics()
    sizes = [one.database_bytes + one.index_bytes for one in (before, after)]
    if run.json:
        run.emit({"bytes_before": sizes[0], "bytes_after": sizes[1]})
    else:
        run.screen.line(f"{sizes[0] / 1e6:,.1f} MB -> {sizes[1] / 1e6:,.1f} MB")
