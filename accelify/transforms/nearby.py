"""Functions that one parameter more brings the Accelerator to, for what they only show."""

from __future__ import annotations

from accelify.analysis.scopes import Scope
from accelify.transforms.base import Context


def is_called_within_reach(context: Context, home: Scope) -> bool:
    """Whether whoever calls a function, or makes objects of a class, has the Accelerator at hand."""
    init = next((s for s in home.children.values() if s.name.endswith("__init__")), None)
    calls = context.script.callers(home if home.kind == "function" else init or home)
    return home.kind != "module" and bool(calls) and all(map(context.reaches_cheaply, calls))
