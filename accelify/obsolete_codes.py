"""Codes of rules that are no more, with those that represent what they were about."""

from __future__ import annotations

from collections.abc import Iterable

# None where what it said is a note of the report now.
REPLACED: dict[str, str | None] = {
    "ACC305": "ACC701",
    "ACC306": "ACC701",
    "ACC307": "ACC701",
    "ACC308": "ACC706",
    "ACC309": None,
    "ACC310": "ACC701",
    "ACC407": "ACC706",
    "ACC408": "ACC705",
    "ACC411": "ACC704",
    "ACC414": "ACC701",
    "ACC417": "ACC705",
    "ACC420": "ACC705",
    "ACC422": "ACC704",
    "ACC424": "ACC704",
    "ACC425": "ACC705",
    "ACC427": None,
    "ACC428": "ACC706",
    "ACC429": None,
    "ACC430": "ACC702",
    "ACC431": "ACC705",
}


def with_later_ones(codes: Iterable[str]) -> tuple[str, ...]:
    """Codes from a user's configuration or comment, with those that replaced some of them."""
    written = tuple(codes)
    return (*written, *(later for code in written if (later := REPLACED.get(code)) is not None))
