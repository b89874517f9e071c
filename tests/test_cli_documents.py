"""Documents on the command line: files of all kinds of badness, and nothing lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from tests.shell import MOTOR, ROOT, VALVE, Shell, has_shape, read_only
from tests.tiny_models import make_bundle

DOCUMENT = {
    "id": int, "source": str, "title": str, "media_type": str, "content_sha256": str, "size": int,
    "characters": int, "passages": int, "added_at": str, "flags": list,
}  # fmt: skip


def test_add_list_remove(shell: Shell) -> None:
    shell.write("manuals/valve.txt", VALVE)
    shell.write("manuals/deep/motor.md", f"# Motor\n\n{MOTOR}")
    added = shell("add", shell.home / "manuals", "--json")
    assert added.code == 0
    assert added.json["summary"] == {
        "added": 2, "updated": 0, "unchanged": 0, "skipped": 0, "failed": 0,
    }  # fmt: skip
    assert shell.sources() == ["valve.txt", "motor.md"]
    listed = shell("list")
    assert "motor.md" in listed.out
    assert "Motor" in listed.out
    removed = shell("remove", "motor.md", "--json")
    assert removed.json["removed"] == [
        {"source": str(shell.home / "manuals/deep/motor.md"), "documents": 1}
    ]
    assert shell.sources() == ["valve.txt"]


def test_json_shapes(shell: Shell) -> None:
    added = shell("add", shell.write("valve.txt", VALVE), shell.home / "missing.txt", "--json")
    error = {"what": str, "where": str, "fix": (str, type(None)), "kind": str}
    assert added.json["files"][0]["status"] == "failed"
    good = {"source": str, "named": bool, "status": str, "documents": [DOCUMENT],
            "error": type(None), "failures": list}  # fmt: skip
    has_shape(added.json["files"][1], good)
    has_shape(added.json["files"][0]["error"], error)
    has_shape(
        shell("list", "--json").json,
        {"schema_version": int, "command": str, "kb": str, "documents": [DOCUMENT]},
    )


def test_adding_again_is_incremental(shell: Shell) -> None:
    valve = shell.write("manuals/valve.txt", VALVE)
    shell.write("manuals/motor.txt", MOTOR)
    shell("add", valve.parent)
    valve.write_text(VALVE.replace("12 months", "6 months"))
    again = shell("add", valve.parent, "--json").json["summary"]
    assert (again["updated"], again["unchanged"], again["added"]) == (1, 1, 0)
    assert len(shell.sources()) == 2
    answer = shell("ask", "When is the relief valve tested?", "--route", "drafter", "--json").json
    assert "12 months" not in str(answer)
    everything = shell("add", valve.parent, "--again", "--json").json["summary"]
    assert everything["updated"] == 2


def test_another_stemmer_than_the_knowledge_base_has_is_told(shell: Shell) -> None:
    """Guards: --stemmer on a knowledge base that exists was ignored without a word."""
    valve = shell.write("valve.txt", VALVE)
    assert "stemmer" not in shell("add", valve, "--stemmer", "english").err
    assert "stemmer" not in shell("add", valve, "--stemmer", "english").err
    told = shell("add", valve, "--stemmer", "german")
    assert told.code == 0
    assert "stays english; for german, add the documents to a new" in told.err
    [warning] = shell("add", valve, "--stemmer", "none", "--json").json["warnings"]
    assert "stays english; for none, add" in warning
    assert "warnings" not in shell("add", valve, "--json").json
    watched = shell("watch", valve.parent, "--once", "--stemmer", "german")
    assert "stays english; for german, add" in watched.err


def test_who_names_no_stemmer_is_told_none(shell: Shell) -> None:
    """Guards: whoever had made a German knowledge base was told of English, the default, at every
    addition."""
    valve = shell.write("valve.txt", VALVE)
    shell("add", valve, "--stemmer", "german")
    assert shell("add", valve).err == ""


def test_patterns(shell: Shell) -> None:
    shell.write("reports/a.txt", VALVE)
    shell.write("reports/b.md", MOTOR)
    result = shell("add", f"{shell.home}/reports/*.md", "--json")
    assert result.json["summary"]["added"] == 1
    nothing = shell("add", f"{shell.home}/reports/*.pdf")
    assert nothing.code == 1
    assert "No file matches" in nothing.out


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("empty.txt", b"", "EmptyDocument"),
        ("blank.txt", b" \n\t ", "EmptyDocument"),
        ("program.txt", b"\x7fELF\x02\x01\x01" + bytes(range(256)) * 20, None),
        ("truncated.pdf", b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog", "DamagedDocument"),
        ("truncated.docx", b"PK\x03\x04\x14\x00\x06\x00", "DamagedDocument"),
    ],
)
def test_a_bad_file_fails_and_loses_nothing(
    shell: Shell, name: str, content: bytes, kind: str | None
) -> None:
    result = shell("add", shell.write("valve.txt", VALVE), shell.write(name, content), "--json")
    assert result.code == 1
    assert result.json["summary"]["added"] == 1
    assert result.json["summary"]["failed"] == 1
    (failed,) = [one for one in result.json["files"] if one["status"] == "failed"]
    assert kind is None or failed["error"]["kind"] == kind
    assert failed["error"]["what"]
    assert shell.sources() == ["valve.txt"]
    assert [one["source"] for one in shell("status", "--json").json["failures"]] == [
        str(shell.home / name)
    ]


def test_a_bad_file_in_a_folder_is_told_but_does_not_fail_the_rest(shell: Shell) -> None:
    shell.write("folder/valve.txt", VALVE)
    shell.write("folder/empty.txt", b"")
    shell.write("folder/picture.xyz", b"\x00\x01\x02" * 100)
    result = shell("add", shell.home / "folder")
    assert result.code == 0
    assert "1 added, 1 skipped, 1 failed" in result.out
    assert "picture.xyz" in result.out


def test_an_archive_with_a_bad_member_is_added_and_the_member_told(shell: Shell) -> None:
    path = shell.home / "archive.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inner.txt", VALVE)
        archive.writestr("broken.docx", b"PK")
    added = shell("add", path, "--json")
    assert added.code == 0
    (file,) = added.json["files"]
    assert file["status"] == "added"
    assert [one["source"] for one in file["documents"]] == [f"{path}!/inner.txt"]
    assert "broken.docx" in file["failures"][0]["where"]
    assert "export it again" in " ".join(shell("add", path, "--again").out.split())
    assert shell("add", path, "--json").json["summary"]["unchanged"] == 1
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other.txt", MOTOR)
    assert shell("add", path, "--json").json["summary"]["updated"] == 1
    assert shell.sources() == ["other.txt"], (
        "a member that has gone leaves with its archive's version"
    )
    assert shell("remove", "archive.zip", "--json").json["removed"][0]["documents"] == 1
    assert shell.sources() == []


def test_a_huge_file_is_refused_without_being_read(shell: Shell) -> None:
    path = shell.home / "huge.txt"
    with path.open("wb") as stream:
        stream.truncate(200_000_000)
    started = time.monotonic()
    result = shell("add", path, "--json")
    assert result.code == 1
    assert result.json["files"][0]["error"]["kind"] == "DocumentTooLarge"
    assert time.monotonic() - started < 5


def test_folders_without_anything_to_read(shell: Shell) -> None:
    empty = shell.home / "empty"
    empty.mkdir()
    assert shell("add", empty).code == 1
    shell.write("odd/file.xyz", b"\x00\x01")
    result = shell("add", shell.home / "odd")
    assert result.code == 1
    assert "no readable files" in result.out


def test_symbolic_links_may_go_round_in_circles(shell: Shell) -> None:
    folder = shell.write("loop/valve.txt", VALVE).parent
    (folder / "again").symlink_to(folder)
    (folder / "self").symlink_to(folder / "self")
    result = shell("add", folder, "--json")
    assert result.json["summary"]["added"] == 1


def test_a_pipe_in_a_folder_does_not_hang(shell: Shell) -> None:
    folder = shell.write("folder/valve.txt", VALVE).parent
    os.mkfifo(folder / "pipe.txt")
    assert shell("add", folder, "--json").json["summary"]["added"] == 1


def test_names_that_are_not_utf8(shell: Shell) -> None:
    """The name's broken bytes must come through argv, the reader's child, SQLite and JSON."""
    raw = os.fsencode(shell.home) + b"/ventil-\xfc.txt"
    with open(raw, "wb") as stream:
        stream.write(VALVE.encode())
    assert shell.run("add", raw).code == 0
    listed = shell.run("list", "--json")
    (document,) = listed.json["documents"]
    assert document["source"].endswith("ventil-\\xfc.txt")
    assert "unchanged" in shell.run("add", raw).out
    answer = shell.run("ask", "--route", "drafter", "When is the relief valve tested?")
    assert answer.code == 0
    assert shell.run("remove", document["source"]).code == 0


def test_show_and_remove_take_a_name_that_is_not_utf8_as_the_shell_completes_it(
    shell: Shell,
) -> None:
    """Guards: only the form spelt out (`b\\xffad.txt`) was found, not the bytes themselves."""
    with open(os.fsencode(shell.home) + b"/b\xffad.txt", "wb") as stream:
        stream.write(VALVE.encode())
    shell.run("add", os.fsencode(shell.home) + b"/b\xffad.txt")
    for name in (b"b\xffad.txt", rb"b\xffad.txt"):
        shown = shell.run("show", name + b"#0-3")
        assert (shown.code, "The" in shown.out) == (0, True), shown
    assert shell.run("remove", b"b\xffad.txt").code == 0


def test_names_with_terminal_escapes_are_shown_not_obeyed(shell: Shell) -> None:
    shell("add", shell.write("evil\x1b[31m.txt", VALVE))
    out = shell("list").out
    assert "\x1b" not in out
    assert "\\x1b" in out


def test_the_knowledge_base_does_not_add_itself(shell: Shell) -> None:
    shell.write("valve.txt", VALVE)
    shell("add", shell.home)
    result = shell("add", shell.home, "--json")
    assert [Path(one["source"]).name for one in result.json["files"]] == ["valve.txt"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_knowledge_base_can_be_asked_but_not_changed(shell: Shell) -> None:
    valve = shell.write("valve.txt", VALVE)
    shell("add", valve)
    with read_only(shell.kb):
        assert shell("list").code == 0
        refused = shell("add", shell.write("motor.txt", MOTOR), "--json")
        assert refused.code == 1
        assert refused.json["error"]["kind"] == "KnowledgeBaseNotWritable"
    assert shell.sources() == ["valve.txt"]


def test_a_knowledge_base_that_cannot_be_made(shell: Shell) -> None:
    blocked = shell.write("file", "not a folder")
    valve = shell.write("valve.txt", VALVE)
    refused = shell("add", valve, "--kb", blocked / "kb", "--json")
    assert refused.code == 1
    assert refused.json["error"]["kind"] == "KnowledgeBaseNotWritable"


def test_two_processes_adding_at_once_both_succeed(shell: Shell) -> None:
    first = shell.start("add", str(shell.write("valve.txt", VALVE)))
    second = shell.start("add", str(shell.write("motor.txt", MOTOR)))
    for process in (first, second):
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert b"1 added" in out
    assert sorted(shell.sources()) == ["motor.txt", "valve.txt"]


def test_a_full_disk_is_told_and_loses_nothing(shell: Shell) -> None:
    """A limit on file sizes stands in for the disk: writes fail in the middle, as there."""
    shell("add", shell.write("valve.txt", VALVE))
    text = "\n\n".join(f"Pump {i} is greased. {VALVE}" for i in range(20_000))
    limit = 'ulimit -f 512; trap "" XFSZ; exec "$@"'
    command = [
        sys.executable,
        "-m",
        "edge.cli",
        "add",
        str(shell.write("long.txt", text)),
        "--json",
    ]
    done = subprocess.run(
        ["bash", "-c", limit, "bash", *command],
        cwd=ROOT,
        env=shell.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["error"]["kind"] == "KnowledgeBaseNotWritable"
    assert shell.sources() == ["valve.txt"]
    assert shell("verify").code == 0


@pytest.mark.parametrize("delay", [0.4, 0.7, 1.0])
def test_kill_9_leaves_whole_documents(shell: Shell, delay: float) -> None:
    text = "\n\n".join(f"Pump {i} is greased. {VALVE}" for i in range(300))
    for number in range(20):
        shell.write(f"many/{number}.txt", text)
    process = shell.start("add", str(shell.home / "many"))
    time.sleep(delay)
    process.kill()
    process.communicate()
    if shell("list").code == 0:
        assert shell("verify").code == 0
        for document in shell("list", "--json").json["documents"]:
            assert document["characters"] == len(text)
    again = shell("add", shell.home / "many", "--json")
    assert again.code == 0
    assert len(shell.sources()) == 20


def test_remove_names_what_it_cannot_find(shell: Shell) -> None:
    shell("add", shell.write("a/valve.txt", VALVE), shell.write("b/valve.txt", MOTOR))
    unknown = shell("remove", "nothing.txt")
    assert unknown.code == 2
    assert "No document has this source" in unknown.err
    ambiguous = shell("remove", "valve.txt")
    assert ambiguous.code == 2
    assert "2 documents end in this name" in ambiguous.err
    assert shell("remove", "a/valve.txt").code == 0


def test_watch_keeps_in_step(shell: Shell) -> None:
    valve = shell.write("folder/valve.txt", VALVE)
    other = shell.write("other.txt", "Bearings are greased every 500 hours.")
    shell("add", other)
    folder = valve.parent
    assert shell("watch", folder, "--once", "--json").json["summary"]["added"] == 1
    shell.write("folder/motor.txt", MOTOR)
    valve.unlink()
    other.unlink()
    step = shell("watch", folder, "--once", "--json").json
    assert step["summary"]["added"] == 1
    assert [Path(source).name for source in step["removed"]] == ["valve.txt"]
    assert sorted(shell.sources()) == ["motor.txt", "other.txt"], (
        "only the watched folder is followed"
    )


@pytest.mark.parametrize("watched", [("media/stick",), ("media", "media/stick")])
def test_watch_keeps_the_documents_of_a_folder_that_is_taken_away(
    shell: Shell, watched: tuple[str, ...]
) -> None:
    """A stick that was unplugged, or a share that was unmounted, emptied the knowledge base; later
    only where the folder around it was watched, too."""
    folder = shell.write("media/stick/valve.txt", VALVE).parent
    folders = [str(shell.home / name) for name in watched]
    process = shell.start("watch", *folders, "--interval", "0.1")
    assert process.stdout is not None
    assert process.stderr is not None
    while b"1 added" not in process.stdout.readline():
        pass
    folder.rename(shell.home / "elsewhere")
    assert b"its documents are kept" in process.stderr.readline()
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert shell.sources() == ["valve.txt"]


def test_watch_keeps_documents_that_cannot_be_looked_at(shell: Shell) -> None:
    """A folder that nobody may enter, or a drive that only gives errors, was taken for deleted
    files. What is deleted beside it goes."""
    shell.write("manuals/closed/valve.txt", VALVE)
    motor = shell.write("manuals/motor.txt", MOTOR)
    assert shell("watch", motor.parent, "--once").code == 0
    motor.unlink()
    closed = motor.parent / "closed"
    closed.chmod(0)
    try:
        told = shell.run("watch", str(motor.parent), "--once", "--json")
    finally:
        closed.chmod(0o755)
    assert [Path(source).name for source in told.json["removed"]] == ["motor.txt"]
    assert shell.sources() == ["valve.txt"]


def test_watch_sees_edits_that_keep_size_and_time_and_permissions_that_mend(shell: Shell) -> None:
    """Guards: of `cp -p`, `rsync -t` and `chmod`, which change neither, nothing was seen."""
    valve = shell.write("folder/valve.txt", VALVE)
    motor = shell.write("folder/motor.txt", MOTOR)
    motor.chmod(0)
    process = shell.start("watch", str(valve.parent), "--interval", "0.1", "--json")
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["summary"]["failed"] == 1
    edited = shell.write("edited.txt", VALVE.replace("12 months", "18 months"))
    os.utime(edited, ns=(valve.stat().st_atime_ns, valve.stat().st_mtime_ns))
    edited.replace(valve)
    assert json.loads(process.stdout.readline())["summary"]["updated"] == 1
    motor.chmod(0o644)
    assert json.loads(process.stdout.readline())["summary"]["added"] == 1
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)


def test_watch_does_not_begin_anew_where_the_knowledge_base_was_moved_away(shell: Shell) -> None:
    """Guards: at the next change it made a new one at the old path, which held that change only."""
    folder = shell.write("folder/valve.txt", VALVE).parent
    process = shell.start("watch", str(folder), "--interval", "0.1")
    assert process.stdout is not None
    while b"1 added" not in process.stdout.readline():
        pass
    shell.kb.rename(shell.home / "moved")
    shell.write("folder/motor.txt", MOTOR)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, b"no knowledge base here" in err) == (1, True), err
    assert not shell.kb.exists()


def test_watch_of_no_folder(shell: Shell) -> None:
    assert shell("watch", shell.write("valve.txt", VALVE), "--once").code == 2


def test_status_tells_what_is_complete(shell: Shell) -> None:
    valve = shell.write("valve.txt", VALVE)
    shell("add", valve, shell.write("empty.txt", b""))
    status = shell("status", "--json").json
    assert status["statistics"]["documents"] == 1
    assert [Path(one["source"]).name for one in status["failures"]] == ["empty.txt"]
    assert status["missing_files"] == []
    valve.unlink()
    assert shell("status", "--json").json["missing_files"] == [str(valve)]
    assert "empty.txt" in shell("status").out


def test_a_folder_whose_name_ends_like_an_archive_in_a_source(shell: Shell) -> None:
    """Guards: `docs/data!/b.txt` was told as gone, its file taken for an archive `docs/data`; and
    where there is such a folder, a deleted file for one that is there."""
    gone = shell.write("docs/data!/gone.txt", MOTOR)
    kept = shell.write("docs/data!/kept.txt", VALVE)
    shell.write("docs/data/other.txt", "Bearings are greased every 500 hours.")
    shell("add", shell.home / "docs")
    gone.unlink()
    assert shell("status", "--json").json["missing_files"] == [str(gone)]
    step = shell("watch", shell.home / "docs", "--once", "--json").json
    assert step["removed"] == [str(gone)]
    assert kept.name in shell.sources()


def test_another_drafter_needs_nothing_done_to_the_knowledge_base(shell: Shell) -> None:
    shell("add", shell.write("valve.txt", VALVE))
    make_bundle(shell.home / "other", role="drafter", family="bpe")
    shell.variables["SPECRAG_DRAFTER"] = str(shell.home / "other")
    assert shell("ask", "When is the relief valve tested?").code == 0


def test_compact_leaves_no_trace_of_removed_text(shell: Shell) -> None:
    secret = "The combination of the safe is 4711-Kumquat."
    shell("add", shell.write("secret.txt", secret), shell.write("valve.txt", VALVE))
    shell("remove", "secret.txt")
    result = shell("compact", "--json")
    assert result.code == 0
    assert set(result.json) == {"schema_version", "command", "bytes_before", "bytes_after"}
    for file in shell.kb.rglob("*"):
        if file.is_file():
            assert b"umquat" not in file.read_bytes().lower(), file


def test_verify(shell: Shell) -> None:
    shell("add", shell.write("valve.txt", VALVE))
    whole = shell("verify", "--json")
    assert whole.code == 0
    assert whole.json["ok"] is True
    assert "intact: 1 document\n" in shell("verify").out


def test_show_prints_the_passage_with_the_quote_marked(shell: Shell) -> None:
    shell("add", shell.write("valve.txt", VALVE))
    start = VALVE.index("12 months")
    shown = shell("show", f"valve.txt#{start}-{start + 9}")
    assert "every >>12 months<< by the shift" in shown.out
    as_json = shell("show", f"{shell.home}/valve.txt#{start}-{start + 9}", "--json").json
    assert as_json["citation"]["quote"] == "12 months"
    assert as_json["before"] + "12 months" + as_json["after"] == VALVE


@pytest.mark.parametrize("citation", ["valve.txt", "valve.txt#5", "valve.txt#9-x", "nothing#1-2"])
def test_show_refuses_what_is_no_citation(shell: Shell, citation: str) -> None:
    shell("add", shell.write("valve.txt", VALVE))
    assert shell("show", citation).code == 2


def test_show_refuses_a_place_outside_the_text(shell: Shell) -> None:
    shell("add", shell.write("valve.txt", VALVE))
    refused = shell("show", "valve.txt#5-100000")
    assert refused.code == 1
    assert "is not a place" in refused.err


def test_two_names_never_become_one_document(shell: Shell) -> None:
    """The broken byte e9 and the four characters \\xe9 were told alike: the second file replaced
    the first, and `watch` and `status` took both for gone."""
    folder = shell.home / "names"
    folder.mkdir()
    with open(os.fsencode(folder) + b"/caf\xe9.txt", "wb") as stream:
        stream.write(VALVE.encode())
    shell.write("names/caf\\xe9.txt", MOTOR)
    assert "2 added" in shell.run("add", str(folder)).out
    assert len(shell("list", "--json").json["documents"]) == 2
    assert "2 unchanged" in shell.run("add", str(folder)).out
    assert shell("status", "--json").json["missing_files"] == []
    assert shell("watch", folder, "--once", "--json").json["removed"] == []


def test_paths_that_nobody_may_enter_or_that_cannot_be(shell: Shell) -> None:
    """Each was called a fault of specrag itself."""
    inner = shell.write("closed/inner/valve.txt", VALVE)
    shell.write("config/specrag/config.toml", "k = 3\n")
    closed, config = inner.parent, shell.home / "config" / "specrag"
    for folder in (closed, config):
        folder.chmod(0)
    try:
        for path in (str(inner), f"{closed}/*.txt", "x" * 300, "~nobody-here/valve.txt"):
            result = shell.run("add", path)
            assert (result.code, "1 failed" in result.out) == (1, True), result
        refused = shell.run("status", "--kb", str(closed / "kb"))
        assert (refused.code, "no right to" in refused.err) == (1, True), refused
        refused = shell.run("add", str(ROOT / "pyproject.toml"), "--kb", str(closed / "kb"))
        assert (refused.code, "cannot be written" in refused.err) == (1, True), refused
        refused = shell.run("status", XDG_CONFIG_HOME=str(config.parent))
        assert (refused.code, "cannot be read: Permission" in refused.err) == (2, True), refused
    finally:
        for folder in (closed, config):
            folder.chmod(0o700)


def test_an_empty_path_is_not_the_working_folder(shell: Shell) -> None:
    """`specrag add "$UNSET"` added whatever folder one stood in."""
    result = shell("add", "")
    assert result.code == 1
    assert "empty" in result.out


def test_a_named_pipe_fails_and_a_bad_link_in_a_folder_does_not(shell: Shell) -> None:
    """A pipe that was named was skipped with exit code 0, a dangling link below a folder gave 1."""
    valve = shell.write("mixed/valve.txt", VALVE)
    os.mkfifo(shell.home / "pipe.txt")
    assert shell("add", valve, shell.home / "pipe.txt").code == 1
    (valve.parent / "gone.txt").symlink_to("nowhere")
    result = shell("add", valve.parent, "--json")
    assert result.code == 0
    assert result.json["summary"]["failed"] == 1


def test_a_knowledge_base_that_is_a_file_is_named_as_what_it_is(shell: Shell) -> None:
    """Guards against advice to free disk space where the path is simply not a folder."""
    file = shell.write("notes.txt", VALVE)
    result = shell("add", file, "--kb", file, "--json")
    assert result.code == 1
    assert "this is a file" in result.json["error"]["what"]
    assert file.read_text() == VALVE
