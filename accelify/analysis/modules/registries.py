"""Classes and functions that a module passes to a registry as it is imported, whoever asks for them by name later.

@register_model(name="small")
class Small(nn.Module): ...          # MODELS["small"] = Small
"""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import dotted

_REGISTERS = re.compile(r"regist", re.I)
# A module that may hold some, before it is parsed.
WORD = "regist"


def registering(node: ast.AST) -> list[ast.expr]:
    """The decorators of a definition that pass it to a registry, by their names: `@MODELS.register("a")`."""
    decorators = getattr(node, "decorator_list", [])
    return [one for one in decorators if _REGISTERS.search(_name(one)) is not None]


def _name(decorator: ast.expr) -> str:
    return dotted(decorator.func if isinstance(decorator, ast.Call) else decorator) or ""
