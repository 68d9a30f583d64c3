"""What a script trains: its optimizers, and of the models they update the outermost ones."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from functools import cached_property
from typing import TYPE_CHECKING

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.holders import Holder
from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.models.batch_fits import BatchFits
from accelify.analysis.program import Module, Program
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, Tree, call_argument, dotted
from accelify.analysis.values import Class, Entity, Mapping, Sequence, Value, Values

if TYPE_CHECKING:
    from accelify.analysis.script import Backward, ScriptModel


# Modules that only contain others.
_COLLECTIONS = frozenset({"torch.nn.ModuleList", "torch.nn.Sequential", "torch.nn.ModuleDict"})


class TrainedModels:
    """The part of the ScriptModel that knows which models are trained, and as parts of which others."""

    tree: Tree
    program: Program
    interpreter: Interpreter
    modules: list[Module]

    if TYPE_CHECKING:

        @property
        def backwards(self) -> list[Backward]: ...
        @property
        def holders(self) -> list[Holder]: ...
        @property
        def _unused(self) -> set[Scope]: ...
        @property
        def dormant(self) -> set[Scope]: ...
        def holders_of(self, entity: Entity) -> list[Holder]: ...
        def calls(self) -> Iterable[ast.Call]: ...
        def scope_of(self, node: Node) -> Scope: ...
        def entities(self, node: ast.expr, *kinds: str) -> set[Entity]: ...
        def values(self, node: ast.expr) -> Values: ...
        def models_of(self, node: ast.expr) -> set[Entity]: ...
        def qualname(self, node: ast.expr) -> str | None: ...
        def trains_around(self, node: Node) -> bool: ...
        def functions(self) -> Iterator[Scope]: ...
        def _leading_to_backward(self) -> set[Scope]: ...

    @cached_property
    def backward_elsewhere(self) -> set[Scope]:
        """The functions that call backward, by themselves or through others, in modules not converted with this."""
        return self._leading_to_backward() - set(self.functions())

    def trains_more_elsewhere(self) -> bool:
        """Whether calls also run functions of other modules that call backward and step the optimizer of a model."""
        queue = [s for call in self.calls() for s in self.interpreter.calls.get(call, ())]
        queue = [scope for scope in queue if scope in self.backward_elsewhere]
        seen = set(queue)
        while queue:
            scope = queue.pop()
            module = self.interpreter.module_of(scope)
            for call in scope.calls:
                if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
                    stepped = self.interpreter.evaluate(module, scope, call.func.value)
                    if any(
                        isinstance(w, Entity) and w.kind == v.OPTIMIZER and w.link("models") for w in stepped
                    ):
                        return True
                further = self.interpreter.calls.get(call, set()) - seen
                seen |= further
                queue += further
        return False

    @cached_property
    def batch_fits(self) -> BatchFits:
        """The optimizers of tensors that are made for one batch."""
        return BatchFits(self)  # type: ignore[arg-type]

    @cached_property
    def optimizers(self) -> set[Entity]:
        """Optimizers that step somewhere in this script (or are made in it), of more than one batch."""
        found: set[Entity] = set()
        for call in self.calls():
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("step", "zero_grad"):
                if self.scope_of(call) not in self._unused:
                    # `scaler.step(optimizer)` too, where the model's zero_grad clears.
                    for stepped in (call.func.value, *call.args[:1]):
                        found |= self.entities(stepped, v.OPTIMIZER)
        found |= self.stepped_elsewhere
        inner = {
            w
            for cls in self.interpreter.classes()
            if self.interpreter.kind_of_class(cls) == v.OPTIMIZER
            for contained in cls.attributes.values()
            for w in contained
        }
        # An optimizer in a model whose class cannot be seen has no other place.
        inner |= {o for o in found if any(whole.kind == v.MODEL for whole in o.link("whole"))}
        return {
            o
            for o in found - set(self.batch_fits.names)
            if not isinstance(o.site, ast.ClassDef) and o not in inner
        }

    @cached_property
    def stepped_elsewhere(self) -> set[Entity]:
        """Optimizers made here that a class of another module steps, to set its learning rate, for example.

        One that has no name here cannot be prepared; its steps are right without, but for loss scaling and windows.
        """
        return {
            stepped
            for module in self.program.modules.values()
            if module not in self.modules and module.tree.mentions(b".step()")
            for call in module.tree.nodes(ast.Call)
            if isinstance(call.func, ast.Attribute) and call.func.attr == "step" and not call.args
            for stepped in self.interpreter.evaluate(module, module.scopes.of(call), call.func.value)
            if isinstance(stepped, Entity) and stepped.kind == v.OPTIMIZER and stepped.module in self.modules
        }

    def models_run(self, call: ast.Call) -> set[Entity]:
        """Models that a call runs: those it calls, or passes to `nn.parallel.data_parallel`."""
        if self.qualname(call.func) not in k.SPLIT_RUNS:
            return self.models_of(call.func)
        model = call_argument(call, 0, "module")
        return self.models_of(model) if model is not None else set()

    @cached_property
    def trained_models(self) -> set[Entity]:
        """Models whose parameters an optimizer, or a loop written by hand, updates."""
        found: set[Entity] = set()
        for optimizer in self.optimizers:
            found |= optimizer.link("models")
        found = self.outermost({m for m in found if m.kind == v.MODEL})
        if not found and any(self.takes_tensors(o) for o in self.optimizers):
            return set()
        for call in self.calls():
            # `generator.optim.step()`: it has an optimizer, which cannot be seen.
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("step", "zero_grad"):
                retained = call.func.value
                # `net.module.zero_grad()` and `net.head.zero_grad()` are those of models.
                own = isinstance(retained, ast.Attribute) and not self.models_of(retained)
                if (
                    own
                    and isinstance(retained, ast.Attribute)
                    and not self.entities(retained) & self.optimizers
                ):
                    found |= self.models_of(retained.value)
        by_hand = not found
        if not found:
            for call in self.calls():
                if isinstance(call.func, ast.Attribute) and call.func.attr in ("zero_grad", "train"):
                    found |= self.models_of(call.func.value)
        if not found and self.backwards:
            # Updated by hand: the models whose outputs are computed where backward is called.
            for call in self.calls():
                if self.scope_of(call) in {b.scope for b in self.backwards}:
                    found |= self.models_run(call)
        if by_hand:
            found = {m for m in found if not self._is_copy_of_handed(m)}
        return {m for m in found if not isinstance(m.site, ast.ClassDef) and not self._is_never_made(m)}

    def _is_copy_of_handed(self, model: Entity) -> bool:
        """Whether a model is a copy that a function makes of its parameter, where no call of it is seen and it reads no
        weights to train them by hand: the model is made elsewhere."""
        site = model.site
        if not isinstance(site, ast.Call) or model.module not in self.modules or len(site.args) != 1:
            return False
        scope, given = self.scope_of(site), site.args[0]
        return (
            self.qualname(site.func) == "copy.deepcopy"
            and isinstance(given, ast.Name)
            and scope.kind == "function"
            and scope.takes(given.id)
            and not self.interpreter.callers.get(scope)
            and not any(isinstance(n, ast.Attribute) and n.attr.endswith("parameters") for n in scope.nodes)
        )

    def _is_never_made(self, model: Entity) -> bool:
        """Whether a model is made in a function of another module that nobody calls: `from_pretrained` of its class."""
        if not isinstance(model.site, ast.Call) or model.module is None:
            return False
        if model.module in self.modules:
            return self.scope_of(model.site) in self.dormant
        scope = model.module.scopes.of(model.site)
        return scope.kind == "function" and not self.interpreter.callers.get(scope)

    def takes_tensors(self, optimizer: Entity) -> bool:
        """Whether an optimizer is made from tensors by name (`Adam([image])`), so that no module is trained."""
        site = optimizer.site
        given = call_argument(site, 0, "params") if isinstance(site, ast.Call) else None
        return given is not None and self._are_tensors(given)

    def _are_tensors(self, given: ast.expr) -> bool:
        """Whether an expression is a list of tensors: by name, one that torch's functions fill, or two such."""
        if isinstance(given, (ast.List, ast.Tuple)):
            return all(isinstance(e, ast.Name) for e in given.elts)
        if isinstance(given, ast.BinOp):
            return self._are_tensors(given.left) and self._are_tensors(given.right)
        contained = (
            [w for w in self.values(given) if isinstance(w, Sequence)] if isinstance(given, ast.Name) else []
        )
        inside = [one for sequence in contained for one in sequence.any()]
        return bool(inside) and all(isinstance(w, Entity) and _is_tensor(w) for w in inside)

    def outermost(self, models: set[Entity]) -> set[Entity]:
        """The models that are no part of another one that trains with them."""
        found: set[Entity] = set()
        queue, seen = list(models), set(models)
        while queue:
            model = queue.pop()
            owners = self.owners_of(model)
            if owners <= {model}:
                found |= owners
            queue += owners - seen - {model}
            seen |= owners
        return found

    @cached_property
    def _models(self) -> _Keepers:
        """Every model of the program."""
        return _Keepers(self.interpreter.entities.values(), v.MODEL)

    @cached_property
    def _losses(self) -> _Keepers:
        """Every criterion of the program."""
        return _Keepers(self.interpreter.entities.values(), v.CRITERION)

    def owners_of(self, model: Entity) -> Set[Entity]:
        """The models of which a module is a part (`encoder` for `encoder.fc`), or itself when it is alone."""
        found = self._owners.get(model)
        if found is None:
            found = self._owners[model] = self._owners_of(model)
        return found

    @cached_property
    def _owners(self) -> dict[Entity, Set[Entity]]:
        return {}

    def _owners_of(self, model: Entity) -> Set[Entity]:
        if isinstance(model.site, ast.ClassDef):
            # `self` of a model that makes its optimizer: every instance of the class.
            instances = self._models.of_class.get(model.cls, ())
            return {owner for instance in instances for owner in self.owners_of(instance)}
        if chosen := self._chosen_from(model):
            return chosen
        losses = self._losses_around(model)
        outer = {t for part in (model, *losses) for t in self._models.of(part)}
        outer |= {t for t in model.link("whole") if t.kind == v.MODEL}
        # Objects of a class share its attributes here: those that other files make are not part of this script, and a
        # copy trains its own parts.
        outer = {t for t in outer if self._is_seen(t)} or outer
        outer = self._handed(model, outer)
        outer = {t for t in outer if not t.link("original")} or outer
        within = {loss.cls for loss in losses}
        if outer and all(h.cls in within for h in self.holders_outside_modules(model)):
            return outer
        if outer & self._called_in_training and model not in self._called_in_training:
            return outer & self._called_in_training
        return {model}

    def _handed(self, model: Entity, outer: set[Entity]) -> set[Entity]:
        """Of models of one class that could refer to a module, those that got it where they are made.

        Only a model that got another module in its place is left out: `Sampler(average)` next to `Sampler(net)`.
        """
        if len(outer) < 2:
            return outer
        given = {
            t: {m for a in [*t.site.args, *[kw.value for kw in t.site.keywords]] for m in self.models_of(a)}
            for t in outer
            if isinstance(t.site, ast.Call) and t.module in self.modules
        }
        keeping = {t.cls for t, models in given.items() if model in models}
        return {t for t in outer if t.cls not in keeping or model in given.get(t, {model}) or not given[t]}

    def _losses_around(self, model: Entity) -> list[Entity]:
        """The losses that a module is a part of, where models store all of them: `net.adversarial_loss.critic`."""
        found = list(self._losses.of(model))
        for loss in found:  # which grows
            found += self._losses.of(loss) - set(found)
        within = {loss.cls for loss in found}
        if None in within or any(h.cls not in within for o in found for h in self.holders_outside_modules(o)):
            return []
        return found

    def _chosen_from(self, model: Entity) -> set[Entity]:
        """The models of which a `ModuleList([net.head])` only names parts, for an optimizer's groups, say, or all of
        them where nothing but its parameters is wanted: `Sequential(encoder, decoder).parameters()`."""
        if model.qualname not in _COLLECTIONS or model.module not in self.modules:
            return set()
        around = self.tree.parent(model.site) if isinstance(model.site, ast.Call) else None
        if isinstance(around, ast.Attribute) and around.attr in ("parameters", "named_parameters"):
            parts = model.link("parts")
            return parts if all(map(self.holders_of, parts)) else set()
        if model.qualname != "torch.nn.ModuleList":
            return set()
        given = call_argument(model.site, 0, "modules") if isinstance(model.site, ast.Call) else None
        if not isinstance(given, (ast.List, ast.Tuple)) or not given.elts:
            return set()
        whole = [self.models_of(e.value) if isinstance(e, ast.Attribute) else set() for e in given.elts]
        return {one for models in whole for one in models} - {model} if all(whole) else set()

    def _is_seen(self, entity: Entity) -> bool:
        """Whether an `Entity` is made or stored in the files that are converted."""
        return entity.module in self.modules or any(
            entity in h.entities
            or any(
                entity in (c.get(object()) if isinstance(c, Mapping) else c.any())
                for c in h.containers
                if isinstance(c, (Mapping, Sequence))
            )
            for h in self.holders
        )

    @cached_property
    def _called_in_training(self) -> set[Entity]:
        """The models that are called where a backward is, or in a loop around one, by the script itself."""
        scopes = {b.scope for b in self.backwards}
        return {
            model
            for call in self.calls()
            if (self.scope_of(call) in scopes or self.trains_around(call))
            and not is_in_model(self, self.scope_of(call))
            for model in self.models_run(call)
        }

    def holders_outside_modules(self, model: Entity) -> list[Holder]:
        """Where a model is stored other than as an attribute of another model."""
        kind_of = self.interpreter.kind_of_class
        return [
            h
            for h in self.holders_of(model)
            if (h.cls is None or kind_of(h.cls) != v.MODEL)
            and not (
                h.scope is not None and h.scope.is_method and h.cls is None and is_in_model(self, h.scope)
            )
        ]


class _Keepers:
    """Models, or criteria, by their class and by an attribute of theirs.

    Args:
        values: all of a program.
        kind: which of them are meant.
    """

    def __init__(self, values: Iterable[Value], kind: str) -> None:
        # Those of a class share its attributes.
        self.of_class: dict[Class | Entity | None, list[Entity]] = {}
        self._by_part: dict[Value, list[list[Entity]]] = {}
        for entity in values:
            if (
                isinstance(entity, Entity)
                and entity.kind == kind
                and not isinstance(entity.site, ast.ClassDef)
            ):
                self.of_class.setdefault(entity.cls or entity, []).append(entity)
        for owner, entities in self.of_class.items():
            assert owner is not None
            for part in {part for values in owner.attributes.values() for part in values}:
                self._by_part.setdefault(part, []).append(entities)

    def of(self, part: Entity) -> set[Entity]:
        """Those that have a module as an attribute."""
        return {
            entity for entities in self._by_part.get(part, ()) for entity in entities if entity is not part
        }


def _is_tensor(entity: Entity) -> bool:
    """Whether an `Entity` is a tensor, also one that is only known to be one by `torch.zeros(...)`."""
    called = dotted(entity.site.func) if isinstance(entity.site, ast.Call) else None
    return entity.kind == v.TENSOR or (
        entity.kind == v.UNKNOWN and (called or "").rpartition(".")[0] == "torch"
    )


def is_autograd_function(scope: Scope) -> bool:
    """Whether a method is one of a `torch.autograd.Function`, by the name of its base."""
    owner = scope.owner_class
    return owner is not None and any((dotted(b) or "").endswith("Function") for b in owner.bases)


def is_in_model(script: TrainedModels, scope: Scope) -> bool:
    """Whether a scope is a method of a model's class."""
    owner = scope.owner_class
    cls = script.interpreter.entities.get((owner, "class")) if owner is not None else None
    return isinstance(cls, Class) and script.interpreter.kind_of_class(cls) == v.MODEL


def keeps_optimizer(cls: Class) -> bool:
    """Whether the objects of a class store an optimizer."""
    contained = (w for values in cls.attributes.values() for w in values)
    return any(isinstance(w, Entity) and w.kind == v.OPTIMIZER for w in contained)


def trains_itself(script: ScriptModel, models: Iterable[Entity]) -> str | None:
    """The class of a model, among some `Entity` objects, that calls backward in its methods."""
    for model in sorted(models, key=Entity.place):
        for cls in model.cls.ancestry() if model.kind == v.MODEL and model.cls is not None else ():
            if any(method in script.training_scopes for method in cls.scope.children.values()):
                return cls.name
    return None
