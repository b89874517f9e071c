"""Rows of a table -> its header and the rest; no header rather than a wrong one.

A header that is taken for data costs a name; data taken for a header give every value below a wrong
one. So the first row must be unlike the rows below it, or be of a kind that nothing else has.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from runtime.cleaning import clean_block

_Kind = Literal["", "number", "code", "words"]
_LEADING_NUMBER = re.compile(r"^[^\w]{0,3}\d[\d.,]*\s")
_PERIOD = re.compile(  # 2019, FY 2019, Jan 2019, 2019/20, 2019-03, 2019-03-31, 31.03.2019
    r"^(?:[^\W\d]{1,12}\.?[ /-]?)?(?:\d{1,2}[./]){0,2}(?:19|20)\d\d(?:[/-]\d{1,2}){0,2}$"
)
_SENTENCE = re.compile(r"\s\S+\s.*[.!?;]$")
_SAMPLE_ROWS = 200  # that a header is judged by
_LONGEST_NAME = 80  # characters of a column's name


def split_header(
    rows: Sequence[Sequence[str]], *, likely: bool = False, marked: bool = False
) -> tuple[Sequence[str] | None, list[Sequence[str]]]:
    """Take the first row, or two rows with groups of columns, as header where it can only be one.

    Its cells are filled, different, and neither numbers (years in a row will do) nor shaped like
    those below (E-17 above E-18). Of two columns they are names above numbers or codes.

    Args:
        likely: this kind of table nearly always has a header: one cell in five may be empty, and of
            two columns names above codes in the first will do.
        marked: the first row looks like a header: of two columns any names will do.
    """
    rest = list(rows)
    cells = _sample(rows)
    if len(rows) >= 3 and _is_stacked(cells):
        return join_header(rows[:2]), rest[2:]
    if len(rows) >= 2 and _is_header(cells, likely or marked, marked):
        return rows[0], rest[1:]
    return None, rest


def join_header(rows: Sequence[Sequence[str]]) -> list[str]:
    """One name a column of stacked header rows: `Pressure min`, `Pressure max`.

    A name stands for the empty cells on its right, as far as something is below them.
    """
    names: list[list[str]] = [[] for _ in range(_width(rows))]
    for number, row in enumerate(rows):
        below = rows[number + 1] if number + 1 < len(rows) else ()
        group = ""
        for column, words in enumerate(names):
            group = _at(row, column) or (group if _at(below, column) else "")
            if group and group not in words:
                words.append(group)
    return [" ".join(words) for words in names]


def names_stand_out(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether one of the columns has a name of another kind than all cells below it."""
    columns = _columns(_sample([header, *rows[:_SAMPLE_ROWS]]))
    return any(_stands_out(column[0], column[1:]) for column in columns)


def goes_on(above: Sequence[Sequence[str]], rows: Sequence[Sequence[str]]) -> bool:
    """Whether rows after a gap hold what the table above holds: codes below codes, not words."""
    before = _columns(_sample(above))
    after = _columns(_sample(rows))
    pairs = [
        ({_is_data(cell) for cell in old if cell}, {_is_data(cell) for cell in new if cell})
        for old, new in zip(before, after, strict=False)
    ]
    return all(not old or new <= old for old, new in pairs) and any(
        old == new == {True} for old, new in pairs
    )


def clean_cells(row: Sequence[str]) -> list[str]:
    """Cells of a row as they are stored."""
    return [" ".join(clean_block(cell).split()) for cell in row]


def _sample(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [clean_cells(row) for row in rows[:_SAMPLE_ROWS]]


def _is_header(rows: Sequence[Sequence[str]], likely: bool, marked: bool) -> bool:
    columns = _columns(rows)
    names = [name for name in rows[0] if name]
    stand_out = [_stands_out(column[0], column[1:]) for column in columns]
    if len(names) < 2 or len(set(names)) < len(names):
        return False
    if len(columns) == 2:
        keyed = marked or (likely and stand_out[0])
        return all(stand_out) or (keyed and all(map(_is_name, names)))
    periods = _periods(columns)
    corner = len(names) == len(columns) - 1 and not columns[0][0]
    filled = len(names) == len(columns) or (likely and len(names) >= 0.8 * len(columns))
    if not (filled or (corner and (periods or any(stand_out)))):
        return False
    return not any(
        _kind(column[0]) == "number" or _is_one_of(column[0], column[1:])
        for number, column in enumerate(columns)
        if number not in periods
    )


def _is_stacked(rows: Sequence[Sequence[str]]) -> bool:
    """Two rows of names above numbers: groups of columns, then a name for each column of a group.

    Something must show that the second row is no data: a column with one name only, or names that
    come again in the next group.
    """
    columns = _columns(rows)
    grouped: set[int] = set()
    for number, (top, name) in enumerate(column[:2] for column in columns):
        if number and name and not top and columns[number - 1][1]:
            grouped |= {number - 1, number}
    names = join_header(rows[:2])
    if not grouped or not all(names) or len(set(names)) < len(names):
        return False
    single = any(
        number not in grouped and (not top or not name or top == name)
        for number, (top, name) in enumerate(column[:2] for column in columns)
    )
    below = [columns[number][1] for number in sorted(grouped)]
    periods = all(map(_PERIOD.match, below))
    return (single or len(set(below)) < len(below)) and all(
        _kind(columns[number][0]) in ("", "words")
        and (periods or _is_name(columns[number][1]))
        and _all_data(columns[number][2:])
        for number in grouped
    )


def _periods(columns: Sequence[Sequence[str]]) -> set[int]:
    """Columns named by years or dates, in order, and filled with something else."""
    found = {number for number, column in enumerate(columns) if _PERIOD.match(column[0])}
    years = [int(columns[n][0]) for n in sorted(found) if columns[n][0].isdecimal()]
    ordered = years in (sorted(years), sorted(years, reverse=True))
    dated = [cell for n in found for cell in columns[n][1:] if _PERIOD.match(cell)]
    filled = [cell for n in found for cell in columns[n][1:] if cell]
    return found if len(found) >= 2 and ordered and 2 * len(dated) <= len(filled) else set()


def _stands_out(name: str, below: Sequence[str]) -> bool:
    return _is_name(name) and _all_data(below)


def _is_name(cell: str) -> bool:
    return _kind(cell) == "words" and len(cell) <= _LONGEST_NAME and not _SENTENCE.search(cell)


def _all_data(cells: Iterable[str]) -> bool:
    kinds = {_is_data(cell) for cell in cells if cell}
    return kinds == {True}


def _is_data(cell: str) -> bool:
    return _kind(cell) in ("number", "code")


def _is_one_of(cell: str, below: Sequence[str]) -> bool:
    """Whether most of the cells below are made as this one is: E-17, E-18."""
    shape = _shape(cell)
    filled = [other for other in below if other]
    return "0" in shape and 2 * sum(_shape(other) == shape for other in filled) > len(filled)


def _shape(cell: str) -> str:
    return re.sub(r"[^\W\d]+", "a", re.sub(r"\d+", "0", cell))


def _kind(cell: str) -> _Kind:
    """A number, perhaps with a unit; a code such as E-17, P7-A or ISO VG 46; or words."""
    if not cell:
        return ""
    if _numeric(cell):
        return "number"
    has_digit = any(character.isdigit() for character in cell)
    return "code" if has_digit and len(cell.split()) <= 3 else "words"


def _numeric(cell: str) -> bool:
    """A number, perhaps with a unit: 4410, ± 0.5 bar, 68 N m."""
    letters = sum(character.isalpha() for character in cell)
    digits = sum(character.isdigit() for character in cell)
    return digits > letters or (bool(_LEADING_NUMBER.match(cell)) and letters <= 6)


def _columns(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[_at(row, column) for row in rows] for column in range(_width(rows))]


def _width(rows: Sequence[Sequence[str]]) -> int:
    return max((len(row) for row in rows), default=0)


def _at(row: Sequence[str], column: int) -> str:
    return row[column] if column < len(row) else ""
