"""What a file holds, as values that can be compared: found out by its first bytes, then by its ending."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sqlite3
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from accelify.verify.compare.arrays import BFLOAT16, Array, numpy_array
from accelify.verify.compare.documents import Text
from accelify.verify.compare.eventfiles import read_events
from accelify.verify.compare.pickles import read_checkpoint, read_pickle

LARGEST = 1 << 31
"""Bytes of a file up to which it is taken apart."""
_SAFETENSORS = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": BFLOAT16, "I64": "<i8", "I32": "<i4", "I16": "<i2",
    "I8": "|i1", "U8": "|u1", "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "|b1",
}  # fmt: skip
_PICTURES = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*")
_PDF_STREAM = re.compile(rb"(?<!end)stream\r?\n(.*?)\r?\nendstream", re.DOTALL)
# Times, and what goes with the length of a stream: its own, that of all before it, the table of where each begins.
_PDF_CHANGING = re.compile(
    rb"/(?:CreationDate|ModDate) ?\([^)]*\)|/ID ?\[[^\]]*\]|/Length \d+|^\d+\s+endobj"
    rb"|^xref\b.*?(?=^trailer)|^startxref\s+\d+",
    re.DOTALL | re.MULTILINE,
)


class UnreadableError(Exception):
    """The file is of a format that is not read, or is damaged."""


class Picture:
    """Pixels; the values of all channels one after another."""

    def __init__(self, size: tuple[int, int], mode: str, data: bytes) -> None:
        self.size, self.mode, self.data = size, mode, data


def read(path: Path, name: str) -> Any:
    """The content of a file as nested values.

    Args:
        path: where it is.
        name: how the script calls it.

    Raises:
        UnreadableError: nothing can be compared in it.
    """
    try:
        if path.stat().st_size > LARGEST:
            raise UnreadableError
        return _read(path.read_bytes(), name, path)
    except (
        OSError,
        ValueError,
        RecursionError,
        MemoryError,
        struct.error,
        zipfile.BadZipFile,
        KeyError,
    ) as error:
        raise UnreadableError from error


def _read(data: bytes, name: str, path: Path | None = None) -> Any:
    ending = name.rsplit(".", 1)[-1].lower() if "." in name else ""
    if data[:4] == b"PK\x03\x04":
        return _archive(data)
    if data[:6] == b"\x93NUMPY":
        return numpy_array(data)
    if data.startswith(_PICTURES) or (data[:4] == b"RIFF" and data[8:12] == b"WEBP"):
        return _picture(data)
    if data[:16] == b"SQLite format 3\0":
        return _database(data)
    if data[:5] == b"%PDF-":
        return _pdf(data)
    if data[:2] == b"\x1f\x8b" or data[257:262] == b"ustar":
        return _packed(data, name)
    if "tfevents" in name:
        return read_events(data)
    if data[:1] == b"\x80" or data[:2] in (b"\x8a\x0a",):
        with contextlib.suppress(ValueError):
            return read_pickle(data)
    if ending == "safetensors" or (data[8:9] == b"{" and b"data_offsets" in data[:4096]):
        with contextlib.suppress(ValueError):
            return _safetensors(data)
    return _text(data, ending)


def _text(data: bytes, ending: str) -> Any:
    if b"\0" in data:
        raise UnreadableError
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin1")
        if any(ord(letter) < 32 and letter not in "\t\r\n\f\x1b" for letter in text):
            raise UnreadableError from None
    with contextlib.suppress(ValueError):
        if ending == "json" or text[:1] in "{[":
            return json.loads(text)
    if ending in ("jsonl", "ndjson"):
        with contextlib.suppress(ValueError):
            return [json.loads(line) for line in text.splitlines() if line.strip()]
    if ending in ("yaml", "yml") and (found := _yaml(text)) is not None:
        return found
    return [Text(line) for line in text.splitlines()]


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return None


def _archive(data: bytes) -> Any:
    archive = zipfile.ZipFile(io.BytesIO(data))
    names = archive.namelist()
    if any(name.rsplit("/", 1)[-1] == "data.pkl" for name in names):
        with contextlib.suppress(ValueError):
            return read_checkpoint(archive)
    return {
        name.removesuffix(".npy"): _member(archive.read(name), name) for name in names if name[-1:] != "/"
    }


def _packed(data: bytes, name: str) -> Any:
    with contextlib.suppress(tarfile.TarError, EOFError), tarfile.open(fileobj=io.BytesIO(data)) as archive:
        members = [member for member in archive.getmembers() if member.isfile()]
        read = {member.name: archive.extractfile(member) for member in members}
        return {key: _member(file.read(), key) for key, file in read.items() if file is not None}
    import gzip

    return _member(gzip.decompress(data), name.removesuffix(".gz"))


def _member(data: bytes, name: str) -> Any:
    try:
        return _read(data, name)
    except (UnreadableError, ValueError, struct.error):
        return data


def _safetensors(data: bytes) -> Any:
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8:
        raise ValueError("not a file of safetensors")
    header = json.loads(data[8 : 8 + length])
    found: dict[str, Any] = {"__metadata__": header.pop("__metadata__", None)}
    for name, entry in header.items():
        start, end = entry["data_offsets"]
        dtype = _SAFETENSORS.get(entry["dtype"])
        content = data[8 + length + start : 8 + length + end]
        found[name] = content if dtype is None else Array(dtype, tuple(entry["shape"]), content)
    return found


def _database(data: bytes) -> Any:
    """The rows of every table, in the order in which they were put in."""
    connection = sqlite3.connect(":memory:")
    try:
        # Its log may be beside it still; what is in the file by itself is what is compared.
        connection.deserialize(data[:18] + b"\x01\x01" + data[20:])
        listed = connection.execute("SELECT name FROM sqlite_master WHERE type='table' ORDER BY name")
        return {
            name: [list(row) for row in connection.execute(f'SELECT * FROM "{name}"')]
            for (name,) in listed.fetchall()
            if not name.startswith("sqlite_")
        }
    except (sqlite3.Error, AttributeError) as error:
        raise UnreadableError from error
    finally:
        connection.close()


def _pdf(data: bytes) -> Any:
    """The lines of what is drawn, whose numbers count as numbers, and the rest without what changes by itself."""
    found: list[Any] = [_PDF_CHANGING.sub(b"", _PDF_STREAM.sub(b"", data))]
    for stream in _PDF_STREAM.findall(data):
        with contextlib.suppress(zlib.error):
            stream = zlib.decompress(stream)
        drawn = b"\0" not in stream and stream.isascii()
        found.append([Text(line) for line in stream.decode().splitlines()] if drawn else stream)
    return found


def _picture(data: bytes) -> Picture:
    try:
        from PIL import Image
    except ImportError:
        raise UnreadableError from None
    try:
        with Image.open(io.BytesIO(data)) as picture:
            return Picture(picture.size, picture.mode, picture.tobytes())
    except Exception as error:
        # A damaged picture fails in any way.
        raise UnreadableError from error
