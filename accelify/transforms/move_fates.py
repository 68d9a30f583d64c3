"""The decision on each move: removed where prepare places its object, else a move to the Accelerator's device."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.tensor_makers import HOST
from accelify.analysis.models.added_layers import grown_models
from accelify.analysis.models.early_use import is_needed_before_prepare
from accelify.analysis.models.filled_from_host import filled_from_host, is_making
from accelify.analysis.models.shared_factories import is_device_parameter
from accelify.analysis.syntax import (
    call_argument,
    calls_in,
    is_constant,
    stores_in,
    target_names,
    text_of,
    walk,
)
from accelify.dropped_moves import place_of
from accelify.transforms.base import Context

_SCRIPTING = ("torch.jit.script", "torch.jit.Script")
REMOVE, REWRITE = "remove", "rewrite"


class Fates:
    """What becomes of the moves of a script.

    Args:
        context: of the script.
    """

    def __init__(self, context: Context) -> None:
        self.context = context
        self.script = context.script
        self.tree = context.tree
        self._needed_early: dict[v.Entity, bool] = {}
        self._loaders: dict[ast.stmt, set[v.Entity]] = dict(self.script.loader_loops)
        self._scripts = any(module.tree.mentions("jit") for module in self.script.modules)

    def of(self, call: ast.Call) -> str | None:
        """What becomes of a call: nothing for what is no move, or stays as it is."""
        func = call.func
        if self._is_the_other_way(call):
            return REMOVE
        if self.script.qualname(func) in k.VARIABLE:
            return REMOVE if is_plain_variable(call) and self._is_placed(call.args[0]) else None
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
            return None
        if self.script.callees(call):
            # A method that the script defines under this name, or that moves more than prepare does.
            return None
        if func.attr == "cuda":
            if isinstance(func.value, ast.Name) and self.script.qualname(func.value) == "torch":
                return None
            if self._scripts and self._is_scripted(call):
                return None  # TorchScript knows no Accelerator; cuda() is the process's GPU
            pure = True
        else:
            device = call_argument(call, 0, "device")
            if device is None or self._is_cpu(device) or not self.script.is_a(device, v.DEVICE):
                return None
            if self._is_tried_out(device):
                return None
            if (
                isinstance(device, ast.Attribute)
                and device.attr == "device"
                and not self._is_namespace(device.value)
            ):
                return None  # x.to(y.device) is right on every process
            pure = not call_argument(call, 1, "dtype")
            if pure and is_device_parameter(self.script, device) and self._is_model(func.value):
                return None  # other scripts call the function, too, and prepare nothing
        if pure and self._is_placed(func.value) and not self._comes_back(call):
            if place_of(self.tree, call) not in self.context.retained:
                return REMOVE
        if func.attr == "cuda":
            return REWRITE
        device = call_argument(call, 0, "device")
        if pure and isinstance(device, ast.Call) and self.script.callees(device):
            return REWRITE  # x.to(get_device())
        return None

    def _is_scripted(self, node: ast.AST) -> bool:
        """Whether a node is in code that TorchScript compiles."""
        for ancestor in self.tree.ancestors(node):
            marks = getattr(ancestor, "decorator_list", [])
            marks = marks + ancestor.bases if isinstance(ancestor, ast.ClassDef) else marks
            if any((self.script.qualname(one) or "").startswith(_SCRIPTING) for one in marks):
                return True
        return False

    def _is_cpu(self, device: ast.expr) -> bool:
        return self.context.plan.devices.is_cpu(device)

    def _is_tried_out(self, device: ast.expr) -> bool:
        """`for device in ["cpu", "cuda"]`: devices that a loop iterates over are none that the script runs on."""
        return isinstance(device, ast.Name) and any(
            isinstance(loop, ast.For) and device.id in target_names(loop.target)
            for loop in self.script.enclosing_loops(device)
        )

    def _comes_back(self, call: ast.Call) -> bool:
        """Whether this moves a model that the script takes to the CPU in between, or adds to a tensor there."""
        assert isinstance(call.func, ast.Attribute)
        models = {t for t in self._at_hand(call.func.value) if t.kind == v.MODEL}
        return self.context.plan.after_prepare(call) and bool(models & self._taken_to_cpu)

    @functools.cached_property
    def _taken_to_cpu(self) -> set[v.Entity]:
        found = filled_from_host(self.script) | grown_models(self.script)
        for call in self.script.calls():
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in ("cpu", "to"):
                device = call_argument(call, 0, "device")
                if func.attr == "cpu" or (device is not None and self._is_cpu(device)):
                    found |= self._with_objects(self.script.entities(func.value, v.MODEL), call)
        return found

    def _with_objects(self, models: set[v.Entity], call: ast.Call) -> set[v.Entity]:
        """Models, with the objects of a class for the `self` of its methods: `torch.save(self.cpu(), path)`."""
        classes = {one.cls for one in models if isinstance(one.site, ast.ClassDef)} - {None}
        if not classes or is_making(self.script, self.script.scope_of(call)):
            return models
        every = list(self.script.interpreter.entities.values())  # asking adds to them
        return models | {
            one
            for one in every
            if isinstance(one, v.Entity)
            and one.kind == v.MODEL
            and one.cls is not None
            and classes & set(one.cls.ancestry())
        }

    def _is_the_other_way(self, call: ast.Call) -> bool:
        """`x = x.cpu()` where there is no GPU, in the `else` of a move to one."""
        func, stmt = call.func, self.tree.statement(call)
        branch = self.tree.parent(stmt)
        if not isinstance(func, ast.Attribute) or func.attr != "cpu" or not isinstance(branch, ast.If):
            return False
        if stmt not in branch.orelse or not self.script.is_a(branch.test, v.FLAG):
            return False
        moved = {
            text_of(n.func.value)
            for s in branch.body
            for n in calls_in(s)
            if isinstance(n.func, ast.Attribute) and n.func.attr in ("cuda", "to")
        }
        return text_of(func.value) in moved and self._is_placed(func.value)

    def _is_namespace(self, node: ast.expr) -> bool:
        return self.script.is_a(node, v.UNKNOWN, v.INSTANCE)

    def _is_model(self, node: ast.expr) -> bool:
        entities = self._at_hand(node)
        return bool(entities) and all(entity.kind == v.MODEL for entity in entities)

    def _is_placed(self, node: ast.expr) -> bool:
        """Whether prepare puts the value of an expression on the right device."""
        entities = self._at_hand(node)
        if not entities or HOST in self.context.locations[1].of(node):
            return False
        for entity in entities:
            if entity.kind == v.BATCH:
                loaders, plan = entity.link("loader"), self.context.plan
                if not loaders or not loaders <= plan.prepared or loaders & plan.doubtful.keys():
                    return False
            elif entity.kind == v.MODEL:
                if isinstance(entity.site, ast.ClassDef):
                    return False
                if entity not in self.context.plan.prepared:
                    return False
                if self._is_needed_early(entity):
                    return False
            else:
                return False
        return True

    def _is_needed_early(self, model: v.Entity) -> bool:
        if model not in self._needed_early:
            sites = self.context.plan.sites
            self._needed_early[model] = is_needed_before_prepare(self.script, sites, model)
        return self._needed_early[model]

    def _at_hand(self, node: ast.expr) -> set[v.Entity]:
        """What an expression is at its place: a name bound by a loop over a loader is the batch's until bound again."""
        if not isinstance(node, ast.Name):
            return self.script.entities(node)
        for loop in self.script.enclosing_loops(node):
            if not isinstance(loop, (ast.For, ast.AsyncFor)):
                return self.script.entities(node)
            stmt = self.tree.statement(node)
            stores = [
                n
                for n in stores_in(loop).get(node.id, ())
                if isinstance(n.ctx, ast.Store) and self.tree.is_before(n, stmt)
            ]
            loaders = self._loaders.get(loop)
            if loaders is not None and stores and all(self._takes_of_batch(loop, n) for n in stores):
                if any(self._is_other_on_a_way(n) for n in walk(loop.iter) if isinstance(n, ast.Name)):
                    return set()
                return {self.script.interpreter.batch(loader) for loader in loaders}
            if stores:
                break
        return self.script.entities(node)

    def _is_other_on_a_way(self, name: ast.Name) -> bool:
        """Whether a name is a loader in one branch of an `if` and something else, that is not empty, in the other."""
        made = self.tree.assigns(name.id)
        loaders = [stmt for stmt in made if self.script.iterated(stmt.value)]
        others = [stmt for stmt in made if stmt not in loaders and getattr(stmt.value, "elts", True)]
        arms = [(set(self._arms(one)), set(self._arms(other))) for one in loaders for other in others]
        return any((branch, not arm) in there for here, there in arms for branch, arm in here)

    def _arms(self, stmt: ast.stmt) -> Iterator[tuple[ast.If, bool]]:
        """The `if`s around a statement, each with whether it stands in its first branch."""
        for branch in self.tree.ancestors(stmt):
            if isinstance(branch, ast.If):
                yield branch, self.tree.is_within(stmt, branch.body)

    def _takes_of_batch(self, loop: ast.For | ast.AsyncFor, store: ast.Name) -> bool:
        """Whether a name is bound by a loop, or by the statement that takes the parts of its batch: `x, y = batch`."""
        if any(store is target for target in walk(loop.target)):
            return True
        stmt = self.tree.statement(store)
        whole = loop.target.id if isinstance(loop.target, ast.Name) else None
        return isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Name) and stmt.value.id == whole


def is_plain_variable(call: ast.Call) -> bool:
    """Whether a `Variable(x)` does nothing but wrap a tensor that takes no gradient."""
    return len(call.args) == 1 and all(
        is_constant(kw.value, False) and kw.arg == "requires_grad" for kw in call.keywords
    )
