"""Text -> its sentences, as spans. Rationales and windows are cut at these.

Rule-based on purpose: the stored text is already cleaned and unwrapped, a wrong cut costs a little
context and never an answer, and there is no model to load. A line break always ends a sentence
(the readers put one only between blocks), so table rows and list items stand alone.
"""

from __future__ import annotations

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
_LAST_WORD = regex.compile(r"[\p{L}\p{N}.]+$")
_ABBREVIATIONS = frozenset(
    [
        "mr",
        "mrs",
        "ms",
        "dr",
        "prof",
        "st",
        "sr",
        "jr",
        "gen",
        "col",
        "capt",
        "lt",
        "sgt",
        "rev",
        "hon",
        "gov",
        "sen",
        "rep",
        "vs",
        "etc",
        "no",
        "nos",
        "fig",
        "figs",
        "eq",
        "sec",
        "ch",
        "vol",
        "ed",
        "eds",
        "pp",
        "p",
        "cf",
        "al",
        "approx",
        "dept",
        "est",
        "inc",
        "ltd",
        "co",
        "corp",
        "max",
        "min",
        "temp",
        "ref",
        "rev",
        "art",
        "jan",
        "feb",
        "mar",
        "apr",
        "jun",
        "jul",
        "aug",
        "sep",
        "sept",
        "oct",
        "nov",
        "dec",
        "mon",
        "tue",
        "wed",
        "thu",
        "fri",
        "sat",
        "sun",
        "u.s",
        "u.k",
        "e.g",
        "i.e",
        "a.m",
        "p.m",
        "z.b",
        "d.h",
        "bzw",
        "ca",
        "nr",
        "str",
    ]
)


def sentence_spans(text: str) -> list[Span]:
    """The sentences of `text` in order, trimmed of white space; together they hold all words."""
    spans: list[Span] = []
    start = 0
    for match in _BREAK.finditer(text):
        if match.lastgroup == "other" and _is_abbreviation(text, match.start(), match.group()):
            continue
        _append_trimmed(spans, text, start, match.end())
        start = match.end()
    _append_trimmed(spans, text, start, len(text))
    return spans


def _append_trimmed(spans: list[Span], text: str, start: int, end: int) -> None:
    piece = text[start:end].rstrip()
    bare = piece.lstrip()
    if bare:
        stop = start + len(piece)
        spans.append(Span(stop - len(bare), stop))


def trim(text: str, span: Span) -> Span:
    """`span` without the white space at its ends; empty spans collapse to their start."""
    start, end = span.start, span.end
    while start < end and text[start].isspace():
        start += 1
    while end > start and text[end - 1].isspace():
        end -= 1
    return Span(start, end)


def _is_abbreviation(text: str, position: int, terminator: str) -> bool:
    """Whether the full stop at `position` belongs to the word before it."""
    if terminator != ".":
        return False
    word = _LAST_WORD.search(text, max(0, position - 12), position)
    if word is None:
        return False
    stem = word.group().lower()
    is_initial = len(stem) == 1 and stem.isalpha() and word.group().isupper()
    return is_initial or stem in _ABBREVIATIONS
