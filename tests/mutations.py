"""Real files -> damaged ones: bytes and pieces, inside packages too, and sound but odd XML.

Damage to bytes mostly makes a file that its library refuses. So that our own code meets odd input
as well, parts of packages and HTML are also changed as trees, which keeps them well-formed.
"""

from __future__ import annotations

import copy
import io
import random
import zipfile
from collections.abc import Callable
from functools import cache
from typing import Any

from lxml import etree, html

_XML = (".xml", ".rels", ".xhtml", ".opf", ".ncx")
_TOKENS = (
    b"\x00", b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80\x00\x00\x00", b"-1", b"999999999", b"1e999",
    b"<", b">", b"&#xD800;", b"]]>", b"<!--", b"{\\", b"\\u-1?", b"}" * 9, b"{" * 9, b"endobj",
    b"/Kids", b"/Parent 1 0 R", b"stream\r\n", b"\r\n\r\n", b"=?utf-8?b?", b"--", b"|", b'"', b";",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xe2\x80\x8d", b"\xef\xbb\xbf",
)  # fmt: skip
_VALUES = (
    "", "0", "-1", "1", "2", "99999999999999999999", "1e999", "nan", "rId1", "rId999", "../x", "/",
    "true", "none", "#FFFFFF", "\u202e", "\U0001f600" * 3, "\u0301" * 50, "a" * 5000, "%s",
)  # fmt: skip


def mutate(data: bytes, name: str, others: list[bytes], rng: random.Random) -> bytes:
    """A damaged copy of the file `name`; `others` are files of its kind, to take pieces from."""
    if zipfile.is_zipfile(io.BytesIO(data)) and rng.random() < 0.85:
        return _mutate_members(data, rng)
    if name.endswith(".html") and rng.random() < 0.5:
        return _mutate_html(data, rng)
    return mutate_bytes(data, others, rng)


def _mutate_members(data: bytes, rng: random.Random) -> bytes:
    """Some members changed, where no checksum stops it."""
    buffer = io.BytesIO()
    members = _members(data)
    chosen = set(rng.sample(list(members), k=min(len(members), rng.choice((1, 1, 1, 2, 4)))))
    with zipfile.ZipFile(buffer, "w") as new:
        for name, original in members.items():
            content = original
            if name in chosen:
                if rng.random() < 0.05:
                    continue
                if name.endswith(_XML) and rng.random() < 0.7:
                    content = _mutate_xml(content, rng)
                else:
                    content = mutate_bytes(content, [content], rng)
            new.writestr(name, content)
    return buffer.getvalue()


@cache
def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _mutate_xml(data: bytes, rng: random.Random) -> bytes:
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    _mutate_tree(root, rng)
    return etree.tostring(root, encoding="utf-8", xml_declaration=True)


def _mutate_html(data: bytes, rng: random.Random) -> bytes:
    root = html.document_fromstring(data)
    _mutate_tree(root, rng)
    return html.tostring(root, encoding="utf-8")


def _mutate_tree(root: Any, rng: random.Random) -> None:
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        elements = [element for element in root.iter() if isinstance(element.tag, str)]
        rng.choice(_TREE_MUTATIONS)(rng.choice(elements), rng.choice(elements), rng)


def _drop(element: Any, _: Any, __: random.Random) -> None:
    if (parent := element.getparent()) is not None:
        parent.remove(element)


def _copy(element: Any, other: Any, rng: random.Random) -> None:
    """A copy of an element somewhere else, once or many times."""
    piece = copy.deepcopy(element)  # `other` may be inside the element, which would grow with it
    size = sum(1 for _ in piece.iter())
    for _ in range(min(rng.choice((1, 1, 30)), 300 // size)):
        other.insert(rng.randrange(len(other) + 1), copy.deepcopy(piece))


def _rename(element: Any, other: Any, _: random.Random) -> None:
    element.tag = other.tag


def _set_attribute(element: Any, other: Any, rng: random.Random) -> None:
    names = list(element.attrib) or list(other.attrib)
    if names:
        element.set(rng.choice(names), rng.choice((*_VALUES, *other.attrib.values())))


def _drop_attribute(element: Any, _: Any, rng: random.Random) -> None:
    if names := list(element.attrib):
        del element.attrib[rng.choice(names)]


def _set_text(element: Any, other: Any, rng: random.Random) -> None:
    element.text = rng.choice((*_VALUES, other.text or "", None))


def _nest(element: Any, _: Any, rng: random.Random) -> None:
    """The element within many of its own kind."""
    for _ in range(rng.choice((3, 30, 400))):
        element = etree.SubElement(element, element.tag)
    element.text = "innermost"


_TREE_MUTATIONS: tuple[Callable[[Any, Any, random.Random], None], ...] = (
    _drop,
    _copy,
    _rename,
    _set_attribute,
    _set_attribute,
    _drop_attribute,
    _set_text,
    _nest,
)


def mutate_bytes(data: bytes, others: list[bytes], rng: random.Random) -> bytes:
    """Damage to any bytes; `others` to take pieces from."""
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if rng.random() < 0.1:
            _graft(damaged, rng.choice(others), rng)
        else:
            rng.choice(_BYTE_MUTATIONS)(damaged, rng)
    return bytes(damaged)


def _graft(data: bytearray, other: bytes, rng: random.Random) -> None:
    """A piece of another file of the kind, in place of as much."""
    start, end = _slice(other, rng)
    place = rng.randrange(len(data) + 1)
    data[place : place + end - start] = other[start:end]


def _flip(data: bytearray, rng: random.Random) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _overwrite(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    data[start:end] = rng.randbytes(end - start)


def _delete(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    del data[start:end]


def _repeat(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    data[end:end] = data[start:end] * rng.choice((1, 2, 50))


def _move(data: bytearray, rng: random.Random) -> None:
    start, end = _slice(data, rng)
    piece = bytes(data[start:end])
    del data[start:end]
    place = rng.randrange(len(data) + 1)
    data[place:place] = piece


def _insert(data: bytearray, rng: random.Random) -> None:
    place = rng.randrange(len(data) + 1)
    data[place:place] = rng.choice(_TOKENS) * rng.choice((1, 1, 1, 1000))


def _truncate(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data) + 1) :]


def _number(data: bytearray, rng: random.Random) -> None:
    """Another number in place of one in the text: lengths, counts, offsets."""
    digits = [index for index, byte in enumerate(data[:20_000]) if 48 <= byte <= 57]
    if digits:
        place = rng.choice(digits)
        data[place : place + 1] = rng.choice((b"0", b"-1", b"65536", b"4294967296", b"9" * 19))


_BYTE_MUTATIONS: tuple[Callable[[bytearray, random.Random], None], ...] = (
    _flip,
    _overwrite,
    _delete,
    _repeat,
    _move,
    _insert,
    _truncate,
    _number,
    _number,
)


def _slice(data: bytes | bytearray, rng: random.Random) -> tuple[int, int]:
    start = rng.randrange(len(data) + 1)
    return start, min(len(data), start + rng.choice((1, 4, 16, 64, 256, 1024)))
