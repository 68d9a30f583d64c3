"""The Accelerator as an attribute of an available object: `agent.accelerator`, where only the agent has one."""

from __future__ import annotations

import ast
from collections import Counter

from accelify.analysis.planning.anchors import NAME, Reach
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigns_always
from accelify.analysis.values import Entity

# The assignments that make the objects of one scope, by the name of the object.
_Made = dict[str, list[ast.stmt]]


class AtHand:
    """Finds the objects that store the Accelerator.

    Args:
        script: the script.
        reach: how the Accelerator gets to where it is needed; None where there is none.
    """

    def __init__(self, script: ScriptModel, reach: Reach | None) -> None:
        self._script = script
        self._stored = _keeping(script, reach)

    def expression(self, node: ast.AST) -> str | None:
        """How the Accelerator of an object is written that is surely made where a node is."""
        made = self._stored.get(self._script.scope_of(node)) if self._stored else None
        for name, assignments in (made or {}).items():
            if self._is_after(node, assignments):
                return f"{name}.{NAME}"
        return None

    def _is_after(self, node: ast.AST, assignments: list[ast.stmt]) -> bool:
        """Whether one of the assignments has been made where a node is: the only one, or one of each branch."""
        tree, child = self._script.tree, node
        while (parent := tree.parent(child)) is not None:
            if isinstance(child, ast.stmt):
                block = tree.block_of(child)[2]
                if any(assigns_always(stmt, assignments) for stmt in block[: block.index(child)]):
                    return True
            child = parent
        return False


def _keeping(script: ScriptModel, reach: Reach | None) -> dict[Scope, _Made]:
    """The statements that name an object which stores the Accelerator, by scope; the name never means another one."""
    found: dict[Scope, _Made] = {}
    homes = {home for home in (reach.root, *reach.threaded) if home.kind == "class"} if reach else set()
    for stmt in script.tree.nodes(ast.Assign) if homes else ():
        if len(stmt.targets) != 1 or not isinstance(stmt.targets[0], ast.Name):
            continue
        contained = script.values(stmt.value) if isinstance(stmt.value, ast.Call) else set()
        if contained and all(
            isinstance(w, Entity) and w.cls is not None and w.cls.scope in homes for w in contained
        ):
            found.setdefault(script.scope_of(stmt), {}).setdefault(stmt.targets[0].id, []).append(stmt)
    if found:
        bound = Counter(
            (script.scope_of(name).resolve(name.id), name.id)
            for name in script.tree.nodes(ast.Name)
            if not isinstance(name.ctx, ast.Load)
        )
        for scope, made in found.items():
            found[scope] = {name: each for name, each in made.items() if bound[scope, name] == len(each)}
    return found
