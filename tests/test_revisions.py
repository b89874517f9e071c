"""Revisions of one document that are told at the door: the older one is superseded.

And pairs that look like two revisions and are not: each must be left alone, since a document that
is called superseded wrongly is worse than one that is not noticed.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from runtime.documents import ParsedDocument, Revision
from runtime.flags import SUPERSEDED
from runtime.knowledge_base import KnowledgeBase
from runtime.readers import parse_text
from runtime.revisions import revision_of
from runtime.storage import MIGRATIONS
from runtime.supersession import asks_for_superseded
from tests.knowledge import add
from tests.shell import VALVE, Shell, make_models

BODY = "Grease both bearings of the pump with the hand gun and write it into the log."
GERMAN = "Die Lager der Pumpe sind mit der Presse zu schmieren und in das Buch einzutragen."


@dataclass(frozen=True)
class Door:
    """A document as it is seen from outside."""

    title: str
    source: str = "/station/a.pdf"
    door: str = ""
    body: str = BODY
    media_type: str = "application/pdf"

    @property
    def revision(self) -> Revision | None:
        text = "\n\n".join((self.title, self.door, self.body))
        return revision_of(self.title, self.source, self.media_type, text)


def title(older: str, newer: str) -> tuple[Door, Door]:
    return Door(older), Door(newer)


def door(older: str, newer: str, name: str = "High-lift Pump Manual") -> tuple[Door, Door]:
    return Door(name, "/s/1.pdf", older), Door(name, "/s/2.pdf", newer)


def file(older: str, newer: str, name: str = "High-lift Pump Manual") -> tuple[Door, Door]:
    return Door(name, older), Door(name, newer)


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        title("Pump Manual, Revision C", "Pump Manual, Revision D"),
        title("Pump Manual, Revision C", "Pump manual - Rev. D"),
        title("Pump Manual Rev C", "Pump Manual (Rev D)"),
        title("Pump Manual, Rev. 9", "Pump Manual, Rev. 10, 3 May 2023"),
        title("Pump Manual, Rev C (2019)", "Pump Manual, Rev D (2021)"),
        title("Safety Rules, issue 3", "Safety Rules, issue 4"),
        title("Pump Manual v2.1", "Pump Manual v2.10"),
        title("Pump Manual, version 2", "Pump Manual, version 2.0.1"),
        title("Site Plan, Rev. P02", "Site Plan, Rev. P03"),
        title("Pumpenhandbuch, Ausgabe 3", "Pumpenhandbuch, Ausgabe 4"),
        title("E-114 Rev. C", "E-114 Rev. D"),
        title("Pump Manual 2021-05-03", "Pump Manual 2023-01-31"),
        title("Pump Manual, 3 May 2021", "Pump Manual, 12 April 2022"),
        door("Revision C", "Revision D"),
        door("Document HF-114 | Rev. C | 2021-05-03", "Document HF-114 | Rev. D | 2020-01-01"),
        door("Revision: C", "Revision: D"),
        door("Document: HF-1; Revision: 3", "Document: HF-1; Revision: 4"),
        door("Issue 3, 2 May 2021", "Issue 4, 2 May 2023"),
        door("Revision date: 2021-05-03", "Last revised 3 June 2021"),
        door("In force from 1 March 2021", "In force from 1 March 2022"),
        door("Ausgabedatum: 01.03.2021", "Ausgabedatum: 01.02.2022", "Pumpenhandbuch"),
        file("/s/pump-manual_revC.pdf", "/s/pump-manual_revD.pdf"),
        file("/s/archive/pump_rev-3.pdf", "/s/pump_rev-4.pdf"),
        file("/s/2021/pump v2.1.pdf", "/s/2023/pump v2.2.pdf"),
        file("/s/pump-manual_2021-05-03.pdf", "/s/pump-manual_2023-05-03.pdf"),
        file("/s/manual_v2.pdf", "/s/manual_v3.pdf"),
        (Door("Pump Manual, Rev C", "/s/a.pdf"), Door("Pump Manual", "/s/b.pdf", "Revision D")),
        (Door("Pump Manual, Rev C", "/s/a.pdf"), Door("Pump Manual", "/s/pump_revD.pdf")),
        (
            Door("Pump HFP-200 Manual, Rev C", "/one/a.pdf"),
            Door("Pump HFP-200 Manual, Rev D", "/two/b.pdf"),
        ),
        (
            Door("Manual of pumps", "/one/a.pdf", "Document HF-114-R3 | Revision 3"),
            Door("Pump manual", "/two/b.pdf", "Document HF-114-R4 | Revision 4"),
        ),
        (
            Door("Pump Manual, Rev D", "/s/a.pdf", "Revision: A; first\nRevision: B; seals"),
            Door("Pump Manual, Rev E", "/s/b.pdf", "Revision: A; first\nRevision: E; seals"),
        ),
    ],
)
def test_two_revisions_of_one_document(older: Door, newer: Door) -> None:
    old, new = older.revision, newer.revision
    assert old is not None
    assert new is not None
    assert old.series == new.series
    assert old.rank < new.rank


@pytest.mark.parametrize(
    ("one", "other"),
    [
        # other volumes, parts, sheets
        title("Pump Manual Volume 1, Rev C", "Pump Manual Volume 2, Rev D"),
        door("Volume 1 | Rev. C", "Volume 2 | Rev. D"),
        file("/s/pump-vol1_revC.pdf", "/s/pump-vol2_revD.pdf"),
        title("Pump Manual, Part A, Rev C", "Pump Manual, Part B, Rev D"),
        title("Wiring Drawing, sheet 1, Rev C", "Wiring Drawing, sheet 2, Rev D"),
        door("Document E-114 | Sheet 1 of 3 | Rev. C", "Document E-114 | Sheet 2 of 3 | Rev. D"),
        title("Fitting Manual, Rev C", "Removal Manual, Rev D"),
        # other languages, translations
        file("/s/pump_revC_de.pdf", "/s/pump_revD_en.pdf"),
        (Door("Pump Manual, Rev C", body=GERMAN), Door("Pump Manual, Rev D")),
        (
            Door("XR-20, Rev C", body="Смазать подшипники насоса ручным прессом"),
            Door("XR-20, Rev D", body="Grease"),
        ),
        door("Revision C\nTranslation of the original instructions", "Revision D"),
        (
            Door("Pumpenhandbuch", door="Document HF-114 | Rev. C", body=GERMAN),
            Door("Pump Manual", door="Document HF-114 | Rev. D"),
        ),
        # other documents with the same title
        door("Document HF-114 | Rev. C", "Document HF-115 | Rev. D"),
        file("/north/pump_revC.pdf", "/south/pump_revD.pdf"),
        file("/s/xr20/m_revC.pdf", "/s/xr30/m_revD.pdf", "Operating Instructions"),
        file("/s/xr20_revC.pdf", "/s/xr30_revD.pdf", "Operating Instructions"),
        title("XR-20 Manual, Rev C", "XR-30 Manual, Rev D"),
        # standards, editions, years
        title("2015 edition of ISO 9001", "2023 edition of ISO 9001"),
        title("ISO 9001:2008, version 1", "ISO 9001:2015, version 2"),
        title("DIN EN 13480 Specification, Rev 1", "DIN EN 13480 Specification, Rev 2"),
        title("Pump Manual, 2nd edition", "Pump Manual, 3rd edition"),
        title("Pump Manual 2021", "Pump Manual 2023"),
        title("Budget Plan 2021", "Budget Plan 2023"),
        # each valid for its own day or number
        title("Shift Log 2023-11-01", "Shift Log 2023-11-02"),
        title("Inspection Report 2021-05-03", "Inspection Report 2022-05-03"),
        file("/s/shift-plan_2023-11-01.pdf", "/s/shift-plan_2023-11-02.pdf", "Shift plan"),
        door("Issued: 2021-05-03", "Issued: 2022-05-03", "Calibration Certificate P-101"),
        title("Water Newsletter, issue 3", "Water Newsletter, issue 4"),
        title("Release notes v2.1", "Release notes v2.2"),
        # the product's version or revision, not the document's
        title("User Manual for firmware version 2.1", "User Manual for firmware version 3.0"),
        title("Pump Controller Rev C", "Pump Controller Rev D"),
        title("Controller Rev C Manual", "Controller Rev D Manual"),
        file("/s/valve-v1.pdf", "/s/valve-v2.pdf", "Valve data sheet"),
        title("Valve XR v2.1", "Valve XR v2.2"),
        # marks of two kinds
        title("Pump Manual, Rev C", "Pump Manual, Rev 4"),
        title("Pump Manual, Rev 3", "Pump Manual, issue 4"),
        title("Site Plan, Rev P03", "Site Plan, Rev C01"),
        door("Revision C", "Revision date: 2023-05-01"),
        # not certain, not in force, not of itself
        title("Pump Manual, Rev C", "Pump Manual, Rev D - DRAFT"),
        door("Revision C", "Revision D\nDraft for comment"),
        door("Revision: C", "Revision: A; first\nRevision: B; seals\nRevision: D; grease"),
        (Door("Pump Manual, Rev C"), Door("Pump Manual, Rev D", "/s/pump_revE.pdf")),
        door("Revision C", "It replaces the schedule revision D of 17 November 2014."),
        door("Revision C", "See revision D of drawing E-114."),
        (
            Door("Re: Pump Manual, Rev C", media_type="message/rfc822"),
            Door("Re: Pump Manual, Rev D", media_type="message/rfc822"),
        ),
    ],
)
def test_what_only_looks_like_two_revisions(one: Door, other: Door) -> None:
    first, second = one.revision, other.revision
    assert first is None or second is None or first.series != second.series


def manual(letter: str) -> ParsedDocument:
    text = f"# Pump Manual, Revision {letter}\n\n{BODY}"
    return parse_text(text, f"pump{letter}.md", "text/markdown")


def test_the_older_is_flagged_while_the_newer_is_there(tmp_path: Path) -> None:
    """In any order of adding, at once when one goes, and counted like any other flag."""
    with KnowledgeBase.open(tmp_path / "kb", create=True) as kb:
        for letter in "CEA":
            add(kb, manual(letter))

        def superseded() -> dict[str, str | None]:
            found = {one.source: one.superseded for one in kb.documents()}
            return {source: flag.words() if flag else None for source, flag in found.items()}

        assert superseded() == {
            "pumpC.md": "Revision C; there is Revision E in pumpE.md",
            "pumpE.md": None,
            "pumpA.md": "Revision A; there is Revision E in pumpE.md",
        }
        assert kb.statistics().flagged == 2
        oldest = kb.find("pumpA.md")
        assert oldest is not None
        assert oldest.superseded is not None
        assert oldest.superseded.words() == superseded()["pumpA.md"]
        kb.remove("pumpE.md")
        assert superseded() == {
            "pumpC.md": None,
            "pumpA.md": "Revision A; there is Revision C in pumpC.md",
        }
        assert kb.statistics().flagged == 1


def test_the_flag_reaches_status_list_and_answers(tmp_path: Path) -> None:
    make_models(tmp_path)
    shell = Shell(tmp_path / "home")
    shell("add", shell.write("valve_revC.txt", f"Valve Manual\n============\n\n{VALVE}"))
    shell("add", shell.write("valve_revD.txt", "Valve Manual\n============\n\nNothing of it."))
    [old] = shell("list", "--flagged", "--json").json["documents"]
    assert old["source"].endswith("valve_revC.txt")
    assert [flag["kind"] for flag in old["flags"]] == [SUPERSEDED]
    assert "there is Revision D in" in shell("status").out
    told = shell("ask", "Who tests the relief valve?", "--route", "speculative").out
    assert "warning: from a superseded document: Revision C; there is Revision D in" in told


def test_the_newer_revision_is_named_as_citations_name_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards the whole absolute path in warnings and in status, beside files as seen from the
    working folder; the two have one name here, so that the name alone would not do."""
    make_models(tmp_path)
    shell = Shell(tmp_path / "home")
    old = shell.write("old/valve.txt", f"Valve Manual\n============\n\nRevision C\n\n{VALVE}")
    new = shell.write("new/valve.txt", "Valve Manual\n============\n\nRevision D\n\nNothing.")
    monkeypatch.chdir(shell.home)
    shell("add", old, new)
    told = "Revision C; there is Revision D in"
    asked = ("ask", "Who tests the relief valve?", "--route", "speculative")
    assert f"{told} new/valve.txt\n" in shell(*asked).out
    assert f"{told} new/valve.txt" in shell("status").out
    found = shell(*asked, "--json").json["citation"]
    assert found["source"] == str(old)
    assert found["superseded"] == f"{told} {new}"


def test_a_knowledge_base_of_the_format_before_learns_them_again(tmp_path: Path) -> None:
    import sqlite3

    with KnowledgeBase.open(tmp_path / "kb", create=True) as kb:
        for letter in "CD":
            add(kb, manual(letter))
    connection = sqlite3.connect(tmp_path / "kb" / "knowledge-base.sqlite")
    for table in ("revisions", "files", "roots"):  # of later formats
        connection.execute(f"DROP TABLE {table}")
    connection.execute("PRAGMA user_version = 2")
    connection.close()
    assert len(MIGRATIONS) == 3
    with KnowledgeBase.open(tmp_path / "kb", writable=True) as kb:
        assert [one.superseded for one in kb.documents()] == [None, None]
        for letter in "CD":
            add(kb, manual(letter))
        assert [bool(one.superseded) for one in kb.documents()] == [True, False]


@pytest.mark.parametrize(
    ("question", "old"),
    [
        ("How much grease did the withdrawn schedule ask for?", True),
        ("How much grease under revision 3?", True),
        ("How much grease under rev. 3?", True),
        ("How much grease did the previous manual ask for?", True),
        ("How much grease under revision 4?", False),
        ("How old is the schedule?", False),
        ("How much grease is pressed in?", False),
    ],
)
def test_a_question_may_ask_for_the_old_one(question: str, old: bool) -> None:
    assert asks_for_superseded(question, "Maintenance Schedule, Revision 3") is old
