"""The example manual and its questions: large enough, consistent, rebuilt from their sources."""

from __future__ import annotations

import html
import importlib.util
import json
import re
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
MANUAL = ROOT / "examples" / "pumping-station"
SOURCES = ROOT / "examples" / "sources"
QUESTIONS = [
    json.loads(line)
    for line in (ROOT / "tests/data/pumping-station.jsonl").read_text("utf-8").splitlines()
]
ANSWERABLE = [question for question in QUESTIONS if question["answerable"]]
UNANSWERABLE = [question for question in QUESTIONS if not question["answerable"]]
BUILT = {".pdf", ".docx"}


def folded(text: str) -> str:
    """Every run of white space becomes one space."""
    return re.sub(r"\s+", " ", text)


def source_text(path: Path) -> str:
    """The text a file is made from: its source for PDF and DOCX, without tags for HTML."""
    if path.suffix in BUILT:
        path = SOURCES / f"{path.stem}.md"
    text = path.read_text(encoding="utf-8")
    return html.unescape(re.sub(r"<[^>]+>", " ", text)) if path.suffix == ".html" else text


def manual_files() -> list[Path]:
    """What a user adds to a knowledge base."""
    return sorted(path for path in MANUAL.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def builder() -> ModuleType:
    """examples/build_binaries.py as a module."""
    for tool in ("reportlab", "docx"):
        pytest.importorskip(tool, reason=f"{tool} is needed to rebuild the example's files")
    spec = importlib.util.spec_from_file_location(
        "build_binaries", ROOT / "examples/build_binaries.py"
    )
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def extracted_pdf_pages(path: Path) -> list[str]:
    """The text of each page as a PDF library finds it."""
    pypdf = pytest.importorskip("pypdf", reason="pypdf is needed to read the example's PDFs")
    return [page.extract_text() for page in pypdf.PdfReader(path).pages]


def extracted_text(path: Path) -> str:
    """What a plain reader library finds in a PDF or DOCX."""
    if path.suffix == ".pdf":
        return "\n".join(extracted_pdf_pages(path))
    import docx

    document = docx.Document(str(path))
    cells = [cell.text for table in document.tables for row in table.rows for cell in row.cells]
    return "\n".join([paragraph.text for paragraph in document.paragraphs] + cells)


def test_the_manual_is_large_enough_and_has_every_format() -> None:
    files = manual_files()
    formats = Counter(path.suffix for path in files)
    words = sum(len(re.findall(r"\w[\w'.,/-]*", source_text(path))) for path in files)
    assert len(files) >= 12
    assert words >= 10_000
    minimum = {".md": 5, ".html": 2, ".pdf": 2, ".docx": 2, ".txt": 3}
    assert set(formats) == set(minimum)
    assert all(formats[suffix] >= count for suffix, count in minimum.items())


def test_the_built_files_stay_small() -> None:
    assert sum(path.stat().st_size for path in manual_files() if path.suffix in BUILT) < 500_000


def test_prose_is_not_repeated() -> None:
    """Guards against padding: no sentence of eight words or more occurs twice in the manual."""
    sentences = Counter(
        sentence
        for path in manual_files()
        for sentence in re.split(r"(?<=[.!?])\s", folded(source_text(path)))
        if len(sentence.split()) >= 8
    )
    assert [sentence for sentence, count in sentences.items() if count > 1] == []


def test_there_are_enough_questions_of_both_kinds() -> None:
    assert len(QUESTIONS) >= 60
    assert len(UNANSWERABLE) >= 20
    assert {question["file"] for question in ANSWERABLE} == {
        path.relative_to(MANUAL).as_posix() for path in manual_files()
    }


def test_questions_are_unique_and_complete() -> None:
    assert len({question["id"] for question in QUESTIONS}) == len(QUESTIONS)
    assert len({question["question"] for question in QUESTIONS}) == len(QUESTIONS)
    for question in QUESTIONS:
        assert set(question) == {"id", "question", "answers", "file", "answerable"}
        assert bool(question["answers"]) == question["answerable"] == bool(question["file"])


@pytest.mark.parametrize("question", ANSWERABLE, ids=lambda question: question["id"])
def test_gold_answers_occur_literally(question: dict[str, Any]) -> None:
    """As whole words, so that "37" is not found inside "2,370"."""
    text = folded(source_text(MANUAL / question["file"]))
    missing = [
        answer
        for answer in question["answers"]
        if not re.search(rf"(?<!\w){re.escape(answer)}(?!\w)", text)
    ]
    assert missing == []


@pytest.mark.parametrize(
    "question",
    [question for question in ANSWERABLE if Path(question["file"]).suffix in BUILT],
    ids=lambda question: question["id"],
)
def test_a_gold_answer_survives_the_building(question: dict[str, Any]) -> None:
    """At least one is found in the built PDF or DOCX once line-end hyphens are joined."""
    pytest.importorskip("docx", reason="python-docx is needed to read the example's DOCX files")
    text = extracted_text(MANUAL / question["file"])
    joined = folded(re.sub(r"(?<=[a-z])-\n(?=[a-z])", "", text))
    assert any(answer in joined for answer in question["answers"])


@pytest.mark.parametrize("stem", ["maintenance-manual-rev4", "commissioning-record-2011"])
def test_pdf_pages_carry_header_footer_and_hyphenation(builder: ModuleType, stem: str) -> None:
    """The noise that cleaning has to remove must really be in the PDFs."""
    pages = extracted_pdf_pages(MANUAL / f"{stem}.pdf")
    meta = builder.parse((SOURCES / f"{stem}.md").read_text(encoding="utf-8")).meta
    assert len(pages) >= 4
    for number, page in enumerate(pages, start=1):
        assert meta["header"] in page
        assert meta["footer"] in page
        assert f"Page {number}" in page
    assert len(re.findall(r"[a-z]-\n[a-z]", "\n".join(pages))) >= 5


def test_committed_files_are_what_the_script_builds(builder: ModuleType, tmp_path: Path) -> None:
    """Bytes may differ between library versions; the text in them may not."""
    built = builder.build_all(tmp_path)
    committed = [path for path in manual_files() if path.suffix in BUILT]
    assert sorted(path.name for path in built) == sorted(path.name for path in committed)
    for path in built:
        twin = MANUAL / path.name
        if path.read_bytes() != twin.read_bytes():
            assert extracted_text(path) == extracted_text(twin), path.name


def test_building_twice_gives_the_same_bytes(builder: ModuleType, tmp_path: Path) -> None:
    first = [path.read_bytes() for path in builder.build_all(tmp_path / "first")]
    second = [path.read_bytes() for path in builder.build_all(tmp_path / "second")]
    assert first == second
