"""Names of weights without DataParallel, which puts `module.` before them.

for name, p in net.named_parameters():        ->  for name, p in net.named_parameters(prefix="module"):
    if name.startswith("module.head"): ...            if name.startswith("module.head"): ...
short = {n[7:]: w for n, w in net.state_dict().items()}    ->  ... in net.state_dict(prefix="module.").items()}

Code that reads the names stays as it is: it gets the names with their prefix.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.models.parallel_wraps import is_afterwards, is_for_several, wrapped_models
from accelify.analysis.syntax import Node, Tree, is_constant, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL
from accelify.writer import edits as verbs

_LOST = "the names of weights begin with `module.` under DataParallel alone"
_PREFIX = "module."
# Methods whose results are pairs of a name and what it names.
_PAIRS = frozenset({"named_parameters", "named_modules", "named_buffers"})
_PASSING_ON = frozenset({"enumerate", "items", "keys", "list", "sorted"})


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
        if not wraps or not _reads_prefix(list(_gone_through(context.tree, call))):
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


def _gone_through(tree: Tree, source: ast.Call) -> Iterator[Node]:
    """The nodes of the loop or comprehension that goes through the names which a call returns."""
    node: ast.AST = source
    around = tree.parent(node)
    while isinstance(around, ast.Attribute) or (isinstance(around, ast.Call) and _passes_on(around)):
        node, around = around, tree.parent(around)
    if isinstance(around, ast.For) and around.iter is node:
        yield from (n for stmt in around.body for n in walk(stmt))
    elif isinstance(around, ast.comprehension) and around.iter is node:
        yield from walk(tree.parent(around) or around)


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
