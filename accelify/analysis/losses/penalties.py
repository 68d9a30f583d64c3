"""Terms of a loss that depend on weights alone, and on values stored of them: the same whatever the batch is.

model.weight.pow(2).sum()
(fisher[name] * (weight - before[name]) ** 2).sum()     with `fisher` and `before` from before the loop
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, target_names, walk
from accelify.analysis.values import Entity, Imported, Values

_OF_BATCHES = (v.BATCH, v.OUTPUT, v.LOADER, v.ITERATOR, v.DATASET)


def is_penalty(script: ScriptModel, node: ast.Call, module: Module, scope: Scope) -> bool:
    """Whether a call works on weights, and on nothing else but what was stored before the batches.

    Args:
        script: its model.
        node: the call, `....sum()`.
        module: the module of the node.
        scope: the scope of the node.
    """
    called = {id(c.func) for c in calls_in(node) if isinstance(c.func, ast.Name)}
    made = {n.id for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names = [
        n
        for n in walk(node)
        if isinstance(n, ast.Name)
        and id(n) not in called
        and n.id not in made
        and isinstance(n.ctx, ast.Load)
    ]
    evaluate = script.interpreter.evaluate
    weights = False
    for name in names:
        contained = evaluate(module, scope, name)
        if any(isinstance(w, Entity) and w.kind in (v.MODEL, v.PARAMETERS) for w in contained):
            weights = True
        elif not (contained and all(isinstance(w, Imported) for w in contained)):
            if not (_is_stored(script, name, contained, module, scope) or _names_weight(name, module)):
                return False
    if not weights:
        return False
    # What a method stores in its model (`self.features`) is of the batch.
    retained = {dotted(t) for n in scope.of_type(ast.Assign) for t in n.targets} - {None}
    for n in walk(node):
        if isinstance(n, ast.Attribute) and (
            dotted(n) in retained
            or any(isinstance(w, Entity) and w.kind == v.OUTPUT for w in evaluate(module, scope, n))
        ):
            return False
    return not any(
        isinstance(w, Entity) and w.kind == v.MODEL
        for c in calls_in(node)
        for w in evaluate(module, scope, c.func)
    )


def _is_stored(script: ScriptModel, name: ast.Name, contained: Values, module: Module, scope: Scope) -> bool:
    """Whether a variable is set before the loop over batches in which it is read, or at the top of the module."""
    owner = scope.resolve(name.id)
    if owner is None or owner.kind == "class" or owner.takes(name.id):
        return False
    if (
        any(isinstance(w, Entity) and w.kind in _OF_BATCHES for w in contained)
        or module not in script.modules
    ):
        return False
    tree, loops = script.tree, {loop for loop, _ in script.loader_loops}
    if owner.kind != "module" and not any(a in loops for a in tree.ancestors(name)):
        return False
    writes = [w for w in tree.writes(name.id) if script.scope_of(w).resolve(name.id) is owner]
    return bool(writes) and not any(a in loops for w in writes for a in tree.ancestors(w))


def _names_weight(name: ast.Name, module: Module) -> bool:
    """Whether a name is bound beside each weight of a model: `for name, weight in model.named_parameters()`."""
    for loop in module.tree.ancestors(name):
        if isinstance(loop, ast.For) and name.id in target_names(loop.target):
            return any(isinstance(n, ast.Attribute) and n.attr == "named_parameters" for n in walk(loop.iter))
    return False
