"""What names a device: the CPU, an option, a field."""

from __future__ import annotations

import ast
from typing import NamedTuple

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import (
    call_argument,
    call_keyword,
    dotted,
    is_constant,
    walk,
)


class DeviceAssignment(NamedTuple):
    """`target = <value>`, a device; in `rate, target = 0.1, <value>` a part of its statement.

    `whole` is the `if`/`else` that does nothing but choose the device, if there is one.
    `cpu` is the condition, as source text, under which the script wants the CPU although it has something better;
    None where it takes what the machine has.
    """

    statement: ast.Assign | ast.AnnAssign
    whole: ast.If | None
    cpu: str | None
    names: frozenset[str]
    target: ast.expr
    value: ast.expr

    @property
    def is_part(self) -> bool:
        """Whether its statement assigns more than the device."""
        return self.value is not self.statement.value


def compares_to(value: ast.expr, name: str) -> bool:
    """Whether an expression compares a name with something."""
    return any(
        isinstance(node, ast.Compare) and any(dotted(side) == name for side in (node.left, *node.comparators))
        for node in walk(value)
    )


def is_field(script: ScriptModel, stmt: ast.Assign | ast.AnnAssign) -> bool:
    """Whether a statement is an option with its default that can be set: `device: str = "cpu"` of a dataclass."""
    parent = script.tree.parent(stmt)
    if not isinstance(stmt, ast.AnnAssign) or not isinstance(parent, ast.ClassDef):
        return False
    marks = [(dotted(one.func if isinstance(one, ast.Call) else one), one) for one in parent.decorator_list]
    return any((name or "").endswith("dataclass") and not _is_frozen(one) for name, one in marks)


def _is_frozen(mark: ast.expr) -> bool:
    return isinstance(mark, ast.Call) and is_constant(call_keyword(mark, "frozen"), True)


def names_cpu(node: ast.expr) -> bool:
    """Whether an expression is the CPU, written out: `"cpu"` or `torch.device("cpu")`."""
    if isinstance(node, ast.Call) and node.args:
        argument = call_argument(node, 0, "device") or call_argument(node, 0, "type")
        return argument is not None and names_cpu(argument)
    return isinstance(node, ast.Constant) and node.value == "cpu"


def option_name(node: ast.expr) -> str | None:
    """The name of an option: `args.gpu`, `config["gpu"]`, `config.get("gpu")`, `os.getenv("GPU")`, or a variable's."""
    if isinstance(node, (ast.Name, ast.Attribute)):
        return (dotted(node) or "").rpartition(".")[2] or None
    key: ast.expr | None = node.slice if isinstance(node, ast.Subscript) else None
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "getenv")
        and node.args
    ):
        key = node.args[0]
    return key.value if isinstance(key, ast.Constant) and isinstance(key.value, str) else None


def is_option_for_gpu(test: ast.expr) -> bool:
    """`args.mode == "gpu"`, `opt.where != "cpu"`: an option that is tested for the kind of device."""
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or dotted(test.left) is None:
        return False
    text = getattr(test.comparators[0], "value", None)
    if isinstance(test.ops[0], ast.NotEq):
        return text == "cpu"
    return isinstance(test.ops[0], ast.Eq) and text in ("gpu", "GPU", "cuda")


def has_else(node: ast.If) -> bool:
    if not node.orelse:
        return False
    if len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        return has_else(node.orelse[0])
    return True
