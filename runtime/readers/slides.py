"""PPTX -> blocks, one page a slide: titles, text in reading order, tables, speaker notes."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any

from runtime.errors import DamagedDocument
from runtime.readers.blocks import Block, RawDocument, table_blocks
from runtime.readers.context import Context
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
    for shape in _flat(slide.shapes):
        if title is not None and shape.shape_id == title.shape_id:
            continue
        if _off_slide(shape, size):
            text = shape.text_frame.text if shape.has_text_frame else ""
            hidden.append(("text off the slide", text))
            continue
        yield from _shape(shape, number)
    if slide.has_notes_slide and (notes := slide.notes_slide.notes_text_frame) is not None:
        for paragraph in notes.paragraphs:
            yield Block("paragraph", paragraph.text, page=number)


def _flat(shapes: Iterable[Any], depth: int = 0) -> list[Any]:
    """Shapes outside and inside groups, top to bottom, left to right."""
    found: list[Any] = []
    for shape in shapes:
        if hasattr(shape, "shapes") and depth < _DEEPEST:
            found += _flat(shape.shapes, depth + 1)
        else:
            found.append(shape)
    if depth == 0:
        found.sort(key=lambda shape: (shape.top or 0, shape.left or 0))
    return found


def _shape(shape: Any, number: int) -> Iterator[Block]:
    placeholder = shape.placeholder_format.type if shape.is_placeholder else None
    if placeholder is not None and placeholder.name in _LEFT_OUT:
        return
    if getattr(shape, "has_table", False):
        rows = [[cell.text for cell in row.cells] for row in shape.table.rows]
        header, body = split_header(rows, marked=shape.table.first_row)
        yield from table_blocks(body, header=header, page=number)
    elif shape.has_text_frame:
        listed = len([p for p in shape.text_frame.paragraphs if p.text.strip()]) > 1
        for paragraph in shape.text_frame.paragraphs:
            text = paragraph.text.replace("\v", " ")
            yield (
                Block("item", f"- {text}", page=number)
                if listed and text.strip()
                else Block("paragraph", text, page=number)
            )


def _off_slide(shape: Any, size: tuple[int, int]) -> bool:
    if None in (shape.left, shape.top, shape.width, shape.height) or not all(size):
        return False
    return bool(
        shape.left >= size[0]
        or shape.top >= size[1]
        or shape.left + shape.width <= 0
        or shape.top + shape.height <= 0
    )
