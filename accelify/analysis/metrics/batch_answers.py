"""One answer for each batch: what all rows of a batch decide together, counted once a round.

`if scores.argmax() == 0: right += 1` asks one question of a batch. Of the batches of N processes put together it asks
one question too, where the script asked N.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted, names_in, target_names, text_of, walk

_REDUCING = frozenset(
    {
        "argmax",
        "argmin",
        "max",
        "min",
        "amax",
        "amin",
        "sum",
        "mean",
        "any",
        "all",
        "median",
        "prod",
        "allclose",
        "equal",
    }
)
_OF_TWO = frozenset({"allclose", "equal"})
_LIBRARIES = ("torch", "numpy", "builtins")
_NESTED = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def answer_of_a_batch(
    script: ScriptModel, statements: Sequence[ast.stmt], gathered: Iterable[str]
) -> str | None:
    """Why a count of rounds changes when batches are put together, as what they decide shows; None: it does not.

    Args:
        script: its model.
        statements: of the loop's body, from the model's last call on.
        gathered: the names of what would be gathered.
    """
    rows, answers = set(gathered), dict[str, ast.expr]()

    def answer(value: ast.expr) -> ast.expr | None:
        """What an expression makes of all rows together, where it is no amount that adds up."""
        for node in _outside_loops(value):
            if isinstance(node, ast.Name) and node.id in answers:
                return answers[node.id]
            if isinstance(node, ast.Call) and (reduced := _reduced(script, node)) is not None:
                if names_in(reduced) & rows or _runs_model(script, reduced):
                    return node
        return None

    queue = list(statements)
    while queue:
        stmt = queue.pop(0)
        if isinstance(stmt, ast.Assign):
            names = {n for target in stmt.targets for n in target_names(target)}
            found = answer(stmt.value)
            derived = names_in(stmt.value) & rows or _runs_model(script, stmt.value)
            rows, answers = rows - names, {n: a for n, a in answers.items() if n not in names}
            if found is not None:
                answers |= dict.fromkeys(names, found)
            elif derived:
                rows |= names
        elif isinstance(stmt, ast.If):
            found = answer(stmt.test)
            if found is not None and any(_counts(one) for one in [*stmt.body, *stmt.orelse]):
                return _message(found)
            queue = [*stmt.body, *stmt.orelse, *queue]
        elif isinstance(stmt, (ast.AugAssign, ast.Expr)):
            for test, whole in _decisions(stmt):
                found = answer(test)
                if found is not None and (whole or _is_place(found)):
                    return _message(found)
    return None


def _message(found: ast.expr) -> str:
    return f"`{text_of(found)}` is one answer for a whole batch, and several batches at once have one too"


def _decisions(stmt: ast.AugAssign | ast.Expr) -> list[tuple[ast.expr, bool]]:
    """The comparisons that are added up or put into a list, and whether as they are: `right += int(scores.max() > 0)`.

    Of others, `(scores.argmax() == y).sum()`, it is seen only by the place in all rows that it takes for one of a row.
    """
    value: ast.expr = stmt.value
    if isinstance(stmt, ast.Expr):
        if not (isinstance(value, ast.Call) and getattr(value.func, "attr", "") == "append" and value.args):
            return []
        value = value.args[0]
    while True:
        if isinstance(value, ast.Call) and dotted(value.func) in ("int", "float", "bool") and value.args:
            value = value.args[0]
        elif isinstance(value, ast.Call) and getattr(value.func, "attr", "") in (
            "item",
            "float",
            "int",
            "long",
        ):
            value = value.func.value  # type: ignore[attr-defined]
        else:
            break
    if isinstance(value, ast.IfExp):
        return [(value.test, True)]
    if isinstance(value, (ast.Compare, ast.BoolOp)):
        return [(value, True)]
    return [(node, False) for node in _outside_loops(value) if isinstance(node, ast.Compare)]


def _is_place(reduction: ast.expr) -> bool:
    name = text_of(reduction.func) if isinstance(reduction, ast.Call) else ""
    return name.rpartition(".")[2] in ("argmax", "argmin")


def _counts(stmt: ast.stmt) -> bool:
    """Whether a statement counts rounds: `right += 1`, `results.append(True)`."""
    if isinstance(stmt, ast.AugAssign):
        return isinstance(stmt.value, ast.Constant)
    call = stmt.value if isinstance(stmt, ast.Expr) else None
    if isinstance(call, ast.Call) and getattr(call.func, "attr", "") == "append":
        return bool(call.args) and isinstance(call.args[0], ast.Constant)
    return isinstance(stmt, ast.If) and any(_counts(one) for one in [*stmt.body, *stmt.orelse])


def _reduced(script: ScriptModel, call: ast.Call) -> ast.expr | None:
    """What a call reduces over all of its rows and entries; None where it names an axis or reduces nothing."""
    if any(keyword.arg in ("dim", "axis", None) for keyword in call.keywords):
        return None
    known = script.qualname(call.func)
    library, _, last = (known or "").rpartition(".")
    if library.split(".")[0] in _LIBRARIES and last in _REDUCING:
        return call.args[0] if len(call.args) == 1 + (last in _OF_TWO) else None
    function = call.func
    if isinstance(function, ast.Attribute) and function.attr in _REDUCING:
        return function.value if len(call.args) == (function.attr in _OF_TWO) else None
    return None


def _runs_model(script: ScriptModel, value: ast.expr) -> bool:
    return any(isinstance(node, ast.Call) and script.models_run(node) for node in walk(value))


def _outside_loops(value: ast.AST) -> Iterable[ast.AST]:
    """The nodes of an expression but for those of comprehensions, which read row by row."""
    queue = [value]
    while queue:
        node = queue.pop()
        if isinstance(node, _NESTED):
            continue
        yield node
        queue += ast.iter_child_nodes(node)
