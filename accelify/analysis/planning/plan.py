"""The plan of a conversion: what is prepared where, what is sharded, and what prevents the conversion."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set
from functools import cached_property

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.hand_cut_batches import find_hand_cut
from accelify.analysis.data.inline_loaders import loader_sites, loops_over_sites
from accelify.analysis.data.loaders import is_shardable, trains_on_whole_batches
from accelify.analysis.data.loaders_in_other_modules import ReadElsewhere, whole_loaders
from accelify.analysis.data.uncertain_loaders import doubtful_loaders, unseen_beside
from accelify.analysis.devices.device_flags import Devices
from accelify.analysis.devices.module_devices import DeviceConstant, device_constants
from accelify.analysis.devices.named_devices import NamedDevice
from accelify.analysis.distributed import already_distributed
from accelify.analysis.losses.reductions import LossReductions
from accelify.analysis.lowered import Lowered
from accelify.analysis.metrics.evaluation import evaluation_loops
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.models.after_prepare import is_after_prepare
from accelify.analysis.models.extended_after_prepare import extended_after_prepare
from accelify.analysis.planning.accelerator_place import AcceleratorPlace
from accelify.analysis.planning.anchors import NAME, Anchor, Reach
from accelify.analysis.planning.inline_optimizers import made_too_early, optimizer_sites
from accelify.analysis.planning.placement import Placement
from accelify.analysis.planning.reasons import Blocker, Reasons
from accelify.analysis.planning.sites import Item, PrepareSite
from accelify.analysis.planning.unprepared import left_unprepared
from accelify.analysis.schedules.casts import why_casts_stay
from accelify.analysis.schedules.counted_rounds import counted_by_batches, early_schedules
from accelify.analysis.schedules.schedule_lengths import is_bound_anew, lengths_of, runs_prepared
from accelify.analysis.schedules.step_rounds import loops_of_fixed_steps, stepped_in
from accelify.analysis.schedules.steps import asked_for_plateau, ends_by_steps
from accelify.analysis.schedules.windows import Window
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node
from accelify.analysis.trained import trains_itself
from accelify.analysis.training_loops import Loop
from accelify.analysis.values import Entity


class Plan(AcceleratorPlace):
    """Decides, for one script, everything the rules have to agree on.

    Args:
        script: its model.
        batch_size: what the script's batch size means afterwards, `per-process` or `total`.
        runtime: what the script imports afterwards, `accelify` or `accelerate`.
        known: what its plain form does not contain any more, where the script was lowered to one.
        beyond: evaluation loops that the Accelerator does not reach, as a first plan has found.
    """

    def __init__(
        self,
        script: ScriptModel,
        batch_size: str = "per-process",
        runtime: str = "accelify",
        known: Lowered | None = None,
        beyond: Set[ast.AST] = frozenset(),
    ) -> None:
        self.script = script
        self.known = known or Lowered()
        self.main_only = self.known.main_only(script.tree)
        self.tree = script.tree
        self.batch_size = batch_size
        self.for_accelerate = runtime == "accelerate"
        if why := why_casts_stay(script):
            script.keep_precision(why)
        self.placement = Placement(script, self.known.wrapped)
        self.reasons = Reasons(script, self.placement)
        self.devices = Devices(script)
        self.device_constants: list[DeviceConstant] = device_constants(script)
        # Who distributes by hand shards what he cuts by hand too.
        self.hand_cut = None if self.known.distributed else find_hand_cut(script)
        # Batches made by hand are always sharded, whatever the batch size of loaders means.
        self.reductions = LossReductions(script, "total" if self.hand_cut is not None else batch_size)
        self.blockers: list[Blocker] = []
        self.evaluations: list[EvaluationLoop] = evaluation_loops(script, batch_size, self.known.sharded)
        for evaluation in self.evaluations:
            if evaluation.loop in beyond:
                evaluation.problem = "the Accelerator cannot be had where its loader is made"
        self.prepared: set[Entity] = set()
        # Training loops that make as many steps as before, as their epochs are counted by steps.
        self.of_fixed_steps: set[Loop] = set()
        # Of these the loaders that come from calls which cannot be seen, with what is called.
        self.unseen: dict[Entity, str] = {}
        self.inline: list[ast.Call] = []
        self.sites: list[PrepareSite] = []
        self.arguments: dict[str, str] = {}
        # The names that each argument of the Accelerator reads.
        self.argument_reads: dict[str, frozenset[str]] = {}
        self.read_by: dict[str, ast.stmt] = {}
        self.accumulation: Window | None = None
        # One that Accelerate would count otherwise, and that therefore stays as it is written.
        self.stored_window: Window | None = None
        self.dropped: dict[str, str] = {}
        # Options that name a device, and get the Accelerator's as soon as there is one.
        self.named_devices: list[NamedDevice] = []
        # Where such an option is copied to another name, and gets none.
        self.copied_devices: set[ast.expr] = set()
        self.reach: Reach | None = None
        self.anchor: Anchor | None = None
        self._find_blockers()
        if not self.blockers:
            self._choose()
        if not self.blockers:
            self._anchor()

    def beyond_reach(self) -> set[ast.AST]:
        """Evaluation loops whose loaders would be prepared where they are made, and cannot be for lack of it there."""
        if self.blockers or self.reach is None:
            return set()
        lost = {site for site in self.inline if self.reach.expression(site) is None}
        return loops_over_sites(self.script, self.evaluations, lost) if lost else set()

    @cached_property
    def doubtful(self) -> dict[Entity, str]:
        """The prepared loaders that may be something else, which prepare leaves alone, with its class or call."""
        return doubtful_loaders(self.script, self.prepared) | self.unseen

    # -- what prevents a conversion

    def _find_blockers(self) -> None:
        taken = already_distributed(self.script, self.known.distributed)
        if taken is not None:
            self.blockers.append(taken)
        elif not self.script.backwards:
            elsewhere = self.script.trains_elsewhere()
            if elsewhere is None:
                self.blockers.append(self.reasons.no_loop())
            elif "." in elsewhere and elsewhere.split(".")[0] in k.DISTRIBUTED_LIBRARIES:
                library = k.DISTRIBUTED_LIBRARIES[elsewhere.split(".")[0]]
                message = f"it uses {library} already: its training loop is in `{elsewhere}`"
                self.blockers.append(Blocker("ACC001", message))
            else:
                self.blockers.append(
                    Blocker(
                        "ACC009",
                        f"its training loop is in `{elsewhere}`, which it imports; files are converted one by one",
                    )
                )

    def _choose(self) -> None:
        script = self.script
        items: dict[object, Item] = {}
        models = script.trained_models
        if not models:
            self.blockers.append(self.reasons.no_model())
            return
        for kind, entities in (
            (v.MODEL, models),
            (v.OPTIMIZER, script.optimizers),
            (v.LOADER, self._loaders()),
            (v.SCHEDULER, self._batch_schedulers()),
        ):
            for entity in sorted(entities, key=Entity.place):
                found = self.placement.homes(entity, kind)
                if not found:
                    if kind == v.LOADER and self._prepare_inline(entity, kind):
                        self.prepared.add(entity)
                        continue
                    if kind != v.LOADER or entity in script.training_loaders:
                        found = self.placement.container_homes(entity, kind)
                    if not found:
                        if kind not in (v.MODEL, v.OPTIMIZER) or entity in script.stepped_elsewhere:
                            continue
                        if kind == v.OPTIMIZER and self._prepare_inline(entity, kind):
                            self.prepared.add(entity)
                        else:
                            why = self.reasons.homeless(entity, kind)
                            # The elements of one list have one reason.
                            self.blockers += (
                                [why] if all(b.message != why.message for b in self.blockers) else []
                            )
                        continue
                self.prepared.add(entity)
                for item in found:
                    key = (id(item.holder), item.scope)
                    if key in items:
                        items[key].add(item)
                    else:
                        items[key] = item
        if self.blockers:
            return
        for item in self.placement.loaded_with(list(items.values())):
            items.setdefault((id(item.holder), item.scope), item)
        for model in list(self.prepared):
            # Parts of a model that is prepared as a whole are prepared with it.
            if model.kind == v.MODEL:
                self.prepared |= model.link("parts")
        alone = trains_itself(script, self.prepared) if self.for_accelerate else None
        if alone is not None:
            message = f"`{alone}` trains itself in its own methods, and Accelerate reduces no gradients there"
            self.blockers.append(Blocker("ACC005", f"{message}; accelify's own runtime does", None))
            return
        left = left_unprepared(script, self.prepared)
        if left is not None:
            self.blockers.append(self.reasons.homeless(left, v.MODEL))
            return
        self._keep_whole(items)
        self.unseen = unseen_beside(script, self.prepared, self.evaluations)
        self.prepared |= self.unseen.keys()
        self.sites = self.placement.sites(list(items.values()))
        own = {t for t in self.prepared if t.kind == v.SCHEDULER and any(self.own_lengths(t))}
        # Made from the length of a loader that is one process's by then, it is stepped as it is.
        stays = own | early_schedules(self.script, self.sites, self.prepared, self.steps_per_batch)
        if self.batch_size != "total":
            self.of_fixed_steps = loops_of_fixed_steps(script, self.sites, self.prepared)
            stays |= self.prepared & stepped_in(script, self.of_fixed_steps)
        if stays:
            self.prepared -= stays
            self.sites = self.placement.sites([i for i in items.values() if not i.entities & stays])
        self.placement.measured = self._lengths_of_epochs(own)
        if not self.known.distributed:
            self.placement.counted = self.elsewhere.counted(self.prepared)
            self.placement.measured += self.placement.counted
        if self.placement.measured:
            self.sites = self.placement.sites([i for i in items.values() if not i.entities & stays])
        for early in made_too_early(script, self.sites, self.prepared, self.inline):
            self.blockers.append(self.reasons.homeless(early, v.OPTIMIZER))
        for site in self.sites:
            for item in site.items:
                if item.holder.cls is None and all(self.tree.is_after(c, site.after) for c in item.creations):
                    message = f"`{item.holder.name}` is made only after the place for prepare"
                    self.blockers.append(Blocker("ACC010", message, site.after))
                late = extended_after_prepare(self.script, site, item)
                if late is not None:
                    message = f"`{item.holder.name}` is still filled after the place for prepare"
                    self.blockers.append(Blocker("ACC010", message, late))

    # -- loaders and schedulers

    def _keep_whole(self, items: dict[object, Item]) -> None:
        """Leave loaders unprepared that only functions which are not converted go through."""
        self.elsewhere = ReadElsewhere(self.script)
        whole = set() if self.known.distributed else whole_loaders(list(items.values()), self.elsewhere)
        for key in [key for key, item in items.items() if item in whole]:
            del items[key]

    def _loaders(self) -> set[Entity]:
        fixed = self.script.fixed_batch_size is not None
        if fixed and (self.batch_size == "total" or not trains_on_whole_batches(self.script)):
            return set()  # a batch of any other size does not fit the model
        chosen = {t for t in self.script.training_loaders if is_shardable(t)}
        for evaluation in self.evaluations:
            if not fixed and evaluation.problem is None and all(is_shardable(t) for t in evaluation.loaders):
                chosen |= evaluation.loaders
        for evaluation in self.evaluations:
            # One loop that needs the whole data on every process makes all loops read its loaders whole.
            if evaluation.problem is not None and not evaluation.fetches_one:
                chosen -= {t for t in evaluation.loaders if t not in self.script.training_loaders}
        self._agree_on_loaders(chosen)
        if self.known.distributed:
            return self._as_distributed(chosen)
        return chosen - self.script.episode_loaders

    def _agree_on_loaders(self, chosen: set[Entity]) -> None:
        """Take out what is not sharded together: a loop gathers what all of its loaders give, or nothing."""
        again = True
        while again:
            again = False
            for evaluation in self.evaluations:
                if evaluation.problem is not None or evaluation.loaders <= chosen:
                    continue
                if not evaluation.loaders & chosen:
                    continue
                again = True
                evaluation.problem = self.reasons.whole_loaders(evaluation.loaders - chosen, self.evaluations)
                chosen -= evaluation.loaders - self.script.training_loaders

    def _as_distributed(self, chosen: set[Entity]) -> set[Entity]:
        """Of a script that was distributed by hand: what it sharded itself, and what one process alone reads."""
        shared = {
            t
            for t in self.script.interpreter.entities.values()
            if isinstance(t, Entity)
            and t.kind == v.LOADER
            and isinstance(t.site, ast.Call)
            and self.tree.parent(t.site) is not None
            and self.tree.start(t.site) in self.known.sharded
        }
        alone = {t for e in self.evaluations if self.on_main_only(e.loop) for t in e.loaders}
        if self.known.reduces:
            chosen = chosen & {*shared, *self.script.training_loaders}
        return ({*chosen, *shared}) - (alone - self.script.training_loaders)

    def on_main_only(self, node: Node, seen: frozenset[Scope] = frozenset()) -> bool:
        """Whether only the main process of a script that was distributed by hand reaches a node."""
        if any(n in self.main_only for n in (node, *self.tree.ancestors(node))):
            return True
        scope = self.script.scope_of(node)
        calls = self.script.callers(scope) if scope.kind == "function" else []
        return bool(calls) and scope not in seen and all(self.on_main_only(c, seen | {scope}) for c in calls)

    def is_sharded(self, loaders: set[Entity]) -> bool:
        """Whether all of some loaders give each process a different part of the data."""
        return bool(loaders) and loaders <= self.prepared

    @property
    def shares_training_data(self) -> bool:
        """Whether each process trains on a different part of the data."""
        return self.hand_cut is not None or self.is_sharded(
            self.script.training_loaders - self.script.episode_loaders
        )

    def _batch_schedulers(self) -> set[Entity]:
        found: set[Entity] = set()
        if self.known.distributed:
            return found  # its schedule counts the steps of one process already
        asked = asked_for_plateau(self.script)
        for call in self.script.calls():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "step":
                if self.batch_size != "total" and ends_by_steps(self.script, call):
                    continue  # as many steps as before are made, whatever the number of processes
                contained = self.script.entities(call.func.value, v.SCHEDULER)
                if contained & asked or any(
                    (t.qualname or "").endswith("ReduceLROnPlateau") for t in contained
                ):
                    continue  # the script asks which of them it is
                for entity in contained:
                    often = self.steps_per_batch(call) or counted_by_batches(self.script, call)
                    if often and not isinstance(entity.site, ast.ClassDef):
                        found.add(entity)
        return found

    def own_lengths(self, scheduler: Entity) -> Iterator[ast.Call]:
        """Where the script takes the lengths of loaders, sharded by then, that a schedule is made from."""
        if self.batch_size == "total":
            return
        for length in lengths_of(self.script, scheduler):
            loaders = length.loaders(self.script) & self.prepared
            anew = bool(loaders) and is_bound_anew(self.script, self.sites, loaders, length)
            if loaders:
                yield from (p for p in length.places(self.script) if anew or self.runs_prepared(p, loaders))

    def _lengths_of_epochs(self, own: set[Entity]) -> list[ast.stmt]:
        """Where such lengths are taken for schedules that count epochs: these have to stay the original's."""
        if self.known.distributed:
            return []
        contained = {
            entity
            for call in self.script.calls()
            if isinstance(call.func, ast.Attribute) and call.func.attr == "step"
            for entity in self.script.entities(call.func.value, v.SCHEDULER)
        }
        return [self.tree.statement(c) for t in contained - self.prepared - own for c in self.own_lengths(t)]

    def runs_prepared(self, node: Node, entities: Set[Entity]) -> bool:
        """Whether a node runs when some `Entity` objects are prepared already."""
        return runs_prepared(self.script, self.sites, entities, node)

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

    def _prepare_inline(self, entity: Entity, kind: str) -> bool:
        """What is used where it is made is prepared by wrapping its constructor."""
        sites = (
            loader_sites(self.script, entity) if kind == v.LOADER else optimizer_sites(self.script, entity)
        )
        self.inline += [site for site in sites if site not in self.inline]
        return bool(sites)

    # -- for rules

    def accelerator(self, node: Node) -> str | None:
        """How the accelerator is written at a node, None where it cannot be had."""
        return self.reach.expression(node) if self.reach is not None else None

    def is_prepared(self, node: ast.expr, *kinds: str) -> bool:
        """Whether an expression can be something that was prepared."""
        return any(t in self.prepared for t in self.script.entities(node, *kinds))

    def gets_all(self, node: ast.expr) -> bool:
        """Whether prepare gets all models that an expression can be."""
        models = self.script.entities(node, v.MODEL)
        return bool(models) and models <= self.prepared

    def after_prepare(self, node: Node, entities: Set[Entity] = frozenset()) -> bool:
        """Whether a node runs after the prepare of its scope, or where `entities` are prepared."""
        return is_after_prepare(self.script, self.sites, node, entities)


__all__ = ["NAME", "Blocker", "Plan", "already_distributed"]
