"""Hand-written questions in many languages -> how often the passage that answers comes first.

What is compared. All passages of the case file, in all languages, lie in one knowledge base; each
language asks its own questions. Most languages hold the same sentences of a maintenance manual,
with near-misses among them (two pumps, two buttons, two filters), and questions that inflect what
they ask for, so the rows differ by language and hardly by content. Per language: rank_bm25 over
lower-cased Unicode words, our retrieval with the stemmer of a new knowledge base (English), and
with the stemmer that the file names. A few questions decide a row: one of 24 is 4 points.

    python -m benchmarks.languages
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import regex
from rank_bm25 import BM25Okapi

from edge.assembly import DEFAULT_BUNDLES
from runtime.documents import ParsedDocument
from runtime.knowledge_base import KnowledgeBase
from runtime.retrieval import retrieve
from runtime.windows import WindowTokenizer

_ROOT = Path(__file__).parent.parent
CASES = _ROOT / "tests" / "data" / "languages.txt"
_TOKENIZER = _ROOT / "models" / DEFAULT_BUNDLES["drafter"] / "tokenizer.json"
_BEST = 10
_DEFAULT_STEMMER = "english"
_WORD = regex.compile(r"[\p{L}\p{M}\p{N}]+")
# A question -> the numbers of the best passages, best first.
Search = Callable[[str], list[int]]


@dataclass(frozen=True)
class Question:
    """A question and the number of the passage that answers it."""

    text: str
    passage: int


@dataclass(frozen=True)
class Language:
    """The questions of one language; `stemmer` is None where words are taken as they are."""

    name: str
    stemmer: str | None
    questions: list[Question] = field(default_factory=list)


@dataclass(frozen=True)
class Cases:
    """All passages, of all languages, and each language's questions about them."""

    passages: list[str]
    languages: list[Language]


@dataclass(frozen=True)
class Measured:
    """Shares of the questions whose passage is among the best 1, 3, 10; mean reciprocal rank."""

    language: str
    method: str
    questions: int
    recall_1: float
    recall_3: float
    recall_10: float
    mrr: float
    missed: list[str]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.languages", description=__doc__)
    parser.add_argument("--cases", type=Path, default=CASES, help="the case file")
    parser.add_argument("--missed", action="store_true", help="print what did not come first")
    options = parser.parse_args(arguments)
    cases = read_cases(options.cases)
    results = list(measure(cases))
    print(_table(results))
    for one in results:
        if options.missed and one.method == "named":
            print(f"\n{one.language}:", *one.missed, sep="\n  ")
    print(json.dumps({"results": [asdict(one) for one in results]}, ensure_ascii=False))


def read_cases(path: Path) -> Cases:
    """The format is told in the file's first lines."""
    cases = Cases([], [])
    for line in path.read_text("utf-8").splitlines():
        if line.startswith("== "):
            name, stemmer = line[3:].split(" | ")
            cases.languages.append(Language(name, None if stemmer == "none" else stemmer))
        elif line.startswith("? "):
            question = Question(line[2:], len(cases.passages) - 1)
            cases.languages[-1].questions.append(question)
        elif line and not line.startswith("#"):
            cases.passages.append(line)
    return cases


def measure(cases: Cases) -> Iterator[Measured]:
    """Each language by each method, in the order of the file."""
    baseline = _baseline(cases.passages)
    with tempfile.TemporaryDirectory(prefix="specrag-bench-") as folder:
        for language in cases.languages:
            yield _measure(language, "baseline", baseline)
            for method, stemmer in (("default", _DEFAULT_STEMMER), ("named", language.stemmer)):
                path = Path(folder) / str(stemmer)
                with _knowledge_base(path, cases.passages, stemmer) as kb:
                    yield _measure(language, method, _retrieval(kb))


def _measure(language: Language, method: str, search: Search) -> Measured:
    ranks, missed = [], []
    for question in language.questions:
        found = search(question.text)[:_BEST]
        rank = found.index(question.passage) + 1 if question.passage in found else 0
        ranks.append(rank)
        if rank != 1:
            missed.append(f"{rank or '-'}  {question.text}")
    count = len(ranks)
    return Measured(
        language=language.name,
        method=method,
        questions=count,
        recall_1=sum(rank == 1 for rank in ranks) / count,
        recall_3=sum(0 < rank <= 3 for rank in ranks) / count,
        recall_10=sum(rank > 0 for rank in ranks) / count,
        mrr=sum(1 / rank for rank in ranks if rank) / count,
        missed=missed,
    )


def _baseline(passages: Sequence[str]) -> Search:
    words = [_words(passage) for passage in passages]
    index = BM25Okapi(words, k1=1.2, b=0.75)

    def search(question: str) -> list[int]:
        scores = index.get_scores(_words(question))
        best = np.argsort(-scores, kind="stable")[:_BEST]
        return [int(number) for number in best if scores[number] > 0]

    return search


def _words(text: str) -> list[str]:
    words: list[str] = _WORD.findall(text.lower())
    return words


def _knowledge_base(path: Path, passages: Sequence[str], stemmer: str | None) -> KnowledgeBase:
    """With one document a passage, called by its number; built once a stemmer."""
    tokenizer = WindowTokenizer.from_file(_TOKENIZER)
    if path.exists():
        return KnowledgeBase.open(path, tokenizer=tokenizer)
    kb = KnowledgeBase.open(path, tokenizer=tokenizer, create=True, stemmer=stemmer)
    kb.add_many(
        (ParsedDocument(str(number), "", "text/plain", text), str(number), len(text))
        for number, text in enumerate(passages)
    )
    return kb


def _retrieval(kb: KnowledgeBase) -> Search:
    number_of = {document.id: int(document.source) for document in kb.documents()}

    def search(question: str) -> list[int]:
        found = retrieve(kb, question, k=_BEST)
        return list(dict.fromkeys(number_of[one.window.document_id] for one in found))

    return search


def _table(results: Sequence[Measured]) -> str:
    methods = ("baseline", "default", "named")
    lines = [
        f"{'recall@1 / @3 / @10, MRR':<27}" + "".join(f"{method:>26}" for method in methods),
    ]
    by_key = {(one.language, one.method): one for one in results}
    for language in dict.fromkeys(one.language for one in results):
        row = [by_key[language, method] for method in methods]
        lines.append(
            f"{language:<27}"
            + "".join(
                f"{one.recall_1:>8.0%}{one.recall_3:>6.0%}{one.recall_10:>6.0%}{one.mrr:>6.2f}"
                for one in row
            )
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
