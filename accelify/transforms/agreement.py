"""Which values are equal on every process, and the edits that make processes agree on those that are not."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from accelify.analysis.devices.models_left_on_host import Locations
from accelify.analysis.files.effects import CLOCKS, RANDOM
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.metrics.figures import BatchLoop, Figures, draws, plain
from accelify.analysis.planning.plan import Plan
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, calls_in, children, target_names, walk
from accelify.analysis.values import BATCH, LOADER, MODEL
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit


class Agreement:
    """The part of the Context that knows which numbers are equal on every process and which differ."""

    script: ScriptModel
    plan: Plan
    tree: Tree
    reduced: set[tuple[Scope, str]]

    if TYPE_CHECKING:

        @property
        def for_accelerate(self) -> bool: ...
        @property
        def figures(self) -> Figures: ...
        @property
        def locations(self) -> tuple[Locations, Locations]: ...
        def accelerator(self, node: ast.AST) -> str | None: ...

    def gathered(self, node: ast.AST) -> bool:
        """Whether an expression only reads numbers that are the same on every process: gathered or reduced ones."""
        calls = calls_in(node)
        if any(self._draws(call) or self.script.qualname(call.func) in CLOCKS for call in calls):
            return False
        read = [n for n in walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)]
        read = [n for n in read if not any(n is c.func for c in calls)]
        return bool(read) and all(self._is_gathered(n, 0) for n in read)

    def _draws(self, call: ast.Call) -> bool:
        return (self.script.qualname(call.func) or "").startswith(RANDOM)

    def _is_gathered(self, name: ast.Name, depth: int) -> bool:
        scope = self.script.scope_of(name)
        if (scope, name.id) in self.reduced or self.script.is_uniform(name):
            return True
        whole = {self.script.scope_of(e.loop) for e in self.plan.evaluations if self._is_whole(e)}
        owner = scope.resolve(name.id)
        if owner is None or depth > 3:
            return owner is None
        values = [
            s.value
            for s in [*self.tree.nodes(ast.Assign), *self.tree.nodes(ast.AugAssign)]
            for t in (s.targets if isinstance(s, ast.Assign) else [s.target])
            if name.id in target_names(t) and self.script.scope_of(s).resolve(name.id) is owner
        ]
        if not values or self._is_filled_in_a_shared_loop(name.id, owner):
            return False
        reduced = whole | {s for s, _ in self.reduced}
        evaluated = [[e.loop] for e in self.plan.evaluations if self._is_whole(e)]
        for value in values:
            calls = calls_in(value)
            callees = {s for c in calls for s in self.script.callees(c)}
            if calls and not any(self._shares_out(c) for c in calls):
                continue
            if callees and callees <= reduced:
                continue
            loops = self.script.enclosing_loops(value)
            if owner in whole and (loops[:1] in evaluated or not any(map(self.script.trains, loops))):
                continue
            inner = [
                n
                for n in walk(value)
                if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n.id != name.id
            ]
            callees |= {owner for c in calls if self.script.qualname(c.func) in CLOCKS}
            if callees or not all(self._is_gathered(n, depth + 1) for n in inner):
                return False
        return True

    def _is_filled_in_a_shared_loop(self, name: str, owner: Scope) -> bool:
        """Whether a list or dictionary takes in what a process sees: by a method, by a key, or in a function."""
        for node in (n for loop in self.shared_loops() for stmt in loop.body for n in walk(stmt)):
            if isinstance(node, ast.Call):
                contained = [*node.args, *[kw.value for kw in node.keywords]]
                method = node.func.value if isinstance(node.func, ast.Attribute) else None
                filled = [a for a in contained if self.script.callees(node)]
                if isinstance(node.func, ast.Attribute) and node.func.attr in ("append", "extend", "update"):
                    filled = [*filled, *([method] if method is not None else [])]
            elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
                filled = [node.value]
            else:
                continue
            for one in filled:
                if isinstance(one, ast.Name) and one.id == name:
                    is_tensor = self.script.is_a(one, BATCH, MODEL, LOADER)
                    if self.script.scope_of(one).resolve(name) is owner and not is_tensor:
                        return True
        return False

    def _shares_out(self, call: ast.Call) -> bool:
        """Whether what a call returns can differ between processes: it trains, or an argument is sharded data."""
        if not self.script.callees(call) and self.script.qualname(call.func) is None:
            return True
        if any(s in self.script.training_scopes for s in self.script.callees(call)):
            return True
        given = [*call.args, *[kw.value for kw in call.keywords]]
        if not any(self.script.entities(a, LOADER) for a in given):
            return True
        return any(self.plan.is_prepared(a, LOADER) for a in given)

    def _is_whole(self, evaluation: EvaluationLoop) -> bool:
        """Whether an evaluation gives every process the same metrics: gathered, or over the whole data on each."""
        return evaluation.problem is None or not evaluation.loaders & self.plan.prepared

    def ungathered_loops(self) -> list[BatchLoop]:
        """Evaluation loops over one process's share of the data whose outputs cannot be gathered.

        Their figures are put together at the end, so that processes at least agree on them.
        """
        return [
            evaluation.loop
            for evaluation in self.plan.evaluations
            if not self.plan.known.reduces
            and evaluation.problem is not None
            and not evaluation.only_looks
            and self.plan.is_sharded(evaluation.loaders)
            and not self.plan.on_main_only(evaluation.loop)
        ]

    def shared_loops(self) -> list[BatchLoop]:
        """The loops that train on one process's share of the data whose figures the script does not reduce itself."""
        if self.plan.known.reduces:
            return []
        found: list[BatchLoop] = [
            loop
            for loop, loaders in self.script.loader_loops
            if self.plan.is_sharded(loaders) and any(self.script.trains(s) for s in loop.body)
        ]
        for call in self.script.calls():
            # A loop over steps, each of which draws a batch.
            if draws(call):
                loops = self.script.enclosing_loops(call)[:1]
                loaders = {t for b in self.script.entities(call, BATCH) for t in b.link("loader")}
                if loops and loops[0] not in found and self.plan.is_sharded(loaders):
                    if any(self.script.trains(s) for s in loops[0].body):
                        found.append(loops[0])
        cut = self.plan.hand_cut
        if cut is not None and isinstance(cut.loop, (ast.For, ast.AsyncFor)):
            found.append(cut.loop)
        return found

    def agreed(self, node: ast.expr) -> list[Edit]:
        """Edits that put the loss of all processes into an expression on which they have to agree.

        None where something else in it differs too, or where not every process reaches it.
        """
        accelerator, figures = self.accelerator(node), self.figures
        loops, stmt = self.script.enclosing_loops(node), self.tree.statement(node)
        if accelerator is None:
            return []
        if not isinstance(stmt, ast.While) and (not loops or not figures.runs_everywhere(stmt, loops[0])):
            return []
        losses = self._losses(figures, node)
        edits: list[Edit] = []
        for part in losses:
            value, kind, number = self.tree.segment(part), figures.kind(part), ""
            if self.for_accelerate:
                # Accelerate's reduce takes only tensors.
                tensor, number = part, ""
                if isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
                    tensor, number = part.func.value, ".item()"
                elif not self._is_backward_loss(part):
                    return []
                value = f"{self.tree.segment(tensor)}.detach()"
            text = f'{accelerator}.reduce({value}, reduction="{kind}"){number}'
            edits.append(verbs.replace(part, text))
        settled = {id(n) for part in losses for n in walk(part)}
        called = {id(c.func) for c in calls_in(node)}
        for name in (n for n in walk(node) if isinstance(n, ast.Name) and id(n) not in settled | called):
            if self.script.qualname(name) is None and not self.script.is_uniform(name):
                if not self.gathered(name):
                    return []
        return edits

    def _is_backward_loss(self, node: ast.expr) -> bool:
        losses = {b.loss.id for b in self.script.backwards if isinstance(b.loss, ast.Name)}
        return isinstance(node, ast.Name) and node.id in losses

    def _losses(self, figures: Figures, node: ast.expr) -> list[ast.expr]:
        """The largest parts of an expression that are a loss, as a tensor or a number."""
        bare = plain(node)
        if isinstance(bare, ast.Name) and figures.kind(node) is not None:
            made = [s for s in self.locations[1].bindings(bare) if isinstance(s, ast.Assign)]
            number = bool(made) and all(plain(s.value) is not s.value for s in made)
            if self._is_backward_loss(bare) or number:
                return [node]
        return [
            part
            for child in children(node)
            if isinstance(child, ast.expr)
            for part in self._losses(figures, child)
        ]
