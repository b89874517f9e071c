"""Remote sessions: real HTTP on loopback, to a real node and to servers that misbehave."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edge.node import Tls
from models.bundle import Bundle
from runtime.encoding import PairEncoder
from runtime.errors import (
    BundleIncompatible,
    RemoteRefused,
    RemoteUnavailable,
    RunTimedOut,
    SessionError,
    UsageError,
)
from runtime.remote import open_remote_session
from runtime.sessions import Session, open_session
from tests.nodes import node_process, node_thread
from tests.tiny_models import CORPUS, FAMILIES, Family, make_bundle

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("verifier"), role="verifier")


def feeds_for(bundle: Bundle) -> dict[str, NDArray[np.int64]]:
    encoder = PairEncoder(bundle.tokenizer_path, bundle.manifest.max_length)
    question = encoder.question("When does the relief valve open?")
    return encoder.batch(question, [encoder.tokenize(text).ids for text in CORPUS]).feeds


@contextmanager
def closing(session: Session) -> Iterator[Session]:
    try:
        yield session
    finally:
        session.close()


def assert_same_bits(remote: Session, local: Session, feeds: dict[str, NDArray[np.int64]]) -> None:
    expected, actual = local.run(feeds), remote.run(feeds)
    assert actual.keys() == expected.keys()
    for name, logits in expected.items():
        assert actual[name].dtype == np.float32
        assert actual[name].tobytes() == logits.tobytes()


@pytest.mark.parametrize("family", FAMILIES)
def test_local_and_remote_give_the_same_logits_bit_for_bit(tmp_path: Path, family: Family) -> None:
    bundle = make_bundle(tmp_path, role="verifier", family=family)
    local = open_session(bundle)
    with node_thread(bundle) as node, closing(open_remote_session(node.url)) as remote:
        assert remote.inputs == local.inputs
        assert_same_bits(remote, local, feeds_for(bundle))


def test_a_server_without_the_binary_extension_is_spoken_to_in_json(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge.node.BINARY_EXTENSION", "something_else")
    with node_thread(bundle) as node, closing(open_remote_session(node.url)) as remote:
        assert not remote._binary  # type: ignore[attr-defined]
        assert_same_bits(remote, open_session(bundle), feeds_for(bundle))


def test_a_node_in_a_process_of_its_own(bundle: Bundle) -> None:
    """Same logits; with the node gone the error comes at once; back again, it is used again."""
    feeds = feeds_for(bundle)
    with node_process("--model", str(bundle.path)) as (process, url):
        remote = open_remote_session(url, bundle=bundle)
        assert_same_bits(remote, open_session(bundle), feeds)
        process.kill()
        process.wait()
    started = time.monotonic()
    for _ in range(2):
        with pytest.raises(RemoteUnavailable) as caught:
            remote.run(feeds)
    assert time.monotonic() - started < 5
    assert caught.value.where == f"{url}/"
    with node_process("--model", str(bundle.path), port=int(url.rsplit(":", 1)[1])):
        assert_same_bits(remote, open_session(bundle), feeds)
    remote.close()


def test_the_placement_tells_what_runs_there(bundle: Bundle) -> None:
    with (
        node_thread(bundle) as node,
        closing(open_remote_session(node.url, bundle=bundle)) as remote,
    ):
        placement = remote.placement
    assert placement.provider == "CPUExecutionProvider"
    assert placement.precision == "fp32"
    assert placement.location == f"{node.url}/"
    assert placement.warnings == ()


def test_many_threads_share_one_remote_session(bundle: Bundle) -> None:
    feeds = feeds_for(bundle)
    expected = open_session(bundle).run(feeds)
    with (
        node_thread(bundle) as node,
        closing(open_remote_session(node.url)) as remote,
        ThreadPoolExecutor(8) as pool,
    ):
        for outputs in pool.map(lambda _: remote.run(feeds), range(40)):
            for name, logits in expected.items():
                assert outputs[name].tobytes() == logits.tobytes()


def test_a_model_is_named_where_there_are_several(bundle: Bundle, tmp_path: Path) -> None:
    other = make_bundle(tmp_path, role="verifier", family="bpe")
    with node_thread(bundle, other) as node:
        with pytest.raises(RemoteRefused, match="2 models") as caught:
            open_remote_session(node.url)
        assert "/v2/models/NAME" in str(caught.value.fix)
        name = other.manifest.name
        for chosen in (
            open_remote_session(node.url, model=name),
            open_remote_session(f"{node.url}/v2/models/{name}"),
        ):
            with closing(chosen) as remote:
                assert_same_bits(remote, open_session(other), feeds_for(other))
        with pytest.raises(RemoteRefused, match="no model 'nobody'"):
            open_remote_session(node.url, model="nobody")


def test_a_model_for_another_tokenizer_is_refused(bundle: Bundle, tmp_path: Path) -> None:
    other = make_bundle(tmp_path, role="verifier", family="bpe")
    with node_thread(bundle) as node, pytest.raises(BundleIncompatible, match="another tokenizer"):
        open_remote_session(node.url, bundle=other)


def test_tokens(bundle: Bundle) -> None:
    with node_thread(bundle, token=TOKEN) as node:
        with closing(open_remote_session(node.url, token=TOKEN)) as remote:
            assert_same_bits(remote, open_session(bundle), feeds_for(bundle))
        with pytest.raises(RemoteRefused, match="does not accept the token"):
            open_remote_session(node.url, token=TOKEN[:-1] + "x")
        with pytest.raises(RemoteRefused, match="asks for a token"):
            open_remote_session(node.url)


def test_a_token_does_not_cross_the_network_unencrypted() -> None:
    """Refused before anything is sent: the test's socket guard would fail a connection."""
    for host in ("192.0.2.1", "box.example"):
        with pytest.raises(UsageError, match="unencrypted"):
            open_remote_session(f"http://{host}:8600", token=TOKEN)


@pytest.mark.parametrize("token", ["", "two words", "line\nbreak", "schlüssel"])
def test_tokens_that_cannot_be_sent(token: str) -> None:
    with pytest.raises(UsageError, match="token"):
        open_remote_session("http://localhost:8600", token=token)


@pytest.mark.parametrize(
    "url",
    ["", "localhost:8600", "box", "ftp://box", "http://", "http://u:p@box", "http://box:port"],
)
def test_addresses_that_are_none(url: str) -> None:
    with pytest.raises(UsageError, match="not the address"):
        open_remote_session(url)


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    started = time.monotonic()
    with pytest.raises(RemoteUnavailable, match="cannot be reached: Connection refused"):
        open_remote_session(f"http://127.0.0.1:{port}")
    assert time.monotonic() - started < 5


def test_a_server_that_never_answers() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with pytest.raises(RemoteUnavailable, match=r"did not answer in 0\.2 s"):
            open_remote_session(url, timeout=0.2)


def test_a_run_is_given_up_at_its_deadline(bundle: Bundle) -> None:
    with node_thread(bundle) as node, closing(open_remote_session(node.url)) as remote:
        with node.served[0].turn, pytest.raises(RunTimedOut, match=r"0\.2 s"):
            remote.run(feeds_for(bundle), timeout=0.2)
        assert_same_bits(remote, open_session(bundle), feeds_for(bundle))


def test_what_was_not_fed_is_named(bundle: Bundle) -> None:
    feeds = feeds_for(bundle)
    del feeds["attention_mask"]
    with (
        node_thread(bundle) as node,
        closing(open_remote_session(node.url)) as remote,
        pytest.raises(SessionError, match="attention_mask"),
    ):
        remote.run(feeds)


def test_a_closed_session_cannot_be_run(bundle: Bundle) -> None:
    with node_thread(bundle) as node:
        remote = open_remote_session(node.url)
        remote.close()
        with pytest.raises(SessionError, match="closed"):
            remote.run(feeds_for(bundle))


def test_an_encrypted_line(bundle: Bundle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    certificate, key = _self_signed(tmp_path)
    with node_thread(bundle, token=TOKEN, tls=Tls(certificate, key)) as node:
        url = node.url.replace("127.0.0.1", "localhost")
        assert url.startswith("https://")
        with pytest.raises(RemoteUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            open_remote_session(url, token=TOKEN)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with closing(open_remote_session(url, token=TOKEN)) as remote:
            assert_same_bits(remote, open_session(bundle), feeds_for(bundle))


def _self_signed(folder: Path) -> tuple[Path, Path]:
    certificate, key = folder / "node.pem", folder / "node.key"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost "
        f"-addext subjectAltName=DNS:localhost -out {certificate} -keyout {key}"
    )
    try:
        subprocess.run(command.split(), check=True, capture_output=True)
    except FileNotFoundError:
        pytest.skip("needs the command openssl, which is not here")
    return certificate, key


# Servers that misbehave

SERVER = {"name": "liar", "extensions": []}
METADATA = {
    "name": "m",
    "inputs": [{"name": "input_ids", "datatype": "INT32", "shape": [-1, -1]}],
    "outputs": [
        {"name": name, "datatype": "FP32", "shape": [-1, -1]}
        for name in ("start_logits", "end_logits")
    ],
}
FEEDS = {"input_ids": np.ones((1, 2), np.int64)}
Answer = tuple[int, bytes]


def logits(shape: list[int], data: list[Any], datatype: str = "FP32") -> bytes:
    outputs = [
        {"name": name, "datatype": datatype, "shape": shape, "data": data}
        for name in ("start_logits", "end_logits")
    ]
    return json.dumps({"outputs": outputs}).encode()


@contextmanager
def liar(infer: Callable[[bytes], Answer], metadata: Any = METADATA) -> Iterator[str]:
    """A server that describes a model and answers runs with `infer(body)`; its model's URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._answer(200, json.dumps(SERVER if self.path == "/v2" else metadata).encode())

        def do_POST(self) -> None:
            self._answer(*infer(self.rfile.read(int(self.headers["Content-Length"]))))

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Location", "http://192.0.2.1/")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: Any) -> None:
            """A client that hangs up on too long an answer is what is wanted."""

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v2/models/m"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_an_honest_answer_is_taken_and_inputs_have_the_servers_type() -> None:
    bodies = []

    def infer(body: bytes) -> Answer:
        bodies.append(json.loads(body))
        return 200, logits([1, 2], [0.25, -1])

    with liar(infer) as url, closing(open_remote_session(url)) as remote:
        outputs = remote.run({**FEEDS, "token_type_ids": FEEDS["input_ids"]})
    assert outputs["start_logits"].tolist() == [[0.25, -1.0]]
    assert outputs["start_logits"].dtype == np.float32
    assert bodies[0]["inputs"] == [
        {"name": "input_ids", "shape": [1, 2], "datatype": "INT32", "data": [1, 1]}
    ]


@pytest.mark.parametrize(
    ("answer", "error", "says"),
    [
        ((200, b"not json"), RemoteRefused, "not JSON"),
        ((200, b'{"outputs": []}'), RemoteRefused, "no start_logits"),
        ((200, logits([2, 1], [1.0, 2.0])), RemoteRefused, "no start_logits of shape"),
        ((200, logits([1, 2], [1, 2], "INT64")), RemoteRefused, "no floating-point"),
        ((200, b" " * (3 << 20)), RemoteRefused, "longer than"),
        ((400, b'{"error": "bad \\u001b[31m ids"}'), RemoteRefused, r"HTTP 400\): bad \[31m ids"),
        ((500, b"[" * 50_000), RemoteRefused, "HTTP 500"),
        ((302, b""), RemoteRefused, "HTTP 302"),
        ((401, b""), RemoteRefused, "asks for a token"),
        ((503, b""), RemoteUnavailable, "not ready"),
    ],
)
def test_bad_answers(answer: Answer, error: type[Exception], says: str) -> None:
    with (
        liar(lambda _: answer) as url,
        closing(open_remote_session(url)) as remote,
        pytest.raises(error, match=says),
    ):
        remote.run(FEEDS)


@pytest.mark.parametrize(
    "metadata",
    [
        [],
        {},
        {**METADATA, "inputs": 3},
        {**METADATA, "inputs": [{"name": "input_ids", "datatype": "BYTES"}]},
        {**METADATA, "outputs": [{"name": "logits", "datatype": "FP32"}]},
    ],
)
def test_models_that_are_not_for_question_answering(metadata: Any) -> None:
    with liar(lambda _: (200, b""), metadata) as url, pytest.raises(RemoteRefused):
        open_remote_session(url)


def test_an_answer_that_breaks_off() -> None:
    """The connection closes in the middle of the body, as when the other box loses power."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(RemoteUnavailable, match="cannot be reached"):
            open_remote_session(f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
