"""Plain text in any encoding -> blocks: paragraphs, items, aligned rows, headings, pages."""

from __future__ import annotations

import codecs
import re
import string
from collections.abc import Iterator, Sequence
from itertools import count, groupby

from runtime.byte_order_marks import marked_encoding
from runtime.cleaning import (
    EdgeLine,
    Vocabulary,
    append_line,
    clean_characters,
    contents_lines,
    is_page_label,
    running_lines,
    smuggled_text,
)
from runtime.errors import UnsupportedDocument
from runtime.readers.blocks import INVISIBLE, Block, BlockKind, RawDocument, join_blocks
from runtime.readers.context import Context

_SAMPLE = 1 << 16  # bytes looked at to tell an encoding
_ITEM = re.compile(
    r"^\s*(?:[-*+•◦▪‣·–—]|\(?\d{1,3}[.)]|\(?[a-zA-Z][.)]|\d\d?:\d\d|\d{4}-\d\d-\d\d)\s+\S"
)
_NUMBERED = re.compile(r"^(\d{1,2}(?:\.\d{1,3}){0,4})\.?\s+(?=[^\W\d_])")
_STEP = re.compile(r"^\s*(\d{1,3})([.)]?)\s+(?=[^\W\d_])")
_UNDERLINE = re.compile(r"^\s*([=\-~*#^\"])\1{2,}\s*$")
_UNDERLINES = '=-~*#^"'
_RULE = re.compile(r"^[\s\-=_*~#.+|]{3,}$")
_RULE_ENDS = "-=_*~#.+|"
_TWO_GAPS = re.compile(r"\S {2}\S.*\S {2}\S")
_LETTERS = frozenset(string.ascii_letters)
_LETTERED = frozenset((".", ")"))  # after a letter, or a letter in brackets, that numbers items
_HEADING_LENGTH = 90
_UNWRAPPED = 200  # characters; longer lines are paragraphs of their own
_LISTED = 8  # lines; a longer block of short lines is a list or log, each line for itself
_SLACK = 8  # characters by which hand-wrapped lines fall short
_CONTROLS = bytes((*range(0, 7), *range(14, 27), *range(28, 32)))
_WIDE = (("utf-32-le", 4), ("utf-32-be", 4), ("utf-16-le", 2), ("utf-16-be", 2))  # bytes at least
_WIDE_BYTES = 64
_STOPS = frozenset(" \t\n\r\f\u3000\u3001\u3002\uff0c\uff0e")
_SHIFTED = re.compile(rb"\+[A-Za-z0-9+/]{3,}-?")
# After a letter: in CP852 letters of Central European languages, in Windows-1250 signs.
_ONLY_DOS = re.compile(rb"(?<=[a-zA-Z])[\x82\xa1-\xa3](?=[a-zA-Z\s.,])")
# S and z with a caron before a letter, in ISO 8859-2; in Windows-1250 they would be letters that
# stand beside none of c, e, r and u with their signs, of which a text in Czech or Slovak has some.
_ONLY_LATIN2 = re.compile(rb"[\xb9\xbe](?=[a-zA-Z\xe1-\xfe])")
_NOT_LATIN2 = re.compile(rb"[\x80-\x9f\xb3\xea\xbf]|^[^\xe8\xec\xf8\xf9]*\Z")
_EDGE = 2  # lines at the top and bottom of a page that may be furniture


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Paragraphs of a plain text."""
    text = decode(data, context)
    hidden = [(INVISIBLE, smuggled)] if (smuggled := smuggled_text(text)) else []
    return [RawDocument("text/plain", text_blocks(text), hidden=hidden, is_clean=True)]


def decode(data: bytes, context: Context) -> str:
    """Bytes of a text as text: byte order mark, UTF-8, else the likeliest legacy encoding.

    Raises:
        UnsupportedDocument: these are not bytes of a text.
    """
    if encoding := marked_encoding(data) or _utf16_without_mark(data):
        return data.decode(encoding, "replace")
    if looks_binary(data):
        if encoding := _wide_without_mark(data):
            return data.decode(encoding, "replace")
        raise UnsupportedDocument(
            "It is binary data, not a text",
            where=context.source,
            fix="Convert it to a format in docs/formats.md.",
        )
    if data.isascii() and (encoding := _seven_bit_encoding(data)):
        return data.decode(encoding, "replace")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        # One damaged place in what is otherwise UTF-8, or a file cut inside a character.
        if _mostly_utf8(data, error):
            return data.decode("utf-8", "replace")
    return data.decode(_legacy_encoding(data), "replace")


def looks_binary(data: bytes) -> bool:
    """Whether the first bytes hold more control bytes than any text does."""
    sample = data[:_SAMPLE]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return controls > 0.01 * len(sample) + 2


def text_blocks(text: str) -> list[Block]:
    """Blocks of a plain text, in clean characters.

    A form feed begins a new page, as in RFCs and printouts.
    """
    sheets = text.replace("\r\n", "\n").replace("\r", "\n").rstrip("\f\n ").split("\f")
    sheets = [sheet.expandtabs(8) if "\t" in sheet else sheet for sheet in sheets]
    pages = [clean_characters(sheet).split("\n") if sheet else [] for sheet in sheets]
    if len(pages) > 1:
        pages = _without_furniture(pages)
    pages = _without_contents(pages)
    everything = [line for page in pages for line in page]
    vocabulary = Vocabulary(everything)
    width = _wrap_width(everything)
    grouped = [list(_groups(lines)) for lines in pages]
    stepping = steps([group[0] for groups in grouped for group in groups])
    order = count()
    blocks: list[Block] = []
    for number, groups in enumerate(grouped, 1):
        page = number if len(pages) > 1 else None
        fresh = [
            block
            for group in groups
            for block in _group_blocks(group, page, vocabulary, width, next(order) in stepping)
        ]
        if fresh and blocks and page and _goes_on(blocks[-1], fresh[0]):
            join_blocks(blocks[-1], fresh[0], vocabulary)
        blocks += fresh
    return blocks


def _goes_on(last: Block, first: Block) -> bool:
    """Whether a paragraph crosses the page: it stops mid-sentence and goes on in lower case."""
    return (
        last.kind == first.kind == "paragraph"
        and not last.text.rstrip().endswith((".", "!", "?", ":", "。"))
        and first.text[:1].islower()
    )


def _without_furniture(pages: list[list[str]]) -> list[list[str]]:
    edges: list[EdgeLine] = []
    for page, lines in enumerate(pages):
        filled = [index for index, line in enumerate(lines) if line.strip()]
        for depth, index in enumerate(filled[:_EDGE]):
            text = lines[index].strip()
            titled = "  " not in text and heading_level(text) > 0
            edges.append(EdgeLine(page, index, text, True, depth, depth, stands_out=titled))
        for depth, index in enumerate(reversed(filled[_EDGE:][-_EDGE:])):
            edges.append(EdgeLine(page, index, lines[index].strip(), False, depth, depth))
    running = running_lines(edges, len(pages))
    for page, index in sorted(running, reverse=True):  # from inside
        names, below, *_ = *pages[page][index : index + 2], ""
        if (page, index + 1) not in running and _aligned([names.strip(), below.strip()]):
            running.discard((page, index))  # names of columns, above a row that stays
    return [
        [line for index, line in enumerate(lines) if (page, index) not in running]
        for page, lines in enumerate(pages)
    ]


def _without_contents(pages: list[list[str]]) -> list[list[str]]:
    """The pages without tables of contents and lines that only number a page."""
    flat = [line for lines in pages for line in lines]
    dropped = contents_lines(flat)
    dropped.update(
        [
            i
            for i, line in enumerate(flat)
            if line and line[-1] not in _LETTERS and is_page_label(line)
        ]
    )
    if not dropped:
        return pages
    numbers = count()
    return [[line for line in lines if next(numbers) not in dropped] for lines in pages]


def _wrap_width(lines: list[str]) -> int:
    """Where this text wraps its lines: the length that one line in fifty exceeds."""
    lengths = sorted(map(len, filter(str.strip, lines)))
    return lengths[-1 - len(lengths) // 50] if lengths else 0


def _groups(lines: list[str]) -> Iterator[list[str]]:
    """Runs of lines between blank ones."""
    runs = groupby(map(str.rstrip, lines), bool)
    return (list(run) for is_filled, run in runs if is_filled)


def _group_blocks(
    lines: list[str], page: int | None, vocabulary: Vocabulary, width: int, is_step: bool
) -> list[Block]:
    """Blocks of lines that stand together, none of them blank or with white space at its end."""
    blocks: list[Block] = []
    is_ruled = len(lines) >= 2 and lines[1][-1] in _UNDERLINES
    underline = _UNDERLINE.match(lines[1]) if is_ruled else None
    if underline and len(lines[0]) <= _HEADING_LENGTH:
        level = {"=": 1, "#": 1, "*": 1}.get(underline.group(1), 2)
        blocks.append(Block("heading", lines[0], level, page))
        lines = lines[2:]
    lines = [line for line in lines if line[-1] not in _RULE_ENDS or not _RULE.match(line)]
    texts = [line.lstrip() for line in lines]
    if len(lines) == 1 and is_step:
        blocks.append(Block("item", texts[0], page=page))
    elif len(lines) == 1 and (level := heading_level(lines[0])):
        blocks.append(Block("heading", lines[0], level, page))
    elif _aligned(texts):
        blocks += [Block("row", line, page=page) for line in lines]
    elif lines:
        blocks += _prose(lines, texts, page, vocabulary, width)
    return blocks


def heading_level(line: str) -> int:
    """Level of a line that stands alone and reads like a heading, 0 for other lines.

    Only numbered titles ("3.2 Spare parts") and titles in capitals ("SPARE PARTS").
    """
    line = line.strip()
    if not 3 <= len(line) <= _HEADING_LENGTH or line.endswith((".", ",", ";", ":", "!", "?")):
        return 0
    if match := _NUMBERED.match(line):
        title = line[match.end() :]
        return match.group(1).count(".") + 1 if title[0].isupper() and len(title) < 70 else 0
    if line.isascii() and not line.isupper():
        return 0
    letters = [character for character in line if character.isalpha()]
    capitals = len(letters) >= 4 and all(character.isupper() for character in letters)
    return 1 if capitals and " " in line and not any(c.isdigit() for c in line) else 0


def steps(paragraphs: Sequence[str]) -> set[int]:
    """Indices of the paragraphs that are items of a numbered list, not titles of sections.

    They follow each other without text between and count on in one style, "1." or "1": at least
    three of them, or two with a dot or bracket and three words each.
    """
    found: set[int] = set()
    run = range(0)
    expected = ("", "")  # number and style that continue the run
    for index, paragraph in enumerate([*paragraphs, ""]):
        match = _STEP.match(paragraph)
        if match is None or match.groups() != expected:
            worded = expected[1] and all(len(paragraphs[i].split()) > 3 for i in run)
            if len(run) > 2 or (len(run) == 2 and worded):
                found.update(run)
            run = range(index, index)
        run = range(run.start, index + 1) if match else run
        expected = (str(int(match[1]) + 1), match[2]) if match else ("", "")
    return found


def is_item(line: str) -> bool:
    """Whether a line begins with a bullet, a number or letter of a list, a time or a date."""
    return _ITEM.match(line) is not None


def _aligned(texts: list[str]) -> bool:
    """Whether the lines, stripped, are rows of a table set in spaces."""
    if len(texts) < 2:
        return False
    enough = 0.7 * len(texts)
    gaps = [text for text in texts if "  " in text or "|" in text]  # in prose mostly none
    return len(gaps) >= enough and sum(map(_has_columns, gaps)) >= enough


def _has_columns(text: str) -> bool:
    """A bar, a wide gap or two gaps; a single gap of two spaces ends a typewritten sentence."""
    return "|" in text or "   " in text or ("  " in text and _TWO_GAPS.search(text) is not None)


def _prose(
    lines: list[str], texts: list[str], page: int | None, vocabulary: Vocabulary, width: int
) -> list[Block]:
    """Items, and prose with its hard-wrapped lines joined; other line ends were meant.

    `texts` are the lines, stripped.
    """
    # Most lines begin with a letter and are none.
    items = [(not text[0].isalpha() or text[1:2] in _LETTERED) and is_item(text) for text in texts]
    if len(lines) == 1:
        return [Block(_kind(items[0], listed=False), texts[0], page=page)]
    widest = max(map(len, lines))
    flows = _flows(lines, texts, widest if widest >= 0.6 * width else width)
    listed = len(lines) > _LISTED and sum(flows) < 0.3 * len(flows)
    blocks: list[Block] = []
    kind = _kind(items[0], listed)
    parts = texts[:1]
    for before, text, flowing, item in zip(lines, texts[1:], flows, items[1:], strict=False):
        if item or len(before) > _UNWRAPPED or (listed and not flowing):
            blocks.append(Block(kind, "".join(parts), page=page))
            kind = _kind(item, listed)
            parts = [text]
        elif flowing:
            append_line(parts, text, vocabulary)
        else:
            parts += ("\n", text)
    blocks.append(Block(kind, "".join(parts), page=page))
    return blocks


def _kind(item: bool, listed: bool) -> BlockKind:
    return "item" if item else "row" if listed else "paragraph"


def _flows(lines: list[str], texts: list[str], width: int) -> list[bool]:
    """For each line but the last: whether it goes on in the next one.

    It does when the next word would not have fitted, or when it breaks off in lower case or at a
    hyphen.
    """
    if not 40 <= width <= _UNWRAPPED:
        return [line.endswith("-") for line in lines[:-1]]
    full, half, third = width - _SLACK, 0.5 * width, 0.3 * width
    return [
        (length := len(line)) >= full
        or (length >= half and text[0].islower() and line[-1].isalpha())
        or (length + len(text) >= full and length + 1 + len(text.partition(" ")[0]) > full)
        or (length >= third and line[-1] == "-")
        for line, text in zip(lines, texts[1:], strict=False)
    ]


def _utf16_without_mark(data: bytes) -> str | None:
    """Text in a Western script as UTF-16 has NUL in every other byte."""
    sample = data[:_SAMPLE]
    if len(sample) < 8:
        return None
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    half = len(sample) // 2
    if odd > 0.4 * half and even < 0.05 * half:
        return "utf-16-le"
    if even > 0.4 * half and odd < 0.05 * half:
        return "utf-16-be"
    return None


def _wide_without_mark(data: bytes) -> str | None:
    """UTF-16 or UTF-32 in any script: as few other bytes are, text when read so."""
    if len(data) < _WIDE_BYTES:
        return None
    for encoding, width in _WIDE:
        if len(data) % width == 0 and _is_text(data[:_SAMPLE], encoding):
            return encoding
    return None


def _is_text(sample: bytes, encoding: str) -> bool:
    """Whether the bytes are valid, nearly all printable, and have spaces or stops as texts have."""
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(sample)  # may end in a character
    except UnicodeDecodeError:
        return False
    spaces = sum(character in _STOPS for character in text)
    printable = sum(character in _STOPS or character.isprintable() for character in text)
    return printable > 0.99 * len(text) and spaces > 0.02 * len(text)


def _seven_bit_encoding(data: bytes) -> str | None:
    """The encoding that writes other characters in ASCII; None if it is just ASCII.

    UTF-7 is told by three characters at least, all of them letters, and no plus sign else.
    """
    if b"\x1b$" in data and _decodes(data, "iso2022_jp_2"):
        return "iso2022_jp_2"
    shifted = _SHIFTED.findall(data)
    if len(shifted) < 3 or len(shifted) + data.count(b"+-") != data.count(b"+"):
        return None
    if not all(_decodes(one, "utf-7") for one in set(shifted)):
        return None
    return "utf-7" if all(one.decode("utf-7").isalpha() for one in set(shifted)) else None


def _decodes(data: bytes, encoding: str) -> bool:
    try:
        data.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _mostly_utf8(data: bytes, error: UnicodeDecodeError) -> bool:
    """Whether damaged bytes are rare among the multi-byte characters of valid UTF-8."""
    sample = data[: max(_SAMPLE, error.end + 64)][: 8 * _SAMPLE]
    decoded = sample.decode("utf-8", "replace")
    damaged = decoded.count("\ufffd")
    valid = sum(character > "\x7f" for character in decoded) - damaged
    return valid > 8 * damaged or (damaged == 1 and error.end >= len(data) - 1)


def _legacy_encoding(data: bytes) -> str:
    """The likeliest encoding of bytes that are not UTF-8."""
    from charset_normalizer import from_bytes

    sample = data[:_SAMPLE]
    found = from_bytes(sample, steps=5, chunk_size=2048)
    best = found.best()
    encoding = best.encoding if best is not None else "cp1252"
    if encoding == "cp1250" and best is not None:
        # The detector takes these two, equally good in its eyes, for their Windows sister.
        as_dos = next((one for one in found if one.encoding == "cp852"), None)
        if as_dos and as_dos.chaos <= best.chaos and len(_ONLY_DOS.findall(sample)) >= 3:
            return "cp852"
        if not _NOT_LATIN2.search(sample) and len(_ONLY_LATIN2.findall(sample)) >= 2:
            return "iso8859_2"
    # Latin-1 texts are Windows-1252 in practice; the detector's other guesses for a few accented
    # letters (Mac, EBCDIC, DOS) are mostly wrong.
    rare = encoding.startswith(("mac", "cp037", "cp500", "cp1140", "cp1026", "hp_", "latin"))
    return "cp1252" if rare or encoding in ("iso8859_1", "ascii") else encoding
