"""Ctrl-C on a terminal: one clear line on a line of its own, exit code 130, nothing hangs."""

from __future__ import annotations

import fcntl
import os
import pty
import subprocess
import sys
import termios
import threading
import time

import pytest

from edge import command
from edge.screen import Screen, open_screen
from tests.shell import ROOT, VALVE, Shell, like_a_user, station

SECONDS = 60


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory) -> Shell:
    made = station(tmp_path_factory.mktemp("interrupt"))
    made.write("more/0.txt", VALVE)
    for number in range(60):
        made.write(f"many/{number}.txt", f"{VALVE}\n\n" * 300)
    return made


@pytest.mark.parametrize(
    ("arguments", "sign", "end"),
    [
        (("ask",), "? ", "? \ninterrupted\n"),
        (("watch", "more"), "1 added", "1 added\n^C\ninterrupted\n"),
        (("add", "many"), "/60", "\x1b[2K^C\ninterrupted\n"),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else "",
)
def test_ctrl_c_ends_with_one_line(
    shell: Shell, arguments: tuple[str, ...], sign: str, end: str
) -> None:
    """A line of click's and one of our own stood before it, and progress took "^C" with it."""
    code, shown = interrupted(shell, arguments, sign)
    assert code == 130
    assert shown.endswith(end), shown[-300:]
    assert "Traceback" not in shown


def interrupted(shell: Shell, arguments: tuple[str, ...], sign: str) -> tuple[int, str]:
    """Run a command on a terminal, pressing Ctrl-C when it has shown `sign`; code and output."""
    master, slave = pty.openpty()

    def own_terminal() -> None:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        like_a_user()

    process = subprocess.Popen(
        [sys.executable, "-m", "edge.cli", *arguments],
        cwd=shell.home,
        env=shell.environment(PYTHONPATH=str(ROOT), TERM="xterm"),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=own_terminal,
    )
    os.close(slave)
    watchdog = threading.Timer(SECONDS, process.kill)
    watchdog.start()
    shown, pressed = "", False
    while part := _read(master):
        shown += part
        if not pressed and sign in shown:
            time.sleep(0.3)  # readline looks for keys a moment after its prompt
            os.write(master, b"\x03")
            pressed = True
    os.close(master)
    code = process.wait()
    watchdog.cancel()
    return code, shown.replace("\r\n", "\n")


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode("utf-8", "replace")
    except OSError:  # the other side has gone
        return ""


def test_this_thread_imports_nothing_while_the_models_load(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C within an import left its lock held: the thread that loads the models waited for it,
    and the process for that thread, for ever."""
    opened: list[threading.Thread] = []

    def watched() -> Screen:
        opened.append(threading.current_thread())
        return open_screen()

    monkeypatch.setattr(command, "open_screen", watched)
    assert shell("ask", "Who tests the relief valve?").code == 0
    assert opened
    assert threading.main_thread() not in opened
