"""Real pictures -> damaged ones that get past checksums, lengths and compression.

Damage to any byte of a picture mostly ends at its first checksum. So that decoders and OCR meet odd
input as well, a picture is taken apart (chunks, segments, tags), its parts are changed, and
lengths, checksums and zlib streams are made right again. Sizes of gigapixels, tables that do not
fit, pages that follow themselves and codes that run over the edge come of it.
"""

from __future__ import annotations

import random
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from tests.mutations import mutate_bytes

_NUMBERS = (
    0, 1, 2, 3, 4, 7, 8, 9, 15, 16, 24, 31, 32, 64, 255, 256, 2000, 4096, 8900, 20_000, 32_767,
    65_535, 65_536, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, (1 << 64) - 1,
)  # fmt: skip
_SIZES = ((8900, 8900), (65_000, 1200), (1, 65_000), (3000, 3000), (65_000, 65_000))  # pixels
_Order = Literal["big", "little"]


@dataclass
class _Piece:
    """A chunk of PNG or WebP, or a segment of JPEG, without its length and checksum."""

    name: bytes
    body: bytes


@dataclass(frozen=True)
class _Field:
    """A number in a header: its place and width in bytes."""

    place: int
    width: int


def mutate_picture(data: bytes, kind: str, rng: random.Random) -> bytes:
    """A damaged copy of a picture; `kind` is its ending: png, jpg, tif, bmp or webp."""
    form = _FORMS[kind]
    chance = rng.random()
    if chance < 0.01:
        damaged = claim_size(data, kind, rng.choice(_SIZES))
    elif chance < 0.1:
        damaged = _damage(data, rng)
    else:
        damaged = form.mutate(data, rng)
    return damaged[: rng.randrange(len(damaged) + 1)] if rng.random() < 0.05 else damaged


def claim_size(data: bytes, kind: str, size: tuple[int, int]) -> bytes:
    """The same picture with another size, in pixels, in its header."""
    return _FORMS[kind].resize(data, size)


def _times(rng: random.Random) -> range:
    return range(rng.choice((1, 1, 1, 2, 4)))


def _damage(data: bytes, rng: random.Random) -> bytes:
    return mutate_bytes(data, [data], rng)


def _renumber(data: bytes, field: _Field, order: _Order, rng: random.Random) -> bytes:
    """Another number in a field that the data has."""
    end = field.place + field.width
    if len(data) < end:
        return data
    number = int.from_bytes(data[field.place : end], order)
    nearby = (number - 1, number + 1, 2 * number, number // 2, number ^ 1 << rng.randrange(8))
    number = rng.choice((*_NUMBERS, *nearby, *nearby)) % (1 << 8 * field.width)
    return data[: field.place] + number.to_bytes(field.width, order) + data[end:]


def _renumbered(data: bytes, field: _Field, number: int, order: _Order) -> bytes:
    return _put(data, field.place, number.to_bytes(field.width, order))


def _put(data: bytes, place: int, piece: bytes) -> bytes:
    """Bytes in place of others: nothing moves, so that offsets stay right."""
    return (data[:place] + piece + data[place + len(piece) :])[: len(data)]


def _rearrange(pieces: list[_Piece], rng: random.Random) -> None:
    """A piece dropped, moved, copied, cut off, or with the content of another."""
    index, other = rng.randrange(len(pieces)), rng.randrange(len(pieces))
    piece = pieces[index]
    action = rng.randrange(5)
    if action == 0 and len(pieces) > 1:
        del pieces[index]
    elif action == 1:
        pieces.insert(other, pieces.pop(index))
    elif action == 2:
        pieces[other:other] = [_Piece(piece.name, piece.body)] * rng.choice((1, 1, 40))
    elif action == 3:
        pieces[index] = _Piece(piece.name, piece.body[: rng.randrange(len(piece.body) + 1)])
    else:
        pieces[index] = _Piece(piece.name, pieces[other].body)


def _change(pieces: list[_Piece], names: Sequence[bytes], rng: random.Random) -> None:
    """Damage to the content of a piece, where there is one of these names."""
    if found := [index for index, piece in enumerate(pieces) if piece.name in names]:
        index = rng.choice(found)
        pieces[index] = _Piece(pieces[index].name, _damage(pieces[index].body, rng))


def _change_field(
    pieces: list[_Piece],
    names: Sequence[bytes],
    fields: Sequence[_Field],
    order: _Order,
    rng: random.Random,
) -> None:
    """Another number in the header of a piece, where there is one of these names."""
    if found := [index for index, piece in enumerate(pieces) if piece.name in names]:
        index = rng.choice(found)
        body = _renumber(pieces[index].body, rng.choice(fields), order, rng)
        pieces[index] = _Piece(pieces[index].name, body)


# PNG ---------------------------------------------------------------------------------------------

_PNG_START = b"\x89PNG\r\n\x1a\n"
_PNG_HEADER = tuple(_Field(*field) for field in ((0, 4), (4, 4), (8, 1), (9, 1), (10, 1), (12, 1)))
_PNG_FRAME = tuple(_Field(4 * index, 4) for index in range(5))  # size and place of a frame
_PNG_MORE = (b"PLTE", b"tRNS", b"gAMA", b"cHRM", b"sRGB", b"pHYs", b"eXIf", b"acTL", b"fcTL")


def _png(data: bytes, rng: random.Random) -> bytes:
    pieces = list(_png_chunks(data))
    for _ in _times(rng):
        action = rng.randrange(6)
        if action == 0:
            _change_field(pieces, (b"IHDR",), _PNG_HEADER, "big", rng)
        elif action == 1:
            _change_field(pieces, (b"fcTL", b"acTL", b"IHDR"), _PNG_FRAME, "big", rng)
        elif action in (2, 3):
            _change(pieces, (b"IDAT", b"fdAT", b"PLTE", b"tRNS"), rng)
        elif action == 4:
            pieces.insert(rng.randrange(1, len(pieces) + 1), _png_extra(rng))
        else:
            _rearrange(pieces, rng)
    return _PNG_START + b"".join(_png_chunk(piece, rng) for piece in pieces)


def _png_resize(data: bytes, size: tuple[int, int]) -> bytes:
    header = struct.pack(">II", *size) + data[24:29]
    return _PNG_START + _png_framed(b"IHDR", header) + data[33:]


def _png_chunks(data: bytes) -> Iterator[_Piece]:
    """The chunks of a PNG, scanlines unpacked."""
    place = len(_PNG_START)
    packed = b""
    while place < len(data):
        length = int.from_bytes(data[place : place + 4], "big")
        name, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + length]
        place += 12 + length
        if name == b"IDAT":
            packed += body
            continue
        if packed:
            yield _Piece(b"IDAT", zlib.decompress(packed))
            packed = b""
        if name == b"fdAT":
            body = body[:4] + zlib.decompress(body[4:])
        yield _Piece(name, body)


def _png_chunk(piece: _Piece, rng: random.Random) -> bytes:
    body = piece.body
    if piece.name == b"IDAT":
        body = zlib.compress(body, 1)
        if rng.random() < 0.1:  # in two chunks, as large pictures have them
            half = rng.randrange(len(body))
            return _png_framed(b"IDAT", body[:half]) + _png_framed(b"IDAT", body[half:])
    elif piece.name == b"fdAT":
        body = body[:4] + zlib.compress(body[4:], 1)
    return _png_framed(piece.name, body)


def _png_framed(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _png_extra(rng: random.Random) -> _Piece:
    """A chunk beside the pixels: a palette, a profile, a comment that unpacks to 80 MiB."""
    junk = rng.randbytes(rng.choice((0, 1, 2, 4, 6, 26, 32, 256, 768, 769)))
    packed = rng.choice((zlib.compress(junk), _packed_zeros(1), _packed_zeros(80)))
    named = (
        _Piece(b"zTXt", b"Comment\0\0" + packed),
        _Piece(b"iCCP", b"profile\0\0" + packed),
        _Piece(b"iTXt", b"Comment\0\1\0\0\0" + packed),
        _Piece(b"tEXt", b"Comment\0" + junk),
    )
    return rng.choice((*named, *(_Piece(name, junk) for name in _PNG_MORE)))


@cache
def _packed_zeros(mebibytes: int) -> bytes:
    return zlib.compress(bytes(mebibytes << 20), 1)


# JPEG --------------------------------------------------------------------------------------------

_SOF = (b"\xc0", b"\xc1", b"\xc2")
_JPEG_FRAME = tuple(
    _Field(*field) for field in ((0, 1), (1, 2), (3, 2), (5, 1), (6, 1), (7, 1), (8, 1), (10, 1))
)
_JPEG_TABLES = (b"\xdb", b"\xc4", b"\xda", b"\xdd", b"\xe1", b"\xe2", b"\xee")
_ENTROPY = b""  # name of the piece that holds coded pixels
_EXIF = b"Exif\0\0II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0%c\0\0\0\0\0\0\0"


def _jpeg(data: bytes, rng: random.Random) -> bytes:
    pieces = list(_jpeg_segments(data))
    for _ in _times(rng):
        action = rng.randrange(7)
        if action == 0:
            _change_field(pieces, _SOF, _JPEG_FRAME, "big", rng)
        elif action == 1:
            _change(pieces, _JPEG_TABLES, rng)
        elif action in (2, 3):
            _change(pieces, (_ENTROPY,), rng)
        elif action == 4:
            _restart(pieces, rng)
        elif action == 5:
            extra = (_Piece(b"\xe1", _EXIF % rng.randrange(12)), _Piece(b"\xee", b"Adobe\0d\0\0\2"))
            pieces.insert(0, rng.choice(extra))
        else:
            _rearrange(pieces, rng)
    return b"\xff\xd8" + b"".join(_jpeg_segment(piece, rng) for piece in pieces) + b"\xff\xd9"


def _jpeg_resize(data: bytes, size: tuple[int, int]) -> bytes:
    place = next(place for marker in _SOF if (place := data.find(b"\xff" + marker)) > 0)
    return _put(data, place + 5, struct.pack(">HH", size[1], size[0]))


def _jpeg_segments(data: bytes) -> Iterator[_Piece]:
    """The segments of a JPEG, and of others that follow it in the file."""
    place = 2
    while place + 4 <= len(data):
        name = data[place + 1 : place + 2]
        if name in (b"\xd8", b"\xd9"):
            place += 2
            continue
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        yield _Piece(name, data[place + 4 : end])
        place = end
        if name == b"\xda":
            while place < len(data) and not _is_marker(data, place):
                place += 1
            yield _Piece(_ENTROPY, data[end:place])


def _is_marker(data: bytes, place: int) -> bool:
    """Whether a segment starts here: not a stuffed byte, not a restart."""
    follows = data[place + 1 : place + 2]
    return data[place] == 0xFF and follows != b"\0" and not b"\xd0" <= follows <= b"\xd7"


def _jpeg_segment(piece: _Piece, rng: random.Random) -> bytes:
    if piece.name != _ENTROPY:
        body = piece.body[:65_533]
        return b"\xff" + piece.name + struct.pack(">H", len(body) + 2) + body
    if rng.random() < 0.3:  # markers that damage made stay
        return piece.body
    parts = [b"\xff\0" if _is_marker(piece.body, place) else piece.body[place : place + 1]
             for place in range(len(piece.body))]  # fmt: skip
    return b"".join(parts)


def _restart(pieces: list[_Piece], rng: random.Random) -> None:
    """Restart markers, announced or not, in the coded pixels."""
    if rng.random() < 0.7:
        pieces.insert(0, _Piece(b"\xdd", struct.pack(">H", rng.choice((0, 1, 2, 8, 65_535)))))
    coded = [index for index, piece in enumerate(pieces) if piece.name == _ENTROPY]
    for index in coded[:1]:
        body = bytearray(pieces[index].body)
        for _ in range(rng.choice((0, 1, 4, 200))):
            place = rng.randrange(len(body) + 1)
            body[place:place] = bytes((0xFF, 0xD0 + rng.randrange(8)))
        pieces[index] = _Piece(_ENTROPY, bytes(body))


# TIFF --------------------------------------------------------------------------------------------

_TIFF_VALUES = {
    258: (0, 1, 2, 4, 8, 16, 32, 64), 259: (1, 2, 3, 4, 5, 6, 7, 8, 32_773, 32_946, 50_000, 50_001),
    262: (0, 1, 2, 3, 4, 5, 6, 8, 32_803), 266: (1, 2), 274: tuple(range(10)),
    277: (0, 1, 2, 3, 4, 5, 255), 284: (0, 1, 2), 317: (1, 2, 3), 338: (0, 1, 2), 339: (1, 2, 3, 4),
}  # fmt: skip
_TIFF_TAGS = (*_TIFF_VALUES, 254, 256, 257, 273, 278, 279, 292, 320, 322, 323, 324, 325, 347, 530)


@dataclass(frozen=True)
class _Directory:
    """A page's tags in a TIFF: where they are, and where the pointer to the next page is."""

    entries: tuple[int, ...]
    following: int


def _tiff(data: bytes, rng: random.Random) -> bytes:
    order, wide = _tiff_kind(data)
    directories = list(_tiff_directories(data, order, wide))
    for _ in _times(rng):
        directory = rng.choice(directories)
        entry = rng.choice(directory.entries)
        width = 8 if wide else 4
        action = rng.randrange(6)
        if action == 0:  # tag, type, count, value
            field = rng.choice((_Field(0, 2), _Field(2, 2), _Field(4, width)))
            data = _renumber(data, _Field(entry + field.place, field.width), order, rng)
        elif action in (1, 2):
            data = _renumber(data, _Field(entry + 4 + width, rng.choice((2, width))), order, rng)
        elif action == 3:
            data = _tiff_tag(data, entry, order, rng)
        elif action == 4:
            target = rng.choice([*(d.entries[0] - (8 if wide else 2) for d in directories), 0, 8])
            data = _put(data, directory.following, target.to_bytes(width, order))
        else:
            start = rng.randrange(len(data))
            data = _put(data, start, rng.randbytes(rng.choice((1, 1, 4, 64))))
    return data


def _tiff_resize(data: bytes, size: tuple[int, int]) -> bytes:
    order, wide = _tiff_kind(data)
    for directory in _tiff_directories(data, order, wide):
        for entry in directory.entries:
            tag = int.from_bytes(data[entry : entry + 2], order)
            width = 2 if data[entry + 2 : entry + 4] in (b"\0\3", b"\3\0") else 4
            if tag in (256, 257):
                field = _Field(entry + (12 if wide else 8), width)
                data = _renumbered(data, field, size[tag - 256], order)
    return data


def _tiff_kind(data: bytes) -> tuple[_Order, bool]:
    """Its order of bytes, and whether it is a BigTIFF."""
    return "little" if data[:2] == b"II" else "big", data[2:4] in (b"+\0", b"\0+")


def _tiff_tag(data: bytes, entry: int, order: _Order, rng: random.Random) -> bytes:
    """A tag that decides how pixels are decoded, with a value that it may have."""
    tag = int.from_bytes(data[entry : entry + 2], order)
    if tag not in _TIFF_VALUES or rng.random() < 0.2:
        tag = rng.choice(_TIFF_TAGS)
        data = _put(data, entry, tag.to_bytes(2, order))
    value = rng.choice(_TIFF_VALUES.get(tag, (0, 1, 40, 96, 65_535)))
    _, wide = _tiff_kind(data)
    return _put(data, entry + (12 if wide else 8), value.to_bytes(2, order))


def _tiff_directories(data: bytes, order: _Order, wide: bool) -> Iterator[_Directory]:
    width, counted, size = (8, 8, 20) if wide else (4, 2, 12)
    place = int.from_bytes(data[width : 2 * width], order)
    while place:
        count = int.from_bytes(data[place : place + counted], order)
        start = place + counted
        following = start + size * count
        yield _Directory(tuple(range(start, following, size)), following)
        place = int.from_bytes(data[following : following + width], order)


# BMP ---------------------------------------------------------------------------------------------

_BMP_HEADER = tuple(
    _Field(*field)
    for field in (
        (2, 4), (10, 4), (14, 4), (18, 4), (22, 4), (18, 4), (22, 4), (26, 2), (28, 2), (30, 4),
        (34, 4), (46, 4), (50, 4),
    )
)  # fmt: skip


def _bmp(data: bytes, rng: random.Random) -> bytes:
    for _ in _times(rng):
        action = rng.randrange(6)
        if action in (0, 1):
            data = _renumber(data, rng.choice(_BMP_HEADER), "little", rng)
        elif action == 2:
            bits, compression = rng.choice((1, 2, 4, 8, 16, 24, 32)), rng.randrange(7)
            data = _put(data, 28, struct.pack("<HI", bits, compression))
        elif action == 3:
            height = int.from_bytes(data[22:26], "little", signed=True)
            data = _put(data, 22, struct.pack("<i", min(-height, (1 << 31) - 1)))
        elif action == 4:
            data = data[:54] + _damage(data[54:], rng)
        else:
            data = _run_lengths(data, rng)
    return data


def _bmp_resize(data: bytes, size: tuple[int, int]) -> bytes:
    return _put(data, 18, struct.pack("<II", *size))


def _run_lengths(data: bytes, rng: random.Random) -> bytes:
    """Pixels in runs of 8 or 4 bits, with jumps and line ends anywhere."""
    bits = rng.choice((8, 4))
    data = _put(data, 28, struct.pack("<HI", bits, 1 if bits == 8 else 2))
    start = int.from_bytes(data[10:14], "little") % (len(data) + 1)
    codes = bytearray()
    for _ in range(rng.choice((10, 100, 1000))):
        escape = b"\0" + rng.choice((b"\0", b"\1", b"\2" + rng.randbytes(2), b"\5" + b"abcdef"))
        codes += escape if rng.random() < 0.3 else bytes((rng.randrange(1, 256), rng.randrange(16)))
    return data[:start] + bytes(codes)


# WebP --------------------------------------------------------------------------------------------

_WEBP_PIXELS = (b"VP8 ", b"VP8L", b"ALPH", b"ANMF")
_WEBP_CANVAS = tuple(_Field(*field) for field in ((0, 1), (4, 3), (7, 3)))
_WEBP_FRAME = tuple(_Field(*field) for field in ((0, 3), (3, 3), (6, 3), (9, 3), (15, 1), (20, 4)))
_WEBP_SIZES = tuple(_Field(*field) for field in ((6, 2), (8, 2), (1, 2), (3, 2), (0, 3)))


def _webp(data: bytes, rng: random.Random) -> bytes:
    pieces = list(_webp_chunks(data))
    for _ in _times(rng):
        action = rng.randrange(7)
        if action == 0:
            _change_field(pieces, (b"VP8X",), _WEBP_CANVAS, "little", rng)
        elif action == 1:
            _change_field(pieces, (b"ANMF",), _WEBP_FRAME, "little", rng)
        elif action == 2:
            _change_field(pieces, (b"VP8 ", b"VP8L"), _WEBP_SIZES, "little", rng)
        elif action in (3, 4):
            _change_inside(pieces, rng)
        elif action == 5:
            name = rng.choice((b"VP8X", b"ANIM", b"ICCP", b"EXIF", b"XMP ", b"ALPH", b"ANMF"))
            body = rng.randbytes(rng.choice((0, 6, 10, 16, 40)))
            pieces.insert(rng.randrange(len(pieces) + 1), _Piece(name, body))
        else:
            _rearrange(pieces, rng)
    return _webp_file(pieces)


def _webp_resize(data: bytes, size: tuple[int, int]) -> bytes:
    """Another canvas; pixels by themselves get 14 bits of the size."""
    width, height = size
    pieces = list(_webp_chunks(data))
    for piece in pieces:
        if piece.name == b"VP8X":
            canvas = (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
            piece.body = _put(piece.body, 4, canvas)
        elif piece.name == b"VP8 ":
            piece.body = _put(piece.body, 6, struct.pack("<HH", width & 0x3FFF, height & 0x3FFF))
        elif piece.name == b"VP8L":
            packed = (width & 0x3FFF) | (height & 0x3FFF) << 14
            piece.body = _put(piece.body, 1, struct.pack("<I", packed))
    return _webp_file(pieces)


def _webp_file(pieces: list[_Piece]) -> bytes:
    body = b"WEBP" + b"".join(_webp_chunk(piece) for piece in pieces)
    return b"RIFF" + struct.pack("<I", len(body)) + body


def _change_inside(pieces: list[_Piece], rng: random.Random) -> None:
    """Bytes of coded pixels replaced behind their header, which names their size."""
    if found := [index for index, piece in enumerate(pieces) if piece.name in _WEBP_PIXELS]:
        index = rng.choice(found)
        name, body = pieces[index].name, pieces[index].body
        for _ in _times(rng):
            place = rng.randrange(min(10, len(body)), len(body) + 1)
            body = _put(body, place, rng.randbytes(rng.choice((1, 1, 4, 64))))
        pieces[index] = _Piece(name, body)


def _webp_chunks(data: bytes) -> Iterator[_Piece]:
    place = 12
    while place + 8 <= len(data):
        length = int.from_bytes(data[place + 4 : place + 8], "little")
        yield _Piece(data[place : place + 4], data[place + 8 : place + 8 + length])
        place += 8 + length + length % 2


def _webp_chunk(piece: _Piece) -> bytes:
    return (
        piece.name + struct.pack("<I", len(piece.body)) + piece.body + b"\0" * (len(piece.body) % 2)
    )


@dataclass(frozen=True)
class _Form:
    """How pictures of one kind are damaged: anywhere, or by claiming another size in pixels."""

    mutate: Callable[[bytes, random.Random], bytes]
    resize: Callable[[bytes, tuple[int, int]], bytes]


_FORMS = {
    "png": _Form(_png, _png_resize),
    "jpg": _Form(_jpeg, _jpeg_resize),
    "tif": _Form(_tiff, _tiff_resize),
    "bmp": _Form(_bmp, _bmp_resize),
    "webp": _Form(_webp, _webp_resize),
}
