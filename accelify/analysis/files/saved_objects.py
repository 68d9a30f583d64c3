"""Objects of libraries that write themselves into a file: `tokenizer.save("words.json")`, `scripted.save("net.pt")`."""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.files.asked_paths import bare_path
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.reaching_assignments import last_assignment
from accelify.analysis.values import Entity

_COMPILING = frozenset(
    f"torch.jit.{name}" for name in ("script", "trace", "trace_module", "freeze", "optimize_for_inference")
)


def saved_to(script: ScriptModel, call: ast.Call) -> ast.expr | None:
    """The path of `thing.save(path)`, where a library made the object; None for any other call.

    Of torch's objects, only those that TorchScript compiled. An object that the script trains, a model of a library for
    example, has a role, and every process may have to reach its save.
    """
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "save" or not call.args or script.callees(call):
        return None
    if _is_compiled(script, func.value):
        return bare_path(call.args[0])
    contained = script.values(func.value)
    made = bool(contained) and all(isinstance(w, Entity) and _is_library_made(w) for w in contained)
    return bare_path(call.args[0]) if made else None


def _is_compiled(script: ScriptModel, node: ast.expr) -> bool:
    """Whether something is what TorchScript returned, here or where its name was bound last."""
    if isinstance(node, ast.Name):
        bound = last_assignment(script.tree, node)
        return bound is not None and isinstance(bound.value, ast.Call) and _is_compiled(script, bound.value)
    return isinstance(node, ast.Call) and script.qualname(node.func) in _COMPILING


def _is_library_made(entity: Entity) -> bool:
    library = (entity.qualname or "torch").partition(".")[0]
    return entity.kind == v.UNKNOWN and entity.cls is None and library != "torch"
