"""CSV and TSV -> one readable line per row: `Header: value; Header: value`."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Container, Sequence
from dataclasses import dataclass

from runtime.readers.blocks import Block, RawDocument, table_blocks
from runtime.readers.context import Context
from runtime.readers.table_header import (
    goes_on,
    join_header,
    names_stand_out,
    split_header,
)
from runtime.readers.text import decode

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_MOST_HEADER_ROWS = 4
_NO_DELIMITER = re.compile(r"(?<=\d),(?=\d)|, ")  # decimal commas, and those of texts


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Rows of a table in text form, whatever separates its columns."""
    text = decode(data, context).replace("\x00", "")
    csv.field_size_limit(len(text) + 1)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)))
    return [RawDocument("text/csv", sheet_blocks(rows))]


@dataclass(slots=True)
class _Table:
    """Rows of a sheet between empty rows, without the empty columns beside them.

    Attributes:
        top: the number of its first row in the sheet; `left` of its first column.
    """

    top: int
    left: int
    rows: list[Sequence[str]]
    header: Sequence[str] | None = None

    def columns(self, other: _Table) -> list[Sequence[str]]:
        """The rows of another table in the columns of this one."""
        pad = [""] * (other.left - self.left)
        return [[*pad, *row] for row in other.rows]

    def spans(self, other: _Table) -> bool:
        right, other_right = (t.left + max(map(len, t.rows), default=0) for t in (self, other))
        return self.left <= other.left and other_right <= right


def sheet_blocks(rows: list[list[str]], bold: Container[int] = ()) -> list[Block]:
    """Blocks of a sheet: tables between empty rows, lone cells above a table as paragraphs.

    Args:
        bold: numbers of the rows that are bold as a whole; above others they are a header.
    """
    blocks: list[Block] = []
    above: _Table | None = None
    for table in _tables(rows):
        lone = 0
        while (
            lone < len(table.rows) and len(cells := list(filter(str.strip, table.rows[lone]))) == 1
        ):
            blocks.append(Block("paragraph", cells[0]))
            lone += 1
        table.top += lone
        table.rows = table.rows[lone:]
        if table.rows:
            _take_header(table, above, bold)
            blocks += table_blocks(table.rows, header=table.header)
            above = table
    return blocks


def _take_header(table: _Table, above: _Table | None, bold: Container[int]) -> None:
    """Find the header of a table: its bold rows, that of the table above it, or the first row."""
    marked = 0
    while marked < min(len(table.rows), _MOST_HEADER_ROWS) and table.top + marked in bold:
        marked += 1
    if 0 < marked < min(len(table.rows), _MOST_HEADER_ROWS):
        table.header, table.rows = join_header(table.rows[:marked]), table.rows[marked:]
        return
    known = above is not None and above.header is not None and above.spans(table)
    if above is not None and known and goes_on(above.rows, above.columns(table)):
        table.left, table.rows, table.header = above.left, above.columns(table), above.header
        return
    header, body = split_header(table.rows, likely=True)
    if header is not None and (not known or names_stand_out(header, body)):
        table.header, table.rows = header, body


def _tables(rows: list[list[str]]) -> list[_Table]:
    """Runs of rows with something in them, empty columns at the edges cut off."""
    tables: list[_Table] = []
    gap = True
    for number, row in enumerate(rows):
        empty = not any(cell.strip() for cell in row)
        if not empty and gap:
            tables.append(_Table(number, 0, []))
        if not empty:
            tables[-1].rows.append(row)
        gap = empty
    for table in tables:
        used = [n for row in table.rows for n, cell in enumerate(row) if cell.strip()]
        table.left, right = min(used), max(used) + 1
        table.rows = [row[table.left : right] for row in table.rows]
    return tables


def _delimiter(text: str) -> str:
    """The delimiter that cuts the first lines into the most equal number of columns.

    Commas that may be decimal ones give way to another delimiter that is as regular.
    """
    lines = [line for line in text[: 1 << 16].splitlines() if line.strip()][:_SAMPLE_LINES]

    def regularity(delimiter: str) -> tuple[float, int]:
        counts = [len(row) - 1 for row in csv.reader(lines, delimiter=delimiter)]
        usual = max(set(counts), key=counts.count) if counts else 0
        return (counts.count(usual) / len(counts) if usual else 0.0, usual)

    regularities = {delimiter: regularity(delimiter) for delimiter in _DELIMITERS}
    best = max(_DELIMITERS.replace(",", ""), key=regularities.__getitem__)
    inside = sum(len(_NO_DELIMITER.findall(line)) for line in lines)
    if 0 < regularities[best][0] >= regularities[","][0] and inside == sum(
        line.count(",") for line in lines
    ):
        return best
    return max(_DELIMITERS, key=regularities.__getitem__)
