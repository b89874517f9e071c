"""A text -> which characters it has, and its lower case, in passes of bytes.

Strings are slow to translate, character by character; UTF-8 is not. Cheap to import: questions need
this too, and none of the patterns that cleaning is made of.
"""

from __future__ import annotations

_USUAL = b"\n" + bytes(range(ord(" "), ord("~") + 1))


def unusual_characters(text: str) -> set[str]:
    """The characters that are neither printable ASCII nor line ends."""
    return unusual_in(text.encode("utf-8", "surrogatepass"))


def unusual_in(data: bytes) -> set[str]:
    """The same of a text in UTF-8."""
    return set(data.translate(None, _USUAL).decode("utf-8", "surrogatepass"))


def lower_case(text: str) -> bytes:
    """`text.lower()` in UTF-8; much the fastest where only ASCII changes."""
    data = text.encode("utf-8", "surrogatepass")
    if text.isascii() or all(one.lower() == one for one in unusual_in(data)):
        return data.lower()
    return text.lower().encode("utf-8", "surrogatepass")
