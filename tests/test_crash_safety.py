"""Power cuts, full disks, other writers, readers during writes: whole documents, always."""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import runtime.storage
from runtime.documents import Document
from runtime.errors import (
    KnowledgeBaseDamaged,
    KnowledgeBaseError,
    KnowledgeBaseLocked,
    KnowledgeBaseNotWritable,
    KnowledgeBaseOutdated,
    KnowledgeBaseTooNew,
)
from runtime.knowledge_base import KnowledgeBase, SeenFile
from tests.conftest import ROOT
from tests.knowledge import add, files_that_contain, numbered, text_of, tokenizer
from tests.shell import like_a_user


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A knowledge base of three documents, closed."""
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        for number in range(3):
            add(kb, numbered(number, 1))
    return tmp_path / "kb"


def _worker(folder: Path, seed: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.crash_worker", str(folder), str(seed)],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false"},
    )


def _kill_in_the_middle(folder: Path, seed: int, longest_s: float) -> dict[str, int]:
    """Run a worker, kill it at a random moment of its work; source -> last change it published."""
    with _worker(folder, seed) as process:
        assert process.stdout is not None
        select.select([process.stdout], [], [], 60)  # the first line: it has opened
        time.sleep(random.Random(seed).uniform(0, longest_s))
        process.send_signal(signal.SIGKILL)
        said = process.stdout.read().decode()
    assert process.returncode == -signal.SIGKILL, "the worker ended by itself"
    lines = [line.split() for line in said.splitlines()[1:]]
    return {source: int(version) for source, version in lines}


def _check_whole(folder: Path, published: dict[str, int]) -> None:
    """The folder opens, verifies, holds whole documents and nothing older than was published."""
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader:
        assert reader.verify() == ()
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.verify() == ()
        versions: dict[str, int] = {}
        for document in kb.documents():
            text = kb.text(document.id)
            found = re.match(r"In (doc(\d+))v(\d+) ", text)
            assert found is not None
            assert found[1] == document.source
            assert text == text_of(int(found[2]), int(found[3]))
            versions[document.source] = int(found[3])
            marker = f"{found[1]}v{found[3]}"
            hits = kb.search(marker, 100)
            assert set(kb.index.passage_ids()) >= {hit.passage_id for hit in hits}
            assert len(hits) == len(_passages_with(kb, marker))
        for source, version in published.items():
            if version > 0:
                # Removed later, or replaced by something newer, may have happened unsaid: once.
                assert source not in versions or versions[source] >= version
            elif source in versions:
                assert versions[source] > -version


def _passages_with(kb: KnowledgeBase, marker: str) -> set[int]:
    return {
        window.passage_id
        for window in kb.windows(kb.index.passage_ids())
        if marker in window.passage_text
    }


def _kill_many(folder: Path, seeds: range, longest_s: float) -> None:
    published: dict[str, int] = {}
    for seed in seeds:
        published |= _kill_in_the_middle(folder, seed, longest_s)
        _check_whole(folder, published)


def test_killed_at_any_moment_it_holds_whole_documents(tmp_path: Path) -> None:
    _kill_many(tmp_path / "kb", range(1, 9), 0.6)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif("SPECRAG_LONG" not in os.environ, reason="set SPECRAG_LONG=1: takes minutes")
@pytest.mark.parametrize("first", range(1_000, 1_200, 25))
def test_killed_at_two_hundred_moments(tmp_path: Path, first: int) -> None:
    _kill_many(tmp_path / "kb", range(first, first + 25), 1.0)


def test_killed_between_database_and_index_the_next_writer_finishes(folder: Path) -> None:
    """Guards the one moment that random kills seldom meet: stored, but not indexed."""
    code = f"""
        import os
        from pathlib import Path
        from tests.knowledge import add, numbered, tokenizer
        from runtime.index import PassageIndex
        from runtime.knowledge_base import KnowledgeBase
        kb = KnowledgeBase.open({str(folder)!r}, tokenizer=tokenizer(), writable=True)
        PassageIndex.apply = lambda *_: os.kill(os.getpid(), 9)
        add(kb, numbered(1, 2))
    """
    assert _run(code).returncode == -signal.SIGKILL
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader:
        assert reader.search("doc1v2", 10) == []
        assert reader.search("doc1v1", 10) != []
        assert len(reader.documents()) == 3
        assert reader.verify() == ()
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.search("doc1v2", 10) != []
        assert kb.search("doc1v1", 10) == []
        assert kb.verify() == ()


def _run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "TOKENIZERS_PARALLELISM": "false", **environment},
    )


# A disk that fills up: write(), pwrite() and fallocate() fail with ENOSPC after so many bytes.
_FULL_DISK = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <sys/types.h>
#include <sys/stat.h>
static long long left = -1;
static int full(int fd, size_t n) {
    struct stat s;
    if (fstat(fd, &s) || !S_ISREG(s.st_mode)) return 0;
    if (left == -1) { const char *v = getenv("DISK_BYTES"); left = v ? atoll(v) : 1LL << 60; }
    if ((long long)n > left) { left = 0; errno = ENOSPC; return 1; }
    left -= n;
    return 0;
}
#define NEXT(name) dlsym(RTLD_NEXT, name)
ssize_t write(int fd, const void *b, size_t n) {
    if (full(fd, n)) return -1;
    return ((ssize_t(*)(int, const void *, size_t))NEXT("write"))(fd, b, n);
}
ssize_t pwrite(int fd, const void *b, size_t n, off_t o) {
    if (full(fd, n)) return -1;
    return ((ssize_t(*)(int, const void *, size_t, off_t))NEXT("pwrite"))(fd, b, n, o);
}
ssize_t pwrite64(int fd, const void *b, size_t n, off64_t o) {
    if (full(fd, n)) return -1;
    return ((ssize_t(*)(int, const void *, size_t, off64_t))NEXT("pwrite64"))(fd, b, n, o);
}
"""


@pytest.fixture(scope="module")
def full_disk(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A library to preload that makes the disk full after DISK_BYTES written bytes."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler for the full disk")
    path = tmp_path_factory.mktemp("disk")
    (path / "full.c").write_text(_FULL_DISK)
    library = path / "full.so"
    command = [compiler, "-shared", "-fPIC", "-o", str(library), str(path / "full.c"), "-ldl"]
    subprocess.run(command, check=True)
    return str(library)


_FILL = """
    import sys
    from tests.knowledge import add, numbered, tokenizer
    from runtime.errors import SpecragError
    from runtime.knowledge_base import KnowledgeBase
    try:
        with KnowledgeBase.open({folder!r}, tokenizer=tokenizer(), writable=True) as kb:
            for version in range(2, 6):
                for number in range(3):
                    add(kb, numbered(number, version))
                kb.compact()
    except SpecragError as error:
        print(type(error).__name__, error)
        sys.exit(3)
"""


@pytest.mark.parametrize("seed", range(8))
def test_a_disk_that_fills_up_says_so_and_loses_nothing(
    folder: Path, full_disk: str, seed: int
) -> None:
    available = random.Random(seed).randrange(2_000, 600_000)
    _run_until_full(_FILL, folder, full_disk, available)
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader:
        assert reader.verify() == ()
        assert [document.source for document in reader.documents()] != []
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.verify() == ()
        assert sorted(document.source for document in kb.documents()) == ["doc0", "doc1", "doc2"]
        for document in kb.documents():
            _version_of(kb, document)


_FILL_BATCHES = """
    import sys
    from tests.knowledge import numbered, tokenizer
    from runtime import knowledge_base
    from runtime.errors import SpecragError
    from runtime.knowledge_base import KnowledgeBase
    knowledge_base._BATCH_CHARACTERS = 40_000  # several parts are published in each batch
    try:
        with KnowledgeBase.open({folder!r}, tokenizer=tokenizer(), writable=True) as kb:
            for version in range(2, 20):
                kb.add_many((numbered(number, version), "x", 1) for number in range(30))
    except SpecragError as error:
        print(type(error).__name__, error)
        sys.exit(3)
"""


@pytest.mark.parametrize("seed", range(6))
def test_a_disk_that_fills_up_during_a_batch_leaves_whole_parts(
    folder: Path, full_disk: str, seed: int
) -> None:
    """Batches are published in parts: each document is of the last part published, or as before."""
    available = random.Random(100 + seed).randrange(20_000, 3_000_000)
    _run_until_full(_FILL_BATCHES, folder, full_disk, available)
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader:
        assert reader.verify() == ()
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.verify() == ()
        versions = [_version_of(kb, document) for document in kb.documents()]
        assert {document.source for document in kb.documents()} >= {"doc0", "doc1", "doc2"}
        # The documents that the last batch reached carry its version, the others the one before.
        assert max(versions) - min(versions) <= 1
        kb.add_many((numbered(number, 50), "x", 1) for number in range(30))
        assert {_version_of(kb, document) for document in kb.documents()} == {50}
        assert kb.verify() == ()


def _run_until_full(code: str, folder: Path, full_disk: str, available: int) -> None:
    """Write with `code` on a disk of `available` bytes, which must end in the one right error."""
    done = _run(code.format(folder=str(folder)), LD_PRELOAD=full_disk, DISK_BYTES=str(available))
    assert done.returncode == 3, done.stderr[-2000:]
    assert done.stdout.startswith("KnowledgeBaseNotWritable"), done.stdout


def _version_of(kb: KnowledgeBase, document: Document) -> int:
    """The version that a document's text says it is of, which must be all of that text."""
    text = kb.text(document.id)
    found = re.match(r"In doc(\d+)v(\d+) ", text)
    assert found is not None
    assert text == text_of(int(found[1]), int(found[2]))
    assert document.source == f"doc{found[1]}"
    return int(found[2])


def test_creating_on_a_full_disk_leaves_a_folder_that_can_be_used(
    tmp_path: Path, full_disk: str
) -> None:
    code = _FILL.replace("writable=True", "create=True").format(folder=str(tmp_path / "kb"))
    for available in (0, 100, 1_000, 5_000, 20_000):
        done = _run(code, LD_PRELOAD=full_disk, DISK_BYTES=str(available))
        assert (done.returncode, done.stdout[:24]) == (3, "KnowledgeBaseNotWritable")
    with KnowledgeBase.open(tmp_path / "kb", tokenizer=tokenizer(), create=True) as kb:
        add(kb, numbered(1, 1))
        assert kb.verify() == ()


# Other processes


@pytest.fixture
def other_writer(folder: Path) -> Iterator[subprocess.Popen[str]]:
    code = f"""
        import sys
        from tests.knowledge import tokenizer
        from runtime.knowledge_base import KnowledgeBase
        with KnowledgeBase.open({str(folder)!r}, tokenizer=tokenizer(), writable=True):
            print("open", flush=True)
            sys.stdin.readline()
    """
    with subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        yield process
        if process.poll() is None:
            process.communicate("\n", timeout=30)


def test_a_second_writer_is_told_who_holds_it(
    folder: Path, other_writer: subprocess.Popen[str]
) -> None:
    told: list[str] = []
    with pytest.raises(KnowledgeBaseLocked, match=rf"process {other_writer.pid} on .+ since 20"):
        KnowledgeBase.open(folder, writable=True, wait_s=0.2, on_wait=told.append)
    assert len(told) == 1
    assert str(other_writer.pid) in told[0]


def test_a_second_writer_waits_its_turn(folder: Path, other_writer: subprocess.Popen[str]) -> None:
    assert other_writer.stdin is not None

    def let_go(_: str) -> None:
        assert other_writer.stdin is not None
        other_writer.stdin.write("\n")
        other_writer.stdin.flush()

    with KnowledgeBase.open(folder, writable=True, wait_s=30, on_wait=let_go) as kb:
        assert kb.remove("doc1") == 1


def test_a_killed_writer_holds_nothing(folder: Path, other_writer: subprocess.Popen[str]) -> None:
    other_writer.kill()
    other_writer.wait()
    with KnowledgeBase.open(folder, writable=True, wait_s=5) as kb:
        assert kb.remove("doc1") == 1


def test_a_reader_keeps_its_snapshot_until_it_refreshes(folder: Path) -> None:
    with (
        KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader,
        KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as writer,
    ):
        before = reader.documents()
        text = reader.text(before[1].id)
        add(writer, numbered(1, 2))
        writer.remove("doc2")
        assert reader.documents() == before
        assert reader.text(before[1].id) == text
        assert reader.search("doc1v2", 10) == []
        assert reader.verify() == ()
        hits = reader.search("doc2v1", 10)
        assert reader.windows([hit.passage_id for hit in hits]) != []
        reader.refresh()
        assert [document.source for document in reader.documents()] == ["doc0", "doc1"]
        assert reader.search("doc1v2", 10) != []
        assert reader.search("doc1v1", 10) == []


def test_readers_see_whole_states_while_a_writer_is_busy(tmp_path: Path) -> None:
    """Every state the reader sees verifies, while another process adds, removes and compacts."""
    folder = tmp_path / "kb"
    with _worker(folder, seed=77) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        states = set()
        deadline = time.monotonic() + 4
        with KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader:
            while time.monotonic() < deadline:
                reader.refresh()
                assert reader.verify() == ()
                states.add(reader.index.sequence)
        process.kill()
    assert len(states) > 3


def test_compacting_leaves_no_trace_of_removed_text(folder: Path) -> None:
    secret = "Wolpertinger"
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        document = numbered(9, 1)
        text = f"{document.text} The {secret} Xyzzynate42 lives here. {secret.lower()}"
        add(kb, type(document)(f"/{secret}.txt", secret, "text/plain", text))
        needles = [secret.encode(), secret.lower().encode(), b"yzzynate42", b"doc9v1"]
        assert any(files_that_contain(folder, needle) for needle in needles)
        kb.remove(f"/{secret}.txt")
        kb.compact()
        for needle in needles:
            assert files_that_contain(folder, needle) == []
        assert kb.verify() == ()
        assert len(kb.documents()) == 3
    for needle in needles:
        assert files_that_contain(folder, needle) == []


def test_compacting_says_when_a_reader_keeps_old_text_alive(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime.storage, "BUSY_TIMEOUT_S", 0.2)
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        with KnowledgeBase.open(folder, tokenizer=tokenizer()) as reader:
            kb.remove("doc1")
            before = sorted(path.name for path in folder.iterdir())
            with pytest.raises(KnowledgeBaseLocked, match="Not compacted: a reader"):
                kb.compact()
            assert reader.search("doc1v1", 10) != []
            assert sorted(path.name for path in folder.iterdir()) == before
        with KnowledgeBase.open(folder, tokenizer=tokenizer()) as newest:
            # A reader of the newest state, too, keeps it from being replaced.
            assert newest.search("doc1v1", 10) == []
            with pytest.raises(KnowledgeBaseLocked, match="Not compacted: a reader"):
                kb.compact()
        kb.compact()
        assert files_that_contain(folder, b"doc1v1") == []


# Media that cannot be written, and folders that are not what they should be


def _read_only_mount(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `code` where `folder` is mounted read-only, in a namespace of its own."""
    script = 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && exec "$1" -c "$2"'
    return subprocess.run(
        ["unshare", "-rm", "sh", "-c", script, folder, sys.executable, textwrap.dedent(code)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.fixture
def namespaces(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or _read_only_mount("", tmp_path).returncode:
        pytest.skip("needs the right to mount a folder read-only in a namespace")


@pytest.mark.usefixtures("namespaces")
def test_it_is_read_from_read_only_media(folder: Path) -> None:
    code = f"""
        from tests.knowledge import tokenizer
        from runtime.errors import KnowledgeBaseNotWritable
        from runtime.knowledge_base import KnowledgeBase
        with KnowledgeBase.open({str(folder)!r}, tokenizer=tokenizer()) as kb:
            assert kb.verify() == ()
            kb.refresh()
            print(len(kb.search("doc1v1", 10)) > 0)
        try:
            KnowledgeBase.open({str(folder)!r}, writable=True)
        except KnowledgeBaseNotWritable as error:
            print(error)
    """
    done = _read_only_mount(code, folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("True\n")
    assert "Read-only file system" in done.stdout


@pytest.mark.usefixtures("namespaces")
def test_read_only_media_with_an_open_log_is_explained(folder: Path, tmp_path: Path) -> None:
    """Guards against silently showing the state before the last changes."""
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        add(kb, numbered(1, 2))
        copy = tmp_path / "copy"
        shutil.copytree(folder, copy, ignore=shutil.ignore_patterns("*-shm"))
    code = f"""
        from runtime.knowledge_base import KnowledgeBase
        KnowledgeBase.open({str(copy)!r})
    """
    done = _read_only_mount(code, copy)
    assert "was not closed before its medium became read-only" in done.stderr


def _modes(folder: Path) -> set[int]:
    return {file.stat().st_mode & 0o777 for file in folder.rglob("*") if file.is_file()}


def test_who_may_read_the_database_may_read_the_index(tmp_path: Path) -> None:
    """Guards: tantivy made two of the index's files readable for their owner only, so that nobody
    else could read the knowledge base."""
    folder = tmp_path / "kb"
    mask = os.umask(0o022)
    try:
        with KnowledgeBase.open(folder, create=True) as kb:
            assert _modes(folder) == {0o644}
            add(kb, numbered(1, 1))
            assert _modes(folder) == {0o644}
        (folder / "knowledge-base.sqlite").chmod(0o640)
        with KnowledgeBase.open(folder, writable=True) as kb:
            for number in range(20):  # so many that there are merges
                add(kb, numbered(number, 2))
        assert _modes(folder / "index-1") == {0o640}
        with KnowledgeBase.open(folder, writable=True) as kb:
            kb.compact()
        assert _modes(folder / "index-2") == {0o640}
    finally:
        os.umask(mask)


@pytest.mark.parametrize("closed", ["index-1/meta.json", "index-1"])
def test_an_index_that_one_may_not_read_is_not_called_damaged(folder: Path, closed: str) -> None:
    """Guards: "damaged, rebuild it" was told of what only its owner may read."""
    code = f"""
        from runtime import knowledge_base
        knowledge_base._SNAPSHOT_TIMEOUT_S = 0.1
        knowledge_base.KnowledgeBase.open({str(folder)!r})
    """
    (folder / closed).chmod(0)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        cwd=ROOT, capture_output=True, text=True, check=False, preexec_fn=like_a_user,
    )  # fmt: skip
    (folder / closed).chmod(0o700)
    assert "KnowledgeBaseNotReadable" in done.stderr
    assert "no right to" in done.stderr
    assert "ResourceWarning" not in done.stderr


def test_a_newer_format_is_refused(folder: Path) -> None:
    connection = sqlite3.connect(folder / "knowledge-base.sqlite")
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    for writable in (False, True):
        with pytest.raises(KnowledgeBaseTooNew, match=r"format 99.*Update specrag"):
            KnowledgeBase.open(folder, writable=writable)


def test_an_older_format_is_migrated_by_the_first_writer(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def add_notes(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE notes (text TEXT)")

    current = len(runtime.storage.MIGRATIONS) + 1
    monkeypatch.setattr(runtime.storage, "MIGRATIONS", (*runtime.storage.MIGRATIONS, add_notes))
    with pytest.raises(KnowledgeBaseError, match=f"older format {current}"):
        KnowledgeBase.open(folder)
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.verify() == ()
    KnowledgeBase.open(folder).close()


def test_format_1_which_kept_windows_is_migrated(folder: Path) -> None:
    """The tables as version 1 had them, put back around the same documents."""
    connection = sqlite3.connect(folder / "knowledge-base.sqlite")
    connection.executescript(
        "DROP TABLE revisions; DROP TABLE files; DROP TABLE roots;"
        "ALTER TABLE documents DROP COLUMN passages;"
        "ALTER TABLE documents ADD COLUMN windows INTEGER NOT NULL DEFAULT 3;"
        "ALTER TABLE documents ADD COLUMN tokenizer TEXT NOT NULL DEFAULT 'x';"
        "CREATE INDEX documents_by_tokenizer ON documents (tokenizer);"
        "CREATE TABLE windows (id INTEGER PRIMARY KEY, passage_id INTEGER NOT NULL "
        "REFERENCES passages ON DELETE CASCADE, start INTEGER NOT NULL, stop INTEGER NOT NULL, "
        "tokens INTEGER NOT NULL, token_ids BLOB NOT NULL, offsets BLOB NOT NULL);"
        "CREATE INDEX windows_by_passage ON windows (passage_id, start);"
        "INSERT INTO windows VALUES (1, 1, 0, 4, 1, x'0100', x'000004');"
        "PRAGMA user_version = 1;"
    )
    connection.close()
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.verify() == ()
        assert [document.passages for document in kb.documents()] == [
            len({one.passage for one in kb.windows(kb.index.passage_ids())}) // 3
        ] * 3
        add(kb, numbered(1, 2))
        assert kb.verify() == ()


def test_format_3_which_knew_no_files_is_migrated(folder: Path) -> None:
    connection = sqlite3.connect(folder / "knowledge-base.sqlite")
    connection.executescript("DROP TABLE files; DROP TABLE roots; PRAGMA user_version = 3;")
    connection.close()
    with KnowledgeBase.open(folder, writable=True) as kb:
        assert (kb.verify(), len(kb.documents())) == ((), 3)
        assert (kb.seen_files(), kb.roots()) == ({}, [])
        kb.remember_root("/data/a.txt")
        assert kb.roots() == ["/data/a.txt"]
        seen = SeenFile("/data/a.txt", "", 3, 2, 1)
        kb.record_file(seen)
        assert (kb.seen_files(), kb.roots()) == ({seen.source: seen}, [])


def test_a_migration_that_fails_changes_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(connection: sqlite3.Connection) -> None:
        connection.execute("CREATE TABLE notes (text TEXT)")
        raise RuntimeError("half-way")

    with monkeypatch.context() as patch:
        patch.setattr(runtime.storage, "MIGRATIONS", (*runtime.storage.MIGRATIONS, fail))
        with pytest.raises(RuntimeError, match="half-way"):
            KnowledgeBase.open(folder, writable=True)
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as kb:
        assert kb.verify() == ()


@pytest.mark.parametrize("damage", ["index", "index file", "database", "foreign", "text", "gap"])
def test_damage_is_found(folder: Path, damage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    database = folder / "knowledge-base.sqlite"
    if damage == "index":
        shutil.rmtree(next(folder.glob("index-*")))
    elif damage == "index file":
        file = next(folder.glob("index-*/*.idx"))
        raw = bytearray(file.read_bytes())
        raw[10] ^= 1
        file.write_bytes(raw)
    elif damage == "database":
        database.write_bytes(b"not a database" * 100)
    elif damage == "foreign":
        database.unlink()
        sqlite3.connect(database).executescript("CREATE TABLE t (x); VACUUM;").connection.close()
    else:
        connection = sqlite3.connect(database)
        statement = {
            "text": "UPDATE passages SET text = replace(text, 'pump', 'pomp')",
            "gap": "DELETE FROM passages WHERE id = 2",
        }[damage]
        connection.execute(statement)
        connection.commit()
        connection.close()
    if damage in ("text", "gap", "index file"):
        with KnowledgeBase.open(folder, tokenizer=tokenizer()) as kb:
            assert kb.verify() != ()
    else:
        monkeypatch.setattr("runtime.knowledge_base._SNAPSHOT_TIMEOUT_S", 0.1)
        with pytest.raises(KnowledgeBaseDamaged):
            KnowledgeBase.open(folder)


def test_a_lost_index_is_built_anew_by_the_first_writer(folder: Path) -> None:
    shutil.rmtree(next(folder.glob("index-*")))
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert kb.search("doc1v1", 10) != []
        assert kb.verify() == ()


def test_another_analysis_makes_the_index_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against questions analysed one way and passages another after an update."""
    monkeypatch.setattr("runtime.analysis.VERSION", 10_000)
    with KnowledgeBase.open(folder, tokenizer=tokenizer(), writable=True) as kb:
        assert [path.name for path in folder.glob("index-*")] == ["index-2"]
        assert kb.verify() == ()


def test_an_index_of_another_analysis_is_not_searched(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guards against readers that find less after an update and do not say so."""
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as open_since_before:
        with monkeypatch.context() as patch:
            patch.setattr("runtime.analysis.VERSION", 10_000)
            with pytest.raises(KnowledgeBaseOutdated, match=r"another version.*specrag compact"):
                KnowledgeBase.open(folder, tokenizer=tokenizer())
            KnowledgeBase.open(folder, writable=True).close()
            with KnowledgeBase.open(folder, tokenizer=tokenizer()) as kb:
                assert kb.search("doc1v1", 10) != []
        with pytest.raises(KnowledgeBaseOutdated), open_since_before.snapshot():
            pass


def test_another_release_of_unicode_is_still_searched(folder: Path) -> None:
    """Guards against boxes with another Python refusing each other's knowledge bases."""
    with sqlite3.connect(folder / "knowledge-base.sqlite") as connection:
        key = "WHERE key = 'index_fingerprint'"
        (made,) = connection.execute(f"SELECT value FROM meta {key}").fetchone()
        version, stemmer, _, snowball = made.split(":")
        other = f"{version}:{stemmer}:99.0.0:{snowball}"
        connection.execute(f"UPDATE meta SET value = ? {key}", (other,))
    connection.close()
    with KnowledgeBase.open(folder, tokenizer=tokenizer()) as kb:
        assert kb.search("doc1v1", 10) != []


def test_the_lock_file_says_who_wrote_last(folder: Path) -> None:
    signature = json.loads((folder / "writer.lock").read_text())
    assert signature["pid"] == os.getpid()


def test_a_folder_that_cannot_be_made_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(KnowledgeBaseNotWritable, match="cannot be written"):
        KnowledgeBase.open(tmp_path / "file" / "kb", create=True)
