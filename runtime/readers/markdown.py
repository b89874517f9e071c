"""Markdown (CommonMark with tables) -> blocks."""

from __future__ import annotations

import re

from runtime.readers.blocks import Block, RawDocument, table_blocks
from runtime.readers.context import Context
from runtime.readers.text import decode
from runtime.safety import addresses_model

# Fields with their lists and indented values; anything else after a `---` is text under a line.
_FRONT_MATTER = re.compile(
    r"\A---[ \t]*\n((?:[\w.-]++:(?:[ \t][^\n]*+)?\n)"
    r"(?:(?:[\w.-]++:(?:[ \t][^\n]*+)?|(?:[ \t#\]}]|-[ \t])[^\n]*+|)\n)*?)"
    r"(?:---|\.\.\.)[ \t]*(?:\n|\Z)"
)
_FRONT_TITLE = re.compile(r"^title:[ \t]*[\"']?(.+?)[\"']?[ \t]*$", re.MULTILINE)
_FRONT_STATUS = re.compile(
    r"^(?:status|(?:superseded|replaced)[_-]by):[ \t]*\S.*$", re.MULTILINE | re.IGNORECASE
)
_NESTING = 100  # levels of lists and quotes; deeper is read as text


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Headings, paragraphs, items, tables and code of a Markdown text; its HTML is read as HTML."""
    from markdown_it import MarkdownIt

    text = decode(data, context).replace("\r\n", "\n").replace("\r", "\n")
    title = status = ""
    if front := _FRONT_MATTER.match(text):
        if named := _FRONT_TITLE.search(front.group(1)):
            title = named.group(1)
        status = "\n".join(_FRONT_STATUS.findall(front.group(1)))
        text = text[front.end() :]
    parser = MarkdownIt("commonmark", {"maxNesting": _NESTING}).enable(["table", "strikethrough"])
    collector = _Collector(context)
    for token in parser.parse(text):
        collector.take(token)
    return [
        RawDocument(
            "text/markdown",
            collector.blocks,
            title=title,
            hidden=collector.hidden,
            markup=True,
            status=status,
        )
    ]


class _Collector:
    """Walks the flat token stream and keeps the current kind of block."""

    def __init__(self, context: Context) -> None:
        self.blocks: list[Block] = []
        self.hidden: list[tuple[str, str]] = []
        self._context = context
        self._level = 0
        self._fresh_item = False
        self._markers: list[str] = []
        self._rows: list[list[str]] | None = None

    def take(self, token: object) -> None:
        kind = str(getattr(token, "type", ""))
        handler = getattr(self, f"_{kind}", None)
        if handler is not None:
            handler(token)

    def _heading_open(self, token: object) -> None:
        self._level = int(str(getattr(token, "tag", "h1"))[1:])

    def _ordered_list_open(self, token: object) -> None:
        attributes = getattr(token, "attrs", {})
        self._markers.append(str(attributes.get("start", 1)))

    def _bullet_list_open(self, _: object) -> None:
        self._markers.append("-")

    def _ordered_list_close(self, _: object) -> None:
        self._markers.pop()

    _bullet_list_close = _ordered_list_close

    def _list_item_open(self, token: object) -> None:
        self._fresh_item = True
        info = str(getattr(token, "info", ""))
        if info:
            self._markers[-1] = info

    def _table_open(self, _: object) -> None:
        self._rows = []

    def _tr_open(self, _: object) -> None:
        if self._rows is not None:
            self._rows.append([])

    def _table_close(self, _: object) -> None:
        rows = self._rows or []
        self._rows = None
        if not rows:
            return
        header = rows[0] if any(rows[0]) else None
        body = rows[1:] if header else rows
        self.blocks += table_blocks(body or [rows[0]], header=header if body else None)

    def _inline(self, token: object) -> None:
        text = self._inline_text(token)
        if self._rows is not None:
            self._rows[-1].append(text)
        elif self._level:
            self.blocks.append(Block("heading", text, self._level))
            self._level = 0
        elif self._markers:
            marker = self._markers[-1]
            prefix = f"{marker}{'' if marker == '-' else '.'} " if self._fresh_item else ""
            self.blocks.append(Block("item", prefix + text))
            self._fresh_item = False
        else:
            self.blocks.append(Block("paragraph", text))

    def _fence(self, token: object) -> None:
        self.blocks.append(Block("code", str(getattr(token, "content", ""))))

    _code_block = _fence

    def _html_block(self, token: object) -> None:
        from runtime.readers.html import html_blocks

        found = html_blocks(str(getattr(token, "content", "")), fragment=True)
        self.blocks += found.blocks
        self.hidden += found.hidden

    def _inline_text(self, token: object) -> str:
        parts: list[str] = []
        children: list[object] = list(getattr(token, "children", None) or [])
        for child in children:
            kind = getattr(child, "type", "")
            if kind in ("text", "code_inline"):
                parts.append(str(getattr(child, "content", "")))
            elif kind == "softbreak":
                parts.append(" ")
            elif kind == "hardbreak":
                parts.append("\n")
            elif kind == "image":
                parts.append(self._inline_text(child))
            elif kind == "html_inline":
                tag = str(getattr(child, "content", ""))
                if tag.startswith("<!--") and addresses_model(tag):
                    self.hidden.append(("comment", tag[4:-3]))
                elif tag.lower().startswith("<br"):
                    parts.append("\n")
        return "".join(parts)
