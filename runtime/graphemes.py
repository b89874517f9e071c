"""Spans -> spans that never cut a grapheme cluster (UAX #29) in half."""

from __future__ import annotations

import regex

from runtime.documents import Span

_CLUSTER = regex.compile(r"\X")
# How far a cluster may reach to either side of a cut. Longer ones (stacked combining marks) exist
# only as mischief; for them the cut stays where it was found within this reach.
_REACH = 64


def whole_graphemes(text: str, span: Span) -> Span:
    """`span` widened to the clusters it touches. O(1) for text that needs no widening."""
    return Span(_cluster_start(text, span.start), _cluster_end(text, span.end))


def _cluster_start(text: str, position: int) -> int:
    if position <= 0 or position >= len(text) or _is_plain(text, position):
        return position
    origin = _safe_origin(text, position)
    for match in _CLUSTER.finditer(text, origin, min(len(text), position + _REACH)):
        if match.end() > position:
            return int(match.start())
    return position


def _cluster_end(text: str, position: int) -> int:
    if position <= 0 or position >= len(text) or _is_plain(text, position):
        return position
    origin = _safe_origin(text, position)
    for match in _CLUSTER.finditer(text, origin, min(len(text), position + _REACH)):
        if match.end() >= position:
            return int(match.end())
    return position


def _is_plain(text: str, position: int) -> bool:
    """Two ASCII characters around the cut cannot be one cluster, but for CR LF."""
    before, after = text[position - 1], text[position]
    return before.isascii() and after.isascii() and not (before == "\r" and after == "\n")


def _safe_origin(text: str, position: int) -> int:
    """A place before `position` where a cluster certainly begins, for the segmentation to start."""
    for place in range(position - 1, max(0, position - _REACH), -1):
        if text[place].isascii() and text[place - 1].isascii() and text[place] != "\n":
            return place
    return max(0, position - _REACH)
