"""The address of an inference server -> a session: the same `run(feeds)`, on another box.

Speaks the Open Inference Protocol v2 (KServe) over HTTP, so the other box may run `specrag node`,
NVIDIA Triton, or any server of that protocol. What crosses the wire is token ids and logits;
tokenising stays here. Only connecting is tried twice: a run that broke off is reported at once.
"""

from __future__ import annotations

import json
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote

import httpx
import numpy as np

from models.bundle import Bundle
from runtime.errors import (
    BundleIncompatible,
    RemoteRefused,
    RemoteUnavailable,
    RunTimedOut,
    SessionError,
    UsageError,
)
from runtime.protocol import (
    BINARY_EXTENSION,
    DATATYPES,
    HEADER_LENGTH,
    INDEX_EXTENSION,
    MalformedMessage,
    decode,
    encode,
    is_loopback,
)
from runtime.sessions import Feeds, Outputs, Placement

CONNECT_TIMEOUT = 2.0  # seconds; a box on the same network answers in milliseconds
OUTPUTS = ("start_logits", "end_logits")
_HEADER_ROOM = 1 << 20  # bytes of a reply besides its numbers
_BYTES_A_NUMBER = 64  # more than JSON takes for a float32


def open_remote_session(
    url: str,
    *,
    token: str | None = None,
    timeout: float = 10.0,
    model: str | None = None,
    bundle: Bundle | None = None,
    plain_token: bool = False,
) -> RemoteSession:
    """Connect to the server at `url` and read what its model takes and gives.

    Args:
        url: "http://box:8600", or with a model "http://box:8600/v2/models/NAME". Certificates of
            https are checked against the system's store (or the file in SSL_CERT_FILE).
        token: sent as a bearer token.
        timeout: seconds to wait for each answer.
        model: its name; not needed where the server has only one.
        bundle: the local bundle whose tokenizer is used; refuse a model made for another.
        plain_token: send the token over unencrypted HTTP to another machine, too.

    Raises:
        UsageError: an address that cannot be, or a token that would be readable on the way.
        RemoteUnavailable: no answer.
        RemoteRefused: an answer, but not the wanted one.
        BundleIncompatible: the model there expects another tokenizer.
    """
    address = _read_address(url)
    _protect(token, address.base, plain_token)
    line = _Line(address.base, token, timeout)
    try:
        server = line.get_json("v2")
        name = model or address.model or _only_model(line, server)
        metadata = line.get_json(f"v2/models/{quote(name, safe='')}")
        return RemoteSession(line, name, server, metadata, bundle)
    except BaseException:
        line.close()
        raise


@dataclass(frozen=True, slots=True)
class _Address:
    base: httpx.URL
    model: str | None


def _read_address(url: str) -> _Address:
    try:
        parsed = httpx.URL(url)
    except httpx.InvalidURL as error:
        raise _no_address(url) from error
    if parsed.scheme not in ("http", "https") or not parsed.host or parsed.userinfo:
        raise _no_address(url)
    path, _, model = parsed.path.partition("/v2/models/")
    path = path.rstrip("/").removesuffix("/v2")
    base = parsed.copy_with(path=f"{path}/", query=None, fragment=None)
    return _Address(base, unquote(model.strip("/")) or None)


def _no_address(url: str) -> UsageError:
    return UsageError(
        "This is not the address of an inference server",
        where=url,
        fix="Write it like http://localhost:8600",
    )


def _protect(token: str | None, base: httpx.URL, plain_token: bool) -> None:
    """Keep the token from being read on the way, and from breaking out of its header."""
    if token is None:
        return
    if not token or not (token.isascii() and token.isprintable()) or " " in token:
        raise UsageError(
            "The token is empty or has characters that cannot be sent",
            fix="Use visible ASCII characters without spaces",
        )
    if base.scheme == "http" and not is_loopback(base.host) and not plain_token:
        raise UsageError(
            "The token would cross the network unencrypted",
            where=str(base),
            fix="Use https, a tunnel to localhost, or allow it explicitly where the wire is yours",
        )


def _only_model(line: _Line, server: Mapping[str, Any]) -> str:
    """The name of the server's one model, by the protocol's repository extension."""
    fix = f"Name the model in the address: {line.where.rstrip('/')}/v2/models/NAME"
    unlisted = RemoteRefused("The server does not list its models", where=line.where, fix=fix)
    if INDEX_EXTENSION not in _strings(server.get("extensions")):
        raise unlisted
    try:
        listed = line.json(line.send("POST", "v2/repository/index", content=b"{}"))
    except RemoteRefused as error:  # Triton can keep this to its operators
        raise unlisted from error
    entries = listed if isinstance(listed, list) else []
    names = sorted(
        {
            entry["name"]
            for entry in entries
            if isinstance(entry, dict)
            and isinstance(entry.get("name"), str)
            and entry.get("state", "READY") == "READY"
        }
    )
    if len(names) != 1:
        found = ", ".join(map(_printable, names)) or "none"
        raise RemoteRefused(
            f"The server has {len(names)} models that are ready: {found}",
            where=line.where,
            fix=fix,
        )
    return str(names[0])


class RemoteSession:
    """A model on another box. Safe to share between threads; connections are kept alive."""

    def __init__(
        self,
        line: _Line,
        model: str,
        server: Mapping[str, Any],
        metadata: Any,
        bundle: Bundle | None,
    ) -> None:
        self._line = line
        self._model = model
        self._binary = BINARY_EXTENSION in _strings(server.get("extensions"))
        self._types = _tensors(metadata, "inputs", line.where)
        self._outputs = bundle.manifest.outputs if bundle is not None else OUTPUTS
        given = _tensors(metadata, "outputs", line.where)
        missing = [name for name in self._outputs if name not in given]
        if missing:
            raise RemoteRefused(
                f"The server's model {_printable(model)} does not give {', '.join(missing)}",
                where=line.where,
                fix="Serve a bundle for extractive question answering",
            )
        parameters = metadata.get("parameters")
        facts = parameters if isinstance(parameters, dict) else {}
        self.placement = Placement(
            requested=line.where,
            provider=_said(facts, "provider") or _said(server, "name") or "unknown",
            device=_said(facts, "device") or "unknown",
            precision=_said(facts, "precision") or "unknown",
            threads=None,
            location=line.where,
            reason=f"model {_printable(model)} of an inference server",
            warnings=_doubts(facts, bundle, line.where),
        )

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(self._types)

    def run(self, feeds: Feeds, *, timeout: float | None = None) -> Outputs:
        """See `runtime.sessions.Session.run`.

        Raises:
            RunTimedOut: no answer in `timeout` seconds.
            RemoteUnavailable: the other box is gone, or does not answer in the session's time.
            RemoteRefused: it answered with an error, or with something else than logits.
        """
        missing = [name for name in self._types if name not in feeds]
        if missing:
            raise SessionError(
                f"The model needs {', '.join(missing)}, which was not fed",
                where=self._line.where,
                fix="Use the tokenizer of the bundle that is served",
            )
        tensors = {name: feeds[name].astype(dtype) for name, dtype in self._types.items()}
        wanted = [
            {"name": name, "parameters": {"binary_data": True}} if self._binary else {"name": name}
            for name in self._outputs
        ]
        message = encode(
            {"outputs": wanted}, "inputs", tensors, tensors.keys() if self._binary else ()
        )
        headers = {"Content-Type": "application/json"}
        if message.header_length is not None:
            headers = {
                "Content-Type": "application/octet-stream",
                HEADER_LENGTH: str(message.header_length),
            }
        shape = next(iter(tensors.values())).shape
        reply = self._line.send(
            "POST",
            f"v2/models/{quote(self._model, safe='')}/infer",
            content=message.body,
            headers=headers,
            timeout=timeout,
            limit=_HEADER_ROOM + _BYTES_A_NUMBER * len(self._outputs) * shape[0] * shape[1],
        )
        return self._logits(reply, shape)

    def close(self) -> None:
        """See `runtime.sessions.Session.close`."""
        self._line.close()

    def _logits(self, reply: _Reply, shape: tuple[int, ...]) -> Outputs:
        try:
            received = decode(reply.body, reply.header_length, "outputs").tensors
        except MalformedMessage as error:
            raise _unreadable(str(error), self._line.where) from error
        outputs: Outputs = {}
        for name in self._outputs:
            if name not in received or received[name].shape != shape:
                raise _unreadable(f"no {name} of shape {list(shape)}", self._line.where)
            if received[name].dtype.kind != "f":
                raise _unreadable(f"{name} holds no floating-point numbers", self._line.where)
            outputs[name] = received[name].astype(np.float32)
        return outputs


def _tensors(metadata: Any, key: str, where: str) -> dict[str, np.dtype[Any]]:
    """Names and types of a model's inputs or outputs, from its metadata."""
    try:
        return {str(entry["name"]): DATATYPES[entry["datatype"]] for entry in metadata[key]}
    except (KeyError, TypeError) as error:
        raise _unreadable(f"the model's {key} are not described: {error!r}", where) from error


def _doubts(facts: Mapping[str, Any], bundle: Bundle | None, where: str) -> tuple[str, ...]:
    """What is not known of the tokenizer there.

    Raises:
        BundleIncompatible: it is known to be another one.
    """
    if bundle is None:
        return ()
    theirs = facts.get("tokenizer_sha256")
    if not isinstance(theirs, str):
        return ("the server does not say which tokenizer its model was made for",)
    if theirs != bundle.tokenizer_sha256:
        raise BundleIncompatible(
            f"The server's model was made for another tokenizer than bundle {bundle.manifest.name}",
            where=where,
            fix="Use a copy of the bundle that is served",
        )
    return ()


def _unreadable(detail: str, where: str) -> RemoteRefused:
    return RemoteRefused(
        f"The server's answer cannot be used: {_printable(detail)}",
        where=where,
        fix="Check that it serves a bundle by the Open Inference Protocol v2",
    )


@dataclass(frozen=True, slots=True)
class _Reply:
    body: bytes
    header_length: str | None


class _Line:
    """Requests to one server; httpx's errors and HTTP statuses become ours."""

    def __init__(self, base: httpx.URL, token: str | None, timeout: float) -> None:
        self.where = str(base)
        self._timeout = timeout
        self._has_token = token is not None
        self._client = httpx.Client(
            base_url=base,
            headers={
                "Accept-Encoding": "identity",  # so that the limit on a reply is one on memory
                **({"Authorization": f"Bearer {token}"} if token is not None else {}),
            },
            # Neither proxies nor .netrc: the address named is the address asked.
            trust_env=False,
            transport=httpx.HTTPTransport(
                retries=1,
                verify=ssl.create_default_context() if base.scheme == "https" else False,
            ),
        )

    def get_json(self, path: str) -> dict[str, Any]:
        value = self.json(self.send("GET", path))
        if not isinstance(value, dict):
            raise _unreadable(f"{path} is not a JSON object", self.where)
        return value

    def json(self, reply: _Reply) -> Any:
        try:
            return json.loads(reply.body)
        except (ValueError, RecursionError) as error:
            raise _unreadable("it is not JSON", self.where) from error

    def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        limit: int = _HEADER_ROOM,
    ) -> _Reply:
        """One request; the body of its answer, at most `limit` bytes.

        Raises:
            RunTimedOut: no answer in the `timeout` given here.
            RemoteUnavailable: no answer, or the server is busy or starting.
            RemoteRefused: an error for an answer.
        """
        seconds = self._timeout if timeout is None else timeout
        waits = httpx.Timeout(seconds, connect=min(seconds, CONNECT_TIMEOUT))
        try:
            with self._client.stream(
                method, path, content=content, headers=headers, timeout=waits
            ) as response:
                body = self._read(response, limit)
        except httpx.ConnectTimeout as error:
            raise self._unavailable("does not answer") from error
        except httpx.TimeoutException as error:
            if timeout is not None:
                raise RunTimedOut(
                    f"The server did not answer in {seconds:g} s", where=self.where
                ) from error
            raise self._unavailable(f"did not answer in {seconds:g} s") from error
        except httpx.HTTPError as error:
            raise self._unavailable(f"cannot be reached: {_printable(_reason(error))}") from error
        except RuntimeError as error:  # httpx's word for a client that was closed
            raise SessionError("The session is closed", where=self.where) from error
        if response.status_code != httpx.codes.OK:
            raise self._refused(response.status_code, body)
        return _Reply(body, response.headers.get(HEADER_LENGTH))

    def close(self) -> None:
        self._client.close()

    def _read(self, response: httpx.Response, limit: int) -> bytes:
        body = bytearray()
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > limit:
                raise _unreadable(f"it is longer than {limit} bytes", self.where)
        return bytes(body)

    def _unavailable(self, what: str) -> RemoteUnavailable:
        return RemoteUnavailable(
            f"The inference server {what}",
            where=self.where,
            fix="Check that the other box is on, `specrag node` runs there, and the address",
        )

    def _refused(self, status: int, body: bytes) -> SessionError:
        if status == httpx.codes.UNAUTHORIZED:
            what = "does not accept the token" if self._has_token else "asks for a token"
            return RemoteRefused(
                f"The inference server {what}",
                where=self.where,
                fix="Give the token that the server was started with",
            )
        if status in (
            httpx.codes.BAD_GATEWAY,
            httpx.codes.SERVICE_UNAVAILABLE,
            httpx.codes.GATEWAY_TIMEOUT,
        ):
            return self._unavailable(f"is not ready (HTTP {status})")
        said = _error_text(body)
        return RemoteRefused(
            f"The inference server answered with an error (HTTP {status}){said}",
            where=self.where,
            fix="Check the model's name and that the same bundle is used on both boxes",
        )


def _error_text(body: bytes) -> str:
    try:
        said = json.loads(body)["error"]
    except (ValueError, TypeError, KeyError, RecursionError):
        return ""
    return f": {_printable(str(said))}"


def _reason(error: Exception) -> str:
    """An error's words without the number that the system gives it."""
    return re.sub(r"^\[Errno -?\d+\] ", "", str(error))


def _printable(text: str) -> str:
    """Another machine's words, fit for a terminal: one line, no control characters."""
    return "".join(c for c in " ".join(text.split()) if c.isprintable())[:300]


def _strings(value: Any) -> list[str]:
    return [entry for entry in value if isinstance(entry, str)] if isinstance(value, list) else []


def _said(facts: Mapping[str, Any], key: str) -> str | None:
    value = facts.get(key)
    return _printable(value) if isinstance(value, str) and value else None
