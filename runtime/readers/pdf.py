"""PDF -> blocks with page numbers: what PDFium sees on a page, minus what people do not see."""

from __future__ import annotations

import ctypes
import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from runtime.documents import Flag
from runtime.errors import DamagedDocument, DocumentTooLarge, EmptyDocument, ScanNotIndexed
from runtime.flags import NOT_INDEXED
from runtime.readers.blocks import RawDocument
from runtime.readers.context import Context
from runtime.readers.packages import encrypted
from runtime.readers.pdf_layout import Box, PageContent, Word, layout

_MONOSPACED = (b"courier", b"mono", b"cmtt", b"consol", b"typewriter")
_OFF = "text off the page"
_SPILL = 72.0  # points by which an overlong line may leave the page
_MOST_PAGES = 20_000
_MOST_CHARACTERS = 400_000  # on one page
_MOST_OBJECTS = 20_000  # on one page: drawings beyond that are not looked at
_GARBAGE_TITLE = re.compile(
    r"(?i)^(?:untitled|microsoft (?:word|powerpoint|excel) - .*|\(?anonymous\)?|.*\.(?:docx?|pptx?|"
    r"xlsx?|indd|tex|dvi|html?|rtf|odt|qxd))$"
)
_SEPARATORS = frozenset((0, 9, 10, 13, 32, 0xA0, 0x2028, 0x2029))
_HYPHENS = frozenset((2, 0xFFFE))  # PDFium's marks for a hyphen at a line end


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Text of all pages in reading order.

    Raises:
        EncryptedDocument: it needs a password other than the empty one.
        ScanNotIndexed: its pages are pictures and the OCR extra is not installed.
    """
    import pypdfium2.raw as pdfium

    with _opened(pdfium, data, context) as document:
        count = pdfium.FPDF_GetPageCount(document)
        if count > _MOST_PAGES:
            raise DocumentTooLarge(f"It has {count} pages", where=context.source)
        pages = [_page(pdfium, document, index) for index in range(count)]
        hidden = [entry for page in pages for entry in page.hidden]
        flags = _read_scans(pdfium, document, pages, context)
        if not any(page.words for page in pages):
            raise EmptyDocument("There is no text on its pages", where=context.source)
        title = _title(pdfium, document)
    return [RawDocument("application/pdf", layout(pages), title=title, hidden=hidden, flags=flags)]


@contextmanager
def _opened(pdfium: Any, data: bytes, context: Context) -> Iterator[Any]:
    pdfium.FPDF_InitLibrary()
    document = pdfium.FPDF_LoadMemDocument64(data, len(data), None)
    if not document:
        if pdfium.FPDF_GetLastError() == pdfium.FPDF_ERR_PASSWORD:
            raise encrypted(context)
        raise DamagedDocument(
            "It is truncated or damaged",
            where=context.source,
            fix="Copy or export it again from its source.",
        )
    try:
        yield document
    finally:
        pdfium.FPDF_CloseDocument(document)


def _page(pdfium: Any, document: Any, index: int) -> PageContent:
    content = PageContent(number=index + 1)
    page = pdfium.FPDF_LoadPage(document, index)
    if not page:
        return content
    text = pdfium.FPDFText_LoadPage(page)
    try:
        box = _page_box(pdfium, page)
        content.box = box
        _drawings(pdfium, page, content)
        if text:
            _words(pdfium, text, content)
    finally:
        if text:
            pdfium.FPDFText_ClosePage(text)
        pdfium.FPDF_ClosePage(page)
    return content


def _page_box(pdfium: Any, page: Any) -> Box:
    rectangle = pdfium.FS_RECTF()
    if pdfium.FPDF_GetPageBoundingBox(page, rectangle):
        return Box(rectangle.left, rectangle.bottom, rectangle.right, rectangle.top)
    return Box(0.0, 0.0, 612.0, 792.0)


def _drawings(pdfium: Any, page: Any, content: PageContent) -> None:
    """Ruling lines, painted areas and pictures of a page."""
    area = max(1.0, content.box.width * content.box.height)
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    colors = [ctypes.c_uint() for _ in range(4)]
    mode, stroke = ctypes.c_int(), ctypes.c_int()
    for index in range(min(pdfium.FPDFPage_CountObjects(page), _MOST_OBJECTS)):
        item = pdfium.FPDFPage_GetObject(page, index)
        kind = pdfium.FPDFPageObj_GetType(item)
        if kind not in (pdfium.FPDF_PAGEOBJ_PATH, pdfium.FPDF_PAGEOBJ_IMAGE):
            continue
        if not pdfium.FPDFPageObj_GetBounds(item, left, bottom, right, top):
            continue
        box = Box(left.value, bottom.value, right.value, top.value)
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            content.painted.append(box)
            content.pictured += box.width * box.height / area
            continue
        if min(box.width, box.height) <= 3.0:
            content.rules.append(box)
            continue
        pdfium.FPDFPath_GetDrawMode(item, mode, stroke)
        filled = mode.value and pdfium.FPDFPageObj_GetFillColor(item, *colors)
        if filled and min(c.value for c in colors[:3]) < 235 and colors[3].value > 25:
            content.painted.append(box)
        if stroke.value or mode.value:
            content.frames.append(box)


def _words(pdfium: Any, text: Any, content: PageContent) -> None:
    """Characters of a page as words, hidden ones apart."""
    count = pdfium.FPDFText_CountChars(text)
    if count > _MOST_CHARACTERS:
        raise DocumentTooLarge(f"Page {content.number} holds {count} characters")
    _WordBuilder(pdfium, text, content).build(count)


class _WordBuilder:
    """Groups characters into words: by separators, by gaps, by changes of style."""

    def __init__(self, pdfium: Any, text: Any, content: PageContent) -> None:
        self._pdfium = pdfium
        self._text = text
        self._content = content
        self._letters: list[str] = []
        self._box = (0.0, 0.0, 0.0, 0.0)
        self._first = 0  # index of the word's first character
        self._origin = (ctypes.c_double(), ctypes.c_double())
        self._style = _PLAIN
        self._after_space = False
        self._hidden: dict[str, list[str]] = {}

    def build(self, count: int) -> None:
        """Take the page's characters in the order of the file. The loop that costs the time."""
        text, content = self._text, self._content
        unicode_of, box_of = self._pdfium.FPDFText_GetUnicode, self._pdfium.FPDFText_GetLooseCharBox
        object_of = _addresses(self._pdfium.FPDFText_GetTextObject)
        rectangle = self._pdfium.FS_RECTF()
        styles: dict[int, _Style] = {}
        address = -1
        style = _PLAIN
        high = 0
        for index in range(count):
            code = unicode_of(text, index)
            if code in _SEPARATORS:
                self._close()
                self._after_space = True
                continue
            if 0xD800 <= code <= 0xDFFF or code > 0x10FFFF:
                high, code = _paired(high, code)
                if not code:
                    continue
            current = object_of(text, index) or 0
            if current != address:
                address = current
                found = styles.get(address)
                if found is None:
                    found = styles[address] = _read_style(self._pdfium, text, index)
                style = found
            box_of(text, index, rectangle)
            box = (rectangle.left, rectangle.bottom, rectangle.right, rectangle.top)
            letter = "-" if code in _HYPHENS else chr(code)
            if style.suspect or _outside(box, content.box):
                why = _why_hidden(style, box, content)
                if why == _OFF and self._spills(box):
                    why = None
                if why:
                    self._close()
                    self._hide(why, letter)
                    continue
            if self._letters and style is self._style and not self._gap(box):
                before = self._box
                self._box = (
                    before[0] if before[0] < box[0] else box[0],
                    before[1] if before[1] < box[1] else box[1],
                    before[2] if before[2] > box[2] else box[2],
                    before[3] if before[3] > box[3] else box[3],
                )
            else:
                self._close()
                self._style, self._box, self._first = style, box, index
            self._letters.append(letter)
        self._close()
        content.hidden += [(why, "".join(parts)) for why, parts in self._hidden.items()]

    def _close(self) -> None:
        if not self._letters:
            return
        style = self._style
        self._content.words.append(
            Word(
                "".join(self._letters),
                *self._on_baseline(),
                size=style.size,
                bold=style.bold,
                angle=style.angle,
                mono=style.mono,
                glued=not self._after_space,
            )
        )
        self._after_space = False
        self._letters = []

    def _on_baseline(self) -> tuple[float, float, float, float]:
        """The word's box with a height from its baseline and size.

        The boxes of two fonts on one line differ wildly; their baselines do not.
        """
        left, bottom, right, top = self._box
        x, y = self._origin
        if not self._pdfium.FPDFText_GetCharOrigin(self._text, self._first, x, y):
            return self._box
        down, up = 0.22 * self._style.size, 0.78 * self._style.size
        turned = {
            0: (left, y.value - down, right, y.value + up),
            90: (x.value - up, bottom, x.value + down, top),
            180: (left, y.value - up, right, y.value + down),
            270: (x.value - down, bottom, x.value + up, top),
        }
        return turned.get(self._style.angle, self._box)

    def _spills(self, box: tuple[float, float, float, float]) -> bool:
        """Whether a line that begins on the page runs a little over its right edge."""
        page = self._content.box
        if not self._letters or box[2] > page.right + _SPILL:
            return False
        return abs(box[1] - self._box[1]) < 1.0 and self._box[0] < page.right

    def _gap(self, box: tuple[float, float, float, float]) -> bool:
        """Whether a character does not follow the word at hand, seen along its direction."""
        before = self._box
        style = self._style
        near = 0.3 * style.size
        if style.angle in (0, 180):
            return (
                box[0] - before[2] > near
                or before[0] - box[2] > near
                or box[1] > before[3]
                or before[1] > box[3]
                or abs(box[1] - before[1]) > 2 * near
            )
        return (
            box[1] - before[3] > near
            or before[1] - box[3] > near
            or box[0] > before[2]
            or before[0] > box[2]
        )

    def _hide(self, why: str, letter: str) -> None:
        letters = self._hidden.setdefault(why, [])
        if self._after_space and letters:
            letters.append(" ")
        self._after_space = False
        letters.append(letter)


def _addresses(function: Any) -> Any:
    """The same C function returning its pointer as a number, which is cheap to compare."""
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(address)


def _paired(high: int, code: int) -> tuple[int, int]:
    """Halves of a surrogate pair put together: what is pending, and the code point or 0."""
    if 0xD800 <= code <= 0xDBFF:
        return code, 0
    if high and 0xDC00 <= code <= 0xDFFF:
        return 0, 0x10000 + ((high - 0xD800) << 10) + (code - 0xDC00)
    return 0, 0xFFFD if code > 0x10FFFF else 0


def _outside(box: tuple[float, float, float, float], page: Box) -> bool:
    return box[2] < page.left or box[0] > page.right or box[3] < page.bottom or box[1] > page.top


def _why_hidden(
    style: _Style, box: tuple[float, float, float, float], content: PageContent
) -> str | None:
    if _outside(box, content.box):
        return _OFF
    if style.size < 1.0:
        return "font size of zero"
    if style.invisible:
        # The text layer of a scan is invisible on purpose: people see the picture.
        return None if content.pictured >= 0.5 else "invisible text"
    if style.white and not content.is_painted(*box):
        return "white on white"
    return None


@dataclass(frozen=True, slots=True, eq=False)
class _Style:
    """How one text object is painted. `size` in points as seen, `angle` 0, 90, 180, 270 or -1."""

    size: float
    bold: bool = False
    angle: int = 0
    invisible: bool = False
    white: bool = False
    mono: bool = False

    @property
    def suspect(self) -> bool:
        """Whether text in this style may be hidden."""
        return self.invisible or self.white or self.size < 1.0


_PLAIN = _Style(10.0)


def _read_style(pdfium: Any, text: Any, index: int) -> _Style:
    item = pdfium.FPDFText_GetTextObject(text, index)
    radians = pdfium.FPDFText_GetCharAngle(text, index)
    # PDFium counts clockwise, and says -1 for no answer.
    degrees = -math.degrees(radians) % 360 if radians >= 0 else 0.0
    quarter = round(degrees / 90)
    angle = (quarter % 4) * 90 if abs(degrees - 90 * quarter) <= 10 else -1
    matrix = pdfium.FS_MATRIX()
    scale = 1.0
    if pdfium.FPDFText_GetMatrix(text, index, matrix):
        scale = math.hypot(matrix.c, matrix.d)
    size = pdfium.FPDFText_GetFontSize(text, index) * scale
    mode = pdfium.FPDFTextObj_GetTextRenderMode(item) if item else 0
    colors = [ctypes.c_uint() for _ in range(4)]
    filled = pdfium.FPDFText_GetFillColor(text, index, *colors)
    white = bool(filled) and mode in (0, 4) and min(color.value for color in colors[:3]) >= 248
    clear = bool(filled) and colors[3].value < 8
    name = ctypes.create_string_buffer(128)
    flags = ctypes.c_int()
    pdfium.FPDFText_GetFontInfo(text, index, name, 128, flags)
    family = name.value.lower()
    bold = b"bold" in family or b"black" in family
    mono = bool(flags.value & 1) or any(word in family for word in _MONOSPACED)
    bold = bold or pdfium.FPDFText_GetFontWeight(text, index) >= 650
    return _Style(size, bold, angle, mode in (3, 7) or clear, white, mono)


def _read_scans(
    pdfium: Any, document: Any, pages: list[PageContent], context: Context
) -> list[Flag]:
    """Fill in the words of pages that are pictures, through OCR where it is installed."""
    scans = [page for page in pages if page.is_scan]
    if not scans:
        return []
    from runtime.readers import ocr

    if context.options.ocr and ocr.installed():
        context.begin_ocr()
        for page in scans:
            ocr.read_pdf_page(pdfium, document, page)
        return []
    if len(scans) == len([page for page in pages if page.words or page.is_scan]):
        raise ScanNotIndexed(
            "It is a scan, not indexed", where=context.source, fix=ocr.HOW_TO_INSTALL
        )
    numbers = ", ".join(str(page.number) for page in scans[:20])
    return [Flag(NOT_INDEXED, f"scanned pages without text: {numbers}. {ocr.HOW_TO_INSTALL}")]


def _title(pdfium: Any, document: Any) -> str:
    length = pdfium.FPDF_GetMetaText(document, b"Title", None, 0)
    if not 2 < length < 4096:
        return ""
    buffer = ctypes.create_string_buffer(length)
    pdfium.FPDF_GetMetaText(document, b"Title", buffer, length)
    title = buffer.raw.decode("utf-16-le", "replace").split("\x00")[0].strip()
    return "" if _GARBAGE_TITLE.match(title) else title
