"""A short run of the fuzzer, the same inputs each time; the long one is `make fuzz`."""

from __future__ import annotations

import pytest

from tests import fuzz_readers


@pytest.mark.parametrize("ending", sorted({n.rsplit(".")[-1] for n in fuzz_readers.all_formats()}))
def test_mutated_files(ending: str) -> None:
    for name, report in fuzz_readers.reports(25, seed=1, only=ending):
        assert report.failures == [], name
        assert sum(report.outcomes.values()) == 25
        assert report.slowest < fuzz_readers.OPTIONS.seconds + fuzz_readers.GRACE
