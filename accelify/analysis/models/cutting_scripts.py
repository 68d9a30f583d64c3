"""Functions of other scripts that cut `module.` off the names of weights, whether it is there or not.

weights = {".".join(name.split(".")[1:]): w for name, w in read.items()}     weights[name[7:]] = w
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator

from accelify.analysis.syntax import dotted, is_constant, walk

_PREFIX = "module."
_TELLING = (b"[7:]", b"[1:]", b", 1)[1]", b"[len(")


def may_cut(data: bytes) -> bool:
    """Whether a file loads weights, and cuts something off somewhere, at all."""
    return b"torch.load" in data and b".load_state_dict(" in data and any(word in data for word in _TELLING)


def cuts_names(data: bytes) -> Iterator[int]:
    """The lines of a file in which the first part of each name of a dictionary is cut off."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            module = ast.parse(data)
        except (SyntaxError, ValueError):
            return
    nodes = walk(module)
    # What is where the names failed as they are knows that they have the prefix.
    tried = {id(n) for handler in nodes if isinstance(handler, ast.ExceptHandler) for n in walk(handler)}
    for node in nodes:
        inside: list[ast.AST] = []
        if isinstance(node, ast.DictComp):
            name = _name_of_pair(node.generators[0].target, node.generators[0].iter)
            inside = [node.key]
        elif isinstance(node, ast.For):
            name = _name_of_pair(node.target, node.iter)
            inside = list(node.body)
        else:
            continue
        if name is None or id(node) in tried:
            continue
        within = [inner for part in inside for inner in walk(part)]
        if not any(isinstance(n, (ast.If, ast.IfExp)) for n in within):  # who asks may know
            yield from (n.lineno for n in within if isinstance(n, ast.Subscript) and _cuts(n, name))


def _name_of_pair(target: ast.expr, table: ast.expr) -> str | None:
    """`name` of `for name, weight in read.items()`, also of a list of these."""
    while isinstance(table, ast.Call) and dotted(table.func) in ("list", "sorted", "iter") and table.args:
        table = table.args[0]
    if (
        not isinstance(table, ast.Call)
        or not isinstance(table.func, ast.Attribute)
        or table.func.attr != "items"
    ):
        return None
    if isinstance(target, ast.Tuple) and len(target.elts) == 2 and isinstance(target.elts[0], ast.Name):
        return target.elts[0].id
    return None


def _cuts(node: ast.Subscript, name: str) -> bool:
    """Whether `name[7:]`, or all but the first of its parts, is taken."""
    base, cut = node.value, node.slice
    start = cut.lower if isinstance(cut, ast.Slice) and cut.upper is None and cut.step is None else None
    if isinstance(base, ast.Name) and base.id == name and start is not None:
        length = (
            isinstance(start, ast.Call)
            and dotted(start.func) == "len"
            and is_constant(start.args[0], _PREFIX)
        )
        return length or is_constant(start, len(_PREFIX))
    if (
        not isinstance(base, ast.Call)
        or not isinstance(base.func, ast.Attribute)
        or base.func.attr != "split"
    ):
        return False
    if dotted(base.func.value) != name or not base.args or not is_constant(base.args[0], "."):
        return False
    whole = len(base.args) == 1 and not base.keywords
    return is_constant(start, 1) if whole else is_constant(cut, 1) and is_constant(base.args[-1], 1)


__all__ = ["cuts_names", "may_cut"]
