"""What kind of file is this: first bytes, then the name's ending -> the module that reads it."""

from __future__ import annotations

import zipfile
from pathlib import PurePath

from runtime.errors import UnsupportedDocument
from runtime.readers.context import Context

_BY_ENDING = {
    ".txt": "text",
    ".text": "text",
    ".log": "text",
    ".asc": "text",
    ".rst": "text",
    ".adoc": "text",
    ".org": "text",
    ".md": "markdown",
    ".markdown": "markdown",
    ".mkd": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".pdf": "pdf",
    ".docx": "word",
    ".docm": "word",
    ".dotx": "word",
    ".pptx": "slides",
    ".pptm": "slides",
    ".ppsx": "slides",
    ".xlsx": "sheets",
    ".xlsm": "sheets",
    ".csv": "csv",
    ".tsv": "csv",
    ".epub": "epub",
    ".rtf": "rtf",
    ".eml": "mail",
    ".zip": "archive",
    ".png": "images",
    ".jpg": "images",
    ".jpeg": "images",
    ".tif": "images",
    ".tiff": "images",
    ".bmp": "images",
    ".webp": "images",
}
SUPPORTED_ENDINGS = frozenset(_BY_ENDING)
_TEXTUAL = frozenset(("text", "markdown", "html", "csv", "mail"))
_PICTURES = (
    b"\x89PNG\r\n\x1a\n",
    b"\xff\xd8\xff",
    b"II*\x00",
    b"MM\x00*",
    b"II+\x00",  # BigTIFF
    b"MM\x00+",
    b"BM",
)
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
_NOT_READ = {
    b"\x7fELF": "a program",
    b"MZ": "a program",
    b"\x1f\x8b": "a gzip archive",
    b"7z\xbc\xaf'\x1c": "a 7z archive",
    b"Rar!": "a RAR archive",
    b"BZh": "a bzip2 archive",
    b"\xfd7zXZ": "an xz archive",
    b"SQLite format 3": "a database",
    b"OggS": "a sound file",
    b"ID3": "a sound file",
    b"RIFF": "a sound or video file",
    b"GIF8": "a GIF picture",
}


def is_supported_name(name: str) -> bool:
    """Whether a file with this name is taken from a folder; a file named by hand always is."""
    return PurePath(name.lower()).suffix in SUPPORTED_ENDINGS


def reader_for(data: bytes, name: str, context: Context) -> str:
    """The name of the module in this package that reads the file.

    First bytes win over the ending: a PDF named .txt is read as PDF.

    Raises:
        UnsupportedDocument: no reader for it.
    """
    ending = PurePath(name.lower()).suffix
    named = _BY_ENDING.get(ending)
    if kind := _by_content(data, named):
        return kind
    if named in _TEXTUAL:
        return named
    for magic, what in _NOT_READ.items():
        if data.startswith(magic):
            raise UnsupportedDocument(
                f"It is {what}, which holds no text to read",
                where=context.source,
                fix="docs/formats.md lists what can be read.",
            )
    if named is not None:
        return named
    head = data[:512].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "html"
    return "text"


def _by_content(data: bytes, named: str | None) -> str | None:
    """The kind that the first bytes prove."""
    kind: str | None = None
    if data.startswith(b"{\\rtf"):
        kind = "rtf"
    elif data.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        kind = _zip_kind(data) or "archive"
        if kind == "archive" and named in ("word", "slides", "sheets", "epub"):
            kind = named  # whose reader will say what is wrong with it
    elif data.startswith(_OLE):
        kind = named if named in ("word", "slides", "sheets") else "word"
    elif data.startswith(_PICTURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        kind = "images"
    elif b"%PDF-" in data[:1024]:  # PDFs may begin with other bytes; a ZIP may hold one unpacked
        kind = "pdf"
    return kind


def _zip_kind(data: bytes) -> str | None:
    """Tell an Office file or EPUB by its parts, whatever its name."""
    import io

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = archive.namelist()[:2000]
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError):
        return None
    if "[Content_Types].xml" in names:
        for prefix, kind in (("word/", "word"), ("ppt/", "slides"), ("xl/", "sheets")):
            if any(name.startswith(prefix) for name in names):
                return kind
    if "META-INF/container.xml" in names:
        return "epub"
    return "archive"
