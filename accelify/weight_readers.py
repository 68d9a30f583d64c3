"""Files of a project that read weights with the names of DataParallel, which the converted script no longer saves.

train.py:      net = nn.DataParallel(net)                   ->  (gone: prepare distributes the model)
               torch.save(net.state_dict(), "net.pt")           names without `module.` before them
evaluate.py:   net = nn.DataParallel(net)                       stays as it is, and is named (ACC409)
               net.load_state_dict(torch.load("net.pt"))
show.py:       {name[7:]: w for name, w in state.items()}       named, too; one that asks for the prefix is not
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.syntax import call_argument, dotted, walk

_PREFIX = "module"
_WRAPPER = "DataParallel"
# Methods by which a script takes the prefix off where it is there.
_TAKING_EITHER = frozenset({"startswith", "removeprefix", "replace", "lstrip", "sub"})


def reads_with_prefix(tree: ast.Module) -> bool:
    """Whether a file loads weights that have to have `module.` before their names."""
    nodes = walk(tree)
    loads = [
        call
        for call in _calls(nodes)
        if isinstance(call.func, ast.Attribute) and call.func.attr == "load_state_dict"
    ]
    if not loads or any(_asks(node) for node in nodes):
        return False
    if any(_cuts(node) for node in nodes):
        return True
    wrapped = {
        dotted(target): node.lineno
        for node in nodes
        if isinstance(node, ast.Assign) and any(_wraps(call) for call in _calls(walk(node.value)))
        for target in node.targets
    }
    return any(
        isinstance(call.func, ast.Attribute)
        and wrapped.get(dotted(call.func.value), call.lineno) < call.lineno
        and call_argument(call, 0, "state_dict") is not None
        for call in loads
    )


def _calls(nodes: Iterable[ast.AST]) -> list[ast.Call]:
    return [node for node in nodes if isinstance(node, ast.Call)]


def _wraps(call: ast.Call) -> bool:
    return (dotted(call.func) or "").rpartition(".")[2] == _WRAPPER


def _is_prefix(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.lstrip("^").rstrip(".\\") == _PREFIX
    )


def _asks(node: ast.AST) -> bool:
    """`"module." in name`, `name.startswith("module.")`, `name.replace("module.", "")`."""
    if isinstance(node, ast.Compare):
        return any(map(_is_prefix, [node.left, *node.comparators]))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    return node.func.attr in _TAKING_EITHER and bool(node.args) and _is_prefix(node.args[0])


def _cuts(node: ast.AST) -> bool:
    """`name[7:]`, `name[len("module."):]`."""
    if not isinstance(node, ast.Subscript) or not isinstance(node.slice, ast.Slice):
        return False
    first = node.slice.lower
    if node.slice.upper is not None or first is None:
        return False
    if isinstance(first, ast.Call):
        return dotted(first.func) == "len" and len(first.args) == 1 and _is_prefix(first.args[0])
    return isinstance(first, ast.Constant) and first.value == len(_PREFIX) + 1


__all__ = ["reads_with_prefix"]
