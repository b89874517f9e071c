"""Inline styles and simple style sheets of HTML -> whether people see an element's text.

Understood: inline styles and rules whose selectors are one tag, class or id. Not understood: the
cascade's specificity, combinators, external sheets, scripts. A text hidden by those is not found.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_RULE = re.compile(r"([^{}]{1,300})\{([^{}]*)\}")
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_SELECTOR = re.compile(r"^(?:[a-zA-Z][a-zA-Z0-9]*)?(?:[.#][\w-]+)?$")
_COMBINED = re.compile(r"^[^:]+?[\s>+~][^:]+$")
_RGB = re.compile(r"rgba?\(\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)(?:[\s,/]+([\d.]+%?))?\s*\)")
_LENGTH = re.compile(r"^(-?\d*\.?\d+)(px|pt|em|rem|ex|vw|vh|cm|mm|in|%)?")
_PIXELS = {
    "px": 1.0,
    "pt": 1.33,
    "em": 16.0,
    "rem": 16.0,
    "ex": 8.0,
    "cm": 37.8,
    "mm": 3.78,
    "in": 96.0,
    "vw": 12.0,
    "vh": 8.0,
}
_MOST_RULES = 5000
Declarations = dict[str, str]


@dataclass(slots=True)
class StyleSheet:
    """Declarations by selector: a tag, `.class`, `#id`, or tag with one of these.

    Attributes:
        unknown_backgrounds: a selector with combinators sets a background, nobody knows for what.
    """

    rules: dict[str, Declarations] = field(default_factory=dict)
    unknown_backgrounds: bool = False

    def add(self, css: str) -> None:
        """Take in the rules of one `<style>` element."""
        for match in _RULE.finditer(_COMMENT.sub("", css)):
            declarations = declared(match.group(2))
            for selector in map(str.strip, match.group(1).split(",")):
                if selector and _SELECTOR.match(selector) and len(self.rules) < _MOST_RULES:
                    self.rules.setdefault(selector, {}).update(declarations)
                elif paints(declarations) and _COMBINED.match(selector):
                    self.unknown_backgrounds = True

    def of(self, tag: str, classes: list[str], identifier: str, inline: str) -> Declarations:
        """The declarations that hold for an element, later ones winning."""
        found: Declarations = {}
        if self.rules:
            names = [tag]
            names += [name for c in classes for name in (f".{c}", f"{tag}.{c}")]
            names += [f"#{identifier}", f"{tag}#{identifier}"] if identifier else []
            for name in names:
                found.update(self.rules.get(name, {}))
        if inline:
            found.update(declared(inline))
        return found


def declared(css: str) -> Declarations:
    """`color: red; top: 0` as a mapping, names and values in lower case."""
    pairs = (part.split(":", 1) for part in css.lower().split(";") if ":" in part)
    return {name.strip(): value.replace("!important", "").strip() for name, value in pairs}


def why_hidden(style: Declarations) -> str | None:
    """The reason for which text with these declarations is not seen, colours aside."""
    size = pixels(style.get("font-size", ""))
    reasons = {
        "display: none": style.get("display") == "none",
        "visibility: hidden": style.get("visibility") in ("hidden", "collapse"),
        "opacity: 0": _zero(style.get("opacity", "1")),
        "font size of zero": size is not None and size <= 1.0,
        "text moved off the page": _off_the_page(style),
        "a box of no size": _no_size(style),
    }
    return next((why for why, holds in reasons.items() if holds), None)


def _off_the_page(style: Declarations) -> bool:
    if (pixels(style.get("text-indent", "")) or 0) <= -500:
        return True
    sides = ("left", "top", "right", "bottom")
    placed = style.get("position") in ("absolute", "fixed")
    return placed and min(pixels(style.get(side, "")) or 0 for side in sides) <= -500


def _no_size(style: Declarations) -> bool:
    if style.get("overflow") not in ("hidden", "clip"):
        return False
    sides = (pixels(style.get(side, "")) for side in ("width", "height", "max-height"))
    return any(side is not None and side <= 1.0 for side in sides)


def pixels(length: str) -> float | None:
    """A CSS length in pixels, roughly; None where it is not a length."""
    match = _LENGTH.match(length.strip())
    if match is None or match.group(2) == "%":
        return 0.0 if length.strip() in ("0%",) else None
    return float(match.group(1)) * _PIXELS.get(match.group(2) or "px", 1.0)


def whiteness(color: str) -> float | None:
    """How light a colour is, 0 black to 1 white; None where it is not understood."""
    color = color.strip().split(" no-repeat")[0]
    if color in ("white", "#fff", "#ffffff"):
        return 1.0
    if color == "black":
        return 0.0
    if color.startswith("#") and len(color) in (4, 5, 7, 9):
        digits = color[1:]
        step = 1 if len(digits) < 6 else 2
        try:
            parts = [int(digits[i : i + step] * (3 - step), 16) for i in range(0, 3 * step, step)]
        except ValueError:
            return None
        return min(parts) / 255
    if match := _RGB.match(color):
        return min(int(match.group(i)) for i in (1, 2, 3)) / 255
    return None


def paints(style: Declarations, attribute: str = "") -> bool:
    """Whether a background other than white is set, by style or else by the old `bgcolor`."""
    background = style.get("background-color") or style.get("background") or attribute.lower()
    if not background or background in ("none", "inherit", "transparent"):
        return False
    light = whiteness(background.split()[0] if "(" not in background else background)
    return light is None or light < 0.9


def transparent(color: str) -> bool:
    """Whether a colour paints nothing."""
    match = _RGB.match(color.strip())
    clear = match is not None and match.group(4) is not None and _zero(match.group(4))
    return color.strip() == "transparent" or clear


def _zero(number: str) -> bool:
    try:
        return float(number.strip().rstrip("%")) < 0.02
    except ValueError:
        return False
