"""RTF -> blocks: one paragraph a line, rows of tables, hidden runs apart."""

from __future__ import annotations

import re
from itertools import groupby

from runtime.errors import DamagedDocument
from runtime.readers.blocks import Block, RawDocument, table_blocks
from runtime.readers.context import Context
from runtime.readers.table_header import split_header
from runtime.readers.text import heading_level, is_item

_HIDDEN_GROUP = re.compile(r"\{(?:\\[a-z]+-?\d* ?)*\\v(?![a-z0-9])[^{}]*\}")
_CONTROL = re.compile(r"\\[a-z]+-?\d* ?|[{}]")
_TITLE = re.compile(r"\{\\title ([^{}\\]{1,200})\}")
_CODE_PAGE = re.compile(r"\\ansicpg(\d{3,5})")

_UNICODE = re.compile(r"\\u(-?\d+)")


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Paragraphs and table rows. RTF knows no pages before it is laid out, so none are given."""
    from striprtf.striprtf import rtf_to_text

    source = data.decode("latin-1")
    if source.count("{") > source.count("}") + 1:
        raise DamagedDocument("It is truncated", where=context.source)
    hidden: list[tuple[str, str]] = []

    def set_aside(match: re.Match[str]) -> str:
        hidden.append(("hidden text", _CONTROL.sub("", match.group())))
        return ""

    title = _TITLE.search(source)
    page = _CODE_PAGE.search(source)
    text: str = rtf_to_text(  # type: ignore[no-untyped-call]
        _HIDDEN_GROUP.sub(set_aside, _UNICODE.sub(_in_range, source)),
        encoding=f"cp{page.group(1)}" if page else "cp1252",
        errors="replace",
    )
    blocks: list[Block] = []
    for is_row, lines in groupby(text.split("\n"), key=lambda line: line.rstrip().endswith("|")):
        if is_row:
            rows = [line.rstrip().rstrip("|").split("|") for line in lines]
            header, body = split_header(rows)
            blocks += table_blocks(body, header=header)
        else:
            blocks += [_line(line) for line in lines]
    return [
        RawDocument("application/rtf", blocks, title=title.group(1) if title else "", hidden=hidden)
    ]


def _line(line: str) -> Block:
    if level := heading_level(line):
        return Block("heading", line, level)
    return Block("item" if is_item(line) else "paragraph", line)


def _in_range(match: re.Match[str]) -> str:
    """A character by its number; of a number that no character has, the replacement character."""
    number = match.group(1)
    known = len(number) <= 7 and -0x10000 <= int(number) <= 0x10FFFF
    return match.group() if known else r"\u65533"
