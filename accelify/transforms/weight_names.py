"""Names of weights without DataParallel, which puts `module.` before them.

for name, p in net.named_parameters():        ->  for name, p in net.named_parameters(prefix="module"):
    if name.startswith("module.head"): ...            if name.startswith("module.head"): ...
short = {n[7:]: w for n, w in net.state_dict().items()}    ->  ... in net.state_dict(prefix="module.").items()}
first = net.state_dict()["module.head.bias"]               ->  ... net.state_dict(prefix="module.")["module.head.bias"]
means = {f"module.{n}": v for n, v in means.items()}           means = {f"module.{n}": v for n, v in means.items()}
[m for n, m in net.named_modules() if n in means]          ->  ... in net.named_modules(prefix="module") if n in means]

Code that reads the names stays as it is: it gets the names with their prefix.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.models.parallel_wraps import is_afterwards, is_for_several, wrapped_models
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, is_constant, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL
from accelify.writer import edits as verbs

_LOST = "the names of weights begin with `module.` under DataParallel alone"
_PREFIX = "module."
# Methods whose results are pairs of a name and what it names.
_PAIRS = frozenset({"named_parameters", "named_modules", "named_buffers"})
_PASSING_ON = frozenset({"dict", "enumerate", "items", "keys", "list", "sorted"})
# Methods by which names lose the prefix where they have it.
_TAKING_EITHER = frozenset({"startswith", "removeprefix", "replace", "lstrip", "sub"})


def transform(context: Context) -> Iterator[Change]:
    """Yield the prefix that the names had, and findings where it cannot be added."""
    script = context.script
    wrapped = wrapped_models(script) if context.tree.mentions("DataParallel") else {}
    for call in script.calls() if wrapped else ():
        func = call.func
        if not isinstance(func, ast.Attribute) or call.args or call.keywords:
            continue
        if func.attr not in _PAIRS and func.attr != "state_dict":
            continue
        models = script.models_of(func.value)
        if not models or not models <= wrapped.keys() or getattr(func.value, "attr", "") == "module":
            continue
        wraps = [wrap for one in models for wrap in wrapped[one] if is_afterwards(script, call, wrap)]
        read = list(_gone_through(script, call))
        if not wraps or not (_reads_prefix(read) or _looks_up(script, read)):
            continue
        # Torch's wrapper adds a prefix; unwrapped, or in accelify's, the names have none.
        modules = func.attr == "named_modules"
        again = context.accelerator(call) is None if modules else context.for_accelerate
        if again and context.plan.after_prepare(call, models):
            mark = "read the names without `module.` before them"
            yield context.todo(PARALLEL, call, f"{_LOST}: here they are read with it", mark)
            continue
        prefix = "module" if func.attr in _PAIRS else _PREFIX
        edit = verbs.AddArgument(call, f'prefix="{prefix}"')
        safety = Safety.REVIEW if any(is_for_several(script, wrap) for wrap in wraps) else None
        message = f"{_LOST}, and are read with it here"
        yield context.change(PARALLEL, call, message, [edit], core=True, safety=safety)


def _gone_through(script: ScriptModel, source: ast.expr, left: int = 2) -> Iterator[Node]:
    """The nodes of the loops or comprehensions that go through the names which a call returns, and the names by which
    something is looked up in it: `net.state_dict()["module.head.bias"]`."""
    tree = script.tree
    node: ast.AST = source
    around = tree.parent(node)
    while isinstance(around, ast.Attribute) or (isinstance(around, ast.Call) and _passes_on(around)):
        node, around = around, tree.parent(around)
    if isinstance(around, ast.For) and around.iter is node:
        yield from (n for stmt in around.body for n in walk(stmt))
    elif isinstance(around, ast.comprehension) and around.iter is node:
        yield from walk(tree.parent(around) or around)
    elif isinstance(around, ast.Subscript) and around.value is node:
        yield from walk(around.slice)
    elif isinstance(around, ast.Assign) and isinstance(around.targets[0], ast.Name) and left:
        name = around.targets[0].id
        scope = script.scope_of(around).resolve(name)
        for read in script.reads(name, scope) if scope is not None else ():
            yield from _gone_through(script, read, left - 1)


def _looks_up(script: ScriptModel, nodes: list[Node]) -> bool:
    """Whether names are looked up in a table whose names are made with the prefix: `{f"module.{n}": ...}`."""
    tables = [n.value for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.slice, ast.Name)]
    tables += [
        n.comparators[0]
        for n in nodes
        if isinstance(n, ast.Compare) and isinstance(n.ops[0], ast.In | ast.NotIn)
    ]
    named = [
        (table, script.scope_of(table).resolve(table.id)) for table in tables if isinstance(table, ast.Name)
    ]
    return any(
        _makes_names(stmt.value)
        for table, scope in named
        if scope is not None
        for stmt in script.tree.assigns(table.id)
        if isinstance(stmt, ast.Assign) and script.scope_of(stmt).resolve(table.id) is scope
    )


def _makes_names(table: ast.expr) -> bool:
    """Whether texts of a table, or of what it is made of, begin with the prefix, and none is made without it."""
    texts = [n.value for n in walk(table) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    asks = any(isinstance(n, ast.IfExp) or getattr(n, "attr", "") in _TAKING_EITHER for n in walk(table))
    return not asks and any(text.startswith(_PREFIX) for text in texts)


def _passes_on(call: ast.Call) -> bool:
    func = call.func
    return (func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")) in _PASSING_ON


def _reads_prefix(nodes: list[Node]) -> bool:
    """Whether names are compared with texts that begin with `module.`, or have its seven letters cut off untested."""
    texts = {n.value for n in nodes if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    stated = {text for text in texts if text.startswith(_PREFIX) and text != _PREFIX}
    if any(text.removeprefix(_PREFIX) not in texts for text in stated):
        return True
    return not texts & {_PREFIX, "module"} and any(
        isinstance(n, ast.Slice) and n.upper is None and is_constant(n.lower, len(_PREFIX)) for n in nodes
    )
