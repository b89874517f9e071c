"""Plain text into a knowledge base: what each stage costs, per megabyte and core.

A text file passes through these stages; each is run here over all files, one after the other, in
one process, and told in processor time, which other processes on the machine disturb little.

    read      bytes -> text -> blocks -> the cleaned document (in the reader's child process)
    pipe      the document out of the child and into the parent
    cut       the document -> passages
    analyse   passages -> terms, with a cache of words that starts empty
    add       all that the knowledge base does with a document: cutting, analysing, and storing in
              the database and the index; `store` is the difference

The sum is read + pipe + add. `MB` is of the files' bytes. Reading and adding run side by side in
two processes when files are added for real, so that a machine with two cores is faster than this.

    python -m benchmarks.ingestion --corpus FOLDER --megabytes 20
"""

from __future__ import annotations

import argparse
import json
import os
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from benchmarks.machine import describe
from runtime.analysis import Analyzer
from runtime.documents import ParsedDocument
from runtime.knowledge_base import KnowledgeBase
from runtime.passages import cut_passages
from runtime.readers import ReadOptions
from runtime.readers.context import Context
from runtime.readers.messages import from_message, to_message
from runtime.readers.reading import parse_bytes
from runtime.sandbox import decode, encode

Result = TypeVar("Result")
_GOAL_MB_PER_S = 3.0
_BYTES = range(3_000, 400_000)  # of a file


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.ingestion", description=__doc__)
    parser.add_argument("--corpus", type=Path, required=True, help="folder with .txt files")
    parser.add_argument("--megabytes", type=float, default=20.0)
    parser.add_argument("--stemmer")
    options = parser.parse_args(arguments)
    files = _files(options.corpus, options.megabytes)
    megabytes = sum(map(len, files.values())) / 1e6
    seconds = _stages(files, options.stemmer)
    _print(seconds, megabytes, len(files))
    rates = {stage: round(megabytes / spent, 2) for stage, spent in seconds.items()}
    costs = {stage: round(1_000 * spent / megabytes, 1) for stage, spent in seconds.items()}
    print(
        json.dumps(
            {
                "machine": describe(),
                "files": len(files),
                "megabytes": megabytes,
                "milliseconds_per_megabyte": costs,
                "megabytes_per_second_and_core": rates,
            }
        )
    )


def _files(folder: Path, megabytes: float) -> dict[str, bytes]:
    """Texts under `folder`, the same every time, up to this size."""
    paths = sorted(path for path in folder.rglob("*.txt") if path.is_file())
    random.Random(5).shuffle(paths)
    found: dict[str, bytes] = {}
    left = megabytes * 1e6
    for path in paths:
        if left <= 0:
            break
        if os.stat(path).st_size in _BYTES:
            found[str(path)] = path.read_bytes()
            left -= len(found[str(path)])
    if not found:
        raise SystemExit(f"no text files in {folder}")
    return found


def _stages(files: dict[str, bytes], stemmer: str | None) -> dict[str, float]:
    """Stage -> seconds of processor time."""
    seconds: dict[str, float] = {}

    def stage(name: str, work: Callable[[], Result]) -> Result:
        begin = time.process_time()
        result = work()
        seconds[name] = time.process_time() - begin
        return result

    documents = stage("read", lambda: [one for item in files.items() for one in _read(*item)])
    stage("pipe", lambda: [_through_the_pipe(one) for one in documents])
    passages = stage("cut", lambda: [cut_passages(one) for one in documents])
    texts = [
        span.of(one.text) for one, spans in zip(documents, passages, strict=True) for span in spans
    ]
    analyzer = Analyzer(stemmer)
    stage("analyse", lambda: [analyzer.terms(text) for text in texts])
    with (
        tempfile.TemporaryDirectory(prefix="specrag-bench-") as folder,
        KnowledgeBase.open(Path(folder) / "kb", create=True, stemmer=stemmer) as kb,
    ):
        stage("add", lambda: kb.add_many((one, "", len(one.text)) for one in documents))
    seconds["store"] = seconds["add"] - seconds["cut"] - seconds["analyse"]
    seconds["all"] = seconds["read"] + seconds["pipe"] + seconds["add"]
    return seconds


def _read(name: str, data: bytes) -> list[ParsedDocument]:
    return parse_bytes(data, name, Context(name, ReadOptions(), begin_ocr=lambda: None))


def _through_the_pipe(document: ParsedDocument) -> ParsedDocument:
    """What child and parent do with the document."""
    return from_message(decode(encode(to_message([document]))))[0]


def _print(seconds: dict[str, float], megabytes: float, files: int) -> None:
    print(f"{files} files, {megabytes:.1f} MB")
    print(f"{'stage':>8} {'ms/MB':>8} {'MB/s per core':>14}")
    for name in ("read", "pipe", "cut", "analyse", "store", "add", "all"):
        spent = seconds[name]
        print(f"{name:>8} {1_000 * spent / megabytes:>8.1f} {megabytes / spent:>14.2f}")
    print(f"goal: {_GOAL_MB_PER_S:g} MB/s per core")


if __name__ == "__main__":
    main()
