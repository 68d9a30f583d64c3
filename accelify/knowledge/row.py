"""One row of knowledge, and how it is read from the text of its line: `TRANSFER key=value ...`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

TRANSFERS = {
    "same": "equal on all ranks, whatever the arguments",
    "pure": "a function of its arguments, with no relation between their rows and those of the result",
    "rows": "row by row: a row of the result depends on the same row of the arguments",
    "linear": "row by row, and linear: sums and means pass through it",
    "reshaped": "the same values in another shape, rows first: view, flatten",
    "turned": "the same values with axes exchanged: t, transpose, permute",
    "plus": "the sum of its first two arguments, row by row",
    "minus": "the difference of its first two arguments, row by row",
    "times": "the product of its first two arguments, row by row",
    "over": "the quotient of its first two arguments, row by row",
    "joins": "the path that its arguments make together, or the text of one",
    "identity": "gives back its receiver or first argument itself",
    "sum": "adds up over an axis, or over everything",
    "mean": "the mean over an axis, or over everything",
    "max": "the maximum over an axis, or over everything",
    "min": "the minimum over an axis, or over everything",
    "any": "whether one is true, over an axis or over everything",
    "all": "whether all are true, over an axis or over everything",
    "count": "how many there are, over an axis or over everything",
    "reduce": "a figure of all rows that is not put together from those of parts by adding: median, std, norm",
    "loss": "the mean over rows, unless reduction= says sum or none",
    "cat": "puts the elements of a list together along an axis",
    "size": "how large its argument is",
    "draw": "random numbers",
    "clock": "what the clock says",
    "own": "another value on each rank, by its nature",
    "mix": "a row of the result depends on other rows of the arguments",
    "iterates": "an iterable with the elements of its first argument",
    "new": "makes an object",
    "none": "returns nothing",
    "read": "the content of a file, the same on all ranks as long as the path is",
    "unknown": "nothing is known of the result",
}
"""What becomes of the arguments, with what each word says."""
EFFECTS = (
    "terminal.write bar.show log.write file.write file.append file.read file.delete file.move folder.make "
    "folder.delete folder.fill folder.list tracker.start tracker.log tracker.end network.get network.send process.run "
    "random.seed state.write figure.show wait.input search.run"
).split()
KINDS = (
    "module loss loader dataset sampler optimizer scheduler scaler tracker bar file parser generator metric "
    "table figure object"
).split()
KEYS = "kind effect when unless path content mutates overwrites host axis returns place note".split()
PLACES = "host, device, default, or like:0 with the position of an argument"

_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)*")
# A name of a row: dotted, `?` for a receiver of unknown type, one `*` in the last word.
_NAME = re.compile(r"(?:\?\.|[^\W\d]\w*\.)*(?:[^\W\d]\w*|\w*(?:\*\w*)+)")
_ARGUMENT = re.compile(r"(?:(?P<position>\d+)(?:/|$))?(?P<name>[^\W\d]\w*)?(?::(?P<value>\w+))?")
_PLACE = re.compile(r"host|device|default|like:\d+")


class RowError(ValueError):
    """A row that makes no sense; the text says which one, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Argument:
    """Which argument of a call: `0/dim`, `dim` (by name only), `0` (by position only), `*`, `self`; `mode:off` is one
    with a certain text."""

    position: int | None
    """0-based, without self; None: by name only."""
    name: str | None
    every: bool = False
    """`*`: all arguments."""
    receiver: bool = False
    """`self`."""
    value: str | None = None
    """What it is, for `unless=` alone."""

    def __str__(self) -> str:
        if self.every or self.receiver:
            return "*" if self.every else "self"
        text = "/".join(str(part) for part in (self.position, self.name) if part is not None)
        return text if self.value is None else f"{text}:{self.value}"


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one function, method, attribute or class, or of all that a name with `*` covers."""

    name: str
    """"torch.Tensor.mean", "torch.nn.functional.*", "?.item"."""
    transfer: str
    """One of TRANSFERS."""
    kind: str = ""
    """For `new`: one of KINDS."""
    effect: str = ""
    """KIND.OPERATION, one of EFFECTS."""
    when: tuple[Argument, ...] = ()
    """The effect happens only where one of these arguments is given, and not false or None."""
    unless: tuple[Argument, ...] = ()
    """The effect does not happen where one of these arguments is given, and not false or None, or with its text."""
    path: tuple[Argument, ...] = ()
    content: tuple[Argument, ...] = ()
    """What the effect writes. With `mix`: whose rows meet those of the others. Of a loss: what weighs its rows."""
    mutates: tuple[Argument, ...] = ()
    overwrites: tuple[Argument, ...] = ()
    """What is written to in place, nothing of what was there staying."""
    host: tuple[Argument, ...] = ()
    """What has to lie on the host."""
    axis: Argument | None = None
    """The axis that it works along. Of a layer that takes one axis for the batch's: what says that it is the first, or
    the layer that it is made of."""
    returns: str = ""
    """Dotted name of the result's type; for `new`, the class itself; `self` is the type of the receiver."""
    place: str = ""
    """Where the result lies: host, device (argument device=), like:0 (with that argument), default."""
    note: str = ""
    """Words for a chain; else the function's name is used."""
    table: str = ""
    """File and line that the row stands in."""


def parse_row(name: str, text: str, table: str = "") -> Row:
    """The row `name` from `text`, which is `TRANSFER key=value ...`; `note=` runs to the end.

    Raises RowError, naming the row and what is allowed, for a text that makes no sense.
    """

    def wrong(what: str) -> RowError:
        return RowError(f"{table or 'rows'}: {name}: {what}")

    if not _NAME.fullmatch(name):
        raise wrong("a name is dotted words, with * in the last one only, as in mylogger.log or mylogger.*.")
    text, noted, note = text.partition(" note=")
    words = text.split()
    if not words:
        raise wrong(f"no transfer: write one of {', '.join(TRANSFERS)}.")
    transfer = words[0]
    if transfer not in TRANSFERS:
        raise wrong(f"{transfer!r} is no transfer: write one of {', '.join(TRANSFERS)}.")
    values: dict[str, Any] = {"note": note.strip()} if noted else {}
    for word in words[1:]:
        key, _, value = word.partition("=")
        if key not in KEYS or not value:
            meant = get_close_matches(key, KEYS, 1)
            hint = f"did you mean {meant[0]}=? " if meant and meant[0] != key else ""
            what = f"there is no key {key!r}" if value else f"{word!r} is no key=value"
            raise wrong(f"{what}: {hint}The keys are {', '.join(KEYS)}.")
        if key in values:
            raise wrong(f"{key}= stands twice: write several arguments as {key}=0/a,1/b.")
        values[key] = _READERS[key](value, wrong)
    row = Row(name, transfer, **values, table=table)
    if why := _senseless(row):
        raise wrong(why)
    return row


def is_name(name: str) -> bool:
    """Whether `name` is a dotted name without `*`."""
    return _DOTTED.fullmatch(name) is not None


def _senseless(row: Row) -> str:
    """Why the parts of a row do not go together; empty where they do."""
    if row.transfer == "new" and not row.kind:
        return f"new says of what kind: kind= one of {', '.join(KINDS)}."
    if row.kind and row.transfer != "new":
        return "kind= is for the transfer new alone."
    if (row.when or row.unless) and not row.effect:
        return f"when= and unless= say when an effect happens: add effect= one of {', '.join(EFFECTS)}."
    if any(
        one.value is not None for one in (*row.when, *row.path, *row.content, *row.mutates, *row.overwrites)
    ):
        return "an argument with a text, as in mode:off, is for unless= alone."
    if row.path and not row.effect:
        return f"path= is the path of an effect: add effect= one of {', '.join(EFFECTS)}."
    if row.content and not row.effect and row.transfer not in ("mix", "loss") and row.kind != "loss":
        return f"content= is what an effect writes: add effect= one of {', '.join(EFFECTS)}."
    if row.returns and row.transfer == "none":
        return "none returns nothing: leave returns= out, or write another transfer."
    return ""


def _one_of(what: str, allowed: Sequence[str]) -> Any:
    def read(value: str, wrong: Any) -> str:
        if value not in allowed:
            raise wrong(f"{value!r} is no {what}: write one of {', '.join(allowed)}.")
        return value

    return read


def _arguments(value: str, wrong: Any) -> tuple[Argument, ...]:
    return tuple(_argument(word, wrong) for word in value.split(","))


def _argument(word: str, wrong: Any) -> Argument:
    if word == "*":
        return Argument(None, None, every=True)
    if word == "self":
        return Argument(None, None, receiver=True)
    match = _ARGUMENT.fullmatch(word)
    if not word or match is None:
        raise wrong(f"{word!r} is no argument: write 0/name, 0, name, self, or * for all.")
    position = match["position"]
    return Argument(int(position) if position is not None else None, match["name"], value=match["value"])


def _axis(word: str, wrong: Any) -> Argument:
    argument = _argument(word, wrong)
    if argument.every or argument.receiver:
        raise wrong("axis= is one argument, as in axis=0/dim.")
    return argument


def _returns(value: str, wrong: Any) -> str:
    if not is_name(value):
        raise wrong(f"{value!r} is no type: write its dotted name, as in builtins.str.")
    return value


def _place(value: str, wrong: Any) -> str:
    if not _PLACE.fullmatch(value):
        raise wrong(f"{value!r} is no place: write {PLACES}.")
    return value


_READERS = {
    "kind": _one_of("kind", KINDS),
    "effect": _one_of("effect", EFFECTS),
    "when": _arguments,
    "unless": _arguments,
    "path": _arguments,
    "content": _arguments,
    "mutates": _arguments,
    "overwrites": _arguments,
    "host": _arguments,
    "axis": _axis,
    "returns": _returns,
    "place": _place,
}
