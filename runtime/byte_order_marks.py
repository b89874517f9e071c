"""The first bytes of a text -> the encoding that its byte order mark names."""

from __future__ import annotations

import codecs

_MARKS = {  # the longer of two that begin alike first
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}


def marked_encoding(start: bytes) -> str | None:
    """The codec that reads the text and its mark; None where there is no mark."""
    return next((name for mark, name in _MARKS.items() if start.startswith(mark)), None)
