"""Bundles on this box -> sessions for other boxes, by the Open Inference Protocol v2 over HTTP.

Serves runtime/remote.py, and any other client of the protocol. What comes in is not trusted: its
size in bytes, rows and tokens is bounded, token ids must be of the vocabulary, and a bad request
gets a 4xx with `{"error": ...}`. Only this machine is served unless there is a token. Guards do
not cover a holder of the token who asks without end: requests beyond a short queue get a 503.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import click
import h11
import numpy as np
import uvicorn
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from tokenizers import Tokenizer
from uvicorn.protocols.http.h11_impl import H11Protocol

from edge.command import Run, command
from models.bundle import Bundle, open_bundle
from runtime.errors import SessionError, UsageError
from runtime.protocol import (
    BINARY_EXTENSION,
    HEADER_LENGTH,
    INDEX_EXTENSION,
    MalformedMessage,
    Message,
    Received,
    decode,
    encode,
    is_loopback,
)
from runtime.sessions import Session, SessionOptions, open_session

PORT = 8600
MAX_BODY = 8 << 20  # bytes
MAX_BODY_SECONDS = 30.0  # until a request's body has arrived
MAX_TOKENS = 16_384  # rows x length of one request
MAX_WAITING = 16  # requests that wait for a model or run on it
SHUTDOWN_SECONDS = 10  # for requests in progress when the node is stopped
SHORTEST_TOKEN = 16  # characters


@dataclass(frozen=True, slots=True, eq=False)
class Served:
    """One bundle, loaded.

    Attributes:
        vocabulary: token ids are below this.
        turn: held by the request that runs; two runs at once would only share the same cores.
    """

    bundle: Bundle
    session: Session
    vocabulary: int
    turn: threading.Lock = field(default_factory=threading.Lock)

    @property
    def name(self) -> str:
        return self.bundle.manifest.name

    def metadata(self) -> dict[str, Any]:
        """The protocol's model metadata; `parameters` say what this really is."""
        manifest, placement = self.bundle.manifest, self.session.placement
        return {
            "name": self.name,
            "versions": ["1"],
            "platform": "onnxruntime_onnx",
            "inputs": [_tensor(name, "INT64") for name in self.session.inputs],
            "outputs": [_tensor(name, "FP32") for name in manifest.outputs],
            "parameters": {
                "bundle": manifest.name,
                "role": manifest.role,
                "precision": placement.precision,
                "provider": placement.provider,
                "device": placement.device,
                "tokenizer_sha256": self.bundle.tokenizer_sha256,
                "max_length": manifest.max_length,
                "null_index": manifest.null_index,
            },
        }

    def infer(self, body: bytes, header_length: str | None) -> Message:
        """Run the model on one request.

        Raises:
            MalformedMessage: the request is at fault.
            SessionError: the model is.
        """
        received = decode(body, header_length, "inputs")
        binary = self._wanted(received.header)
        feeds = self._feeds(received)
        with self.turn:
            outputs = self.session.run(feeds)
        header: dict[str, Any] = {"model_name": self.name, "model_version": "1"}
        identifier = received.header.get("id")
        if isinstance(identifier, str):
            header["id"] = identifier
        try:
            return encode(
                header,
                "outputs",
                {name: outputs[name] for name in binary},
                [name for name, as_bytes in binary.items() if as_bytes],
            )
        except MalformedMessage as error:
            raise SessionError(f"The model's answer cannot be sent: {error}") from error

    def _feeds(self, received: Received) -> dict[str, NDArray[np.int64]]:
        unknown = sorted(received.tensors.keys() - set(self.session.inputs))
        missing = sorted(set(self.session.inputs) - received.tensors.keys())
        if unknown or missing:
            raise MalformedMessage(
                f"the model's inputs are {', '.join(self.session.inputs)}; "
                f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
            )
        shapes = {values.shape for values in received.tensors.values()}
        if len(shapes) != 1:
            raise MalformedMessage("the inputs differ in shape")
        self._check_shape(shapes.pop())
        for name, values in received.tensors.items():
            self._check_values(name, values)
        return {name: values.astype(np.int64) for name, values in received.tensors.items()}

    def _check_shape(self, shape: tuple[int, ...]) -> None:
        if len(shape) != 2 or 0 in shape:
            raise MalformedMessage("the shape is not (batch, sequence)")
        rows, length = shape
        if length > self.bundle.manifest.max_length:
            raise MalformedMessage(
                f"a sequence of {length} tokens is longer than the model takes "
                f"({self.bundle.manifest.max_length})"
            )
        if rows * length > MAX_TOKENS:
            raise MalformedMessage(
                f"{rows} rows of {length} tokens are more than one request may hold ({MAX_TOKENS})"
            )

    def _check_values(self, name: str, values: NDArray[Any]) -> None:
        if values.dtype.kind != "i":
            raise MalformedMessage(f"{name!r} does not hold integers")
        limit = self.vocabulary if name == "input_ids" else 2
        if int(values.min()) < 0 or int(values.max()) >= limit:
            raise MalformedMessage(f"{name!r} holds a number outside 0 to {limit - 1}")

    def _wanted(self, header: Mapping[str, Any]) -> dict[str, bool]:
        """The outputs asked for -> whether as bytes; all of them where none is named."""
        names = self.bundle.manifest.outputs
        general = _flag(header.get("parameters"), "binary_data_output", default=False)
        asked = header.get("outputs")
        if asked is None or asked == []:
            return dict.fromkeys(names, general)
        if not isinstance(asked, list) or not all(isinstance(entry, dict) for entry in asked):
            raise MalformedMessage("'outputs' is not a list of objects")
        wanted: dict[str, bool] = {}
        for entry in asked:
            if entry.get("name") not in names:
                raise MalformedMessage(f"the model's outputs are {', '.join(names)}")
            wanted[entry["name"]] = _flag(entry.get("parameters"), "binary_data", default=general)
        return wanted


def _tensor(name: str, datatype: str) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": [-1, -1]}


def _flag(parameters: Any, name: str, *, default: bool) -> bool:
    value = parameters.get(name, default) if isinstance(parameters, dict) else default
    if not isinstance(value, bool):
        raise MalformedMessage(f"the parameter {name!r} is neither true nor false")
    return value


# The application


def make_app(served: Sequence[Served], *, token: str | None = None) -> Starlette:
    """The node as an ASGI application."""
    app = Starlette(
        routes=_Node(served).routes(),
        exception_handlers={HTTPException: _http_error, Exception: _internal_error},
    )
    app.add_middleware(_Door, token=token)
    return app


class _Node:
    """The endpoints over the served bundles."""

    def __init__(self, served: Sequence[Served]) -> None:
        self._served = {one.name: one for one in served}
        self._waiting = 0  # touched by the event loop alone

    def routes(self) -> list[Route]:
        return [
            Route("/v2", self.server),
            Route("/v2/health/live", self.live),
            Route("/v2/health/ready", self.live),  # models are loaded before the port is opened
            Route("/v2/repository/index", self.index, methods=["POST"]),
            Route("/v2/models/{model}", self.model),
            Route("/v2/models/{model}/ready", self.ready),
            Route("/v2/models/{model}/infer", self.infer, methods=["POST"]),
        ]

    async def server(self, _: Request) -> Response:
        return JSONResponse(
            {
                "name": "specrag-node",
                "version": _version(),
                "extensions": [BINARY_EXTENSION, INDEX_EXTENSION],
            }
        )

    async def live(self, _: Request) -> Response:
        return JSONResponse({})

    async def index(self, _: Request) -> Response:
        return JSONResponse(
            [{"name": name, "version": "1", "state": "READY"} for name in self._served]
        )

    async def model(self, request: Request) -> Response:
        return JSONResponse(self._find(request).metadata())

    async def ready(self, request: Request) -> Response:
        return JSONResponse({"name": self._find(request).name, "ready": True})

    async def infer(self, request: Request) -> Response:
        served = self._find(request)
        body = await _body(request)
        if self._waiting >= MAX_WAITING:
            raise HTTPException(503, "busy: too many requests wait", {"Retry-After": "1"})
        self._waiting += 1
        try:
            message = await run_in_threadpool(
                served.infer, body, request.headers.get(HEADER_LENGTH)
            )
        except MalformedMessage as error:
            raise HTTPException(400, str(error)) from error
        except SessionError as error:
            raise HTTPException(500, error.what) from error
        finally:
            self._waiting -= 1
        if message.header_length is None:
            return Response(message.body, media_type="application/json")
        return Response(
            message.body,
            media_type="application/octet-stream",
            headers={HEADER_LENGTH: str(message.header_length)},
        )

    def _find(self, request: Request) -> Served:
        name = request.path_params["model"]
        if name not in self._served:
            raise HTTPException(404, f"there is no model {name!r} here")
        return self._served[name]


async def _body(request: Request) -> bytes:
    """The request's body, bounded in size and in the time it may take to arrive."""
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > MAX_BODY:
        raise HTTPException(413, f"the body is larger than {MAX_BODY} bytes")
    body = bytearray()
    try:
        async with asyncio.timeout(MAX_BODY_SECONDS):
            async for chunk in request.stream():
                body += chunk
                if len(body) > MAX_BODY:
                    raise HTTPException(413, f"the body is larger than {MAX_BODY} bytes")
    except TimeoutError as error:
        raise HTTPException(408, "the body did not arrive in time") from error
    except ClientDisconnect as error:
        raise HTTPException(400, "the body broke off") from error
    return bytes(body)


class _Door:
    """Lets requests in that carry the token. Without a token only this machine can ask, and then
    the Host header must say so, too: otherwise any web page could, through its reader's browser."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._digest = None if token is None else _digest(token.encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope["path"].startswith("/v2/health/"):
            refusal = self._refusal(Request(scope))
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _refusal(self, request: Request) -> Response | None:
        if self._digest is None:
            if is_loopback(request.url.hostname or ""):
                return None
            return _error(403, "only this machine is served")
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        given = _digest(token.strip().encode("utf-8", "surrogatepass"))
        if scheme.lower() == "bearer" and hmac.compare_digest(given, self._digest):
            return None
        return _error(401, "the token is missing or wrong", {"WWW-Authenticate": "Bearer"})


def _digest(token: bytes) -> bytes:
    """Of equal length for all tokens, so that comparing takes equal time."""
    return hashlib.sha256(token).digest()


def _error(status: int, what: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    # What is quoted of a request may hold half a character, which UTF-8 does not take.
    return JSONResponse({"error": what.encode("utf-8", "replace").decode()}, status, headers)


async def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _error(error.status_code, error.detail, error.headers)


async def _internal_error(_: Request, __: Exception) -> Response:
    return _error(500, "the node itself failed; see its log")


def _version() -> str:
    try:
        return version("specrag")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "unknown"


# The server


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files of a certificate chain and its private key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Node:
    """A node that is bound to its port and has its models loaded, but does not answer yet."""

    url: str
    served: tuple[Served, ...]
    server: uvicorn.Server
    listener: socket.socket

    def run(self) -> None:
        """Answer until stopped by SIGINT or SIGTERM, or by `stop()` from another thread."""
        try:
            self.server.run(sockets=[self.listener])
        finally:
            self.close()

    def stop(self) -> None:
        """Let requests in progress end, then make `run` return."""
        self.server.should_exit = True

    def close(self) -> None:
        self.listener.close()
        for one in self.served:
            one.session.close()


def open_node(
    bundles: Sequence[Bundle],
    host: str = "127.0.0.1",
    port: int = PORT,
    token: str | None = None,
    *,
    options: SessionOptions | None = None,
    tls: Tls | None = None,
) -> Node:
    """Load the bundles and bind the port (0 takes a free one).

    Raises:
        UsageError: another machine could ask without a token, two bundles share a name, or the
            address cannot be had.
        SessionError: a bundle cannot be loaded.
    """
    _check(bundles, host, token)
    with contextlib.ExitStack() as undo:
        listener = undo.enter_context(_listen(host, port))
        served = []
        for bundle in bundles:
            served.append(_load(bundle, options))
            undo.callback(served[-1].session.close)
        config = _configure(make_app(served, token=token), tls)
        undo.pop_all()
    shown = f"[{host}]" if ":" in host else host
    url = f"{'https' if tls else 'http'}://{shown}:{listener.getsockname()[1]}"
    return Node(url, tuple(served), uvicorn.Server(config), listener)


class _Protocol(H11Protocol):
    """HTTP/1.1 that answers a request once. Uvicorn's refuses a malformed body although the
    application has answered already, or lets it answer after that, and logs h11's traceback."""

    def send_400_response(self, msg: str) -> None:
        if self.cycle is not None:
            self.cycle.disconnected = True  # the application's own answer goes nowhere
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()


def _configure(app: Starlette, tls: Tls | None) -> uvicorn.Config:
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        http=_Protocol,
        loop="asyncio",
        timeout_graceful_shutdown=SHUTDOWN_SECONDS,
        ssl_certfile=tls.certificate if tls else None,
        ssl_keyfile=tls.key if tls else None,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise UsageError(
            f"The certificate or key cannot be read: {error}",
            where=f"{tls.certificate}, {tls.key}" if tls else None,
            fix="Give PEM files of a certificate and its private key",
        ) from error
    return config


def _load(bundle: Bundle, options: SessionOptions | None) -> Served:
    vocabulary = Tokenizer.from_file(str(bundle.tokenizer_path)).get_vocab_size()
    return Served(bundle, open_session(bundle, options), vocabulary)


def _check(bundles: Sequence[Bundle], host: str, token: str | None) -> None:
    if token is None and not is_loopback(host):
        raise UsageError(
            "Other machines could use this node, and there is no token",
            where=host,
            fix="Put a secret into a file and give --token-file, or serve 127.0.0.1 only",
        )
    if token is not None and (len(token) < SHORTEST_TOKEN or not token.isascii() or " " in token):
        raise UsageError(
            f"The token has fewer than {SHORTEST_TOKEN} characters, or some that cannot be sent",
            fix="Make one with: openssl rand -hex 24",
        )
    names = [bundle.manifest.name for bundle in bundles]
    if len(set(names)) != len(names):
        raise UsageError("Two of the bundles have the same name", where=", ".join(sorted(names)))


def _listen(host: str, port: int) -> socket.socket:
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        # Inherited by connections. asyncio sets it itself, but not on sockets made elsewhere, and
        # without it every answer waits 40 ms for the client to acknowledge its head.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listener
    except OSError as error:
        raise UsageError(
            f"The node cannot be reached there: {error.strerror or error}",
            where=f"{host}:{port}",
            fix="Choose an address of this machine and a port that is free, with --port",
        ) from error


# The command. Its parameters' names differ from those of settings (edge/settings.py), which are
# about this machine's own questions and would be taken out of them.


@command(
    "node",
    examples=(
        "specrag node --model models/verifier-minilm-l6",
        "specrag node --model models/verifier-minilm-l6 --provider cuda --require-provider",
        "specrag node --model models/verifier-minilm-l6 --host 0.0.0.0 --token-file secret.txt "
        "--certificate node.pem --key node.key",
    ),
)
@click.option(
    "--model",
    "models",
    multiple=True,
    required=True,
    type=click.Path(path_type=Path),
    metavar="BUNDLE",
    help="A bundle to serve; may be given several times.",
)
@click.option(
    "--host", "address", default="127.0.0.1", show_default=True, help="Address to listen on."
)
@click.option(
    "--port",
    "listen_port",
    default=PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="Port to listen on; 0 takes a free one.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="A file with the secret that clients must send.",
)
@click.option("--certificate", type=click.Path(path_type=Path), metavar="FILE", help="Serve https.")
@click.option(
    "--key", type=click.Path(path_type=Path), metavar="FILE", help="The certificate's private key."
)
@click.option(
    "--provider", "hardware", default="auto", show_default=True, help="What the models run on."
)
@click.option(
    "--require-provider/--no-require-provider",
    "required",
    default=False,
    help="Fail if the named provider cannot be used, instead of warning.",
)
@click.option(
    "--threads",
    "cpu_threads",
    type=click.IntRange(1, 1024),
    help="CPU threads.  [default: physical cores]",
)
def node(
    run: Run,
    *,
    models: tuple[Path, ...],
    address: str,
    listen_port: int,
    token_file: Path | None,
    certificate: Path | None,
    key: Path | None,
    hardware: str,
    required: bool,
    cpu_threads: int | None,
) -> None:
    """Serve models to other machines (Open Inference Protocol v2), localhost only by default."""
    ready = open_node(
        [open_bundle(path) for path in models],
        address,
        listen_port,
        _read_token(token_file),
        options=SessionOptions(hardware, cpu_threads, required),
        tls=_tls(certificate, key),
    )
    with contextlib.closing(ready):
        _announce(run, ready)
        ready.run()


def _announce(run: Run, ready: Node) -> None:
    for one in ready.served:
        for warning in one.session.placement.warnings:
            run.warn(warning)
    if run.json:
        run.emit({"url": ready.url, "models": [one.metadata() for one in ready.served]})
        return
    for one in ready.served:
        placement = one.session.placement
        run.screen.line(
            f"{one.name} ({placement.precision}, {placement.provider}) at "
            f"{ready.url}/v2/models/{one.name}"
        )
    sys.stdout.flush()


def _read_token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        return file.read_text("utf-8-sig").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"The token cannot be read: {error}",
            where=str(file),
            fix="Make one with: openssl rand -hex 24 > token.txt",
        ) from error


def _tls(certificate: Path | None, key: Path | None) -> Tls | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise UsageError("A certificate needs its key", fix="Give both --certificate and --key")
    return Tls(certificate, key)


if __name__ == "__main__":
    from edge.cli import main

    main(["node", *sys.argv[1:]])
