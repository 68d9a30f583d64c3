"""What a function changes that it makes itself: new lists, copies of its arguments, and its `**fields`."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Tree, call_keyword, dotted, flat_targets, walk

# What only looks at a model.
LOOKS = frozenset(
    """state_dict parameters named_parameters modules named_modules children named_children buffers named_buffers
    items keys values __class__""".split()
)
_COLLECTING = frozenset("dict list tuple set OrderedDict collections.OrderedDict zip enumerate".split())
# Calls that return a copy of their argument, or of their object.
_SHALLOW = frozenset("copy list dict set sorted".split())
_COPYING = _SHALLOW | {"clone", "deepcopy", "array", "astype"}
_MAKING = (
    ast.Call, ast.Dict, ast.List, ast.Set, ast.Tuple, ast.ListComp, ast.DictComp, ast.SetComp, ast.Constant, ast.BinOp,
    ast.JoinedStr, ast.GeneratorExp,
)  # fmt: skip


def is_made_within(tree: Tree, scope: Scope, name: str, changes: Iterable[ast.expr]) -> bool:
    """Whether a function only changes objects under a name that it makes itself, as far as can be seen.

    Where it changes what is in them, that as well: `own = self.state_dict()` is new, the weights in it are the
    model's.

    Args:
        tree: of the function's module.
        scope: the function.
        name: under which it changes something.
        changes: the expressions that it changes: the name, or parts of what it holds.
    """
    if scope.kind != "function" or name in scope.globals or name not in scope.locals:
        return False
    parts = any(not isinstance(change, ast.Name) for change in changes)
    rest = getattr(getattr(scope.node, "args", None), "kwarg", None)
    if rest is not None and rest.arg == name and not parts:
        pass  # `**fields`: a new dictionary
    elif scope.takes(name):
        if not all(_is_copied_before(tree, change, name, parts) for change in changes):
            return False
    for node in scope.nodes:
        if isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            if any(isinstance(n, ast.Name) and n.id == name for n in walk(node.target)):
                return False
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            bound = (t for one in targets for t in flat_targets(one))
            if not any(isinstance(t, ast.Name) and t.id == name for t in bound):
                continue
            if _is_slice_of(node.value, name):
                continue
            if not isinstance(node.value, _MAKING) or (parts and _holds_given(scope, node.value)):
                return False
    return True


def root_name(node: ast.expr) -> str | None:
    """The name at the root of an expression: `x` of `x.rows[0].pop()`."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Starred, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else None


def _is_copied_before(tree: Tree, change: ast.expr, name: str, parts: bool) -> bool:
    """Whether a function changes a copy of a parameter: `poses = poses.copy()` is before it, in its branch.

    With `parts`, a copy of what is in it as well.
    """
    for ancestor in (change, *tree.ancestors(change)):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            break
        if isinstance(ancestor, ast.stmt):
            block = tree.block_of(ancestor)[2]
            if any(_copies(stmt, name, parts) for stmt in block[: block.index(ancestor)]):
                return True
    return False


def _copies(stmt: ast.stmt, name: str, parts: bool) -> bool:
    """Whether a statement binds a copy of something to a name."""
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.value, ast.Call):
        return False
    last = str(dotted(stmt.value.func) or getattr(stmt.value.func, "attr", "")).rpartition(".")[2]
    copying = last in (_COPYING - _SHALLOW if parts else _COPYING)
    own = last not in ("array", "astype") or call_keyword(stmt.value, "copy") is None
    return copying and own and any(isinstance(t, ast.Name) and t.id == name for t in stmt.targets)


def _is_slice_of(node: ast.expr, name: str) -> bool:
    """`frames[1:]`, which holds nothing that `frames` did not."""
    return (
        isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice) and dotted(node.value) == name
    )


def _holds_given(scope: Scope, value: ast.expr) -> bool:
    """Whether what an expression makes can contain parts of a function's arguments: `{"a": self.anchors}`."""
    given = {a.arg for a in scope.parameters()}
    if not isinstance(value, ast.Call):
        return any(isinstance(n, ast.Name) and n.id in given for n in walk(value))
    func = value.func
    if isinstance(func, ast.Attribute) and (func.attr in LOOKS or root_name(func) == scope.self_name()):
        return root_name(func) is not None
    return dotted(func) in _COLLECTING and any(_holds_given(scope, a) for a in value.args)
