"""PPTX -> blocks, one page a slide: titles, text in reading order, tables, speaker notes."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from runtime.errors import DamagedDocument
from runtime.readers.blocks import Block, RawDocument, table_blocks
from runtime.readers.context import Context
from runtime.readers.equations import exponent
from runtime.readers.packages import check_package
from runtime.readers.table_header import split_header

MEDIA_TYPE = "application/vnd.openxmlformats-officedocument.presentationml.presentation"
_DEEPEST = 20  # groups in groups
_LEFT_OUT = frozenset(("DATE", "FOOTER", "HEADER", "SLIDE_NUMBER"))


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Slides in order. A slide's number in the file is its page."""
    import pptx
    from pptx.exc import PackageNotFoundError

    check_package(data, context)
    try:
        deck = pptx.Presentation(io.BytesIO(data))
    except (PackageNotFoundError, KeyError, ValueError) as error:
        raise DamagedDocument("It is not a readable presentation", where=context.source) from error
    raw = RawDocument(MEDIA_TYPE, [], title=(deck.core_properties.title or "").strip())
    if raw.title == "PowerPoint Presentation":
        raw.title = ""
    size = (deck.slide_width or 0, deck.slide_height or 0)
    for number, slide in enumerate(deck.slides, 1):
        blocks = list(_slide(slide, number, size, raw.hidden))
        if slide.element.get("show") == "0":
            raw.hidden.append(("hidden slide", " ".join(block.text for block in blocks)))
        else:
            raw.blocks += blocks
    return [raw]


def _slide(
    slide: Any, number: int, size: tuple[int, int], hidden: list[tuple[str, str]]
) -> Iterator[Block]:
    title = slide.shapes.title
    if title is not None and title.has_text_frame and title.text_frame.text.strip():
        yield Block("heading", " ".join(title.text_frame.text.split()), 1, number)
    for placed in _flat(slide.shapes):
        shape = placed.shape
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if _off_slide(placed, size):
            text = " ".join(block.text for block in _shape(shape, number))
            hidden.append(("text off the slide", text))
            continue
        yield from _shape(shape, number)
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        for paragraph in notes.paragraphs:
            yield Block("paragraph", _text(paragraph), page=number)


@dataclass(frozen=True, slots=True)
class _Frame:
    """How a group draws what is in it: scaled, then shifted (EMU), to the slide's coordinates."""

    scale_x: float = 1.0
    scale_y: float = 1.0
    shift_x: float = 0.0
    shift_y: float = 0.0

    def inside(self, group: Any) -> _Frame:
        """The frame of a group in this one. Turned and mirrored groups are taken as they lie."""
        transform = group.element.find("{*}grpSpPr/{*}xfrm")
        if transform is None:
            return self
        x, y = _numbers(transform.find("{*}off"), "x", "y")
        width, height = _numbers(transform.find("{*}ext"), "cx", "cy")
        inner_x, inner_y = _numbers(transform.find("{*}chOff"), "x", "y")
        inner_width, inner_height = _numbers(transform.find("{*}chExt"), "cx", "cy")
        scale_x = width / inner_width if width and inner_width else 1.0
        scale_y = height / inner_height if height and inner_height else 1.0
        return _Frame(
            self.scale_x * scale_x,
            self.scale_y * scale_y,
            self.shift_x + self.scale_x * (x - inner_x * scale_x),
            self.shift_y + self.scale_y * (y - inner_y * scale_y),
        )


@dataclass(frozen=True, slots=True)
class _Placed:
    """A shape and its place on the slide (EMU): zeros, and not `known`, where it is not given."""

    shape: Any
    left: float
    top: float
    right: float
    bottom: float
    known: bool


def _flat(shapes: Iterable[Any]) -> list[_Placed]:
    """Shapes outside and inside groups, top to bottom, left to right."""
    return sorted(_placed(shapes, _Frame(), 0), key=lambda placed: (placed.top, placed.left))


def _placed(shapes: Iterable[Any], frame: _Frame, depth: int) -> Iterator[_Placed]:
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST:
            yield from _placed(shape.shapes, frame.inside(shape), depth + 1)
            continue
        box = (shape.left, shape.top, shape.width, shape.height)
        left = frame.shift_x + frame.scale_x * (shape.left or 0)
        top = frame.shift_y + frame.scale_y * (shape.top or 0)
        yield _Placed(
            shape,
            left,
            top,
            left + frame.scale_x * (shape.width or 0),
            top + frame.scale_y * (shape.height or 0),
            None not in box,
        )


def _numbers(element: Any, first: str, second: str) -> tuple[int, int]:
    """Two attributes of an element that may be missing; 0 for what is no number."""
    return _number(element, first), _number(element, second)


def _number(element: Any, name: str) -> int:
    text = "" if element is None else element.get(name, "")
    return int(text) if re.fullmatch(r"-?[0-9]{1,18}", text) else 0


def _shape(shape: Any, number: int) -> Iterator[Block]:
    placeholder = shape.placeholder_format.type if shape.is_placeholder else None
    if placeholder is not None and placeholder.name in _LEFT_OUT:
        return
    if getattr(shape, "has_table", False):
        rows = [
            ["\n".join(map(_text, cell.text_frame.paragraphs)) for cell in row.cells]
            for row in shape.table.rows
        ]
        header, body = split_header(rows, marked=shape.table.first_row)
        yield from table_blocks(body, header=header, page=number)
    elif shape.has_text_frame:
        listed = len([p for p in shape.text_frame.paragraphs if p.text.strip()]) > 1
        for paragraph in shape.text_frame.paragraphs:
            text = _text(paragraph).replace("\v", " ")
            yield (
                Block("item", f"- {text}", page=number)
                if listed and text.strip()
                else Block("paragraph", text, page=number)
            )


def _text(paragraph: Any) -> str:
    """A paragraph's runs and breaks; numbers that are raised above the line stay raised."""
    return "".join(
        exponent(run.text) if _number(run.find("{*}rPr"), "baseline") > 0 else run.text
        for run in paragraph._p.content_children  # as python-pptx joins them for `text`
    )


def _off_slide(placed: _Placed, size: tuple[int, int]) -> bool:
    if not placed.known or not all(size):
        return False
    return (
        placed.left >= size[0] or placed.top >= size[1] or placed.right <= 0 or placed.bottom <= 0
    )
