"""A question -> other spellings of the measures and codes in it, as documents may have them.

`24 V AC` is also written `24VAC`, `0.5 mm` and `0,5 mm` also `0.5mm` and `0,5mm`, `M8 x 40` also
`M8x40`, `IP 67` as `IP67`.
The index holds each as its document spells it; a question looks for all of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

_MEASURE_APART = re.compile(
    r"(?<![\w.,])\d+(?:[.,]\d+)*\s+[^\W\d_]{1,3}(?:\s+[AD]C)?(?!\w)", re.IGNORECASE
)
_CODE_APART = re.compile(r"(?<![\w.,])[^\W\d_]{1,3}\s+\d+(?!\w|[.,]\d)")
_TOGETHER = re.compile(r"(?<![\w.,])(?P<number>\d+(?:[.,]\d+)*)(?P<unit>[^\W\d_]{1,4})(?!\w)")
_CURRENT = re.compile(r"(?<=.)(?=[AD]C$)", re.IGNORECASE)  # in VAC, kVDC
_SIZE = re.compile(r"(?<!\w)(?P<one>\w*\d)(?P<by>\s*[x×]\s*)(?P<other>\d+)", re.IGNORECASE)


def other_spellings(question: str) -> str:
    """The measures and codes of `question` as it does not spell them, white space between."""
    return " ".join([*_joined(question), *_parted(question)])


def _joined(question: str) -> Iterator[str]:
    """Without white space, so that the analysis adds the code that the index holds.

    Measures and codes are looked for apart: in "at 24 V", "at 24" could be a code.
    """
    for apart in (_MEASURE_APART, _CODE_APART):
        for match in apart.finditer(question):
            yield "".join(match[0].split())
    for match in _SIZE.finditer(question):
        if match["by"] != "x":
            yield f"{match['one']}x{match['other']}"


def _parted(question: str) -> Iterator[str]:
    for match in _TOGETHER.finditer(question):
        yield f"{match['number']} {_CURRENT.sub(' ', match['unit'])}"
    for match in _SIZE.finditer(question):
        if len(match["by"]) == 1:
            yield f"{match['one']} x {match['other']}"
