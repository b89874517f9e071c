"""A parsed document <-> the part of a JSON message that carries it out of the reader's process."""

from __future__ import annotations

from typing import Any

from runtime.documents import Flag, Heading, Page, ParsedDocument, Revision


def to_message(document: ParsedDocument) -> dict[str, Any]:
    revision = document.revision
    return {
        "source": document.source,
        "title": document.title,
        "media_type": document.media_type,
        "text": document.text,
        "breaks": document.breaks,
        "pages": [(page.start, page.number) for page in document.pages],
        "headings": [(one.start, one.level, one.title) for one in document.headings],
        "flags": [(flag.kind, flag.detail) for flag in document.flags],
        "revision": None if revision is None else (revision.series, revision.rank, revision.label),
    }


def from_message(told: dict[str, Any]) -> ParsedDocument:
    return ParsedDocument(
        source=told["source"],
        title=told["title"],
        media_type=told["media_type"],
        text=told["text"],
        breaks=tuple(told["breaks"]),
        pages=tuple(Page(*page) for page in told["pages"]),
        headings=tuple(Heading(*heading) for heading in told["headings"]),
        flags=tuple(Flag(*flag) for flag in told["flags"]),
        revision=Revision(*told["revision"]) if told["revision"] else None,
    )
