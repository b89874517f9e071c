"""Pictures of text (PNG, JPEG, TIFF, BMP, WebP) -> blocks, through the OCR extra."""

from __future__ import annotations

import io
import warnings
from typing import Any

from runtime.errors import DocumentTooLarge, EmptyDocument, ScanNotIndexed
from runtime.readers import ocr
from runtime.readers.blocks import RawDocument
from runtime.readers.context import Context
from runtime.readers.pdf_layout import Box, PageContent, layout

_MOST_PIXELS = 80_000_000
_MOST_PAGES = 2000
_PAGE_WIDTH = 595.0  # points


def read(data: bytes, context: Context) -> list[RawDocument]:
    """Text on a picture, or on each page of a TIFF.

    Raises:
        ScanNotIndexed: the OCR extra is not installed, or OCR is switched off.
        DocumentTooLarge: more pixels or pages than are reasonable.
        EmptyDocument: no text on it.
    """
    if not (context.options.ocr and ocr.installed()):
        raise ScanNotIndexed(
            "It is a picture, not indexed", where=context.source, fix=ocr.HOW_TO_INSTALL
        )
    from PIL import Image

    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS // 2  # Pillow stops at twice as many
    try:
        with warnings.catch_warnings(action="ignore"), Image.open(io.BytesIO(data)) as image:
            pages = _pages(image, context)
            media_type = Image.MIME.get(image.format or "", "image/unknown")
    except Image.DecompressionBombError as error:
        raise DocumentTooLarge(
            f"It has over {_MOST_PIXELS // 1_000_000} million pixels", where=context.source
        ) from error
    if not any(page.words for page in pages):
        raise EmptyDocument("There is no text on it", where=context.source)
    return [RawDocument(media_type, layout(pages))]


def _pages(image: Any, context: Context) -> list[PageContent]:
    """Decode each page and put what OCR reads on it into words.

    Only TIFF has pages: what follows in others is animation, or a phone's preview of the picture.
    """
    from PIL import ImageOps, ImageSequence

    context.begin_ocr()
    pages: list[PageContent] = []
    frames = ImageSequence.Iterator(image) if image.format == "TIFF" else [image]
    for number, frame in enumerate(frames, 1):
        if number > _MOST_PAGES:
            raise DocumentTooLarge(f"It has over {_MOST_PAGES} pages", where=context.source)
        if frame.width * frame.height > _MOST_PIXELS:  # which Pillow asks of the first page only
            raise DocumentTooLarge(
                f"Page {number} has {frame.width} x {frame.height} pixels", where=context.source
            )
        upright = ImageOps.exif_transpose(frame).convert("RGB")
        # As if printed on A4, so that distances mean what they mean in a PDF.
        scale = min(1.0, _PAGE_WIDTH / min(upright.size))
        width, height = upright.width * scale, upright.height * scale
        if image.format == "TIFF" and scale < 1.0:  # a scan, to be read as large as one in a PDF
            zoom = ocr.pixels_per_point(width, height)
            upright = upright.resize((max(1, round(width * zoom)), max(1, round(height * zoom))))
            scale = 1.0 / zoom
        page = PageContent(number, Box(0.0, 0.0, width, height))
        page.words = ocr.read_picture(upright, points_per_pixel=scale)
        pages.append(page)
    return pages
