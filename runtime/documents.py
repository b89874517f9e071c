"""The value types: what a document is, and how a place in it is named.

Every place is a `Span` in code points of the document's stored text, which is cleaned once when
the document is added and never changed afterwards: `text[span.start:span.end]` is what people see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from runtime.flags import SUPERSEDED

if TYPE_CHECKING:  # the reader's child process uses these types and never needs numpy
    import numpy as np
    from numpy.typing import NDArray

    from runtime.outline import Outline


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """A half-open range `[start, end)` in code points of a document's stored text."""

    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def of(self, text: str) -> str:
        """The slice of `text`, which must be the document's stored text."""
        return text[self.start : self.end]

    def shifted(self, offset: int) -> Span:
        return Span(self.start + offset, self.end + offset)

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and other.start < self.end

    def contains(self, other: Span) -> bool:
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True)
class Page:
    """Where a page begins. `number` counts the file's pages from 1, whatever is printed on them."""

    start: int
    number: int


@dataclass(frozen=True, slots=True)
class Heading:
    """Where a section begins (the heading's own first character), its level (1 = top) and title."""

    start: int
    level: int
    title: str


@dataclass(frozen=True, slots=True)
class Flag:
    """Something in a document that people should know: hidden text, text that addresses a model.

    `newer` is the source of the document that supersedes it, where that is known.
    """

    kind: str
    detail: str
    newer: str | None = None

    def words(self, name: Callable[[str], str] = str) -> str:
        """The detail, with the newer document's source as `name` gives it."""
        return self.detail if self.newer is None else f"{self.detail} in {name(self.newer)}"


@dataclass(frozen=True, slots=True)
class Revision:
    """Which revision of which document: comparable where `series` are equal, by `rank` as text.

    `label` is as people read it: "Revision C".
    """

    series: str
    rank: str
    label: str


@dataclass(frozen=True, slots=True)
class ParsedDocument:
    """What a reader makes of one file: cleaned text with its structure. Nothing is stored yet.

    `breaks` are offsets, ascending, at which a passage may begin: the first character of each
    paragraph, list item, table row or heading.
    """

    source: str
    title: str
    media_type: str
    text: str
    breaks: tuple[int, ...] = ()
    pages: tuple[Page, ...] = ()
    headings: tuple[Heading, ...] = ()
    flags: tuple[Flag, ...] = ()
    revision: Revision | None = None


@dataclass(frozen=True, slots=True)
class Document:
    """A document as the knowledge base holds it, without its text.

    `content_sha256` and `size` are of the file's bytes (of the text's UTF-8 for added texts);
    `added_at` is ISO 8601 in UTC.
    """

    id: int
    source: str
    title: str
    media_type: str
    content_sha256: str
    size: int
    characters: int
    passages: int
    added_at: str
    flags: tuple[Flag, ...] = ()

    @property
    def superseded(self) -> Flag | None:
        """Why the document is no longer in force: its own words, or which newer revision there is.

        None if it is in force, as far as is known.
        """
        return next((flag for flag in self.flags if flag.kind == SUPERSEDED), None)


@dataclass(frozen=True, slots=True, eq=False)
class Window:
    """A token-bounded slice of a passage, tokenised with the drafter's tokenizer.

    Attributes:
        id: of this window among those that one tokenizer cuts; ascending in the order of documents.
        span: its place in the document, code points.
        text: the stored text of that span.
        token_ids: int32 (n,), without special tokens.
        offsets: int32 (n, 2), each token's `[start, end)` in code points of `text`.
        passage: the place of the passage it lies in; `passage_text` is that passage's text.
        outline: what that passage lies under.
    """

    id: int
    document_id: int
    passage_id: int
    span: Span
    text: str
    token_ids: NDArray[np.int32] = field(repr=False)
    offsets: NDArray[np.int32] = field(repr=False)
    passage: Span
    passage_text: str = field(repr=False)
    outline: Outline

    def __len__(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True)
class RetrievedWindow:
    """A window and why it was chosen: its BM25 score (higher is better) and rank from 0."""

    window: Window
    score: float
    rank: int


@dataclass(frozen=True, slots=True)
class Citation:
    """The exact place of a quote. `page` and `heading_path` are absent where they are not known.

    `superseded` says why the document is no longer in force, if it is not: see `Document`.
    """

    document_id: int
    source: str
    title: str
    span: Span
    quote: str
    page: int | None = None
    heading_path: tuple[str, ...] = ()
    superseded: Flag | None = None
