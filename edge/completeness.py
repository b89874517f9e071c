"""What a knowledge base was made of, and the disk as it is now -> what is not in step."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from runtime.documents import Document
from runtime.knowledge_base import MEMBER, KnowledgeBase, SeenFile
from runtime.readers import FoundFile, find_files
from runtime.readers.discovery import real_path

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)


@dataclass(frozen=True, slots=True)
class Completeness:
    """Sources that are not in step; what failed is in none of them.

    Attributes:
        pending: files of the folders that were added, or named themselves, that are not in.
        stale: files that have changed since: older text of theirs answers.
        gone: documents whose file is not there any more.
    """

    pending: tuple[str, ...]
    stale: tuple[str, ...]
    gone: tuple[str, ...]


def compare(knowledge_base: KnowledgeBase) -> Completeness:
    """Look at the disk: at every file's state, and into those only whose state has changed."""
    documents = knowledge_base.documents()
    failed = {failure.source for failure in knowledge_base.failures()}
    seen = knowledge_base.seen_files()
    own = os.path.abspath(knowledge_base.path) + os.sep
    known = {place for source in failed for place in places(source)}
    gone, by_file = [], dict[str, list[Document]]()
    for document in documents:
        known.update(places(document.source))
        if is_gone(document.source):
            gone.append(document.source)
        elif (file := _file_of(document.source)) and file not in failed:
            by_file.setdefault(file, []).append(document)
    # Killed just after it was stored, a file's documents are there when the next writer has come.
    stored = (file.source for file in seen.values() if file.content_sha256)
    wanted = [*knowledge_base.roots(), *(source for source in stored if source not in known)]
    roots = [path for path in map(real_path, wanted) if os.path.lexists(path)]
    return Completeness(
        pending=tuple(
            file.source
            for file in find_files(roots).files
            if file.source not in known
            and not str(file.path).startswith(own)
            and not _was_skipped(file, seen.get(file.source))
        ),
        stale=tuple(
            file for file, held in by_file.items() if _is_stale(file, held, seen.get(file))
        ),
        gone=tuple(gone),
    )


def is_gone(source: str) -> bool:
    """Whether a document's file is no longer where it was added from; texts come from none."""
    return source.startswith(os.sep) and not may_exist(source)


def may_exist(source: str) -> bool:
    """Whether it is there, or nobody can say: the folder may not be entered, the drive fails."""
    *archives, whole = places(source)
    return _may_be_there(whole) or any(_may_be_there(one, folder=False) for one in archives)


def places(source: str) -> Iterator[str]:
    """The sources that may be the file of a source, shortest first.

    Of `a/b.zip!/c!/d.txt` it is `a/b.zip`, but a folder's name may end in "!", too.
    """
    parts = source.split(MEMBER)
    return (MEMBER.join(parts[:count]) for count in range(1, len(parts) + 1))


def _may_be_there(source: str, *, folder: bool = True) -> bool:
    """
    Args:
        folder: a folder at this place counts; it does not where an archive must be.
    """
    try:
        found = os.stat(real_path(source))
    except OSError as error:
        return error.errno not in _NOT_THERE
    except ValueError:  # a NUL, in the name of a member
        return False
    return folder or not stat.S_ISDIR(found.st_mode)


def _file_of(source: str) -> str | None:
    """The file that a document comes from; None where there is none, or it cannot be looked at."""
    if not source.startswith(os.sep):
        return None
    return next((place for place in places(source) if os.path.isfile(real_path(place))), None)


def _was_skipped(file: FoundFile, seen: SeenFile | None) -> bool:
    """Whether it was looked at as it is, and has no reader."""
    return seen == SeenFile(file.source, "", file.size, file.modified_ns, file.changed_ns)


def _is_stale(source: str, held: Sequence[Document], seen: SeenFile | None) -> bool:
    """Whether the file's bytes are others than its documents were made of; False if none can say.

    They are those that were seen where size and times have not changed.
    """
    path = real_path(source)
    try:
        now = os.stat(path)
        known = seen.content_sha256 if seen else ""
        looks = SeenFile(source, known, now.st_size, now.st_mtime_ns, now.st_ctime_ns)
        if known and looks == seen:
            digest = known
        else:
            with open(path, "rb") as stream:
                digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return False
    return any(document.content_sha256 != digest for document in held)
