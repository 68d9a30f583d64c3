"""Names that `eval(TABLE[name])` chooses from: the texts of a table that the module writes out."""

from __future__ import annotations

import ast

from accelify.analysis.syntax import Tree, target_names


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
    """The line at which a script calls what it picks by a name of the run: `eval(args.runner)(args)`."""
    for call in tree.nodes(ast.Call):
        picked = call.func
        if isinstance(picked, ast.Subscript) and isinstance(picked.value, ast.Call):
            name, text = picked.value.func, picked.slice
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
