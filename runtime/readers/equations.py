"""Equations (OMML), raised numbers and characters of symbol fonts -> text in one line.

Fractions, roots, powers and indices are written so that no two numbers run together: 10³, (a+b)/c,
√(2gh), H_2.
"""

from __future__ import annotations

import re
from typing import Any

_M = "{http://schemas.openxmlformats.org/officeDocument/2006/math}"
_W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
_RAISED = str.maketrans("0123456789+-−=()n", "⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁻⁼⁽⁾ⁿ")
_NUMBER = re.compile(r"[+−-]?[0-9]+")
_DEEPEST = 100  # equations inside equations
UNKNOWN = "\ufffd"  # a character that has no name outside its font

# Adobe's Symbol encoding from 0x20 on; what no letter stands for is UNKNOWN.
_SYMBOL = (
    " !∀#∃%&∋()∗+,−./0123456789:;<=>?≅ΑΒΧΔΕΦΓΗΙϑΚΛΜΝΟΠΘΡΣΤΥςΩΞΨΖ[∴]⊥_"
    "‾αβχδεφγηιϕκλμνοπθρστυϖωξψζ{|}∼"
    + UNKNOWN * 33
    + "€ϒ′≤⁄∞ƒ♣♦♥♠↔←↑→↓°±″≥×∝∂•÷≠≡≈…⏐⎯↵ℵℑℜ℘⊗⊕∅∩∪⊃⊇⊄⊂⊆∈∉∠∇®©™∏√⋅¬∧∨⇔⇐⇑⇒⇓◊〈®©™∑⎛⎜⎝⎡⎢⎣⎧⎨⎩⎪"
    + UNKNOWN
    + "〉∫⌠⎮⌡⎞⎟⎠⎤⎥⎦⎫⎬⎭"
)
_WINGDINGS = {
    0x4A: "☺", 0x4C: "☹", 0x6C: "●", 0x6D: "❍", 0x6E: "■", 0x6F: "□", 0x71: "❑", 0x73: "⬧",
    0x74: "⧫", 0x75: "◆", 0x76: "❖", 0x77: "⬥", 0x9E: "·", 0x9F: "•", 0xA1: "○", 0xA7: "▪",
    0xA8: "◻", 0xD8: "➢", 0xDF: "←", 0xE0: "→", 0xE1: "↑", 0xE2: "↓", 0xE8: "➔", 0xEF: "⇦",
    0xF0: "⇨", 0xF1: "⇧", 0xF2: "⇩", 0xF3: "⬄", 0xFB: "✗", 0xFC: "✓", 0xFD: "☒", 0xFE: "☑",
}  # fmt: skip


def symbol(font: str, code: int) -> str:
    """A character of a font as Unicode; symbol fonts have theirs at U+F020 to U+F0FF, too."""
    place = code - 0xF000 if 0xF000 <= code <= 0xF0FF else code
    name = font.strip().lower()
    if name == "symbol":
        return _SYMBOL[place - 0x20] if 0 <= place - 0x20 < len(_SYMBOL) else UNKNOWN
    if name == "wingdings":
        return " " if place == 0x20 else _WINGDINGS.get(place, UNKNOWN)
    private = 0xE000 <= code <= 0xF8FF
    valid = 0x20 <= code <= 0x10FFFF and not 0xD800 <= code <= 0xDFFF
    known = valid and not private and not name.startswith(("wingdings", "webdings"))
    return chr(code) if known else UNKNOWN


def linear(element: Any, depth: int = 0) -> str:
    """An equation, or a part of one, in one line; deletions that are tracked stay out."""
    if depth > _DEEPEST or element.tag in (f"{_W}del", f"{_W}moveFrom"):
        return ""
    if element.tag in (f"{_M}t", f"{_W}t"):
        return element.text or ""
    if element.tag == f"{_W}sym":
        return word_symbol(element)
    name = str(element.tag).removeprefix(_M)
    if name in ("d", "m", "mr", "eqArr"):
        return _several(element, name, depth)
    return _built(element, name, depth) or _joined(element, depth)


def _built(element: Any, name: str, depth: int) -> str:
    """A structure of named parts; empty for anything else."""

    def part(tag: str) -> str:
        found = element.find(f"{_M}{tag}")
        return "" if found is None else linear(found, depth + 1).strip()

    match name:
        case "f":
            text = f"{_bracketed(part('num'))}/{_bracketed(part('den'))}"
        case "rad":
            text = f"{_raised(part('deg'))}√{_bracketed(part('e'))}"
        case "sSup" | "sSub" | "sSubSup":
            text = part("e") + _lowered(part("sub")) + _raised(part("sup"))
        case "sPre":
            text = _lowered(part("sub")) + _raised(part("sup")) + part("e")
        case "nary":
            sign = _given(element, "chr", "∫")
            text = f"{sign}{_lowered(part('sub'))}{_raised(part('sup'))} {part('e')}"
        case "limLow":
            text = part("e") + _lowered(part("lim"))
        case "limUpp":
            text = part("e") + _raised(part("lim"))
        case "func":
            text = f"{part('fName')} {part('e')}"
        case _:
            text = ""
    return text


def _several(element: Any, name: str, depth: int) -> str:
    """Parts of one kind: between brackets, rows of equations, rows and cells of a matrix."""
    tag = "mr" if name == "m" else "e"
    parts = [linear(child, depth + 1).strip() for child in element.findall(f"{_M}{tag}")]
    if name != "d":
        return (", " if name == "mr" else "; ").join(parts)
    inside = _given(element, "sepChr", "|").join(parts)
    return f"{_given(element, 'begChr', '(')}{inside}{_given(element, 'endChr', ')')}"


def _joined(element: Any, depth: int) -> str:
    """Parts one after the other; a number and the fraction after it stay apart."""
    text = ""
    for child in element:
        words = linear(child, depth + 1)
        runs_on = text[-1:].isdigit() and words[:1].isdigit()
        text += f" {words}" if runs_on and child.tag == f"{_M}f" else words
    return text


def _given(element: Any, tag: str, default: str) -> str:
    """A sign that a structure is drawn with."""
    found = element.find(f"*/{_M}{tag}")
    return default if found is None else found.get(f"{_M}val") or ""


def exponent(text: str) -> str:
    """Raised text: a number stays raised, so that 10³ is not 103; all else is as it was."""
    return text.translate(_RAISED) if _NUMBER.fullmatch(text) else text


def word_symbol(element: Any) -> str:
    """The character of a `w:sym`."""
    code = element.get(f"{_W}char") or ""
    try:
        return symbol(element.get(f"{_W}font") or "", int(code, 16))
    except ValueError:
        return UNKNOWN


def _bracketed(text: str) -> str:
    """A part of a fraction or under a root, in brackets unless it is one number or name."""
    return text if all(c.isalnum() or c in ".,_" for c in text) else f"({text})"


def _raised(text: str) -> str:
    raised = text.translate(_RAISED)
    if any(character in text for character in raised):  # one that has no raised form
        return f"^{_bracketed(text)}"
    return raised


def _lowered(text: str) -> str:
    return f"_{_bracketed(text)}" if text else ""
