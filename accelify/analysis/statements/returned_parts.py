"""The parts of what a function returns to be unpacked: of a tuple, or of a named one.

Answer = namedtuple("Answer", ["loss", "more"])
return loss, more
return Answer(more=more, loss=loss)
"""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Tree, call_argument, dotted


def parts_of(node: ast.expr, tree: Tree, scope: Scope) -> list[ast.expr | None]:
    """The parts of a tuple that is in a scope, None for what is not seen; none of anything else."""
    if isinstance(node, ast.Tuple):
        starred = next((i for i, part in enumerate(node.elts) if isinstance(part, ast.Starred)), None)
        return list(node.elts[:starred])
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name):
        return []
    fields = _fields(node.func.id, tree, scope)
    if any(isinstance(part, ast.Starred) for part in node.args) or len(node.args) > len(fields):
        return []
    named = {keyword.arg: keyword.value for keyword in node.keywords}
    return [*node.args, *[named.get(field) for field in fields[len(node.args) :]]]


def _fields(name: str, tree: Tree, scope: Scope) -> list[str]:
    """What the fields of a named tuple are called that the module makes under some name."""
    owner = scope.resolve(name)
    for node in owner.nodes if owner is not None else ():
        if isinstance(node, ast.ClassDef) and node.name == name:
            return next(filter(None, (_fields_of_base(node, base) for base in node.bases)), [])
    made = [s.value for s in tree.assigns(name) if owner is not None and s in owner.nodes]
    return _fields_named(made[0]) if len(made) == 1 else []


def _fields_of_base(cls: ast.ClassDef, base: ast.expr) -> list[str]:
    """`class Answer(NamedTuple)` with a line for each field, or `class Answer(namedtuple("Answer", "loss more"))`."""
    if (dotted(base) or "").rpartition(".")[2] != "NamedTuple":
        return _fields_named(base)
    lines = [s.target for s in cls.body if isinstance(s, ast.AnnAssign)]
    return [target.id for target in lines if isinstance(target, ast.Name)]


def _fields_named(made: ast.expr) -> list[str]:
    """The fields in `namedtuple("Answer", ["loss", "more"])`."""
    if not isinstance(made, ast.Call):
        return []
    if (dotted(made.func) or "").rpartition(".")[2] not in ("namedtuple", "NamedTuple"):
        return []
    given = call_argument(made, 1, "field_names") or call_argument(made, 1, "fields")
    if isinstance(given, ast.Constant) and isinstance(given.value, str):
        return given.value.replace(",", " ").split()
    every = given.elts if isinstance(given, (ast.List, ast.Tuple)) else []
    # ("loss", float) of typing.NamedTuple
    named = [one.elts[0] if isinstance(one, ast.Tuple) and one.elts else one for one in every]
    known = [n.value for n in named if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    return known if len(known) == len(every) else []
