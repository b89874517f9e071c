"""A short run of the fuzzer, the same inputs each time; the long one is `make fuzz`."""

from __future__ import annotations

import io

import pytest
from PIL import Image

from tests import fuzz_readers
from tests.reader_files import PICTURES


@pytest.mark.parametrize("kind", fuzz_readers.KINDS)
def test_mutated_files(kind: str) -> None:
    first = int(kind in fuzz_readers.WITH_OCR)  # 0 goes the whole way, which takes OCR seconds
    report = fuzz_readers.fuzz(kind, first, inputs=25)
    assert report.findings == []
    assert sum(report.outcomes.values()) == report.inputs == 25
    assert report.slowest < fuzz_readers.SECONDS


def test_the_documented_table_is_the_record() -> None:
    page = fuzz_readers.PAGE.read_text("utf-8")
    assert all(table in page for table in fuzz_readers.tables())


@pytest.mark.parametrize("kind", PICTURES)
def test_mutated_pictures_reach_the_decoder(kind: str) -> None:
    """Damage that ends at the first checksum would try nothing of the decoder or of OCR."""
    decoded = sum(_decodes(fuzz_readers.mutated(kind, number)[1]) for number in range(200))
    assert 40 <= decoded <= 190


def _decodes(data: bytes) -> bool:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.width * image.height < 1_000_000 and bool(image.convert("L").size)
    except Exception:  # Pillow's errors are of many kinds
        return False
