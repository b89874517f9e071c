"""Search at size: ours against rank_bm25 and bm25s, on the same passages and the same queries.

What is compared. All engines hold the same passages, analysed into the same terms, with BM25 at
k1 = 1.2, b = 0.75, and answer the same queries with their best ten. rank_bm25 is the oracle
(epsilon 0, so that words in most passages weigh nothing; its idf ln(x) instead of ln(1 + x) is the
one difference of formula); it takes seconds a query at a million windows, so it is asked only the
first of them. Each engine runs in a process of its own, which reports its resident memory before
and after loading.

The corpus. Paragraphs of the HTML and text files under `--corpus`, without repetitions; Debian's
documentation packages, unpacked, are a good one. Beyond their number, copies follow in which one
word in five is replaced by another of the corpus (drawn as often as it occurs there) and all
digits change, so that no two passages are equal and the vocabulary grows with the corpus as codes
and numbers do. Queries are five words of a passage beside each other, and three question words.
Windows are derived, so their number is told from those of every twentieth document.

With `--work`, what is there is used again: a knowledge base that was built, and each engine's
answers. `--only specrag` asks that engine anew and no other.

    python -m benchmarks.retrieval --corpus /usr/share/doc --tokenizer FILE --windows 10000 100000
    python -m benchmarks.retrieval --work DIR --tokenizer FILE --windows 1000000 --only specrag
"""

from __future__ import annotations

import argparse
import html
import json
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe
from runtime.documents import ParsedDocument
from runtime.knowledge_base import KnowledgeBase
from runtime.passages import cut_passages
from runtime.retrieval import retrieve
from runtime.windows import WindowTokenizer, cut_windows

_K1, _B, _BEST = 1.2, 0.75, 10
_PARAGRAPHS_A_DOCUMENT = 50
_COUNTED = 20  # the windows of one document in so many are counted
_ENGINES = ("specrag", "bm25s", "rank_bm25")
_BLOCK = re.compile(r"(?is)<(?:p|li|dd|td|pre)\b[^>]*>(.*?)</(?:p|li|dd|td|pre)>")
_TAG = re.compile(r"(?s)<[^>]*>")
_WORD = re.compile(r"[A-Za-z]{4,}")
_DIGIT = re.compile(r"\d")


@dataclass(frozen=True)
class Measured:
    """One engine at one size. Times of queries in ms; memory in MB, the process as a whole."""

    engine: str
    windows: int
    passages: int
    build_s: float
    disk_mb: float
    resident_mb: float
    before_mb: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    recall: float | None
    details: dict[str, float]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.retrieval", description=__doc__)
    parser.add_argument("--corpus", type=Path, help="folder of HTML and text files, to build from")
    parser.add_argument("--windows", type=int, nargs="+", default=[10_000, 100_000])
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--slow-queries", type=int, default=20, help="the first, for rank_bm25")
    parser.add_argument("--only", nargs="+", choices=_ENGINES, help="measure these anew")
    parser.add_argument(
        "--tokenizer", type=Path, required=True, help="the drafter's tokenizer.json"
    )
    parser.add_argument("--work", type=Path, help="where to build (default: a temporary folder)")
    parser.add_argument("--step", help=argparse.SUPPRESS)  # what a child process does
    options = parser.parse_args(arguments)
    if options.step:
        print(json.dumps(_STEPS[options.step](options)))
        return
    with tempfile.TemporaryDirectory(prefix="specrag-bench-") as temporary:
        results = [
            measured
            for windows in options.windows
            for measured in _compare(options, windows, options.work or Path(temporary))
        ]
    _print(results)
    print(json.dumps({"machine": describe(), "results": [asdict(one) for one in results]}))


def _compare(options: argparse.Namespace, windows: int, work: Path) -> list[Measured]:
    folder = work / f"kb-{windows}"
    if not folder.exists():
        built = _child("build", options, windows, folder)
        _stored(folder, "build").write_text(json.dumps(built), "utf-8")
    asked = options.only or [one for one in _ENGINES if not _stored(folder, one).exists()]
    for engine in asked:
        answers = _child(engine, options, windows, folder)
        _stored(folder, engine).write_text(json.dumps(answers), "utf-8")
    found: dict[str, dict[str, Any]] = {
        name: json.loads(_stored(folder, name).read_text("utf-8"))
        for name in _ENGINES
        if _stored(folder, name).exists()
    }
    built = json.loads(_stored(folder, "build").read_text("utf-8"))
    best = {name: one["best"] for name, one in found.items()}
    if "specrag" in found:
        ours = found["specrag"]
        ours["build_s"] = built["build_s"]
        ours["details"] |= built["details"]
        if "bm25s" in best:
            ours["details"]["top_10_of_bm25s"] = _share(best["specrag"], best["bm25s"])
    oracle = best.get("rank_bm25")
    return [_measured(name, one, round(built["windows"]), oracle) for name, one in found.items()]


def _stored(folder: Path, name: str) -> Path:
    """Where the result of a step is kept, beside the knowledge base."""
    return folder.with_name(f"{folder.name}-{name}.json")


def _measured(
    engine: str, one: dict[str, Any], windows: int, oracle: list[list[int]] | None
) -> Measured:
    times = np.percentile(one["times_ms"], [50, 95, 99])
    return Measured(
        engine=engine,
        windows=windows,
        passages=one["passages"],
        build_s=round(one["build_s"], 1),
        disk_mb=round(one["disk_mb"], 1),
        resident_mb=round(one["resident_mb"]),
        before_mb=round(one["before_mb"]),
        p50_ms=round(times[0], 2),
        p95_ms=round(times[1], 2),
        p99_ms=round(times[2], 2),
        recall=None if oracle is None else round(_share(one["best"], oracle), 4),
        details={name: round(value, 3) for name, value in one.get("details", {}).items()},
    )


def _share(best: list[list[int]], oracle: list[list[int]]) -> float:
    """Which share of the oracle's best are among ours, over the queries that it was asked."""
    shared = sum(len(set(a) & set(b)) for a, b in zip(best, oracle, strict=False))
    return shared / sum(map(len, oracle))


def _child(step: str, options: argparse.Namespace, windows: int, folder: Path) -> dict[str, Any]:
    command = [
        *(sys.executable, "-m", "benchmarks.retrieval", "--step", step),
        *("--windows", str(windows), "--work", str(folder)),
        *("--queries", str(options.queries), "--slow-queries", str(options.slow_queries)),
        *("--tokenizer", str(options.tokenizer)),
        *(("--corpus", str(options.corpus)) if options.corpus else ()),
    ]
    print(f"{step}, {windows:,} windows ...", file=sys.stderr, flush=True)
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


# Steps, each in a process of its own


def _build(options: argparse.Namespace) -> dict[str, Any]:
    counter = _WindowCounter(options.tokenizer)
    texts = _texts(options.corpus)
    characters = 0
    wall, cpu = 0.0, 0.0
    number = 0
    with KnowledgeBase.open(options.work, create=True) as kb:
        while counter.windows < options.windows[0]:
            group = [_document(number + i, texts) for i in range(100)]
            number += len(group)
            begin, used = time.perf_counter(), time.process_time()
            kb.add_many((one, "", len(one.text)) for one in group)
            wall += time.perf_counter() - begin
            cpu += time.process_time() - used
            characters += sum(len(one.text) for one in group)
            counter.look_at(group)
    return {
        "build_s": wall,
        "windows": counter.windows,
        "details": {
            "mb_per_s": characters / wall / 1e6,
            # What one core would do alone; `mb_per_s` also says how busy the machine was.
            "mb_per_core_s": characters / cpu / 1e6,
            "text_mb": characters / 1e6,
            "build_peak_mb": _peak_mb(),
        },
    }


class _WindowCounter:
    """How many windows the documents have, told from one in `_COUNTED`."""

    def __init__(self, tokenizer: Path) -> None:
        self._tokenizer = WindowTokenizer.from_file(tokenizer)
        self.windows = 0.0

    def look_at(self, group: Sequence[ParsedDocument]) -> None:
        some = group[::_COUNTED]
        texts = [span.of(one.text) for one in some for span in cut_passages(one)]
        tokens = self._tokenizer.encode_batch(texts)
        counted = sum(
            len(cut_windows(text, of_text, self._tokenizer.options))
            for text, of_text in zip(texts, tokens, strict=True)
        )
        self.windows += counted * len(group) / len(some)


def _document(number: int, texts: Iterator[str]) -> ParsedDocument:
    blocks = [next(texts) for _ in range(_PARAGRAPHS_A_DOCUMENT)]
    breaks, place = [], 0
    for block in blocks:
        breaks.append(place)
        place += len(block) + 1
    text = "\n".join(blocks)
    return ParsedDocument(f"{number}", f"Document {number}", "text/plain", text, tuple(breaks))


def _specrag(options: argparse.Namespace) -> dict[str, Any]:
    before = _resident_mb()
    tokenizer = WindowTokenizer.from_file(options.tokenizer)
    begin = time.perf_counter()
    kb = KnowledgeBase.open(options.work, tokenizer=tokenizer)
    opened = time.perf_counter() - begin
    with kb:
        queries = _queries(options)
        for query in queries[:20]:
            kb.search(query, _BEST)
        searched = _time(queries, lambda q: [hit.passage_id for hit in kb.search(q, _BEST)])
        retrieved = _time(queries, lambda q: [one.window.id for one in retrieve(kb, q)])
        statistics, resident = kb.statistics(), _resident_mb()
    with KnowledgeBase.open(options.work, tokenizer=tokenizer, writable=True) as kb:
        begin = time.perf_counter()
        text = "One more document about the relief valve. " * 50
        kb.add(ParsedDocument("new", "new", "text/plain", text), content_sha256="", size=1)
        added = time.perf_counter() - begin
        kb.remove("new")
    return {
        "best": searched.answers,
        "times_ms": searched.wall_ms,
        "passages": statistics.passages,
        "build_s": 0.0,
        "disk_mb": statistics.index_bytes / 1e6,
        "before_mb": before,
        "resident_mb": resident,
        "details": {
            "open_s": opened,
            "add_one_s": added,
            "database_mb": statistics.database_bytes / 1e6,
            # Processor time does not grow while other processes have the core.
            **_spread("search_cpu", searched.cpu_ms),
            **_spread("retrieve", retrieved.wall_ms),
            **_spread("retrieve_cpu", retrieved.cpu_ms),
        },
    }


def _bm25s(options: argparse.Namespace) -> dict[str, Any]:
    import bm25s

    numbers, terms, analyse = _passages(options)
    before = _resident_mb()
    begin = time.perf_counter()
    model = bm25s.BM25(method="lucene", k1=_K1, b=_B)
    model.index(terms, show_progress=False)
    built = time.perf_counter() - begin
    saved = options.work.with_name(f"{options.work.name}-bm25s")
    model.save(saved)
    del terms
    known = model.vocab_dict

    def ask(query: str) -> list[int]:
        wanted = [term for term in dict.fromkeys(analyse(query)) if term in known]
        found, _ = model.retrieve([wanted], k=_BEST, show_progress=False)
        return [numbers[int(i)] for i in found[0]]

    asked = _time(_queries(options), ask)
    return {
        "best": asked.answers,
        "times_ms": asked.wall_ms,
        "passages": len(numbers),
        "build_s": built,
        "disk_mb": sum(file.stat().st_size for file in saved.iterdir()) / 1e6,
        "before_mb": before,
        "resident_mb": _resident_mb(),
    }


def _rank_bm25(options: argparse.Namespace) -> dict[str, Any]:
    from rank_bm25 import BM25Okapi

    numbers, terms, analyse = _passages(options)
    before = _resident_mb()
    begin = time.perf_counter()
    model = BM25Okapi(terms, k1=_K1, b=_B, epsilon=0.0)
    built = time.perf_counter() - begin
    del terms

    def ask(query: str) -> list[int]:
        scores = model.get_scores(list(dict.fromkeys(analyse(query))))
        return [numbers[int(i)] for i in np.argsort(-scores, kind="stable")[:_BEST]]

    asked = _time(_queries(options)[: options.slow_queries], ask)
    return {
        "best": asked.answers,
        "times_ms": asked.wall_ms,
        "passages": len(numbers),
        "build_s": built,
        "disk_mb": 0.0,
        "before_mb": before,
        "resident_mb": _resident_mb(),
    }


_STEPS: dict[str, Callable[[argparse.Namespace], dict[str, Any]]] = {
    "build": _build,
    "specrag": _specrag,
    "bm25s": _bm25s,
    "rank_bm25": _rank_bm25,
}


def _passages(
    options: argparse.Namespace,
) -> tuple[list[int], list[list[str]], Callable[[str], list[str]]]:
    """Numbers and terms of all passages of the knowledge base, and its analysis."""
    numbers: list[int] = []
    terms: list[list[str]] = []
    with KnowledgeBase.open(options.work) as kb:
        for number, of_passage in kb.indexed_terms():
            numbers.append(number)
            terms.append(of_passage)
        return numbers, terms, kb.analyzer.terms


def _queries(options: argparse.Namespace) -> list[str]:
    """Five words beside each other out of a passage, and three question words."""
    choose = random.Random(99)
    queries: list[str] = []
    with KnowledgeBase.open(options.work) as kb:
        documents = kb.documents()
        while len(queries) < options.queries:
            words = kb.text(choose.choice(documents).id).split()
            start = choose.randrange(max(1, len(words) - 5))
            asked = choose.choice(("what is the", "how does a", "when should the", "which of the"))
            queries.append(f"{asked} {' '.join(words[start : start + 5])}?")
    return queries


@dataclass(frozen=True)
class Timed:
    """The answers to some queries; of each, milliseconds and those of processor time."""

    answers: list[list[int]]
    wall_ms: list[float]
    cpu_ms: list[float]


def _time(queries: Sequence[str], ask: Callable[[str], list[int]]) -> Timed:
    answers, wall, cpu = [], [], []
    for query in queries:
        begin, used = time.perf_counter(), time.process_time()
        answers.append(ask(query))
        cpu.append((time.process_time() - used) * 1_000)
        wall.append((time.perf_counter() - begin) * 1_000)
    return Timed(answers, wall, cpu)


def _spread(name: str, milliseconds: Sequence[float]) -> dict[str, float]:
    values = np.percentile(milliseconds, [50, 95, 99])
    return {f"{name}_p{p}_ms": float(v) for p, v in zip((50, 95, 99), values, strict=True)}


# The corpus


def _texts(folder: Path | None) -> Iterator[str]:
    """The paragraphs of the files, then varied copies of them, without end."""
    if folder is None:
        raise SystemExit("name a folder of text to build from with --corpus")
    paragraphs = []
    seen: set[str] = set()
    for paragraph in _paragraphs(folder):
        if paragraph not in seen:
            seen.add(paragraph)
            paragraphs.append(paragraph)
            yield paragraph
    if not paragraphs:
        raise SystemExit(f"no text in {folder}")
    choose = random.Random(1)
    some = choose.sample(paragraphs, min(5_000, len(paragraphs)))
    words = [word for text in some for word in _WORD.findall(text)]
    while True:
        for paragraph in paragraphs:
            varied = _WORD.sub(
                lambda m: choose.choice(words) if choose.random() < 0.2 else m.group(), paragraph
            )
            yield _DIGIT.sub(lambda _: str(choose.randrange(10)), varied)


def _paragraphs(folder: Path) -> Iterator[str]:
    """Paragraphs of 60 to 2,000 characters in English, in the order of the files' names."""
    for file in sorted(path for path in folder.rglob("*") if path.suffix in (".html", ".txt")):
        if not file.is_file():
            continue
        raw = file.read_text("utf-8", "replace")
        blocks = _BLOCK.findall(raw) if file.suffix == ".html" else raw.split("\n\n")
        for block in blocks:
            text = " ".join(html.unescape(_TAG.sub(" ", block)).split())
            if 60 <= len(text) <= 2_000 and len(text.encode()) < 1.02 * len(text):
                yield text


def _resident_mb() -> float:
    status = Path("/proc/self/status").read_text("utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) / 1_000


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1_000


def _print(results: Sequence[Measured]) -> None:
    columns = (
        f"{'windows':>9} {'passages':>8} {'engine':>10} {'build s':>8} {'disk MB':>8} "
        f"{'MB before':>9} {'MB after':>8} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8} {'top-10':>7}"
    )
    print(columns)
    for one in results:
        print(
            f"{one.windows:>9,} {one.passages:>8,} {one.engine:>10} {one.build_s:>8.1f} "
            f"{one.disk_mb:>8.1f} {one.before_mb:>9.0f} {one.resident_mb:>8.0f} "
            f"{one.p50_ms:>8.2f} {one.p95_ms:>8.2f} {one.p99_ms:>8.2f} "
            f"{'not asked' if one.recall is None else format(one.recall, '.3f'):>7}"
        )
        if one.details:
            print("          " + ", ".join(f"{k} {v:g}" for k, v in one.details.items()))


if __name__ == "__main__":
    main()
