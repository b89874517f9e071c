"""A short run of the fuzzer, the same inputs each time; the long one is `make fuzz`."""

from __future__ import annotations

import pytest

from tests import fuzz_readers


@pytest.mark.parametrize("kind", fuzz_readers.KINDS)
def test_mutated_files(kind: str) -> None:
    inputs = 1 if kind in fuzz_readers.WITH_OCR else 25
    report = fuzz_readers.fuzz(kind, first=0, inputs=inputs)
    assert report.findings == []
    assert sum(report.outcomes.values()) == report.inputs == inputs
    assert report.slowest < fuzz_readers.SECONDS


def test_the_documented_table_is_the_record() -> None:
    assert fuzz_readers.table() in fuzz_readers.PAGE.read_text("utf-8")
