"""A child for tests of the sandbox: does what it is told, harm included."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable

from runtime.sandbox import Message, serve


def main() -> None:
    """Serve requests."""
    serve(_answer)


def _answer(request: Message, send: Callable[[Message], None]) -> Message:
    what = request["do"]
    if what == "hang":
        time.sleep(60)
    elif what == "die":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif what == "extend":
        send({"extend": 20.0})
        time.sleep(2.5)
        return {"done": True}
    elif what == "print":
        print("x" * 100_000, flush=True)
    elif what in ("pid", "retire"):
        return {"pid": os.getpid(), "retire": what == "retire"}
    return {"text": request["text"]}
