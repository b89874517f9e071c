"""Documents and knowledge bases for the tests: small, real, and known in every character."""

from __future__ import annotations

import hashlib
import random
from pathlib import Path

from runtime.documents import Document, ParsedDocument
from runtime.knowledge_base import KnowledgeBase
from runtime.windows import WindowOptions, WindowTokenizer
from tests.tiny_models import make_tokenizer

_WORDS = (
    *("pump", "valve", "bearing", "grease", "reservoir", "filter", "motor", "pressure", "water"),
    *("engineer", "shift", "code", "heat", "spare", "station", "monthly", "tested", "opens"),
    *("closes", "runs", "metres", "hours", "lithium", "relief", "café", "Éze"),
)


def tokenizer(length: int = 24, overlap: int = 6) -> WindowTokenizer:
    return WindowTokenizer(make_tokenizer("wordpiece"), WindowOptions(length, overlap))


def parsed(source: str, text: str, **facts: object) -> ParsedDocument:
    return ParsedDocument(source, source, "text/plain", text, **facts)  # type: ignore[arg-type]


def add(kb: KnowledgeBase, document: ParsedDocument) -> Document:
    raw = document.text.encode()
    return kb.add(document, content_sha256=hashlib.sha256(raw).hexdigest(), size=len(raw))


def text_of(number: int, version: int, sentences: int = 40) -> str:
    """A document of several passages that names itself in each sentence: "doc3v7"."""
    generator = random.Random(f"{number}:{version}")
    return " ".join(
        f"In doc{number}v{version} the {' '.join(generator.choices(_WORDS, k=9))}."
        for _ in range(sentences)
    )


def numbered(number: int, version: int, sentences: int = 40) -> ParsedDocument:
    return parsed(f"doc{number}", text_of(number, version, sentences))


def found_sources(kb: KnowledgeBase, question: str, limit: int = 100) -> set[str]:
    """The sources of the passages that a question finds."""
    hits = kb.search(question, limit)
    windows = kb.windows([hit.passage_id for hit in hits])
    return {kb.document(window.document_id).source for window in windows}


def files_that_contain(folder: Path, needle: bytes) -> list[str]:
    """Files under `folder` with these bytes anywhere in them."""
    return [
        str(file.relative_to(folder))
        for file in sorted(folder.rglob("*"))
        if file.is_file() and needle in file.read_bytes()
    ]
