"""Where the Accelerator is made: before all code that uses it, and after everything that its arguments read."""

from __future__ import annotations

import ast
import builtins

from accelify.analysis import values as v
from accelify.analysis.devices.defaults import is_left_to_default
from accelify.analysis.devices.move_only_branches import as_callers_say
from accelify.analysis.devices.named_devices import seen_from
from accelify.analysis.devices.options_at_accelerator import (
    bound_before,
    is_of_another,
    is_set_later,
    place_of,
    wish_seen_from,
)
from accelify.analysis.devices.read_only_options import uses_of
from accelify.analysis.planning.anchors import Anchor, Reach, find_anchor, node_of
from accelify.analysis.planning.attributes import text_here
from accelify.analysis.planning.constructor import READ_LATER, ConstructorArguments
from accelify.analysis.planning.lifted import Expression, Lifted
from accelify.analysis.planning.reasons import Blocker
from accelify.analysis.planning.sites import KIND_ORDER
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.always_bound import is_surely_bound
from accelify.analysis.statements.assignments import stands_in
from accelify.analysis.statements.negation import negated
from accelify.analysis.values import Entity


class AcceleratorPlace(ConstructorArguments):
    """The part of the Plan that settles where the Accelerator is made, and whether all can have it there."""

    blockers: list[Blocker]
    inline: list[ast.Call]
    # Settings that are not known where it is made, with how they were written.
    dropped: dict[str, str]
    # Where an option that names a device is copied to another name, and gets none of the Accelerator's.
    copied_devices: set[ast.expr]
    reach: Reach | None
    anchor: Anchor | None

    def _anchor(self) -> None:
        script = self.script
        core: set[Scope] = {b.scope for b in script.backwards}
        core |= {site.scope for site in self.sites}
        core |= {script.scope_of(call) for call in self.inline}
        core |= {script.scope_of(n) for n in script.placeholders}
        for assignment in self.devices.assignments:
            scope = script.scope_of(assignment.statement)
            foreign = scope.kind == "module" and scope is not script.scopes.module
            if not foreign and not self._in_module_class(scope):
                core.add(scope)
        self._constructor_arguments()
        self._precision_and_accumulation()
        found = find_anchor(script, core, self.lifted)
        # Flags that are parsed where the Accelerator cannot wait for them: it then takes what the machine has.
        for name in ("mixed_precision", "cpu"):
            if name in self.known.arguments:
                continue
            if name == "cpu" and (self.named_devices or self.argument_reads.get(name)):
                found = self._options_seen_from(found, core)
            stated = text_here(script, self.arguments[name], found) if name in self.arguments else None
            if stated is not None:
                self.arguments[name] = stated
            if name == "cpu" and name in self.arguments and (stated is None or not self._names_known(found)):
                found, stated = self._wish_of_callers(found, core)
            late = name == "mixed_precision" and name in self.arguments and self._comes_late(name, core)
            if name in self.arguments and (stated is None or late or not self._names_known(found)):
                wish = self.arguments.pop(name)
                if not any(
                    wish == one.wish and is_left_to_default(script, one) for one in self.named_devices
                ):
                    self.dropped[name] = wish
                self.argument_reads.pop(name, None)
                if name == "mixed_precision":
                    self.script.keep_precision(READ_LATER)
                found = find_anchor(script, core, self.lifted)
        if not self._tells_accumulation(found, core):
            found = find_anchor(script, core, self.lifted)
        unknown = self._unknown_of_lowered(found)
        if unknown is not None:
            self.blockers.append(Blocker("ACC011", unknown, script.backwards[0].call))
            return
        self.anchor = found
        self._prepare_after(found)
        retained, bound = self.named_devices, bound_before(script, found, self.named_devices)
        self.named_devices = [] if "cpu" in self.dropped else bound
        retained = [one for one in retained if one not in bound and not is_set_later(script, found, one)]
        self.copied_devices = {copy for one in retained for copy in [*one.copies, *uses_of(script, one)]}
        self.reach = Reach(script, found, core)
        self.reach.choices = frozenset(a.value for a in self.devices.assignments)
        for backward in script.backwards:
            if self.reach.expression(backward.call) is None:
                name = backward.scope.name or "the module"
                message = f"the Accelerator cannot be handed to `{name}`, where backward is called"
                obstacle = self.reach.obstacles.get(node_of(script, backward.scope))
                message += f": {obstacle}" if obstacle else ""
                self.blockers.append(Blocker("ACC007", message, backward.call))
                return
        for site in self.sites:
            if self.reach.expression(site.after) is None:
                made = min((item.kind for item in site.items), key=KIND_ORDER.__getitem__)
                message = f"the Accelerator cannot be had where the {made} is made"
                obstacle = self.reach.obstacles.get(node_of(script, script.scope_of(site.after)))
                message += f": {obstacle}" if obstacle else ""
                self.blockers.append(Blocker("ACC007", message, site.after))
                return

        self._without_gpu()

    def _wish_of_callers(self, anchor: Anchor, core: set[Scope]) -> tuple[Anchor, str | None]:
        """Write the setting for the CPU by what callers hand to the function that asks for it, if that is known."""
        script, before = self.script, (self.arguments["cpu"], self.argument_reads.get("cpu", frozenset()))
        for choice in (one for one in self.devices.assignments if one.cpu == before[0]):
            reported = as_callers_say(script, before, script.scope_of(choice.statement))
            if reported is None or not before[1]:
                continue
            self.arguments["cpu"], self.argument_reads["cpu"] = reported
            found = find_anchor(script, core, self.lifted)
            stated = text_here(script, reported[0], found)
            if stated is not None and self._names_known(found):
                self.arguments["cpu"] = stated
                return found, stated
        self.arguments["cpu"], self.argument_reads["cpu"] = before
        return anchor, None

    def _options_seen_from(self, anchor: Anchor, core: set[Scope]) -> Anchor:
        """Write the devices of options by names that are known where the Accelerator is made, if there are any."""
        script, scope = self.script, place_of(self.script, anchor)
        before = cpu = self.arguments.get("cpu", "")
        names = self.argument_reads.get("cpu", frozenset())
        for index, stated in enumerate(self.named_devices):
            self.named_devices[index] = here = seen_from(script, stated, scope)
            if cpu == stated.wish and here is not stated:
                cpu, names = here.wish, frozenset({here.name})
        cpu, names = wish_seen_from(script, cpu, names, scope)
        if cpu == before:
            return anchor
        self.arguments["cpu"], self.argument_reads["cpu"] = cpu, names
        return find_anchor(script, core, self.lifted)

    def _comes_late(self, name: str, core: set[Scope]) -> bool:
        """Whether an Accelerator that waits for what one of its arguments reads is made below what it prepares."""
        alone = Expression(self.arguments[name], self.argument_reads[name], self.read_by.get(name))
        found = find_anchor(self.script, core, Lifted((alone,)))
        return not found.attribute and any(
            site.scope is found.root and found.is_after(self.tree, site.after) for site in self.sites
        )

    def _names_known(self, anchor: Anchor) -> bool:
        """Whether everything the Accelerator's arguments read is assigned before it is made."""
        return not self._late_names(anchor)

    def _late_names(self, anchor: Anchor) -> list[str]:
        """The names that the Accelerator's arguments read and that are assigned only after it."""
        root = place_of(self.script, anchor)
        found = [*self.lifted.changed_from(self.script, anchor.offset, root)]
        for name in self.argument_names:
            if "." in name:
                if is_of_another(self.script, name, root):
                    found.append(name)
                continue
            owner = root.resolve(name)
            if owner is None:
                if not hasattr(builtins, name):
                    found.append(name)
                continue
            if owner.kind == "function" and owner.takes(name):
                continue
            stores = [
                n
                for n in self.tree.nodes(ast.Name)
                if n.id == name
                and isinstance(n.ctx, ast.Store)
                and self.script.scope_of(n).resolve(name) is owner
            ]
            imported = not stores and name in owner.locals
            if owner is root or owner.kind == "module":
                late = stores and not is_surely_bound(self.tree, stores, anchor.offset)
                if owner is not root and owner.kind == "module":
                    late = False  # a function runs after the module's code
                if late:
                    found.append(name)
                    continue
            if not stores and not imported:
                found.append(name)
        return sorted(set(found))

    def _without_gpu(self) -> None:
        """Leave out mixed precision where the script asks for the CPU on a machine that has a GPU."""
        cpu, precision = self.arguments.get("cpu", "True"), self.arguments.get("mixed_precision")
        if cpu != "True" and precision is not None and "mixed_precision" not in self.known.arguments:
            asked, wish = "torch.cuda.is_available()", negated(cpu)
            wish = f"({wish})" if " or " in wish else wish
            self.arguments["mixed_precision"] = precision.replace(asked, f"{asked} and {wish}")

    def _prepare_after(self, anchor: Anchor) -> None:
        """Arguments of a constructor are prepared after the Accelerator that it makes."""
        if not anchor.attribute or anchor.before is None:
            return
        init = self.script.scope_of(anchor.before)
        for site in self.sites:
            if site.scope is not init or self.tree.end(site.after) > anchor.offset:
                continue
            if any(site.after is stmt for stmt in anchor.block):
                site.after = anchor.before
            elif not self.argument_names:
                around = next(s for s in anchor.block if stands_in(site.after, s))
                anchor.before, anchor.offset = around, self.tree.start(around)

    def _in_module_class(self, scope: Scope) -> bool:
        owner = scope.owner_class
        if owner is None:
            return False
        instance = self.script.interpreter.entities.get((owner, "instance"))
        return isinstance(instance, Entity) and instance.kind in (v.MODEL, v.DATASET, v.CRITERION)
