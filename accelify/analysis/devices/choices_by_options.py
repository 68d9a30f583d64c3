"""Choices of a device that an option may name itself: `args.device or "cuda"`, `pick(args.device)`.

Where such an option says the CPU, the run is on the CPU: Accelerator(cpu=str(args.device) == "cpu").
"""

from __future__ import annotations

import ast

from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.syntax import is_constant

# Methods of a text that leave it the name of the same device.
_SAME_TEXT = frozenset({"strip", "lower", "casefold"})
_FARTHEST = 4


class ChoicesByOptions:
    """The choices of a script that options take part in.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script

    def text_in(self, value: ast.expr) -> ast.expr:
        """What a device is made of: `args.device` of `torch.device(str(args.device))`."""
        while isinstance(value, ast.Call) and len(value.args) == 1:
            if self.script.qualname(value.func) not in ("torch.device", "builtins.str"):
                break
            value = value.args[0]
        return value

    def _text_of(self, value: ast.expr, callee: Scope) -> ast.expr:
        """The same in a function, where names stand for other forms of a text: `name = device.strip().lower()`."""
        parameters = {argument.arg for argument in callee.parameters()}
        for _ in range(_FARTHEST):
            value = self.text_in(value)
            if isinstance(value, ast.Name) and value.id not in parameters:
                value = assigned_once(callee, value) or value
            elif isinstance(value, (ast.BoolOp, ast.IfExp)):
                value = next((arm for arm, _ in arms_of(value) if isinstance(arm, ast.Name)), value)
            elif (
                isinstance(value, ast.Call)
                and getattr(value.func, "attr", "") in _SAME_TEXT
                and not value.args
            ):
                assert isinstance(value.func, ast.Attribute)
                value = value.func.value
        return value

    def is_stated(self, call: ast.Call) -> bool:
        """Whether a helper of the project takes the device that it gives from one of its arguments.

        It gives the argument itself, or the CPU where the argument is the text for it.
        """
        return any(
            isinstance(text := self._text_of(arm, callee), ast.Name)
            and text.id in {name for _, name in handed_to(call, callee)}
            for callee in self.script.callees(call)
            for stmt in callee.of_type(ast.Return)
            if stmt.value is not None
            for arm, _ in arms_of(stmt.value)
        ) or any(
            isinstance(test, ast.Compare)
            and isinstance(test.left, ast.Name)
            and test.left.id in {name for _, name in handed_to(call, callee)}
            and isinstance(test.ops[0], ast.Eq)
            and is_constant(test.comparators[0], "cpu")
            for callee in self.script.callees(call)
            for choice in callee.of_type(ast.If)
            if any(
                isinstance(s, ast.Return) and s.value is not None and names_cpu(s.value) for s in choice.body
            )
            for test in (choice.test.values if isinstance(choice.test, ast.BoolOp) else [choice.test])
        )


def arms_of(node: ast.expr, test: ast.expr | None = None) -> list[tuple[ast.expr, ast.expr | None]]:
    """What a choice is between, each with the test next to it: `a if t else (b or c)`."""
    if (
        isinstance(node, ast.Call)
        and len(node.args) == 1
        and isinstance(node.args[0], (ast.IfExp, ast.BoolOp))
    ):
        return arms_of(node.args[0], test)
    if isinstance(node, ast.IfExp):
        return [*arms_of(node.body, node.test), *arms_of(node.orelse, node.test)]
    if isinstance(node, ast.BoolOp):
        return [arm for value in node.values for arm in arms_of(value, test)]
    return [(node, test)]
