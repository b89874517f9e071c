"""Bodies of the Open Inference Protocol v2: what is written is read back, and nothing else is."""

from __future__ import annotations

import contextlib
import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from runtime.protocol import DATATYPES, MalformedMessage, decode, encode, is_loopback

SHAPES = arrays.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=5)


def _arrays(datatype: str) -> st.SearchStrategy[NDArray[Any]]:
    dtype = DATATYPES[datatype]
    if dtype.kind == "i":
        return arrays.arrays(dtype, SHAPES)
    width = dtype.itemsize * 8
    finite = st.floats(width=width, allow_nan=False, allow_infinity=False)  # type: ignore[arg-type]
    return arrays.arrays(dtype, SHAPES, elements=finite)


@given(st.sampled_from(sorted(DATATYPES)).flatmap(_arrays), st.booleans())
def test_arrays_come_back_bit_for_bit(values: NDArray[Any], binary: bool) -> None:
    message = encode({"id": "7"}, "inputs", {"x": values}, ["x"] if binary else [])
    length = None if message.header_length is None else str(message.header_length)
    received = decode(message.body, length, "inputs")
    assert received.header["id"] == "7"
    assert received.tensors["x"].dtype == values.dtype
    assert received.tensors["x"].shape == values.shape
    assert received.tensors["x"].tobytes() == values.tobytes()


def test_some_arrays_as_bytes_and_some_as_json() -> None:
    tensors = {name: np.arange(i + 2, dtype="<i8") for i, name in enumerate("abc")}
    message = encode({}, "outputs", tensors, ["a", "c"])
    received = decode(message.body, str(message.header_length), "outputs")
    for name, values in tensors.items():
        np.testing.assert_array_equal(received.tensors[name], values)


def test_json_data_may_be_nested() -> None:
    entry = {"name": "x", "shape": [2, 2], "datatype": "INT64", "data": [[1, 2], [3, 4]]}
    received = decode(json.dumps({"inputs": [entry]}).encode(), None, "inputs")
    assert received.tensors["x"].tolist() == [[1, 2], [3, 4]]


def test_what_json_cannot_say_is_not_sent() -> None:
    for value in (math.nan, math.inf):
        with pytest.raises(MalformedMessage, match="not finite"):
            encode({}, "outputs", {"x": np.array([value], np.float32)}, [])
    with pytest.raises(MalformedMessage, match="no type"):
        encode({}, "outputs", {"x": np.array([1j])}, [])


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "shape": [1, 2], "datatype": "INT64", "data": [1, 2], **changes}


@pytest.mark.parametrize(
    ("body", "length"),
    [
        (b"", None),
        (b"\xff\xfe", None),
        (b"null", None),
        (b"[" * 100_000, None),
        (b"{}", None),
        (b'{"inputs": {}}', None),
        (b'{"inputs": [3]}', None),
        (json.dumps({"inputs": [entry()]}).encode(), "9999"),
        (json.dumps({"inputs": [entry()]}).encode(), "-1"),
        (json.dumps({"inputs": [entry()]}).encode(), "٣"),
        (json.dumps({"inputs": [entry()]}).encode() + b"xx", None),
    ],
)
def test_bodies_that_do_not_follow_the_protocol(body: bytes, length: str | None) -> None:
    with pytest.raises(MalformedMessage):
        decode(body, length, "inputs")


@pytest.mark.parametrize(
    "changes",
    [
        {"name": 3},
        {"shape": None},
        {"shape": [1, -2]},
        {"shape": [True, 2]},
        {"shape": [1, 2**40]},
        {"shape": [1, 3]},
        {"shape": [2**30, 2**30, 2**30]},
        {"datatype": "BYTES"},
        {"datatype": ["INT64"]},
        {"data": None},
        {"data": "12"},
        {"data": ["1", "2"]},
        {"data": [1.5, 2.0]},
        {"data": [True, False]},
        {"data": [[1], [2, 3]]},
        {"data": [1, 2**63]},
        {"data": [1, 10**400]},
        {"data": [1, None]},
        {"datatype": "INT32", "data": [1, 2**31]},
        {"parameters": {"binary_data_size": 16}},
        {"parameters": {"binary_data_size": -1}},
        {"parameters": {"binary_data_size": "16"}},
    ],
    ids=str,
)
def test_entries_that_do_not_follow_the_protocol(changes: dict[str, Any]) -> None:
    with pytest.raises(MalformedMessage):
        decode(json.dumps({"inputs": [entry(**changes)]}).encode(), None, "inputs")


def test_an_array_is_named_once() -> None:
    with pytest.raises(MalformedMessage, match="twice"):
        decode(json.dumps({"inputs": [entry(), entry()]}).encode(), None, "inputs")


@given(st.data())
def test_a_damaged_body_is_malformed_and_no_worse(data: st.DataObject) -> None:
    """Fuzzing: whatever bytes change, only `MalformedMessage` comes out of the reader."""
    tensors = {"x": np.arange(6, dtype="<i8").reshape(2, 3), "y": np.ones(2, "<f4")}
    message = encode({"id": "1"}, "inputs", tensors, data.draw(st.sampled_from([["x"], []])))
    body = bytearray(message.body)
    for _ in range(data.draw(st.integers(1, 4))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    length = None if message.header_length is None else str(message.header_length)
    with contextlib.suppress(MalformedMessage):
        decode(bytes(body[: data.draw(st.integers(0, len(body)))]), length, "inputs")


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("localhost", True),
        ("LOCALHOST", True),
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("[::1]", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org", False),
        ("", False),
    ],
)
def test_what_stays_on_this_machine(host: str, expected: bool) -> None:
    assert is_loopback(host) == expected
