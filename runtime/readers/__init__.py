"""Files of many formats -> `ParsedDocument`s, each parsed in a child process that may die.

`read_file` is the whole story of one file; `read_document` is its short form; `parse_text` takes a
text that is already in memory; `find_files` turns what a user typed into files.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import runtime.errors
from runtime.documents import ParsedDocument
from runtime.errors import (
    DamagedDocument,
    DocumentError,
    DocumentTooLarge,
    EmptyDocument,
    ReaderNotStarted,
    UsageError,
)
from runtime.readers.discovery import FoundFile, FoundFiles, display_name, find_files
from runtime.readers.messages import from_message
from runtime.readers.options import MIB, ReadOptions
from runtime.sandbox import ChildDied, ChildNotStarted, ChildSaidTooMuch, ChildTimedOut, Sandbox

__all__ = [
    "FoundFile",
    "FoundFiles",
    "ReadFile",
    "ReadOptions",
    "find_files",
    "interrupt_readers",
    "parse_text",
    "read_document",
    "read_file",
    "stop_readers",
]

_sandbox = Sandbox("runtime.readers.worker")


@dataclass(frozen=True, slots=True)
class ReadFile:
    """What was read from one file.

    Attributes:
        documents: one, or several for an archive or an e-mail with attachments.
        failures: members of an archive that could not be read.
        content_sha256: of the bytes that were parsed, hexadecimal; `size` is their number.
    """

    documents: tuple[ParsedDocument, ...]
    failures: tuple[DocumentError, ...]
    content_sha256: str
    size: int


def read_file(path: Path | str, options: ReadOptions | None = None) -> ReadFile:
    """Read one file in a child process.

    Raises:
        DocumentError: of the kind that says what is wrong; for an archive only when none of its
            members could be read.
        ReaderNotStarted: the child process did not start.
    """
    options = options or ReadOptions()
    source = display_name(path)
    seconds = options.seconds + options.seconds_per_mib * _mib(path)
    request = {
        "path": os.fsdecode(os.path.abspath(path)),
        "source": source,
        "options": asdict(replace(options, seconds=seconds)),
    }
    try:
        reply = _sandbox.call(request, seconds=seconds, output_bytes=options.output_bytes)
    except ChildNotStarted as error:
        raise ReaderNotStarted(
            "The process that reads files did not start",
            where=source,
            fix="Try again when the machine is less busy; if that is not it, install specrag again",
        ) from error
    except ChildTimedOut as error:
        raise DocumentTooLarge(
            f"Reading it took longer than {seconds:.0f} s and was stopped",
            where=source,
            fix="Split it into smaller files.",
        ) from error
    except ChildSaidTooMuch as error:
        raise DocumentTooLarge(
            f"It holds more than {options.output_bytes >> 20} MiB of text",
            where=source,
            fix="Split it into smaller files.",
        ) from error
    except ChildDied as error:
        raise DamagedDocument(
            f"Its reader died of it ({error})",
            where=source,
            fix="Copy or export it again from its source.",
        ) from error
    if "error" in reply:
        raise _error(reply["error"])
    failures = tuple(_error(told) for told in reply["failures"])
    documents = from_message(reply)
    if not documents:
        raise failures[0]
    return ReadFile(documents, failures, reply["content_sha256"], reply["size"])


def read_document(path: Path | str, options: ReadOptions | None = None) -> list[ParsedDocument]:
    """The documents in one file; see `read_file`."""
    return list(read_file(path, options).documents)


def parse_text(
    text: str, source: str, media_type: str = "text/plain", *, title: str = ""
) -> ParsedDocument:
    """A text that is already in memory as a document, in this process.

    Args:
        media_type: `text/plain`, `text/markdown` or `text/html`.

    Raises:
        EmptyDocument: nothing but white space in it.
        UsageError: another media type.
    """
    from importlib import import_module

    from runtime.readers.blocks import assemble
    from runtime.readers.context import Context

    kinds = {"text/plain": "text", "text/markdown": "markdown", "text/html": "html"}
    if media_type not in kinds:
        raise UsageError(
            f"Texts of type {media_type} are not known", fix=f"Use {', '.join(kinds)}."
        )
    if not text.strip():
        raise EmptyDocument("The text is empty", where=source)
    context = Context(source, ReadOptions(), begin_ocr=lambda: None)
    data = text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode("utf-8")
    raw = import_module(f"runtime.readers.{kinds[media_type]}").read(data, context)[0]
    raw.title = title or raw.title
    parsed = assemble(raw, source)
    if not parsed.text:
        raise EmptyDocument("There is no text in it", where=source)
    return parsed


def interrupt_readers() -> None:
    """Kill the child processes that are reading now: `read_file` raises in the threads that wait.

    For a caller who gives up, such as one that was interrupted.
    """
    _sandbox.interrupt()


def stop_readers() -> None:
    """End the idle child processes; the next file starts a new one."""
    _sandbox.close()


def _mib(path: Path | str) -> float:
    """Size of a file; 0 where it cannot be told, about which the child will complain."""
    try:
        return os.stat(path).st_size / MIB
    except OSError:
        return 0.0


def _error(told: dict[str, Any]) -> DocumentError:
    """An error as the child told it; only classes of our own hierarchy are ever made."""
    kind = getattr(runtime.errors, str(told["kind"]), DocumentError)
    if not (isinstance(kind, type) and issubclass(kind, DocumentError)):
        kind = DocumentError
    return kind(str(told["what"]), where=told["where"], fix=told["fix"])
