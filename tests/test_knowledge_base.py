"""The knowledge base: what goes in comes out exactly, changes are whole, places are right."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.documents import Flag, Heading, Page, ParsedDocument, Span
from runtime.errors import (
    DamagedDocument,
    EmptyDocument,
    KnowledgeBaseError,
    KnowledgeBaseNotFound,
    UnsupportedDocument,
    UsageError,
)
from runtime.knowledge_base import KnowledgeBase
from runtime.outline import Outline, as_header, contexts, heading_path
from tests.knowledge import add, found_sources, numbered, parsed, text_of, tokenizer


@pytest.fixture
def kb(tmp_path: Path) -> Iterator[KnowledgeBase]:
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as opened:
        yield opened


def test_a_text_comes_back_as_it_was(kb: KnowledgeBase) -> None:
    text = "Line one.\nA NUL \x00, an accent e\u0301, a flag 🇫🇷 and 水泵站。\r\n\ttail  "
    document = add(kb, parsed("odd", text))
    assert kb.text(document.id) == text
    assert document.characters == len(text)
    assert kb.verify() == ()


@given(
    text=st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=400).filter(
        lambda text: bool(text.strip())
    ),
    cuts=st.lists(st.integers(0, 400), max_size=6),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_any_text_survives_with_exact_slices(kb: KnowledgeBase, text: str, cuts: list[int]) -> None:
    document = add(kb, parsed("any", text, breaks=tuple(sorted(cuts))))
    stored = kb.text(document.id)
    assert stored == text
    for window in kb.windows(kb.index.passage_ids()):
        assert window.span.of(stored) == window.text
        assert window.passage.of(stored) == window.passage_text
        for start, end in window.offsets.tolist():
            assert 0 <= start <= end <= len(window.text)


def test_adding_a_source_again_replaces_it(kb: KnowledgeBase) -> None:
    first = add(kb, numbered(1, 1))
    second = add(kb, numbered(1, 2))
    assert [document.id for document in kb.documents()] == [second.id]
    assert second.id > first.id
    assert kb.search("doc1v1", 10) == []
    assert found_sources(kb, "doc1v2") == {"doc1"}
    with pytest.raises(KnowledgeBaseError, match=f"no document {first.id}"):
        kb.text(first.id)


def test_a_removed_document_answers_nothing(kb: KnowledgeBase) -> None:
    add(kb, numbered(1, 1))
    add(kb, numbered(2, 1))
    assert kb.remove("doc1") == 1
    assert kb.remove("doc1") == 0
    assert kb.search("doc1v1", 10) == []
    assert found_sources(kb, "pump") == {"doc2"}
    assert kb.verify() == ()


def test_removing_an_archive_removes_what_is_in_it(kb: KnowledgeBase) -> None:
    for source in ("a.zip!/one", "a.zip!/two", "a.zip", "a.zipped", "ä%.zip!/x"):
        add(kb, parsed(source, "The pump runs."))
    assert kb.remove("a.zip") == 3
    assert kb.remove("ä%.zip") == 1
    assert [document.source for document in kb.documents()] == ["a.zipped"]


def test_a_batch_is_published_as_one(kb: KnowledgeBase) -> None:
    with kb.batch():
        add(kb, numbered(1, 1))
        assert kb.find("doc1") is not None
        assert kb.documents() == []
        assert kb.search("doc1v1", 10) == []
        add(kb, numbered(1, 2))
        kb.remove("doc1")
        add(kb, numbered(1, 3))
        add(kb, numbered(2, 1))
    assert [document.source for document in kb.documents()] == ["doc1", "doc2"]
    assert kb.search("doc1v2", 10) == []
    assert found_sources(kb, "doc1v3") == {"doc1"}
    assert kb.verify() == ()


def test_a_batch_that_fails_leaves_nothing_unpublished(kb: KnowledgeBase) -> None:
    add(kb, numbered(1, 1))

    def documents() -> Iterator[tuple[ParsedDocument, str, int]]:
        yield numbered(1, 2), "x", 1
        yield numbered(2, 1), "x", 1
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        kb.add_many(documents())
    assert found_sources(kb, "pump") == {"doc1"}
    assert kb.search("doc1v2", 10) == []
    assert kb.find("doc2") is None


def test_one_bad_document_does_not_spoil_its_batch(kb: KnowledgeBase) -> None:
    with kb.batch():
        add(kb, numbered(1, 1))
        with pytest.raises(EmptyDocument):
            add(kb, parsed("blank", " \n\t"))
        add(kb, numbered(2, 1))
    assert len(kb.documents()) == 2


def test_add_many_equals_adding_one_by_one(tmp_path: Path) -> None:
    documents = [numbered(number, 1, sentences=5) for number in range(12)]
    told: list[int] = []
    with (
        KnowledgeBase.open(tmp_path / "a", tokenizer=tokenizer(), create=True) as batched,
        KnowledgeBase.open(tmp_path / "b", tokenizer=tokenizer(), create=True) as single,
    ):
        assert batched.add_many(((d, "x", 1) for d in documents), told.append) == 12
        for document in documents:
            single.add(document, content_sha256="x", size=1)
        # Until segments are merged, the index counts what was deleted in its statistics.
        single.compact()
        assert told == list(range(1, 13))
        for question in ("doc3v1 pump", "valve grease", "café"):
            assert [hit.passage_id for hit in batched.search(question, 8)] == [
                hit.passage_id for hit in single.search(question, 8)
            ]


def test_the_cost_of_a_document_does_not_grow_with_its_batch(kb: KnowledgeBase) -> None:
    """Each document once made SQLite look through all documents of the open change."""
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 10

    def spent(numbers: range) -> int:
        before = steps
        for number in numbers:
            add(kb, parsed(f"document {number}", "The pump must be primed."))
        return steps - before

    with kb.batch(), kb._reading() as connection:
        connection.set_progress_handler(count, 10)
        first = spent(range(50))
        spent(range(50, 400))
        assert spent(range(400, 450)) < 1.2 * first
        connection.set_progress_handler(None, 0)


def test_lone_surrogates_are_refused(kb: KnowledgeBase) -> None:
    with pytest.raises(DamagedDocument, match="character 4"):
        kb.add(parsed("bad", "The \ud800 pump"), content_sha256="x", size=1)
    assert kb.documents() == []


def test_a_citation_names_page_headings_and_quote(kb: KnowledgeBase) -> None:
    text = "Manual\nPumps\nPump 1 runs.\nFaults\nE-17: too hot.\nAppendix\nEnd."
    headings = tuple(
        Heading(text.index(title), level, title)
        for title, level in (("Manual", 1), ("Pumps", 2), ("Faults", 2), ("Appendix", 1))
    )
    pages = (Page(text.index("Pumps"), 3), Page(text.index("E-17"), 4))
    document = add(
        kb,
        parsed(
            "manual", text, headings=headings, pages=pages, breaks=tuple(h.start for h in headings)
        ),
    )
    start = text.index("too hot")
    citation = kb.citation(document.id, Span(start, start + 7))
    assert citation.quote == "too hot"
    assert citation.page == 4
    assert citation.heading_path == ("Manual", "Faults")
    end = kb.citation(document.id, Span(text.index("End"), len(text)))
    assert (end.quote, end.heading_path) == ("End.", ("Appendix",))
    top = kb.citation(document.id, Span(0, 6))
    assert top.page is None  # before the first known page: absent, never guessed
    assert kb.citation(document.id, Span(0, len(text))).quote == text
    assert kb.citation(document.id, Span(len(text), len(text))).quote == ""


@pytest.mark.parametrize("span", [(-1, 3), (5, 4), (0, 10_000)])
def test_a_citation_outside_the_text_is_refused(kb: KnowledgeBase, span: tuple[int, int]) -> None:
    document = add(kb, numbered(1, 1))
    with pytest.raises(KnowledgeBaseError, match="is not a place"):
        kb.citation(document.id, Span(*span))


def test_headings_above_a_passage_help_to_find_it(kb: KnowledgeBase) -> None:
    body = "Switch it off. Wait for twenty minutes. Open the cover. Look for leaks. " * 12
    text = f"Overheating\n{body}\n{body}"
    heading = Heading(0, 1, "Overheating")
    second = len("Overheating\n") + len(body) + 1
    document = add(kb, parsed("m", text, headings=(heading,), breaks=(12, second)))
    hits = kb.search("overheating", 10)
    places = {window.passage.start for window in kb.windows([hit.passage_id for hit in hits])}
    assert document.passages > 1
    assert any(place >= second for place in places)


def test_each_passage_stands_under_its_own_headings() -> None:
    """The one pass over all passages against the path of each place."""
    headings = tuple(
        Heading(start, level, f"H{start}")
        for start, level in ((0, 1), (10, 2), (20, 3), (25, 2), (25, 4), (40, 1), (90, 2))
    )
    spans = [Span(start, start + 5) for start in range(0, 100, 5)]
    expected = [
        " ".join(["T", *(heading.title for heading in heading_path(span.start, headings))])
        for span in spans
    ]
    assert list(contexts(spans, "T", headings)) == expected
    assert list(contexts([Span(0, 1)], "T", ())) == ["T"]


def test_windows_know_what_they_lie_under(kb: KnowledgeBase) -> None:
    """The header is the path of headings before a place, as `heading_path` of all of them says."""
    rng = random.Random(6)
    text, headings = "", []
    for number in range(120):
        if rng.random() < 0.4:
            headings.append(Heading(len(text), rng.randint(1, 4), f"Heading {number}"))
            text += f"Heading {number}\n"
        text += f"The value of {number} is {rng.randint(1, 999)}. " * rng.randint(1, 9) + "\n"
    breaks = [i + 1 for i, character in enumerate(text) if character == "\n"]
    structure = {"headings": tuple(headings), "breaks": tuple(breaks)}
    add(kb, ParsedDocument("deep", "Manual", "text/plain", text, **structure))
    hits = kb.search("value", 200)
    windows = kb.windows([hit.passage_id for hit in hits])
    assert len(windows) > 20
    for window in windows:
        for place in (window.span.start, window.span.start + 1, window.span.end - 1):
            above = [h.title for h in heading_path(place, headings) if h.start < place]
            assert window.outline.header(place) == as_header(["Manual", *above])
    assert max(len(window.outline.headings) for window in windows) > 2


def test_a_title_that_is_a_heading_is_said_once() -> None:
    outline = Outline("Manual", (Heading(0, 1, "Manual"), Heading(40, 2, "Pump P2")))
    assert [outline.header(place) for place in (0, 6, 40, 50)] == [
        "", "Manual: ", "Manual: ", "Manual: Pump P2: ",
    ]  # fmt: skip
    assert Outline("", ()).header(9) == ""


def test_flagged_documents_can_be_left_out(kb: KnowledgeBase) -> None:
    flag = Flag("instruction", "ignore previous instructions")
    for number in range(30):
        add(kb, parsed(f"bad{number}", "The relief valve opens.", flags=(flag,)))
    add(kb, parsed("good", "A relief valve, among much else that is said here, opens."))
    assert kb.documents()[0].flags == (flag,)
    assert len(kb.search("relief valve", 3)) == 3
    kept = kb.search("relief valve", 3, exclude_flagged=True)
    windows = kb.windows([hit.passage_id for hit in kept])
    assert {kb.document(window.document_id).source for window in windows} == {"good"}
    assert kb.statistics().flagged == 30


def test_failures_are_kept_until_the_source_is_added_or_removed(kb: KnowledgeBase) -> None:
    for source in ("a", "b", "c"):
        kb.record_failure(source, UnsupportedDocument("No reader", fix="Convert it"), "digest")
    add(kb, parsed("a", "The pump runs."))
    kb.remove("b")
    (failure,) = kb.failures()
    assert (failure.source, failure.what, failure.fix) == ("c", "No reader", "Convert it")
    assert failure.content_sha256 == "digest"
    assert kb.statistics().failures == 1


def test_windows_are_cut_for_the_tokenizer_at_hand(tmp_path: Path) -> None:
    """Guards against answering with another drafter's token ids after a change of model."""
    path = tmp_path / "kb"
    with KnowledgeBase.open(path, tokenizer=tokenizer(24), create=True) as kb:
        add(kb, numbered(1, 1))
        numbers = kb.index.passage_ids()
        longer = kb.windows(numbers)
        kb.tokenizer = tokenizer(12, 3)
        shorter = kb.windows(numbers)
    assert max(map(len, longer)) == 24
    assert max(map(len, shorter)) == 12
    assert {one.passage for one in longer} == {one.passage for one in shorter}


def test_windows_are_numbered_in_the_order_of_their_places(kb: KnowledgeBase) -> None:
    """Guards the ties of retrieval, which go to what was added first, and the drafts by window."""
    for number in range(3):
        add(kb, numbered(number, 1))
    windows = kb.windows(sorted(kb.index.passage_ids()))
    places = [(one.document_id, one.span.start) for one in windows]
    assert places == sorted(places)
    numbers = [one.id for one in windows]
    assert numbers == sorted(set(numbers))
    assert kb.windows([10_000, windows[0].passage_id, windows[0].passage_id])[0].id == numbers[0]


def test_opened_without_a_tokenizer_it_adds_searches_and_removes(tmp_path: Path) -> None:
    path = tmp_path / "kb"
    with KnowledgeBase.open(path, tokenizer=tokenizer(), create=True) as kb:
        add(kb, numbered(1, 1))
    with KnowledgeBase.open(path, writable=True) as kb:
        assert len(kb.documents()) == 1
        add(kb, numbered(2, 1))
        assert kb.search("doc2v1", 1) != []
        with pytest.raises(UsageError, match="tokenizer"):
            kb.windows([1])
        assert kb.remove("doc1") == 1


def test_a_folder_without_one_is_said_so(tmp_path: Path) -> None:
    for writable in (False, True):
        with pytest.raises(KnowledgeBaseNotFound, match="no knowledge base here"):
            KnowledgeBase.open(tmp_path, writable=writable)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_cannot_write(kb: KnowledgeBase) -> None:
    add(kb, numbered(1, 1))
    with (
        KnowledgeBase.open(kb.path, tokenizer=tokenizer()) as reader,
        pytest.raises(UsageError, match="for reading"),
    ):
        reader.remove("doc1")


def test_closed_is_closed_and_closing_twice_is_harmless(kb: KnowledgeBase) -> None:
    kb.close()
    kb.close()
    with pytest.raises(KnowledgeBaseError, match="closed"):
        kb.documents()


def test_an_unknown_stemmer_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="klingon"):
        KnowledgeBase.open(tmp_path / "kb", create=True, stemmer="klingon")
    assert not (tmp_path / "kb" / "knowledge-base.sqlite").exists()


def test_the_stemmer_stays_with_the_knowledge_base(tmp_path: Path) -> None:
    path = tmp_path / "kb"
    with KnowledgeBase.open(path, tokenizer=tokenizer(), create=True, stemmer="english") as kb:
        add(kb, parsed("a", "The bearings were greased."))
    with KnowledgeBase.open(path, tokenizer=tokenizer()) as kb:
        assert kb.statistics().stemmer == "english"
        assert found_sources(kb, "greasing a bearing") == {"a"}


def test_the_same_folder_under_another_name_is_the_same_knowledge_base(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        add(kb, numbered(1, 1))
    moved = (tmp_path / "kb").rename(tmp_path / "moved")
    with KnowledgeBase.open(moved, tokenizer=tokenizer()) as kb:
        assert found_sources(kb, "doc1v1") == {"doc1"}
        assert kb.verify() == ()


def test_threads_share_one_knowledge_base(kb: KnowledgeBase) -> None:
    for number in range(6):
        add(kb, numbered(number, 1))
    wrong: list[object] = []

    def ask(number: int) -> None:
        try:
            for _ in range(25):
                if found_sources(kb, f"doc{number}v1") != {f"doc{number}"}:
                    wrong.append(number)
        except Exception as error:
            wrong.append(error)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_the_text_of_many_passages_is_read_in_slices(kb: KnowledgeBase) -> None:
    """Guards the slicing across passage borders: every place, not only those in the first one."""
    text = text_of(1, 1)
    document = add(kb, parsed("doc1", text))
    for start in range(0, len(text) - 50, 37):
        span = Span(start, start + 50)
        assert kb.citation(document.id, span).quote == span.of(text)
