"""Names of weights that are read with the `module.` which they had under a DataParallel.

for name, p in net.named_parameters():
    if name.startswith("module.head"): ...    if name in ["module.head.weight"]: ...    rates[name]  # of such keys
    _, layer, kind = name.split(".")          short[name[7:]] = p                      is_head(name)  # which asks so
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, dotted, is_constant, walk

PREFIX = "module."
# Functions whose results are pairs of a name and what it names.
PAIRS = frozenset({"named_parameters", "named_modules", "named_buffers"})
WORDS = (b"named_parameters", b"named_modules", b"named_buffers", b"state_dict")
# Functions may pass the model on to others, as far as this.
_FARTHEST = 2
_BY_NAME = frozenset({"get_parameter", "get_submodule", "get_buffer"})
_PASSING_ON = frozenset({"enumerate", "list", "tuple", "sorted", "reversed", "iter", "tqdm"})
_ASKS = frozenset({"startswith", "__eq__"})
_LOOK_UPS = frozenset({"get", "pop", "setdefault"})

IsName = Callable[[Node], bool]
Parents = Callable[[Node], Node | None]


@dataclass(frozen=True, eq=False)
class Reading:
    """A call that returns names of weights, where they are read as they were under a DataParallel.

    Attributes:
        source: `net.named_parameters()`.
        stated: whether `module.` is written there, or the seven letters are cut off.
    """

    source: ast.Call
    stated: bool


def sources_of(nodes: Iterable[Node]) -> Iterator[ast.Call]:
    """The calls among some nodes that return names of weights."""
    for call in nodes:
        if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute):
            if call.func.attr in PAIRS or call.func.attr == "state_dict":
                if not call.args and not call.keywords:
                    yield call


def reading_of(script: ScriptModel, source: ast.Call, scope: Scope, parents: Parents) -> Reading | None:
    """How the names that a call gives are read, where it is with the `module.` before them.

    Args:
        script: the script's model.
        source: the call.
        scope: the function with the call.
        parents: the parent of each node of its file.
    """
    found = _names_of(source, scope, parents)
    if found is None:
        return None
    nodes, is_name = found
    stated = _tells(script, nodes, is_name)
    if not stated and (_minds(nodes) or not _counts_parts(nodes, is_name)):
        return None
    return Reading(source, stated)


def _names_of(source: ast.Call, scope: Scope, parents: Parents) -> tuple[list[Node], IsName] | None:
    """Where the names that a call returns are available, and how they are recognised there."""
    assert isinstance(source.func, ast.Attribute)
    return _names_at(_only_use(source, scope, parents), source.func.attr in PAIRS, parents)


def _names_at(node: Node, pairs: bool, parents: Parents) -> tuple[list[Node], IsName] | None:
    """The same for the place where names, pairs with one, or a dictionary of them are gone through."""
    source, around = node, parents(node)
    if not pairs and isinstance(around, ast.Attribute) and around.attr in ("items", "keys"):
        outer = parents(around)
        if not isinstance(outer, ast.Call):
            return None
        pairs, node, around = around.attr == "items", outer, parents(outer)
    counted = 0
    while isinstance(around, ast.Call) and (dotted(around.func) or "").rpartition(".")[2] in _PASSING_ON:
        counted += (dotted(around.func) or "") == "enumerate"
        node, around = around, parents(around)
    if (
        isinstance(around, ast.Call)
        and dotted(around.func) == "filter"
        and isinstance(around.args[0], ast.Lambda)
    ):
        given = around.args[0]
        named = given.args.args[0].arg if given.args.args else ""
        return list(walk(given.body)), _named(named, first=pairs)
    if isinstance(around, ast.For) and around.iter is node:
        target, nodes = around.target, [n for stmt in around.body for n in walk(stmt)]
    elif isinstance(around, ast.comprehension) and around.iter is node:
        whole = parents(around)
        if whole is None:
            return None
        target, nodes = around.target, [n for n in walk(whole) if n is not source]
    else:
        return None
    if counted and isinstance(target, ast.Tuple) and len(target.elts) == 2:
        target = target.elts[1]
    if pairs and isinstance(target, (ast.Tuple, ast.List)) and target.elts:
        target, pairs = target.elts[0], False
    return (nodes, _named(target.id, first=pairs)) if isinstance(target, ast.Name) else None


def reader_of(script: ScriptModel, source: ast.Call, scope: Scope, parents: Parents) -> Scope | None:
    """The function that gets the names which a call returns, and reads them with `module.` before them."""
    assert isinstance(source.func, ast.Attribute)
    node = _only_use(source, scope, parents)
    call = parents(node)
    call = parents(call) if isinstance(call, ast.keyword) else call
    for callee in in_order(script.callees(call)) if isinstance(call, ast.Call) else ():
        tree = script.interpreter.module_of(callee).tree
        for given, own in handed_to(call, callee) if isinstance(call, ast.Call) else ():
            for use in callee.nodes if given is node else ():
                if isinstance(use, ast.Name) and use.id == own and isinstance(use.ctx, ast.Load):
                    found = _names_at(use, source.func.attr in PAIRS, tree.parent)
                    if found is not None and _tells(script, *found):
                        return callee
    return None


def _only_use(source: ast.Call, scope: Scope, parents: Parents) -> ast.expr:
    """The one place where what a call gives is read under a name; the call itself where there is no such place."""
    around = parents(source)
    if not isinstance(around, ast.Assign) or not isinstance(around.targets[0], ast.Name):
        return source
    name = around.targets[0].id
    uses = [n for n in scope.of_type(ast.Name) if n.id == name and n is not around.targets[0]]
    return uses[0] if len(uses) == 1 and isinstance(uses[0].ctx, ast.Load) else source


def _named(name: str, first: bool) -> IsName:
    """Recognises a name, or the first of a pair of that name: `pair[0]`."""

    def is_name(node: Node) -> bool:
        if first and isinstance(node, ast.Subscript) and is_constant(node.slice, 0):
            node = node.value
        elif first:
            return False
        return isinstance(node, ast.Name) and node.id == name

    return is_name


def _tells(script: ScriptModel, nodes: list[Node], is_name: IsName, far: int = 1) -> bool:
    """Whether names are compared with, or looked up among, texts that begin with `module.` and go on after it."""
    asked = [text for node in nodes for text in _asked(script, node, is_name)]
    stated = {text for text in asked if text.startswith(PREFIX) and text != PREFIX}
    if any(text.removeprefix(PREFIX) not in asked for text in stated) or _cuts(nodes, is_name):
        return True
    for call in nodes if far else ():
        if isinstance(call, ast.Call) and any(
            is_name(a) for a in [*call.args, *(kw.value for kw in call.keywords)]
        ):
            for callee in in_order(script.callees(call)):
                for given, own in handed_to(call, callee):
                    if is_name(given) and _tells(script, list(callee.nodes), _named(own, False), far - 1):
                        return True
    return False


def _asked(script: ScriptModel, node: Node, is_name: IsName) -> Iterator[str]:
    """The texts with which a node compares a name."""
    if isinstance(node, ast.Compare):
        sides = [node.left, *node.comparators]
        if any(is_name(side) for side in sides):
            for side in sides:
                yield from _texts(script, side)
    elif isinstance(node, ast.Subscript) and is_name(node.slice) and isinstance(node.ctx, ast.Load):
        yield from _texts(script, node.value)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        if node.func.attr in _ASKS and is_name(node.func.value):
            yield from _texts(script, node.args[0])
        elif node.func.attr in _LOOK_UPS and is_name(node.args[0]):
            yield from _texts(script, node.func.value)


def _texts(script: ScriptModel, node: ast.expr | None, far: int = 1) -> Iterator[str]:
    """The texts that an expression holds: itself, its entries, or its keys."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, (ast.List, ast.Tuple, ast.Set, ast.Dict)):
        for part in node.keys if isinstance(node, ast.Dict) else node.elts:
            yield from _texts(script, part, 0)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        yield from (f"{text}{{}}" for text in _texts(script, node.left, 0))
    elif isinstance(node, ast.JoinedStr) and node.values:
        yield from (f"{text}{{}}" for text in _texts(script, node.values[0], 0))
    elif isinstance(node, (ast.Name, ast.Attribute)) and far:
        name = dotted(node)
        for stmt in script.tree.assigns(name) if name is not None else ():
            yield from _texts(script, stmt.value, far - 1)


def _cuts(nodes: list[Node], is_name: IsName) -> bool:
    """Whether the seven letters of `module.` are cut off a name without a test for them."""
    return not _minds(nodes) and any(
        isinstance(node, ast.Subscript)
        and is_name(node.value)
        and isinstance(node.slice, ast.Slice)
        and node.slice.upper is None
        and (is_constant(node.slice.lower, len(PREFIX)) or _is_its_length(node.slice.lower))
        for node in nodes
    )


def _is_its_length(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Call) and dotted(node.func) == "len" and is_constant(node.args[0], PREFIX)


def _minds(nodes: list[Node]) -> bool:
    """Whether there is a test for the prefix: with it or without, names are read rightly."""
    lengths = {n.args[0] for n in nodes if isinstance(n, ast.Call) and n.args and _is_its_length(n)}
    return any(is_constant(node, PREFIX, "module") and node not in lengths for node in nodes)


def _counts_parts(nodes: list[Node], is_name: IsName) -> bool:
    """Whether the parts of a name are read by their number: `_, layer, kind = name.split(".")`."""
    parts = {n for n in nodes if _is_split(n, is_name)}
    contained = {
        stmt.targets[0].id
        for stmt in nodes
        if isinstance(stmt, ast.Assign) and stmt.value in parts and isinstance(stmt.targets[0], ast.Name)
    }
    return any(
        _is_counted(node, lambda n: n in parts or (isinstance(n, ast.Name) and n.id in contained))
        for node in nodes
    )


def _is_split(node: Node, is_name: IsName) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "split"
        and is_name(node.func.value)
        and len(node.args) == 1
        and is_constant(node.args[0], ".")
    )


def _is_counted(node: Node, is_parts: IsName) -> bool:
    if isinstance(node, ast.Assign) and is_parts(node.value):
        targets = node.targets[0]
        return isinstance(targets, ast.Tuple) and not any(isinstance(t, ast.Starred) for t in targets.elts)
    if isinstance(node, ast.Subscript) and is_parts(node.value):
        first = node.slice.lower if isinstance(node.slice, ast.Slice) else node.slice
        return isinstance(first, ast.Constant) and isinstance(first.value, int) and first.value > 0
    return isinstance(node, ast.Call) and dotted(node.func) == "len" and any(is_parts(a) for a in node.args)


def by_name(script: ScriptModel, nodes: Iterable[Node]) -> Iterator[tuple[ast.Constant, ast.expr]]:
    """Names with `module.` by which a weight or a part is asked for, each with the model.

    `net.get_submodule("module.head")`, `dict(net.named_modules())["module.head"]`,
    `net.state_dict()["module.head.bias"]`
    """
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            asked, base = node.args[0], node.func.value
            if node.func.attr not in _BY_NAME:
                contained = _table(script, base) if node.func.attr in _LOOK_UPS else None
                if contained is None:
                    continue
                base = contained
        elif isinstance(node, ast.Subscript):
            asked = node.slice
            if not _is_prefixed(asked) or (contained := _table(script, node.value)) is None:
                continue
            base = contained
        else:
            continue
        if isinstance(asked, ast.Constant) and _is_prefixed(asked):
            yield asked, base


def _is_prefixed(node: Node) -> bool:
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.startswith(PREFIX)
        and node.value != PREFIX
    )


def _table(script: ScriptModel, node: ast.expr) -> ast.expr | None:
    """The model of whose weights an expression is a dictionary by name; None for anything else."""
    if isinstance(node, ast.Name):
        given = [s.value for s in script.tree.assigns(node.id) if script.scope_of(s) is script.scope_of(node)]
        return _table(script, given[0]) if len(given) == 1 and not isinstance(given[0], ast.Name) else None
    if isinstance(node, ast.Call) and dotted(node.func) in ("dict", "OrderedDict") and len(node.args) == 1:
        inner = node.args[0]
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute) and inner.func.attr in PAIRS:
            return inner.func.value
        return None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and not node.args:
        return node.func.value if node.func.attr == "state_dict" and not node.keywords else None
    return None


def sources_in(
    script: ScriptModel, callee: Scope, name: str, far: int = _FARTHEST
) -> Iterator[tuple[Scope, ast.Call]]:
    """The calls that give the names of the weights of what a function takes as `name`, there or further on."""
    for source in sources_of(callee.nodes):
        assert isinstance(source.func, ast.Attribute)
        if isinstance(source.func.value, ast.Name) and source.func.value.id == name:
            yield callee, source
    for call in callee.nodes if far else ():
        if isinstance(call, ast.Call):
            for inner in in_order(script.callees(call)):
                for given, own in handed_to(call, inner):
                    if isinstance(given, ast.Name) and given.id == name:
                        yield from sources_in(script, inner, own, far - 1)


__all__ = [
    "PAIRS",
    "PREFIX",
    "WORDS",
    "Reading",
    "by_name",
    "reader_of",
    "reading_of",
    "sources_in",
    "sources_of",
]
