"""Where a script puts a model into a DataParallel, or into what passes for one."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, walk
from accelify.analysis.values import Class, Entity


def wraps_model(script: ScriptModel, call: ast.Call) -> bool:
    """Whether a call makes a DataParallel, a class of the project that is one, or one that passes for it."""
    name = script.qualname(call.func) or ""
    if name in k.PARALLEL_WRAPPERS:
        return True
    if k.is_unread_wrapper(name, call):
        return script.is_a(call, v.MODEL, v.CRITERION)
    return any(
        isinstance(w, Class) and (w.only_splits(k.PARALLEL_WRAPPERS) or _splits_targets(w))
        for w in script.values(call.func)
    )


def _splits_targets(cls: Class) -> bool:
    """Whether a DataParallel is one of a loss: it takes outputs that are on several GPUs, and spreads the targets.

    `DataParallelCriterion` of zhanghang1989/PyTorch-Encoding, which scripts bring along. On one device it runs what
    it wraps with its arguments.
    """
    forward = cls.method("forward")
    if forward is None or not cls.external_bases() & k.PARALLEL_WRAPPERS:
        return False
    if not cls.name.endswith(("Criterion", "Loss")):
        return False
    returned = (n.value for n in forward[1].of_type(ast.Return))
    return any(isinstance(value, ast.Call) and dotted(value.func) == "self.module" for value in returned)


def wrapping_calls(script: ScriptModel) -> list[ast.Call]:
    """The calls of a script that wrap a model so."""
    if not any(module.tree.mentions(b"Parallel") for module in script.program.modules.values()):
        return []  # the word is in the name of every such class, or in that of one of its bases
    return [call for call in script.calls() if wraps_model(script, call)]


def wrapped_models(script: ScriptModel) -> dict[Entity, list[ast.Call]]:
    """What such calls wrap, each with the calls."""
    found: dict[Entity, list[ast.Call]] = {}
    for call in wrapping_calls(script):
        if call_argument(call, 0, "module") is not None:
            for entity in script.entities(call):
                found.setdefault(entity, []).append(call)
    return found


def is_unread_and_stays(script: ScriptModel, model: Entity) -> bool:
    """Whether a model is in a wrapper of another library, or of a module that is not read, which is not taken out.

    What that stores as `module` belongs to it, and exists whatever becomes of the model.
    """
    name, site = model.qualname or "", model.site
    last = name.rpartition(".")[2]
    return (
        "Parallel" in last
        and last[:1].isupper()
        and not name.startswith("torch.")
        and model.cls is None
        and isinstance(site, ast.Call)
        and model.module in script.modules
        and (inner := call_argument(site, 0, "module")) is not None
        and script.is_a(inner, v.MODEL)
        and not wraps_model(script, site)
    )


def is_afterwards(script: ScriptModel, node: ast.AST, wrap: ast.Call) -> bool:
    """Whether a node can run after a wrapping; in another function, unless that is called before it only."""
    tree = script.tree
    scope, own = script.scope_of(wrap), script.scope_of(node)
    if scope is own:
        return tree.is_before(wrap, node)
    beside = [tree.start(c) for c in script.callers(own) if script.scope_of(c) is scope]
    return not beside or max(beside) > tree.start(wrap)


def is_for_several(script: ScriptModel, wrap: ast.Call) -> bool:
    """Whether a model is wrapped under some condition only, another one than that there is a GPU."""
    inner: ast.AST = wrap
    for around in script.tree.ancestors(wrap):
        if isinstance(around, (ast.If, ast.IfExp)) and inner is not around.test:
            if not _asks_for_a_gpu(around.test):
                return True
        inner = around
    return False


def _asks_for_a_gpu(test: ast.expr) -> bool:
    if isinstance(test, ast.Call):
        return (dotted(test.func) or "").endswith("cuda.is_available")
    name = (dotted(test) or "").rpartition(".")[2]
    return name in ("cuda", "use_cuda", "use_gpu") or (
        any(isinstance(n, ast.Constant) and n.value == "__main__" for n in walk(test))
    )
