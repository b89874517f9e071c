"""CSV and TSV -> one readable line per row: `Header: value; Header: value`."""

from __future__ import annotations

import csv
import io

from runtime.readers.blocks import Block, RawDocument, split_header, table_blocks
from runtime.readers.context import Context
from runtime.readers.text import decode

_DELIMITERS = ",;\t|"
_SAMPLE_LINES = 50
_LONGEST_FIELD = 1 << 20  # characters


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Rows of a table in text form, whatever separates its columns."""
    text = decode(data, context).replace("\x00", "")
    csv.field_size_limit(_LONGEST_FIELD)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=_delimiter(text)))
    return [RawDocument("text/csv", sheet_blocks(rows))]


def sheet_blocks(rows: list[list[str]]) -> list[Block]:
    """Blocks of a sheet: tables between empty rows, lone cells above a table as paragraphs."""
    blocks: list[Block] = []
    for group in _groups(rows):
        lone = 0
        while lone < len(group) and len(cells := [c for c in group[lone] if c.strip()]) == 1:
            blocks.append(Block("paragraph", cells[0]))
            lone += 1
        header, body = split_header(group[lone:], likely=True)
        blocks += table_blocks(body, header=header)
    return blocks


def _groups(rows: list[list[str]]) -> list[list[list[str]]]:
    """Runs of rows with something in them, empty columns at the edges cut off."""
    groups: list[list[list[str]]] = [[]]
    for row in rows:
        if any(cell.strip() for cell in row):
            groups[-1].append(row)
        elif groups[-1]:
            groups.append([])
    return [_trimmed(group) for group in groups if group]


def _trimmed(rows: list[list[str]]) -> list[list[str]]:
    used = [index for row in rows for index, cell in enumerate(row) if cell.strip()]
    return [row[min(used) : max(used) + 1] for row in rows]


def _delimiter(text: str) -> str:
    """The delimiter that cuts the first lines into the most equal number of columns."""
    lines = [line for line in text[: 1 << 16].splitlines() if line.strip()][:_SAMPLE_LINES]

    def regularity(delimiter: str) -> tuple[float, int]:
        counts = [len(row) - 1 for row in csv.reader(lines, delimiter=delimiter)]
        usual = max(set(counts), key=counts.count) if counts else 0
        return (counts.count(usual) / len(counts) if usual else 0.0, usual)

    return max(_DELIMITERS, key=regularity)
