"""The arguments of the Accelerator's constructor: the script's choice of the CPU, its precision, its accumulation."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.dataset_tensors import goes_to_data_sets
from accelify.analysis.devices.defaults import is_left_to_default
from accelify.analysis.devices.device_flags import Devices
from accelify.analysis.devices.device_names import is_option_for_gpu, names_cpu
from accelify.analysis.devices.devices_of_tensors import is_read_off, is_set_nowhere
from accelify.analysis.devices.helper_moves import flags_of_helpers, helpers_use_accelerator
from accelify.analysis.devices.module_devices import DeviceConstant
from accelify.analysis.devices.move_only_branches import as_callers_say, is_move_to_gpu, only_moves
from accelify.analysis.devices.named_devices import NamedDevice, device_arguments, named_devices
from accelify.analysis.devices.names_only_shown import is_only_shown, is_shown
from accelify.analysis.devices.option_devices import self_of
from accelify.analysis.lowered import PLACEHOLDER, Lowered
from accelify.analysis.planning.anchors import Anchor
from accelify.analysis.planning.attributes import text_here
from accelify.analysis.planning.lifted import Expression, Lifted
from accelify.analysis.planning.sites import PrepareSite
from accelify.analysis.schedules.mixed_precision import mixed_precision, scales_on_gpu_alone
from accelify.analysis.schedules.windows import Window, find_window
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel, is_in_model
from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import Node, Tree, call_argument, dotted, walk
from accelify.analysis.values import Entity

# Why casts and scalers of the script are left alone.
READ_LATER = "an option decides that is not known where the Accelerator is made"


class ConstructorArguments:
    """The part of the Plan that settles `Accelerator(...)`."""

    script: ScriptModel
    tree: Tree
    known: Lowered
    batch_size: str
    for_accelerate: bool
    devices: Devices
    device_constants: list[DeviceConstant]
    prepared: set[Entity]
    arguments: dict[str, str]
    argument_reads: dict[str, frozenset[str]]
    # The statement that reads in the script what an argument reads, where one statement does.
    read_by: dict[str, ast.stmt]
    accumulation: Window | None
    stored_window: Window | None
    named_devices: list[NamedDevice]
    sites: list[PrepareSite]

    if TYPE_CHECKING:

        def is_sharded(self, loaders: set[Entity]) -> bool: ...
        def steps_per_batch(self, call: ast.Call) -> bool: ...
        def _late_names(self, anchor: Anchor) -> list[str]: ...
        def _comes_late(self, name: str, core: set[Scope]) -> bool: ...

    @property
    def argument_names(self) -> frozenset[str]:
        """Everything that the Accelerator's arguments read."""
        return self.lifted.names

    @property
    def lifted(self) -> Lifted:
        """The Accelerator's arguments, as expressions that are evaluated where it is made."""
        return Lifted(
            tuple(
                Expression(self.arguments.get(name, ""), reads, self.read_by.get(name))
                for name, reads in self.argument_reads.items()
            )
        )

    def _constructor_arguments(self) -> None:
        self.arguments.update(self.known.arguments)
        if self.known.names:
            self.argument_reads["known"] = self.known.names
        if self.batch_size == "total":
            name, value = ("split_batches", "True")
            if self.for_accelerate:
                name, value = ("dataloader_config", "DataLoaderConfiguration(split_batches=True)")
            self.arguments[name] = value
        self.named_devices = [
            stated
            for stated in named_devices(self.script, self._reachable_choices())
            if not is_set_nowhere(self.script, stated.options, stated.text.rpartition(".")[2])
        ]
        if not self.devices.assignments and not self._asking_names():
            self.devices.go_by_defaults()
        chosen = [*self.devices.assignments, *self.devices.of_parts()]
        wishes = [a for a in chosen if a.cpu is not None and PLACEHOLDER not in a.names]
        if wishes:
            self.arguments["cpu"] = wishes[0].cpu or "True"
            self.argument_reads["cpu"] = wishes[0].names
            self.read_by["cpu"] = wishes[0].whole or wishes[0].statement
        elif not self.devices.assignments and self._asking_names():
            # A parameter that no caller passes is tried last.
            stated = min(self._asking_names(), key=lambda one: is_left_to_default(self.script, one))
            self.arguments["cpu"] = stated.wish
            self.argument_reads["cpu"] = frozenset({stated.name})
            if stated.option is not None:
                self.read_by["cpu"] = self.tree.statement(stated.option)
        elif not self.devices.assignments and self._moved_to_constants():
            self._wish_of_constants()
        elif all(is_only_shown(self.script, a.target) for a in self.devices.assignments):
            guard = self._cuda_guard()
            if guard is not None and PLACEHOLDER not in guard[1]:
                self.arguments["cpu"] = negated(guard[0])
                self.argument_reads["cpu"] = guard[1]
            elif not self._names_a_device() and not any(
                self._moves_to_accelerator(c) for c in self.script.calls()
            ):
                # A script without any device code runs on the CPU; its tensors are made there.
                stays = not self._batches_only_from_loaders() or self._leaves_models_on_cpu()
                stays = stays and self._models_are_made_here()
                if stays and not helpers_use_accelerator(self.script):
                    self.arguments["cpu"] = "True"

    def _asking_names(self) -> list[NamedDevice]:
        """The named devices that can be the CPU although there is something better."""
        settled = {
            dotted(read) for c in self.device_constants if not (c.asks_user or c.is_cpu) for read in c.reads
        }
        return [stated for stated in self.named_devices if stated.text not in settled]

    def _moved_to_constants(self) -> list[tuple[str, DeviceConstant]]:
        """The device constants of other modules that something is moved to here, by the names that they have here."""
        targets = {id(node) for call in self.script.calls() for node in device_arguments(call)}
        return [
            (dotted(read) or "", constant)
            for constant in self.device_constants
            for read in constant.reads
            if id(read) in targets
        ]

    def _wish_of_constants(self) -> None:
        """The CPU, where a constant that the script moves tensors to is nothing else or depends on an option."""
        moved = self._moved_to_constants()
        if all(constant.is_cpu for _, constant in moved):
            self.arguments["cpu"] = "True"
            self.argument_reads["cpu"] = frozenset()
        asked = [text for text, constant in moved if constant.asks_user]
        if asked:
            self.arguments["cpu"] = f'str({asked[0]}) == "cpu"'
            self.argument_reads["cpu"] = frozenset({asked[0].split(".")[0]})

    def _reachable_choices(self) -> set[str]:
        """Names that the script itself assigns a device, where the Accelerator's can be written instead."""
        return {dotted(assignment.target) or "" for assignment in self.devices.assignments}

    def _precision_and_accumulation(self) -> None:
        precision = mixed_precision(self.script)
        if precision is not None and precision[1] is None:
            self.script.keep_precision(READ_LATER)
        elif precision is not None:
            self.arguments["mixed_precision"] = precision[0]
            self.argument_reads["mixed_precision"] = precision[1] or frozenset()
            if precision[0].startswith('"fp16"') and "is_available" not in precision[0]:
                self._scaling()
        found = find_window(self.script)
        window = found if isinstance(found, Window) else None
        if window is not None and self.for_accelerate and not self._fits_accelerate(window):
            self.stored_window, window = window, None
        if window is not None and self.is_sharded(self.script.training_loaders):
            self.accumulation = window
            name, value = window.argument(self.for_accelerate)
            self.arguments[name] = value
            self.argument_reads[name] = window.names

    def _scaling(self) -> None:
        """In float16 on a CPU, too: gradients are scaled there only where the script does so."""
        if self.for_accelerate:
            text = self.arguments["mixed_precision"]
            on_gpu = '"fp16" if torch.cuda.is_available() else "bf16"'  # Accelerate has no float16 on a CPU
            self.arguments["mixed_precision"] = (
                text.replace('"fp16"', f"({on_gpu})") if " if " in text else on_gpu
            )
        elif scales_on_gpu_alone(self.script):
            other = self.arguments.get("kwargs_handlers", "[]")[1:-1]
            handlers = [*([other] if other else []), "GradScalerKwargs(enabled=torch.cuda.is_available())"]
            self.arguments["kwargs_handlers"] = f"[{', '.join(handlers)}]"
            self.argument_reads["kwargs_handlers"] = frozenset()

    def _tells_accumulation(self, anchor: Anchor, core: set[Scope]) -> bool:
        """Write the steps of accumulation as they are known where the Accelerator is made.

        Where what holds them is set only later, the window stays as it is written. False then.
        """
        if self.accumulation is None:
            return True
        name, text = self.accumulation.argument(self.for_accelerate)
        stated = text_here(self.script, text, anchor)
        if stated is not None and not self._comes_late(name, core):
            self.arguments[name] = stated
            return True
        self.stored_window, self.accumulation = (self.accumulation if self.for_accelerate else None), None
        del self.arguments[name], self.argument_reads[name]
        return False

    def _unknown_of_lowered(self, anchor: Anchor) -> str | None:
        """Write what the plain form does not contain as it is known where the Accelerator is made.

        What is known only later, in words; None where everything is known.
        """
        if self.known.names and (late := self._late_names(anchor)):
            names = ", ".join(f"`{n}`" for n in late)
            verb = "is" if len(late) == 1 else "are"
            stored = {n.id for n in self.tree.nodes(ast.Name) if isinstance(n.ctx, ast.Store)}
            if not stored & set(late):
                return f"the Accelerator's arguments would read {names}, which {verb} taken out of the script"
            return f"{names} must be known before the Accelerator is made, and {verb} known only later"
        for name in self.known.arguments:
            text = self.arguments[name]
            stated = text_here(self.script, text, anchor)
            if stated is None:
                return f"the Accelerator is made before all that `{name}={text}` reads is set"
            self.arguments[name] = stated
        return None

    def _fits_accelerate(self, window: Window) -> bool:
        """Whether Accelerate's accumulation has the window's meaning.

        It cannot carry a window over to the next epoch and count from the start there, and it holds back the steps
        of a scheduler that runs at every micro-batch.
        """
        inside = {id(node) for node in walk(window.last)}
        return window.flushes and not any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "step"
            and id(call) not in inside
            and self.script.entities(call.func.value, v.SCHEDULER) & self.prepared
            and self.steps_per_batch(call)
            for call in self.script.calls()
        )

    def _cuda_guard(self) -> tuple[str, frozenset[str]] | None:
        """The setting in the `if args.cuda:` around moves, for scripts without a device variable."""
        found: list[tuple[str, frozenset[str]]] = []
        for call in self.script.calls():
            if not is_move_to_gpu(call):
                continue
            for ancestor in self.tree.ancestors(call):
                test = self._asked_for(ancestor, call)
                if test is not None:
                    wish = self.devices.wish(test)
                    # A helper can read under another name what was decided where the models are made.
                    if wish is not None and self._known_at_sites(wish):
                        return wish
                    scope = self.script.scope_of(ancestor)
                    if wish is not None and self._are_parameters(wish[1], scope):
                        wish = as_callers_say(self.script, wish, scope)
                    if wish is not None:
                        found.append(wish)
        for given in flags_of_helpers(self.script):
            wish = self.devices.wish(given)
            if wish is not None and self._known_at_sites(wish):
                return wish
        return found[0] if found else None

    def _asked_for(self, branch: Node, call: ast.Call) -> ast.expr | None:
        """What a branch asks of the user before a move to a GPU, as a test that is true there."""
        if not isinstance(branch, (ast.If, ast.IfExp)):
            return None
        test, other = branch.test, _parts(branch.orelse)
        known = self.script.is_a(test, v.FLAG) or is_option_for_gpu(test)
        known = known or bool(k.FLAG_NAME.search((dotted(test) or "").rpartition(".")[2]))
        if any(call is n for part in other for n in walk(part)):
            test, other, known = ast.UnaryOp(ast.Not(), test), _parts(branch.body), False
        if any(map(_moves_to_gpu, other)):
            return None  # it chooses among several GPUs
        if not known and not self._moves_models_anyway:
            known = only_moves(self.script, branch, call)
        # Where a model is moved whatever the options are, no name that is only like a switch's is one.
        known = known or (self.devices.asks_for_gpu(branch.test) and not self._moves_models_unasked)
        return test if known else None

    @cached_property
    def _moves_models_anyway(self) -> bool:
        """Whether a model goes to a GPU in no branch at all."""
        return not all(self._tests_around_moves)

    @cached_property
    def _moves_models_unasked(self) -> bool:
        """Whether a model goes to a GPU that the script asks nobody about."""
        return not all(any(map(self.devices.asks_for_gpu, tests)) for tests in self._tests_around_moves)

    @cached_property
    def _tests_around_moves(self) -> list[list[ast.expr]]:
        """The tests of the branches around each move of a model to a GPU."""
        return [
            [a.test for a in self.tree.ancestors(call) if isinstance(a, (ast.If, ast.IfExp))]
            for call in self.script.calls()
            if is_move_to_gpu(call)
            and isinstance(call.func, ast.Attribute)
            and self.script.models_of(call.func.value)
        ]

    def _known_at_sites(self, wish: tuple[str, frozenset[str]]) -> bool:
        names = {name.split(".")[0] for name in wish[1]}
        return all(
            any(scope.resolve(n) is not None for scope in self._where_made(site.scope))
            for site in self.sites
            for n in names
        )

    def _where_made(self, scope: Scope) -> list[Scope]:
        """A scope, and the `__init__` of its class, where an Accelerator that is an attribute is made."""
        init = scope.parent.children.values() if scope.is_method and scope.parent is not None else []
        return [scope, *[s for s in init if s.name.rsplit(".", 1)[-1] == "__init__"]]

    def _are_parameters(self, names: frozenset[str], scope: Scope) -> bool:
        """Whether all names are parameters of a helper: its callers decide, and nobody else can read them."""
        heads = {name.split(".")[0] for name in names}
        if self_of(scope) in heads:
            return False  # an attribute of an object
        return all(scope.takes(head) for head in heads)

    def _names_a_device(self) -> bool:
        """Whether the script reads a device, wherever it comes from."""
        return any(
            isinstance(n.ctx, ast.Load)
            and k.DEVICE_NAME.search(n.id)
            and not self._is_read_off(n)
            and not is_shown(self.tree, n)
            for n in self.tree.nodes(ast.Name)
        )

    def _moves_to_accelerator(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
            return True
        if any(isinstance(a, ast.Constant) and str(a.value).startswith("cuda") for a in call.args):
            return True
        return any(
            not isinstance(node, ast.Constant)
            and self.script.is_a(node, v.DEVICE)
            and not self._is_read_off(node)
            for node in device_arguments(call)
        )

    def _is_read_off(self, node: ast.expr, depth: int = 3) -> bool:
        """Whether a device is that of a parameter or a tensor, which is where it is and no choice."""
        if isinstance(node, ast.Attribute) and node.attr == "device":
            return is_read_off(self.script, node) or is_set_nowhere(self.script, node.value, node.attr)
        if depth and isinstance(node, ast.Name):
            scope = self.script.scope_of(node)
            found = [stmt.value for stmt in self.tree.assigns(node.id) if self.script.scope_of(stmt) is scope]
            return bool(found) and all(self._is_read_off(value, depth - 1) for value in found)
        if depth and isinstance(node, ast.Call) and self.script.callees(node):
            returned = [
                part.value
                for callee in self.script.callees(node)
                for part in walk(callee.node)
                if isinstance(part, ast.Return) and part.value is not None
            ]
            return bool(returned) and all(self._is_read_off(value, depth - 1) for value in returned)
        return False

    def _leaves_models_on_cpu(self) -> bool:
        """Whether a model goes to the CPU to be run there: `net = nets[i].cpu()`, and no `net.cpu().state_dict()`."""
        for call in self.script.calls():
            func, stmt = call.func, self.tree.parent(call)
            if not isinstance(func, ast.Attribute) or func.attr not in ("cpu", "to"):
                continue
            device = call_argument(call, 0, "device")
            if func.attr == "cpu" or (device is not None and names_cpu(device)):
                found = self.script.entities(func.value, v.MODEL, v.UNKNOWN)
                run = any(one.kind == v.MODEL or "()" in one.uses for one in found)
                if run and isinstance(stmt, (ast.Assign, ast.Expr)):
                    return True
        return False

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
                ) and not goes_to_data_sets(self.script, call):
                    return False
        if any(
            self._is_left_out(model) for call in self.script.calls() for model in self.script.models_run(call)
        ):
            return False
        return not any(
            isinstance(w, Entity) and w.kind == v.MODEL
            for call in self.script.calls()
            if not self.script.iterated(call)
            for w in self._called_outside_loops(call)
        )

    def _is_left_out(self, model: Entity) -> bool:
        """Whether a model is none of those that prepare places, nor a part of one: a teacher that is not trained."""
        made = isinstance(model.site, ast.Call) and model.module in self.script.modules
        return made and not ({model} | self.script.owners_of(model)) & self.prepared

    def _called_outside_loops(self, call: ast.Call) -> set[Entity]:
        models = self.script.models_run(call) & self.prepared
        if not models or is_in_model(self.script, self.script.scope_of(call)):
            return set()
        loops = self.script.enclosing_loops(call)
        known = {id(loop) for loop, _ in self.script.loader_loops}
        return set() if any(id(loop) in known for loop in loops) else models


def _parts(side: list[ast.stmt] | ast.expr) -> Sequence[ast.AST]:
    return side if isinstance(side, list) else [side]


def _moves_to_gpu(part: ast.AST) -> bool:
    return any(map(is_move_to_gpu, walk(part)))
