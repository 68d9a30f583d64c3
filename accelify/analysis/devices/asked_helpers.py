"""What a call asks a helper of the project that chooses a device: `device = get_device(gpu=not args.no_cuda)`.

def get_device(gpu):                                  def get_device():
    return "cuda" if gpu else "cpu"                       if args.cuda:
                                                              return torch.device("cuda")
                                                          return torch.device("cpu")
"""

from __future__ import annotations

import ast

from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted


def choice_of(script: ScriptModel, call: ast.Call) -> tuple[Scope, ast.IfExp] | None:
    """The one choice that the function which a call runs returns, and that function."""
    callees = script.callees(call)
    if len(callees) != 1:
        return None
    (callee,) = callees
    if (branches := _of_branches(callee)) is not None:
        return callee, branches
    returned = [n.value for n in callee.of_type(ast.Return)]
    value = returned[0] if len(returned) == 1 else None
    if isinstance(value, ast.Name):
        given = [n.value for n in callee.of_type(ast.Assign) if value.id in map(dotted, n.targets)]
        value = given[0] if len(given) == 1 else None
    if isinstance(value, ast.Call) and (dotted(value.func) or "").endswith("device") and value.args:
        value = value.args[0]
    return (callee, value) if isinstance(value, ast.IfExp) else None


def _of_branches(callee: Scope) -> ast.IfExp | None:
    """The choice of a function that is one `if` with a device returned from each branch, or from it and after it."""
    if not isinstance(callee.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
        return None
    body = callee.node.body[1:] if ast.get_docstring(callee.node) is not None else callee.node.body
    branch = body[0] if body else None
    if not isinstance(branch, ast.If) or len(body) > 2 or (len(body) == 2) == bool(branch.orelse):
        return None
    ends = [branch.body, branch.orelse or body[1:]]
    given = [end[-1].value for end in ends if len(end) == 1 and isinstance(end[-1], ast.Return)]
    if len(given) < 2 or given[0] is None or given[1] is None:
        return None
    return ast.IfExp(branch.test, given[0], given[1])


def _is_shared(script: ScriptModel, test: ast.Attribute, callee: Scope, call: ast.Call) -> bool:
    """Whether what a function asks is the same where the call is: `args.cuda` of a global, `self.args.cuda`."""
    root = (dotted(test) or "").partition(".")[0]
    if not root or script.interpreter.module_of(callee) is not script.module_of(call):
        return False
    if root == callee.self_name():
        return (dotted(call.func) or "").partition(".")[0] == root
    owner = callee.resolve(root)
    return owner is not callee and owner is script.scope_of(call).resolve(root)


def as_given(script: ScriptModel, test: ast.expr, callee: Scope, call: ast.Call) -> ast.expr | None:
    """A test of a function by what a call passes to its parameters, or by a global option; else None.

    What asks the machine is taken for true.
    """
    if isinstance(test, ast.BoolOp):
        parts = [as_given(script, value, callee, call) for value in test.values]
        known = [part for part in parts if part is not None]
        return ast.BoolOp(test.op, known) if len(known) == len(parts) else None
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = as_given(script, test.operand, callee, call)
        return None if inner is None else ast.UnaryOp(ast.Not(), inner)
    if isinstance(test, ast.Call) and (dotted(test.func) or "").endswith("is_available"):
        return ast.Constant(True)
    if isinstance(test, ast.Attribute) and _is_shared(script, test, callee, call):
        return test
    if not isinstance(test, ast.Name):
        return None
    given = [value for value, name in handed_to(call, callee) if name == test.id]
    if given:
        return given[0]
    default = next((value for argument, value in callee.defaults() if argument.arg == test.id), None)
    return ast.Constant(bool(default.value)) if isinstance(default, ast.Constant) else None


__all__ = ["as_given", "choice_of"]
