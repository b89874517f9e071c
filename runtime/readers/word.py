"""DOCX -> blocks: headings by style, lists, tables row by row, foot- and endnotes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from typing import Any

from runtime.errors import DamagedDocument
from runtime.readers.blocks import Block, RawDocument, table_blocks
from runtime.readers.context import Context
from runtime.readers.equations import exponent, linear, symbol, word_symbol
from runtime.readers.packages import check_package
from runtime.readers.table_header import join_header, split_header

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_HEADING_STYLE = re.compile(
    r"^(?:heading|überschrift|titre|título|titolo|kop|заголовок|标题|見出し)\s*([1-9])$", re.I
)
_CONTENTS_STYLE = re.compile(
    r"^(?:toc|verzeichnis|tm|inhopg|sommario|tdc)\s*(?:[1-9]|heading)$", re.I
)
_LIST_STYLE = re.compile(r"^(?:list|liste|lista|elenco|lijst)\b", re.I)
_TEXT_TAGS = (
    *(f"{_W}{tag}" for tag in ("t", "tab", "br", "cr", "noBreakHyphen", "softHyphen", "sym")),
    f"{_M}oMath",
)
_PRIVATE = re.compile("[\uf020-\uf0ff]")  # where symbol fonts have their letters
_DEEPEST = 20  # tables in tables


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Blocks of the body in order; headers and footers of pages stay out."""
    import docx
    from docx.opc.exceptions import PackageNotFoundError

    check_package(data, context)
    try:
        document = docx.Document(io.BytesIO(data))
    except (PackageNotFoundError, KeyError, ValueError) as error:
        raise DamagedDocument("It is not a readable Word document", where=context.source) from error
    reader = _Reader(document)
    blocks = list(reader.blocks(document.element.body))
    blocks += reader.notes()
    title = (document.core_properties.title or "").strip() or reader.title
    return [RawDocument(MEDIA_TYPE, blocks, title=title, hidden=reader.hidden)]


class _Reader:
    """Walks the body's elements; styles and numbering are looked up once."""

    def __init__(self, document: Any) -> None:
        self.hidden: list[tuple[str, str]] = []
        self.title = ""
        self._package = document.part.package
        self._styles = {
            style.style_id: style for style in document.styles if style.type == 1 and style.style_id
        }
        self._levels: dict[str, int] = {}
        self._ordered = _ordered_lists(document)
        self._counters: dict[tuple[str, str], int] = {}

    def blocks(self, parent: Any, depth: int = 0) -> Iterator[Block]:
        if depth > _DEEPEST:
            return
        for element in parent:
            tag = element.tag
            if tag == f"{_W}p":
                yield from self._paragraph(element, depth)
            elif tag == f"{_W}tbl":
                yield from self._table(element, depth)
            elif tag in (f"{_W}sdt", f"{_W}ins", f"{_W}customXml"):
                content = element.find(f"{_W}sdtContent")
                if content is None:
                    content = element
                if not _is_contents(element):
                    yield from self.blocks(content, depth + 1)

    def notes(self) -> Iterator[Block]:
        """Foot- and endnotes, after the body: where each belongs on a page is not known."""
        for part in self._package.iter_parts():
            if part.partname.endswith(("/footnotes.xml", "/endnotes.xml")):
                for note in _parse(part.blob):
                    if note.get(f"{_W}type") is None:
                        for paragraph in note.iter(f"{_W}p"):
                            yield Block("paragraph", self._text(paragraph))

    def _paragraph(self, paragraph: Any, depth: int) -> Iterator[Block]:
        style = paragraph.find(f"{_W}pPr/{_W}pStyle")
        style_id = "" if style is None else style.get(f"{_W}val") or ""
        name = self._style_name(style_id)
        if _CONTENTS_STYLE.match(name):
            return
        for box in paragraph.iter(f"{_W}txbxContent"):
            if not any(a.tag.endswith("}Fallback") for a in box.iterancestors()):
                yield from self.blocks(box, depth + 1)
        text = self._text(paragraph)
        if not text.strip():
            return
        level = self._level(style_id) or _outline(paragraph)
        if name.lower() in ("title", "titel", "titre", "título", "titolo"):
            self.title = self.title or text.strip()
            level = level or 1
        if level:
            yield Block("heading", text, level)
        elif (marker := self._marker(paragraph, style_id, name)) is not None:
            yield Block("item", marker + text)
        else:
            yield Block("paragraph", text)

    def _text(self, paragraph: Any) -> str:
        """Text of a paragraph as people see it: no deletions, no hidden runs."""
        parts: list[str] = []
        for element in paragraph.iter(*_TEXT_TAGS):
            equation = element.tag == f"{_M}oMath"
            run = element if equation else element.getparent()
            if run is None or _nested(run, paragraph) or not (equation or run.tag == f"{_W}r"):
                continue
            text = linear(element) if equation else _run_text(element)
            runs = element.iter(f"{_M}r") if equation else (run,)
            if why := next(filter(None, map(_why_hidden, runs)), None):
                self.hidden.append((why, text))
            else:
                parts.append(text)
        return "".join(parts)

    def _table(self, table: Any, depth: int) -> Iterator[Block]:
        elements = [row for row in table.iter(f"{_W}tr") if _owner(row) is table]
        cells = [_own_cells(row) for row in elements]
        if all(len(own) <= 1 for own in cells):  # a frame around text
            for cell in (cell for own in cells for cell in own):
                yield from self.blocks(cell, depth + 1)
            return
        merged: dict[int, str] = {}  # column: text of the cell that reaches down
        read = [(row, list(self._cells(row, merged))) for row in elements]
        filled = [(row, texts) for row, texts in read if any(text.strip() for text in texts)]
        if not filled:
            return
        rows = [texts for _, texts in filled]
        marked = self._marked([row for row, _ in filled])
        if marked:
            yield from table_blocks(rows[marked:], header=join_header(rows[:marked]))
        else:
            header, body = split_header(rows)
            yield from table_blocks(body, header=header)

    def _marked(self, rows: list[Any]) -> int:
        """How many rows at the top are marked as header, or bold above one that is not."""
        repeated = [row.find(f"{_W}trPr/{_W}tblHeader") is not None for row in rows]
        for marks in (repeated, [self._is_bold(row) for row in rows]):
            if marks[0] and False in marks:
                return marks.index(False)
        return 0

    def _is_bold(self, row: Any) -> bool:
        texts = [text for text in row.iter(f"{_W}t") if (text.text or "").strip()]
        return all(self._bold_run(text.getparent()) for text in texts)

    def _bold_run(self, run: Any) -> bool:
        bold = run.find(f"{_W}rPr/{_W}b")
        if bold is not None:
            return bold.get(f"{_W}val") not in ("0", "false")
        named = next(run.iterancestors(f"{_W}p")).find(f"{_W}pPr/{_W}pStyle")
        style = self._styles.get("" if named is None else named.get(f"{_W}val") or "")
        return style is not None and bool(style.font.bold)

    def _cells(self, row: Any, merged: dict[int, str]) -> Iterator[str]:
        """Texts of a row's cells; a cell merged with the one above repeats its text."""
        column = 0
        for cell in _own_cells(row):
            text = " ".join(filter(None, (self._text(p).strip() for p in cell.iter(f"{_W}p"))))
            reach = cell.find(f"{_W}tcPr/{_W}vMerge")
            if reach is None:
                merged.pop(column, None)
            elif reach.get(f"{_W}val") == "restart":
                merged[column] = text
            else:
                text = merged.get(column, text)
            yield text
            span = cell.find(f"{_W}tcPr/{_W}gridSpan")
            width = int(span.get(f"{_W}val") or 1) if span is not None else 1
            extra = min(max(width - 1, 0), 60)
            yield from [""] * extra
            column += 1 + extra

    def _style_name(self, style_id: str) -> str:
        style = self._styles.get(style_id)
        return (style.name or style_id) if style is not None else style_id

    def _level(self, style_id: str) -> int:
        """Heading level of a style, from its name or outline level, its own or inherited."""
        if style_id not in self._levels:
            self._levels[style_id] = 0
            style = self._styles.get(style_id)
            for _ in range(10):
                if style is None:
                    break
                match = _HEADING_STYLE.match(style.name or "")
                level = int(match.group(1)) if match else _outline(style.element)
                if level:
                    self._levels[style_id] = level
                    break
                style = style.base_style
        return self._levels[style_id]

    def _marker(self, paragraph: Any, style_id: str, name: str) -> str | None:
        numbering = paragraph.find(f"{_W}pPr/{_W}numPr")
        style = self._styles.get(style_id)
        if numbering is None and style is not None:
            numbering = style.element.find(f"{_W}pPr/{_W}numPr")
        if numbering is None:
            return "- " if _LIST_STYLE.match(name) else None
        number, level = (
            "" if (found := numbering.find(f"{_W}{key}")) is None else found.get(f"{_W}val") or ""
            for key in ("numId", "ilvl")
        )
        if number == "0":
            return None
        level = level or "0"
        if (number, level) not in self._ordered:
            return "- "
        self._counters[number, level] = self._counters.get((number, level), 0) + 1
        for deeper in [key for key in self._counters if key[0] == number and key[1] > level]:
            del self._counters[deeper]
        return f"{self._counters[number, level]}. "


def _ordered_lists(document: Any) -> set[tuple[str, str]]:
    """The `(numId, ilvl)` whose items are numbered."""
    try:
        root = document.part.numbering_part.element
    except (KeyError, NotImplementedError, AttributeError):  # none, or of another type than XML
        return set()
    abstract: dict[str, list[str]] = {}
    for definition in root.iter(f"{_W}abstractNum"):
        formats = [
            level.get(f"{_W}ilvl") or "0"
            for level in definition.iter(f"{_W}lvl")
            if (kind := level.find(f"{_W}numFmt")) is not None
            and kind.get(f"{_W}val") not in ("bullet", "none")
        ]
        abstract[definition.get(f"{_W}abstractNumId") or ""] = formats
    ordered = set()
    for number in root.iter(f"{_W}num"):
        target = number.find(f"{_W}abstractNumId")
        if target is not None:
            for level in abstract.get(target.get(f"{_W}val") or "", []):
                ordered.add((number.get(f"{_W}numId") or "", level))
    return ordered


def _outline(element: Any) -> int:
    outline = element.find(f"{_W}pPr/{_W}outlineLvl")
    value = "" if outline is None else outline.get(f"{_W}val") or ""
    return int(value) + 1 if value.isdigit() and int(value) < 9 else 0


def _is_contents(element: Any) -> bool:
    gallery = element.find(f"{_W}sdtPr/{_W}docPartObj/{_W}docPartGallery")
    return gallery is not None and "Table of Contents" in (gallery.get(f"{_W}val") or "")


def _nested(run: Any, paragraph: Any) -> bool:
    """Whether a run belongs to a paragraph inside this one (a text box), or is not shown."""
    for ancestor in run.iterancestors():
        if ancestor is paragraph:
            return False
        if ancestor.tag in (f"{_W}p", f"{_W}del", f"{_W}moveFrom"):
            return True
    return False


def _own_cells(row: Any) -> list[Any]:
    """The cells of a row, without those of tables inside them."""
    return [cell for cell in row.iter(f"{_W}tc") if _owner(cell, "tr") is row]


def _owner(element: Any, tag: str = "tbl") -> Any:
    return next(element.iterancestors(f"{_W}{tag}"), None)


def _why_hidden(run: Any) -> str | None:
    properties = run.find(f"{_W}rPr")
    if properties is None:
        return None
    vanish = properties.find(f"{_W}vanish")
    if vanish is not None and vanish.get(f"{_W}val") not in ("0", "false"):
        return "hidden text"
    size = properties.find(f"{_W}sz")
    if (
        size is not None
        and (size.get(f"{_W}val") or "").isdigit()
        and int(size.get(f"{_W}val")) <= 2
    ):
        return "font size of zero"
    color = properties.find(f"{_W}color")
    value = "" if color is None else (color.get(f"{_W}val") or "").lower()
    if len(value) == 6 and value.strip("0123456789abcdef") == "":
        white = min(int(value[i : i + 2], 16) for i in (0, 2, 4)) >= 248
        if white and not _shaded(run):
            return "white on white"
    return None


def _run_text(element: Any) -> str:
    """What one element of a run shows."""
    tag = element.tag[len(_W) :]
    if tag == "t":
        raised = element.getparent().find(f"{_W}rPr/{_W}vertAlign[@{_W}val='superscript']")
        text = _in_font(element)
        return text if raised is None else exponent(text)
    if tag == "sym":
        return word_symbol(element)
    return {"tab": " ", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}.get(tag, "")


def _in_font(element: Any) -> str:
    """The text of a run; letters that Symbol and its kin keep in the private area are read."""
    text = element.text or ""
    if not _PRIVATE.search(text):
        return text
    fonts = element.getparent().find(f"{_W}rPr/{_W}rFonts")
    font = "" if fonts is None else fonts.get(f"{_W}ascii") or fonts.get(f"{_W}hAnsi") or ""
    return _PRIVATE.sub(lambda match: symbol(font, ord(match[0])), text) if font else text


def _shaded(run: Any) -> bool:
    """Whether something other than white is painted behind a run: run, paragraph, cell, style."""
    if run.find(f"{_W}rPr/{_W}highlight") is not None:
        return True
    holders = [run.find(f"{_W}rPr")]
    for ancestor in run.iterancestors(f"{_W}p", f"{_W}tc", f"{_W}tbl"):
        holders.append(ancestor.find(f"{ancestor.tag}Pr"))
        if ancestor.tag == f"{_W}tbl" and ancestor.find(f"{_W}tblPr/{_W}tblStyle") is not None:
            return True
    shades = [holder.find(f"{_W}shd") for holder in holders if holder is not None]
    fills = [(shade.get(f"{_W}fill") or "auto").lower() for shade in shades if shade is not None]
    return any(fill not in ("auto", "ffffff", "") for fill in fills)


def _parse(blob: bytes) -> Any:
    from runtime.readers.packages import parse_xml

    return parse_xml(blob)
