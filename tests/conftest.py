"""What all tests share: no network beyond loopback, and the data that lies beside the project."""

from __future__ import annotations

import ipaddress
import os
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.shell import Shell, make_models

ROOT = Path(__file__).resolve().parent.parent
SHARED = Path(os.environ.get("SPECRAG_SHARED", ROOT.parent / "shared"))

os.environ.setdefault("HF_HUB_OFFLINE", "1")


@pytest.fixture(autouse=True)
def _only_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fail any connection to an address that is not loopback."""
    for name in ("connect", "connect_ex"):
        monkeypatch.setattr(socket.socket, name, _guarded(getattr(socket.socket, name)))


def _guarded(connect: Callable[..., Any]) -> Callable[..., Any]:
    def guarded(self: socket.socket, address: Any) -> Any:
        if self.family in (socket.AF_INET, socket.AF_INET6):
            host = str(address[0])
            if host != "localhost" and not ipaddress.ip_address(host).is_loopback:
                raise AssertionError(f"a test reached beyond loopback: {address}")
        return connect(self, address)

    return guarded


@pytest.fixture(scope="module")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for homes; they share the tiny models in it."""
    folder = tmp_path_factory.mktemp("homes")
    make_models(folder)
    return folder


@pytest.fixture
def shell(homes: Path) -> Shell:
    """The command line, with a home of the test's own."""
    return Shell(Path(tempfile.mkdtemp(dir=homes)))


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `shared/` beside the project; tests that need it skip where it is not."""
    if not SHARED.is_dir():
        pytest.skip(f"needs the data folder {SHARED}, which is not here")
    return SHARED


@pytest.fixture(scope="session")
def xquad(shared: Path) -> Path:
    """XQuAD-en: evaluation only, never training or tuning."""
    return shared / "data" / "xquad.en.json"
