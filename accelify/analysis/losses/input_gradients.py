"""Backwards that are run for the gradient of an input: attacks, samples that a model's gradient draws (Langevin).

fake.requires_grad_()
for _ in range(steps):
    model(fake).sum().backward()
    fake.data -= fake.grad          # of this process's samples alone
    fake.grad.zero_()

No other process has a part in such a gradient: averaged or weighed as one of the parameters it would be another one.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis.models.bare_tensors import runs_in
from accelify.analysis.scopes import Scope
from accelify.analysis.script import Backward, ScriptModel
from accelify.analysis.syntax import Node, call_keyword, dotted, is_constant, names_in, target_names, walk

# Of these, how large a gradient is makes no difference.
_WITHOUT_SCALE = frozenset({"sign", "sign_", "normalize", "zero_", "detach_", "requires_grad_"})


class InputGradients:
    """Answers which inputs a backward is run for.

    Args:
        script: its model.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self._is_read = script.tree.mentions(b".grad")
        self._loops = {loop for loop, _ in script.loader_loops} if self._is_read else set()

    def inputs(self, backward: Backward) -> list[str]:
        """The names whose `.grad` its function reads, of tensors that are made for the batch, in source order."""
        scope, call = backward.scope, backward.call
        if not self._is_read or backward.scaler is not None:
            return []
        read = dict.fromkeys(str(dotted(n.value)) for n in self._reads(scope) if self._is_after(n, call))
        made_of = self._made_of(backward) if read else set()
        return [name for name in read if name in made_of and self._is_of_batch(scope, name, call)]

    def names_them(self, backward: Backward) -> bool:
        """Whether a backward has an argument for tensors which are no parameters: `inputs=[fake]`."""
        given = call_keyword(backward.call, "inputs")
        if given is None or not self._is_read:
            return False
        named = given.elts if isinstance(given, (ast.List, ast.Tuple)) else [given]
        own = self.inputs(backward)
        return bool(named) and all(isinstance(one, ast.Name) and one.id in own for one in named)

    def is_scaled(self, backward: Backward, name: str) -> bool:
        """Whether more than the sign of an input's gradient is used."""
        reads = [n for n in self._reads(backward.scope) if dotted(n.value) == name]
        return any(self._has_scale(read) for read in reads)

    def _reads(self, scope: Scope) -> list[ast.Attribute]:
        found = [
            n
            for n in scope.of_type(ast.Attribute)
            if n.attr == "grad" and isinstance(n.ctx, ast.Load) and isinstance(n.value, ast.Name)
        ]
        return self.script.tree.in_order(found)

    def _made_of(self, backward: Backward) -> set[str]:
        """The names that a loss is computed from, through what its function assigns before the backward."""
        tree, found = self.script.tree, set(names_in(backward.loss))
        assigned = backward.scope.of_type(ast.Assign, ast.AugAssign)
        for stmt in sorted(assigned, key=tree.start, reverse=True):
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            if tree.is_before(stmt, backward.call):
                if found & {name for target in targets for name in target_names(target)}:
                    found |= set(names_in(stmt.value))
        return found

    def _is_after(self, read: ast.Attribute, call: ast.Call) -> bool:
        """Whether a gradient is read after a backward: by its place, or in a later round of a loop over one batch."""
        if self.script.tree.is_before(call, read):
            return True
        loops = self.script.enclosing_loops(call)[:1]
        return any(loop not in self._loops and loop in self.script.tree.ancestors(read) for loop in loops)

    def _has_scale(self, read: ast.AST) -> bool:
        tree, node = self.script.tree, read
        while True:
            parent = tree.parent(node)
            if isinstance(parent, ast.Attribute):
                if parent.attr in _WITHOUT_SCALE:
                    return False
            elif isinstance(parent, ast.Call):
                if node in parent.args and (dotted(parent.func) or "").rpartition(".")[2] in _WITHOUT_SCALE:
                    return False
            else:
                return not isinstance(parent, ast.Compare)
            node = parent

    def _is_of_batch(self, scope: Scope, name: str, call: ast.Call) -> bool:
        """Whether a name holds a tensor that is made again for each batch and asks for its gradient."""
        if not _asks_for_gradient(scope, name):
            return False
        around = next((loop for loop in self.script.enclosing_loops(call) if loop in self._loops), None)
        nodes: Iterable[Node] = walk(around) if around is not None else scope.nodes
        made = any(
            isinstance(n, ast.Assign)
            and name in [x for t in n.targets for x in target_names(t)]
            and name not in names_in(n.value)
            for n in nodes
        )
        if around is not None:
            return made or name in target_names(around.target)
        made = made or scope.takes(name)
        return made and scope.kind == "function" and runs_in(self.script, call, self._loops)


def _asks_for_gradient(scope: Scope, name: str) -> bool:
    """Whether a function sets a tensor's `requires_grad`, or makes it with that."""
    for node in scope.nodes:
        if isinstance(node, ast.Assign):
            if any(dotted(t) == f"{name}.requires_grad" for t in node.targets):
                return not is_constant(node.value, False)
            if name in [x for t in node.targets for x in target_names(t)]:
                for inner in walk(node.value):
                    if isinstance(inner, ast.Call) and (
                        is_constant(call_keyword(inner, "requires_grad"), True)
                        or getattr(inner.func, "attr", "") == "requires_grad_"
                    ):
                        return True
        elif isinstance(node, ast.Call) and dotted(node.func) == f"{name}.requires_grad_":
            return not (node.args and is_constant(node.args[0], False))
    return False
