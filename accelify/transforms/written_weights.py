"""Weights that a training loop writes by what a process makes of its own batch: the models of the processes part.

worst = (outputs["h"] * grads["h"]).sum(0).argmin()    (what hooks have kept of the batch)
layer.weight.data[worst] = 0                           (a finding: every process takes another one out)

ctx.lut[y] = 0.5 * ctx.lut[y] + 0.5 * x                (in the backward of a Function: a finding, as each has its table)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from accelify.analysis import values as v
from accelify.analysis.metrics.figures import BatchLoop
from accelify.analysis.models.weight_writes import weight_of, weight_write
from accelify.analysis.models.written_tables import is_run, written_tables
from accelify.analysis.syntax import calls_in, dotted, names_in, target_names, text_of, walk
from accelify.analysis.values import Class, Function
from accelify.transforms.base import Change, Context, Rule, short

WRITTEN = Rule(
    "ACC424",
    "written-weights",
    "Weights, or a table that a loss reads, are written by what a process makes of its own batch.",
    effort=15,
)
_MARK = "let all processes agree on what decides it: accelerator.reduce or accelerator.gather before"
_MARK_OF_TABLES = "gather the samples of all processes before the table is written, or each has its own"
_HOOKS = frozenset(
    """register_forward_hook register_forward_pre_hook register_backward_hook register_full_backward_hook
    register_full_backward_pre_hook""".split()
)
_FILLING = frozenset({"append", "update", "extend", "add"})
_AGREEING = re.compile(
    r"(^|\.)(all_reduce|all_gather|gather_for_metrics)$|(accelerator|dist\w*)\.(reduce|gather|broadcast)$"
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each training loop, and each class, that writes weights by something of the batch."""
    yield from _in_loops(context)
    yield from _in_classes(context)
    yield from _in_functions(context)


def _in_loops(context: Context) -> Iterator[Change]:
    kept: set[str] | None = None
    for loop in context.shared_loops():
        writes = [w for s in loop.body for n in walk(s) if (w := weight_write(context.script, n)) is not None]
        if not writes:
            continue
        kept = _kept_by_hooks(context) if kept is None else kept
        own = _own(context, loop, kept)
        for weight, deciding in writes:
            if any(names_in(part) & own and not _agrees(part) for part in deciding):
                text = short(context.tree.segment(weight))
                message = (
                    f"`{text}` is written by what one process makes of its own batch, so that the models part"
                )
                yield context.todo(WRITTEN, context.tree.statement(weight), message, _MARK)
                break


def _own(context: Context, loop: BatchLoop, kept: set[str]) -> set[str]:
    """The names in a loop that hold what one process makes of its batch, or what is made of that."""
    found = {*context.figures.of_the_batch(loop), *kept}
    agreed: set[str] = set()
    assigns = [n for s in loop.body for n in walk(s) if isinstance(n, ast.Assign)]
    for _ in range(3):
        for stmt in assigns:
            names = {n for t in stmt.targets for n in target_names(t)}
            read = names_in(stmt.value)
            if _agrees(stmt.value) or (read & agreed and not read & found):
                agreed |= names
                found -= names
            elif kept and read & found:
                found |= names - agreed
    return found


def _agrees(value: ast.expr) -> bool:
    return any(_is_agreement(n) for n in walk(value))


def _is_agreement(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and _AGREEING.search(dotted(node.func) or "") is not None


def _kept_by_hooks(context: Context) -> set[str]:
    """The variables in which hooks keep what a model makes of a batch."""
    found: set[str] = set()
    for call in context.script.calls():
        if not (isinstance(call.func, ast.Attribute) and call.func.attr in _HOOKS and call.args):
            continue
        hook = call.args[0]
        bodies: list[ast.AST] = [hook.body] if isinstance(hook, ast.Lambda) else []
        if isinstance(hook, (ast.Name, ast.Attribute)):
            bodies += [w.scope.node for w in context.script.values(hook) if isinstance(w, Function)]
        kept = {_kept_in(node) for body in bodies for node in walk(body)}
        found |= {name for name in kept if name is not None and "." not in name}
    return found


def _kept_in(node: ast.AST) -> str | None:
    """What a hook's statement keeps something in: `outputs` of `outputs[name] = o`, `self.seen` of its `append`."""
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
        return dotted(node.targets[0].value)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return dotted(node.func.value) if node.func.attr in _FILLING else None
    return None


# -- classes


def _in_classes(context: Context) -> Iterator[Change]:
    """Classes, of any module, that choose by what their hooks keep which layers or weights of a model they replace."""
    if not context.plan.shares_training_data:
        return
    known: dict[Class, bool] = {}
    for call in context.script.calls():
        classes = [w for w in context.script.values(call.func) if isinstance(w, Class)]
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if not classes or not any(
            isinstance(a, (ast.Name, ast.Attribute)) and context.plan.is_prepared(a, v.MODEL) for a in given
        ):
            continue
        for cls in classes:
            if cls not in known:
                known[cls] = _chooses(cls)
            if known[cls]:
                message = (
                    f"`{cls.name}` writes weights by what its hooks keep of one process's own batch, so that the "
                    "models part"
                )
                yield context.todo(WRITTEN, call, message, _MARK)
                break


def _chooses(cls: Class) -> bool:
    methods = {
        m.name.rsplit(".", 1)[-1]: m.node for one in cls.ancestry() for m in one.scope.children.values()
    }
    hooks: list[ast.AST] = []
    for method in methods.values():
        inner = {n.name: n for n in walk(method) if isinstance(n, ast.FunctionDef)}
        for call in calls_in(method):
            if isinstance(call.func, ast.Attribute) and call.func.attr in _HOOKS and call.args:
                hook = call.args[0]
                name = (dotted(hook) or "").removeprefix("self.")
                found = hook if isinstance(hook, ast.Lambda) else inner.get(name) or methods.get(name)
                hooks += [found] if found is not None else []
    places = {_kept_in(node) for hook in hooks for node in walk(hook)}
    kept = {place for place in places if place is not None and place.startswith("self.")}
    if not kept:
        return False
    inside = {id(n) for hook in hooks for n in walk(hook)}
    for method in methods.values():
        if any(id(n) not in inside and _reads_kept(n, kept) for n in walk(method)):
            nodes = [n for reached in _reached(methods, method) for n in walk(reached)]
            if any(map(_writes, nodes)) and not any(
                isinstance(n, ast.expr) and _is_agreement(n) for n in nodes
            ):
                return True
    return False


def _reads_kept(node: ast.AST, kept: set[str]) -> bool:
    """`self.outputs[name]`, `self.outputs.items()`, `for output in self.outputs`."""
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load) and dotted(node.value) in kept
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr in ("items", "values", "pop") and dotted(node.func.value) in kept
    return isinstance(node, (ast.For, ast.comprehension)) and dotted(node.iter) in kept


def _reached(methods: Mapping[str, ast.AST], method: ast.AST) -> list[ast.AST]:
    """A method and those of the class that it calls."""
    found = [method]
    for one in found:
        for node in walk(one):
            name = dotted(node.func) if isinstance(node, ast.Call) else None
            called = methods.get(name.removeprefix("self.")) if name and name.startswith("self.") else None
            if called is not None and called not in found:
                found.append(called)
    return found


def _writes(node: ast.AST) -> bool:
    """`layer.weight.data[i] = ...`, `parent._modules[name] = ...`, `layer.weight.data.zero_()`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        filling = node.func.attr.endswith("_") and not node.func.attr.endswith("__")
        return filling and node.func.attr != "requires_grad_" and weight_of(node.func.value) is not None
    targets = list(node.targets) if isinstance(node, ast.Assign) else []
    targets += [node.target] if isinstance(node, ast.AugAssign) else []
    return any(
        weight_of(t) is not None
        or (
            isinstance(t, ast.Subscript) and isinstance(t.value, ast.Attribute) and t.value.attr == "_modules"
        )
        for t in targets
    )


# -- tables


def _in_functions(context: Context) -> Iterator[Change]:
    """Functions of autograd, of any module, that write a table which they are handed in their backward."""
    if not context.plan.shares_training_data:
        return
    script = context.script
    for cls in script.interpreter.classes():
        if not cls.module.tree.mentions("Function"):
            continue
        table = next(written_tables(cls), None)
        if table is None or any(map(_is_agreement, walk(cls.scope.node))) or not is_run(script, cls):
            continue
        text, own = text_of(table), cls.module in script.modules
        path = cls.module.path
        where = "" if own or path is None else f" ({path.name}, line {table.lineno})"
        message = (
            f"`{text}`{where} is written in the backward of `{cls.name}` by one process's own samples: each process "
            "gets another table, and the losses part"
        )
        place = context.tree.statement(table) if own else context.tree.statement(script.backwards[0].call)
        yield context.todo(WRITTEN, place, message, _MARK_OF_TABLES)
