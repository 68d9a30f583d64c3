"""Objects of the project's classes that store a device, and the statements that make them.

if args.train:
    conf = Config(args)          # keeps `self.device = torch.device(args.device)`
    train(conf, loader)          # batch.x.to(config.device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.devices.named_devices import device_arguments
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk
from accelify.analysis.values import Class, Entity


@dataclass(frozen=True, eq=False)
class BoundLater:
    """A device that an object stores.

    Args:
        stmt: the statement that makes the object.
        text: the device as it is written there.
        reads: where the script places something on it.
        given: what the object's class assigns to the attribute.
    """

    stmt: ast.Assign
    text: str
    reads: tuple[ast.Attribute, ...]
    given: tuple[ast.expr, ...]


def bound_later(script: ScriptModel) -> Iterator[BoundLater]:
    """The devices of objects that the script places something on, for each statement that makes such an object."""
    reads: dict[tuple[Class, str], list[ast.Attribute]] = {}
    for call in script.calls():
        for node in device_arguments(call):
            if not isinstance(node, ast.Attribute) or not k.DEVICE_NAME.search(node.attr):
                continue
            if isinstance(node.value, ast.Name) and node.value.id == script.scope_of(node).self_name():
                continue
            for entity in script.entities(node.value, v.INSTANCE):
                if entity.cls is not None and not entity.cls.external_bases():
                    reads.setdefault((entity.cls, node.attr), []).append(node)
    if not reads:
        return
    given = {key: tuple(_given(*key)) for key in reads}
    made = [s for s in script.tree.nodes(ast.Assign) if _makes_one(s)]
    for stmt in script.tree.in_order(made):
        target = stmt.targets[0]
        assert isinstance(target, ast.Name)
        for entity in sorted(script.entities(stmt.value, v.INSTANCE), key=Entity.place):
            for (cls, name), found in reads.items():
                if cls is entity.cls and any(not names_cpu(value) for value in given[cls, name]):
                    yield BoundLater(stmt, f"{target.id}.{name}", tuple(found), given[cls, name])


def _makes_one(stmt: ast.Assign) -> bool:
    """Whether a statement assigns the result of a call to a name."""
    return (
        len(stmt.targets) == 1 and isinstance(stmt.targets[0], ast.Name) and isinstance(stmt.value, ast.Call)
    )


def _given(cls: Class, name: str) -> Iterator[ast.expr]:
    """What a class and its bases assign to an attribute of their objects."""
    for one in cls.ancestry():
        for node in walk(one.scope.node):
            for target in node.targets if isinstance(node, ast.Assign) else ():
                if isinstance(target, ast.Attribute) and target.attr == name:
                    yield node.value
