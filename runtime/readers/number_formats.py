"""A number and its format in a sheet -> the text that people see: 00042, 1,234.50 EUR, 30:15.

The formats are those of Office Open XML (ECMA-376 part 1, 18.8.31), with its English separators:
which ones a reader sees is a setting of their machine. Fractions, conditions and formats with text
place holders are not followed; such a number is written as it is.
"""

from __future__ import annotations

import datetime
import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation, localcontext

_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"|\\(?P<escaped>.)|(?P<pad>_.)|(?P<fill>\*.)|\[\$(?P<currency>[^\]-]*)'
    r"[^\]]*\]|(?P<color>\[[^\]<>=]*\])|(?P<general>General)|(?P<digit>[0#?])|(?P<point>\.)|"
    r"(?P<comma>,)|(?P<percent>%)|(?P<unknown>[/@\[\]]|[A-Za-z])|(?P<literal>.)",
    re.DOTALL,
)
_SCIENTIFIC = re.compile(r"^[0#?]*(?:\.([0#?]+))?E\+0+$")
_SECTION_END = re.compile(r'("[^"]*"|\\.|\[[^\]]*\])|;', re.DOTALL)
_LONGEST_FORMAT = 255  # characters, as in Excel
_PRECISION = 400  # digits; a double has up to 309 before its point


def plain_number(value: float) -> str:
    """A number without a format."""
    return f"{value:.15g}" if abs(value) < 1e15 else str(value)


def shown_number(value: float, number_format: str) -> str:
    """A number as its format shows it; empty where the format shows nothing of it."""
    sections = _sections(number_format)
    section = _section_for(value, sections)
    if not number_format or len(number_format) > _LONGEST_FORMAT:
        return plain_number(value)
    if match := _SCIENTIFIC.match(section):
        return f"{value:.{len(match[1] or '')}E}"
    layout = _layout(section)
    if layout is None:
        return plain_number(value)
    try:
        text, negative = layout.write(value)
    except InvalidOperation:  # not finite
        return plain_number(value)
    return f"-{text}" if negative and len(sections) == 1 else text


def shown_duration(value: datetime.timedelta, number_format: str) -> str:
    """A time that may be longer than a day: 30:15 for `[h]:mm`, 1815 for `[m]`."""
    lowered = number_format.lower()
    seconds = round(abs(value.total_seconds()))
    minutes, second = divmod(seconds, 60)
    hours, minute = divmod(minutes, 60)
    with_seconds = "s" in lowered
    if "[s" in lowered:
        text = str(seconds)
    elif "[m" in lowered:
        text = f"{minutes}:{second:02d}" if with_seconds else str(minutes)
    elif "m" in lowered:
        text = f"{hours}:{minute:02d}" + (f":{second:02d}" if with_seconds else "")
    else:
        text = str(hours)
    return f"-{text}" if value < datetime.timedelta() and seconds else text


@dataclass(slots=True)
class _Layout:
    """One section of a format.

    Attributes:
        tokens: what stands before the decimal point, digits and literals; `decimals` after it.
        scale: power of ten that the number is shown times.
    """

    tokens: list[tuple[str, str]] = field(default_factory=list)
    decimals: list[tuple[str, str]] = field(default_factory=list)
    has_point: bool = False
    grouped: bool = False
    scale: int = 0

    def write(self, value: float) -> tuple[str, bool]:
        """The number without its sign, and whether it is negative as it is shown."""
        places = sum(kind == "digit" for kind, _ in self.decimals)
        with localcontext() as context:
            context.prec = _PRECISION
            exact = Decimal(repr(value)).scaleb(self.scale)
            shown = abs(exact).quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
        whole, _, rest = f"{shown:f}".partition(".")
        if any(kind == "general" for kind, _ in self.tokens):
            number = plain_number(abs(value))
            words = [number if kind == "general" else text for kind, text in self.tokens]
            return " ".join("".join(words).split()), value < 0
        before = self._whole("" if whole == "0" else whole)
        after = self._rest(rest)
        return " ".join((before + after).split()), exact < 0 and bool(shown)

    def _whole(self, digits: str) -> str:
        """Place holders filled from the right; the first one takes all digits that are left."""
        slots = [number for number, (kind, _) in enumerate(self.tokens) if kind == "digit"]
        parts = [text if kind == "text" else "" for kind, text in self.tokens]
        written = 0
        for slot in reversed(slots):
            take = len(digits) if slot == slots[0] else 1
            here, digits = digits[len(digits) - take :], digits[: len(digits) - take]
            here = here or ("0" if self.tokens[slot][1] == "0" else "")
            for digit in reversed(here):
                comma = "," if self.grouped and written and written % 3 == 0 else ""
                parts[slot] = digit + comma + parts[slot]
                written += 1
        return "".join(parts)

    def _rest(self, digits: str) -> str:
        """Decimals; those that `#` and `?` leave open go where they are zeros at the end."""
        places = [text for kind, text in self.decimals if kind == "digit"]
        kept = len(places)
        while kept and places[kept - 1] != "0" and digits[kept - 1] == "0":
            kept -= 1
        text = "." if self.has_point and (kept or not places) else ""
        number = 0
        for kind, words in self.decimals:
            if kind == "digit":
                text += digits[number] if number < kept else ""
                number += 1
            else:
                text += words
        return text


def _layout(section: str) -> _Layout | None:
    """A section of a format, taken apart; None where it asks for more than digits and words."""
    layout = _Layout()
    part = layout.tokens
    commas = 0  # since the last digit: between digits they group, after them each divides by 1000
    for match in _TOKEN.finditer(section):
        kind = match.lastgroup or ""
        text = match.group(kind)
        if kind == "unknown":
            return None
        if kind == "digit":
            layout.grouped |= commas > 0
            commas = 0
            part.append(("digit", text))
        elif kind == "comma" and _has_digit(layout):
            commas += 1
        elif kind == "point" and part is layout.tokens:
            part, layout.has_point = layout.decimals, True
        elif kind == "general":
            part.append(("general", ""))
        elif kind not in ("color", "fill"):
            layout.scale += 2 if kind == "percent" else 0
            part.append(("text", " " if kind == "pad" else text))
    layout.scale -= 3 * commas
    return layout


def _has_digit(layout: _Layout) -> bool:
    return any(kind == "digit" for kind, _ in layout.tokens)


def _sections(number_format: str) -> list[str]:
    cut = _SECTION_END.sub(lambda match: match[1] or "\0", number_format)
    return cut.split("\0")


def _section_for(value: float, sections: list[str]) -> str:
    if value < 0 and len(sections) > 1:
        return sections[1]
    return sections[2] if not value and len(sections) > 2 else sections[0]
