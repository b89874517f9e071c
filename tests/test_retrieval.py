"""From a question to windows: the right ones first, no repetitions, any text accepted."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from runtime.documents import Flag, Heading, ParsedDocument, RetrievedWindow
from runtime.knowledge_base import KnowledgeBase
from runtime.retrieval import RetrievalOptions, retrieve
from runtime.windows import WindowTokenizer
from tests.knowledge import add, numbered, parsed, tokenizer


@pytest.fixture(scope="module")
def manual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KnowledgeBase]:
    """Ten documents of noise and one in which each sentence says one thing."""
    folder = tmp_path_factory.mktemp("manual") / "kb"
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), create=True) as kb:
        for number in range(10):
            add(kb, numbered(number, 1))
        filler = "Nothing else is said about this matter in the present chapter of the book. "
        facts = (
            "The relief valve opens at 6.5 bar.",
            "Fault E-17 means overheating.",
            "Ask Zoë for the key.",
            "水泵站有三台水泵。",
        )
        add(kb, parsed("facts", " ".join(f"{filler * 3}{fact} {filler * 3}" for fact in facts)))
        yield kb


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("At what pressure does the relief valve open?", "6.5 bar"),
        ("What does e17 mean?", "overheating"),
        ("who has the key, zoe?", "Zoë"),
        ("有几台水泵？", "三台"),
    ],
)
def test_the_window_with_the_answer_comes_first(
    manual: KnowledgeBase, question: str, answer: str
) -> None:
    found = retrieve(manual, question, k=5)
    assert answer in found[0].window.text
    assert [one.rank for one in found] == list(range(len(found)))
    assert all(one.score >= other.score for one, other in pairwise(found))


@pytest.mark.parametrize(
    "question",
    [
        '"fault overheating" AND (means OR "',
        "title:overheating -fault +means^2 ~",
        "\\fault\\overheating[a TO b]{}",
        "overheating " * 2_000,
        "fault\x00overheating\u200b",
        "Авария overheating",
    ],
)
def test_any_question_text_is_taken_as_words(manual: KnowledgeBase, question: str) -> None:
    assert "overheating" in retrieve(manual, question, k=5)[0].window.text


@pytest.mark.parametrize("question", ["", " ", "😀🎉", "?!…", "Ẍ́ЖЖЖ", "\x00"])
def test_a_question_without_a_known_word_finds_nothing(
    manual: KnowledgeBase, question: str
) -> None:
    assert retrieve(manual, question) == []


@given(question=st.text(max_size=80))
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_no_question_breaks_it(manual: KnowledgeBase, question: str) -> None:
    assert len(retrieve(manual, question, k=3)) <= 3


def test_the_same_question_gives_the_same_windows(manual: KnowledgeBase) -> None:
    one = retrieve(manual, "pump valve grease", k=8)
    with KnowledgeBase.open(manual.path, tokenizer=tokenizer()) as reader:
        other = retrieve(reader, "pump valve grease", k=8)
    assert [(w.window.id, w.score) for w in one] == [(w.window.id, w.score) for w in other]
    assert len(one) == 8


def test_an_empty_knowledge_base_finds_nothing(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        assert retrieve(kb, "pump") == []


def test_near_duplicates_are_left_out(tmp_path: Path) -> None:
    """Guards against ten revisions of one manual filling all ten places."""
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(60, 10), create=True) as kb:
        body = "The relief valve opens at 6.5 bar and is tested every month by the shift engineer"
        for revision in range(12):
            add(kb, parsed(f"revision{revision}", f"{body}, revision {revision}."))
        add(
            kb,
            parsed("other", "The relief valve is made of brass, others of steel."),
        )
        found = retrieve(kb, "relief valve", k=10)
        assert len(found) == 2
        everything = retrieve(
            kb, "relief valve", k=10, options=RetrievalOptions(duplicate_share=1.1)
        )
        assert len(everything) == 10


def test_one_passage_does_not_take_all_places(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(12, 0), create=True) as kb:
        add(
            kb,
            parsed("much", "".join(f"The relief valve {i} opens at {i} bar. " for i in range(25))),
        )
        for number in range(4):
            filler = " ".join(f"word{number}x{i}" for i in range(60))
            add(kb, parsed(f"little{number}", f"{filler} a relief valve opens."))
        found = {
            further: _sources(
                kb, retrieve(kb, "relief valve opens", 5, RetrievalOptions(further=further))
            )
            for further in (0.5, 1.0)
        }
        assert len(found[0.5]) > len(found[1.0])


def test_differences_that_matter_are_no_duplicates(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        add(kb, parsed("old", "Relief valve: opens at 6.5 bar."))
        add(kb, parsed("new", "Relief valve: opens at 7.0 bar."))
        assert len(retrieve(kb, "relief valve")) == 2


def test_the_same_under_other_headings_is_no_duplicate(tmp_path: Path) -> None:
    """Guards that of pumps whose sections differ in a number only one was read."""
    body = (
        "The oil is changed every {} hours, and the old oil goes into the drum beside the door, "
        "which the driver of the yellow truck takes to the harbour on the first day of each month "
        "together with rags and filters from all other halls.\n\n"
    )
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(300, 10), create=True) as kb:
        for number in (1, 2, 3):
            above = f"Pump P{number}\n" + "".join(
                f"Word {i} is in list {i % 7}. " for i in range(60)
            )
            headings = Heading(0, 1, f"Pump P{number}"), Heading(len(above), 2, "Oil")
            text = f"{above}Oil\n{body.format(500 + number)}"
            breaks = (0, len(above))
            add(kb, ParsedDocument(f"{number}", "M", "text/plain", text, breaks, (), headings))
        found = retrieve(kb, "How often is the oil changed", k=10)
    texts = [one.window.text for one in found]
    for hours in (501, 502, 503):
        assert any(f"every {hours} hours" in text for text in texts)


def test_flagged_documents_are_left_out_on_request(tmp_path: Path) -> None:
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        add(kb, parsed("bad", "The relief valve opens.", flags=(Flag("hidden", "white"),)))
        add(kb, parsed("good", "Someone says that a relief valve opens, sometimes."))
        without = RetrievalOptions(exclude_flagged=True)
        assert _sources(kb, retrieve(kb, "relief valve")) == {"bad", "good"}
        assert _sources(kb, retrieve(kb, "relief valve", options=without)) == {"good"}


_WORDS = ("pump", "relief", "valve", "opens", "grease", "lithium", "Éze", "cafe", "doc3v1", "the")
_QUESTION = st.lists(st.sampled_from(_WORDS), min_size=1, max_size=6).map(" ".join)


@given(question=_QUESTION, k=st.integers(1, 12), further=st.sampled_from([0.5, 0.9, 1.0]))
@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_it_finds_what_scoring_every_window_finds(
    manual: KnowledgeBase, question: str, k: int, further: float
) -> None:
    """Fast equals slow: few windows are made and words counted once; scores are the very same."""
    options = RetrievalOptions(further=further)
    scores = _every_score(manual, question, 2 * k, further)
    order = sorted(scores, key=lambda number: (-scores[number], number))
    words = {
        window.id: window.text.casefold().split()
        for window in manual.windows(manual.index.passage_ids())
    }
    triples = {number: set(zip(w, w[1:], w[2:], strict=False)) for number, w in words.items()}
    kept: list[int] = []
    for number in order:
        own = triples[number]
        if all(len(own & triples[one]) < 0.8 * len(own | triples[one]) for one in kept):
            kept.append(number)
    found = retrieve(manual, question, k, options)
    assert [(one.window.id, one.score) for one in found] == [(n, scores[n]) for n in kept[:k]]


def _every_score(
    kb: KnowledgeBase, question: str, passages: int, further: float
) -> dict[int, float]:
    """Of every window of the best passages, by its number, as docs/retrieval.md describes it."""
    rarity = kb.rarity(question)
    hits = kb.search(question, passages)
    windows = [window for hit in hits for window in kb.windows([hit.passage_id])]
    mean = sum(map(len, windows)) / len(windows)
    scores: dict[int, float] = {}
    for hit in hits:
        of_passage: dict[int, float] = {}
        for window in kb.windows([hit.passage_id]):
            terms = Counter(term for term in kb.analyzer.terms(window.text) if term in rarity)
            norm = 1.2 * (1 - 0.75 + 0.75 * len(window) / mean)
            own = sum(rarity[term] * n * 2.2 / (n + norm) for term, n in terms.items())
            of_passage[window.id] = own + hit.score
        order = sorted(of_passage, key=lambda number: (-of_passage[number], number))
        scores |= {number: of_passage[number] * further**n for n, number in enumerate(order)}
    return scores


def _sources(kb: KnowledgeBase, found: list[RetrievedWindow]) -> set[str]:
    return {kb.document(one.window.document_id).source for one in found}


def test_a_reader_retrieves_what_was_added_since(tmp_path: Path) -> None:
    folder = tmp_path / "kb"
    with (
        KnowledgeBase.open(folder, tokenizer=tokenizer(), create=True) as kb,
        KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader,
    ):
        assert retrieve(reader, "relief valve") == []
        add(kb, parsed("a", "The relief valve opens."))
        assert len(retrieve(reader, "relief valve")) == 1
        kb.remove("a")
        assert retrieve(reader, "relief valve") == []


# Second scripts by hand (issue 4): the right one of four short texts comes first.
_SCRIPTS = {
    "thai": (
        "วาล์วระบายเปิดที่หกจุดห้าบาร์",
        "เปลี่ยนตัวกรองทุกเดือน",
        "ปั๊มหมายเลขสองเป็นปั๊มสำรอง",
        "กดปุ่มสีแดงเพื่อหยุดฉุกเฉิน",
    ),
    "japanese": (
        "リリーフバルブは6.5バールで開く。",
        "フィルターは毎月交換する。",
        "ポンプ2号機は予備である。",
        "非常停止には赤いボタンを押す。",
    ),
    "russian": (
        "Предохранительный клапан открывается при 6,5 бар.",
        "Фильтр меняют каждый месяц.",
        "Насос номер два запасной.",
        "Для аварийной остановки нажмите красную кнопку.",
    ),
    "arabic": (
        "يفتح صمام الأمان عند ضغط ستة بار.",
        "يُستبدل المرشح كل شهر.",
        "المضخة الثانية احتياطية.",
        "اضغط الزر الأحمر للإيقاف الطارئ.",
    ),
}
_SCRIPT_QUESTIONS = {
    "thai": ("วาล์วระบายเปิดเมื่อใด", "ตัวกรองเปลี่ยนเมื่อไร", "ปั๊มสำรองคือตัวไหน", "หยุดฉุกเฉินอย่างไร"),
    "japanese": (
        "リリーフバルブはいつ開きますか",
        "フィルターの交換時期は",
        "予備のポンプはどれ",
        "非常停止の方法は",
    ),
    "russian": (
        "Когда открывается предохранительный клапан?",
        "Как часто меняют фильтр?",
        "Какой насос запасной?",
        "Как нажать аварийную кнопку, красную?",
    ),
    "arabic": (
        "متى يفتح صمام الامان؟",
        "متى يستبدل المرشح؟",
        "أي المضخة احتياطية؟",
        "ما الزر الاحمر؟",
    ),
}


@pytest.mark.parametrize("script", sorted(_SCRIPTS))
def test_questions_in_other_scripts_find_their_text(tmp_path: Path, script: str) -> None:
    texts, questions = _SCRIPTS[script], _SCRIPT_QUESTIONS[script]
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(200, 20), create=True) as kb:
        for number, text in enumerate(texts):
            add(kb, parsed(str(number), text))
        for other in sorted(set(_SCRIPTS) - {script}):
            for number, text in enumerate(_SCRIPTS[other]):
                add(kb, parsed(f"{other}{number}", text))
        for question, text in zip(questions, texts, strict=True):
            assert retrieve(kb, question)[0].window.text == text


def _paragraphs(file: Path) -> Iterator[dict[str, object]]:
    for article in json.loads(file.read_text("utf-8"))["data"]:
        yield from article["paragraphs"]


@pytest.mark.slow
@pytest.mark.parametrize(("language", "goal"), [("en", 0.97), ("zh", 0.95)])
def test_recall_on_xquad(shared: Path, tmp_path: Path, language: str, goal: float) -> None:
    """recall@10 of the answer-bearing window among XQuAD's 240 paragraphs and new_wiki's 1,581.
    The full figure over 5,906 paragraphs is in docs/retrieval.md."""
    data = shared / "data"
    drafter = WindowTokenizer.from_file(shared / "models" / "drafter-minilm-l3" / "tokenizer.json")

    def documents() -> Iterator[tuple[ParsedDocument, str, int]]:
        for name in (f"xquad.{language}.json", "new_wiki_v1.0.json"):
            for number, paragraph in enumerate(_paragraphs(data / name)):
                text = str(paragraph["context"])
                digest = hashlib.sha256(text.encode()).hexdigest()
                yield parsed(f"{name}#{number}", text), digest, len(text)

    stemmer = {"en": "english"}.get(language)
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=drafter, create=True, stemmer=stemmer) as kb:
        kb.add_many(documents())
        found = total = 0
        for paragraph in list(_paragraphs(data / f"xquad.{language}.json"))[::2]:
            for one in paragraph["qas"]:  # type: ignore[attr-defined]
                answers = [answer["text"] for answer in one["answers"]]
                total += 1
                found += any(
                    hit.window.passage_text in str(paragraph["context"])
                    and any(answer in hit.window.text for answer in answers)
                    for hit in retrieve(kb, one["question"])
                )
        assert total > 500
        assert found / total >= goal
