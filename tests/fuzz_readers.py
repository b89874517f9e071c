"""Mutated real files -> every reader, looking for a crash, a hang or a broken invariant.

    python -m tests.fuzz_readers --inputs 2000          # so many more of each kind, minutes
    python -m tests.fuzz_readers --inputs 500 --kind pdf
    python -m tests.fuzz_readers --goal 20000           # until the record has so many of each

Each input must end, within its time and memory, in documents that keep the invariants or in a
`DocumentError`. The readers run as they do in the child process of `read_file`, one input after
the other, until one of them kills it; then the next process goes on. Time is processor time, so
that a busy machine makes no findings. A share of the inputs also goes the whole way: a file, the
child process at its limits, its reply.

Pictures all go to the decoder, and a share of those that it decodes through OCR, with a detector
that sees them in their own size: the usual one enlarges each to 736 pixels and takes seconds. The
usual one reads those that go the whole way. The record counts what each input reached.

Input `n` of a kind is the same damage to the same files each time, and tests/data/fuzz_record.json
remembers how many there were: runs add up, stop them at any time; docs/formats.md shows what they
found. Runs of different kinds may go on side by side. Inputs with a finding are kept in
build/fuzz/.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import random
import resource
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from runtime.errors import DocumentError
from runtime.readers import ReadOptions, ocr, read_file
from runtime.readers.context import Context
from runtime.readers.reading import parse_bytes
from runtime.readers.worker import limit_memory
from runtime.sandbox import ChildDied, ChildTimedOut
from tests.mutations import mutate
from tests.picture_mutations import mutate_picture
from tests.reader_files import (
    PICTURES,
    all_formats,
    check_places,
    plain_pdf,
    scan_pdf,
    small_pictures,
    two_column_pdf,
)

OPTIONS = ReadOptions(memory_bytes=512 << 20)
SECONDS = 10.0  # of processor time for one input; six times that with OCR
KEPT = Path("build/fuzz")
RECORD = Path(__file__).parent / "data" / "fuzz_record.json"
PAGE = Path(__file__).parent.parent / "docs" / "formats.md"  # which shows the record as a table
_HARD_LIMIT = 4 << 30  # bytes of address space, for what damages the files
_EXAMPLES = Path(__file__).parent.parent / "examples" / "pumping-station"
WITH_OCR = (*PICTURES, "scan.pdf")
_THROUGH_OCR = 5  # of so many inputs that may need it, one
_WHOLE_WAY = 50  # of so many inputs, one
_WHOLE_WAY_OCR = 5000  # the same where it means OCR at its usual size
_STRETCH = 1000  # inputs after which the record is written
# Those with most code of our own first.
KINDS = (
    "pdf", "html", "docx", "md", "txt", "pptx", "eml", "xlsx", "epub", "csv", "rtf", "zip",
    *WITH_OCR,
)  # fmt: skip


_SUMMED = ("inputs", "crashes", "hangs", "memory", "broken", "decoded", "recognised")


@dataclass
class Report:
    """What became of the inputs of one kind.

    Attributes:
        outcomes: how reading them ended: "read", or what the error says of it.
        crashes: processes that died; `hangs`, over their time; `memory`, stopped by their limit.
        broken: invariants broken, and errors that are no `DocumentError`.
        decoded: pictures of which the decoder made pixels, all pages; `recognised`, those of them
            that also went through OCR.
        slowest: seconds of processor time; `largest`: MiB resident of the largest process.
        findings: each crash, hang and broken invariant, in words.
    """

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    hangs: int = 0
    memory: int = 0
    broken: int = 0
    decoded: int = 0
    recognised: int = 0
    slowest: float = 0.0
    largest: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Another stretch of the same kind."""
        self.outcomes += other.outcomes
        for name in (*_SUMMED, "findings"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)


@cache
def made_files(kind: str) -> list[tuple[str, bytes]]:
    """Small files of one kind, by name, made by the usual libraries."""
    if kind in PICTURES:
        return [(f"{number}.{kind}", data) for number, data in enumerate(small_pictures(kind))]
    if kind == "scan.pdf":
        page = (96 * 72 / 200, 40 * 72 / 200)  # points, at which OCR gets the picture as it is
        return [("scan.pdf", scan_pdf([["V-60"]], (96, 40), 24, page))]
    found = [(name, data) for name, data in all_formats().items() if name.endswith(f".{kind}")]
    if kind == "pdf":
        found += [("columns.pdf", two_column_pdf()), ("plain.pdf", plain_pdf())]
    return found


@cache
def example_files(kind: str) -> list[tuple[str, bytes]]:
    """Files of one kind that the example manual consists of, or else the small ones."""
    paths = sorted(_EXAMPLES.glob(f"*.{kind}"))
    return [(path.name, path.read_bytes()) for path in paths] or made_files(kind)


def mutated(kind: str, number: int) -> tuple[str, bytes]:
    """Input `number` of a kind, and the name of the file that was damaged."""
    rng = random.Random(f"{kind} {number}")
    chosen = made_files(kind) if rng.random() < 0.9 else example_files(kind)
    name, data = rng.choice(chosen)
    if kind in PICTURES:
        return name, mutate_picture(data, kind, rng)
    return name, mutate(data, name, [other for _, other in made_files(kind)], rng)


def fuzz(kind: str, first: int, inputs: int) -> Report:
    """Read inputs `first` to `first + inputs` of a kind, in as many processes as it takes."""
    report = _fuzz_readers(kind, first, inputs)
    every = _WHOLE_WAY_OCR if kind in WITH_OCR else _WHOLE_WAY
    for number in range(first, first + inputs):
        if number % every == 0:
            report.add(_whole_way(kind, number))
    return report


def _fuzz_readers(kind: str, first: int, inputs: int) -> Report:
    report = Report()
    context = get_context("spawn")
    while report.inputs < inputs:
        number = first + report.inputs
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(
            target=_read_all, args=(kind, number, inputs - report.inputs, theirs)
        )
        child.start()
        theirs.close()
        stretch = Report()
        try:
            while True:
                stretch = ours.recv()
        except EOFError:
            child.join()
        report.add(stretch)
        if child.exitcode:
            report.add(_death(child.exitcode, kind, number + stretch.inputs))
    return report


def _death(code: int, kind: str, number: int) -> Report:
    """The report of an input that ended its process."""
    hang = -code == signal.SIGPROF
    report = Report(inputs=1, crashes=int(not hang), hangs=int(hang))
    report.outcomes["too long" if hang else "died"] += 1
    _note(report, kind, number, "took too long" if hang else f"the process died ({code})")
    return report


def _note(report: Report, kind: str, number: int, finding: str) -> None:
    name, data = mutated(kind, number)
    report.findings.append(f"{number}-{name}: {finding}")
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / f"{number}-{name}").write_bytes(data)


def _whole_way(kind: str, number: int) -> Report:
    """What an input did to the child process of `read_file`; it is counted elsewhere."""
    name, data = mutated(kind, number)
    report = Report()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            for document in read_file(path, OPTIONS).documents:
                check_places(document)
        except DocumentError as error:
            report.crashes = int(isinstance(error.__cause__, ChildDied))
            report.hangs = int(isinstance(error.__cause__, ChildTimedOut))
            if report.crashes or report.hangs:
                _note(report, kind, number, error.what)
        except Exception as error:  # what `read_file` must not raise
            report.broken = 1
            _note(report, kind, number, f"{type(error).__name__}: {error}")
    return report


def _read_all(kind: str, first: int, inputs: int, report_to: Connection) -> None:
    """The process: read one input after the other, and tell of each before the next."""
    with_ocr = kind in WITH_OCR
    limit = OPTIONS.ocr_memory_bytes if with_ocr else OPTIONS.memory_bytes
    report = Report()
    reached = _Reached()
    if with_ocr:
        ocr.read_picture = reached.read_picture
        ocr._engine = quick_ocr
    for number in range(first, first + inputs):
        name, data = mutated(kind, number)
        reached.begin(through_ocr=kind not in PICTURES or number % _THROUGH_OCR == 0)
        limit_memory(limit)
        signal.setitimer(signal.ITIMER_PROF, SECONDS * (6 if with_ocr else 1))
        started = time.process_time()
        outcome, finding = _outcome(name, data)
        report.slowest = max(report.slowest, time.process_time() - started)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_HARD_LIMIT, resource.RLIM_INFINITY))
        report.inputs += 1
        if reached.pictures and outcome in ("read", "EmptyDocument"):
            report.decoded += 1
            report.recognised += reached.through_ocr
            outcome = outcome if reached.through_ocr else "decoded"
        report.outcomes[outcome] += 1
        report.largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        if finding:
            report.broken += 1
            _note(report, kind, number, finding)
        report.memory += outcome == "too much memory"
        report_to.send(report)
        if outcome == "too much memory":
            return  # as the real process does, whose memory may be in pieces


class _Reached:
    """Stands before OCR: counts the pictures that come, and lets them through or not."""

    def __init__(self) -> None:
        self._read = ocr.read_picture
        self.begin(through_ocr=False)

    def begin(self, *, through_ocr: bool) -> None:
        """The next input."""
        self.through_ocr = through_ocr
        self.pictures = 0

    def read_picture(self, picture: Any, *, points_per_pixel: float) -> list[Any]:
        self.pictures += 1
        return self._read(picture, points_per_pixel=points_per_pixel) if self.through_ocr else []


@cache
def quick_ocr() -> Any:
    """The OCR of the readers, but for the size at which its detector looks at small pictures."""
    from rapidocr import RapidOCR

    small = {"Det.limit_side_len": 96, "EngineConfig.onnxruntime.intra_op_num_threads": 1}
    return RapidOCR(params={"Global.log_level": "error", **small})


def _outcome(name: str, data: bytes) -> tuple[str, str]:
    """How reading ended, and what is wrong about that, if anything."""
    try:
        for document in parse_bytes(data, name, Context(name, OPTIONS, begin_ocr=lambda: None)):
            check_places(document)
    except MemoryError:
        return "too much memory", ""
    except DocumentError as error:
        unforeseen = "It is damaged (" in error.what
        return (error.what if unforeseen else type(error).__name__), ""
    except Exception as error:  # what would end the child process of `read_file`
        return "broken", f"{type(error).__name__}: {error}"
    return "read", ""


def reports(
    inputs: int, kinds: Sequence[str] = KINDS, goal: int | None = None
) -> Iterator[tuple[str, Report]]:
    """Fuzz each kind in turn, from where the last run ended, a stretch at a time.

    Args:
        inputs: of each kind; with a `goal`, as many as the record lacks to it instead.
    """
    for kind in kinds:
        first = int(read_record().get(kind, {}).get("inputs", 0))
        end = first + inputs if goal is None else goal
        for start in range(first, end, _STRETCH):
            yield kind, fuzz(kind, start, min(_STRETCH, end - start))


def read_record() -> dict[str, dict[str, float]]:
    """What all runs found so far, by kind."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text("utf-8"))
    return found


def remember(kind: str, report: Report) -> None:
    """Add a run to the record, and to the tables that show it."""
    with RECORD.open("rb") as lock:  # another run may want to write as well
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remember(kind, report)


def _remember(kind: str, report: Report) -> None:
    record, shown = read_record(), tables()
    told = {**asdict(report), "read": report.outcomes["read"]}
    before = record.get(kind, {})
    summed = ["inputs", "read", "crashes", "hangs", "memory", "broken"]
    if kind in WITH_OCR:
        summed += ["decoded", "recognised"]
    entry = {name: before.get(name, 0) + told[name] for name in summed}
    entry["slowest"] = round(max(before.get("slowest", 0.0), report.slowest), 1)
    entry["largest"] = max(before.get("largest", 0), report.largest)
    record[kind] = entry
    ordered = {name: record[name] for name in KINDS if name in record}
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")
    PAGE.write_text(_replaced(PAGE.read_text("utf-8"), shown, tables()), "utf-8")


def _replaced(page: str, shown: tuple[str, str], new: tuple[str, str]) -> str:
    for before, after in zip(shown, new, strict=True):
        page = page.replace(before, after)
    return page


def tables() -> tuple[str, str]:
    """The record as two tables: all kinds, and how far pictures came."""
    kinds = ["inputs", "read", "crashes", "hangs", "memory", "broken", "slowest", "largest"]
    pictures = ["inputs", "decoded", "recognised", "read"]
    record = read_record()
    return (
        _table(kinds, record),
        _table(pictures, {kind: record[kind] for kind in WITH_OCR if kind in record}),
    )


def _table(columns: Sequence[str], record: dict[str, dict[str, float]]) -> str:
    units = {"slowest": " s", "largest": " MiB"}
    lines = [f"| kind | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for kind, entry in record.items():
        cells = [f"{entry[name]:,}{units.get(name, '')}" for name in columns]
        lines.append(f"| {kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> int:
    """Print what became of each kind's inputs; exit code 1 where there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000, help="inputs of each kind to add")
    parser.add_argument("--goal", type=int, help="add what the record lacks to so many instead")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind")
    arguments = parser.parse_args()
    findings: list[str] = []
    for kind, report in reports(arguments.inputs, arguments.kind or KINDS, arguments.goal):
        counts = ", ".join(f"{what} {count}" for what, count in report.outcomes.most_common())
        print(f"{kind:9} slowest {report.slowest:5.1f} s, {report.largest} MiB, {counts}")
        print("".join(f"  {finding}\n" for finding in report.findings), end="", flush=True)
        remember(kind, report)
        findings += report.findings
    print(f"{len(findings)} findings; the inputs are in {KEPT}/" if findings else "no finding")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
