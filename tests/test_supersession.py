"""Documents that say they are no longer in force, and those that only speak of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from runtime.flags import SUPERSEDED
from runtime.readers import read_document
from runtime.supersession import superseded_flag

EXAMPLE = Path(__file__).parent.parent / "examples" / "pumping-station"


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Maintenance Schedule", "SUPERSEDED. Withdrawn on 1 March 2022, replaced by revision 4."),
        ("Schedule", "Schedule\n\nOBSOLETE\n\nGrease both bearings."),
        ("Schedule", "Schedule\n\nStatus: withdrawn\n\nGrease both bearings."),
        ("Schedule", "Document E-17, 2014.\n\nThis drawing was superseded by E-18 in 2019."),
        ("Schedule", "This document has been withdrawn."),
        ("Schedule", "This revision is no longer in force."),
        ("Schedule", "Archived copy, for reference only."),
        ("Pump schedule (superseded)", "Grease both bearings."),
        ("[ARCHIVED] Pump schedule", "Grease both bearings."),
        ("Pump schedule - obsolete", "Grease both bearings."),
        ("RFC 2616", "Obsoleted by: 7230, 7231\nObsoletes: 2068"),
        ("Plan", "Dieses Dokument ist veraltet."),
        ("Plan", "Ersetzt durch: Plan 7 vom 1. März 2022"),
    ],
)
def test_what_a_document_says_of_itself(title: str, text: str) -> None:
    flag = superseded_flag(title, "", text)
    assert flag is not None
    assert flag.kind == SUPERSEDED


@pytest.mark.parametrize(
    ("title", "text"),
    [
        ("Manual, Revision 4", "In force from 1 March 2022. It replaces the schedule revision 3."),
        ("Obsolete parts and where to find them", "Kit HFP-2207-A is withdrawn."),
        ("Register", "Revision notices override every older document.\n\nThe superseded schedule"),
        ("Parts", "Withdrawn kits were sent back.\n\nArchived mails are kept for ten years."),
        ("RFC 7230", "Obsoletes: 2145, 2616\n\nThis document describes HTTP."),
        ("Archive", "The archive of the station. Obsolete drawings are in cupboard 4."),
        ("Manual", "This document describes how outdated seals are replaced by new ones."),
        ("Manual", "x " * 1000 + "\n\nSUPERSEDED."),
    ],
)
def test_what_only_speaks_of_others(title: str, text: str) -> None:
    assert superseded_flag(title, "", text) is None


def test_front_matter(tmp_path: Path) -> None:
    path = tmp_path / "plan.md"
    path.write_text("---\ntitle: Plan\nstatus: archived\n---\n# Plan\n\nOpen V-60.\n", "utf-8")
    (flag,) = read_document(path)[0].flags
    assert (flag.kind, flag.detail) == (SUPERSEDED, "status: archived")
    path.write_text("---\nsuperseded_by: plan-7.md\n---\n# Plan\n\nOpen V-60.\n", "utf-8")
    (flag,) = read_document(path)[0].flags
    assert flag.detail == "superseded_by: plan-7.md"
    path.write_text("---\nstatus: approved\n---\n# Plan\n\nOpen V-60.\n", "utf-8")
    assert read_document(path)[0].flags == ()


def test_the_example_manual_has_one() -> None:
    flagged = {
        path.name
        for path in EXAMPLE.rglob("*")
        if path.is_file()
        for document in read_document(path)
        if any(flag.kind == SUPERSEDED for flag in document.flags)
    }
    assert flagged == {"maintenance-schedule-rev3.md"}
