"""Seeds that each process draws for itself, where the user names none.

if args.seed is None:
    args.seed = random.randint(1, 10000)
np.random.seed(args.seed)
"""

from __future__ import annotations

import ast
from collections.abc import Mapping

from accelify.analysis.program import Module
from accelify.analysis.statements.option_defaults import constants_in, is_false_by_default
from accelify.analysis.syntax import calls_in, dotted

_DRAWING = frozenset(
    "random.randint random.randrange random.getrandbits np.random.randint numpy.random.randint".split()
)


def drawn_seed(module: Module, call: ast.Call, defaults: Mapping[str, object]) -> str | None:
    """The seed that a call is given, where each process draws it unless the user sets it; None for any other.

    Args:
        module: where the call stands.
        call: that seeds a generator.
        defaults: of the program's options.
    """
    seed = dotted(call.args[0]) if len(call.args) == 1 else None
    for stmt in module.tree.assigns(seed) if seed is not None else ():
        drawn = calls_in(stmt.value)
        if any(dotted(one.func) in _DRAWING for one in drawn) and not _is_left_out(module, stmt, defaults):
            return seed
    return None


def _is_left_out(module: Module, stmt: ast.stmt, defaults: Mapping[str, object]) -> bool:
    """Whether a statement stands under a test that is false unless the user gives other options."""
    inner: ast.AST = stmt
    for ancestor in module.tree.ancestors(stmt):
        if isinstance(ancestor, ast.If) and inner in ancestor.body:
            if is_false_by_default(ancestor.test, defaults, constants_in(module, ancestor.test)):
                return True
        inner = ancestor
    return False


__all__ = ["drawn_seed"]
