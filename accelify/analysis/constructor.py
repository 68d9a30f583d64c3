"""What the Accelerator's constructor is given: the script's wish for the CPU, its precision, its accumulation."""

from __future__ import annotations

import ast
import re
from typing import TYPE_CHECKING

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices import Devices, negated
from accelify.analysis.lowered import PLACEHOLDER, Lowered
from accelify.analysis.named_devices import NamedDevice, device_arguments, named_devices
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Tree, dotted
from accelify.analysis.values import Thing
from accelify.analysis.windows import Window, find_window, mixed_precision

_DEVICE_CODE = re.compile(r"\.cuda\(|cuda\.is_available\(|[\"']cuda(:\d)?[\"']")


class ConstructorArguments:
    """The part of the Plan that settles `Accelerator(...)`."""

    script: ScriptModel
    tree: Tree
    known: Lowered
    batch_size: str
    for_accelerate: bool
    devices: Devices
    prepared: set[Thing]
    arguments: dict[str, str]
    argument_reads: dict[str, frozenset[str]]
    accumulation: Window | None
    kept_window: Window | None
    named_devices: list[NamedDevice]

    if TYPE_CHECKING:

        def is_sharded(self, loaders: set[Thing]) -> bool: ...
        def steps_per_batch(self, call: ast.Call) -> bool: ...

    def _constructor_arguments(self) -> None:
        self.arguments.update(self.known.arguments)
        if self.known.names:
            self.argument_reads["known"] = self.known.names
        if self.batch_size == "total":
            name, value = ("split_batches", "True")
            if self.for_accelerate:
                name, value = ("dataloader_config", "DataLoaderConfiguration(split_batches=True)")
            self.arguments[name] = value
        wishes = [a for a in self.devices.assignments if a.cpu is not None and PLACEHOLDER not in a.names]
        self.named_devices = named_devices(self.script, self._reachable_choices())
        if wishes:
            self.arguments["cpu"] = wishes[0].cpu or "True"
            self.argument_reads["cpu"] = wishes[0].names
        elif not self.devices.assignments and self.named_devices:
            told = self.named_devices[0]
            self.arguments["cpu"] = f'str({told.text}) == "cpu"'
            self.argument_reads["cpu"] = frozenset({told.name})
        elif not self.devices.assignments:
            guard = self._cuda_guard()
            if guard is not None and PLACEHOLDER not in guard[1]:
                self.arguments["cpu"] = negated(guard[0])
                self.argument_reads["cpu"] = guard[1]
            elif not self._names_a_device() and not any(
                self._moves_to_accelerator(c) for c in self.script.calls()
            ) and not self._moved_elsewhere():  # fmt: skip
                # A script without any device code runs on the CPU; its tensors are made there.
                if not self._batches_only_from_loaders() and self._models_are_made_here():
                    self.arguments["cpu"] = "True"

    def _reachable_choices(self) -> set[str]:
        """Names that the script itself assigns a device, where the Accelerator's can be written instead."""
        found = set()
        for assignment in self.devices.assignments:
            statement = assignment.statement
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            found.add(dotted(target) or "")
        return found

    def _precision_and_accumulation(self) -> None:
        precision = mixed_precision(self.script)
        if precision is not None:
            self.arguments["mixed_precision"] = precision[0]
            self.argument_reads["mixed_precision"] = precision[1]
        window = find_window(self.script)
        if window is not None and self.for_accelerate and not self._fits_accelerate(window):
            self.kept_window, window = window, None
        if window is not None and self.is_sharded(self.script.training_loaders):
            self.accumulation = window
            name, value = window.argument(self.for_accelerate)
            self.arguments[name] = value
            self.argument_reads[name] = window.names

    def _fits_accelerate(self, window: Window) -> bool:
        """Whether Accelerate's accumulation has the window's meaning.

        It cannot carry a window over to the next epoch and count from the start there, and it holds back the steps
        of a scheduler that runs at every micro-batch.
        """
        inside = {id(node) for node in ast.walk(window.last)}
        return window.flushes and not any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "step"
            and id(call) not in inside
            and self.script.things(call.func.value, v.SCHEDULER) & self.prepared
            and self.steps_per_batch(call)
            for call in self.script.calls()
        )

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

    def _names_a_device(self) -> bool:
        """Whether the script reads a device, wherever it comes from."""
        return any(
            isinstance(n.ctx, ast.Load) and k.DEVICE_NAME.search(n.id) for n in self.tree.nodes(ast.Name)
        )

    def _moved_elsewhere(self) -> bool:
        """Whether a module of the project that the script imports puts tensors or models on an accelerator."""
        return any(
            _DEVICE_CODE.search(module.tree.text)
            for module in self.script.program.modules.values()
            if module not in self.script.modules
        )

    def _moves_to_accelerator(self, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr == "cuda":
            return True
        if any(isinstance(a, ast.Constant) and str(a.value).startswith("cuda") for a in call.args):
            return True
        return any(
            not isinstance(node, ast.Constant) and self.script.is_a(node, v.DEVICE)
            for node in device_arguments(call)
        )

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
