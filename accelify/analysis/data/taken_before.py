"""What an evaluation loop stores of its batches before it calls the model: it belongs to what it stores after it.

for x, y in loader:
    labels.append(y)
    outputs.append(model(x))
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field

from accelify.analysis.data.one_by_one import is_text
from accelify.analysis.data.picked import PickedEntries
from accelify.analysis.metrics.counts import size_of
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in, target_names, text_of, walk

_COLLECTING = frozenset("append extend appendleft insert add update".split())
# A progress bar has one of these, too, with a size as its argument.
_COUNTING = frozenset({"add", "update"})
_JOINING = frozenset("cat concat concatenate vstack hstack append".split())
# What is inside is not sure to be evaluated once for each batch.
_UNSURE = (ast.Lambda, ast.IfExp, ast.BoolOp)


@dataclass(eq=False)
class TakenBefore:
    """The statements that store values, the tensors that they read of the batch and the names of these."""

    statements: list[ast.stmt] = field(default_factory=list)
    nodes: list[ast.expr] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def taken_before(
    script: ScriptModel,
    loop: ast.For | ast.AsyncFor,
    statements: Sequence[ast.stmt],
    last: int,
    entries: PickedEntries,
    batch_names: Callable[[int], Collection[str]],
) -> TakenBefore | str:
    """What has to be gathered where it is stored; a sentence where that is impossible.

    Args:
        script: its model.
        loop: over the batches.
        statements: of its body, those under a plain `with` as well.
        last: the index of the statement after which, or in which, the outputs of the model are gathered.
        entries: what is read of objects that hold tensors.
        batch_names: the variables that hold tensors with a row for every sample, as bound up to a statement.
    """
    found = TakenBefore()
    own = {n.id for s in loop.body for n in walk(s) if _binds(script, n)}
    made = _of_the_batch(loop)
    for index, stmt in enumerate(statements[:last]):
        if not isinstance(stmt, ast.Assign):
            made |= _made_inside(stmt, made)
        retained = [
            (node, container, names)
            for node, container, parts in _stored(stmt)
            if (names := {n for part in parts for n in names_in(part)} & made)
            and _root(container) not in own | made
        ]
        for node, container, names in retained:
            text = text_of(container)
            if (
                isinstance(node, ast.Assign)
                and not _is_grown(node)
                and _is_read(statements[: last + 1], container)
            ):
                continue  # the model's input, assembled in a tensor that was made once
            if node is not stmt or names_in(container) & made:
                return f"`{text}` is filled from the local batch before the last call of the model"
            if _is_read(statements[: last + 1], container):
                return f"`{text}` is carried from batch to batch"
            stated = _gathered_there(script, stmt, names, set(batch_names(index)), entries)
            if isinstance(stated, str):
                return stated
            found.statements.append(stmt)
            found.nodes += stated
            found.names += [n for n in sorted(names) if n not in found.names]
        made |= _made_inside(stmt, made)
    return found


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


def _stored(stmt: ast.stmt) -> Iterator[tuple[ast.stmt, ast.expr, list[ast.expr]]]:
    """The statements in one that add to something, what they add to, and the expressions that are added."""
    for node in walk(stmt):
        if isinstance(node, ast.AugAssign):
            yield node, node.target, [node.value]
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
            func, given = node.value.func, [*node.value.args, *[kw.value for kw in node.value.keywords]]
            if not isinstance(func, ast.Attribute) or func.attr not in _COLLECTING:
                continue
            if func.attr not in _COUNTING or not all(map(_is_size, given)):
                yield node, func.value, given
        elif isinstance(node, ast.Assign) and _is_grown(node):
            yield node, node.targets[0], node.value.args  # type: ignore[attr-defined]
        elif isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Subscript):
                    yield node, target, [node.value, target.slice]


def _is_size(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) or size_of(node) is not None


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


def _is_read(statements: Sequence[ast.stmt], container: ast.expr) -> bool:
    """Whether statements read what is filled, other than to fill it."""
    contained = [container]
    while isinstance(contained[-1], ast.Subscript):
        contained.append(contained[-1].value)
    texts = {text_of(node) for node in contained}
    for stmt in statements:
        filled = {id(n) for _, retained, _ in _stored(stmt) for n in [retained, *walk(retained)]}
        if isinstance(stmt, ast.Assign) and _is_grown(stmt):
            continue
        for node in walk(stmt):
            if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)) and id(node) not in filled:
                if isinstance(node.ctx, ast.Load) and text_of(node) in texts:
                    return True
    return False


def _gathered_there(
    script: ScriptModel, stmt: ast.stmt, names: set[str], tensors: set[str], entries: PickedEntries
) -> list[ast.expr] | str:
    """The expressions of a statement that are gathered where they are, or why they cannot be."""
    found: list[ast.expr] = []
    for name in sorted(names - tensors)[:1]:
        return f"`{name}` is made from the local batch and used with what would be gathered"
    for read in walk(stmt):
        if not isinstance(read, ast.Name) or read.id not in names or not isinstance(read.ctx, ast.Load):
            continue
        if "loss" in read.id.lower():
            return f"`{read.id}` is a loss of the local batch"
        if is_text(script, read):
            return f"`{read.id}` is a text, one for each sample"
        if "hidden" in read.id or read.id in ("h", "state", "states"):
            return f"`{read.id}` may not have a row for every sample"
        part = entries.part(read)
        if part is None:
            return f"`{read.id}` is used as a whole, and holds more than a row for every sample"
        if script.tree.in_fstring(read) or not _is_once(script, part):
            return f"`{read.id}` is not stored once for each batch before the last call of the model"
        found.append(part)
    return found


def _is_once(script: ScriptModel, node: ast.expr) -> bool:
    """Whether an expression is evaluated once where its statement is: all processes gather equally often."""
    child: ast.AST = node
    for ancestor in script.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return True
        if isinstance(ancestor, ast.comprehension):
            whole = script.tree.parent(ancestor)
            if child is not ancestor.iter or ancestor is not whole.generators[0]:  # type: ignore[union-attr]
                return False
        elif isinstance(ancestor, _UNSURE):
            return False
        elif isinstance(ancestor, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            if not isinstance(child, ast.comprehension):
                return False
        child = ancestor
    return True
