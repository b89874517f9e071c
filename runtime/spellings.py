"""A question -> other spellings of the measures and codes in it, as documents may have them.

`24 V AC` is also written `24VAC`, `0.5 mm` and `0,5 mm` also `0.5mm` and `0,5mm`, `M8 x 40` also
`M8x40`, `IP 67` as `IP67`.
The index holds each as its document spells it; a question looks for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_APART = re.compile(  # a number and its unit, or a code's letters and its number
    r"(?<![\w.,])(?:(?P<number>\d+(?:[.,]\d+)*)\s+(?P<unit>[^\W\d_]{1,3}(?:\s+[AD]C)?)"
    r"|(?P<letters>[^\W\d_]{1,3})\s+(?P<digits>\d+))(?!\w)",
    re.IGNORECASE,
)
_TOGETHER = re.compile(r"(?<![\w.,])(?P<number>\d+(?:[.,]\d+)*)(?P<unit>[^\W\d_]{1,4})(?!\w)")
_CURRENT = re.compile(r"(?<=.)(?=[AD]C$)", re.IGNORECASE)  # in VAC, kVDC
_SIZE = re.compile(r"(?<!\w)(?P<one>\w*\d)(?P<by>\s*[x×]\s*)(?P<other>\d+)", re.IGNORECASE)


def other_spellings(question: str) -> str:
    """The measures and codes of `question` as it does not spell them, white space between."""
    return " ".join([*_joined(question), *_parted(question)])


def _joined(question: str) -> Iterator[str]:
    """As one code, without white space, points and commas: so the index holds codes with them."""
    for match in _APART.finditer(question):
        yield re.sub(r"[\s.,]", "", match[0])
    for match in _SIZE.finditer(question):
        if match["by"] != "x":
            yield f"{match['one']}x{match['other']}"


def _parted(question: str) -> Iterator[str]:
    for match in _TOGETHER.finditer(question):
        yield f"{match['number']} {_CURRENT.sub(' ', match['unit'])}"
    for match in _SIZE.finditer(question):
        if len(match["by"]) == 1:
            yield f"{match['one']} x {match['other']}"
