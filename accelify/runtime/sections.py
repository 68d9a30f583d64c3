"""Checks of a configuration file's sections as they reach the engines' plugins: known keys, values that can be."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_TRUE = ("true", "yes", "1", "on")
_FALSE = ("false", "no", "0", "off")


def near(word: str, known: Iterable[str]) -> str:
    """A sentence's tail that names what was meant, or what is known."""
    import difflib

    known = list(known)
    close = difflib.get_close_matches(word, known, 1, 0.6)
    return f"did you mean {close[0]}?" if close else f"known are {', '.join(known)}"


def without_prefix(
    section: Mapping[str, Any], prefix: str, known: Iterable[str], name: str
) -> dict[str, Any]:
    """A section's values by key without `prefix`; those that say nothing (None, empty text) are left out.

    Args:
        section: as it is in the file; keys may have the prefix or not.
        prefix: such as "fsdp_".
        known: keys without the prefix.
        name: of the section, for errors.

    Raises:
        ValueError: an unknown key, with the nearest known one.
    """
    known = list(known)
    found = {}
    for key, value in section.items():
        short = str(key)
        if short.startswith(prefix) and short not in known:
            short = short.removeprefix(prefix)
        if short not in known:
            raise ValueError(
                f"{name} has no key {key!r}: {near(prefix + short, [prefix + k for k in known])}"
            )
        if value is not None and value != "":
            found[short] = value
    return found


def as_bool(value: Any, key: str) -> bool:
    """True or false, also as text; ValueError for anything else."""
    text = str(value).lower()
    if text in _TRUE or text in _FALSE:
        return text in _TRUE
    raise ValueError(f"{key} must be true or false, not {value!r}")


def as_int(value: Any, key: str, least: int = 0) -> int:
    """A whole number of at least `least`, also as text; ValueError for anything else."""
    try:
        number = int(float(value)) if not isinstance(value, bool) else None
    except (TypeError, ValueError, OverflowError):
        number = None
    if number is None or number < least or float(value) != number:
        raise ValueError(f"{key} must be a whole number of at least {least}, not {value!r}")
    return number


def as_choice(value: Any, key: str, choices: Iterable[str]) -> str:
    """One of some words, in any case; ValueError for another, with the nearest."""
    choices = list(choices)
    for choice in choices:
        if str(value).lower() == choice.lower():
            return choice
    import difflib

    known = {choice.lower(): choice for choice in choices}
    close = difflib.get_close_matches(str(value).lower(), known, 1, 0.6)
    hint = f"did you mean {known[close[0]]}?" if close else f"known are {', '.join(choices)}"
    raise ValueError(f"{key} cannot be {value!r}: {hint}")
