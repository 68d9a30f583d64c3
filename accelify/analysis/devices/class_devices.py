"""Devices that a class or method names itself and assigns to its object: `self.device = torch.device("cuda:0")`."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.syntax import walk


def names_a_gpu(value: ast.expr) -> bool:
    """Whether an expression has a GPU's name in it."""
    return any(
        isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("cuda")
        for node in walk(value)
    )


def own_devices(scope: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """The attributes of `self` that a class or method assigns a device which it names, and what it assigns."""
    for node in walk(scope):
        if not isinstance(node, ast.Assign) or not names_a_gpu(node.value):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                if target.value.id == "self" and k.DEVICE_NAME.search(target.attr):
                    yield target.attr, node.value
