"""Pictures: every way in which they are stored, and what fuzzing found in their reader."""

from __future__ import annotations

import io
import struct

import pytest
from PIL import Image, ImageChops

from runtime.documents import ParsedDocument
from runtime.errors import DocumentTooLarge, EmptyDocument
from runtime.readers import ReadOptions, ocr
from runtime.readers.context import Context
from runtime.readers.kinds import reader_for
from runtime.readers.reading import parse_bytes
from tests import fuzz_readers
from tests import reader_files as files
from tests.picture_mutations import claim_size

pytestmark = pytest.mark.skipif(not ocr.installed(), reason="needs the OCR extra")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """OCR of a small picture in a twentieth of a second instead of in seconds."""
    monkeypatch.setattr(ocr, "_engine", fuzz_readers.quick_ocr)


def _read(kind: str, data: bytes) -> ParsedDocument:
    name = f"picture.{kind}"
    (document,) = parse_bytes(data, name, Context(name, ReadOptions(), begin_ocr=lambda: None))
    return document


@pytest.mark.parametrize("kind", files.PICTURES)
def test_every_way_to_store_a_picture(kind: str) -> None:
    """A phone's preview behind its photo, and frames of animations, were read as pages."""
    for data in files.small_pictures(kind):
        document = _read(kind, data)
        assert document.text in ("V-60", "V-60\n\n06-V")
        pages = [page.number for page in document.pages]
        assert pages == ([1] if document.text == "V-60" else [1, 2])
        assert kind == "tif" or pages == [1]


@pytest.mark.parametrize("kind", ["png", "jpg", "tif", "bmp"])
def test_a_claim_of_gigapixels(kind: str) -> None:
    """It was said to be damaged instead of too large."""
    data = claim_size(files.small_pictures(kind)[0], kind, (65_000, 65_000))
    with pytest.raises(DocumentTooLarge, match="80 million pixels"):
        _read(kind, data)


def test_a_second_page_of_gigapixels() -> None:
    """Pillow asks for the size of the first page only."""
    data = bytearray(files.picture(["V-60"], "TIFF", (96, 40), 24, save_all=True))
    for tag in (256, 257):  # the last width and height in the file
        place = data.rfind(struct.pack("<HHI", tag, 4, 1)) + 8
        data[place : place + 4] = struct.pack("<I", 9000)
    with pytest.raises(DocumentTooLarge, match="Page 2 has 9000 x 9000 pixels"):
        _read("tif", bytes(data))


@pytest.mark.parametrize("shape", [(3000, 1), (1, 3000), (1, 65_000)])
def test_a_line_is_no_text(shape: tuple[int, int]) -> None:
    """RapidOCR scales it to no rows at all, and it was said to be damaged."""
    with pytest.raises(EmptyDocument, match="no text on it"):
        _read("png", files.picture([], shape=shape))


@pytest.mark.parametrize("shape", [(6400, 60), (80, 3000)])
def test_text_on_a_slender_picture(shape: tuple[int, int]) -> None:
    """Wide ones were said to be damaged, high ones took over a gigabyte."""
    document = _read("png", files.picture(["V-60"], shape=shape, size=32))
    assert document.text == "V-60"


def test_a_turned_tiff_is_read_upright() -> None:
    """Its orientation got lost before it was looked at."""
    with Image.open(io.BytesIO(files.picture(["V-60"], "PNG", (96, 40), 24))) as image:
        buffer = io.BytesIO()
        image.rotate(90, expand=True).save(buffer, "TIFF", tiffinfo={274: 6})  # to be turned back
    assert _read("tif", buffer.getvalue()).text == "V-60"


@pytest.mark.parametrize("name", ["scan.tif", "scan", "scan.dat", "scan.png"])
@pytest.mark.parametrize("order", ["<", ">"])
def test_a_big_tiff_is_known_by_its_first_bytes(name: str, order: str) -> None:
    """Guards the ending as the only sign: without it the picture was read as text. Pillow does not
    write Motorola's order."""
    data = files.picture(["V-60"], "TIFF", (96, 40), 24, big_tiff=True)
    context = Context(name, ReadOptions(), begin_ocr=lambda: None)
    if order == ">":
        assert reader_for(b"MM\0+" + struct.pack(">HHQ", 8, 0, 16), name, context) == "images"
    else:
        assert data.startswith(b"II+\0")
        assert [one.text for one in parse_bytes(data, name, context)] == ["V-60"]


def test_a_header_runs_on_scans_as_in_a_pdf() -> None:
    """Guards distances in pixels: of a scan no two headers stand in the same one, but in a PDF they
    may lie up to six points apart."""
    pages = []
    for number, line in enumerate(["Grease it.", "Clean it.", "Test it."]):
        with Image.open(io.BytesIO(files.picture(["Manual HF-114", "", "", line]))) as page:
            pages.append(ImageChops.offset(page, 0, 4 * number - 8))
    buffer = io.BytesIO()
    pages[0].save(buffer, "TIFF", save_all=True, append_images=pages[1:])
    text = _read("tif", buffer.getvalue()).text
    assert "HF-114" not in text
    assert "Grease it." in text


@pytest.mark.parametrize("kind", ["tif", "pdf"])
def test_lines_of_a_scan_are_a_paragraph_whatever_letters_they_have(kind: str) -> None:
    """Guards sizes told by the boxes of lines: those without descenders seemed smaller, so that the
    paragraph broke there and some of its lines were headings; and TIFFs of another resolution than
    PDFs are rendered in were read otherwise."""
    lines = [
        "The summer pump starts by itself and the gauge",
        "is near zero, so we use a common area where no",
        "one can see or hear an alarm as soon as it comes",
        "on. Then ply the quay gate by hand and go slowly.",
    ]
    if kind == "tif":
        data = files.picture(lines, "TIFF", (827, 1169), 26, save_all=True)
    else:
        data = files.scan_pdf([lines, [line[::-1] for line in lines]], (827, 1169), 26)
    document = _read(kind, data)
    first = document.text[: document.pages[1].start].strip()
    assert "\n" not in first, first
    assert not document.headings
    assert first.split()[:4] == ["The", "summer", "pump", "starts"]
    assert first.endswith("slowly.")
