"""Files of every kind -> how fast they become clean text, on one core.

Each file below the folders is read once to warm up, then kind by kind until `--seconds` have gone:
bytes to cleaned document, as in the reader's child process. Time is processor time, which other
processes on the machine disturb little. What the child process adds (the document as JSON through a
pipe, half a millisecond for a small file) is not in it: benchmarks/ingestion.py measures that.

    python -m benchmarks.reading examples/pumping-station /usr/share/doc
    python -m tests.reader_files build/formats && python -m benchmarks.reading build/formats
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.machine import describe
from runtime.documents import ParsedDocument
from runtime.errors import DocumentError
from runtime.readers import ReadOptions, find_files
from runtime.readers.context import Context
from runtime.readers.reading import parse_bytes

_GOAL_PAGES_PER_S = 30.0  # of PDFs
_MOST_FILES = 200  # of one kind


@dataclass(slots=True)
class Speed:
    """What was read of one kind: counts, bytes of the files, seconds of processor time."""

    kind: str
    files: int
    documents: int = 0
    pages: int = 0
    bytes: int = 0
    seconds: float = 0.0

    def row(self) -> str:
        """A line of the table; pages only where the kind has any."""
        pages = f"{self.pages / self.seconds:9.1f}" if self.pages else f"{'':9}"
        return (
            f"{self.kind:8} {self.files:5} {self.documents / self.seconds:12.1f} {pages} "
            f"{self.bytes / 1e6 / self.seconds:8.2f}"
        )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.reading", description=__doc__)
    parser.add_argument("paths", nargs="+", help="files and folders of real documents")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each kind")
    options = parser.parse_args(arguments)
    print(f"{'kind':8} {'files':>5} {'documents/s':>12} {'pages/s':>9} {'MB/s':>8}")
    speeds = []
    for kind, files in sorted(_by_kind(options.paths).items()):
        speed = measure(kind, files, options.seconds)
        if speed.documents:
            print(speed.row(), flush=True)
            speeds.append(speed)
    print(f"goal: {_GOAL_PAGES_PER_S:g} pages/s of PDF")
    print(json.dumps({"machine": describe(), "kinds": [asdict(speed) for speed in speeds]}))


def measure(kind: str, files: Sequence[Path], seconds: float) -> Speed:
    """Read the files of one kind over and over, at least once each after warming up."""
    contents = [(path.name, path.read_bytes()) for path in files[:_MOST_FILES]]
    readable = [(name, data) for name, data in contents if _read(name, data)]
    speed = Speed(kind, len(readable))
    while readable and speed.seconds < seconds:
        for name, data in readable:
            started = time.process_time()
            documents = _read(name, data)
            speed.seconds += time.process_time() - started
            speed.documents += len(documents)
            speed.pages += sum(len(document.pages) for document in documents)
            speed.bytes += len(data)
    return speed


def _by_kind(paths: Iterable[str]) -> dict[str, list[Path]]:
    kinds: dict[str, list[Path]] = {}
    for file in find_files(paths).files:
        kinds.setdefault(file.path.suffix.lower().lstrip("."), []).append(file.path)
    return kinds


def _read(name: str, data: bytes) -> list[ParsedDocument]:
    """The documents in a file; none where it cannot be read."""
    context = Context(name, ReadOptions(ocr=False), begin_ocr=lambda: None)
    try:
        return parse_bytes(data, name, context)
    except DocumentError:
        return []


if __name__ == "__main__":
    main()
