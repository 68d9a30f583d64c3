"""What an evaluation loop stores of its batches before it calls the model: that is not gathered with its outputs.

for x, y in loader:
    labels.append(y)
    outputs.append(model(x))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in, target_names, text_of, walk

_COLLECTING = frozenset("append extend appendleft insert add update".split())
_JOINING = frozenset("cat concat concatenate vstack hstack append".split())


def taken_before(
    script: ScriptModel, loop: ast.For | ast.AsyncFor, statements: Sequence[ast.stmt], last: int
) -> str | None:
    """Why the outputs of a loop cannot be gathered after its model's last call; None: nothing speaks against it.

    Args:
        script: its model.
        loop: over the batches.
        statements: of its body, those under a plain `with` as well.
        last: the index of the statement after which, or in which, the outputs of the model are gathered.
    """
    own = {n.id for s in loop.body for n in walk(s) if _binds(script, n)}
    made = _of_the_batch(loop)
    for stmt in statements[:last]:
        if not isinstance(stmt, ast.Assign):
            made |= _made_inside(stmt, made)
        for container, parts in _stored(stmt):
            if _root(container) not in own | made and any(names_in(part) & made for part in parts):
                return (
                    f"`{text_of(container)}` is filled from the local batch before the last call of the model"
                )
        made |= _made_inside(stmt, made)
    return None


def _of_the_batch(loop: ast.For | ast.AsyncFor) -> set[str]:
    target: ast.expr = loop.target
    if isinstance(loop.iter, ast.Call) and dotted(loop.iter.func) == "enumerate":
        if isinstance(target, ast.Tuple) and len(target.elts) == 2:
            target = target.elts[1]
    return set(target_names(target))


def _made_inside(stmt: ast.stmt, made: set[str]) -> set[str]:
    """The variables that a statement, or one inside it, makes of some others."""
    found: set[str] = set()
    for node in walk(stmt):
        if isinstance(node, ast.Assign) and names_in(node.value) & (made | found):
            found |= {n for t in node.targets for n in target_names(t)}
        elif isinstance(node, ast.For) and names_in(node.iter) & (made | found):
            found |= set(target_names(node.target))
    return found


def _binds(script: ScriptModel, node: ast.AST) -> bool:
    """Whether a node binds a name again for each batch: what it fills then does not outlast it."""
    if not isinstance(node, ast.Name) or not isinstance(node.ctx, ast.Store):
        return False
    stmt = script.tree.statement(node)
    return not isinstance(stmt, ast.AugAssign) and not (isinstance(stmt, ast.Assign) and _is_grown(stmt))


def _root(container: ast.expr) -> str:
    node = container
    while isinstance(node, (ast.Subscript, ast.Attribute)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _stored(stmt: ast.stmt) -> Iterator[tuple[ast.expr, list[ast.expr]]]:
    """What the statements in one add to, and the expressions that are added."""
    for node in walk(stmt):
        if isinstance(node, ast.AugAssign):
            yield node.target, [node.value]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func = node.value.func
            if isinstance(func, ast.Attribute) and func.attr in _COLLECTING:
                yield func.value, [*node.value.args, *[kw.value for kw in node.value.keywords]]
        elif isinstance(node, ast.Assign) and _is_grown(node):
            yield node.targets[0], node.value.args  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    yield target, [node.value, target.slice]


def _is_grown(node: ast.Assign) -> bool:
    """`kept = torch.cat((kept, value))`."""
    call = node.value
    if not isinstance(call, ast.Call) or not call.args or len(node.targets) != 1:
        return False
    first = call.args[0]
    if isinstance(first, (ast.Tuple, ast.List)) and first.elts:
        first = first.elts[0]
    name = (dotted(call.func) or "").rpartition(".")[2]
    return name in _JOINING and dotted(first) is not None and dotted(first) == dotted(node.targets[0])
