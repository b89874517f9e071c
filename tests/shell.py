"""The command line as a user has it: in this process for speed, or as a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from edge.assembly import DEFAULT_BUNDLES
from edge.cli import run_command
from tests.tiny_models import CORPUS, make_bundle

ROOT = Path(__file__).resolve().parent.parent
_PR_CAPBSET_DROP, _CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH = 24, 1, 2  # of Linux

DEFAULT_PAIR = {"SPECRAG_DRAFTER": "", "SPECRAG_VERIFIER": ""}  # instead of the tiny models
needs_default_pair = pytest.mark.skipif(
    not all((ROOT / "models" / name).is_dir() for name in DEFAULT_BUNDLES.values()),
    reason="the default models are not in models/",
)

VALVE = (
    "The relief valve opens at 6.5 bar and must be tested every 12 months by the shift engineer."
)
MOTOR = (
    "Fault code E-17 means that the motor is too hot. Switch the pump off and wait for 20 minutes."
)


@dataclass(frozen=True)
class Result:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """Standard output, which must be exactly one JSON object."""
        loaded = json.loads(self.out)
        assert isinstance(loaded, dict)
        return loaded


@dataclass
class Shell:
    """A home with tiny models, where commands are run."""

    home: Path
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def kb(self) -> Path:
        return self.home / "kb"

    def environment(self, **more: str) -> dict[str, str]:
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.home),
            "SPECRAG_KB": str(self.kb),
            "SPECRAG_DRAFTER": str(self.home.parent / "drafter"),
            "SPECRAG_VERIFIER": str(self.home.parent / "verifier"),
            "SPECRAG_THREADS": "1",
            **self.variables,
            **more,
        }

    def __call__(self, *arguments: object, stdin: str | bytes = "", **variables: str) -> Result:
        """Run a command in this process."""
        out, err = io.StringIO(), io.StringIO()
        piped = io.BytesIO(stdin.encode() if isinstance(stdin, str) else stdin)
        with (
            patch.dict(os.environ, self.environment(**variables), clear=True),
            patch.object(sys, "stdin", io.TextIOWrapper(io.BufferedReader(piped), "utf-8")),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            code = run_command([str(argument) for argument in arguments])
        return Result(code, out.getvalue(), err.getvalue())

    def start(
        self, *arguments: str | bytes, python: tuple[str, ...] = (), **variables: str
    ) -> subprocess.Popen[bytes]:
        """Start a command as a process of its own."""
        return subprocess.Popen(
            [sys.executable, *python, "-m", "edge.cli", *arguments],
            cwd=ROOT,
            env=self.environment(**variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=like_a_user,
        )

    def run(self, *arguments: str | bytes, **variables: str) -> Result:
        """Run a command as a process of its own."""
        process = self.start(*arguments, **variables)
        out, err = process.communicate(timeout=120)
        return Result(process.returncode, out.decode(), err.decode())

    def sources(self) -> list[str]:
        """The names of the files that the knowledge base holds."""
        return [Path(one["source"]).name for one in self("list", "--json").json["documents"]]

    def write(self, name: str, text: str | bytes) -> Path:
        """A file in the home."""
        path = self.home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path


def like_a_user() -> None:
    """For a child process: Ctrl-C ends it, and the modes of files bind it although we are root."""
    # A background job of a shell ignores Ctrl-C, and hands that on; a terminal does not.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    for capability in (_CAP_DAC_OVERRIDE, _CAP_DAC_READ_SEARCH):
        ctypes.CDLL(None).prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)  # of no effect if not root


def make_models(folder: Path) -> None:
    """A drafter and a verifier of a few kilobytes."""
    make_bundle(folder / "drafter", role="drafter")
    make_bundle(folder / "verifier", role="verifier")


def station(folder: Path) -> Shell:
    """A shell with models and, in its knowledge base, a few texts, each named by its number."""
    make_models(folder)
    shell = Shell(folder / "home")
    for number, text in enumerate(CORPUS):
        shell.write(f"texts/{number}.txt", text)
    assert shell("add", shell.home / "texts").code == 0
    return shell


@contextlib.contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """Take away the right to write, for the block."""
    mode = folder.stat().st_mode
    folder.chmod(0o500)
    try:
        yield
    finally:
        folder.chmod(mode)


def has_shape(value: Mapping[str, Any], shape: Mapping[str, Any]) -> None:
    """Assert that `value` has exactly the fields of `shape`, each of its type or types."""
    assert set(value) == set(shape), set(value) ^ set(shape)
    for name, expected in shape.items():
        if isinstance(expected, dict):
            has_shape(value[name], expected)
        elif isinstance(expected, list):
            assert isinstance(value[name], list), name
            for item in value[name]:
                has_shape(item, expected[0])
        else:
            assert isinstance(value[name], expected), (name, value[name])
