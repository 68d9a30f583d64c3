"""Imports from one module that several edits bring to one place: one line for all of them.

from accelify.runtime import Accelerator       ->  from accelify.runtime import Accelerator, gather_object
from accelify.runtime import gather_object
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelify.edits import Replace

_IMPORT = re.compile(r"(\s*from [\w.]+ import )(\w+(?:, \w+)*)(\s*)")
_LONGEST_LINE = 100


def join_imports(replaces: list[Replace]) -> list[Replace]:
    """Replacements in order, with imports that stand one below the other and are from one module in one line."""
    joined: list[Replace] = []
    for edit in replaces:
        found = _joined(joined[-1], edit) if joined else None
        if found is None:
            joined.append(edit)
        else:
            joined[-1] = found
    return joined


def _joined(first: Replace, second: Replace) -> Replace | None:
    """Two insertions as one, where both are imports from one module at one place."""
    if not first.start == first.end == second.start == second.end:
        return None
    one, other = _IMPORT.fullmatch(first.text), _IMPORT.fullmatch(second.text)
    if one is None or other is None or one[1].strip() != other[1].strip():
        return None
    names = sorted({*one[2].split(", "), *other[2].split(", ")})
    text = f"{one[1]}{', '.join(names)}{other[3]}"
    return replace(first, text=text) if len(text.strip()) <= _LONGEST_LINE else None
