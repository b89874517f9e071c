"""The inference node: its endpoints, what it refuses, and how it starts and stops."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from edge import node as node_module
from edge.node import Node, Tls, open_node
from edge.node import node as node_command
from models.bundle import Bundle
from runtime.errors import UsageError
from runtime.protocol import HEADER_LENGTH, decode, encode
from tests.nodes import ROOT, node_process, node_thread
from tests.tiny_models import make_bundle

TOKEN = "correct-horse-battery-staple"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return make_bundle(tmp_path_factory.mktemp("node"), role="verifier", max_length=64)


@pytest.fixture(scope="module")
def node(bundle: Bundle) -> Iterator[Node]:
    with node_thread(bundle) as running:
        yield running


@pytest.fixture
def client(node: Node) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=node.url, trust_env=False, timeout=30) as opened:
        yield opened


def tensors(rows: int = 2, length: int = 5) -> dict[str, np.ndarray[Any, Any]]:
    ids = np.arange(rows * length, dtype=np.int64).reshape(rows, length) % 7
    return {
        "input_ids": ids,
        "attention_mask": np.ones_like(ids),
        "token_type_ids": np.zeros_like(ids),
    }


def request_body(**changes: Any) -> dict[str, Any]:
    """A good request, with entries of its tensors replaced (None leaves a tensor out)."""
    made = {**tensors(), **changes}
    message = encode({}, "inputs", {k: v for k, v in made.items() if v is not None}, ())
    body: dict[str, Any] = json.loads(message.body)
    return body


def infer_path(bundle: Bundle) -> str:
    return f"/v2/models/{bundle.manifest.name}/infer"


# Endpoints


def test_health_server_and_models(client: httpx.Client, bundle: Bundle) -> None:
    name = bundle.manifest.name
    for path in ("/v2/health/live", "/v2/health/ready", f"/v2/models/{name}/ready"):
        assert client.get(path).status_code == 200, path
    server = client.get("/v2").json()
    assert server["name"] == "specrag-node"
    assert {"binary_tensor_data", "model_repository"} <= set(server["extensions"])
    index = client.post("/v2/repository/index").json()
    assert index == [{"name": name, "version": "1", "state": "READY"}]


def test_metadata_says_what_really_runs(client: httpx.Client, bundle: Bundle) -> None:
    metadata = client.get(f"/v2/models/{bundle.manifest.name}").json()
    assert [entry["name"] for entry in metadata["inputs"]] == list(bundle.manifest.inputs)
    assert metadata["inputs"][0] == {
        "name": "input_ids",
        "datatype": "INT64",
        "shape": [-1, -1],
    }
    assert [entry["name"] for entry in metadata["outputs"]] == ["start_logits", "end_logits"]
    assert metadata["parameters"] == {
        "bundle": bundle.manifest.name,
        "role": "verifier",
        "precision": "fp32",
        "provider": "CPUExecutionProvider",
        "device": "CPU",
        "tokenizer_sha256": bundle.tokenizer_sha256,
        "max_length": 64,
        "null_index": 0,
    }


def test_infer_in_json_and_in_bytes_gives_the_same_bits(
    client: httpx.Client, bundle: Bundle
) -> None:
    plain = client.post(infer_path(bundle), json={**request_body(), "id": "42"})
    assert plain.status_code == 200
    assert plain.json()["id"] == "42"
    assert plain.json()["model_name"] == bundle.manifest.name
    wanted = {"outputs": [{"name": "end_logits", "parameters": {"binary_data": True}}]}
    message = encode(wanted, "inputs", tensors(), tensors().keys())
    packed = client.post(
        infer_path(bundle),
        content=message.body,
        headers={HEADER_LENGTH: str(message.header_length)},
    )
    one = decode(plain.content, None, "outputs").tensors
    other = decode(packed.content, packed.headers[HEADER_LENGTH], "outputs").tensors
    assert set(one) == {"start_logits", "end_logits"}
    assert set(other) == {"end_logits"}
    assert one["end_logits"].tobytes() == other["end_logits"].tobytes()


def test_smaller_integers_are_taken_too(client: httpx.Client, bundle: Bundle) -> None:
    small = {name: values.astype(np.int32) for name, values in tensors().items()}
    answer = client.post(infer_path(bundle), json=request_body(**small))
    assert answer.json() == client.post(infer_path(bundle), json=request_body()).json()


def test_all_outputs_as_bytes_by_one_parameter(client: httpx.Client, bundle: Bundle) -> None:
    body = {**request_body(), "parameters": {"binary_data_output": True}}
    answer = client.post(infer_path(bundle), json=body)
    received = decode(answer.content, answer.headers[HEADER_LENGTH], "outputs")
    assert received.tensors["start_logits"].shape == (2, 5)


# Refusals


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"input_ids": None}, "missing: input_ids"),
        ({"extra": np.ones((2, 5), np.int64)}, "unknown: extra"),
        ({"attention_mask": np.ones((2, 4), np.int64)}, "differ in shape"),
        ({"attention_mask": np.ones((2, 5), np.float32)}, "does not hold integers"),
        ({"attention_mask": np.full((2, 5), 2)}, "outside 0 to 1"),
        ({"input_ids": np.full((2, 5), 10**6)}, "outside 0 to"),
        ({"input_ids": np.full((2, 5), -1)}, "outside 0 to"),
        (tensors(1, 65), "longer than the model takes"),
        (tensors(300, 64), "more than one request may hold"),
        (tensors(0, 5), "not (batch, sequence)"),
        ({name: v.ravel() for name, v in tensors().items()}, "not (batch, sequence)"),
    ],
)
def test_bad_tensors(
    client: httpx.Client, bundle: Bundle, changes: dict[str, Any], says: str
) -> None:
    answer = client.post(infer_path(bundle), json=request_body(**changes))
    assert answer.status_code == 400
    assert says in answer.json()["error"]


@pytest.mark.parametrize(
    "outputs",
    [3, [3], [{}], [{"name": "logits"}], [{"name": ["end_logits"]}],
     [{"name": "end_logits", "parameters": {"binary_data": "yes"}}]],
)  # fmt: skip
def test_bad_outputs(client: httpx.Client, bundle: Bundle, outputs: Any) -> None:
    answer = client.post(infer_path(bundle), json={**request_body(), "outputs": outputs})
    assert answer.status_code == 400
    assert answer.json()["error"]


# The last one names half a character, and quoting it was a fault of the node's own (500).
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"[" * 100_000,
        b"\x00\xff" * 50,
        b'{"inputs": [{"name": "\\ud800", "shape": [1], "datatype": "INT64", "data": [1]}]}',
    ],
)
def test_bodies_that_are_no_request(client: httpx.Client, bundle: Bundle, body: bytes) -> None:
    answer = client.post(infer_path(bundle), content=body)
    assert answer.status_code == 400
    assert answer.json()["error"]


def test_a_wrong_header_length(client: httpx.Client, bundle: Bundle) -> None:
    answer = client.post(infer_path(bundle), json=request_body(), headers={HEADER_LENGTH: "999999"})
    assert answer.status_code == 400
    assert HEADER_LENGTH in answer.json()["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/", 404),
        ("GET", "/v2/models/nobody", 404),
        ("POST", "/v2/models/nobody/infer", 404),
        ("GET", "/v2/models/..%2f..%2fetc%2fpasswd", 404),
        ("GET", "/v2/repository/index", 405),
        ("DELETE", "/v2", 405),
    ],
)
def test_paths_that_are_not_there(
    client: httpx.Client, method: str, path: str, status: int
) -> None:
    answer = client.request(method, path)
    assert answer.status_code == status
    assert answer.json()["error"]


def test_a_body_that_says_it_is_too_large(client: httpx.Client, bundle: Bundle) -> None:
    answer = client.post(infer_path(bundle), content=bytes(node_module.MAX_BODY + 1))
    assert answer.status_code == 413
    assert "larger than" in answer.json()["error"]


def test_a_body_that_grows_too_large(node: Node, bundle: Bundle) -> None:
    """Chunked, so its size is not announced; the node stops reading and answers."""
    host, port = node.listener.getsockname()
    with socket.create_connection((host, port), timeout=30) as connection:
        connection.sendall(
            f"POST {infer_path(bundle)} HTTP/1.1\r\nHost: localhost\r\n"
            "Transfer-Encoding: chunked\r\n\r\n".encode()
        )
        chunk = b"100000\r\n" + bytes(0x100000) + b"\r\n"
        for _ in range(node_module.MAX_BODY // 0x100000):
            connection.sendall(chunk)
        connection.sendall(b"1\r\n\0\r\n")
        assert connection.recv(65536).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_arrive(
    node: Node, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "MAX_BODY_SECONDS", 0.2)
    host, port = node.listener.getsockname()
    with socket.create_connection((host, port), timeout=30) as connection:
        head = f"POST {infer_path(bundle)} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
        connection.sendall(head.encode())
        assert connection.recv(65536).startswith(b"HTTP/1.1 408")


def test_a_malformed_chunk_leaves_one_line_in_the_log(
    bundle: Bundle, capfd: pytest.CaptureFixture[str]
) -> None:
    """Guards against h11's traceback. A model that is not there is answered before its body has
    come: the bad chunk was refused although that answer was out, or, sent together with its head,
    was refused before the application came with its own answer."""
    head = "POST {} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    answers = []
    with node_process("--model", str(bundle.path)) as (_, url):
        place = (httpx.URL(url).host, httpx.URL(url).port)
        for path in (infer_path(bundle), "/v2/models/no-such/infer"):
            for pause in (0.0, 0.3):
                with socket.create_connection(place, timeout=30) as connection:
                    bad = b"zz\r\n"
                    connection.sendall(head.format(path).encode() + (b"" if pause else bad))
                    time.sleep(pause)
                    connection.sendall(bad if pause else b"")
                    answer = _everything(connection)
                assert answer.count(b"HTTP/1.1") == 1
                answers.append(answer[:12])
    assert answers == [b"HTTP/1.1 400", b"HTTP/1.1 400", b"HTTP/1.1 400", b"HTTP/1.1 404"]
    log = capfd.readouterr().err.splitlines()
    assert len(log) == len(answers), log


def _everything(connection: socket.socket) -> bytes:
    return b"".join(iter(lambda: connection.recv(65536), b""))


def test_only_this_machine_is_served_without_a_token(client: httpx.Client) -> None:
    """Guards against DNS rebinding: a web page whose name points to 127.0.0.1 asks a node through
    its reader's browser; the Host header gives it away."""
    assert client.get("/v2", headers={"Host": "evil.example"}).status_code == 403
    assert client.get("/v2", headers={"Host": "localhost:8600"}).status_code == 200
    assert client.get("/v2", headers={"Host": "[::1]:8600"}).status_code == 200


def test_the_token_is_asked_for_everywhere_but_at_the_health_checks(bundle: Bundle) -> None:
    with (
        node_thread(bundle, token=TOKEN) as node,
        httpx.Client(base_url=node.url, trust_env=False) as client,
    ):
        for wrong in (
            {},
            {"Authorization": TOKEN},
            {"Authorization": f"Basic {TOKEN}"},
            {"Authorization": "Bearer"},
            {"Authorization": f"Bearer {TOKEN}x"},
            {"Authorization": f"Bearer {TOKEN[:-1]}"},
            {"Authorization": "Bearer schlüssel".encode()},
        ):
            answer = client.get("/v2", headers=wrong)  # type: ignore[arg-type]
            assert (answer.status_code, bool(answer.json()["error"])) == (401, True), wrong
        assert client.get("/nowhere").status_code == 401
        assert client.get("/v2/health/ready").status_code == 200
        right = {"Authorization": f"bearer {TOKEN}", "Host": "box.example"}
        assert client.get("/v2", headers=right).status_code == 200


# Load


def test_concurrent_requests_get_their_own_answers(client: httpx.Client, bundle: Bundle) -> None:
    bodies = [request_body(input_ids=np.full((2, 5), i % 7)) for i in range(24)]
    expected = [client.post(infer_path(bundle), json=body).json() for body in bodies]
    with ThreadPoolExecutor(8) as pool:
        answers = pool.map(lambda body: client.post(infer_path(bundle), json=body), bodies)
        assert [answer.json() for answer in answers] == expected


def test_too_many_waiting_requests_are_told_to_come_back(
    node: Node, client: httpx.Client, bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node_module, "MAX_WAITING", 2)
    with ThreadPoolExecutor(3) as pool:
        with node.served[0].turn:
            work = [
                pool.submit(client.post, infer_path(bundle), json=request_body()) for _ in range(3)
            ]
            refused = next(as_completed(work, timeout=30))
            assert refused.result().status_code == 503
            assert refused.result().json()["error"].startswith("busy")
        assert sorted(w.result().status_code for w in work) == [200, 200, 503]


# Start and stop


def test_a_stopped_node_ends_what_it_began(bundle: Bundle) -> None:
    with (
        node_thread(bundle) as node,
        httpx.Client(base_url=node.url, trust_env=False, timeout=30) as client,
        ThreadPoolExecutor(1) as pool,
    ):
        with node.served[0].turn:
            answer = pool.submit(client.post, infer_path(bundle), json=request_body())
            deadline = time.monotonic() + 30
            while not node.server.server_state.tasks and time.monotonic() < deadline:
                time.sleep(0.01)
            node.stop()
            time.sleep(0.3)
            assert not answer.done()
        assert answer.result(30).status_code == 200


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.7", "box.example"])
def test_other_machines_are_not_served_without_a_token(bundle: Bundle, host: str) -> None:
    with pytest.raises(UsageError, match="there is no token"):
        open_node([bundle], host, 0)


def test_bad_starts(bundle: Bundle, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="fewer than 16"):
        open_node([bundle], port=0, token="short")
    with pytest.raises(UsageError, match="same name"):
        open_node([bundle, bundle], port=0)
    with pytest.raises(UsageError, match="certificate or key"):
        open_node([bundle], port=0, tls=Tls(tmp_path / "no.pem", tmp_path / "no.key"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(UsageError, match="cannot be reached there") as caught:
            open_node([bundle], port=taken.getsockname()[1])
        assert "--port" in str(caught.value.fix)


@pytest.mark.parametrize(
    ("number", "code", "says"),
    [(signal.SIGTERM, -signal.SIGTERM, ""), (signal.SIGINT, 130, "interrupted\n")],
)
def test_a_process_that_is_told_to_stop_stops(
    bundle: Bundle,
    number: signal.Signals,
    code: int,
    says: str,
    capfd: pytest.CaptureFixture[str],
) -> None:
    with node_process("--model", str(bundle.path)) as (process, url):
        assert httpx.get(f"{url}/v2", trust_env=False).status_code == 200
        process.send_signal(number)
        assert process.wait(30) == code
    assert capfd.readouterr().err == says


def test_the_command_reads_its_token_from_a_file(bundle: Bundle, tmp_path: Path) -> None:
    secret = tmp_path / "token"
    secret.write_text(f"\ufeff{TOKEN}\n", "utf-8")  # some editors begin files with this mark
    arguments = ("--model", str(bundle.path), "--token-file", str(secret))
    with node_process(*arguments) as (_, url):
        assert httpx.get(f"{url}/v2", trust_env=False).status_code == 401
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert httpx.get(f"{url}/v2", headers=headers, trust_env=False).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [
        (["--model", "{bundle}", "--host", "0.0.0.0"], 2, "there is no token"),
        (["--model", "{bundle}", "--token-file", "/nowhere/token"], 2, "token cannot be read"),
        (["--model", "{bundle}", "--certificate", "a.pem"], 2, "needs its key"),
        (["--model", "{bundle}", "--provider", "cuda", "--require-provider"], 1, "CUDA"),
        (["--model", "/nowhere"], 1, "No model bundle here"),
        ([], 2, "--model"),
    ],
)
def test_the_command_refuses_and_says_why(
    bundle: Bundle, arguments: list[str], code: int, says: str
) -> None:
    filled = [argument.replace("{bundle}", str(bundle.path)) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-m", "edge.node", "--port", "0", *filled],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=60,
    )
    assert done.returncode == code, done.stderr
    assert says in done.stderr
    assert not done.stdout


def test_the_page_in_docs_names_every_option_and_endpoint(bundle: Bundle) -> None:
    """Guards against drift, both ways."""
    page = (ROOT / "docs" / "inference-node.md").read_text("utf-8")
    table = page.split("| option | meaning |")[1].split("\n\n")[0]
    documented = set(re.findall(r"`(--[a-z-]+)", table))
    common = {"--json", "--config", "--debug"}
    options = {name for param in node_command.params for name in param.opts}
    assert documented == options - common
    paths = set(re.findall(r"`?(?:GET|POST) (/v2[^ `]*)", page))
    routes = {route.path.replace("{model}", "NAME") for route in node_module._Node([]).routes()}
    assert paths == routes
    statuses = {int(status) for status in re.findall(r"^\| (\d{3})", page, re.M)}
    assert statuses == {400, 401, 403, 404, 408, 413, 500, 503}


def test_nothing_is_left_of_a_node_that_ran(bundle: Bundle) -> None:
    before = threading.active_count()
    with node_thread(bundle) as node:
        url = node.url
        assert httpx.get(f"{url}/v2", trust_env=False).status_code == 200
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/v2", trust_env=False)
    deadline = time.monotonic() + 30
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert threading.active_count() <= before
