"""Paths, folders and patterns -> the files to read, each once, in a stable order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from runtime.errors import DocumentError
from runtime.readers.kinds import is_supported_name


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file to read.

    Attributes:
        path: as it was reached, absolute.
        source: how people see it: `path`, with bytes that are not UTF-8 written as `\\xNN`.
        size: bytes.
        modified_ns: time of its last change, nanoseconds since 1970.
        named: given by the user himself, so that a kind we cannot read is an error, not a skip.
    """

    path: Path
    source: str
    size: int
    modified_ns: int
    named: bool


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """All files, and what could not be looked at."""

    files: tuple[FoundFile, ...]
    skipped: tuple[str, ...]
    errors: tuple[DocumentError, ...]


def display_name(path: Path | str) -> str:
    """A path as printable text, whatever bytes its name has."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def find_files(paths: Iterable[Path | str]) -> FoundFiles:
    """Files among `paths`: files as they are, folders with all below, patterns such as `*.pdf`.

    Symbolic links are followed; a folder or file reached twice, through a link or a loop of links,
    is taken once. In folders, hidden files and kinds without a reader are skipped.
    """
    finder = _Finder()
    for path in paths:
        finder.take(Path(path))
    return FoundFiles(tuple(finder.files), tuple(finder.skipped), tuple(finder.errors))


class _Finder:
    def __init__(self) -> None:
        self.files: list[FoundFile] = []
        self.skipped: list[str] = []
        self.errors: list[DocumentError] = []
        self._seen: set[tuple[int, int]] = set()

    def take(self, path: Path) -> None:
        path = Path(os.path.abspath(path.expanduser()))
        if path.exists() or path.is_symlink() or not glob.has_magic(os.fspath(path)):
            self._one(path, named=True)
            return
        matches = sorted(glob.glob(os.fspath(path), recursive=True), key=os.fsencode)
        if not matches:
            self._fail("No file matches", path)
        for match in matches:
            self._one(Path(match), named=not os.path.isdir(match))

    def _one(self, path: Path, *, named: bool) -> None:
        try:
            found = path.stat()
        except OSError as error:
            self._fail(f"It cannot be opened ({error.strerror or error})", path)
            return
        if os.path.isdir(path):
            for inner in self._walk(path):
                self._one(inner, named=False)
            return
        key = (found.st_dev, found.st_ino)
        if key in self._seen:
            return
        if not os.path.isfile(path) or not (named or is_supported_name(path.name)):
            self.skipped.append(display_name(path))
            return
        self._seen.add(key)
        self.files.append(
            FoundFile(path, display_name(path), found.st_size, found.st_mtime_ns, named)
        )

    def _walk(self, folder: Path) -> Iterator[Path]:
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
                self._fail(f"The folder cannot be read ({error.strerror or error})", current)
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

    def _fail(self, what: str, path: Path) -> None:
        self.errors.append(DocumentError(what, where=display_name(path)))


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that points to itself
        return False
