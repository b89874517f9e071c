"""The child process: replies, deadlines, death, limits, threads. Real children throughout."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.sandbox import (
    ChildDied,
    ChildNotStarted,
    ChildSaidTooMuch,
    ChildTimedOut,
    Sandbox,
    decode,
    encode,
)


@pytest.fixture
def sandbox() -> Iterator[Sandbox]:
    sandbox = Sandbox("tests.sandbox_child")
    yield sandbox
    sandbox.close()


def _ask(sandbox: Sandbox, seconds: float = 20.0, limit: int = 1 << 20, **request: object) -> dict:
    return sandbox.call(request, seconds=seconds, output_bytes=limit)


def test_a_child_is_reused(sandbox: Sandbox) -> None:
    assert _ask(sandbox, do="pid") == _ask(sandbox, do="pid")


def test_odd_names_and_all_of_unicode_pass(sandbox: Sandbox) -> None:
    text = "naïve \udcff 😀 \x00 \u2028"
    assert _ask(sandbox, do="echo", text=text)["text"] == text


@given(st.lists(st.text(st.characters(), max_size=20), max_size=4), st.text(st.characters()))
def test_texts_beside_the_json_arrive_as_they_are(texts: list[str], name: str) -> None:
    message = {"documents": [{"source": name}], "texts": texts}
    assert decode(encode(message)) == message


def test_printing_does_not_break_the_protocol(sandbox: Sandbox) -> None:
    assert _ask(sandbox, do="print", text="noise")["text"] == "noise"


def test_a_hanging_child_is_killed_in_time_and_replaced(sandbox: Sandbox) -> None:
    pid = _ask(sandbox, do="pid")["pid"]
    start = time.monotonic()
    with pytest.raises(ChildTimedOut):
        _ask(sandbox, seconds=0.5, do="hang")
    assert time.monotonic() - start < 5
    assert _ask(sandbox, do="pid")["pid"] != pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_dying_child_is_reported_with_its_signal(sandbox: Sandbox) -> None:
    with pytest.raises(ChildDied) as died:
        _ask(sandbox, do="die")
    assert died.value.signal == signal.SIGSEGV
    assert _ask(sandbox, do="echo", text="next")["text"] == "next"


def test_a_child_that_died_while_idle_is_replaced(sandbox: Sandbox) -> None:
    pid = _ask(sandbox, do="pid")["pid"]
    os.kill(pid, signal.SIGKILL)
    time.sleep(0.2)
    assert _ask(sandbox, do="echo", text="next")["text"] == "next"


def test_a_reply_over_the_limit_is_not_read(sandbox: Sandbox) -> None:
    with pytest.raises(ChildSaidTooMuch):
        _ask(sandbox, limit=1000, do="echo", text="x" * 2000)


def test_the_deadline_can_be_extended_once(sandbox: Sandbox) -> None:
    assert _ask(sandbox, seconds=2.0, do="extend")["done"]


def test_a_retired_child_is_replaced(sandbox: Sandbox) -> None:
    first = _ask(sandbox, do="retire")["pid"]
    assert _ask(sandbox, do="pid")["pid"] != first


def test_threads_get_children_of_their_own(sandbox: Sandbox) -> None:
    replies: list[str] = []

    def work(name: str) -> None:
        for _ in range(20):
            replies.append(_ask(sandbox, do="echo", text=name)["text"] == name and name)

    threads = [threading.Thread(target=work, args=(f"thread {n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 120
    assert all(replies)


def test_no_module_is_imported_from_the_working_folder(
    sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder of documents may hold a json.py; the child must not run it."""
    (tmp_path / "json.py").write_text("raise SystemExit('ran')", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    assert _ask(sandbox, do="echo", text="safe")["text"] == "safe"


def test_a_child_that_cannot_start_is_told_from_one_that_dies() -> None:
    with pytest.raises(ChildNotStarted):
        _ask(Sandbox("tests.no_such_module"), do="pid")


def test_starting_takes_none_of_the_time_of_a_request(sandbox: Sandbox) -> None:
    """On a starved machine a start of seconds once made trivial files "take too long"."""
    assert _ask(sandbox, seconds=1.0, do="echo", text="quick")["text"] == "quick"


def test_closing_ends_the_children(sandbox: Sandbox) -> None:
    pid = _ask(sandbox, do="pid")["pid"]
    sandbox.close()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
