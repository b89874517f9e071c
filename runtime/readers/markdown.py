"""Markdown (CommonMark with tables) -> blocks."""

from __future__ import annotations

import re
from html import escape
from typing import Any

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
_ELEMENTS = frozenset(
    "a abbr acronym address applet area article aside audio b base bdi bdo big blockquote body "
    "br button canvas caption center cite code col colgroup data datalist dd del details dfn "
    "dialog dir div dl dt em embed fieldset figcaption figure font footer form frame frameset g "
    "h1 h2 h3 h4 h5 h6 head header hgroup hr html i iframe img input ins kbd label legend li "
    "link main map mark math menu meta meter nav nobr noscript object ol optgroup option output "
    "p param path picture pre progress q rp rt ruby s samp script search section select slot "
    "small source span strike strong style sub summary sup svg table tbody td template textarea "
    "tfoot th thead time title tr track tt u ul var video wbr".split()
)
# Elements without an end, or whose end may be left out.
_OPEN = frozenset("body br dd dt head hr html li option p tbody td tfoot th thead tr wbr".split())
_TAG = re.compile(r"</?([a-zA-Z][a-zA-Z0-9-]*)[^<>]*>")
_UNSEEN_TAG = re.compile(r"<(?:script|style)\b|<[^<>]*\s(?:style|hidden)\b", re.IGNORECASE)
_NESTING = 100  # levels of lists and quotes; deeper is read as text
_MARKERS = re.compile(r"^(?:[ \t]*(?:>|[-+*][ \t]))+", re.MULTILINE)
# A paragraph with more of these, or with brackets nested deeper, is plain text: the parser's time
# grows with their number times the length.
_MOST_SIGNS = 5000
_SIGNS = re.compile(r"[\[\]()*_~`<!&\\]")
_DEEPEST_BRACKET = 10


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
    parser = MarkdownIt("commonmark", {"maxNesting": _NESTING + 10})  # never reached
    parser.enable(["table", "strikethrough"])
    parser.block.ruler.before("table", "too_deep", _too_deep)
    parser.core.ruler.at("inline", _parse_inlines)
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


def _too_deep(state: Any, start: int, end: int, silent: bool) -> bool:
    """A rule of the block parser: what is nested too deeply is a paragraph, not left out."""
    if silent or state.level < _NESTING:
        return False
    stop = start + 1
    while stop < end and not state.isEmpty(stop) and state.sCount[stop] >= state.blkIndent:
        stop += 1
    text = _MARKERS.sub("", state.getLines(start, stop, state.blkIndent, False))
    state.push("paragraph_open", "p", 1)
    state.push("inline", "", 0).content = text.strip()
    state.push("paragraph_close", "p", -1)
    state.line = stop
    return True


def _parse_inlines(state: Any) -> None:
    """A rule of the parser: the text of each block -> its emphasis, links and so on."""
    for token in state.tokens:
        if token.type != "inline":
            continue
        token.children = []
        if _is_overloaded(token.content):
            plain = type(token)("text", "", 0, content=" ".join(token.content.split()))
            token.children.append(plain)
        else:
            state.md.inline.parse(token.content, state.md, state.env, token.children)


def _is_overloaded(text: str) -> bool:
    signs = _SIGNS.findall(text)
    if len(signs) > _MOST_SIGNS:
        return True
    depth = {"[": 0, "(": 0}
    for sign in signs:
        if sign in "[(":
            depth[sign] += 1
            if depth[sign] > _DEEPEST_BRACKET:
                return True
        elif sign in "])":
            opening = "[" if sign == "]" else "("
            depth[opening] = max(0, depth[opening] - 1)
    return False


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

        content = str(getattr(token, "content", ""))
        markup = _TAG.sub(lambda tag: tag.group() if _known(tag) else escape(tag.group()), content)
        found = html_blocks(markup, fragment=True)
        self.blocks += found.blocks
        self.hidden += found.hidden

    def _inline_text(self, token: object) -> str:
        children: list[object] = list(getattr(token, "children", None) or [])
        content = str(getattr(token, "content", ""))
        if _UNSEEN_TAG.search(content):
            return self._shown_text(children, content)
        parts: list[str] = []
        lowered = content.lower()
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
                elif not _is_markup(tag, lowered):
                    parts.append(tag)
        return "".join(parts)

    def _shown_text(self, children: list[object], content: str) -> str:
        """Text with tags that may hide some of it, read as HTML."""
        from runtime.readers.html import html_blocks

        parts: list[str] = []
        lowered = content.lower()
        for child in children:
            kind, text = getattr(child, "type", ""), str(getattr(child, "content", ""))
            if kind == "html_inline" and _is_markup(text, lowered):
                parts.append(text)
            elif kind == "image":
                parts.append(escape(self._inline_text(child)))
            else:
                parts.append({"softbreak": " ", "hardbreak": "<br>"}.get(kind) or escape(text))
        found = html_blocks("".join(parts), fragment=True)
        self.hidden += found.hidden
        return "\n".join(block.text for block in found.blocks)


def _known(tag: re.Match[str]) -> bool:
    """Whether it is a tag of HTML, or has attributes as only tags have; `<ENTER>` is text."""
    return tag.group(1).lower() in _ELEMENTS or "=" in tag.group()


def _is_markup(tag: str, lowered: str) -> bool:
    """Whether what looks like a tag is one: `<time>` is closed in the `lowered` line, or a word."""
    match = _TAG.match(tag)
    if match is None or "=" in tag:
        return True
    name = match.group(1).lower()
    if tag.startswith("</"):
        return name in _ELEMENTS or f"<{name}>" not in lowered
    return name in _ELEMENTS and (name in _OPEN or f"</{name}" in lowered)
