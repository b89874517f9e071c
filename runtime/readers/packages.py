"""Office packages and XML from untrusted files: checked and parsed with limits."""

from __future__ import annotations

import io
import re
import zipfile
import zlib
from typing import Any

from runtime.errors import DamagedDocument, DocumentTooLarge, EncryptedDocument
from runtime.readers.context import Context

_MOST_MEMBERS = 20_000
# What may stand before the root element or the document type: declaration, comments, spaces.
_PROLOG = re.compile(r"(?:\s+|<\?.*?\?>|<!--.*?-->)*+", re.DOTALL)
_PROLOG_BYTES = 1 << 16  # no honest prolog is longer
_UTF_7 = re.compile(r"<\?xml[^>]*?\sencoding\s*=\s*[\"'][\w.:-]*utf-?7", re.IGNORECASE)
_ENCODINGS = {  # first bytes of XML: the encoding in which to look for its declaration
    b"\xef\xbb\xbf": "utf-8-sig",
    b"\xff\xfe\x00\x00": "utf-32",
    b"\x00\x00\xfe\xff": "utf-32",
    b"\xff\xfe": "utf-16",
    b"\xfe\xff": "utf-16",
    b"<\x00\x00\x00": "utf-32-le",
    b"\x00\x00\x00<": "utf-32-be",
    b"<\x00": "utf-16-le",
    b"\x00<": "utf-16-be",
    b"\x4c\x6f\xa7\x94": "cp037",
}
_PAGES = (".svg", ".htm", ".html", ".xhtml")  # embedded, not read, and honest with a type
_ENTITIES = "It declares XML entities, which no honest file of this kind does"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def open_zip(data: bytes, context: Context) -> zipfile.ZipFile:
    """A ZIP's directory.

    Raises:
        DamagedDocument: not a ZIP, or truncated.
        DocumentTooLarge: more members than any honest file has.
    """
    try:
        archive = zipfile.ZipFile(io.BytesIO(data))
    except (zipfile.BadZipFile, ValueError, OSError, EOFError, NotImplementedError) as error:
        raise DamagedDocument(
            "It is truncated or damaged",
            where=context.source,
            fix="Copy or export it again from its source.",
        ) from error
    if len(archive.infolist()) > _MOST_MEMBERS:
        raise DocumentTooLarge(f"It holds more than {_MOST_MEMBERS} files", where=context.source)
    return archive


def check_package(data: bytes, context: Context) -> None:
    """Refuse an Office package that `check_sizes` refuses, or that declares XML entities.

    Raises:
        EncryptedDocument, DamagedDocument, DocumentTooLarge
    """
    check_sizes(data, context)
    with open_zip(data, context) as archive:
        for member in archive.infolist():
            page = member.filename.lower().endswith(_PAGES)
            if not page and has_document_type(_beginning(archive, member)):
                raise DamagedDocument(_ENTITIES, where=context.source)


def check_sizes(data: bytes, context: Context) -> None:
    """Refuse an Office package or EPUB that would unpack to something unreasonable.

    The sizes in a ZIP's directory may lie; the child's memory limit stands behind this check.

    Raises:
        EncryptedDocument, DamagedDocument, DocumentTooLarge
    """
    if data.startswith(OLE):
        refuse_ole(data, context)
    with open_zip(data, context) as archive:
        for member in archive.infolist():
            if member.flag_bits & 1:
                raise encrypted(context)
            context.unpack(member.compress_size, member.file_size)


def refuse_ole(data: bytes, context: Context) -> None:
    """The compound file that Office writes for a password-protected document, or its old format."""
    if "EncryptedPackage".encode("utf-16-le") in data:
        raise encrypted(context)
    raise DamagedDocument(
        "It is in Microsoft's old binary format, whatever its name says",
        where=context.source,
        fix="Save it as .docx, .xlsx or .pptx and add that.",
    )


def encrypted(context: Context) -> EncryptedDocument:
    """The error for a file with a password."""
    return EncryptedDocument(
        "It is protected by a password",
        where=context.source,
        fix="Save a copy without a password and add that.",
    )


def _beginning(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
    """The first bytes of a member; none of one that is damaged, which its reader will tell."""
    try:
        with archive.open(member) as stream:
            first = stream.read(64)
            markup = b"<" in first or first[:4] == b"\x4c\x6f\xa7\x94"
            return first + stream.read(_PROLOG_BYTES - len(first)) if markup else b""
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, zlib.error, RuntimeError):
        return b""


def has_document_type(data: bytes) -> bool:
    """Whether XML has a document type (the door of XML bombs), or begins too oddly to tell."""
    encoding = next((name for first, name in _ENCODINGS.items() if data.startswith(first)), "utf-8")
    text = data[:_PROLOG_BYTES].decode(encoding, "replace")
    if encoding == "utf-8" and _UTF_7.match(text):
        text = data[:_PROLOG_BYTES].decode("utf-7", "replace")
    prolog = _PROLOG.match(text)
    rest = text[prolog.end() :] if prolog else text
    return rest[:2] == "<!" or (len(data) >= _PROLOG_BYTES and rest[:2] in ("", "<?"))


def parse_xml(data: bytes) -> Any:
    """The root of an XML part: no network, no entities, no document type.

    Raises:
        DamagedDocument: not well-formed, or with a document type (the door of XML bombs).
    """
    from lxml import etree

    if has_document_type(data):
        raise DamagedDocument(_ENTITIES)
    parser = etree.XMLParser(
        resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False, recover=True
    )
    root = etree.fromstring(data, parser)
    if root is None:
        raise DamagedDocument("A part of it is not XML")
    return root


def read_member(archive: zipfile.ZipFile, name: str | zipfile.ZipInfo, context: Context) -> bytes:
    """A member's bytes, never more than its directory says it has.

    Args:
        name: or the entry itself, where several have one name.

    Raises:
        DamagedDocument: missing, broken, larger than it says, or packed in an unknown way.
        EncryptedDocument: it has a password.
    """
    try:
        member = archive.getinfo(name) if isinstance(name, str) else name
        if member.flag_bits & 1:
            raise encrypted(context)
        with archive.open(member) as stream:
            data = stream.read(member.file_size + 1)
    except (KeyError, zipfile.BadZipFile, EOFError, OSError, ValueError, zlib.error) as error:
        raise DamagedDocument(
            f"Its part {_named(name)} is missing or damaged", where=context.source
        ) from error
    except (NotImplementedError, RuntimeError) as error:
        raise DamagedDocument(
            f"Its part {_named(name)} cannot be unpacked", where=context.source
        ) from error
    if len(data) > member.file_size:
        raise DamagedDocument(
            f"Its part {_named(name)} is larger than it says", where=context.source
        )
    return data


def _named(member: str | zipfile.ZipInfo) -> str:
    return member if isinstance(member, str) else member.filename
