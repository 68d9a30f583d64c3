"""Tensors that a separate optimizer fits to each batch: poses to pictures, latent codes to images.

def fit(init, keypoints):
    pose = init.detach().clone().requires_grad_()
    optimizer = torch.optim.Adam([pose], lr=0.01)
    for _ in range(steps):
        optimizer.zero_grad()
        error(body(pose), keypoints).backward()
        optimizer.step()
    return pose

Each process has different batches, and so different such tensors: their gradients are not to be averaged.
"""

from __future__ import annotations

import ast
from functools import cached_property
from typing import TYPE_CHECKING

from accelify.analysis import values as v
from accelify.analysis.statements.within_loops import runs_in
from accelify.analysis.syntax import call_argument, calls_in, target_names, walk
from accelify.analysis.values import Entity

if TYPE_CHECKING:
    from accelify.analysis.script import Backward, ScriptModel

_PARAMETERS = frozenset({"torch.nn.Parameter", "torch.nn.parameter.Parameter"})


class BatchFits:
    """The optimizers of such tensors, with the names that each of them steps.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.names: dict[Entity, list[str]] = {}
        # One that is cleared and never stepped fits nothing: what it clears is read, and then made again.
        used = (o for call in script.calls() for o in self._asked(call, ("step", "zero_grad")))
        every = sorted(set(used), key=Entity.place)
        if len(every) < 2 or not any(o.link("models") for o in every):
            return  # what is fitted is all that is trained
        for optimizer in every:
            names = self._fitted(optimizer) if not optimizer.link("models") else []
            if names:
                self.names[optimizer] = names

    @cached_property
    def _loops(self) -> set[ast.For | ast.AsyncFor]:
        """The loops over loaders; callers know already which of them train."""
        script = self.script
        return {
            loop
            for loop in script.tree.nodes(ast.For, ast.AsyncFor)
            if any(isinstance(n, ast.expr) and script.is_a(n, v.LOADER) for n in walk(loop.iter))
        }

    def fitted_by(self, backward: Backward) -> list[str]:
        """The names for which a backward is run, where the steps after it in its block are such optimizers' alone."""
        tree = self.script.tree
        if not self.names or not isinstance(tree.parent(backward.call), ast.Expr):
            return []
        stmt = tree.statement(backward.call)
        block = tree.block_of(stmt)[2]
        stepped: set[Entity] = set()
        for afterwards in block[block.index(stmt) + 1 :]:
            for node in walk(afterwards):
                stepped |= self._asked(node, ("step",))
        if not stepped or not stepped <= set(self.names):
            return []
        return list(dict.fromkeys(name for o in sorted(stepped, key=Entity.place) for name in self.names[o]))

    def _asked(self, node: ast.AST, methods: tuple[str, ...]) -> set[Entity]:
        """The optimizers of which a call runs one of these methods."""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in methods:
            return self.script.entities(node.func.value, v.OPTIMIZER)
        return set()

    def _fitted(self, optimizer: Entity) -> list[str]:
        script, site = self.script, optimizer.site
        if not isinstance(site, ast.Call) or optimizer.module not in script.modules:
            return []
        given, scope = call_argument(site, 0, "params"), script.scope_of(site)
        around = [loop for loop in script.enclosing_loops(site) if loop in self._loops]
        home: ast.AST | None = around[0] if around else scope.node if scope.kind == "function" else None
        names = self._names(given, home) if given is not None and home is not None else []
        if home is None or not names or not all(self._is_of_batch(name, home) for name in names):
            return []
        return names if around or runs_in(script, site, self._loops) else []

    def _names(self, given: ast.expr, home: ast.AST) -> list[str]:
        """The names in a list of tensors, or in the list that a name holds."""
        if isinstance(given, (ast.List, ast.Tuple)):
            names = [e.id for e in given.elts if isinstance(e, ast.Name)]
            return names if len(names) == len(given.elts) else []
        if not isinstance(given, ast.Name):
            return []
        made = [s for s in self._assignments(given.id, home) if isinstance(s.value, (ast.List, ast.Tuple))]
        return self._names(made[0].value, home) if len(made) == 1 else []

    def _assignments(self, name: str, home: ast.AST) -> list[ast.Assign]:
        return [
            s for s in self.script.tree.assigns(name) if any(a is home for a in self.script.tree.ancestors(s))
        ]

    def _is_of_batch(self, name: str, home: ast.AST) -> bool:
        """Whether a name is bound in a function, or the loop over the batches, alone, and to no model's parameter."""
        made = self._assignments(name, home)
        stores = self.script.tree.writes(name)
        scope = self.script.scope_of(made[0]) if made else None
        own = [n for n in stores if self.script.scope_of(n) is scope]
        if (
            scope is None
            or scope.resolve(name) is not scope
            or len(own) != len(made)
            or any(target_names(s.targets[0]) != [name] for s in made)
        ):
            return False
        calls = [n for s in made for n in calls_in(s.value)]
        return bool(calls) and not any(self.script.qualname(call.func) in _PARAMETERS for call in calls)
