"""Texts of paths as far as they are known: what is not known of one is a `*`, as in `*/summary.json`.

What a configuration has under a name is not known either, and yet the same wherever it is asked for: the name stands
after the `*`, between two marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from accelify.domains.placement import Kind
from accelify.domains.replacing import replace
from accelify.heap.values import UNSET, Value

# How a reason ends that is a name which a process makes up.
TEMPORARY = "a temporary name"
_ANY, _MARK = "*", "\x01"
_NAMED = re.compile(f"{_MARK}[^{_MARK}]*{_MARK}")
# The name of a number that is made of how many there are of something.
_LENGTH = f"{_ANY}{_MARK}len{_MARK}"
_NO_NAME = re.compile(r"[^\w.-]+")
_LONGEST = 100
_AGAIN = re.compile(r"\*+")
# Kinds of devices between which a script chooses: where there is a GPU, it is that.
_DEVICES = ({"cuda", "cpu"}, {"cuda", "mps"})
_NUMBERED = re.compile(r"cuda:\d+")
_SLASHES = re.compile(r"/+")


def pattern(value: Value) -> str:
    """What is known of a value's text, with the names of what is not known and has one."""
    if isinstance(value.const, str | int | float) and not isinstance(value.const, bool):
        return str(value.const)
    return value.text or _ANY


def known_of(value: Value) -> str:
    """What is known of a value's text."""
    return _AGAIN.sub(_ANY, _NAMED.sub("", pattern(value)))


def named(value: Value, name: str) -> Value:
    """A value that is not known, with a name for it."""
    if value.text or not value.place.is_same or len(name) > _LONGEST:
        return value
    return replace(value, text=f"{_ANY}{_MARK}{_NO_NAME.sub('_', name)}{_MARK}")


def a_length(value: Value) -> Value:
    """A number of elements, with the name that it and what is made of it have."""
    return named(value, "len")


def of_length(values: Iterable[Value]) -> str:
    """The text of what is made of some values."""
    for value in values:
        if value.text == _LENGTH:
            return _LENGTH
    return ""


def goes_by_length(value: Value) -> bool:
    """Whether a number of elements is a part of a text."""
    return _LENGTH in value.text


def of_each(value: Value, line: int) -> Value:
    """What a loop goes over, with a name for it: another one in each round."""
    return named(value, f"each.{line}")


def goes_by_round(value: Value, line: int | None = None) -> bool:
    """Whether what a loop goes over is a part of a text: the loop of a line, or any."""
    number = r"\d+" if line is None else line
    return re.search(rf"{_MARK}each\.{number}[.{_MARK}]", value.text) is not None


def named_in(base: Value, value: Value, key: Any, whole: str = "") -> Value:
    """What something has under a name that is read of it.

    Args:
        base: of which it is read, such as a configuration.
        value: what is known of what it has there.
        key: the name.
        whole: a name for what it is read of that has none yet.
    """
    if value.const is not UNSET or not (base.text or whole) or not isinstance(key, str | int):
        return value
    begin = base.text[2:-1] if _NAMED.fullmatch(base.text[1:]) else "" if base.text else whole
    return named(value, f"{begin}.{key}") if begin else value


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


def forms_of(value: Value) -> list[str]:
    """The text of a path as far as it is known, and with the names of what is not known."""
    return [_SLASHES.sub("/", of(value)).removeprefix("./").rstrip("/") or "." for of in (known_of, pattern)]


def is_path(value: Value) -> bool:
    """Whether a value is known to be the name of a file, and no other text."""
    text = pattern(value)
    known = value.type == "pathlib.Path" or "/" in text or re.search(r"\.[a-z]\w{1,4}$", text)
    return bool(known) and "://" not in text and file_of(value) != ""


def file_of(value: Value | None) -> str:
    """The file or folder that a value names; "" where its own name is not known, not even by that of an option."""
    forms = forms_of(value) if value is not None else []
    return next((one for one in forms if re.search(r"\w", one.rpartition("/")[2])), "")


def is_temporary(value: Value | None) -> bool:
    """Whether a path is below a temporary name, which each process has for itself."""
    if value is None or value.place.kind is not Kind.OWN or value.why is None:
        return False
    return value.why.origin().text == TEMPORARY


def has_other_name(value: Value) -> bool:
    """Whether a path has another name on each process, or in each run, for what is the same."""
    return value.place.kind is Kind.CLOCK or is_temporary(value)
