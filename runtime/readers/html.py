"""HTML -> blocks of its main content: navigation, scripts, forms and hidden text stay out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from runtime.documents import Flag
from runtime.errors import DamagedDocument, DocumentTooLarge
from runtime.readers.blocks import Block, BlockKind, RawDocument, perhaps_white, table_blocks
from runtime.readers.context import Context
from runtime.readers.equations import exponent
from runtime.readers.styles import (
    Declarations,
    StyleSheet,
    paints,
    transparent,
    whiteness,
    why_hidden,
)
from runtime.readers.table_header import split_header
from runtime.readers.text import decode
from runtime.safety import addresses_model

_DROPPED = frozenset(
    [
        "script",
        "style",
        "noscript",
        "template",
        "nav",
        "iframe",
        "object",
        "embed",
        "svg",
        "canvas",
        "audio",
        "video",
        "map",
        "button",
        "select",
        "datalist",
        "input",
        "textarea",
        "head",
        "meta",
        "link",
        "math-src",
        "progress",
        "meter",
        "dialog",
    ]
)
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "aside",
        "blockquote",
        "body",
        "center",
        "dd",
        "details",
        "div",
        "dl",
        "dt",
        "fieldset",
        "figcaption",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "header",
        "hgroup",
        "hr",
        "html",
        "li",
        "main",
        "ol",
        "p",
        "pre",
        "section",
        "summary",
        "table",
        "tbody",
        "td",
        "tfoot",
        "th",
        "thead",
        "tr",
        "ul",
        "caption",
    ]
)
_ROLES = frozenset(
    ["navigation", "banner", "contentinfo", "search", "menu", "menubar", "toolbar", "dialog"]
)
_FURNITURE = re.compile(
    r"^(?:(?:[\w]+[-_])?(?:nav|navbar|navigation|menu|breadcrumbs?|sidebar|pagination|pager|toc)"
    r"(?:[-_](?:bar|panel|menu|list|links?|wrapper|container|nav))?|(?:site|page|global)[-_]?(?:header|"
    r"footer)|footer|masthead|cookie[-_]?(?:banner|notice|consent|bar)?s?|skip[-_]?(?:link|nav)s?|"
    r"(?:social|shar(?:e|ing))(?:[-_]?(?:bar|box|buttons?|icons?|links?|list|media|menu|nav|this|tools?|"
    r"widget))?|advert(?:s|isements?|ising)?(?:[-_](?:box|banner|container|wrapper))?|ads?|"
    r"newsletters?(?:[-_]?(?:box|form|sign-?up|subscribe|subscription))?|related[-_]?(?:posts|links)|"
    r"sphinxsidebar|headerlink|sphinxsidebarwrapper|noprint|navfooter|navheader)$",
    re.IGNORECASE,
)
# Elements whose `id` may tell what they are for; of others it is the target of links to a topic.
_BOXES = frozenset("aside div dl footer form header ol section table ul".split())
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_LEAST_PROSE = 20  # characters outside links and headings
_NOTE = re.compile(
    r"(?:^|[-_\s:])(?:notes?|(?:foot|end|rear|side|margin)-?notes?|tips?|hints?|warnings?|cautions?|"
    r"danger|important|attention|notices?|alerts?|admonitions?|call-?outs?|examples?)(?:$|[-_\s])",
    re.IGNORECASE,
)
_NOTE_BEGINS = re.compile(
    r"\s*(?:note|tip|hint|warning|caution|danger|important|attention|notice|hinweis|tipp|warnung|"
    r"vorsicht|gefahr|achtung|wichtig)\b",
    re.IGNORECASE,
)
_READER_ONLY = re.compile(r"^(?:sr-only|visually-?hidden|screen-?reader(?:-text|-only)?)$", re.I)
_CHARSET = re.compile(rb"<meta[^>]{0,200}charset\s*=\s*[\"']?\s*([\w.:-]{2,40})", re.IGNORECASE)
_XML_DECLARATION = re.compile(r"^\s*<\?xml[^>]*\?>")
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{0,100}encoding\s*=\s*[\"']([\w.:-]{2,40})[\"']")
_MOST_CELLS = 200  # columns of a table


@dataclass(slots=True)
class HtmlContent:
    """Blocks of a page, its title, and the texts on it that people do not see."""

    blocks: list[Block] = field(default_factory=list)
    title: str = ""
    hidden: list[tuple[str, str]] = field(default_factory=list)
    flags: list[Flag] = field(default_factory=list)


def read(data: bytes, context: Context) -> list[RawDocument]:
    """The main content of a page."""
    found = html_blocks(html_text(data, context))
    return [
        RawDocument(
            "text/html",
            found.blocks,
            title=found.title,
            hidden=found.hidden,
            flags=found.flags,
            markup=True,
        )
    ]


def html_text(data: bytes, context: Context) -> str:
    """A page's bytes as text: byte order mark, UTF-8, declared encoding, likeliest one."""
    if not data.startswith((b"\xff\xfe", b"\xfe\xff")):
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            pass
        declared = _CHARSET.search(data[:4096]) or _XML_ENCODING.search(data[:200])
        if declared:
            try:
                return data.decode(declared.group(1).decode("ascii"), "replace")
            except (LookupError, UnicodeDecodeError):
                pass
    return decode(data, context)


def html_blocks(markup: str, *, fragment: bool = False) -> HtmlContent:
    """Blocks of a page, or of a fragment (no search for its main content).

    Raises:
        DocumentTooLarge: it is nested too deeply.
        DamagedDocument: it is not HTML.
    """
    root = _parse(markup)
    if root is None:
        return HtmlContent()
    sheet = StyleSheet()
    for style in root.iter("style"):
        sheet.add(style.text or "")
    title = next(root.iter("title"), None)
    content = HtmlContent(
        title="" if title is None else " ".join("".join(title.itertext()).split())
    )
    for comment in root.iter(_comment_type()):
        if comment.text and addresses_model(comment.text):
            content.hidden.append(("comment", comment.text))
    total = sum(len(text) for text in root.itertext() if text) or 1
    start = root if fragment else _main(root, total)
    _Walker(sheet, content, total, whole_page=not fragment).walk(start)
    if not content.blocks and start is not root:
        _Walker(sheet, content, total, whole_page=True).walk(root)
    return content


def _parse(markup: str) -> Any:
    from lxml import etree, html

    markup = _XML_DECLARATION.sub("", markup.replace("\x00", ""), count=1)
    # Lone surrogates cannot be handed to the parser.
    markup = markup.encode("utf-8", "replace").decode("utf-8")
    if not markup.strip():
        return None
    parser = html.HTMLParser(encoding="utf-8", huge_tree=True, remove_pis=True, no_network=True)
    try:
        root = html.document_fromstring(markup.encode("utf-8"), parser=parser)
    except (etree.ParserError, etree.XMLSyntaxError) as error:
        if "empty" in str(error).lower():
            return None
        raise DamagedDocument("It is not readable as HTML") from error
    # libxml2 gives up at 2048 levels and leaves out the rest of the page, without an exception.
    if any("Excessive depth" in entry.message for entry in parser.error_log):
        raise DocumentTooLarge("It is nested too deeply", fix="Save it as plain text and add that.")
    return root


def _comment_type() -> Any:
    from lxml import etree

    return etree.Comment


def _main(root: Any, total: int) -> Any:
    """The element that holds the content: a `main` or a single `article` with enough text."""
    mains = [e for e in root.iter() if e.tag == "main" or e.get("role") == "main"]
    articles = list(root.iter("article"))
    for candidates in (mains, articles):
        if len(candidates) == 1 and _length(candidates[0]) >= 0.2 * total:
            return candidates[0]
    body = root.find("body")
    return root if body is None else body


def _length(element: Any) -> int:
    return sum(len(text) for text in element.itertext() if text)


@dataclass(frozen=True, slots=True)
class _Look:
    """What an element's text looks like: in white (or clear), and on a background that shows it."""

    white: bool = False
    backed: bool = False


@dataclass(slots=True)
class _Table:
    """A table of data being read.

    Attributes:
        before: the page's blocks so far; what is read meanwhile is the text of a cell.
        prefix: the marker of the list item that the table begins.
        rows: texts of the cells, spans filled in.
        named: of each row, whether it consists of names (`th`).
        cells: of the row being read, with their texts.
        spans: column -> rows that its cell still fills, and its text.
    """

    before: list[Block]
    prefix: str
    caption: str = ""
    rows: list[list[str]] = field(default_factory=list)
    named: list[bool] = field(default_factory=list)
    cells: list[tuple[Any, str]] = field(default_factory=list)
    spans: dict[int, tuple[int, str]] = field(default_factory=dict)

    def end_row(self) -> None:
        """The cells become a row; where all of them are hidden there is none."""
        if self.cells:
            self.named.append(all(cell.tag == "th" for cell, _ in self.cells))
            self.rows.append(list(_row_cells(self.cells, self.spans)))
            self.cells.clear()

    def blocks(self) -> list[Block]:
        """The caption and a line for each row."""
        found = [Block("paragraph", self.caption)] if self.caption else []
        if len(self.rows) > 1 and self.named[0]:
            return found + table_blocks(self.rows[1:], header=self.rows[0])
        header, body = split_header(self.rows)
        return found + table_blocks(body, header=header)


class _Walker:
    """Collects blocks in document order, without recursion: pages may nest without end."""

    def __init__(
        self, sheet: StyleSheet, content: HtmlContent, total: int, *, whole_page: bool
    ) -> None:
        self._sheet = sheet
        self._external = False  # whether backgrounds may be set where we cannot look
        self._content = content
        self._total = total
        self._whole_page = whole_page
        self._parts: list[str] = []
        self._kind: BlockKind = "paragraph"
        self._level = 0
        self._prefix = ""
        self._lists: list[list[int]] = []  # for each open list: [next number], 0 for bullets
        self._items = 0
        self._pre = 0
        self._raised = 0  # elements `sup` that are open
        self._looks = [_Look()]  # of the page, then of each open element
        self._unseen: list[str] = []  # texts in white on white
        self._table: _Table | None = None

    def walk(self, root: Any) -> None:
        from lxml import etree

        for ancestor in reversed(list(root.iterancestors())):
            self._looks.append(_look(ancestor, self._style(ancestor), self._looks[-1]))
        links = root.getroottree().iter("link")
        linked = any("stylesheet" in (link.get("rel") or "").lower() for link in links)
        self._external = linked or self._sheet.unknown_backgrounds
        walk = etree.iterwalk(root, events=("start", "end", "comment", "pi"))
        skipped: Any = None
        for event, element in walk:
            if event == "start":
                if self._start(element, root):
                    walk.skip_subtree()
                    skipped = element
                continue
            if event == "end" and element is not skipped:
                self._end(element)
            if element is skipped:
                skipped = None
            if element is not root:
                self._add(element.tail)
        self._flush()
        self._note_unseen()

    def _start(self, element: Any, root: Any) -> bool:
        """Open an element; True to leave out what is inside."""
        tag = element.tag
        if tag in _DROPPED:
            return True
        if self._table is None and element is not root and self._is_furniture(element):
            return True
        style = self._style(element)
        if self._hides(element, style):
            if self._table and tag in ("td", "th") and not _leaves_no_gap(element, style):
                self._table.cells.append((element, ""))
            return True
        if tag in _BLOCKS:
            self._flush()
        if tag == "table" and _holds_data(element):
            self._table = _Table(self._content.blocks, self._prefix)
            self._content.blocks, self._prefix = [], ""
        self._looks.append(_look(element, style, self._looks[-1]))
        self._open(tag, element)
        self._add(element.text)
        return False

    def _style(self, element: Any) -> Declarations:
        classes = (element.get("class") or "").split()
        inline, identifier = element.get("style") or "", element.get("id") or ""
        return self._sheet.of(element.tag, classes, identifier, inline)

    def _open(self, tag: str, element: Any) -> None:
        if tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            self._kind, self._level = "heading", int(tag[1])
        elif tag in ("ul", "ol"):
            self._lists.append([_number(element.get("start"), 1) if tag == "ol" else 0])
        elif tag == "li":
            self._items += 1
            self._kind = "item"
            self._prefix = self._marker()
        elif tag in ("dt", "dd"):
            self._kind = "item"
        elif tag == "pre":
            self._pre += 1
            self._kind = "code"
        elif tag == "sup":
            self._raised += 1
        elif tag == "br":
            self._parts.append("\n")
        elif tag == "img" and (element.get("alt") or "").strip() and len(element.get("alt")) > 15:
            self._parts.append(f" {element.get('alt')} ")
        elif tag in ("td", "th"):
            self._parts.append(" ")

    def _end(self, element: Any) -> None:
        tag = element.tag
        self._looks.pop()
        if tag == "sup":
            self._raised -= 1
        if tag not in _BLOCKS:
            return
        self._flush()
        if tag in ("ul", "ol") and self._lists:
            self._lists.pop()
        elif tag == "li":
            self._items = max(0, self._items - 1)
        elif tag == "pre":
            self._pre = max(0, self._pre - 1)
        if self._table is not None:
            self._end_in_table(self._table, element)
        self._kind = "code" if self._pre else "item" if self._items else "paragraph"

    def _end_in_table(self, table: _Table, element: Any) -> None:
        if element.tag in ("td", "th"):
            table.cells.append((element, self._taken()))
        elif element.tag == "caption":
            table.caption = self._taken()
        elif element.tag == "tr":
            table.end_row()
        elif element.tag == "table":
            table.end_row()
            stray, self._content.blocks = self._content.blocks, table.before
            self._content.blocks += stray + table.blocks()
            self._prefix = table.prefix
            self._table = None

    def _taken(self) -> str:
        """The text of a cell or caption that ends, taken out of the blocks."""
        text = " ".join(block.text for block in self._content.blocks)
        self._content.blocks.clear()
        return " ".join(text.split())

    def _marker(self) -> str:
        if not self._lists or not self._lists[-1][0]:
            return "- "
        self._lists[-1][0] += 1
        return f"{self._lists[-1][0] - 1}. "

    def _add(self, text: str | None) -> None:
        if not text:
            return
        look = self._looks[-1]
        if look.white and not look.backed:
            self._unseen.append(text)
            if not self._external:
                return
        shown = exponent(text) if self._raised else text
        self._parts.append(shown if self._pre else re.sub(r"[ \t\r\n\f]+", " ", shown))

    def _note_unseen(self) -> None:
        text = " ".join("".join(self._unseen).split())
        if text and self._external:
            self._content.flags.append(perhaps_white(text))
        elif text:
            self._content.hidden.append(("white on white", text))

    def _flush(self) -> None:
        if self._unseen:
            self._unseen.append("\n")
        text = "".join(self._parts)
        self._parts.clear()
        if text.strip():
            if self._kind != "code":
                text = text.strip()
            self._content.blocks.append(Block(self._kind, self._prefix + text, self._level))
            self._prefix = ""

    def _is_furniture(self, element: Any) -> bool:
        if not self._whole_page or element.tag in ("body", "main", "article", "html"):
            return False
        if element.tag == "aside" and not _is_note(element):
            return True
        named = any(_FURNITURE.match(name) for name in (element.get("class") or "").split())
        if not named and element.tag in _BOXES and _FURNITURE.match(element.get("id") or ""):
            named = not _has_topic(element)
        site_edge = element.tag in ("header", "footer") and not _inside_section(element)
        if site_edge and element.tag == "header" and element.find(".//h1") is not None:
            site_edge = False
        role = element.get("role") in _ROLES
        if not (named or site_edge or role or _mostly_links(element)):
            return False
        return _length(element) <= 0.4 * self._total

    def _hides(self, element: Any, style: Declarations) -> bool:
        """Whether people do not see an element, colours aside; what is left out is noted."""
        why = why_hidden(style) if style else None
        if why is None and element.get("hidden") is not None:
            why = "hidden attribute"
        classes = (element.get("class") or "").split()
        reader_only = any(_READER_ONLY.match(name) for name in classes)
        if why is None and not reader_only:
            return False
        text = " ".join("".join(element.itertext()).split())
        if text and ((why is not None and not reader_only) or addresses_model(text)):
            self._content.hidden.append((why or "for screen readers only", text))
        return True


def _look(element: Any, style: Declarations, outside: _Look) -> _Look:
    """An element's colours; those that it does not set are inherited."""
    color = style.get("color", "") or (element.get("color") or "").lower()
    white = outside.white
    if color and color not in ("inherit", "unset", "currentcolor"):
        white = transparent(color) or (whiteness(color) or 0.0) >= 0.97
    backed = outside.backed or paints(style, element.get("bgcolor") or "")
    return outside if (white, backed) == (outside.white, outside.backed) else _Look(white, backed)


def _leaves_no_gap(cell: Any, style: Declarations) -> bool:
    """Whether a hidden cell takes no column: the next one moves to its place."""
    return style.get("display") == "none" or cell.get("hidden") is not None


def _is_note(aside: Any) -> bool:
    """Whether an aside is a note, tip, warning or footnote: by its names, or its first word."""
    names = (aside.get(name) or "" for name in ("class", "role", "epub:type"))
    if any(_NOTE.search(name) for name in names):
        return True
    words = (text for text in aside.itertext() if text.strip())
    return _NOTE_BEGINS.match(next(words, "")) is not None


def _has_topic(element: Any) -> bool:
    """Whether it is a section of the text: with a heading of its own on top, and prose under it.

    Generators make a section's `id` from its heading: `menu` of "Menu", `navigation`. A `div` may
    be a box of the site with a heading; there the heading has to say what the `id` says.
    """
    heading = _first_heading(element)
    if heading is None:
        return False
    if element.tag != "section" and "section" not in (element.get("class") or "").split():
        words = "-".join(re.findall(r"\w+", "".join(heading.itertext()).lower()))
        if element.get("id").lower().replace("_", "-") not in words:
            return False
    linked = sum(_length(link) for link in element.iter("a") if link.get("href"))
    return _length(element) - _length(heading) - linked >= max(_LEAST_PROSE, linked)


def _first_heading(element: Any) -> Any:
    """The heading that an element's text begins with, or None."""
    for part in element.iter("*"):
        if part.tag in _HEADINGS:
            return part
        if (part.text or "").strip():
            return None
    return None


def _inside_section(element: Any) -> bool:
    return any(parent.tag in ("article", "main", "section") for parent in element.iterancestors())


def _mostly_links(element: Any) -> bool:
    """A list or box of five links or more and hardly anything else, each a few words."""
    if element.tag not in ("ul", "ol", "div", "p", "table", "dl"):
        return False
    links = [link for link in element.iter("a") if link.get("href")]
    if len(links) < 5:
        return False
    linked = sum(len(" ".join("".join(link.itertext()).split())) for link in links)
    everything = len(" ".join("".join(element.itertext()).split())) or 1
    return linked >= 0.75 * everything and linked / len(links) < 40


def _holds_data(table: Any) -> bool:
    """Whether a table is one of data, with two columns or more; others only lay out."""
    if table.find(".//table") is not None or table.get("role") == "presentation":
        return False
    if next(table.iter("h1", "h2", "ul", "ol", "pre", "form"), None) is not None:
        return False
    return any(
        sum(_number(cell.get("colspan"), 1) for cell in row.iterchildren("td", "th")) >= 2
        for row in table.iter("tr")
    )


def _row_cells(
    cells: Sequence[tuple[Any, str]], spans: dict[int, tuple[int, str]]
) -> Iterator[str]:
    column = 0
    for cell, text in cells:
        while column in spans and column < _MOST_CELLS:
            yield from _spanned(spans, column)
            column += 1
        down = min(_number(cell.get("rowspan"), 1), 1000)
        for extra in range(min(_number(cell.get("colspan"), 1), _MOST_CELLS)):
            if column >= _MOST_CELLS:
                return
            if down > 1:
                spans[column] = (down - 1, text)
            yield text if extra == 0 else ""
            column += 1
    while column in spans and column < _MOST_CELLS:
        yield from _spanned(spans, column)
        column += 1


def _spanned(spans: dict[int, tuple[int, str]], column: int) -> Iterator[str]:
    left, text = spans[column]
    if left > 1:
        spans[column] = (left - 1, text)
    else:
        del spans[column]
    yield text


def _number(text: str | None, default: int) -> int:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 7 else default
