"""EPUB -> blocks of its chapters in reading order: a ZIP of XHTML with a spine."""

from __future__ import annotations

import posixpath
import zipfile
from typing import Any
from urllib.parse import unquote

from runtime.errors import DamagedDocument
from runtime.readers.blocks import RawDocument
from runtime.readers.context import Context
from runtime.readers.html import html_blocks, html_text
from runtime.readers.packages import check_sizes, encrypted, open_zip, parse_xml, read_member

_CONTAINER = "META-INF/container.xml"
_ENCRYPTION = "META-INF/encryption.xml"
_MOST_CHAPTERS = 5000


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Chapters in the order of the spine, without the navigation document.

    Raises:
        EncryptedDocument: its chapters are under digital rights management.
    """
    check_sizes(data, context)
    with open_zip(data, context) as archive:
        names = set(archive.namelist())
        package = _package_path(archive, context)
        folder = posixpath.dirname(package)
        root = parse_xml(read_member(archive, package, context))
        locked = _locked(archive, names, context)
        title = next((e.text or "" for e in root.iter("{*}title")), "")
        raw = RawDocument("application/epub+zip", [], title=title, markup=True)
        for path in _chapters(root, folder):
            if path in locked:
                raise encrypted(context)
            if path not in names:
                continue
            content = html_blocks(
                html_text(read_member(archive, path, context), context), fragment=True
            )
            raw.blocks += content.blocks
            raw.hidden += content.hidden
            raw.flags += content.flags
    return [raw]


def _package_path(archive: zipfile.ZipFile, context: Context) -> str:
    container = parse_xml(read_member(archive, _CONTAINER, context))
    for rootfile in container.iter("{*}rootfile"):
        if path := rootfile.get("full-path"):
            return str(path)
    raise DamagedDocument("It names no package document", where=context.source)


def _chapters(root: Any, folder: str) -> list[str]:
    """Paths of the spine's documents inside the ZIP."""
    manifest: dict[str, str] = {}
    for item in root.iter("{*}item"):
        text = "html" in (item.get("media-type") or "")
        navigation = "nav" in (item.get("properties") or "").split()
        if text and not navigation:
            manifest[item.get("id") or ""] = item.get("href") or ""
    references = [reference.get("idref") or "" for reference in root.iter("{*}itemref")]
    paths = [manifest[name] for name in references if name in manifest][:_MOST_CHAPTERS]
    return [posixpath.normpath(posixpath.join(folder, unquote(path))) for path in paths]


def _locked(archive: zipfile.ZipFile, names: set[str], context: Context) -> set[str]:
    if _ENCRYPTION not in names:
        return set()
    root = parse_xml(read_member(archive, _ENCRYPTION, context))
    return {unquote(reference.get("URI") or "") for reference in root.iter("{*}CipherReference")}
