"""Text -> its sentences, as spans. Rationales and windows are cut at these.

Rule-based on purpose: the stored text is already cleaned and unwrapped, a wrong cut costs a little
context and never an answer, and there is no model to load. A line break always ends a sentence
(the readers put one only between blocks), so table rows and list items stand alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import regex

from runtime.documents import Span

# A terminator with its closing quotes or brackets. The full-width and CJK ones need no white space
# after them; the others do, and must not follow an abbreviation.
_BREAK = regex.compile(
    r"""(?P<cjk>[。！？｡]+[”’」』）】》]*)
      | (?P<other>[.!?…؟।۔]+["'”’)\]»]*)(?=\s+[^\p{Ll}\s]|\s*$)
      | (?P<line>\n+)""",
    regex.VERBOSE | regex.MULTILINE,
)
# The same for ASCII, several times faster: one set of characters begins all of it.
_BREAK_ASCII = re.compile(
    r"""[.!?\n](?:(?<=\n)\n*|(?<!\n)[.!?]*["')\]]*(?=\s+[^a-z\s]|\s*$))""", re.ASCII | re.MULTILINE
)
_LAST_WORD = regex.compile(r"[\p{L}\p{N}.]+$")
_LONGEST_ABBREVIATION = 12  # characters looked at
_ABBREVIATIONS = frozenset(
    (
        "mr mrs ms dr prof st sr jr gen col capt lt sgt rev hon gov sen rep vs etc no nos fig "
        "figs eq sec ch vol ed eds pp p cf al approx dept est inc ltd co corp max min temp ref "
        "art jan feb mar apr jun jul aug sep sept oct nov dec mon tue wed thu fri sat sun u.s "
        "u.k e.g i.e a.m p.m z.b d.h bzw ca nr str"
    ).split()
)


def sentence_spans(text: str) -> list[Span]:
    """The sentences of `text` in order, trimmed of white space; together they hold all words."""
    return [Span(start, start + len(piece)) for start, piece in _sentences(text)]


def sentence_starts(text: str) -> list[int]:
    """Where the sentences of `text` begin, ascending."""
    return [start for start, _ in _sentences(text)]


def _sentences(text: str) -> Iterator[tuple[int, str]]:
    """Where each sentence begins, and its text without white space around it."""
    start = 0
    for end in _ends(text):
        piece = text[start:end].rstrip()
        bare = piece.lstrip()
        if bare:
            yield start + len(piece) - len(bare), bare
        start = end


def _ends(text: str) -> Iterator[int]:
    for match in (_BREAK_ASCII if text.isascii() else _BREAK).finditer(text):
        begin, end = match.span()
        if end - begin > 1 or text[begin] != "." or not _is_abbreviation(text, begin):
            yield end
    yield len(text)


def trim(text: str, span: Span) -> Span:
    """`span` without the white space at its ends; empty spans collapse to their start."""
    start, end = span.start, span.end
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end)


def _is_abbreviation(text: str, position: int) -> bool:
    """Whether the full stop at `position` belongs to the word before it."""
    before = text[max(0, position - _LONGEST_ABBREVIATION) : position]
    word = before.rpartition(" ")[2]
    if not word.isalpha():
        match = _LAST_WORD.search(before)
        word = match.group() if match else ""
    stem = word.lower()
    is_initial = len(stem) == 1 and stem.isalpha() and word.isupper()
    return is_initial or stem in _ABBREVIATIONS
