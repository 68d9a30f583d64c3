"""What a script reads of a model that its wrapper does not have: its class, whether it is a list, its code."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis.models.parallel_wraps import is_unread_and_stays
from accelify.analysis.statements.reaching_assignments import made_of
from accelify.analysis.syntax import Tree, dotted, text_of
from accelify.analysis.values import Class
from accelify.transforms.base import Context

# TorchScript's functions and classes, which compile the forward of their argument.
_COMPILING = frozenset({"torch.jit.script", "torch.jit.trace", "torch.jit.trace_module"})
# Functions of libraries that refuse a model which is not of a class of theirs.
_CLASS_BOUND = frozenset(
    {
        "torchmeta.utils.gradient_based.gradient_update_parameters",
        "torchmeta.utils.gradient_update_parameters",
    }
)
_LISTS = frozenset("list tuple dict set Sequence Iterable Mapping".split())
_SCRIPTED = "torch.jit.ScriptModule"
GIVING_BACK = frozenset({"eval", "train", "cpu", "cuda", "to", "float", "double", "half"})


def is_list_by_now(context: Context, node: ast.Name | ast.Attribute) -> bool:
    """Whether a name that had the model refers to a list: `layers = [*layers.modules()]`, for one that is none yet."""
    if not isinstance(node, ast.Name):
        return False
    inner: ast.AST = node
    for around in context.tree.ancestors(node):
        if isinstance(around, ast.If) and inner in around.body and _asks_for_list(around.test, node.id):
            return True
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef)):
            break
        inner = around
    for stmt, sure in made_of(context.tree, node).items():
        if not isinstance(stmt, ast.Assign) or not _is_list(stmt.value):
            continue
        branch = context.tree.parent(stmt)
        test = text_of(branch.test) if isinstance(branch, ast.If) and stmt in branch.body else ""
        if sure or test.startswith(f"not isinstance({node.id}, "):
            return True
    return False


def _asks_for_list(test: ast.expr, name: str) -> bool:
    """`isinstance(x, (list, tuple))`, `type(x) is list`: x is no model there."""
    asked: ast.expr | None = None
    if isinstance(test, ast.Call) and dotted(test.func) == "isinstance" and len(test.args) == 2:
        of, asked = test.args
    elif isinstance(test, ast.Compare) and isinstance(test.left, ast.Call) and len(test.ops) == 1:
        if (
            dotted(test.left.func) != "type"
            or not test.left.args
            or not isinstance(test.ops[0], (ast.Is, ast.Eq, ast.In))
        ):
            return False
        of, asked = test.left.args[0], test.comparators[0]
    if asked is None or not isinstance(of, ast.Name) or of.id != name:
        return False
    kinds = asked.elts if isinstance(asked, (ast.Tuple, ast.List, ast.Set)) else [asked]
    return all((dotted(kind) or "").rpartition(".")[2] in _LISTS for kind in kinds)


def _is_list(node: ast.expr) -> bool:
    made = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
    return isinstance(node, (ast.List, ast.ListComp, ast.Tuple)) or made in ("list", "tuple", "sorted")


def taker_of(tree: Tree, model: ast.expr) -> ast.Call | None:
    """The call whose argument is a model, possibly with `.eval()`, `.float()` and the like applied."""
    node: ast.AST = model
    while isinstance(through := tree.parent(node), ast.Attribute) and through.attr in GIVING_BACK:
        call = tree.parent(through)
        if not isinstance(call, ast.Call):
            return None
        node = call
    taker = tree.parent(node)
    if isinstance(taker, ast.keyword):
        taker = tree.parent(taker)
    return taker if isinstance(taker, ast.Call) and taker.func is not node else None


def is_compiled(context: Context, model: ast.expr) -> bool:
    """Whether a model is passed to TorchScript: `torch.jit.script(model.eval())`, or is a part of a ScriptModule."""
    script, taker = context.script, taker_of(context.tree, model)
    if taker is None:
        return False
    return script.qualname(taker.func) in _COMPILING or any(
        isinstance(w, Class) and _SCRIPTED in w.external_bases() for w in script.values(taker.func)
    )


def asks_for_class(context: Context, call: ast.Call, model: ast.expr) -> bool:
    """`type(model)`, or `isinstance(model, Net)` of a class that no wrapper of it is of, or a library that asks so."""
    if call.args[:1] == [model] and context.script.qualname(call.func) in _CLASS_BOUND:
        return True
    if not isinstance(call.func, ast.Name) or not call.args or call.args[0] is not model or call.keywords:
        return False
    if call.func.id == "type":
        return len(call.args) == 1
    if call.func.id != "isinstance" or len(call.args) != 2:
        return False
    kinds = call.args[1].elts if isinstance(call.args[1], ast.Tuple) else [call.args[1]]
    script, asked = context.script, {context.script.qualname(kind) for kind in kinds}
    if any(one.qualname in asked and is_unread_and_stays(script, one) for one in script.models_of(model)):
        return True
    return any(
        isinstance(w, Class) and not w.external_bases() & (k.PARALLEL_WRAPPERS | k.DDP_WRAPPERS)
        for kind in kinds
        for w in context.script.values(kind)
    ) or any(
        name != "torch.nn.Module" and k.is_module_class(name)
        for name in (context.script.qualname(kind) or "" for kind in kinds)
    )
