"""Mutated real files -> every reader, looking for a crash, a hang or a broken invariant.

    python -m tests.fuzz_readers --inputs 20000            # each format, hours
    python -m tests.fuzz_readers --inputs 500 --format pdf --seed 7

Each input must end, within its time, in documents that keep the invariants or in a `DocumentError`.
A child that dies is contained and so no failure, but it is counted and its input kept, because it
is the library's bug to report. Inputs that fail are kept in build/fuzz/.
"""

from __future__ import annotations

import argparse
import io
import random
import resource
import sys
import tempfile
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from runtime.errors import DocumentError
from runtime.readers import ReadOptions, read_file, stop_readers
from tests.reader_files import all_formats, check_places, two_column_pdf

OPTIONS = ReadOptions(seconds=10.0, memory_bytes=512 << 20, output_bytes=64 << 20, ocr=False)
GRACE = 10.0  # seconds over the limit that killing a child may take on a loaded machine
KEPT = Path("build/fuzz")
_PACKED = (".docx", ".pptx", ".xlsx", ".epub", ".zip")
_TOKENS = (
    b"\x00", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"-1", b"999999999", b"1e999",
    b"<", b">", b"&#xD800;", b"]]>", b"<!--", b"{\\", b"\\u-1?", b"}" * 9, b"{" * 9, b"endobj",
    b"/Kids", b"/Parent 1 0 R", b"stream\r\n", b"\r\n\r\n", b"=?utf-8?b?", b"--", b"|", b'"', b";",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\x8d", b"\xef\xbb\xbf",
)  # fmt: skip


@dataclass
class Report:
    """What became of one format's inputs."""

    outcomes: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0  # seconds


def mutate(data: bytes, name: str, rng: random.Random) -> bytes:
    """A damaged copy. Packed formats are damaged inside as well, where no checksum stops it."""
    if name.endswith(_PACKED) and rng.random() < 0.75:
        return _mutate_member(data, rng)
    return _mutate_bytes(data, rng)


def _mutate_member(data: bytes, rng: random.Random) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        names = old.namelist()
        chosen = set(rng.sample(names, k=min(len(names), rng.choice((1, 1, 1, 2, 4)))))
        for name in names:
            content = old.read(name)
            if name in chosen:
                if rng.random() < 0.05:
                    continue
                content = _mutate_bytes(content, rng)
            new.writestr(name, content)
    return buffer.getvalue()


def _mutate_bytes(data: bytes, rng: random.Random) -> bytes:
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        rng.choice(_MUTATIONS)(damaged, rng)
    return bytes(damaged)


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    data[start:end] = rng.randbytes(end - start)


def _delete(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    del data[start:end]


def _repeat(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    data[end:end] = data[start:end] * rng.choice((1, 2, 50))


def _move(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    piece = bytes(data[start:end])
    del data[start:end]
    place = rng.randrange(len(data) + 1)
    data[place:place] = piece


def _insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice(_TOKENS) * rng.choice((1, 1, 1, 1000))


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _number(data: bytearray, rng: random.Random) -> None:
    """Another number in place of one in the text: lengths, counts, offsets."""
    digits = [index for index, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if digits:
        place = rng.choice(digits)
        data[place : place + 1] = rng.choice((b"0", b"-1", b"65536", b"4294967296", b"9" * 19))


_MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _overwrite,
    _delete,
    _repeat,
    _move,
    _insert,
    _truncate,
    _number,
    _number,
)


def _slice(data: bytearray, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 16, 64, 256, 1024)))


def fuzz(name: str, data: bytes, inputs: int, seed: int, folder: Path) -> Report:
    """Read `inputs` mutations of one file, one after the other."""
    report = Report()
    rng = random.Random(f"{seed} {name}")
    for number in range(inputs):
        damaged = mutate(data, name, rng)
        path = folder / f"{number % 2}{name}"
        path.write_bytes(damaged)
        start = time.monotonic()
        outcome, failure = _outcome(path)
        elapsed = time.monotonic() - start
        report.slowest = max(report.slowest, elapsed)
        report.outcomes[outcome] += 1
        if elapsed > OPTIONS.seconds + GRACE:
            failure = f"took {elapsed:.0f} s"
        if failure:
            report.failures.append(f"{name} input {number} seed {seed}: {failure}")
        if failure or outcome in ("died", "too long"):
            KEPT.mkdir(parents=True, exist_ok=True)
            (KEPT / f"{seed}-{number}-{name}").write_bytes(damaged)
    return report


def _outcome(path: Path) -> tuple[str, str]:
    """How reading ended, and what is wrong about that, if anything."""
    try:
        for document in read_file(path, OPTIONS).documents:
            check_places(document)
    except DocumentError as error:
        if "died" in error.what:
            return "died", ""
        return ("too long" if "was stopped" in error.what else type(error).__name__), ""
    except Exception as error:  # what must never reach a caller
        return "failed", f"{type(error).__name__}: {error}"
    return "read", ""


def reports(inputs: int, seed: int, only: str | None = None) -> Iterator[tuple[str, Report]]:
    """Fuzz each format in turn."""
    formats = {**all_formats(), "columns.pdf": two_column_pdf()}
    with tempfile.TemporaryDirectory() as folder:
        for name, data in formats.items():
            if only is None or name.endswith(f".{only}"):
                yield name, fuzz(name, data, inputs, seed, Path(folder))


def main() -> int:
    """Print a table, then the failures; exit code 1 where there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=20_000, help="mutated files of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--format", help="only this ending, such as pdf")
    arguments = parser.parse_args()
    failures: list[str] = []
    for name, report in reports(arguments.inputs, arguments.seed, arguments.format):
        counts = ", ".join(f"{what} {count}" for what, count in report.outcomes.most_common())
        print(f"{name:12} slowest {report.slowest:5.1f} s  {counts}", flush=True)
        failures += report.failures
    stop_readers()
    largest = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
    here = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    print(f"largest child {largest} MiB resident, this process {here} MiB")
    print("\n".join(failures) or "no failure")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
