"""What a script loads of files that it writes itself: weights for a wrapped model, whose names are other ones in the
model, and numbers that lie on no device."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.heap.loaded_files import is_counted_on, is_of_names
from accelify.heap.paths import file_of
from accelify.heap.run import Event
from accelify.heap.values import HOST, MADE_HERE, Container, ModuleRef, Value
from accelify.heap.wrapped_weights import BARE_WEIGHTS
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.plain_files import holds_no_tensors
from accelify.obligations.sinks import made

_MOST_NESTED = 9
_PLAIN = frozenset({"builtins.int", "builtins.float", "builtins.str", "builtins.bool", "numpy.ndarray"})


def loaded_bare(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """Weights of a model without its wrapper that the wrapper loads, from the model or a file that the script writes.

    Args:
        event: `load_state_dict` of what the processes train.
        events: all of the script.
    """
    if event.detail != "wrapper" or not isinstance(event.node, ast.Call) or not event.node.args:
        return
    given = list(event.shown[1:]) or [Value()]
    if given[0].type != BARE_WEIGHTS:
        given = [*_written(event.node.args[0], event.module, events)]
    if given and all(value.type == BARE_WEIGHTS for value in given):
        text = (
            f"`{event.name}` gives the wrapper the weights of the model in it, whose names lack `module.`; load "
            "them into the model in it"
        )
        yield made(event, "wrapper", Status.NAMED, text)


def is_of_no_device(event: Event, events: Sequence[Event]) -> bool:
    """Whether a file is loaded of numbers and texts alone, and of no tensors but such as were on the host: what the
    script writes to it, or does with what it loads.

    Args:
        event: the reading of a file of weights.
        events: all of the script.
    """
    if not isinstance(event.node, ast.expr):
        return False
    tree = event.module.tree
    trees = [*{one.module.path: one.module.tree for one in events}.values()]
    if is_of_names(tree, event.node) or is_counted_on(trees, tree, event.node):
        return True
    if tree is not None and holds_no_tensors(event.node, tree, [one for one in trees if one is not None]):
        return True
    values = [*_written(event.node, event.module, events)]
    return bool(values) and all(map(_is_plain, values))


def _is_plain(value: Value, depth: int = 0) -> bool:
    parts = [part for ref in value.of(Container) for name, part in ref.fields.items() if name.startswith("[")]
    if value.refs:
        return bool(parts) and depth < _MOST_NESTED and all(_is_plain(part, depth + 1) for part in parts)
    plain = value.type in _PLAIN or isinstance(value.const, str | int | float)
    return plain or value.where in (HOST, MADE_HERE)


def _written(loaded: ast.expr, module: ModuleRef, events: Sequence[Event]) -> Iterator[Value]:
    """What the script writes to the file that an expression reads, or under the key that it takes of that."""
    key, read = _key_of(_bound(loaded, module))
    inner, read = _key_of(_bound(read, module))
    if key is not None and inner is not None:
        return
    files = {file_of(one.path) for one in events if one.kind == "file.read" and one.node is read} - {""}
    for one in events:
        if one.kind == "file.write" and file_of(one.path) in files:
            yield from (part for value in one.shown for part in _under(value, key or inner))


def _under(value: Value, key: str | None) -> Iterator[Value]:
    if key is None:
        yield value
    for ref in value.of(Container) if key is not None else ():
        if (part := ref.fields.get(f"[{key!r}]")) is not None:
            yield part


def _key_of(expr: ast.expr) -> tuple[str | None, ast.expr]:
    """The text that an expression takes something by, and of what; None and itself for another one."""
    if isinstance(expr, ast.Subscript) and isinstance(expr.slice, ast.Constant):
        return str(expr.slice.value), expr.value
    return None, expr


def _bound(expr: ast.expr, module: ModuleRef) -> ast.expr:
    """What a name is bound to, where that is done once in the function around it; any other expression itself."""
    found = bindings(expr, module)
    return found[0] if len(found) == 1 else expr


def bindings(expr: ast.expr, module: ModuleRef) -> list[ast.expr]:
    """What a name is bound to in the function around it; nothing for any other expression.

    Args:
        expr: the name, or another expression.
        module: in which it stands.
    """
    if not isinstance(expr, ast.Name) or module.tree is None:
        return []
    around: ast.AST = module.tree
    for one in ast.walk(module.tree):
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
            if one.lineno <= expr.lineno <= (one.end_lineno or one.lineno):
                around = one
    return [
        one.value
        for one in ast.walk(around)
        if isinstance(one, ast.Assign)
        and any(isinstance(target, ast.Name) and target.id == expr.id for target in one.targets)
    ]
