"""Files that change for the worse: emptied, damaged, out of reach; and an add that is given up."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sqlite3
import time
import zipfile
from pathlib import Path

import pytest

import runtime.readers
from runtime.sandbox import Sandbox
from tests.reader_files import manual_pdf
from tests.shell import MOTOR, VALVE, Shell


def failures(shell: Shell) -> dict[str, bool]:
    """What `status` says has failed, and whether it still answers, by name."""
    told = shell("status", "--json").json["failures"]
    return {Path(one["source"]).name: one["still_answers"] for one in told}


def test_an_emptied_file_does_not_answer_any_more(shell: Shell) -> None:
    """`status` said that it failed, and questions went on being answered from its old text."""
    shell.write("notes/motor.txt", MOTOR)
    path = shell.write("notes/valve.txt", VALVE)
    shell("add", path.parent)
    path.write_text("", "utf-8")
    (told,) = (one for one in shell("add", path.parent, "--json").json["files"] if one["error"])
    assert (told["status"], told["documents"]) == ("failed", [])
    assert shell.sources() == ["motor.txt"]
    assert failures(shell) == {"valve.txt": False}
    path.write_text(VALVE, "utf-8")
    shell("add", path.parent)
    assert shell.sources() == ["motor.txt", "valve.txt"]
    assert failures(shell) == {}


def test_a_damaged_file_keeps_its_last_good_version_and_says_so(shell: Shell) -> None:
    path = shell.write("manual.pdf", manual_pdf(1))
    shell("add", path)
    path.write_bytes(manual_pdf(1)[:300])
    said = shell("add", path)
    assert said.code == 1
    assert "still answers" in said.out
    assert shell.sources() == ["manual.pdf"]
    assert failures(shell) == {"manual.pdf": True}
    assert "last good version" in shell("status").out


def test_a_file_that_became_a_program_is_not_skipped_in_silence(shell: Shell) -> None:
    path = shell.write("notes/manual.pdf", manual_pdf(1))
    shell("add", path.parent)
    path.write_bytes(b"\x7fELF" + b"\x00" * 500)
    shell("add", path.parent)
    assert failures(shell) == {"manual.pdf": True}


def test_status_remembers_what_failed_inside_folders(shell: Shell) -> None:
    """A link to nowhere or a closed folder was told by `add` once, and forgotten by `status`."""
    folder = shell.write("notes/valve.txt", VALVE).parent
    link = folder / "link.txt"
    link.symlink_to(folder / "nowhere.txt")
    shell("add", folder)
    assert failures(shell) == {"link.txt": False}
    (folder / "nowhere.txt").write_text(MOTOR, "utf-8")
    shell("add", folder)
    assert failures(shell) == {}
    (folder / "loop").symlink_to(folder / "loop")
    shell("add", folder)
    assert failures(shell) == {"loop": False}
    (folder / "loop").unlink()
    shell("add", folder)
    assert failures(shell) == {}


def test_status_remembers_what_failed_where_nothing_could_be_read(shell: Shell) -> None:
    """Without a readable file the knowledge base was not opened, and nothing remembered."""
    folder = shell.home / "notes"
    folder.mkdir(parents=True)
    (folder / "link.txt").symlink_to(folder / "nowhere.txt")
    assert shell("add", folder).code == 1
    assert failures(shell) == {"link.txt": False}
    (folder / "photo.xyz").write_bytes(b"\x00")
    (folder / "link.txt").unlink()
    shell.write("notes/valve.txt", VALVE)
    shell("add", folder)
    assert failures(shell) == {}


def test_where_no_file_can_be_read_at_all_no_file_is_blamed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broken installation let every file fail, one after another, and `status` remembered it."""
    notes = [shell.write(f"notes/{name}.txt", VALVE) for name in "abc"]
    monkeypatch.setattr(runtime.readers, "_sandbox", Sandbox("tests.no_such_module"))
    said = shell("add", notes[0].parent)
    assert (said.code, said.err.count("did not start")) == (1, 1)
    assert "Traceback" not in said.err
    monkeypatch.undo()
    assert failures(shell) == {}
    assert shell("add", notes[0].parent).code == 0


def test_what_failed_and_is_gone_is_forgotten_but_not_its_documents(shell: Shell) -> None:
    path = shell.write("notes/manual.pdf", manual_pdf(1))
    shell.write("notes/valve.txt", VALVE)
    shell("add", path.parent)
    path.write_bytes(b"%PDF-1.4 damaged")
    shell("add", path.parent)
    path.unlink()
    shell("add", path.parent)
    assert shell.sources() == ["manual.pdf", "valve.txt"]


def _archive(path: Path, **members: str | bytes) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name.replace("_", "."), content)


def test_failures_in_an_archive_are_forgotten_when_they_are_mended(shell: Shell) -> None:
    """Guards: a member that could not be read was told as failed for ever, although the archive had
    come without it, or had gone; and an archive that was damaged once, although it was mended."""
    path = shell.write("docs/z.zip", b"PK\x03\x04 damaged")
    shell.write("docs/valve.txt", VALVE)
    shell("add", path.parent)
    assert failures(shell) == {"z.zip": False}
    _archive(path, good_txt=MOTOR, bad_docx=b"PK")
    shell("add", path.parent)
    assert failures(shell) == {"bad.docx": False}
    _archive(path, good_txt=MOTOR)
    shell("add", path.parent)
    assert failures(shell) == {}
    _archive(path, good_txt=MOTOR, bad_docx=b"PK")
    shell("add", path.parent)
    path.unlink()
    shell("watch", path.parent, "--once")
    assert (failures(shell), shell.sources()) == ({}, ["valve.txt"])
    shell("compact")
    assert b"z.zip" not in (shell.kb / "knowledge-base.sqlite").read_bytes()


def test_a_failed_member_can_be_removed(shell: Shell) -> None:
    path = shell.home / "z.zip"
    _archive(path, good_txt=MOTOR, bad_docx=b"PK")
    shell("add", path)
    shell("remove", "z.zip!/good.txt")
    assert shell("remove", "z.zip!/bad.docx").code == 0
    assert failures(shell) == {}


def test_what_failed_in_a_folder_that_is_gone_is_forgotten(shell: Shell) -> None:
    """Guards: it was told as failed for ever, as if the folder were a drive taken away."""
    bad = shell.write("docs/sub/bad.pdf", b"%PDF-1.4 damaged")
    shell.write("docs/valve.txt", VALVE)
    shell("add", shell.home / "docs")
    shutil.rmtree(bad.parent)
    shell("add", shell.home / "docs")
    assert failures(shell) == {}


def _not_in_step(shell: Shell) -> dict[str, list[str]]:
    status = shell("status", "--json").json
    lists = ("pending_files", "stale_files", "missing_files")
    return {name: [Path(one).name for one in status[name]] for name in lists if status[name]}


def test_status_tells_what_changed_on_disk_since(shell: Shell) -> None:
    """Guards: an edited file and a new one in a folder that had been added were told by nothing."""
    valve = shell.write("docs/valve.txt", VALVE)
    motor = shell.write("docs/motor.txt", MOTOR)
    shell.write("docs/noise.txt", bytes(range(32)) * 50)  # skipped
    shell.write("docs/empty.txt", "")  # failed
    _archive(shell.home / "docs" / "z.zip", inner_txt="Bearings are greased.", bad_docx=b"PK")
    shell("add", shell.home / "docs")
    assert _not_in_step(shell) == {}
    os.utime(valve)
    assert _not_in_step(shell) == {}, "touched, but its bytes are the same"
    before = motor.stat()
    motor.write_text(MOTOR.replace("20", "30"))
    os.utime(motor, ns=(before.st_atime_ns, before.st_mtime_ns))
    _archive(shell.home / "docs" / "z.zip", inner_txt="Bearings are oiled.")
    shell.write("docs/deep/new.txt", "The gate is blue.")
    valve.unlink()
    told = {"pending_files": ["new.txt"], "stale_files": ["motor.txt", "z.zip"]}
    assert _not_in_step(shell) == {**told, "missing_files": ["valve.txt"]}
    out = shell("status").out
    assert all(name in out for name in ("new.txt", "motor.txt", "z.zip", "valve.txt"))
    shell("watch", shell.home / "docs", "--once")
    assert _not_in_step(shell) == {}
    shell("remove", "new.txt")
    assert _not_in_step(shell) == {"pending_files": ["new.txt"]}
    told = shell("remove", shell.home / "docs", "--json").json["removed"]
    assert told == [{"source": str(shell.home / "docs"), "documents": 2}]
    assert (_not_in_step(shell), failures(shell), shell.sources()) == ({}, {}, [])


def test_status_looks_into_files_of_which_it_does_not_know_how_they_looked(shell: Shell) -> None:
    """As after an older version's `add`, which did not keep it."""
    valve = shell.write("docs/valve.txt", VALVE)
    shell("add", valve, shell.write("docs/motor.txt", MOTOR))
    connection = sqlite3.connect(shell.kb / "knowledge-base.sqlite")
    connection.execute("DELETE FROM files")
    connection.commit()
    connection.close()
    assert _not_in_step(shell) == {}
    valve.write_text(VALVE.upper())
    assert _not_in_step(shell) == {"stale_files": ["valve.txt"]}


def _stored(shell: Shell) -> int:
    """How many documents are published, asked without a process of its own."""
    try:
        connection = sqlite3.connect(f"file:{shell.kb}/knowledge-base.sqlite?mode=ro", uri=True)
        with contextlib.closing(connection):
            return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])
    except sqlite3.OperationalError:
        return 0  # not there yet


@pytest.mark.parametrize("named", [False, True])
def test_status_tells_what_an_add_that_was_killed_left(shell: Shell, named: bool) -> None:
    """Guards: after kill -9 a tenth of the files was in, and `status` said that nothing failed."""
    text = "\n\n".join(f"Pump {i} is greased. {VALVE}" for i in range(3000))
    # The first eight million characters are published together; others are left when they are.
    files = [
        shell.write(f"many/{number}.txt", text) for number in range(3 * 8_000_000 // len(text))
    ]
    process = shell.start("add", *(map(str, files) if named else [str(shell.home / "many")]))
    deadline = time.monotonic() + 120
    while not _stored(shell) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.kill()
    process.communicate()
    stored, pending = shell.sources(), _not_in_step(shell).get("pending_files", [])
    assert sorted(stored + pending) == sorted(file.name for file in files)
    assert pending, "it was killed in the middle"
    shell("add", shell.home / "many")
    assert _not_in_step(shell) == {}


def test_ctrl_c_does_not_wait_for_a_large_file(shell: Shell) -> None:
    """The thread that waits for the reader held the process until the whole file was read."""
    small = shell.write("small.txt", MOTOR)
    assert shell("add", small).code == 0
    slow = shell.write("slow.pdf", manual_pdf(1500))
    process = shell.start("add", str(slow))
    deadline = time.monotonic() + 60
    while not (reader := _reader_of(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert reader, "no child process began to read"
    time.sleep(1.0)
    assert process.poll() is None, "the file must take longer to read"
    before = time.monotonic()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    waited = time.monotonic() - before
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert waited < 5, "about a second on a machine that is not busy"
    assert shell.sources() == ["small.txt"]
    assert shell("verify").code == 0
    with pytest.raises(ProcessLookupError):
        os.kill(reader, 0)


def _reader_of(process: int) -> int:
    """The child process in which a file is read, 0 if there is none."""
    children = Path(f"/proc/{process}/task/{process}/children")
    found = children.read_text("ascii").split() if children.exists() else []
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        found += task.read_text("ascii").split()
    return int(found[0]) if found else 0
