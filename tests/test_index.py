"""The index against rank_bm25, the reference for what BM25 means here; and its commits."""

from __future__ import annotations

import json
import math
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from rank_bm25 import BM25Okapi

from runtime.analysis import Analyzer
from runtime.errors import KnowledgeBaseDamaged
from runtime.index import MOST_TERMS, PassageIndex

ANALYZER = Analyzer()


def _index(path: Path, texts: list[str]) -> PassageIndex:
    index = PassageIndex.create(path)
    index.apply((), ((i, ANALYZER.spaced_terms(text)) for i, text in enumerate(texts, 1)), 1)
    return index


def _texts(count: int) -> list[str]:
    """Texts of uneven length over words as uneven in frequency as words are (Zipf)."""
    generator = np.random.default_rng(5)
    return [
        " ".join(f"w{word}" for word in generator.zipf(1.3, generator.integers(5, 120)) % 900)
        for _ in range(count)
    ]


def _oracle(texts: list[str]) -> BM25Okapi:
    """rank_bm25 with the index's parameters; words in most passages weigh next to nothing."""
    return BM25Okapi([ANALYZER.terms(text) for text in texts], k1=1.2, b=0.75, epsilon=0.0)


def test_scores_are_those_of_the_reference(tmp_path: Path) -> None:
    """Equal but for two known differences: the index's idf is ln(1 + x) where the reference's is
    ln(x), and it rounds passage lengths to a scale with steps of at most an eighth."""
    texts = _texts(400)
    index, oracle = _index(tmp_path / "i", texts), _oracle(texts)
    for term in oracle.idf:
        n = index.document_frequency(term)
        # One more passage than there are: the document that holds the sequence.
        oracle.idf[term] = math.log1p((len(texts) + 1 - n + 0.5) / (n + 0.5))
    for question in ("w1 w7 w30", "w2", "w11 w12 w13 w14 w500", "w899 w1"):
        terms = list(dict.fromkeys(ANALYZER.terms(question)))  # the index counts them once
        expected = oracle.get_scores(terms)
        hits = index.search(terms, len(texts))
        assert {hit.passage_id for hit in hits} == set(np.flatnonzero(expected) + 1)
        for hit in hits:
            assert hit.score == pytest.approx(expected[hit.passage_id - 1], rel=0.07)


def test_the_best_ten_are_those_of_the_reference(tmp_path: Path) -> None:
    texts = _texts(3_000)
    index, oracle = _index(tmp_path / "i", texts), _oracle(texts)
    choose = random.Random(3)
    shared = 0
    for _ in range(100):
        terms = [f"w{choose.randrange(5, 900)}" for _ in range(5)]
        expected = np.argsort(-oracle.get_scores(terms), kind="stable")[:10] + 1
        shared += len({hit.passage_id for hit in index.search(terms, 10)} & set(expected.tolist()))
    assert shared / 1_000 >= 0.93


def test_the_best_passages_are_found_in_real_text(tmp_path: Path, shared: Path) -> None:
    articles = json.loads((shared / "data" / "new_wiki_v1.0.json").read_text())["data"][:12]
    paragraphs = [paragraph for article in articles for paragraph in article["paragraphs"]]
    texts = [paragraph["context"] for paragraph in paragraphs]
    index, oracle = _index(tmp_path / "i", texts), _oracle(texts)
    found = total = 0
    for paragraph in paragraphs[::4]:
        for question in paragraph["qas"][:2]:
            terms = list(dict.fromkeys(ANALYZER.terms(question["question"])))
            expected = np.argsort(-oracle.get_scores(terms), kind="stable")[:10] + 1
            hits = {hit.passage_id for hit in index.search(terms, 10)}
            found += len(hits & set(expected.tolist()))
            total += 10
    assert total > 500
    assert found / total >= 0.9


def test_equal_scores_come_in_order_of_number(tmp_path: Path) -> None:
    index = _index(tmp_path / "i", ["the same words"] * 30)
    assert [hit.passage_id for hit in index.search(["words"], 30)] == list(range(1, 31))


def test_words_that_occur_nowhere_find_nothing(tmp_path: Path) -> None:
    index = _index(tmp_path / "i", ["a pump"])
    assert index.search(["valve"], 10) == []
    assert index.search([], 10) == []
    assert index.search(["pump"], 0) == []


@pytest.mark.parametrize(
    "question",
    ['"pump', "pump:", "AND OR NOT", "pump AND (", "[a TO b]", "\\", "pump~2 +x -y^3", "*", "/re/"],
)
def test_query_syntax_is_text(tmp_path: Path, question: str) -> None:
    """Guards against a question reaching a query parser: it would fail, or mean something else."""
    texts = ["the pump and the valve", "or not"]
    index = _index(tmp_path / "i", texts)
    terms = ANALYZER.terms(question)
    expected = {i for i, t in enumerate(texts, 1) if set(terms) & set(ANALYZER.terms(t))}
    assert {hit.passage_id for hit in index.search(terms, 10)} == expected


def test_of_too_many_terms_the_rarest_count(tmp_path: Path) -> None:
    common = [f"common{i}" for i in range(40)]
    rare = [f"rare{i}" for i in range(MOST_TERMS)]
    index = _index(tmp_path / "i", [*[" ".join(common)] * 3, *rare])
    hits = index.search([*common, *rare], 100)
    assert {hit.passage_id for hit in hits} == set(range(4, 4 + MOST_TERMS))


def test_a_commit_is_seen_by_others_after_they_refresh(tmp_path: Path) -> None:
    writer = _index(tmp_path / "i", ["one", "two"])
    reader = PassageIndex.open(tmp_path / "i")
    writer.apply([1], [(3, "three")], 2)
    assert (reader.sequence, reader.passages) == (1, 2)
    assert reader.search(["three"], 5) == []
    reader.refresh()
    assert (reader.sequence, reader.passages) == (2, 2)
    assert sorted(reader.passage_ids()) == [2, 3]
    assert reader.search(["one"], 5) == []


def test_an_apply_that_fails_publishes_nothing(tmp_path: Path) -> None:
    index = _index(tmp_path / "i", ["one", "two"])

    def terms() -> object:
        yield 3, "three"
        raise RuntimeError("half-way")

    with pytest.raises(RuntimeError, match="half-way"):
        index.apply([1], terms(), 2)  # type: ignore[arg-type]
    index.apply((), [(4, "four")], 3)
    assert sorted(index.passage_ids()) == [1, 2, 4]
    assert index.sequence == 3


def test_files_of_a_killed_writer_are_not_in_the_way(tmp_path: Path) -> None:
    """Guards against "FileAlreadyExists": a writer killed before its commit had written the list
    of deleted passages, and the next one numbered its own list the same."""
    index = _index(tmp_path / "i", ["one", "two", "three"])
    index.close()
    meta = json.loads((tmp_path / "i" / "meta.json").read_text())
    segment = meta["segments"][0]["segment_id"].replace("-", "")
    for opstamp in range(meta["opstamp"], meta["opstamp"] + 10):
        (tmp_path / "i" / f"{segment}.{opstamp}.del").write_bytes(b"half")
    again = PassageIndex.open(tmp_path / "i")
    again.apply([1], [], 2)
    again.apply([2], [], 3)
    assert again.passage_ids() == [3]
    again.close()
    assert len(list((tmp_path / "i").glob("*.del"))) <= 2


def test_the_index_holds_no_text(tmp_path: Path) -> None:
    """Guards "no trace after compact": phrases must not be reconstructible from the index."""
    index = _index(tmp_path / "i", ["Secret phrase in order"])
    index.close()
    for file in (tmp_path / "i").iterdir():
        assert b"Secret" not in file.read_bytes()
        assert b"phrase in" not in file.read_bytes()


def test_a_folder_that_is_no_index_is_said_so(tmp_path: Path) -> None:
    with pytest.raises(KnowledgeBaseDamaged, match="cannot be read"):
        PassageIndex.open(tmp_path / "none")
    _index(tmp_path / "i", ["one"]).close()
    (tmp_path / "i" / "meta.json").write_text("{")
    with pytest.raises(KnowledgeBaseDamaged, match="cannot be read"):
        PassageIndex.open(tmp_path / "i")
    shutil.rmtree(tmp_path / "i")
