"""A document's title and first words -> the words in which it says that it is no longer in force.

Only what a document says of itself counts: "SUPERSEDED", "withdrawn on 1 March 2022", "this manual
is replaced by ...", `status: archived`. A text about another document that is obsolete, a part that
was withdrawn, a folder named "archive" say nothing. A newer revision that the old file does not
know of is seen by `runtime/revisions.py`.
"""

from __future__ import annotations

import re

from runtime.documents import Flag
from runtime.flags import SUPERSEDED
from runtime.revisions import revisions_named

_HEAD = 1500  # characters of a text in which it speaks of itself
_EXCERPT = 160  # characters quoted in a flag

_SAYINGS = (
    *("superseded", "obsolete", "withdrawn", "archived", "outdated", "out of date", "deprecated"),
    *("rescinded", "cancelled", "no longer (?:valid|in force|current|applicable)", "not in force"),
    *("replaced by", "veraltet", "ungültig", "außer kraft", "zurückgezogen", "nicht mehr gültig"),
    "ersetzt durch",
)
_OVER = f"(?:{'|'.join(_SAYINGS)})"
# One of these is in whatever is found below; to look for them first is much faster.
_STEMS = ("replaced", *(saying.partition(" (")[0] for saying in _SAYINGS))
_DOCUMENT = (
    r"(?:documents?|manual|revision|edition|version|issue|schedule|drawing|procedure|instructions?"
    r"|specification|standard|guide|handbook|plan|notice|bulletin|page|sheet|copy|file"
    r"|dokument|handbuch|ausgabe|anleitung|fassung|zeichnung|vorschrift|norm)"
)
_GOES_ON = r"(?:by|on|since|as of|and (?:replaced|withdrawn)|copy|document|durch|am|seit)\b"
# The word opens a line and is its statement: "OBSOLETE", "Withdrawn on ...", "Status: archived".
_STATEMENT = re.compile(
    rf"^\W*(?:(?:document )?status\s*[:=]\s*)?{_OVER}(?=\s*(?:[.:;,!)\]*|–—-]|$)|\s+{_GOES_ON})"
    r"|^\W*(?:(?:superseded|replaced)[_-]by|obsoleted by)\s*:\s*\S",
    re.IGNORECASE | re.MULTILINE,
)
_OF_ITSELF = re.compile(
    rf"\b(?:this|diese[rns]?) {_DOCUMENT}(?: \w+)?,? "
    rf"(?:(?:is|was|has|been|now|ist|wurde)\s+){{1,3}}(?:\w+ ){{0,2}}?{_OVER}",
    re.IGNORECASE,
)
_IN_TITLE = re.compile(
    rf"[(\[]\s*{_OVER}[^)\]]*[)\]]|[–—:|-]\s*{_OVER}\s*$|^\s*{_OVER}\s*(?:[–—:|-]|$)", re.IGNORECASE
)

_FORMER = re.compile(
    rf"\b(?:superseded|obsolete|withdrawn|archived|outdated|rescinded|veraltet\w*|zurückgezogen\w*"
    rf"|(?:previous|former|earlier|old|older|frühere|alte|vorige)[nrs]? {_DOCUMENT})\b",
    re.IGNORECASE,
)


def superseded_flag(title: str, status: str, text: str) -> Flag | None:
    """A flag that quotes where a document says it is superseded; None where it does not.

    Args:
        status: what its metadata say of it, such as front matter's `status: archived`.
        text: the stored text; only its beginning is looked at.
    """
    if _IN_TITLE.search(title):
        return _flag(title)
    if _STATEMENT.search(status):
        return _flag(status)
    head = text[:_HEAD]
    lowered = head.lower()
    if not any(stem in lowered for stem in _STEMS):  # most documents
        return None
    found = [match for match in (_STATEMENT.search(head), _OF_ITSELF.search(head)) if match]
    if not found:
        return None
    place = min(match.start() for match in found)
    return _flag(head[place:].partition("\n\n")[0])


def asks_for_superseded(question: str, title: str, revision: str = "") -> bool:
    """Whether a question wants a superseded document's own word: it names its revision or calls it
    superseded."""
    named = revisions_named(question)
    return bool(_FORMER.search(question) or named & revisions_named(f"{title}, {revision}"))


def _flag(quote: str) -> Flag:
    words = " ".join(quote.split())
    return Flag(SUPERSEDED, words if len(words) <= _EXCERPT else words[: _EXCERPT - 1] + "…")
