"""A script's own GradScaler, beside an Accelerator that may have another."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accelify.heap.run import Run

# What an Accelerator does with the precision of models.
PLAIN, CASTING = "plain", "casting"


def scales_alone(run: Run, name: str, node: ast.AST) -> bool:
    """Whether a GradScaler steps by itself, where the Accelerator is not set to scale: the loss is scaled once."""
    tree = run.module.tree
    if not name.endswith(".GradScaler") or run.accelerated != PLAIN or tree is None:
        return False
    every = list(ast.walk(tree))
    made = [one for one in every if isinstance(one, ast.Assign) and node in ast.walk(one.value)]
    names = {ast.unparse(target) for one in made for target in one.targets}
    calls = [one.func for one in every if isinstance(one, ast.Call) and isinstance(one.func, ast.Attribute)]
    return any(call.attr == "step" and ast.unparse(call.value) in names for call in calls)
