"""Arrays <-> bodies of the Open Inference Protocol v2 (KServe), JSON and its binary extension.

A body is a JSON header; with the extension (`binary_tensor_data`, as NVIDIA Triton laid it out)
the arrays follow it as little-endian bytes in the order of the header, and an HTTP header says
where the JSON ends. Both sides of the wire, runtime/remote.py and edge/node.py, use these.
"""

from __future__ import annotations

import ipaddress
import json
import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

HEADER_LENGTH = "Inference-Header-Content-Length"
BINARY_EXTENSION = "binary_tensor_data"
INDEX_EXTENSION = "model_repository"

DATATYPES: Mapping[str, np.dtype[Any]] = {
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
}
_NAMES = {dtype: name for name, dtype in DATATYPES.items()}


class MalformedMessage(ValueError):
    """A body that does not follow the protocol; the text says where."""


@dataclass(frozen=True, slots=True)
class Message:
    """One body. `header_length` is the size of its JSON in bytes, None if it is all JSON."""

    body: bytes
    header_length: int | None


@dataclass(frozen=True, slots=True)
class Received:
    """A body as it was read: its JSON header without the arrays' data, and the arrays by name."""

    header: dict[str, Any]
    tensors: dict[str, NDArray[Any]]


def encode(
    header: Mapping[str, Any],
    key: Literal["inputs", "outputs"],
    tensors: Mapping[str, NDArray[Any]],
    binary: Collection[str],
) -> Message:
    """A body with `tensors` under `key`; those named in `binary` go behind the JSON.

    Raises:
        MalformedMessage: a type that the protocol has no name for, or a number that JSON cannot
            say (infinities, not-a-number).
    """
    described, tail = [], bytearray()
    for name, values in tensors.items():
        little = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        if little.dtype not in _NAMES:
            raise MalformedMessage(f"{name}: the protocol has no type for {values.dtype}")
        datatype = _NAMES[little.dtype]
        entry: dict[str, Any] = {"name": name, "shape": list(values.shape), "datatype": datatype}
        if name in binary:
            raw = little.tobytes()
            entry["parameters"] = {"binary_data_size": len(raw)}
            tail += raw
        else:
            entry["data"] = little.ravel().tolist()
        described.append(entry)
    try:
        text = json.dumps({**header, key: described}, allow_nan=False).encode()
    except ValueError as error:
        raise MalformedMessage("a number that is not finite cannot be sent as JSON") from error
    return Message(text + bytes(tail), len(text) if binary else None)


def decode(body: bytes, header_length: str | None, key: Literal["inputs", "outputs"]) -> Received:
    """The arrays of a body.

    Args:
        header_length: the value of the HTTP header `Inference-Header-Content-Length`, if sent.

    Raises:
        MalformedMessage: it does not follow the protocol.
    """
    split = _split_at(body, header_length)
    header = _json(body[:split])
    described = header.get(key)
    if not isinstance(described, list):
        raise MalformedMessage(f"{key!r} is not a list")
    tensors: dict[str, NDArray[Any]] = {}
    for entry in described:
        name, shape, dtype = _description(entry, key)
        if name in tensors:
            raise MalformedMessage(f"{name!r} is there twice")
        size = _binary_size(entry)
        if size is None:
            tensors[name] = _from_json(name, entry.get("data"), shape, dtype)
        else:
            tensors[name] = _from_bytes(name, body[split : split + size], size, shape, dtype)
            split += size
    if split != len(body):
        raise MalformedMessage(f"{len(body) - split} bytes at the end belong to nothing")
    return Received(header, tensors)


def is_loopback(host: str) -> bool:
    """Whether `host`, a name or an address, stays on this machine."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _split_at(body: bytes, header_length: str | None) -> int:
    if header_length is None:
        return len(body)
    if not (header_length.isascii() and header_length.isdigit() and len(header_length) < 12):
        raise MalformedMessage(f"{HEADER_LENGTH} is not a number")
    length = int(header_length)
    if length > len(body):
        raise MalformedMessage(f"{HEADER_LENGTH} is {length}, the body has {len(body)} bytes")
    return length


def _json(text: bytes) -> dict[str, Any]:
    try:
        header = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise MalformedMessage(f"the body is not JSON: {error}") from error
    if not isinstance(header, dict):
        raise MalformedMessage("the body is not a JSON object")
    return header


def _description(entry: Any, key: str) -> tuple[str, tuple[int, ...], np.dtype[Any]]:
    if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
        raise MalformedMessage(f"an entry of {key!r} has no name")
    name, shape = entry["name"], entry.get("shape")
    if not isinstance(shape, list) or not all(_is_size(size) for size in shape):
        raise MalformedMessage(f"{name!r}: the shape is not a list of sizes")
    datatype = entry.get("datatype")
    if not isinstance(datatype, str) or datatype not in DATATYPES:
        raise MalformedMessage(f"{name!r}: the datatype is not one of {', '.join(DATATYPES)}")
    return name, tuple(shape), DATATYPES[datatype]


def _is_size(size: Any) -> bool:
    return isinstance(size, int) and not isinstance(size, bool) and 0 <= size < 2**31


def _binary_size(entry: dict[str, Any]) -> int | None:
    parameters = entry.get("parameters")
    if not isinstance(parameters, dict) or "binary_data_size" not in parameters:
        return None
    size = parameters["binary_data_size"]
    if not _is_size(size):
        raise MalformedMessage(f"{entry['name']!r}: binary_data_size is not a size")
    return int(size)


def _from_bytes(
    name: str, raw: bytes, size: int, shape: tuple[int, ...], dtype: np.dtype[Any]
) -> NDArray[Any]:
    if size != math.prod(shape) * dtype.itemsize or len(raw) != size:
        raise MalformedMessage(f"{name!r}: {len(raw)} bytes do not fill the shape {list(shape)}")
    return np.frombuffer(raw, dtype).reshape(shape)


def _from_json(name: str, data: Any, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    if not isinstance(data, list):
        raise MalformedMessage(f"{name!r} has no data")
    try:
        values = np.asarray(data)
        whole = values.dtype.kind in "iu" or not values.size
        if not (whole or (dtype.kind == "f" and values.dtype.kind == "f")):
            raise MalformedMessage(f"{name!r}: the data does not hold numbers of its datatype")
        if dtype.kind == "i" and values.size and not _fits(values, dtype):
            raise MalformedMessage(f"{name!r}: a number is too large for its datatype")
        return values.astype(dtype).reshape(shape)
    except MalformedMessage:
        raise
    except (ValueError, OverflowError, RecursionError) as error:
        raise MalformedMessage(f"{name!r}: the data does not fill the shape {shape}") from error


def _fits(values: NDArray[Any], dtype: np.dtype[Any]) -> bool:
    limits = np.iinfo(dtype)
    return bool(int(values.min()) >= limits.min and int(values.max()) <= limits.max)
