"""Pictures of text -> words with places, through RapidOCR, whose ONNX models are in its wheel."""

from __future__ import annotations

from importlib.util import find_spec

HOW_TO_INSTALL = "Install the OCR extra: pip install 'specrag[ocr]'."


def installed() -> bool:
    """Whether the OCR extra is installed."""
    return find_spec("rapidocr") is not None
