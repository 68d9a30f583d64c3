"""Functions that get the Accelerator by one more parameter, only to show something."""

from __future__ import annotations

from accelify.analysis.scopes import Scope
from accelify.transforms.base import Context


def is_called_within_reach(context: Context, home: Scope) -> bool:
    """Whether every caller of a function, or every place that makes objects of a class, has the Accelerator."""
    init = next((s for s in home.children.values() if s.name.endswith("__init__")), None)
    calls = context.script.callers(home if home.kind == "function" else init or home)
    return home.kind != "module" and bool(calls) and all(map(context.reaches_cheaply, calls))
