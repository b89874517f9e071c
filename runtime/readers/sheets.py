"""XLSX -> one readable line per row, a heading per sheet; values as people see them."""

from __future__ import annotations

import datetime
import io
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from zipfile import BadZipFile

from runtime.documents import Flag
from runtime.errors import DamagedDocument
from runtime.flags import NOT_INDEXED
from runtime.readers.blocks import Block, RawDocument
from runtime.readers.context import Context
from runtime.readers.csv import sheet_blocks
from runtime.readers.number_formats import shown_duration, shown_number
from runtime.readers.packages import check_package, open_zip, read_member

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_MOST_EMPTY_ROWS = 10_000  # in a row, after which a sheet is over
_MOST_PLACES = 5  # cells named in a flag
_MERGED = re.compile(
    rb"<(?:\w+:)?mergeCell\s[^>]*?ref=[\"']([A-Z]{1,3})([1-9]\d{0,6}):[A-Z]{1,3}([1-9]\d{0,6})[\"']"
)
_UNCOMPUTED = re.compile(
    rb"<(?:\w+:)?c\s([^>]*)>\s*<(?:\w+:)?f(?:\s[^>]*)?(?:/>|>[^<]*</(?:\w+:)?f>)\s*"
    rb"(?:<(?:\w+:)?v\s*/>|<(?:\w+:)?v>\s*</(?:\w+:)?v>)?\s*</(?:\w+:)?c>"
)
_PLACE = re.compile(rb"\br=[\"']([A-Z]{1,3}\d{1,7})[\"']")
_TEXT_TYPE = re.compile(rb"\bt=[\"']str[\"']")


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Rows of all visible sheets. Formulas are read as their last computed values."""
    import openpyxl
    from openpyxl.utils.exceptions import InvalidFileException

    check_package(data, context)
    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
    except (InvalidFileException, BadZipFile, KeyError, ValueError) as error:
        raise DamagedDocument("It is not a readable workbook", where=context.source) from error
    raw = RawDocument(MEDIA_TYPE, [], title=(book.properties.title or "").strip())
    unknown: list[str] = []
    with open_zip(data, context) as archive:
        for page in book.worksheets:
            # openpyxl tells of merged cells and formulas only when it holds the whole sheet
            source = read_member(archive, page._worksheet_path, context)
            page.reset_dimensions()  # the stated size may be anything
            sheet = _read_sheet(page, raw.hidden)
            sheet.repeat_merged(source)
            if page.sheet_state != "visible":
                text = " ".join(cell for row in sheet.rows for cell in row if cell)
                raw.hidden.append(("hidden sheet", text))
                continue
            unknown += [f"{page.title}!{place}" for place in _formulas_without_value(source)]
            blocks = sheet_blocks(sheet.rows, sheet.bold)
            if blocks:
                raw.blocks += [Block("heading", page.title, 1), *blocks]
    if unknown:
        raw.flags.append(_uncomputed(unknown))
    return [raw]


@dataclass(slots=True)
class _Sheet:
    """The texts of a sheet's cells from its first row on, and the numbers of its bold rows."""

    rows: list[list[str]] = field(default_factory=list)
    bold: set[int] = field(default_factory=set)

    def repeat_merged(self, source: bytes) -> None:
        """Write the text of a cell that reaches down into each row that has something else."""
        for match in _MERGED.finditer(source):
            left, top, bottom = _column(match[1]), int(match[2]) - 1, int(match[3])
            rows = self.rows[top:bottom]
            if len(rows) < 2 or left >= len(rows[0]):
                continue
            for row in rows[1:]:
                if any(row) and left < len(row):
                    row[left] = rows[0][left]


def _read_sheet(page: Any, hidden: list[tuple[str, str]]) -> _Sheet:
    sheet = _Sheet()
    empty = 0
    for number, cells in enumerate(page.iter_rows()):
        row = [_shown(cell, hidden) for cell in cells]
        filled = [cell for cell, text in zip(cells, row, strict=True) if text]
        empty = 0 if filled else empty + 1
        if empty > _MOST_EMPTY_ROWS:
            break
        if filled and all(cell.has_style and cell.font.bold for cell in filled):
            sheet.bold.add(number)
        sheet.rows.append(row)
    return sheet


def _column(letters: bytes) -> int:
    """A column's number from 0: A, B, ..., Z, AA."""
    number = 0
    for letter in letters:
        number = 26 * number + letter - 64
    return number - 1


def _formulas_without_value(source: bytes) -> Iterator[str]:
    """The cells whose formula no program has computed; an empty text is a value."""
    for match in _UNCOMPUTED.finditer(source):
        place = _PLACE.search(match[1])
        if place and not _TEXT_TYPE.search(match[1]):
            yield place[1].decode()


def _uncomputed(places: list[str]) -> Flag:
    some = ", ".join(places[:_MOST_PLACES]) + (", ..." if len(places) > _MOST_PLACES else "")
    count = "1 formula" if len(places) == 1 else f"{len(places)} formulas"
    return Flag(
        NOT_INDEXED,
        f"{count} without a stored value: {some}. Open it in a spreadsheet program, save it, and "
        "add it again.",
    )


def _shown(cell: Any, hidden: list[tuple[str, str]]) -> str:
    value = cell.value
    if value is None:
        return ""
    text = _formatted(value, cell.number_format)
    if not text and value:
        hidden.append(("number format that shows nothing", str(value)))
    if cell.has_style and _white(cell):
        hidden.append(("white on white", text))
        return ""
    return text


def _formatted(value: Any, number_format: str) -> str:
    """A value as the sheet shows it; dates in the order year, month, day, whatever their format."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        return shown_number(value, number_format)
    if isinstance(value, datetime.timedelta):
        return shown_duration(value, number_format)
    if isinstance(value, datetime.datetime):
        midnight = value.time() == datetime.time()
        return value.date().isoformat() if midnight else value.isoformat(" ", "minutes")
    if isinstance(value, datetime.time):
        return value.isoformat("minutes")
    return str(value)


def _white(cell: Any) -> bool:
    color = cell.font.color
    if color is None or color.type != "rgb" or str(color.rgb)[-6:].upper() != "FFFFFF":
        return False
    fill = cell.fill
    return fill is None or fill.fill_type is None
