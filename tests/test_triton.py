"""NVIDIA's Triton Inference Server, the real one, behind our remote session.

Needs the environment that tests/triton_server/setup.sh makes; skipped with a message elsewhere.
"""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from models.bundle import Bundle
from runtime.encoding import PairEncoder
from runtime.errors import RemoteRefused
from runtime.remote import RemoteSession, open_remote_session
from runtime.sessions import open_session
from tests.tiny_models import CORPUS, make_bundle

ROOT = Path(__file__).resolve().parent.parent
PYTHON = ROOT / ".venv-triton" / "bin" / "python"
START_SECONDS = 120

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not PYTHON.exists(), reason="Triton is not installed: run tests/triton_server/setup.sh"
    ),
]


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("triton"), role="verifier")


@pytest.fixture(scope="module")
def triton(bundle: Bundle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a Triton that serves the bundle's FP32 graph as "reader"."""
    ports = _free_ports(3)
    log = tmp_path_factory.mktemp("log") / "triton.log"
    with log.open("w") as output:
        process = subprocess.Popen(
            [
                PYTHON,
                ROOT / "tests" / "triton_server" / "serve.py",
                bundle.graph("fp32"),
                "reader",
                *map(str, ports),
            ],
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        url = f"http://127.0.0.1:{ports[0]}"
        deadline = time.monotonic() + START_SECONDS
        while not _ready(url):
            running = process.poll() is None and time.monotonic() < deadline
            assert running, f"Triton did not start:\n{log.read_text()[-3000:]}"
            time.sleep(0.2)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(count: int) -> list[int]:
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in listeners]
    for listener in listeners:
        listener.close()
    return ports


def _ready(url: str) -> bool:
    try:
        answer = httpx.get(f"{url}/v2/models/reader/ready", trust_env=False, timeout=5)
    except httpx.TransportError:
        return False
    return answer.status_code == httpx.codes.OK


def feeds_for(bundle: Bundle) -> dict[str, NDArray[np.int64]]:
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    question = encoder.question("What does fault code E-17 mean?")
    return encoder.batch(question, [encoder.tokenize(text).ids for text in CORPUS]).feeds


def assert_same_bits(remote: RemoteSession, bundle: Bundle) -> None:
    feeds = feeds_for(bundle)
    actual = remote.run(feeds)
    for name, logits in open_session(bundle).run(feeds).items():
        assert actual[name].tobytes() == logits.tobytes()


def test_triton_gives_the_logits_that_a_local_session_gives(triton: str, bundle: Bundle) -> None:
    remote = open_remote_session(f"{triton}/v2/models/reader", bundle=bundle)
    assert remote.placement.provider == "triton"
    assert remote._binary
    assert remote.placement.warnings == (
        "the server does not say which tokenizer its model was made for",
    )
    assert_same_bits(remote, bundle)
    remote.close()


def test_triton_gives_them_in_json_too(triton: str, bundle: Bundle) -> None:
    remote = open_remote_session(triton, model="reader")
    remote._binary = False
    assert_same_bits(remote, bundle)
    remote.close()


def test_what_triton_refuses_is_told_in_its_words(triton: str, bundle: Bundle) -> None:
    with pytest.raises(RemoteRefused, match="unknown model"):
        open_remote_session(triton, model="nobody")
    with pytest.raises(RemoteRefused, match="does not list its models"):
        open_remote_session(triton)
    remote = open_remote_session(triton, model="reader")
    broken = {name: values + 1_000_000 for name, values in feeds_for(bundle).items()}
    with pytest.raises(RemoteRefused, match="HTTP 500"):
        remote.run(broken)
    assert_same_bits(remote, bundle)
    remote.close()
