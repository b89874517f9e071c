"""Blocks of one file -> a `ParsedDocument`: clean text with the places of its structure.

A format's reader says what follows what; this module cleans each block, drops empty ones, and
records the offsets of paragraphs, headings and pages while it appends, so that every offset is of
the text as it is stored.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Literal

from runtime.cleaning import (
    Vocabulary,
    append_line,
    clean_block,
    clean_characters,
    clean_code,
    is_clean,
    smuggled_text,
    smuggling_characters,
    strip_markup,
    tidy,
)
from runtime.documents import Flag, Heading, Page, ParsedDocument
from runtime.flags import HIDDEN
from runtime.readers.table_header import clean_cells
from runtime.revisions import revision_of
from runtime.safety import text_flags
from runtime.supersession import superseded_flag

BlockKind = Literal["paragraph", "heading", "item", "row", "code"]
_TITLE_LENGTH = 200  # characters kept of a title
INVISIBLE = "invisible Unicode characters"  # why a text was hidden


@dataclass(slots=True)
class Block:
    """A piece of a document.

    Attributes:
        text: as the file has it; cleaned here.
        level: of a heading, 1 = top.
        page: the file's page it begins on, from 1; None where it is not known.
        continues: the text goes on from the block before it (a paragraph across two pages); `glue`
            stands between the two.
    """

    kind: BlockKind
    text: str
    level: int = 0
    page: int | None = None
    continues: bool = False
    glue: str = " "


def join_blocks(last: Block, first: Block, vocabulary: Vocabulary) -> None:
    """Make `first`, at the top of a page or column, go on from `last` without a break."""
    parts = [last.text]
    first.glue = append_line(parts, first.text, vocabulary)
    first.continues = True
    last.text = parts[0]


@dataclass(slots=True)
class RawDocument:
    """What a format's reader found in one file, before cleaning.

    Attributes:
        member: its place inside an archive or e-mail, empty for the file itself.
        hidden: texts that people do not see, left out of `blocks`, each with the reason.
        markup: whether leftover HTML tags and entities may be removed from its blocks.
        status: what its metadata say of its standing, such as `status: archived`.
        is_clean: the characters of its blocks are as `clean_characters` leaves them.
    """

    media_type: str
    blocks: list[Block]
    title: str = ""
    member: str = ""
    hidden: list[tuple[str, str]] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)
    markup: bool = False
    status: str = ""
    is_clean: bool = False


def assemble(raw: RawDocument, source: str) -> ParsedDocument:
    """Clean and join the blocks. Rows and items of a list follow each other on the next line."""
    parts: list[str] = []
    breaks: list[int] = []
    pages: list[Page] = []
    headings: list[Heading] = []
    hidden = [*raw.hidden]
    offset = 0
    before: BlockKind | None = None
    is_plain = raw.is_clean or (
        not raw.markup and is_clean("".join([block.text for block in raw.blocks]))
    )
    for block in raw.blocks:
        if not is_plain and (smuggled := smuggled_text(block.text)):
            hidden.append((INVISIBLE, smuggled))
        text = _clean(block, raw.markup, is_plain)
        if not text:
            continue
        separator = _separator(before, block)
        offset += len(separator)
        if before is None:
            text = text.lstrip()
        if not (block.continues and before):
            breaks.append(offset + len(text) - len(text.lstrip()))  # code may be indented
        if block.page is not None and (not pages or pages[-1].number != block.page):
            pages.append(Page(offset, block.page))
        if block.kind == "heading":
            headings.append(Heading(offset, max(1, block.level), text))
        parts += (separator, text)
        offset += len(text)
        before = block.kind
    stored = "".join(parts)
    hidden_flags = [Flag(HIDDEN, f"{why}: {_excerpt(text)}") for why, text in _merged(hidden)]
    found = text_flags(stored, [text for _, text in hidden])
    title = _title(raw, headings, source)
    if (old := superseded_flag(title, raw.status, stored)) is not None:
        found.append(old)
    return ParsedDocument(
        source=source,
        title=title,
        media_type=raw.media_type,
        text=stored,
        breaks=tuple(breaks),
        pages=tuple(pages),
        headings=tuple(headings),
        flags=tuple(dict.fromkeys([*raw.flags, *hidden_flags, *found])),
        revision=revision_of(title, source, raw.media_type, stored, raw.status),
    )


def table_blocks(
    rows: Sequence[Sequence[str]], *, header: Sequence[str] | None, page: int | None = None
) -> list[Block]:
    """A table as one line per row: `Header: value; Header: value`.

    Args:
        rows: cells, without the header row; empty cells are left out of the line.
        header: names of the columns, not yet cleaned. Where there are none, a table of two columns
            reads `first: second` and others `first; second; third`.
    """
    names = None if header is None else clean_cells(header)
    lines = [smuggling_characters("".join(header or ()))]  # hidden by `assemble`, and told there
    lines += [
        _row_line(clean_cells(row), names) + smuggling_characters("".join(row)) for row in rows
    ]
    return [Block("row", line, page=page) for line in lines if line]


def _row_line(cells: Sequence[str], header: Sequence[str] | None) -> str:
    if not any(cells):
        return ""
    if header is None:
        if len(cells) == 2 and all(cells):
            return f"{cells[0].rstrip(':')}: {cells[1]}"
        return "; ".join(cell for cell in cells if cell)
    parts = []
    for index, cell in enumerate(cells):
        name = header[index].rstrip(":") if index < len(header) else ""
        if cell:
            parts.append(f"{name}: {cell}" if name else cell)
    return "; ".join(parts)


def _clean(block: Block, markup: bool, is_plain: bool) -> str:
    """The block's text as it is stored; `is_plain`: its characters are known to be clean."""
    if block.kind == "code":
        return clean_code(block.text)
    text = strip_markup(block.text) if markup else block.text
    text = text if is_plain else clean_characters(text)
    return " ".join(text.split()) if block.kind in ("heading", "row") else tidy(text)


def _separator(before: BlockKind | None, block: Block) -> str:
    if before is None:
        return ""
    if block.continues:
        return block.glue
    return "\n" if before == block.kind and block.kind in ("row", "item") else "\n\n"


def _title(raw: RawDocument, headings: Sequence[Heading], source: str) -> str:
    given = " ".join(clean_block(raw.title).split())
    if not given and headings:
        given = min(headings, key=lambda heading: (heading.level, heading.start)).title
    if not given:
        given = clean_block(PurePath(raw.member or source).stem.replace("_", " "))
    return given[:_TITLE_LENGTH]


def _merged(hidden: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """One entry a reason: its texts joined."""
    merged: dict[str, list[str]] = {}
    for why, text in hidden:
        if text.strip():
            merged.setdefault(why, []).append(text.strip())
    return [(why, " ".join(texts)) for why, texts in merged.items()]


def perhaps_white(text: str) -> Flag:
    """Of white text that may stand on a colour: it is kept, and we say so."""
    return Flag(HIDDEN, f"white, perhaps on white: {' '.join(text.split())[:160]}")


def _excerpt(text: str, length: int = 160) -> str:
    text = " ".join(clean_block(text).split())
    return text if len(text) <= length else text[: length - 1] + "…"
