"""Turns the texts in examples/sources/ into the PDF and DOCX files of the example manual.

    python examples/build_binaries.py [--out FOLDER]

Needs reportlab and python-docx, which are tools of the developer, not of the product. The result is
reproducible: dates and identifiers are fixed, so an unchanged source gives unchanged bytes as long
as the versions of both libraries and of zlib stay the same.

A source is front matter (`key: value` lines between `---`) and a small part of Markdown: headings,
paragraphs on one line, `-` and `1.` lists, pipe tables, `*emphasis*`.
"""

from __future__ import annotations

import argparse
import datetime
import io
import re
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import docx
from docx.oxml import OxmlElement
from docx.text.paragraph import Paragraph as DocxParagraph
from reportlab.lib import colors, pagesizes
from reportlab.lib.enums import TA_JUSTIFY
from reportlab.lib.styles import ParagraphStyle
from reportlab.lib.units import mm
from reportlab.platypus import Flowable, Paragraph, SimpleDocTemplate, Spacer, Table, TableStyle

SOURCES = Path(__file__).parent / "sources"
MANUAL = Path(__file__).parent / "pumping-station"
PDFS = ("maintenance-manual-rev4", "commissioning-record-2011")
DOCXS = ("safety-rules", "electrical-installation")

SOFT_HYPHEN = "\u00ad"
EMPHASIS = re.compile(r"\*([^*]+)\*")
ZIP_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time a ZIP entry can carry; given to every part of a DOCX."""
DOCX_DATE = datetime.datetime(2024, 2, 1, 8, 0, 0, tzinfo=datetime.UTC)
"""The date that a DOCX states as its creation and its last change."""


@dataclass(frozen=True)
class Heading:
    """One heading. `level` counts from 1."""

    level: int
    text: str


@dataclass(frozen=True)
class Prose:
    """One paragraph."""

    text: str


@dataclass(frozen=True)
class Items:
    """A list, numbered when `ordered`."""

    ordered: bool
    texts: list[str]


@dataclass(frozen=True)
class Grid:
    """A table. `rows[0]` holds the column titles."""

    rows: list[list[str]]


Block = Heading | Prose | Items | Grid


@dataclass(frozen=True)
class Source:
    """A parsed source: front matter and blocks in reading order."""

    meta: dict[str, str]
    blocks: list[Block]


def parse(text: str) -> Source:
    """Read one source text. A line is a block of its own, save for lists and tables."""
    _, front, body = text.split("---\n", 2)
    meta = dict(line.split(": ", 1) for line in front.splitlines())
    blocks: list[Block] = []
    for group in re.split(r"\n{2,}", body.strip()):
        blocks.append(_block(group.splitlines()))
    return Source(meta, blocks)


def _block(lines: list[str]) -> Block:
    """Lines between two blank lines -> the block they spell."""
    first = lines[0]
    if heading := re.fullmatch(r"(#+) (.+)", first):
        return Heading(len(heading[1]), heading[2])
    if first.startswith("|"):
        cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
        return Grid([cells[0], *cells[2:]])  # cells[1] is the rule under the titles
    if first.startswith("- "):
        return Items(False, [line.removeprefix("- ") for line in lines])
    if re.match(r"\d+\. ", first):
        return Items(True, [line.split(". ", 1)[1] for line in lines])
    return Prose(" ".join(lines))


# PDF


def hyphenator(list_path: Path) -> Callable[[str], str]:
    """A function that puts soft hyphens into the words of a list (`main-te-nance`, one a line)."""
    entries = [
        line.strip()
        for line in list_path.read_text(encoding="utf-8").splitlines()
        if line.strip() and not line.startswith("#")
    ]
    breaks = {entry.replace("-", ""): entry for entry in entries}

    def soften(match: re.Match[str]) -> str:
        word = match[0]
        pattern = breaks.get(word.lower())
        if pattern is None:
            return word
        letters = iter(word)
        return "".join(SOFT_HYPHEN if sign == "-" else next(letters) for sign in pattern)

    return lambda text: re.sub(r"[A-Za-z]+", soften, text)


def _styles(small: bool) -> dict[str, ParagraphStyle]:
    """Paragraph styles by name; `small` for A5 paper."""
    size = 9.5 if small else 11
    body = ParagraphStyle(
        "body",
        fontName="Times-Roman",
        fontSize=size,
        leading=size * 1.3,
        alignment=TA_JUSTIFY,
        spaceAfter=size * 0.6,
    )
    head: dict[str, Any] = {
        "parent": body,
        "fontName": "Helvetica-Bold",
        "alignment": 0,
        "keepWithNext": True,
    }
    return {
        "body": body,
        "item": ParagraphStyle("item", parent=body, leftIndent=16, bulletIndent=2, spaceAfter=3),
        "cell": ParagraphStyle(
            "cell", parent=body, fontSize=size - 1.5, leading=size + 0.5, alignment=0, spaceAfter=0
        ),
        "h1": ParagraphStyle("h1", fontSize=size + 7, leading=size + 11, **head),
        "h2": ParagraphStyle("h2", fontSize=size + 2.5, leading=size + 6, spaceBefore=9, **head),
        "h3": ParagraphStyle("h3", fontSize=size + 0.5, leading=size + 4, spaceBefore=5, **head),
    }


def _markup(text: str) -> str:
    """Source text -> reportlab's paragraph markup."""
    return EMPHASIS.sub(r"<i>\1</i>", escape(text))


def _flowables(
    block: Block, styles: dict[str, ParagraphStyle], soften: Callable[[str], str]
) -> list[Flowable]:
    """One block -> what reportlab lays out."""
    match block:
        case Heading(level, text):
            return [Paragraph(_markup(text), styles[f"h{level}"])]
        case Prose(text):
            return [Paragraph(_markup(soften(text)), styles["body"])]
        case Items(ordered, texts):
            return [
                Paragraph(
                    _markup(soften(text)),
                    styles["item"],
                    bulletText=f"{number}." if ordered else "\u2022",
                )
                for number, text in enumerate(texts, start=1)
            ]
        case Grid(rows):
            cells = [[Paragraph(_markup(cell), styles["cell"]) for cell in row] for row in rows]
            rule = TableStyle(
                [
                    ("GRID", (0, 0), (-1, -1), 0.4, colors.grey),
                    ("BACKGROUND", (0, 0), (-1, 0), colors.lightgrey),
                    ("VALIGN", (0, 0), (-1, -1), "TOP"),
                ]
            )
            return [Table(cells, style=rule, repeatRows=1), Spacer(0, 3 * mm)]


def build_pdf(source: Source, soften: Callable[[str], str]) -> bytes:
    """A source -> a PDF with header, footer and page number on every page."""
    small = source.meta["page"] == "A5"
    size = pagesizes.A5 if small else pagesizes.A4
    width, height = size
    margin = (18 if small else 22) * mm

    def furniture(canvas: Any, document: Any) -> None:
        canvas.saveState()
        canvas.setFont("Helvetica", 7.5)
        canvas.drawString(margin, height - 10 * mm, source.meta["header"])
        canvas.line(margin, height - 11.5 * mm, width - margin, height - 11.5 * mm)
        canvas.drawString(margin, 9 * mm, source.meta["footer"])
        canvas.drawRightString(width - margin, 9 * mm, f"Page {document.page}")
        canvas.restoreState()

    buffer = io.BytesIO()
    document = SimpleDocTemplate(
        buffer,
        pagesize=size,
        leftMargin=margin,
        rightMargin=margin,
        topMargin=17 * mm,
        bottomMargin=17 * mm,
        title=source.meta["title"],
        author="Brackenmoor Water Board",
        invariant=1,  # fixed dates and document id
    )
    styles = _styles(small)
    story = [part for block in source.blocks for part in _flowables(block, styles, soften)]
    document.build(story, onFirstPage=furniture, onLaterPages=furniture)
    return buffer.getvalue()


# DOCX


def _add_runs(paragraph: DocxParagraph, text: str) -> None:
    """Add source text to a paragraph, emphasised parts in italics."""
    for index, part in enumerate(EMPHASIS.split(text)):
        if part:
            paragraph.add_run(part).italic = index % 2 == 1 or None


def _add_page_number(paragraph: DocxParagraph) -> None:
    """Add the field that a word processor replaces by the page number."""
    paragraph.add_run(" - Page ")
    field = OxmlElement("w:fldSimple")
    field.set(docx.oxml.ns.qn("w:instr"), "PAGE")
    paragraph._p.append(field)


def _add_block(document: Any, block: Block) -> None:
    """Append one block to a python-docx document."""
    match block:
        case Heading(level, text):
            document.add_heading(text, level=level)
        case Prose(text):
            _add_runs(document.add_paragraph(), text)
        case Items(ordered, texts):
            for text in texts:
                style = "List Number" if ordered else "List Bullet"
                _add_runs(document.add_paragraph(style=style), text)
        case Grid(rows):
            table = document.add_table(rows=len(rows), cols=len(rows[0]), style="Table Grid")
            for row, cells in zip(table.rows, rows, strict=True):
                for cell, text in zip(row.cells, cells, strict=True):
                    _add_runs(cell.paragraphs[0], text)


def _with_fixed_times(archive: bytes) -> bytes:
    """The same ZIP archive, entries in the same order, every time stamp set to ZIP_EPOCH."""
    buffer = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(archive)) as old,
        zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            entry = zipfile.ZipInfo(name, ZIP_EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, old.read(name))
    return buffer.getvalue()


def build_docx(source: Source) -> bytes:
    """A source -> a DOCX with real headings, lists, tables, header and footer."""
    document = docx.Document()
    properties = document.core_properties
    properties.title = source.meta["title"]
    properties.author = "Brackenmoor Water Board"
    properties.comments = ""
    properties.created = properties.modified = DOCX_DATE
    section = document.sections[0]
    section.header.paragraphs[0].text = source.meta["header"]
    footer = section.footer.paragraphs[0]
    footer.text = source.meta["footer"]
    _add_page_number(footer)
    for block in source.blocks:
        _add_block(document, block)
    buffer = io.BytesIO()
    document.save(buffer)
    return _with_fixed_times(buffer.getvalue())


def build_all(out: Path) -> list[Path]:
    """Write all PDF and DOCX files of the manual into `out`; return their paths."""
    out.mkdir(parents=True, exist_ok=True)
    soften = hyphenator(SOURCES / "hyphenation.txt")
    written = []
    for stem in PDFS + DOCXS:
        source = parse((SOURCES / f"{stem}.md").read_text(encoding="utf-8"))
        is_pdf = stem in PDFS
        path = out / f"{stem}{'.pdf' if is_pdf else '.docx'}"
        path.write_bytes(build_pdf(source, soften) if is_pdf else build_docx(source))
        written.append(path)
    return written


def main() -> None:
    """Command line: build into the manual's folder, or into --out."""
    parser = argparse.ArgumentParser(description="Build the PDF and DOCX files of the example.")
    parser.add_argument("--out", type=Path, default=MANUAL, help="folder to write to")
    for path in build_all(parser.parse_args().out):
        print(f"{path}  {path.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
