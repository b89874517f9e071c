"""Mutated real files -> every reader, looking for a crash, a hang or a broken invariant.

    python -m tests.fuzz_readers --inputs 2000          # so many more of each kind, minutes
    python -m tests.fuzz_readers --inputs 500 --kind pdf

Each input must end, within its time and memory, in documents that keep the invariants or in a
`DocumentError`. The readers run as they do in the child process of `read_file`, one input after
the other, until one of them kills it; then the next process goes on. Time is processor time, so
that a busy machine makes no findings. Input `n` of a kind is always the same damage to the same
files, and tests/data/fuzz_record.json remembers how many there were: runs add up, and
docs/formats.md shows what they found. Inputs with a finding are kept in build/fuzz/.

Not covered here: the way through the pipe, which tests/test_sandbox.py and the tests of the readers
take.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path

from runtime.errors import DocumentError
from runtime.readers import ReadOptions
from runtime.readers.context import Context
from runtime.readers.reading import parse_bytes
from runtime.readers.worker import limit_memory
from tests.mutations import mutate
from tests.reader_files import (
    all_formats,
    check_places,
    picture,
    plain_pdf,
    scan_pdf,
    two_column_pdf,
)

OPTIONS = ReadOptions(memory_bytes=512 << 20)
SECONDS = 10.0  # of processor time for one input; six times that with OCR
KEPT = Path("build/fuzz")
RECORD = Path(__file__).parent / "data" / "fuzz_record.json"
PAGE = Path(__file__).parent.parent / "docs" / "formats.md"  # which shows the record as a table
_HARD_LIMIT = 4 << 30  # bytes of address space, for what damages the files
_EXAMPLES = Path(__file__).parent.parent / "examples" / "pumping-station"
_LINES = ["Valve V-60", "68 N m"]
_PICTURES = {"png": "PNG", "jpg": "JPEG", "tif": "TIFF", "bmp": "BMP", "webp": "WEBP"}
WITH_OCR = (*_PICTURES, "scan.pdf")  # an OCR for each input that can be decoded: costly
# Those with most code of our own first.
KINDS = (
    "pdf", "html", "docx", "md", "txt", "pptx", "eml", "xlsx", "epub", "csv", "rtf", "zip",
    *WITH_OCR,
)  # fmt: skip


@dataclass
class Report:
    """What became of the inputs of one kind.

    Attributes:
        outcomes: how reading them ended: "read", or what the error says of it.
        crashes: processes that died; `hangs`, over their time; `memory`, stopped by their limit.
        broken: invariants broken, and errors that are no `DocumentError`.
        slowest: seconds of processor time; `largest`: MiB resident of the largest process.
        findings: each crash, hang and broken invariant, in words.
    """

    inputs: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    crashes: int = 0
    hangs: int = 0
    memory: int = 0
    broken: int = 0
    slowest: float = 0.0
    largest: int = 0
    findings: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        """Another stretch of the same kind."""
        self.outcomes += other.outcomes
        for name in ("inputs", "crashes", "hangs", "memory", "broken", "findings"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.slowest = max(self.slowest, other.slowest)
        self.largest = max(self.largest, other.largest)


@cache
def made_files(kind: str) -> list[tuple[str, bytes]]:
    """Small files of one kind, by name, made by the usual libraries."""
    if kind in _PICTURES:
        shapes = ((256, 96), (96, 256))
        return [(f"a.{kind}", picture(_LINES, _PICTURES[kind], shape, 24)) for shape in shapes]
    if kind == "scan.pdf":
        return [("scan.pdf", scan_pdf([_LINES], (256, 96), 24))]
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
    return name, mutate(data, name, [other for _, other in made_files(kind)], rng)


def fuzz(kind: str, first: int, inputs: int) -> Report:
    """Read inputs `first` to `first + inputs` of a kind, in as many processes as it takes."""
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


def _read_all(kind: str, first: int, inputs: int, report_to: Connection) -> None:
    """The process: read one input after the other, and tell of each before the next."""
    with_ocr = kind in WITH_OCR
    limit = OPTIONS.ocr_memory_bytes if with_ocr else OPTIONS.memory_bytes
    report = Report()
    for number in range(first, first + inputs):
        name, data = mutated(kind, number)
        limit_memory(limit)
        signal.setitimer(signal.ITIMER_PROF, SECONDS * (6 if with_ocr else 1))
        started = time.process_time()
        outcome, finding = _outcome(name, data)
        report.slowest = max(report.slowest, time.process_time() - started)
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, (_HARD_LIMIT, resource.RLIM_INFINITY))
        report.inputs += 1
        report.outcomes[outcome] += 1
        report.largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
        if finding:
            report.broken += 1
            _note(report, kind, number, finding)
        report.memory += outcome == "too much memory"
        report_to.send(report)
        if outcome == "too much memory":
            return  # as the real process does, whose memory may be in pieces


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


def reports(inputs: int, kinds: Sequence[str] = KINDS) -> Iterator[tuple[str, Report]]:
    """Fuzz each kind in turn, from where the last run ended."""
    for kind in kinds:
        first = int(read_record().get(kind, {}).get("inputs", 0))
        yield kind, fuzz(kind, first, inputs)


def read_record() -> dict[str, dict[str, float]]:
    """What all runs found so far, by kind."""
    found: dict[str, dict[str, float]] = json.loads(RECORD.read_text("utf-8"))
    return found


def remember(kind: str, report: Report) -> None:
    """Add a run to the record, and to the table that shows it."""
    record, shown = read_record(), table()
    told = {**asdict(report), "read": report.outcomes["read"]}
    before = record.get(kind, {})
    summed = ("inputs", "read", "crashes", "hangs", "memory", "broken")
    entry = {name: before.get(name, 0) + told[name] for name in summed}
    entry["slowest"] = round(max(before.get("slowest", 0.0), report.slowest), 1)
    entry["largest"] = max(before.get("largest", 0), report.largest)
    record[kind] = entry
    ordered = {name: record[name] for name in KINDS if name in record}
    RECORD.write_text(json.dumps(ordered, indent=1) + "\n", "utf-8")
    PAGE.write_text(PAGE.read_text("utf-8").replace(shown, table()), "utf-8")


def table() -> str:
    """The record as a table."""
    lines = [
        "| kind | inputs | read | crashes | hangs | memory | broken | slowest | largest |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for kind, entry in read_record().items():
        counts = [f"{entry[name]:,}" for name in ("inputs", "read", "crashes", "hangs", "memory")]
        counts += [f"{entry['broken']:,}", f"{entry['slowest']} s", f"{entry['largest']} MiB"]
        lines.append(f"| {kind} | {' | '.join(counts)} |")
    return "\n".join(lines)


def main() -> int:
    """Print what became of each kind's inputs; exit code 1 where there is a finding."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=2000, help="inputs of each kind to add")
    parser.add_argument("--kind", action="append", choices=KINDS, help="only this kind")
    arguments = parser.parse_args()
    findings: list[str] = []
    for kind, report in reports(arguments.inputs, arguments.kind or KINDS):
        counts = ", ".join(f"{what} {count}" for what, count in report.outcomes.most_common())
        print(f"{kind:9} slowest {report.slowest:5.1f} s, {report.largest} MiB, {counts}")
        print("".join(f"  {finding}\n" for finding in report.findings), end="", flush=True)
        remember(kind, report)
        findings += report.findings
    print(f"{len(findings)} findings; the inputs are in {KEPT}/" if findings else "no finding")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
