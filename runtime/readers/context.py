"""What a format's reader is told about the file and the limits it works under."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from runtime.errors import DocumentError, DocumentTooLarge
from runtime.readers.options import ReadOptions

_UNPACKED_BYTES = 512 << 20  # an archive with all archives in it, unpacked
_RATIO = 200  # an archive member may unpack to this multiple of its packed size ...
_SMALL = 8 << 20  # ... unless it stays under this
_NESTING = 4  # archives in archives, attachments in attachments


@dataclass(slots=True)
class Context:
    """One file being read.

    Attributes:
        source: the name that errors show.
        options: limits.
        begin_ocr: to be called before the first OCR; raises the time and memory limits.
        depth: how many archives or e-mails the bytes at hand are inside of.
        unpacked: bytes unpacked so far, shared by everything inside one file.
        failures: members that could not be read; the others go on.
    """

    source: str
    options: ReadOptions
    begin_ocr: Callable[[], None]
    depth: int = 0
    unpacked: list[int] = field(default_factory=lambda: [0])
    failures: list[DocumentError] = field(default_factory=list)

    def inside(self, member: str) -> Context:
        """The context for `member` of this file."""
        if self.depth >= _NESTING:
            raise DocumentTooLarge(
                f"Archives are nested more than {_NESTING} deep",
                where=self.source,
                fix="Unpack it and add the files.",
            )
        return Context(
            f"{self.source}!/{member}",
            self.options,
            self.begin_ocr,
            self.depth + 1,
            self.unpacked,
            self.failures,
        )

    def unpack(self, packed: int, size: int) -> None:
        """Account for `size` bytes about to be unpacked from `packed` bytes.

        Raises:
            DocumentTooLarge: it has the proportions of an archive bomb.
        """
        self.unpacked[0] += size
        if self.unpacked[0] > _UNPACKED_BYTES or size > max(_SMALL, _RATIO * packed):
            raise DocumentTooLarge(
                "It unpacks to more than is reasonable (an archive bomb?)",
                where=self.source,
                fix="Unpack it elsewhere and add the files that you trust.",
            )
