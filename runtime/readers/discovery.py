"""Paths, folders and patterns -> the files to read, each once, in a stable order."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import DocumentError
from runtime.readers.kinds import is_supported_name

# What `display_name` writes for a byte that is not UTF-8, and for a backslash (5c) that would
# otherwise look like the beginning of one.
_ESCAPED = re.compile(rb"\\x([89a-f][0-9a-f]|5c)")


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read.

    Attributes:
        path: as it was reached, absolute.
        source: how people see it: `path`, with bytes that are not UTF-8 written as `\\xNN`.
        size: bytes.
        modified_ns: time of its last change as the file says, nanoseconds since 1970.
        changed_ns: the same as the file system says; a copy that keeps times keeps not this one,
            and a change of its permissions counts.
        named: given by the user himself, so that a kind we cannot read is an error, not a skip.
    """

    path: Path
    source: str
    size: int
    modified_ns: int
    changed_ns: int
    named: bool


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """All files, and what could not be looked at.

    Attributes:
        folders: those among the paths given, or that a pattern stands for.
        errors: paths given by the user himself that cannot be read.
        inner_errors: files and folders below them that cannot be read.
    """

    files: tuple[FoundFile, ...]
    folders: tuple[str, ...]
    skipped: tuple[str, ...]
    errors: tuple[DocumentError, ...]
    inner_errors: tuple[DocumentError, ...]


def display_name(path: Path | str) -> str:
    """A path as printable text, whatever bytes its name has; no two paths have the same."""
    raw = _ESCAPED.sub(rb"\\x5cx\1", os.fsencode(path))
    return raw.decode("utf-8", "backslashreplace")


def real_path(source: str) -> str:
    """The path that `display_name` made `source` of."""
    raw = source.encode("utf-8", "surrogateescape")
    return os.fsdecode(_ESCAPED.sub(lambda found: bytes.fromhex(found[1].decode()), raw))


def find_files(paths: Iterable[Path | str]) -> FoundFiles:
    """Files among `paths`: files as they are, folders with all below, patterns such as `*.pdf`.

    Symbolic links are followed; a folder or file reached twice, through a link or a loop of links,
    is taken once. In folders, hidden files and kinds without a reader are skipped.
    """
    finder = _Finder()
    for path in paths:
        finder.take(path)
    return FoundFiles(
        tuple(finder.files),
        tuple(finder.folders),
        tuple(finder.skipped),
        tuple(finder.errors),
        tuple(finder.inner_errors),
    )


class _Finder:
    def __init__(self) -> None:
        self.files: list[FoundFile] = []
        self.folders: list[str] = []
        self.skipped: list[str] = []
        self.errors: list[DocumentError] = []
        self.inner_errors: list[DocumentError] = []
        self._seen: set[tuple[int, int]] = set()

    def take(self, given: Path | str) -> None:
        if not os.fspath(given):  # would be the working folder, which nobody named
            self.errors.append(DocumentError("This path is empty", where="''", fix="Name a file"))
            return
        path = Path(os.path.abspath(os.path.expanduser(given)))
        if os.path.lexists(path) or not glob.has_magic(os.fspath(path)):
            self._one(path, named=True)
            return
        matches = sorted(glob.glob(os.fspath(path), recursive=True), key=os.fsencode)
        if not matches:
            self._fail("No file matches", path, named=True)
        for match in matches:
            self._one(Path(match), named=not os.path.isdir(match))

    def _one(self, path: Path, *, named: bool) -> None:
        try:
            found = path.stat()
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            reason = getattr(error, "strerror", None) or error
            self._fail(f"It cannot be opened ({reason})", path, named=named)
            return
        if os.path.isdir(path):
            self.folders.append(display_name(path))
            for inner in self._walk(path, named=named):
                self._one(inner, named=False)
            return
        key = (found.st_dev, found.st_ino)
        if key in self._seen:
            return
        if named and not os.path.isfile(path):
            self._fail("It is a pipe, a socket or a device, not a file", path, named=True)
            return
        if not os.path.isfile(path) or not (named or is_supported_name(path.name)):
            self.skipped.append(display_name(path))
            return
        self._seen.add(key)
        self.files.append(
            FoundFile(
                path=path,
                source=display_name(path),
                size=found.st_size,
                modified_ns=found.st_mtime_ns,
                changed_ns=found.st_ctime_ns,
                named=named,
            )
        )

    def _walk(self, folder: Path, *, named: bool) -> Iterator[Path]:
        """Files below a folder; each folder is entered once, so loops of links end."""
        pending = [folder]
        while pending:
            current = pending.pop()
            try:
                status = current.stat()
                if (status.st_dev, status.st_ino) in self._seen:
                    continue
                self._seen.add((status.st_dev, status.st_ino))
                entries = sorted(os.scandir(current), key=lambda entry: os.fsencode(entry.name))
            except OSError as error:
                self._fail(
                    f"The folder cannot be read ({error.strerror or error})",
                    current,
                    named=named and current == folder,
                )
                continue
            folders = []
            for entry in entries:
                if entry.name.startswith("."):
                    continue
                if _is_folder(entry):
                    folders.append(Path(entry.path))
                else:
                    yield Path(entry.path)
            pending += reversed(folders)

    def _fail(self, what: str, path: Path, *, named: bool) -> None:
        errors = self.errors if named else self.inner_errors
        errors.append(DocumentError(what, where=display_name(path)))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False
