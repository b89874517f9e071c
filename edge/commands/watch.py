"""watch: keep the knowledge base in step with folders, file by file, as they change."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edge.command import Run, command
from runtime.errors import KnowledgeBaseLocked, ReaderNotStarted, UsageError

if TYPE_CHECKING:
    from edge.ingestion import Outcome
    from runtime.readers import FoundFile

_Stamp = tuple[int, int, int]


@command(
    "watch",
    scopes=("store", "creation"),
    examples=("specrag watch manuals/", "specrag watch manuals/ --once --json"),
)
@click.argument("folders", nargs=-1, required=True, metavar="DIR...")
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to look.",
)
@click.option("--once", is_flag=True, help="Bring it in step once, then end.")
def watch(run: Run, folders: tuple[str, ...], interval: float, once: bool) -> None:
    """Keep the knowledge base in step with folders.

    New, changed and deleted files are followed; of a folder that is gone itself, as a drive is that
    was unplugged, the documents stay. The knowledge base is held only while something
    changes, so that others can write in between. Ends with Ctrl-C.
    """
    for folder in folders:
        if not os.path.isdir(folder):
            raise UsageError("This is not a folder", where=folder, fix="Name a folder")
    watcher = _Watcher(run, folders)
    while True:
        try:
            watcher.step()
        except (KnowledgeBaseLocked, ReaderNotStarted) as error:  # the next look tries again
            if once:
                raise
            run.warn(str(error))
        if once:
            return
        time.sleep(interval)


class _Watcher:
    """What was seen at the last look."""

    def __init__(self, run: Run, folders: Sequence[str]) -> None:
        from edge.settings import knowledge_base_path
        from runtime.readers.discovery import display_name

        self._run = run
        self._folders = folders
        self._roots = tuple(display_name(os.path.abspath(folder)) + os.sep for folder in folders)
        self._kb_path: Path = knowledge_base_path(run.settings)
        self._seen: dict[str, _Stamp] | None = None

    def step(self) -> None:
        """Look once, and bring the knowledge base in step."""
        from edge.assembly import open_knowledge_base
        from edge.commands.documents import say_stemmer
        from edge.ingestion import find, ingest

        found = find(self._folders, leave_out=self._kb_path)
        stamps = {
            file.source: (file.size, file.modified_ns, file.changed_ns) for file in found.files
        }
        if stamps == self._seen:
            return
        changed = self._changed(found.files, stamps)
        is_first = self._seen is None
        # Made at the first look only: one that is gone later was moved, and is not begun anew.
        with open_knowledge_base(self._run.settings, create=is_first, writable=True) as kb:
            if is_first:
                say_stemmer(self._run, kb)
            gone = self._gone([document.source for document in kb.documents()])
            with kb.batch():
                for source in gone:
                    kb.remove(source)
            outcomes = list(ingest(kb, changed, problems=found.problems, folders=found.folders))
        self._seen = stamps
        self._tell(outcomes, gone)

    def _gone(self, sources: Sequence[str]) -> list[str]:
        """Those below the watched folders that are no longer there.

        A folder that is gone itself is a drive or share that was taken away, not files deleted: its
        documents stay. What this does not cover is a mount point that is left empty.
        """
        from edge.completeness import may_exist
        from runtime.readers.discovery import real_path

        gone = [s for s in sources if s.startswith(self._roots) and not may_exist(s)]
        # Only now: it may be taken away at any moment.
        away = tuple(root for root in self._roots if not os.path.isdir(real_path(root)))
        for root in away:
            self._run.warn(f"the folder is not there, its documents are kept: {root}")
        return [source for source in gone if not source.startswith(away)]

    def _changed(self, files: Sequence[FoundFile], stamps: dict[str, _Stamp]) -> list[FoundFile]:
        seen = self._seen or {}
        return [file for file in files if stamps[file.source] != seen.get(file.source)]

    def _tell(self, outcomes: Sequence[Outcome], gone: Sequence[str]) -> None:
        from edge.commands.documents import outcomes_json, show_outcomes

        told = [outcome for outcome in outcomes if outcome.status != "unchanged"]
        if self._run.json:
            self._run.emit({**outcomes_json(told), "removed": list(gone)})
            return
        for source in gone:
            self._run.screen.line(("removed ", "warning"), source)
        if told:
            show_outcomes(self._run, told)
        sys.stdout.flush()  # a log is read while this runs
