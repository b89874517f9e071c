"""RTF -> blocks: one paragraph a line, rows of tables, footnotes last, hidden runs apart."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from itertools import groupby

from runtime.documents import Flag
from runtime.errors import DamagedDocument
from runtime.readers.blocks import Block, RawDocument, perhaps_white, table_blocks
from runtime.readers.context import Context
from runtime.readers.equations import exponent
from runtime.readers.table_header import split_header
from runtime.readers.text import heading_level, is_item, steps

_TOKEN = re.compile(
    r"\\(?P<word>[a-zA-Z]{1,32})(?P<number>-?\d{1,10})? ?|\\'[0-9a-fA-F]{2}|\\[^a-zA-Z]|"
    r"(?P<brace>[{}])|[^\\{}]+|\\",
    re.DOTALL,
)
_UNREAD = frozenset(  # groups whose text is no text of the document
    "colortbl fonttbl info listoverridetable listtable pict stylesheet themedata header headerf "
    "headerl headerr footer footerf footerl footerr".split()
)
_BREAKS = frozenset(("cell", "line", "page", "par", "row", "sect", "tab"))
_TITLE = re.compile(r"\{\\title ([^{}\\]{1,200})\}")
_CODE_PAGE = re.compile(r"\\ansicpg(\d{3,5})")

_COLOURS = re.compile(r"\{\\colortbl([^{}]*)\}")
_LIGHT = re.compile(r"\\(?:red|green|blue)(?:24[89]|25[0-5])(?!\d)")
_PAINTED = re.compile(r"\\(?:highlight|cb|chcbpat|chcfpat|cbpat|cfpat|clcbpat|clcfpat)[1-9]")
_WHITE = "white on white"
_SMALLEST = 2  # half-points: what is no larger cannot be read

_UNICODE = re.compile(r"\\u(-?\d+)")


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Paragraphs and table rows. RTF knows no pages before it is laid out, so none are given."""
    from striprtf.striprtf import rtf_to_text

    source = data.decode("latin-1")
    title = _TITLE.search(source)
    page = _CODE_PAGE.search(source)
    source = _UNICODE.sub(_in_range, source)
    splitter = _Splitter(_whites(source))
    splitter.split(source)
    if splitter.depth > 1:
        raise DamagedDocument("It is truncated", where=context.source)

    def plain(markup: str) -> str:
        encoding = f"cp{page.group(1)}" if page else "cp1252"
        return str(rtf_to_text(markup, encoding=encoding, errors="replace"))  # type: ignore[no-untyped-call]

    hidden = [(why, plain(f"{{\\rtf1 {run}}}")) for why, run in splitter.hidden()]
    flags: list[Flag] = []
    white = " ".join(text for why, text in hidden if why == _WHITE)
    if white and _PAINTED.search(source):
        flags.append(perhaps_white(white))
        hidden = [(why, text) for why, text in hidden if why != _WHITE]
        splitter = _Splitter(frozenset())
        splitter.split(source)
    text = plain(splitter.document())
    blocks: list[Block] = []
    for is_row, lines in groupby(text.split("\n"), key=lambda line: line.rstrip().endswith("|")):
        if is_row:
            rows = [line.rstrip().rstrip("|").split("|") for line in lines]
            header, body = split_header(rows)
            blocks += table_blocks(body, header=header)
        else:
            paragraphs = [line for line in lines if line.strip()]
            stepping = steps(paragraphs)
            blocks += [_line(line, number in stepping) for number, line in enumerate(paragraphs)]
    return [
        RawDocument(
            "application/rtf",
            blocks,
            title=title.group(1) if title else "",
            hidden=hidden,
            flags=flags,
        )
    ]


def _whites(source: str) -> frozenset[str]:
    """Numbers of the colours that are white."""
    table = _COLOURS.search(source)
    colours = table.group(1).split(";") if table else []
    return frozenset(
        str(number) for number, colour in enumerate(colours) if len(_LIGHT.findall(colour)) == 3
    )


@dataclass(slots=True)
class _Group:
    """The state that a group of RTF inherits from the one around it, and changes for itself."""

    vanished: bool = False
    white: bool = False
    tiny: bool = False
    unread: bool = False
    note: bool = False
    raised: bool = False

    @property
    def why_hidden(self) -> str | None:
        if self.vanished:
            return "hidden text"
        return _WHITE if self.white else "font size of zero" if self.tiny else None


class _Splitter:
    """Parts the source: what is seen, footnotes, hidden text (which may begin and end anywhere)."""

    def __init__(self, whites: frozenset[str]) -> None:
        self.depth = 0  # groups still open
        self._whites = whites
        self._body: list[str] = []
        self._notes: list[str] = []
        self._hidden: list[tuple[str, list[str]]] = []
        self._groups = [_Group()]
        self._was_hidden: str | None = None

    def split(self, source: str) -> None:
        """Take in the whole source."""
        place = 0
        while (match := _TOKEN.match(source, place)) is not None:
            place = match.end()
            group, piece = self._groups[-1], match.group()
            if brace := match.group("brace"):
                self._brace(brace, group)
            elif word := match.group("word"):
                if word == "bin":  # raw bytes, in which braces mean nothing
                    place += max(0, int(match.group("number") or 0))
                    piece += source[match.end() : place]
                self._word(word, match.group("number"), piece, group)
            elif piece == r"\*":
                group.unread = True
                self._put(piece, group)
            else:
                self._text(piece, group)

    def document(self) -> str:
        """The source without hidden text, footnotes after the body."""
        end = len(self._body)
        if self.depth == 0 and "}" in self._body:
            end -= self._body[::-1].index("}") + 1
        return "".join([*self._body[:end], *self._notes, *self._body[end:]])

    def hidden(self) -> list[tuple[str, str]]:
        """Sources of the hidden runs, each with the reason."""
        runs = ((why, "".join(pieces)) for why, pieces in self._hidden)
        return [(why, run) for why, run in runs if run.strip()]

    def _brace(self, brace: str, group: _Group) -> None:
        if brace == "{":
            self._put(brace, group)
            self._groups.append(replace(group))
            self.depth += 1
            return
        if len(self._groups) > 1:
            self._groups.pop()
        self.depth = max(0, self.depth - 1)
        around = self._groups[-1]
        if group.note and not around.note:
            self._notes.append("}")
        self._put(brace, around)

    def _word(self, word: str, number: str | None, piece: str, group: _Group) -> None:
        if word == "footnote" and not group.unread and not group.note:
            group.note = True
            self._notes.append(r"\par{\plain ")
            return
        if word in _UNREAD:
            group.unread = True
        elif word == "u" and number is not None:
            self._text(piece, group)
            return
        elif word in _BREAKS:
            if self._was_hidden and group.why_hidden and not group.unread:
                self._hidden[-1][1].append(" ")
        else:
            self._style(word, number, group)
        self._put(piece, group)

    def _style(self, word: str, number: str | None, group: _Group) -> None:
        match word:
            case "v":
                group.vanished = number != "0"
            case "cf":
                group.white = (number or "0") in self._whites
            case "fs":
                group.tiny = int(number or 24) <= _SMALLEST
            case "super":
                group.raised = number != "0"
            case "sub" | "nosupersub":
                group.raised = False
            case "plain":
                group.vanished = group.white = group.tiny = group.raised = False

    def _text(self, piece: str, group: _Group) -> None:
        why = None if group.unread else group.why_hidden
        if why is None:
            if piece.strip():
                self._was_hidden = None
            self._put(_exponent(piece) if group.raised else piece, group)
            return
        if why != self._was_hidden:
            self._hidden.append((why, []))
        self._was_hidden = why
        self._hidden[-1][1].append(piece)

    def _put(self, piece: str, group: _Group) -> None:
        (self._notes if group.note else self._body).append(piece)


def _exponent(piece: str) -> str:
    """A raised number, each sign by its code: `{\\super 3}` is ³."""
    raised = exponent(piece)
    return piece if raised == piece else "".join(f"\\u{ord(sign)}?" for sign in raised)


def _line(line: str, is_step: bool) -> Block:
    if not is_step and (level := heading_level(line)):
        return Block("heading", line, level)
    return Block("item" if is_step or is_item(line) else "paragraph", line)


def _in_range(match: re.Match[str]) -> str:
    """A character by its number; of a number that no character has, the replacement character."""
    number = match.group(1)
    known = len(number) <= 7 and -0x10000 <= int(number) <= 0x10FFFF
    return match.group() if known else r"\u65533"
