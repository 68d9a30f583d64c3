"""Names that `eval(TABLE[name])` chooses from: the texts of a table that the module writes out."""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import Tree, target_names

# Methods by which an object trains, where they are given something: `model.train()` only sets a mode.
_TRAINS = re.compile(r"^(train|fit|learn|run|optimi[sz]e|solve)", re.I)


def evaluated_names(tree: Tree, call: ast.Call) -> list[str]:
    """The names that a call of `eval` can stand for; none where its text is not an entry of such a table."""
    chosen = call.args[0] if call.args else None
    if not isinstance(chosen, ast.Subscript) or not isinstance(chosen.value, ast.Name):
        return []
    made = [
        stmt.value
        for stmt in tree.module.body
        if isinstance(stmt, ast.Assign) and any(chosen.value.id in target_names(t) for t in stmt.targets)
    ]
    table = made[0] if len(made) == 1 else None
    parts = table.values if isinstance(table, ast.Dict) else getattr(table, "elts", [])
    return [part.value for part in parts if isinstance(part, ast.Constant) and isinstance(part.value, str)]


def picks_by_name(tree: Tree) -> int | None:
    """The line at which a script calls what it picks by a name of the run: `eval(args.runner)(args)`.

    Out of a module by `agents.__dict__[args.agent](args)` it counts where what that makes is trained by a method.
    """
    trained = {
        c.func.value.id
        for c in tree.nodes(ast.Call)
        if isinstance(c.func, ast.Attribute) and isinstance(c.func.value, ast.Name)
        if (c.args or c.keywords) and _TRAINS.match(c.func.attr)
    }
    for call in tree.nodes(ast.Call):
        picked = call.func
        if isinstance(picked, ast.Subscript) and isinstance(picked.value, ast.Call):
            name, text = picked.value.func, picked.slice
        elif _is_of_module(picked):
            stmt = tree.statement(call)
            if isinstance(stmt, ast.Assign) and trained & {n for t in stmt.targets for n in target_names(t)}:
                return tree.position(tree.start(call))[0]
            continue
        elif isinstance(picked, ast.Call) and picked.args:
            name, text = picked.func, picked.args[0]
        else:
            continue
        if (
            isinstance(name, ast.Name)
            and name.id in ("eval", "globals", "locals")
            and not isinstance(text, ast.Constant)
        ):
            return tree.position(tree.start(call))[0]
    return None


def _is_of_module(picked: ast.expr) -> bool:
    """Whether an expression is `module.__dict__[name]`, with a name that is no constant."""
    return (
        isinstance(picked, ast.Subscript)
        and isinstance(picked.value, ast.Attribute)
        and picked.value.attr == "__dict__"
        and not isinstance(picked.slice, ast.Constant)
    )
