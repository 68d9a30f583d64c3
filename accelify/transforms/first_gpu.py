"""The first GPU by its number, in modules that are not converted: without the number it is each process's GPU.

torch.device("cuda:0")    ->  torch.device("cuda")    (where the script reaches it, or passes it to another module)

For one process `"cuda"` is the first GPU, too, so nothing changes for other callers of such a function.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import target_names, walk
from accelify.transforms.base import Change, Context
from accelify.transforms.device_constants import CONSTANT
from accelify.transforms.unnumbered import FIRST, MESSAGE, can_go, is_first_gpu, unnumbered, without_number
from accelify.writer import edits as verbs


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits in functions that give a module which is not converted the first GPU."""
    if context.plan.arguments.get("cpu") == "True":
        return
    script = context.script
    for module in dict.fromkeys(script.program.modules.values()):
        for scope in module.scopes.functions() if module.tree.mentions(FIRST) else ():
            callers = {caller for caller, _ in script.interpreter.callers.get(scope, ())}
            if callers.issubset(script.modules):
                continue
            for text in _given(module, scope):
                if module not in script.modules:
                    unnumbered(context, module, text, CONSTANT)
                elif not context.is_claimed(text) and can_go(context, module, text):
                    edit = verbs.replace(text, without_number(context.tree.segment(text)))
                    yield context.change(CONSTANT, text, MESSAGE, [edit])


def _given(module: Module, scope: Scope) -> Iterator[ast.Constant]:
    """The texts among what a function returns, by a name too."""
    returned = [n.value for n in scope.of_type(ast.Return) if n.value is not None]
    names = {n.id for value in returned for n in walk(value) if isinstance(n, ast.Name)}
    made = [
        stmt.value
        for stmt in scope.of_type(ast.Assign)
        if any(names.intersection(target_names(target)) for target in stmt.targets)
    ]
    for value in (*returned, *made):
        yield from (n for n in walk(value) if isinstance(n, ast.Constant) and is_first_gpu(n))
