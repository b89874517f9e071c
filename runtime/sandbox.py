"""A child process that may die: requests in, replies out, bounded in time and in what it says.

`Sandbox` keeps a few idle children and feeds them one request after another, so that a file costs
no start of a process. A child that overstays, says too much or dies is replaced; the parent only
ever sees one of the exceptions below. Messages are JSON with a length before them (no pickle:
nothing that a hostile file makes the child say can run here). Memory is bounded in the child, by
`setrlimit`, before it touches a file.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_HEADER = 4
_CHUNK = 1 << 20
_START_SECONDS = 60.0  # for a start on a busy machine; a request's time counts from then on
Message = dict[str, Any]


class ChildDied(Exception):
    """The child ended without a reply; `signal` is the signal that ended it, if one did."""

    def __init__(self, signal: int | None) -> None:
        super().__init__(f"signal {signal}" if signal else "no reply")
        self.signal = signal


class ChildNotStarted(Exception):
    """No child could be started: nothing that the request did."""


class ChildTimedOut(Exception):
    """No reply in time; the child was killed."""


class ChildSaidTooMuch(Exception):
    """A reply over its limit; the child was killed before it was read."""


@dataclass(eq=False)
class _Child:
    """One running child. Used by one thread at a time."""

    process: subprocess.Popen[bytes]
    pid_of_parent: int = field(default_factory=os.getpid)

    def send(self, message: Message) -> None:
        stdin = self.process.stdin
        assert stdin is not None
        stdin.write(_framed(encode(message)))
        stdin.flush()

    def receive(self, deadline: float, limit: int) -> Message:
        size = int.from_bytes(self._read(_HEADER, deadline), "big")
        if size > limit:
            raise ChildSaidTooMuch
        return decode(self._read(size, deadline))

    def _read(self, size: int, deadline: float) -> bytes:
        stdout = self.process.stdout
        assert stdout is not None
        data = bytearray()
        while len(data) < size:
            remaining = deadline - time.monotonic()
            poll = select.poll()
            poll.register(stdout, select.POLLIN | select.POLLHUP)
            if remaining <= 0 or not poll.poll(remaining * 1000):
                raise ChildTimedOut
            chunk = os.read(stdout.fileno(), min(size - len(data), _CHUNK))
            if not chunk:
                raise ChildDied(self._signal())
            data += chunk
        return bytes(data)

    def _signal(self) -> int | None:
        code = self.process.wait()
        return -code if code < 0 else None

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):  # a request it never read
                    stream.close()


class Sandbox:
    """Children that run `module`'s `main()`, reused; safe to call from several threads.

    Args:
        module: import name of the child's module, which must call `serve`.
        keep: idle children kept for the next request.
    """

    def __init__(self, module: str, *, keep: int = 4) -> None:
        self._module = module
        self._keep = keep
        self._idle: list[_Child] = []
        self._working: set[_Child] = set()
        self._lock = threading.Lock()
        atexit.register(self.close)

    def call(self, request: Message, *, seconds: float, output_bytes: int) -> Message:
        """The child's reply to `request`.

        A reply with `extend` set is not the last: it moves the deadline to that many seconds from
        now, once. A reply with `retire` set ends the child.

        Raises:
            ChildDied, ChildTimedOut, ChildSaidTooMuch: the child is gone, nothing else happened.
            ChildNotStarted: there was none to begin with.
        """
        child = self._take()
        try:
            try:
                child.send(request)
            except BrokenPipeError:  # it died while it was idle: not this request's fault
                self._end(child)
                child = self._start()
                child.send(request)
            deadline = time.monotonic() + seconds
            reply = child.receive(deadline, output_bytes)
            if "extend" in reply:
                deadline = time.monotonic() + float(reply["extend"])
                reply = child.receive(deadline, output_bytes)
        except BrokenPipeError:
            self._end(child)
            raise ChildDied(None) from None
        except BaseException:
            self._end(child)
            raise
        self._give_back(child, retire=bool(reply.pop("retire", False)))
        return reply

    def close(self) -> None:
        """End the idle children."""
        with self._lock:
            idle, self._idle = self._idle, []
        for child in idle:
            if child.pid_of_parent == os.getpid():
                child.close()

    def interrupt(self) -> None:
        """Kill the children at work, for callers who will not wait: their requests raise."""
        with self._lock:
            for child in self._working:
                if child.pid_of_parent == os.getpid():
                    child.process.kill()  # whoever waits for its reply closes it

    def _take(self) -> _Child:
        with self._lock:
            while self._idle:
                child = self._idle.pop()
                if child.pid_of_parent != os.getpid():
                    continue  # left over from before a fork
                if child.process.poll() is None:
                    self._working.add(child)
                    return child
                child.close()
        return self._start()

    def _give_back(self, child: _Child, *, retire: bool) -> None:
        with self._lock:
            self._working.discard(child)
            if not retire and len(self._idle) < self._keep:
                self._idle.append(child)
                return
        child.close()

    def _end(self, child: _Child) -> None:
        with self._lock:
            self._working.discard(child)
        child.close()

    def _start(self) -> _Child:
        root = Path(__file__).resolve().parent.parent
        # -P: the working folder may be the user's documents; no module is ever imported from it.
        program = (
            f"import sys; sys.path.append({str(root)!r}); import {self._module} as m; m.main()"
        )
        process = subprocess.Popen(
            [sys.executable, "-P", "-B", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        )
        child = _Child(process)
        with self._lock:
            self._working.add(child)
        try:
            child.receive(time.monotonic() + _START_SECONDS, _CHUNK)
        except BaseException as error:
            self._end(child)
            if isinstance(error, ChildDied | ChildTimedOut):
                raise ChildNotStarted from error
            raise
        return child


def encode(message: Message) -> bytes:
    """A message as it goes through the pipe; lone surrogates (odd file names) pass.

    The strings of a list `texts` follow the JSON, in which their lengths stand: to quote and to
    unquote them would cost several times as much.
    """
    texts = [text.encode("utf-8", "surrogatepass") for text in message.get("texts", ())]
    told = {**message, "texts": [len(text) for text in texts]} if texts else message
    head = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return b"".join((_framed(head), *texts))


def decode(body: bytes) -> Message:
    """The message that `encode` made these bytes of."""
    at = _HEADER + int.from_bytes(body[:_HEADER], "big")
    message: Message = json.loads(body[_HEADER:at].decode("utf-8", "surrogatepass"))
    texts = message.get("texts", [])
    for number, size in enumerate(texts):
        texts[number] = body[at : at + size].decode("utf-8", "surrogatepass")
        at += size
    return message


def _framed(data: bytes) -> bytes:
    """`data` behind its length."""
    return len(data).to_bytes(_HEADER, "big") + data


def serve(answer: Callable[[Message, Callable[[Message], None]], Message]) -> None:
    """The child's loop: "ready", then one request, one reply, until the parent closes the pipe.

    `answer(request, send)` may `send` one message with `extend` before it returns its reply.
    Standard output is moved aside first, so that a library that prints cannot break the protocol.
    """
    output = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 1)
    source = sys.stdin.buffer

    def send(message: Message) -> None:
        output.write(_framed(encode(message)))
        output.flush()

    send({"ready": True})
    while header := source.read(_HEADER):
        request = decode(source.read(int.from_bytes(header, "big")))
        send(answer(request, send))
