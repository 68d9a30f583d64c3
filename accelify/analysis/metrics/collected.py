"""What loops over batches collect in lists: `labels.append(y)`, `results.append((x, y))`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, walk

# By the scope of a variable, or the class of an attribute, and how it is written: the values that are put in.
Collected = dict[tuple[object, str], list[ast.expr]]
_COLLECTING = frozenset({"append", "appendleft", "extend"})
_JOINING = frozenset("torch.cat torch.concat torch.concatenate torch.stack torch.vstack torch.hstack".split())
_JOINS = frozenset(name.rpartition(".")[2] for name in _JOINING)
# Methods of tensors alone that return one tensor, and attributes that only tensors have.
_OF_TENSORS = frozenset(
    "argmax argmin squeeze unsqueeze view reshape flatten float long int double half bool detach clone softmax "
    "log_softmax sigmoid transpose permute contiguous eq ne cpu cuda to expand clamp exp log abs round sum mean "
    "numpy item size data shape T".split()
)
_NO_TENSORS = frozenset({"numpy", "item", "size", "shape"})
# What of torch returns several: their first two are parts of a tuple.
_SEVERAL = frozenset("max min topk sort split chunk unbind meshgrid broadcast_tensors".split())
_FARTHEST = 4


class Collecting(NamedTuple):
    """A statement that puts values into a list, and the list."""

    statement: ast.stmt
    container: ast.expr
    values: tuple[ast.expr, ...]


def collecting(script: ScriptModel, loops: Iterable[ast.For | ast.AsyncFor]) -> list[Collecting]:
    """The statements of some loops that collect something.

    Args:
        script: its model.
        loops: over batches.
    """
    return [
        Collecting(stmt, container, tuple(_parts(value)))
        for loop in loops
        for stmt in (n for s in loop.body for n in walk(s) if isinstance(n, (ast.Expr, ast.AugAssign)))
        for container, value in _put(stmt)
        if not script.tree.in_fstring(value)
    ]


def collected(script: ScriptModel, loops: Iterable[ast.For | ast.AsyncFor]) -> Collected:
    """The same by the lists, as far as these are variables or attributes of their class."""
    contained: Collected = {}
    for one in collecting(script, loops):
        scope, text = script.scope_of(one.statement), dotted(one.container)
        if isinstance(one.container, ast.Name):
            contained.setdefault((scope.resolve(one.container.id), one.container.id), []).extend(one.values)
        elif text is not None and text.split(".")[0] == scope.self_name():
            contained.setdefault((scope.owner_class, text), []).extend(one.values)
    return contained


def filling_loops(script: ScriptModel) -> list[ast.For | ast.AsyncFor]:
    """The loops that fill a variable which is joined to one tensor in the same function: `torch.stack(rows)`."""
    names: dict[Scope, set[str]] = {}
    for call in script.calls():
        if getattr(call.func, "attr", "") in _JOINS and script.qualname(call.func) in _JOINING:
            if call.args and isinstance(call.args[0], ast.Name):
                names.setdefault(script.scope_of(call), set()).add(call.args[0].id)
    return [
        loop
        for scope, joined in names.items()
        for loop in scope.of_type(ast.For, ast.AsyncFor)
        if any(
            dotted(put) in joined
            for stmt in loop.body
            for n in walk(stmt)
            if isinstance(n, (ast.Expr, ast.AugAssign))
            for put, _ in _put(n)
        )
    ]


def is_list(value: ast.expr) -> bool:
    """Whether an expression makes a list to be filled: `[]`, `list()`, `deque()`."""
    if isinstance(value, ast.Call):
        return (dotted(value.func) or "").rpartition(".")[2] in ("list", "deque") and not value.args
    return isinstance(value, ast.List)


def holds_tensors(script: ScriptModel, one: Collecting) -> bool:
    """Whether what is collected is joined to a tensor anywhere in its function: it may be texts or lists else."""
    return len(one.values) == 1 and any(name in _JOINING for name in _given_to(script, one))


def is_read_by_numpy(script: ScriptModel, one: Collecting) -> bool:
    """Whether a function of NumPy makes an array of what is collected: of tensors, numbers or texts."""
    return len(one.values) == 1 and any(name.startswith("numpy.") for name in _given_to(script, one))


def _given_to(script: ScriptModel, one: Collecting) -> Iterator[str]:
    """The functions of libraries that get the list as their first argument, where it is a variable."""
    if not isinstance(one.container, ast.Name):
        return
    owner = script.scope_of(one.container).resolve(one.container.id)
    for read in script.reads(one.container.id, owner) if owner is not None else ():
        call = script.tree.parent(read)
        if isinstance(call, ast.Call) and call.args[:1] == [read]:
            yield script.qualname(call.func) or ""


def is_tensor(script: ScriptModel, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression is used, or made, as only a tensor can be: a batch may hold texts and lists, too."""
    if depth > _FARTHEST:
        return False
    if isinstance(node, ast.Call):
        name = script.qualname(node.func)
        if name is not None:
            head, _, last = name.rpartition(".")
            return head in ("torch", "torch.nn.functional") and last not in _SEVERAL
        return isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TENSORS - _NO_TENSORS
    if isinstance(node, ast.Attribute):
        return node.attr in ("data", "T")
    if isinstance(node, ast.Subscript):
        taken = node.value.func if isinstance(node.value, ast.Call) else None
        if taken is not None and (dotted(taken) or "").rpartition(".")[2] in _SEVERAL:
            return isinstance(node.slice, ast.Constant)
        return is_tensor(script, node.value, depth + 1)
    if isinstance(node, (ast.BinOp, ast.Compare)):
        sides = [node.left, *([node.right] if isinstance(node, ast.BinOp) else node.comparators)]
        return any(is_tensor(script, side, depth + 1) for side in sides)
    if isinstance(node, ast.UnaryOp):
        return not isinstance(node.op, ast.Not) and is_tensor(script, node.operand, depth + 1)
    return isinstance(node, ast.Name) and _is_used_as_tensor(script, node, depth)


def may_be_texts(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a name is a part of a batch, of which torch leaves texts as they are, and nothing uses it as a tensor."""
    if not isinstance(node, ast.Name) or not script.is_a(node, v.BATCH) or is_tensor(script, node):
        return False
    scope = script.scope_of(node)
    made = [script.tree.parent(one) for one in script.tree.writes(node.id) if script.scope_of(one) is scope]
    return any(isinstance(one, (ast.Tuple, ast.List)) for one in made)


def _is_used_as_tensor(script: ScriptModel, name: ast.Name, depth: int) -> bool:
    owner = script.scope_of(name).resolve(name.id)
    for read in script.reads(name.id, owner) if owner is not None else ():
        parent = script.tree.parent(read)
        if isinstance(parent, ast.Attribute) and parent.attr in _OF_TENSORS:
            return True
        if isinstance(parent, ast.Call) and read in parent.args:
            known = (script.qualname(parent.func) or "").rpartition(".")[0]
            if known == "torch.nn.functional" or script.is_a(parent.func, v.CRITERION):
                return True
        if isinstance(parent, ast.Compare):
            others = [n for n in (parent.left, *parent.comparators) if n is not read]
            if any(not isinstance(n, ast.Name) and is_tensor(script, n, depth + 1) for n in others):
                return True
    return False


def _put(stmt: ast.Expr | ast.AugAssign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """`kept.append(value)`, `kept.extend(value)`, `kept += [value]`."""
    value = stmt.value
    if isinstance(stmt, ast.AugAssign):
        if isinstance(stmt.op, ast.Add) and isinstance(value, (ast.List, ast.ListComp)):
            yield stmt.target, value
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute):
        if value.func.attr in _COLLECTING and len(value.args) == 1 and not value.keywords:
            yield value.func.value, value.args[0]


def _parts(value: ast.expr) -> Iterator[ast.expr]:
    """The values of a display, one by one."""
    if isinstance(value, (ast.Tuple, ast.List)):
        for element in value.elts:
            yield from _parts(element)
    elif isinstance(value, ast.Dict):
        for entry in value.values:
            yield from _parts(entry)
    elif isinstance(value, (ast.ListComp, ast.GeneratorExp)):
        yield from _parts(value.elt)
    elif isinstance(value, ast.Call) and dotted(value.func) in ("list", "tuple") and len(value.args) == 1:
        yield from _parts(value.args[0])
    elif not isinstance(value, ast.Starred):
        yield value
