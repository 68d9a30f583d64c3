"""Texts of paths as far as they are known: what is not known of one is a `*`, as in `*/summary.json`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile

from accelify.domains.replacing import replace
from accelify.heap.values import Value

_ANY = "*"
_AGAIN = re.compile(r"\*+")
# Kinds of devices between which a script chooses: where there is a GPU, it is that.
_DEVICES = ({"cuda", "cpu"}, {"cuda", "mps"})
_NUMBERED = re.compile(r"cuda:\d+")
_SLASHES = re.compile(r"/+")


def pattern(value: Value) -> str:
    """What is known of a value's text."""
    if isinstance(value.const, str | int | float) and not isinstance(value.const, bool):
        return str(value.const)
    return value.text or _ANY


def with_text(value: Value, parts: Iterable[str]) -> Value:
    """The same value with a text that is put together of parts."""
    text = _AGAIN.sub(_ANY, "".join(parts))
    return value if text == _ANY or text == value.text else replace(value, text=text)


def joined_path(value: Value, parts: Iterable[Value]) -> Value:
    """The same value as the path that parts make together."""
    texts = [pattern(part) for part in parts]
    last = max((number for number, text in enumerate(texts) if text.startswith("/")), default=0)
    return with_text(value, ["/".join(text for text in texts[last:] if text)])


def joined_text(left: Value, right: Value) -> str:
    """What is known of the text of one of two values: how both begin, as far as that says something of a file."""
    texts = [value.text or (value.const if isinstance(value.const, str) else "") for value in (left, right)]
    if set(texts) in _DEVICES:
        return "cuda"
    numbered = next((text for text in texts if _NUMBERED.fullmatch(text)), "")
    if numbered and {"cpu", "mps"} & set(texts):
        return numbered
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(*texts, strict=False))
    begin = "".join(letter for letter, _ in alike).partition(_ANY)[0]
    return f"{begin}{_ANY}" if re.search(r"\w", begin.rpartition("/")[2]) else ""


def words_of(value: Value) -> Iterator[str]:
    """The files that a command may name, as `file_of` gives them."""
    for word in re.split(r"[\s'\"]+", pattern(value)):
        name = file_of(Value(text=word))
        if name:
            yield name


def file_of(value: Value | None) -> str:
    """The file or folder that a value names; "" where no letter of its own name is known."""
    if value is None:
        return ""
    text = _SLASHES.sub("/", pattern(value)).removeprefix("./").rstrip("/")
    return text if re.search(r"\w", text.rpartition("/")[2]) else ""
