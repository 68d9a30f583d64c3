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


def is_shared(script: ScriptModel, name: str, callee: Scope, call: ast.Call) -> bool:
    """Whether what a function asks is the same where the call is: `args.cuda` of a global, `self.args.cuda`."""
    root = name.partition(".")[0]
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
    if isinstance(test, ast.Attribute) and is_shared(script, dotted(test) or "", callee, call):
        return test
    if not isinstance(test, ast.Name):
        return None
    given = [value for value, name in handed_to(call, callee) if name == test.id]
    if given:
        return given[0]
    default = next((value for argument, value in callee.defaults() if argument.arg == test.id), None)
    return ast.Constant(bool(default.value)) if isinstance(default, ast.Constant) else None
