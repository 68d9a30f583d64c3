"""The plan of a conversion: what is prepared where, what is sharded, and what stands in the way."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.anchors import NAME, Anchor, Reach, find_anchor
from accelify.analysis.devices import Devices
from accelify.analysis.evaluation import EvaluationLoop, evaluation_loops
from accelify.analysis.losses import LossReductions
from accelify.analysis.placement import Item, Placement, PrepareSite
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node, Tree, dotted
from accelify.analysis.values import Imported, Thing
from accelify.analysis.windows import Window, find_window, mixed_precision


@dataclass(frozen=True)
class Blocker:
    """A reason why the core edits of a script are not made."""

    code: str
    message: str
    node: ast.AST | None = None


class Plan:
    """Decides, for one script, everything the rules have to agree on.

    Args:
        script: its model.
        batch_size: what the script's batch size means afterwards, `per-process` or `total`.
    """

    def __init__(self, script: ScriptModel, batch_size: str = "per-process") -> None:
        self.script = script
        self.tree = script.tree
        self.batch_size = batch_size
        self.placement = Placement(script)
        self.devices = Devices(script)
        self.reductions = LossReductions(script, batch_size)
        self.blockers: list[Blocker] = []
        self.evaluations: list[EvaluationLoop] = evaluation_loops(script)
        self.prepared: set[Thing] = set()
        self.inline: list[ast.Call] = []
        self.sites: list[PrepareSite] = []
        self.arguments: dict[str, str] = {}
        self.argument_names: frozenset[str] = frozenset()
        self.accumulation: Window | None = None
        self.dropped: dict[str, str] = {}
        self.reach: Reach | None = None
        self.anchor: Anchor | None = None
        self._find_blockers()
        if not self.blockers:
            self._choose()
        if not self.blockers:
            self._anchor()

    # -- what stands in the way

    def _find_blockers(self) -> None:
        taken = already_distributed(self.script)
        if taken is not None:
            self.blockers.append(taken)
        elif not self.script.backwards:
            elsewhere = self._trains_elsewhere()
            if elsewhere is None:
                self.blockers.append(Blocker("ACC002", "it has no training loop (no call of backward)"))
            else:
                self.blockers.append(
                    Blocker(
                        "ACC009",
                        f"its training loop is in `{elsewhere}`, which it imports; files are converted one by one",
                    )
                )

    def _trains_elsewhere(self) -> str | None:
        """The project module whose training loop this script runs, None where it runs none."""
        for call, callees in self.script.interpreter.calls.items():
            if self.tree.parent(call) is None:
                continue
            for callee in callees:
                for name, module in self.script.program.modules.items():
                    if module is not self.script.module and any(
                        callee is s for s in module.scopes.functions()
                    ):
                        if _has_backward(module.tree):
                            return name
        return None

    def _choose(self) -> None:
        script = self.script
        items: dict[object, Item] = {}
        models = script.trained_models
        if not models:
            self.blockers.append(self._no_model())
            return
        for kind, things in (
            (v.MODEL, models),
            (v.OPTIMIZER, script.optimizers),
            (v.LOADER, self._loaders()),
            (v.SCHEDULER, self._batch_schedulers()),
        ):
            for thing in sorted(
                things, key=lambda t: (getattr(t.site, "lineno", 0), getattr(t.site, "col_offset", 0))
            ):
                found = self.placement.homes(thing, kind)
                if not found:
                    if self._prepare_inline(thing, kind):
                        self.prepared.add(thing)
                    elif kind in (v.MODEL, v.OPTIMIZER):
                        self.blockers.append(self._homeless(thing, kind))
                    continue
                self.prepared.add(thing)
                for item in found:
                    key = (id(item.holder), item.scope)
                    if key in items:
                        items[key].things.add(thing)
                    else:
                        items[key] = item
        if self.blockers:
            return
        for model in list(self.prepared):
            # Parts of a model that is prepared as a whole are prepared with it.
            if model.kind == v.MODEL:
                self.prepared |= model.link("parts")
        self.sites = self.placement.sites(list(items.values()))
        for site in self.sites:
            for item in site.items:
                if item.holder.cls is None and all(
                    self.tree.start(c) > self.tree.end(site.after) for c in item.creations
                ):
                    message = f"`{item.holder.name}` is made only behind the place for prepare"
                    self.blockers.append(Blocker("ACC010", message, site.after))

    def _no_model(self) -> Blocker:
        first = self.script.backwards[0].call
        return Blocker(
            "ACC003",
            "no model was found whose parameters are trained here: it trains bare tensors, or the model cannot be seen",
            first,
        )

    def _homeless(self, thing: Thing, kind: str) -> Blocker:
        name = next(iter(sorted(thing.names)), kind)
        if isinstance(thing.site, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return Blocker(
                "ACC004",
                f"the {kind} `{name}` is handed to `{thing.site.name}` by a caller outside of this file; "
                "convert the script that makes it",
                thing.site,
            )
        return Blocker(
            "ACC005",
            f"the {kind} `{name}` is not kept in a variable or attribute of this file, so it cannot be prepared here",
            thing.site,
        )

    # -- loaders and schedulers

    def _loaders(self) -> set[Thing]:
        if self.script.fixed_batch_size is not None:
            # A batch of any other size does not fit the model, and the last batches of an epoch are shared out.
            return set()
        chosen = {t for t in self.script.training_loaders if is_shardable(t)}
        for evaluation in self.evaluations:
            if evaluation.problem is None and all(is_shardable(t) for t in evaluation.loaders):
                chosen |= evaluation.loaders
        for evaluation in self.evaluations:
            # One loop that needs the whole data on every process keeps its loaders whole for all of them.
            if evaluation.problem is not None:
                chosen -= {t for t in evaluation.loaders if t not in self.script.training_loaders}
        return chosen

    def is_sharded(self, loaders: set[Thing]) -> bool:
        """Whether all of some loaders give each process its own part of the data."""
        return bool(loaders) and loaders <= self.prepared

    def _batch_schedulers(self) -> set[Thing]:
        found: set[Thing] = set()
        for call in self.script.calls():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
                for thing in self.script.things(call.func.value, v.SCHEDULER):
                    if self.steps_per_batch(call) and not isinstance(thing.site, ast.ClassDef):
                        found.add(thing)
        return {t for t in found if not (t.qualname or "").endswith("ReduceLROnPlateau")}

    def steps_per_batch(self, call: ast.Call, seen: frozenset[Scope] = frozenset()) -> bool:
        """Whether a `step()` runs once for every batch: inside the loop over the batches, or called from there."""
        loops = self.script.enclosing_loops(call)
        for loop, _ in self.script.loader_loops:
            if any(loop is outer for outer in loops) and any(self.script.trains(s) for s in loop.body):
                return True
        if not any(isinstance(x, (ast.For, ast.While)) for x in loops):
            scope = self.script.scope_of(call)
            return scope not in seen and any(
                self.steps_per_batch(outer, seen | {scope}) for outer in self.script.callers(scope)
            )
        return False

    def _prepare_inline(self, thing: Thing, kind: str) -> bool:
        """Loaders kept in a dictionary or used where they are made are prepared by wrapping their constructor."""
        if (
            kind != v.LOADER
            or not isinstance(thing.site, ast.Call)
            or thing.module not in self.script.modules
        ):
            return False
        if self.tree.in_fstring(thing.site):
            return False
        self.inline.append(thing.site)
        return True

    # -- the accelerator

    def _anchor(self) -> None:
        script = self.script
        core: set[Scope] = {b.scope for b in script.backwards}
        core |= {site.scope for site in self.sites}
        core |= {script.scope_of(call) for call in self.inline}
        for assignment in self.devices.assignments:
            scope = script.scope_of(assignment.statement)
            foreign = scope.kind == "module" and scope is not script.scopes.module
            if not foreign and not self._in_module_class(scope):
                core.add(scope)
        self._constructor_arguments()
        self._precision_and_accumulation()
        found = find_anchor(script, core, self.argument_names)
        if not self._names_known(found):
            # The flags are parsed where the Accelerator cannot wait for them; it then takes what the machine has.
            self.dropped = {
                name: value for name, value in self.arguments.items() if name in ("cpu", "mixed_precision")
            }
            self.arguments = {
                name: value for name, value in self.arguments.items() if name not in self.dropped
            }
            self.argument_names = frozenset()
            if "mixed_precision" in self.dropped:
                self.script.keep_precision()
            found = find_anchor(script, core, self.argument_names)
        self.anchor = found
        self.reach = Reach(script, found, core)
        for backward in script.backwards:
            if self.reach.expression(backward.call) is None:
                name = backward.scope.name or "the module"
                self.blockers.append(
                    Blocker(
                        "ACC007",
                        f"the Accelerator cannot be handed to `{name}`, where backward is called",
                        backward.call,
                    )
                )
                return
        for site in self.sites:
            if self.reach.expression(site.after) is None and not self._same_place(site):
                self.blockers.append(
                    Blocker("ACC007", "the Accelerator cannot be had where the model is made", site.after)
                )
                return

    def _names_known(self, anchor: Anchor) -> bool:
        """Whether everything the Accelerator's arguments read is assigned before it is made."""
        root = (
            anchor.root
            if anchor.root.kind != "class"
            else self.script.scope_of(anchor.before or anchor.block[0])
        )
        for name in self.argument_names:
            owner = root.resolve(name)
            if owner is None:
                if not hasattr(builtins, name):
                    return False
                continue
            if owner.kind == "function" and any(a.arg == name for a in owner.parameters()):
                continue
            stores = [
                self.tree.start(n)
                for n in self.tree.nodes(ast.Name)
                if n.id == name
                and isinstance(n.ctx, ast.Store)
                and self.script.scope_of(n).resolve(name) is owner
            ]
            imported = not stores and name in owner.locals
            if owner is root or owner.kind == "module":
                late = stores and min(stores) > anchor.offset
                if owner is not root and owner.kind == "module":
                    late = False  # a function runs after the module's own code
                if late:
                    return False
            if not stores and not imported:
                return False
        return True

    def _same_place(self, site: PrepareSite) -> bool:
        """Prepare stands after its statement: an anchor right before or in that statement is early enough."""
        assert self.anchor is not None
        anchor = self.anchor
        if anchor.before is not None and self.tree.start(site.after) >= self.tree.start(anchor.before):
            return True
        if self.tree.end(site.after) <= anchor.offset:
            # The Accelerator would come too late; make it right before the first prepare instead.
            if anchor.root is site.scope or anchor.root.kind == "module":
                block = self.tree.block_of(site.after)[2]
                first = min((s.after for s in self.sites), key=lambda s: self.tree.start(s))
                if block is anchor.block:
                    anchor.before, anchor.after = first, None
                    anchor.offset = self.tree.start(first)
                    return True
        return False

    def _in_module_class(self, scope: Scope) -> bool:
        owner = scope.owner_class
        if owner is None:
            return False
        instance = self.script.interpreter.things.get((owner, "instance"))
        return isinstance(instance, Thing) and instance.kind in (v.MODEL, v.DATASET, v.CRITERION)

    def _constructor_arguments(self) -> None:
        if self.batch_size == "total":
            self.arguments["split_batches"] = "True"
        wishes = [a for a in self.devices.assignments if a.cpu is not None]
        if wishes:
            self.arguments["cpu"] = wishes[0].cpu or "True"
            self.argument_names |= wishes[0].names
        elif not self.devices.assignments:
            guard = self._cuda_guard()
            if guard is not None:
                from accelify.analysis.devices import negated

                self.arguments["cpu"] = negated(guard[0])
                self.argument_names |= guard[1]
            elif not any(self._moves_to_accelerator(c) for c in self.script.calls()):
                # A script without any device code runs on the CPU; its tensors are made there.
                if not self._batches_only_from_loaders() and self._models_are_made_here():
                    self.arguments["cpu"] = "True"

    def _precision_and_accumulation(self) -> None:
        precision = mixed_precision(self.script)
        if precision is not None:
            self.arguments["mixed_precision"] = precision[0]
            self.argument_names |= precision[1]
        window = find_window(self.script)
        if window is not None and self.is_sharded(self.script.training_loaders):
            self.accumulation = window
            name, value = window.argument()
            self.arguments[name] = value
            self.argument_names |= window.names

    def _cuda_guard(self) -> tuple[str, frozenset[str]] | None:
        """The wish in the `if args.cuda:` around moves, for scripts without a device variable."""
        for call in self.script.calls():
            if not (isinstance(call.func, ast.Attribute) and call.func.attr == "cuda"):
                continue
            for ancestor in self.tree.ancestors(call):
                test = ancestor.test if isinstance(ancestor, (ast.If, ast.IfExp)) else None
                named = isinstance(test, ast.Name) and bool(k.FLAG_NAME.search(test.id))
                if test is not None and (named or self.script.is_a(test, v.FLAG)):
                    wish = self.devices.wish(test)
                    if wish is not None:
                        return wish
        return None

    def _moves_to_accelerator(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
            return True
        return any(isinstance(a, ast.Constant) and str(a.value).startswith("cuda") for a in call.args)

    def _models_are_made_here(self) -> bool:
        """Whether this very file makes the models, so that it would have to place them."""
        made = [m.site for m in self.script.trained_models if m.module in self.script.modules]
        return len(made) == len(self.script.trained_models) and all(isinstance(s, ast.Call) for s in made)

    def _batches_only_from_loaders(self) -> bool:
        """Whether every tensor the model sees comes out of a prepared loader, which places it."""
        if not self.script.training_loaders or not self.script.training_loaders <= self.prepared:
            return False
        for call in self.script.calls():
            name = self.script.qualname(call.func) or ""
            scope = self.script.scope_of(call)
            if scope in self.script.training_scopes and name.rpartition(".")[0] == "torch":
                if name.rsplit(".", 1)[-1] in (
                    "zeros",
                    "ones",
                    "randn",
                    "rand",
                    "tensor",
                    "full",
                    "arange",
                    "randint",
                    "empty",
                ):
                    return False
        return not any(
            isinstance(w, Thing) and w.kind == v.MODEL
            for call in self.script.calls()
            if not self.script.iterated(call)
            for w in self._called_outside_loops(call)
        )

    def _called_outside_loops(self, call: ast.Call) -> set[Thing]:
        models = self.script.models_of(call.func) & self.prepared
        if not models:
            return set()
        loops = self.script.enclosing_loops(call)
        known = {id(loop) for loop, _ in self.script.loader_loops}
        return set() if any(id(loop) in known for loop in loops) else models

    # -- for rules

    def accelerator(self, node: Node) -> str | None:
        """How the accelerator is written at a node, None where it cannot be had."""
        return self.reach.expression(node) if self.reach is not None else None

    def is_prepared(self, node: ast.expr, *kinds: str) -> bool:
        """Whether an expression can be something that was prepared."""
        return any(t in self.prepared for t in self.script.things(node, *kinds))

    def after_prepare(self, node: Node, seen: frozenset[Scope] = frozenset()) -> bool:
        """Whether a node runs after the prepare of its own scope (or in a function, which runs later)."""
        scope = self.script.scope_of(node)
        place = self.tree.start(node)
        own = [s for s in self.sites if s.scope is scope]
        if own:
            return any(place > self.tree.end(s.after) for s in own)
        if scope.kind == "module":
            return (
                bool(self.sites)
                and place > min(self.tree.end(s.after) for s in self.sites if s.scope.kind == "module")
                if any(s.scope.kind == "module" for s in self.sites)
                else True
            )
        if scope in self.script.training_scopes or scope in seen:
            return True
        calls = self.script.callers(scope)
        return not calls or any(self.after_prepare(call, seen | {scope}) for call in calls)


def _has_backward(tree: Tree) -> bool:
    return any(
        isinstance(call.func, ast.Attribute) and call.func.attr == "backward" for call in tree.nodes(ast.Call)
    )


def is_shardable(thing: Thing) -> bool:
    """Whether a loader is known to be torch's DataLoader, which can be sharded from outside."""
    if thing.kind != v.LOADER:
        return False
    if thing.qualname in k.LOADER_CLASSES:
        return True
    return thing.cls is not None and bool(thing.cls.external_bases() & k.LOADER_CLASSES)


def already_distributed(script: ScriptModel) -> Blocker | None:
    """The library or wrapper by which a script is distributed already."""
    for node in [*script.tree.nodes(ast.Import), *script.tree.nodes(ast.ImportFrom)]:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if isinstance(node, ast.ImportFrom) and node.level:
            continue
        for name in names:
            head = name.split(".")[0]
            if head == "accelify":
                return Blocker("ACC000", "it is converted already (it imports accelify)", node)
            if head in k.DISTRIBUTED_LIBRARIES and head not in script.program.modules:
                return Blocker("ACC001", f"it uses {k.DISTRIBUTED_LIBRARIES[head]} already", node)
    for node in [*script.tree.nodes(ast.Name), *script.tree.nodes(ast.Attribute)]:
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        text = dotted(node) or ""
        if not text.rsplit(".", 1)[-1][:1].isalpha():
            continue
        for value in script.values(node):
            if isinstance(value, Imported) and value.name in k.DISTRIBUTED_NAMES:
                return Blocker("ACC001", f"it uses {k.DISTRIBUTED_NAMES[value.name]} already", node)
            if isinstance(value, Imported) and value.name.startswith("torch.distributed."):
                return Blocker("ACC001", "it uses torch.distributed already", node)
    return None


__all__ = ["NAME", "Blocker", "Plan", "already_distributed", "is_shardable"]
