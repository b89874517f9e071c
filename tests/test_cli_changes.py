"""Files that change for the worse: emptied, damaged, out of reach; and an add that is given up."""

from __future__ import annotations

import os
import signal
import time
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
