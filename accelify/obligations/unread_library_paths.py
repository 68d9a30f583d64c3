"""Paths that a function of an unread library is handed, which may read there or write."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.heap.paths import file_of, forms_of
from accelify.heap.run import Event


def writes_below(event: Event, events: Sequence[Event]) -> bool:
    """Whether a call writes to the path that it is handed: nothing takes its result, and the path lies below a folder
    that the script makes.

    Args:
        event: the call.
        events: all of the script.
    """
    assert event.path is not None
    forms, tree = forms_of(event.path), event.module.tree
    folders = {file_of(one.path) for one in events if one.kind == "folder.make"} - {""}
    below = any(form == one or form.startswith(f"{one}/") for form in forms for one in folders)
    return below and any(
        isinstance(one, ast.Expr) and one.value is event.node
        for one in (ast.walk(tree) if tree is not None else ())
    )
