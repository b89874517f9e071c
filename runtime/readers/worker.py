"""The child process: one path in, its parsed documents or an error out. Bounds its own memory."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import stat
from collections.abc import Callable
from pathlib import Path

from runtime.errors import (
    DocumentChanged,
    DocumentError,
    DocumentTooLarge,
    SpecragError,
    UnsupportedDocument,
)
from runtime.readers.context import Context
from runtime.readers.messages import to_message
from runtime.readers.options import ReadOptions
from runtime.readers.reading import parse_bytes
from runtime.sandbox import Message, serve

_RETIRE_BYTES = 400 << 20  # resident memory after which this process is replaced
_RETIRE_OCR_BYTES = 1200 << 20  # the same once the OCR models are loaded, which takes seconds
_GRACE = 5  # seconds after the parent's limit at which an orphaned child ends itself


def main() -> None:
    """Serve requests until the parent is gone."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))  # this process writes no file
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    serve(_answer)


def _answer(request: Message, send: Callable[[Message], None]) -> Message:
    options = ReadOptions(**request["options"])
    signal.setitimer(signal.ITIMER_REAL, options.seconds + _GRACE)
    limit_memory(options.memory_bytes)

    def begin_ocr() -> None:
        if not context.ocr_begun:
            context.ocr_begun = True
            limit_memory(options.ocr_memory_bytes)
            signal.setitimer(signal.ITIMER_REAL, options.ocr_seconds + _GRACE)
            send({"extend": options.ocr_seconds})

    context = _FileContext(request["source"], options, begin_ocr)
    try:
        reply = _read(os.fsencode(request["path"]), request["source"], context)
    except MemoryError:
        too_large = DocumentTooLarge(
            f"Reading it takes more than {options.memory_bytes >> 20} MiB of memory",
            where=request["source"],
            fix="Split it into smaller files.",
        )
        return {"error": too_large.to_json(), "retire": True}
    except SpecragError as error:
        reply = {"error": error.to_json()}
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    most = _RETIRE_OCR_BYTES if context.ocr_begun else _RETIRE_BYTES
    reply["retire"] = _resident_bytes() > most
    return reply


class _FileContext(Context):
    """A context that remembers whether OCR has begun."""

    ocr_begun = False


def _read(path: bytes, source: str, context: Context) -> Message:
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for somebody to write to it.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise UnsupportedDocument("It is not a file", where=source)
            if before.st_size > context.options.file_bytes:
                raise _too_large(before.st_size, context)
            data = file.read(context.options.file_bytes + 1)
        documents = parse_bytes(data, os.fsdecode(path), context)
        after = os.stat(path)
    except OSError as error:
        raise DocumentError(
            f"It cannot be opened ({error.strerror or error})", where=source
        ) from error
    same = (before.st_ino, before.st_size, before.st_mtime_ns) == (
        after.st_ino,
        after.st_size,
        after.st_mtime_ns,
    )
    if not same or len(data) != before.st_size:
        raise DocumentChanged(
            "It changed while it was read", where=source, fix="Add it again when it is complete."
        )
    return {
        **to_message(documents),
        "failures": [failure.to_json() for failure in context.failures],
        "content_sha256": hashlib.sha256(data).hexdigest(),
        "size": len(data),
    }


def _too_large(size: int, context: Context) -> DocumentTooLarge:
    return DocumentTooLarge(
        f"It is {size >> 20} MiB, over the limit of {context.options.file_bytes >> 20} MiB",
        where=context.source,
        fix="Split it, or raise the limit for the size of a file.",
    )


def limit_memory(extra: int) -> None:
    """Allow `extra` bytes of address space on top of what this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    limit = pages * resource.getpagesize() + extra
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.RLIM_INFINITY))


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * resource.getpagesize()
