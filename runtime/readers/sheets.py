"""XLSX -> one readable line per row, a heading per sheet; values as people see them."""

from __future__ import annotations

import datetime
import io
from typing import Any
from zipfile import BadZipFile

from runtime.errors import DamagedDocument
from runtime.readers.blocks import Block, RawDocument
from runtime.readers.context import Context
from runtime.readers.csv import sheet_blocks
from runtime.readers.packages import check_package

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet"
_MOST_EMPTY_ROWS = 10_000  # in a row, after which a sheet is over


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
    for sheet in book.worksheets:
        sheet.reset_dimensions()  # the stated size may be anything
        rows = _rows(sheet, raw.hidden)
        if sheet.sheet_state != "visible":
            text = " ".join(cell for row in rows for cell in row if cell)
            raw.hidden.append(("hidden sheet", text))
            continue
        blocks = sheet_blocks(rows)
        if blocks:
            raw.blocks += [Block("heading", sheet.title, 1), *blocks]
    return [raw]


def _rows(sheet: Any, hidden: list[tuple[str, str]]) -> list[list[str]]:
    rows: list[list[str]] = []
    empty = 0
    for cells in sheet.iter_rows():
        row = [_shown(cell, hidden) for cell in cells]
        empty = 0 if any(row) else empty + 1
        if empty > _MOST_EMPTY_ROWS:
            break
        rows.append(row)
    return rows


def _shown(cell: Any, hidden: list[tuple[str, str]]) -> str:
    value = cell.value
    if value is None:
        return ""
    text = _formatted(value, cell.number_format)
    if cell.has_style and _white(cell):
        hidden.append(("white on white", text))
        return ""
    return text


def _formatted(value: Any, number_format: str) -> str:
    """A value as the sheet shows it, as far as dates, whole numbers and percentages go."""
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, int | float):
        if number_format.rstrip().endswith("%"):
            return f"{value * 100:.10g} %"
        return f"{value:.15g}" if abs(value) < 1e15 else str(value)
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
