"""Names that `eval(TABLE[name])` chooses from: the texts of a table that the module writes out."""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import Tree, dotted, target_names, walk

# A shorter beginning does not identify a name.
_SHORTEST = 4
# Methods by which an object trains, where they have arguments: `model.train()` only sets a mode.
_TRAINS = re.compile(r"^(train|fit|learn|run|optimi[sz]e|solve)", re.I)


def evaluated_names(tree: Tree, call: ast.Call) -> list[str]:
    """The names that a call of `eval` can represent; none where its text is not an entry of such a table."""
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


def begun_with(text: ast.expr) -> str:
    """How a name begins that is put together: `"plot_" + kind`, `f"plot_{kind}"`; "" for anything else."""
    if isinstance(text, ast.BinOp) and isinstance(text.op, ast.Add):
        text = text.left
    elif isinstance(text, ast.JoinedStr) and text.values:
        text = text.values[0]
    else:
        return ""
    begin = text.value if isinstance(text, ast.Constant) and isinstance(text.value, str) else ""
    return begin if begin.isidentifier() and len(begin) >= _SHORTEST else ""


def names_begun(tree: Tree, node: ast.AST) -> list[str]:
    """How the names begin of what is looked up in some code: `eval("plot_" + kind)`, `globals()["train_" + kind]`."""
    if not tree.mentions(b"eval(") and not tree.mentions(b"globals()"):
        return []
    texts: list[ast.expr] = []
    for part in walk(node):
        kind = type(part)
        if kind is not ast.Call and kind is not ast.Subscript:
            continue
        if isinstance(part, ast.Call) and dotted(part.func) == "eval" and len(part.args) == 1:
            texts.append(part.args[0])
        elif isinstance(part, ast.Subscript) and isinstance(part.value, ast.Call):
            texts += [part.slice] if dotted(part.value.func) == "globals" else []
    return [begin for text in texts if (begin := begun_with(text))]


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


def made_by_configuration(tree: Tree) -> int | None:
    """The line at which a script makes what Hydra's configuration names: `hydra.utils.instantiate(cfg.agent)`."""
    for call in tree.nodes(ast.Call) if tree.mentions(b"hydra") else ():
        if (dotted(call.func) or "").rpartition(".")[2] == "instantiate" and call.args:
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
