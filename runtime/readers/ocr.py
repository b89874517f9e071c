"""Pictures of text -> words with places, through RapidOCR, whose ONNX models are in its wheel."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from statistics import median
from typing import Any

from runtime.readers.pdf_layout import Box, PageContent, Word

HOW_TO_INSTALL = "Install the OCR extra: pip install 'specrag[ocr]'"
_DPI = 200
_LONGEST_SIDE = 5000  # pixels
_POINTS_PER_INCH = 72
_MOST_SLENDER = 8  # how many times longer than wide a picture may be
_LIKE_SIZES = 0.25  # by which share lines of one size are read as larger or smaller


def installed() -> bool:
    """Whether the OCR extra and an ONNX Runtime are installed."""
    return find_spec("rapidocr") is not None and find_spec("onnxruntime") is not None


def read_picture(picture: Any, *, points_per_pixel: float) -> list[Word]:
    """Lines of text on a picture, each as one word with its box, y upwards from the bottom.

    Args:
        picture: a `PIL.Image` in RGB.
        points_per_pixel: scale of the boxes.
    """
    import numpy as np

    if (longest := max(picture.size)) > _LONGEST_SIDE:
        shape = [max(1, side * _LONGEST_SIDE // longest) for side in picture.size]
        picture = picture.resize(shape)
        points_per_pixel *= longest / _LONGEST_SIDE
    pixels = np.asarray(_padded(picture))[:, :, ::-1]  # (height, width, 3) as BGR
    found = _engine()(np.ascontiguousarray(pixels))
    if found.boxes is None or not found.txts:
        return []
    height = picture.height
    words = []
    for corners, text in zip(found.boxes, found.txts, strict=True):
        x, y = corners[:, 0], corners[:, 1]
        top = float(height - y.min()) * points_per_pixel
        bottom = float(height - y.max()) * points_per_pixel
        left = float(x.min()) * points_per_pixel
        right = float(x.max()) * points_per_pixel
        words.append(Word(str(text), left, bottom, right, top, size=0.75 * (top - bottom)))
    _even_sizes(words)
    return words


def _even_sizes(words: Sequence[Word]) -> None:
    """Give lines about as large as most of the page one size.

    Boxes fit the letters, so that a line without descenders seems smaller; paragraphs broke there,
    and lines of them became headings.
    """
    usual = median([word.size for word in words for _ in word.text or " "])
    for word in words:
        if abs(word.size - usual) <= _LIKE_SIZES * usual:
            word.size = usual


def pixels_per_point(width: float, height: float) -> float:
    """How large a page of so many points is read."""
    return min(_DPI / _POINTS_PER_INCH, _LONGEST_SIDE / max(width, height, 1.0))


def _padded(picture: Any) -> Any:
    """A slender picture with white on its right or below it.

    RapidOCR would scale the shorter side to nothing, or enlarge it and the longer one with it until
    they take gigabytes.
    """
    from PIL import Image

    shortest = max(picture.size) // _MOST_SLENDER
    if min(picture.size) >= shortest:
        return picture
    shape = (max(picture.width, shortest), max(picture.height, shortest))
    padded = Image.new("RGB", shape, "white")
    padded.paste(picture, (0, 0))
    return padded


def read_pdf_page(pdfium: Any, document: Any, content: PageContent) -> None:
    """Render a scanned page as people see it and put the words on it into `content`."""
    from PIL import Image

    page = pdfium.FPDF_LoadPage(document, content.number - 1)
    try:
        width, height = pdfium.FPDF_GetPageWidthF(page), pdfium.FPDF_GetPageHeightF(page)
        scale = pixels_per_point(width, height)
        columns, rows = max(1, round(width * scale)), max(1, round(height * scale))
        bitmap = pdfium.FPDFBitmap_Create(columns, rows, 0)
        try:
            pdfium.FPDFBitmap_FillRect(bitmap, 0, 0, columns, rows, 0xFFFFFFFF)
            pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, columns, rows, 0, pdfium.FPDF_ANNOT)
            stride = pdfium.FPDFBitmap_GetStride(bitmap)
            buffer = pdfium.FPDFBitmap_GetBuffer(bitmap)
            data = ctypes.string_at(buffer, stride * rows)
        finally:
            pdfium.FPDFBitmap_Destroy(bitmap)
    finally:
        pdfium.FPDF_ClosePage(page)
    picture = Image.frombuffer("RGB", (columns, rows), data, "raw", "BGRX", stride, 1)
    content.words = read_picture(picture, points_per_pixel=1.0 / scale)
    content.box = Box(0.0, 0.0, width, height)
    content.rules, content.frames, content.painted = [], [], []


@cache
def _engine() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(params={"Global.log_level": "error"})
