"""Parsed documents <-> the part of a message that carries them out of the reader's process."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from runtime.documents import Flag, Heading, Page, ParsedDocument, Revision


def to_message(documents: Iterable[ParsedDocument]) -> dict[str, Any]:
    """The texts apart, as `runtime.sandbox` carries them fastest."""
    documents = list(documents)
    return {"documents": list(map(_told, documents)), "texts": [one.text for one in documents]}


def from_message(message: dict[str, Any]) -> tuple[ParsedDocument, ...]:
    return tuple(map(_document, message["documents"], message["texts"]))


def _told(document: ParsedDocument) -> dict[str, Any]:
    revision = document.revision
    return {
        "source": document.source,
        "title": document.title,
        "media_type": document.media_type,
        "breaks": document.breaks,
        "pages": [(page.start, page.number) for page in document.pages],
        "headings": [(one.start, one.level, one.title) for one in document.headings],
        "flags": [(flag.kind, flag.detail) for flag in document.flags],
        "revision": None if revision is None else (revision.series, revision.rank, revision.label),
    }


def _document(told: dict[str, Any], text: str) -> ParsedDocument:
    return ParsedDocument(
        source=told["source"],
        title=told["title"],
        media_type=told["media_type"],
        text=text,
        breaks=tuple(told["breaks"]),
        pages=tuple(Page(*page) for page in told["pages"]),
        headings=tuple(Heading(*heading) for heading in told["headings"]),
        flags=tuple(Flag(*flag) for flag in told["flags"]),
        revision=Revision(*told["revision"]) if told["revision"] else None,
    )
