"""A bundle -> a node that really listens on loopback: in a thread, or as a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from edge.node import Node, open_node
from models.bundle import Bundle
from tests.shell import like_a_user

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 60


@contextmanager
def node_thread(*bundles: Bundle, **options: Any) -> Iterator[Node]:
    """A node in a thread of this process, on a free port."""
    node = open_node(bundles, port=0, **options)
    thread = threading.Thread(target=node.run, name="node")
    thread.start()
    try:
        _wait_until(lambda: node.server.started or not thread.is_alive())
        yield node
    finally:
        node.stop()
        thread.join(30)
        assert not thread.is_alive(), "the node did not stop"


@contextmanager
def node_process(*arguments: str, port: int = 0) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`python -m edge.node` with `arguments`; the process and its URL once it answers."""
    process = subprocess.Popen(
        [sys.executable, "-m", "edge.node", "--json", "--port", str(port), *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        preexec_fn=like_a_user,
    )
    try:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["url"]
        _wait_until(lambda: _answers(url))
        yield process, url
    finally:
        process.kill()
        process.communicate()


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/v2/health/ready", trust_env=False).status_code == httpx.codes.OK
    except httpx.TransportError:
        return False


def _wait_until(true: Any) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not true():
        assert time.monotonic() < deadline, "the node did not start"
        time.sleep(0.01)
