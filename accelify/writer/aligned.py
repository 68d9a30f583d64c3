"""Lines of a call that stand below its first argument, and go on to do so where the name of what is called changes.

print(f"{epoch}: "             ->  accelerator.print(f"{epoch}: "
      f"{loss:.3f}")                                f"{loss:.3f}")
"""

from __future__ import annotations

from typing import Any

import libcst as cst


def aligned(call: cst.Call, old: cst.BaseExpression, column: int, indent: int) -> cst.Call:
    """A call as it is written now.

    Args:
        call: with another function than before.
        old: the function of before.
        column: of its first argument, in the line of its bracket.
        indent: of the statement around it.
    """
    before, now = (cst.Module(()).code_for_node(one) for one in (old, call.func))
    moved = _Moved(column, indent, len(now) - len(before))
    if not moved.by or "\n" in before + now:
        return call
    args = [arg.visit(moved) for arg in call.args]
    return call.with_changes(args=args) if moved.lines and not moved.hanging else call


class _Moved(cst.CSTTransformer):
    """Moves the beginnings of lines to the right; `hanging` once one stands further left than the column."""

    def __init__(self, column: int, indent: int, by: int) -> None:
        super().__init__()
        self.column, self.indent, self.by = column, indent, by
        self.lines, self.hanging = 0, False

    def leave_ParenthesizedWhitespace(self, original_node: Any, updated_node: Any) -> Any:
        space = updated_node.last_line.value
        width = len(space) + (self.indent if updated_node.indent else 0)
        self.lines += 1
        self.hanging = self.hanging or width < self.column or bool(space.strip(" "))
        spaces = cst.SimpleWhitespace(" " * max(len(space) + self.by, 0))
        return updated_node.with_changes(last_line=spaces)
