"""Models that a function calls because its caller passes them: another call of it need not run any.

report(model, "weights")    calls the model where `report` does
report("loss", 0.5)         does not
"""

from __future__ import annotations

import ast
from collections.abc import Callable

from accelify.analysis.files.effect_sites import defaults_of, is_stored
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import hides_arguments

# Functions that only format their argument.
LOGGING = frozenset("debug info warning warn error critical fatal exception log format".split())


def parameter_of(scope: Scope, node: ast.expr) -> str:
    """The parameter that an expression represents, where the function gives it no other value; "" for others."""
    if not isinstance(node, ast.Name) or node.id == scope.self_name() or scope.resolve(node.id) is not scope:
        return ""
    given = scope.takes(node.id)
    return node.id if given and not is_stored(scope, node.id) else ""


def models_handed(
    call: ast.Call, callee: Scope, called: set[str], scope: Scope, is_model: Callable[[ast.expr], bool]
) -> tuple[bool, set[str]]:
    """Whether a call passes a model that the callee calls, and by which parameters of the caller it does.

    Args:
        call: of the callee.
        callee: a function.
        called: its parameters whose model it calls.
        scope: of the call.
        is_model: whether an expression there can be a model.
    """
    given = {name: argument for argument, name in handed_to(call, callee)}
    starred = hides_arguments(call)
    defaults = defaults_of(callee)
    surely, through = False, set()
    for name in called:
        argument = given.get(name)
        if argument is None or starred:
            # The argument is unknown, but a default is none.
            surely = surely or starred or defaults.get(name) is None
        elif is_model(argument):
            own = parameter_of(scope, argument)
            through |= {own} if own else set()
            surely = surely or not own
    return surely, through
