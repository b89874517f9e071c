"""Paths -> documents in the knowledge base, and for each file what became of it.

Files are read in child processes a few ahead of the one that is stored, and published in groups, so
that an interrupted run has lost a few seconds at most and the next one goes on from there: a file
whose bytes are known already costs a hash and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from edge.completeness import may_exist, places
from runtime.documents import Document
from runtime.errors import (
    DocumentError,
    DocumentTooLarge,
    EmptyDocument,
    MissingExtra,
    SpecragError,
    UnsupportedDocument,
    UsageError,
)
from runtime.knowledge_base import KnowledgeBase, SeenFile
from runtime.readers import (
    FoundFile,
    FoundFiles,
    ReadFile,
    ReadOptions,
    find_files,
    interrupt_readers,
    read_file,
)
from runtime.readers.discovery import real_path

Status = Literal["added", "updated", "unchanged", "skipped", "failed"]
STATUSES: tuple[Status, ...] = ("added", "updated", "unchanged", "skipped", "failed")

_READERS = 2  # files read at once, each in a child process
_GROUP_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one source.

    Attributes:
        named: the path was given itself, not found in a folder.
        documents: what the knowledge base now holds of it; of a file that cannot be read any more
            the last good version, of one that is empty now nothing.
        error: why it was skipped or failed.
        failures: members of an archive that could not be read, although others could.
    """

    source: str
    named: bool
    status: Status
    documents: tuple[Document, ...] = ()
    error: SpecragError | None = None
    failures: tuple[SpecragError, ...] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """What paths stand for.

    Attributes:
        problems: outcomes for what will not be read.
        folders: those among the paths, which the knowledge base remembers.
    """

    files: list[FoundFile]
    problems: list[Outcome]
    folders: tuple[str, ...]


def exit_code(outcomes: Sequence[Outcome]) -> int:
    """1 if a named path failed or nothing at all could be read, else 0."""
    readable = any(outcome.status in ("added", "updated", "unchanged") for outcome in outcomes)
    named_failed = any(outcome.named and outcome.status == "failed" for outcome in outcomes)
    return 0 if readable and not named_failed else 1


def find(paths: Iterable[str | Path], *, leave_out: Path) -> Found:
    """The files that `paths` stand for, and outcomes for what will not be read.

    Args:
        leave_out: the knowledge base's own folder.
    """
    found = find_files(paths)
    own = os.path.abspath(leave_out) + os.sep
    files = [file for file in found.files if not str(file.path).startswith(own)]
    problems = [Outcome(error.where or "", True, "failed", error=error) for error in found.errors]
    problems += [
        Outcome(error.where or "", False, "failed", error=error) for error in found.inner_errors
    ]
    problems += [_skipped(source) for source in found.skipped if not source.startswith(own)]
    if not files and not (found.errors or found.inner_errors):
        problems.append(_nothing(paths, found))
    return Found(files, problems, found.folders)


def _skipped(source: str) -> Outcome:
    error = UnsupportedDocument("No reader for this kind of file", where=source)
    return Outcome(source, False, "skipped", error=error)


def _nothing(paths: Iterable[str | Path], found: FoundFiles) -> Outcome:
    given = ", ".join(map(str, paths))
    error = UsageError(
        "There are no readable files here" if found.skipped else "There are no files here",
        where=given,
        fix="docs/formats.md lists what can be read",
    )
    return Outcome(given, True, "failed", error=error)


def ingest(
    knowledge_base: KnowledgeBase,
    files: Sequence[FoundFile],
    *,
    options: ReadOptions | None = None,
    problems: Sequence[Outcome] = (),
    folders: Sequence[str] = (),
    again: bool = False,
    on_progress: Callable[[int, str], None] | None = None,
) -> Iterator[Outcome]:
    """Add `files` to the knowledge base; an outcome for each, in order, once it is published.

    Args:
        problems: what `find` could not look at; what of it lies inside folders is remembered as
            failed until it can be read or is gone.
        folders: where `find` found them; they are remembered, and so are files that were named
            until they are read, so that it is known after an interruption what there is to do.
        again: read files although their bytes are in already.
        on_progress: told how many files are done, and which comes next.

    Raises:
        KnowledgeBaseError: the knowledge base cannot be written; what was published stays.
    """
    known = _known_documents(knowledge_base)
    _remember(knowledge_base, problems, known)
    _remember_roots(knowledge_base, files, folders, known)
    seen = knowledge_base.seen_files()
    done = 0
    with closing(_read_ahead(files, {} if again else known, options or ReadOptions())) as readings:
        while done < len(files):
            outcomes: list[Outcome] = []
            started = time.monotonic()
            with knowledge_base.batch():
                for file, work in readings:
                    if on_progress is not None:
                        on_progress(done, file.source)
                    outcome = _store(knowledge_base, file, work, known.get(file.source, []))
                    _record(knowledge_base, file, outcome, seen.get(file.source))
                    outcomes.append(outcome)
                    done += 1
                    if time.monotonic() - started > _GROUP_SECONDS:
                        break
            yield from outcomes


def _remember(
    knowledge_base: KnowledgeBase,
    problems: Sequence[Outcome],
    known: dict[str, list[Document]],
) -> None:
    """Record which inner paths failed, and forget those that do not any more, or are gone."""
    failed = {
        problem.source: problem.error
        for problem in problems
        if problem.status == "failed" and not problem.named and problem.error is not None
    }
    roots = knowledge_base.roots()
    sources = {failure.source for failure in knowledge_base.failures()}
    sources.update(source for source in knowledge_base.seen_files() if source not in known)
    mended = [source for source in sources if _is_mended(source, roots)]
    with knowledge_base.batch():
        for source in mended:
            knowledge_base.forget_failures(source)
        for source, error in failed.items():
            knowledge_base.record_failure(source, error)


def _is_mended(source: str, roots: Sequence[str]) -> bool:
    """Whether a failed path is a folder that can be read now, or gone from one that is there."""
    path = real_path(source)
    if os.path.isdir(path):
        return os.access(path, os.R_OK | os.X_OK)
    if os.path.lexists(path) or may_exist(source):
        return False
    around = [real_path(root) for root in roots if source.startswith(root.rstrip("/") + "/")]
    around += [os.path.dirname(real_path(place)) for place in places(source)]
    return any(map(os.path.isdir, around))


def _remember_roots(
    knowledge_base: KnowledgeBase,
    files: Sequence[FoundFile],
    folders: Sequence[str],
    known: dict[str, list[Document]],
) -> None:
    """Remember the folders, and the files that were named and are not in yet."""
    named = [file.source for file in files if file.named and file.source not in known]
    remembered = set(knowledge_base.roots())
    with knowledge_base.batch():
        for root in (*folders, *named):
            if root not in remembered:
                knowledge_base.remember_root(root)


def _known_documents(knowledge_base: KnowledgeBase) -> dict[str, list[Document]]:
    """Documents by the file they come from; an archive's members under the archive."""
    known: dict[str, list[Document]] = {}
    for document in knowledge_base.documents():
        for place in places(document.source):
            known.setdefault(place, []).append(document)
    return known


def _read_ahead(
    files: Sequence[FoundFile], known: dict[str, list[Document]], options: ReadOptions
) -> Generator[tuple[FoundFile, Future[ReadFile | None]]]:
    """Each file with its reading, a few of them under way; closed early, those are given up."""
    with ThreadPoolExecutor(_READERS, thread_name_prefix="specrag-read") as threads:
        waiting: deque[tuple[FoundFile, Future[ReadFile | None]]] = deque()
        try:
            for file in files:
                held = known.get(file.source, [])
                waiting.append((file, threads.submit(_read, file, held, options)))
                if len(waiting) > 2 * _READERS:
                    yield waiting.popleft()
            while waiting:
                yield waiting.popleft()
        except BaseException:  # closed early, too
            for _, work in waiting:
                work.cancel()
            interrupt_readers()
            raise


def _read(file: FoundFile, held: Sequence[Document], options: ReadOptions) -> ReadFile | None:
    """The file's documents; None if exactly its bytes are held already.

    Raises:
        DocumentError, MissingExtra: the file cannot be read.
    """
    if file.size > options.file_bytes:
        raise DocumentTooLarge(
            f"It has {file.size / 1e6:,.0f} MB; the most is {options.file_bytes / 1e6:,.0f} MB",
            where=file.source,
            fix="Split it, and add its parts",
        )
    if held:
        digest = _sha256(file)
        if all(document.content_sha256 == digest for document in held):
            return None
    return read_file(file.path, options)


def _sha256(file: FoundFile) -> str:
    try:
        with file.path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise DocumentError(
            f"It cannot be read: {error.strerror}", where=file.source, fix="Check its permissions"
        ) from error


def _store(
    knowledge_base: KnowledgeBase,
    file: FoundFile,
    work: Future[ReadFile | None],
    held: Sequence[Document],
) -> Outcome:
    """Put one reading into the knowledge base, or remember why there is none."""
    try:
        reading = work.result()
        if reading is None:
            return Outcome(file.source, file.named, "unchanged", tuple(held))
        documents = tuple(
            knowledge_base.add(one, content_sha256=reading.content_sha256, size=reading.size)
            for one in reading.documents
        )
    except (DocumentError, MissingExtra) as error:
        if isinstance(error, UnsupportedDocument) and not (file.named or held):
            return Outcome(file.source, file.named, "skipped", error=error)
        if isinstance(error, EmptyDocument):  # its old text is not in it any more
            knowledge_base.remove(file.source)
            held = ()
        knowledge_base.record_failure(file.source, error)
        return Outcome(file.source, file.named, "failed", tuple(held), error)
    for gone in {document.source for document in held} - {d.source for d in documents}:
        knowledge_base.remove(gone)
    knowledge_base.forget_failures(file.source)
    for failure in reading.failures:
        knowledge_base.record_failure(failure.where or file.source, failure)
    status: Status = "updated" if held else "added"
    return Outcome(file.source, file.named, status, documents, failures=reading.failures)


def _record(
    knowledge_base: KnowledgeBase, file: FoundFile, outcome: Outcome, before: SeenFile | None
) -> None:
    """Remember what the file looked like, unless that is known and it is as it was."""
    was_read = outcome.documents and outcome.status in ("added", "updated", "unchanged")
    seen = SeenFile(
        file.source,
        content_sha256=outcome.documents[0].content_sha256 if was_read else "",
        size=file.size,
        modified_ns=file.modified_ns,
        changed_ns=file.changed_ns,
    )
    if outcome.status != "unchanged" or seen != before:
        knowledge_base.record_file(seen)
