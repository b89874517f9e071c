"""Pictures of text (PNG, JPEG, TIFF, BMP, WebP) -> blocks, through the OCR extra."""

from __future__ import annotations

import io
import warnings

from runtime.errors import DocumentTooLarge, EmptyDocument, ScanNotIndexed
from runtime.readers import ocr
from runtime.readers.blocks import RawDocument
from runtime.readers.context import Context
from runtime.readers.pdf_layout import Box, PageContent, layout

_MOST_PIXELS = 80_000_000
_MOST_PAGES = 2000


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
    from PIL import Image, ImageOps, ImageSequence

    Image.MAX_IMAGE_PIXELS = _MOST_PIXELS
    warnings.simplefilter("ignore", Image.DecompressionBombWarning)
    pages: list[PageContent] = []
    with Image.open(io.BytesIO(data)) as image:
        if image.width * image.height > _MOST_PIXELS:
            raise DocumentTooLarge(
                f"It has {image.width} x {image.height} pixels", where=context.source
            )
        context.begin_ocr()
        for number, frame in enumerate(ImageSequence.Iterator(image), 1):
            if number > _MOST_PAGES:
                raise DocumentTooLarge(f"It has over {_MOST_PAGES} pages", where=context.source)
            upright = ImageOps.exif_transpose(frame.convert("RGB"))
            box = Box(0.0, 0.0, float(upright.width), float(upright.height))
            page = PageContent(number, box)
            page.words = ocr.read_picture(upright, points_per_pixel=1.0)
            pages.append(page)
        media_type = Image.MIME.get(image.format or "", "image/unknown")
    if not any(page.words for page in pages):
        raise EmptyDocument("There is no text on it", where=context.source)
    return [RawDocument(media_type, layout(pages))]
