"""TensorBoard's event files: the values of each tag, without the times at which they were written.

The framing is TFRecord's, the content protocol buffers; of both only what scalars, texts and pictures need is read.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

from accelify.verify.compare.arrays import Array
from accelify.verify.compare.documents import Text

_TYPES = {1: "<f4", 2: "<f8", 3: "<i4", 9: "<i8", 10: "|b1"}
_STRINGS = 7


def records(data: bytes) -> Iterator[bytes]:
    """The records of a file; one that is cut off ends it.

    Raises:
        ValueError: the first record is not one.
    """
    position = 0
    while position + 12 <= len(data):
        (length,) = struct.unpack_from("<Q", data, position)
        if length > len(data) - position - 16:
            if position == 0:
                raise ValueError("not an event file")
            return
        yield data[position + 12 : position + 12 + length]
        position += length + 16


def fields(message: bytes) -> Iterator[tuple[int, Any]]:
    """Number and value of each field of a message: an int, or bytes for what has a length or a fixed size."""
    position = 0
    while position < len(message):
        key, position = _varint(message, position)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, position = _varint(message, position)
            yield number, value
        else:
            if kind == 2:
                size, position = _varint(message, position)
            else:
                size = {1: 8, 5: 4}.get(kind, -1)
            if size < 0 or position + size > len(message):
                raise ValueError("not a message")
            yield number, message[position : position + size]
            position += size


def _varint(data: bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("not a message")
        byte = data[position]
        value |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return value, position


def read_events(data: bytes) -> dict[str, list[Any]]:
    """Tag to its values in order, each with its step.

    Raises:
        ValueError: it is no event file.
    """
    tags: dict[str, list[Any]] = {}
    first = True
    for record in records(data):
        step, summaries, version = 0, [], False
        for number, value in fields(record):
            if number == 2:
                step = value
            elif number == 3:
                version = True
            elif number == 5:
                summaries.append(value)
        if first and not version:
            raise ValueError("not an event file")
        first = False
        for summary in summaries:
            for number, value in fields(summary):
                if number == 1:
                    tag, content = _value(value)
                    tags.setdefault(tag, []).append({"step": _signed(step), "value": content})
    return tags


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _value(message: bytes) -> tuple[str, Any]:
    tag, content = "", None
    for number, value in fields(message):
        if number == 1 and isinstance(value, bytes):
            tag = value.decode(errors="replace")
        elif number == 2 and len(value) == 4:
            (content,) = struct.unpack("<f", value)
        elif number == 4:
            content = _image(value)
        elif number == 5:
            content = _histogram(value)
        elif number == 8:
            content = _tensor(value)
    return tag, content


def _image(message: bytes) -> Any:
    return next((value for number, value in fields(message) if number == 4), b"")


def _histogram(message: bytes) -> list[Any]:
    """Least, most, number, sum, sum of squares; bounds and counts of the buckets."""
    parts: list[Any] = []
    for _, value in fields(message):
        if isinstance(value, bytes) and len(value) % 8 == 0:
            numbers = list(struct.unpack(f"<{len(value) // 8}d", value))
            parts.append(numbers[0] if len(numbers) == 1 else numbers)
        else:
            parts.append(value)
    return parts


def _tensor(message: bytes) -> Any:
    dtype, content = 0, b""
    strings: list[Text] = []
    numbers: list[float] = []
    for number, value in fields(message):
        if number == 1:
            dtype = value
        elif number == 4:
            content = value
        elif number == 5:
            numbers += struct.unpack(f"<{len(value) // 4}f", value)
        elif number == 6:
            numbers += struct.unpack(f"<{len(value) // 8}d", value)
        elif number == 8:
            strings.append(Text(value.decode(errors="replace")))
    if dtype == _STRINGS:
        return strings
    if content and dtype in _TYPES:
        size = int(_TYPES[dtype][2:])
        return Array(_TYPES[dtype], (len(content) // size,), content)
    return numbers[0] if len(numbers) == 1 else numbers
