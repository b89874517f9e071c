"""A parsed document -> its passages: contiguous slices, cut at natural breaks, that are retrieved.

Sizes are in bytes of UTF-8, so that scripts which say more per character get fewer of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from runtime.documents import ParsedDocument, Span
from runtime.sentences import sentence_spans


@dataclass(frozen=True, slots=True)
class PassageOptions:
    """Sizes in bytes of UTF-8.

    Attributes:
        target: small blocks are merged up to this size.
        longest: a paragraph up to this size stays whole; a longer one is cut at sentence ends.
        tiny: a section below this size is merged with the next one, even across a heading.
    """

    target: int = 1_000
    longest: int = 2_000
    tiny: int = 200


@dataclass(slots=True)
class _Block:
    start: int
    size: int
    level: int  # of the heading it begins with; 0 without one


def cut_passages(document: ParsedDocument, options: PassageOptions | None = None) -> list[Span]:
    """Passages in order; joined, their texts are the document's text.

    A heading stays with the text that follows it, and a passage crosses into another section only
    where the section it comes from is tiny (twice as large for headings below the second level).
    """
    options = options or PassageOptions()
    passages: list[Span] = []
    start, size, only_headings = 0, 0, True
    for block in _blocks(document, options):
        if block.level:
            limit = options.tiny if block.level <= 2 else 2 * options.tiny
            full = size >= limit
        else:
            full = size + block.size > options.target
        if full and not only_headings:
            passages.append(Span(start, block.start))
            start, size, only_headings = block.start, 0, True
        size += block.size
        only_headings = only_headings and block.level > 0
    if start < len(document.text):
        passages.append(Span(start, len(document.text)))
    return passages


def _blocks(document: ParsedDocument, options: PassageOptions) -> Iterator[_Block]:
    """The document between its breaks; blocks that are too long are cut at sentence ends."""
    text = document.text
    levels = {heading.start: heading.level for heading in document.headings}
    inside = {at for at in (*document.breaks, *levels) if 0 < at < len(text)}
    for start, end in pairwise(sorted({0, *inside, len(text)})):
        size = _size(text[start:end])
        level = levels.get(start, 0)
        if size <= options.longest:
            yield _Block(start, size, level)
            continue
        for piece in _pieces(text, Span(start, end), size, options):
            yield _Block(piece.start, _size(piece.of(text)), level if piece.start == start else 0)


def _pieces(text: str, block: Span, size: int, options: PassageOptions) -> Iterator[Span]:
    """`block` in about equal pieces near the target size, cut where sentences (or words) begin."""
    share = size / -(-size // options.target)
    start, filled = block.start, 0
    for unit in _units(text, block, options):
        unit_size = _size(unit.of(text))
        if filled and filled + unit_size / 2 > share:
            yield Span(start, unit.start)
            start, filled = unit.start, 0
        filled += unit_size
    yield Span(start, block.end)


def _units(text: str, block: Span, options: PassageOptions) -> Iterator[Span]:
    """Contiguous sentences of `block`; endless ones are cut at white space or else hard."""
    starts = [span.start for span in sentence_spans(block.of(text))][1:]
    bounds = [block.start, *(block.start + start for start in starts), block.end]
    for begin, end in pairwise(bounds):
        start = begin
        while _size(text[start:end]) > options.target:
            reach = start + max(1, options.target // 4)
            space = text.rfind(" ", start + 1, reach)
            cut = space + 1 if space > 0 else reach
            yield Span(start, cut)
            start = cut
        yield Span(start, end)


def _size(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
