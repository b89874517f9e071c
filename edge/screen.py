"""Lines, tables and quotes -> a terminal, or plain text in a pipe.

Two screens with one interface: `RichScreen` colours and wraps for people, `PlainScreen` writes text
that greps well and never imports rich. Whatever comes from documents or file names is made harmless
first: control characters (an escape sequence in a file name, say) are shown, not obeyed.
"""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import IO, TYPE_CHECKING, Any, ClassVar, Literal, Protocol

if TYPE_CHECKING:
    from rich.console import Console

Style = Literal["plain", "strong", "dim", "good", "warning", "bad", "answer"]
Part = str | tuple[str, Style]

WIDEST = 110  # columns; longer lines are hard to read
PIPE_WIDTH = 100
LONGEST_CELL = 48  # columns of a table cell in plain text, where its column is not wide
NARROWEST_CELL = 24  # columns of a wide column in plain text, however many others there are

_NARROWEST_TEXT = 6  # columns, of any text on a narrow terminal


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column; numbers stand to the right. `wide` columns take the room that is left."""

    title: str
    right: bool = False
    wide: bool = False


_HARMFUL = ("Cc", "Cs", "Co", "Cn")  # control, broken bytes, private use, unassigned
_DIRECTIONS = "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"  # turn text around


class Screen(Protocol):
    """Where a command's results go."""

    def line(self, *parts: Part, indent: int = 0) -> None:
        """One paragraph, wrapped, `indent` columns in; without parts an empty line."""

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Names and values, one pair a line."""

    def table(self, title: str, columns: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        """A table; cells are text."""

    def quote(self, before: str, marked: str, after: str) -> None:
        """A passage with one part of it marked."""


def open_screen(stream: IO[str] | None = None) -> Screen:
    """The screen that fits `stream` (standard output): rich on a terminal, else plain."""
    stream = stream or sys.stdout
    return RichScreen(stream) if is_terminal(stream) else PlainScreen(stream)


def is_terminal(stream: IO[str]) -> bool:
    """Whether `stream` is a terminal that people want colours on (see no-color.org)."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def printable(text: str) -> str:
    """`text` with control characters and broken bytes as visible escapes; line breaks stay."""
    if text.isprintable():
        return text
    return "".join(c if c == "\n" or _is_harmless(c) else _escape(c) for c in text)


def _is_harmless(character: str) -> bool:
    return unicodedata.category(character) not in _HARMFUL and character not in _DIRECTIONS


def _escape(character: str) -> str:
    if character == "\t":
        return " "
    return character.encode("unicode_escape").decode("ascii")


def one_line(text: str, longest: int = 10_000) -> str:
    """`text` with white space collapsed, cut to `longest` columns with an ellipsis."""
    flat = printable(" ".join(text.split()))
    if columns(flat) <= longest:
        return flat
    kept, used = [], 0
    for character in flat:
        used += columns(character)
        if used > longest - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def counted(count: int, what: str) -> str:
    """`1 document`, `2,000 documents`: a number and what it counts, in the singular given."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def path_end(path: str, longest: int = LONGEST_CELL) -> str:
    """The end of a path in at most `longest` columns: that is where files differ."""
    flat = printable(path)
    while columns(flat) > longest:
        flat = "…" + flat[max(2, len(flat) - longest + 1) :]
    return flat


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


class PlainScreen:
    """Text without colours, at most `PIPE_WIDTH` columns where lines can be broken."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def line(self, *parts: Part, indent: int = 0) -> None:
        text = "".join(part if isinstance(part, str) else part[0] for part in parts)
        for paragraph in printable(text).split("\n"):
            self._write(_wrap(paragraph, indent=indent))

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        width = max((columns(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            lines = textwrap.wrap(
                one_line(value),
                max(NARROWEST_CELL, PIPE_WIDTH - width - 2),
                break_long_words=False,
                break_on_hyphens=False,
            )
            for line, label in zip_longest(lines, [printable(name)], fillvalue=""):
                self._write(f"{_pad(label, width)}  {line}".rstrip())

    def table(self, title: str, columns_: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        cells = [
            [
                one_line(cell) if column.wide else one_line(cell, LONGEST_CELL)
                for cell, column in zip(row, columns_, strict=True)
            ]
            for row in rows
        ]
        head = [column.title for column in columns_]
        widths = [max(map(columns, column)) for column in zip(head, *cells, strict=True)]
        wide = [place for place, column in enumerate(columns_) if column.wide]
        for place in wide:
            others = sum(widths) - widths[place] + 2 * (len(widths) - 1)
            widths[place] = min(widths[place], max(NARROWEST_CELL, PIPE_WIDTH - others))
        if title:
            self._write(title)
        for row in (head, ["-" * width for width in widths], *cells):
            self._row(row, widths, columns_)

    def _row(self, row: Sequence[str], widths: Sequence[int], columns_: Sequence[Column]) -> None:
        """A row; cells wider than their column go on in the lines below."""
        pieces = [
            textwrap.wrap(cell, width) if columns(cell) > width else [cell]
            for cell, width in zip(row, widths, strict=True)
        ]
        for line in zip_longest(*pieces, fillvalue=""):
            padded = [
                _pad(cell, width, right=column.right)
                for cell, width, column in zip(line, widths, columns_, strict=True)
            ]
            self._write("  ".join(padded).rstrip())

    def quote(self, before: str, marked: str, after: str) -> None:
        text = printable(f"{before}>>{marked}<<{after}")
        for paragraph in text.split("\n"):
            self._write(_wrap(paragraph, indent=2))

    def _write(self, text: str) -> None:
        self._stream.write(text + "\n")


def _wrap(text: str, *, indent: int = 0) -> str:
    margin = " " * indent
    if len(text) + indent <= PIPE_WIDTH:
        return (margin + text).rstrip()
    return textwrap.fill(
        text,
        PIPE_WIDTH,
        initial_indent=margin,
        subsequent_indent=margin,
        replace_whitespace=False,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _pad(text: str, width: int, *, right: bool = False) -> str:
    space = " " * (width - columns(text))
    return space + text if right else text + space


def _fitted(natural: Sequence[int], columns_: Sequence[Column], room: int) -> list[int]:
    """The columns' widths within `room`, if that can be: numbers keep theirs, wide columns give
    first, then whichever text is widest."""
    widths = list(natural)
    for place, column in enumerate(columns_):
        if column.wide:
            left = room - (sum(widths) - widths[place])
            widths[place] = min(widths[place], max(NARROWEST_CELL, left))
    texts = [place for place, column in enumerate(columns_) if not column.right]
    for _ in range(sum(widths) - room):
        widest = max(texts, key=lambda place: widths[place], default=None)
        if widest is None or widths[widest] <= _NARROWEST_TEXT:
            break
        widths[widest] -= 1
    return widths


class RichScreen:
    """A terminal, through rich."""

    _STYLES: ClassVar[dict[Style, str]] = {
        "plain": "",
        "strong": "bold",
        "dim": "dim",
        "good": "green",
        "warning": "yellow",
        "bad": "bold red",
        "answer": "bold black on bright_yellow",
    }

    def __init__(self, stream: IO[str]) -> None:
        from rich.console import Console

        width = min(WIDEST, shutil.get_terminal_size().columns)
        self.console: Console = Console(
            file=stream, width=width, markup=False, highlight=False, emoji=False
        )

    def line(self, *parts: Part, indent: int = 0) -> None:
        self._print_indented(self._text(*parts), indent)

    def pairs(self, pairs: Sequence[tuple[str, str]]) -> None:
        grid = self._grid()
        for name, value in pairs:
            grid.add_row(self._text((name, "dim")), self._text(one_line(value)))
        self.console.print(grid)

    def table(self, title: str, columns_: Sequence[Column], rows: Sequence[Sequence[str]]) -> None:
        from rich import box
        from rich.table import Table

        table = Table(
            title=title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD,
            pad_edge=False,
        )  # fmt: skip
        cells = [[one_line(cell) for cell in row] for row in rows]
        head = [column.title for column in columns_]
        natural = [max(map(columns, column)) for column in zip(head, *cells, strict=True)]
        room = (
            self.console.width - 3 * (len(columns_) - 1) - 2
        )  # less what stands between and at the ends
        for column, width in zip(columns_, _fitted(natural, columns_, room), strict=True):
            table.add_column(
                column.title,
                justify="right" if column.right else "left",
                overflow="ellipsis" if not column.wide else "fold",
                no_wrap=not column.wide,
                width=width,
            )
        for row in cells:
            table.add_row(*map(self._text, row))
        self.console.print(table)

    def quote(self, before: str, marked: str, after: str) -> None:
        self._print_indented(
            self._text((before, "dim"), (marked, "answer"), (after, "dim")), indent=2
        )

    def _print_indented(self, text: Any, indent: int) -> None:
        from rich.padding import Padding

        self.console.print(Padding(text, (0, 0, 0, indent), expand=False) if indent else text)

    def _grid(self) -> Any:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True)
        grid.add_column()
        return grid

    def _text(self, *parts: Part) -> Any:
        from rich.text import Text

        text = Text()
        for part in parts:
            content, style = (part, "plain") if isinstance(part, str) else part
            text.append(printable(content), self._STYLES[style])  # type: ignore[index]
        return text
