"""The ScriptModel: what every name of a script is, who calls what, and where gradients are computed."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.calls_by_name import CallsByName
from accelify.analysis.holders import Holder, Holders
from accelify.analysis.interpretation.interpreter import Interpreter
from accelify.analysis.joined import JoinedTree
from accelify.analysis.losses.reducing_helpers import only_reduces
from accelify.analysis.lowered import PLACEHOLDER
from accelify.analysis.modules.functions_never_reached import left_to_others
from accelify.analysis.modules.main_blocks import own_main
from accelify.analysis.modules.reached import dormant_scopes
from accelify.analysis.program import TRAINING_WORDS, Module, Program
from accelify.analysis.schedules.regions import stored_region
from accelify.analysis.scopes import Scope, scope_around
from accelify.analysis.syntax import Node, Tree, call_keyword, dotted, target_names
from accelify.analysis.trained import is_autograd_function, is_in_model
from accelify.analysis.training_loops import TrainingLoops
from accelify.analysis.uniform import UniformValues
from accelify.analysis.values import Class, Entity, Imported, Value, Values


@dataclass(eq=False)
class Backward:
    """One place where gradients are computed: `loss.backward(...)` or `torch.autograd.backward(loss)`."""

    call: ast.Call
    loss: ast.expr
    scope: Scope
    scaler: ast.expr | None = None


_NO_SCOPES: frozenset[Scope] = frozenset()
_MAKERS = frozenset({"randn", "zeros", "ones", "rand", "empty", "full", "Tensor", "FloatTensor"})


class ScriptModel(UniformValues, Holders, TrainingLoops, CallsByName):
    """Everything the rules ask about one script. Made once, never changed.

    Args:
        tree: the parsed script.
        path: where it is, None for stdin.
        project: whether the modules of the project that train are part of it.
        known: its model without them, where there is one.
        program: the script with its modules, where they have been read already.
    """

    def __init__(
        self,
        tree: Tree,
        path: Path | None = None,
        project: bool = False,
        known: ScriptModel | None = None,
        program: Program | None = None,
    ) -> None:
        self.path = path
        self.program: Program = known.program if known is not None else program or Program(tree, path)
        self.interpreter: Interpreter = known.interpreter if known is not None else Interpreter(self.program)
        self.module: Module = self.program.entry
        self.scopes = self.module.scopes
        self.modules: list[Module] = [self.module]
        self.tree = tree
        self._values: dict[Node, Values] = {}
        self._scopes: dict[Node, Scope] = {}
        self._qualnames: dict[ast.AST, str | None] = {}
        if project:
            idle = left_to_others(self)
            self.join(self._modules_that_train(idle))
            retained = self._modules_that_keep(idle)
            if retained:
                self.join(retained)

    def join(self, others: list[Module]) -> None:
        """Convert other modules of the project with the script."""
        self.modules += others
        known = self.tree.trees if isinstance(self.tree, JoinedTree) else [self.tree]
        self.tree = JoinedTree([*known, *[m.tree for m in others]], len(known))
        for module in self.modules:
            module.tree = module.scopes.tree = self.tree
        # What was computed from fewer files has to be computed again.
        self._values.clear()
        self._scopes.clear()
        self._qualnames.clear()
        for name, attribute in (pair for part in type(self).__mro__ for pair in vars(part).items()):
            if isinstance(attribute, cached_property):
                self.__dict__.pop(name, None)

    def release(self) -> None:
        """Free everything, with the program, when no question is left.

        Scopes, values and modules name each other. Parted they are freed at once, where finding out that nobody holds
        them takes a twentieth of a conversion.
        """
        modules = dict.fromkeys(vars(self.program).get("modules", {}).values())
        owners: list[object] = [self, self.program, self.interpreter, *modules]
        owners += vars(self.interpreter).get("entities", {}).values()
        for module in modules:
            owners += [module.scopes, *module.scopes.all()]
        for owner in owners:
            vars(owner).clear()

    def _modules_that_keep(self, idle: set[Scope]) -> list[Module]:
        """Modules whose classes store models or optimizers that are trained here: `self.agent.optimizer.step()`."""
        found: set[Module] = set()
        for entity in {*self.optimizers, *self.trained_models}:
            # A network's parts belong to it; an optimizer that it stores does not.
            kinds = (v.INSTANCE, v.MODEL) if entity.kind == v.OPTIMIZER else (v.INSTANCE,)
            for cls in self.interpreter.classes():
                if any(entity in contained for contained in cls.attributes.values()) and idle.isdisjoint(
                    cls.scope.children.values()
                ):
                    if self.interpreter.kind_of_class(cls) in kinds and cls.module.path is not None:
                        found.add(cls.module)
        # In the order in which they are imported: places in them are compared by it.
        every = dict.fromkeys(self.program.modules.values())
        return [module for module in every if module in found and module not in self.modules]

    def _modules_that_train(self, idle: set[Scope]) -> list[Module]:
        """Modules of the project with functions that train or evaluate, among those that the entry's calls reach."""
        reached: set[Scope] = set()
        for module in self.program.modules.values():
            for scope in module.scopes.functions():
                if scope not in idle and self.interpreter.callers.get(scope):
                    reached.add(scope)
        leading = self._leading_to_backward()
        found = []
        for module in self.program.modules.values():
            if module is self.module or module in found or module.path is None:
                continue
            text = module.tree.text
            trains = any(word in text for word in TRAINING_WORDS) and not only_reduces(module)
            if any(s in reached and (trains or s in leading) for s in module.scopes.functions()):
                found.append(module)
        return found

    def _leading_to_backward(self) -> set[Scope]:
        """Every function of the program that calls backward, by itself or through what it calls."""
        found = {
            scope
            for module in self.program.modules.values()
            if module.tree.mentions(b"backward")
            for scope in module.scopes.functions()
            if any(isinstance(n.func, ast.Attribute) and n.func.attr == "backward" for n in scope.calls)
        }
        queue = list(found)
        while queue:
            for module, call in self.interpreter.callers.get(queue.pop(), []):
                outer = module.scopes.of(call)
                if outer.kind == "function" and outer not in found:
                    found.add(outer)
                    queue.append(outer)
        return found

    def trains_elsewhere(self) -> str | None:
        """The module of the project whose training loop this script runs, through its calls; None where none."""
        queue = [s for c, callees in self.interpreter.calls.items() if self.tree.parent(c) for s in callees]
        leading = self._leading_to_backward()
        names = {id(m): name for name, m in reversed(self.program.modules.items())}
        own = set(self.functions())
        for scope in queue:
            if scope in leading and scope not in own:
                return names.get(id(self.interpreter.module_of(scope)))
        # What it calls there is not seen to reach the loop; that the loop is next to it is all that is known.
        training = {id(self.interpreter.module_of(scope)) for scope in leading}
        for scope in queue:
            if scope not in own and id(self.interpreter.module_of(scope)) in training:
                return names.get(id(self.interpreter.module_of(scope)))
        return None

    # -- values

    def scope_of(self, node: Node) -> Scope:
        """The scope that contains a node."""
        known = self._scopes.get(node)
        if known is None:
            if self.tree.parent(node) is None and (home := self._read_from(node)) is not None:
                known = home.scopes.of(node)
            elif len(self.modules) == 1:
                known = self.scopes.of(node)
            else:
                every = [module.scopes for module in self.modules]
                known = scope_around(self.tree, node, every) or self.scopes.module
            self._scopes[node] = known
        return known

    def _read_from(self, node: Node) -> Module | None:
        """The module that a node is of, among those that are only read: what a helper gives is asked about too."""
        return next((m for m in self.program.modules.values() if m.tree.parent(node) is not None), None)

    def scope_in(self, module: Module, node: Node) -> Scope:
        """The scope of a node of any module of the program."""
        return self.scope_of(node) if module in self.modules else module.scopes.of(node)

    def module_of(self, node: Node) -> Module:
        """The module of the program that contains a node."""
        if isinstance(node, ast.Module):
            return next((m for m in self.modules if m.scopes.module.node is node), self.module)
        return self.interpreter.module_of(self.scope_of(node))

    def scope_for(self, definition: Node) -> Scope:
        """The scope that a function, class or module opens, here or in a module of the program."""
        for module in (*self.modules, *self.program.modules.values()):
            if module.scopes.opens(definition):
                return module.scopes.for_definition(definition)
        raise KeyError("not a definition of this program")

    def functions(self) -> Iterator[Scope]:
        """Every function and method of the modules that are converted."""
        for module in self.modules:
            yield from module.scopes.functions()

    def values(self, node: ast.expr) -> Values:
        """What an expression can evaluate to. Called many times for the same one, so answers are cached."""
        found = self._values.get(node)
        if found is None:
            found = self.interpreter.evaluate(self.module_of(node), self.scope_of(node), node)
            self._values[node] = found
        return found

    def entities(self, node: ast.expr, *kinds: str) -> set[Entity]:
        """The `Entity` objects of some kinds that an expression can evaluate to."""
        values = self.values(node)
        if not values:  # as of most expressions
            return set()
        return {w for w in values if isinstance(w, Entity) and (not kinds or w.kind in kinds)}

    def is_a(self, node: ast.expr, *kinds: str) -> bool:
        """Whether an expression can evaluate to an `Entity` of some kinds."""
        values = self.values(node)
        return bool(values) and any(isinstance(w, Entity) and w.kind in kinds for w in values)

    def qualname(self, node: ast.expr) -> str | None:
        """The qualified name of a library's function or class, None for anything else."""
        if node in self._qualnames:
            return self._qualnames[node]
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        found = min((value.name for value in self.values(node) if isinstance(value, Imported)), default=None)
        if found is None and isinstance(node, ast.Name) and self.scope_of(node).resolve(node.id) is None:
            found = f"builtins.{node.id}"
        self._qualnames[node] = found
        return found

    @cached_property
    def divisions(self) -> dict[Scope, list[ast.BinOp | ast.AugAssign]]:
        """Where something is divided by something, by the scope it is in."""
        found: dict[Scope, list[ast.BinOp | ast.AugAssign]] = {}
        for node in self.tree.nodes(ast.BinOp, ast.AugAssign):
            if isinstance(node.op, ast.Div):
                found.setdefault(self.scope_of(node), []).append(node)
        return found

    @cached_property
    def has_ctc_loss(self) -> bool:
        """Whether a CTC loss is called, which takes the time along the first axis."""
        return any(
            self.qualname(call.func) in ("torch.nn.functional.ctc_loss", "torch.ctc_loss")
            or any((one.qualname or "").endswith(".CTCLoss") for one in self.entities(call.func, v.CRITERION))
            for call in self.calls()
        )

    def calls(self) -> Iterable[ast.Call]:
        """Every call of the script, without those in functions that only other scripts reach."""
        if not self.dormant:
            return self.tree.nodes(ast.Call)
        return (call for call in self.tree.nodes(ast.Call) if self.scope_of(call) not in self.dormant)

    @cached_property
    def dormant(self) -> set[Scope]:
        """The functions of the script's other modules that it never reaches."""
        return dormant_scopes(self) if len(self.modules) > 1 else set()

    def callees(self, call: ast.Call) -> Set[Scope]:
        """The functions of the program that a call can run."""
        return self.interpreter.calls.get(call) or _NO_SCOPES

    def callers(self, scope: Scope) -> list[ast.Call]:
        """The calls of this script that run a function."""
        return [call for module, call in self.interpreter.callers.get(scope, []) if module in self.modules]

    def called_from_elsewhere(self, scope: Scope) -> list[Module]:
        """The program's other modules that call a function, for each call of it."""
        return [m for m, _ in self.interpreter.callers.get(scope, []) if m not in self.modules]

    def models_of(self, node: ast.expr) -> set[Entity]:
        """Models an expression can be, the `self` of a class that represents any instance left out."""
        models = self.entities(node, v.MODEL)
        if not models or (isinstance(node, ast.Name) and self.scope_of(node).self_name() == node.id):
            return set()
        return {t for t in models if not isinstance(t.site, ast.ClassDef)}

    # -- loops and backward

    @cached_property
    def backwards(self) -> list[Backward]:
        """The places where gradients of what is trained are computed, in source order."""
        return [b for b in self.every_backward if not self.batch_fits.fitted_by(b)]

    @cached_property
    def every_backward(self) -> list[Backward]:
        """The same with those of tensors that are fitted to one batch."""
        found: list[Backward] = []
        for call in self.calls():
            func = call.func
            if not isinstance(func, ast.Attribute) or func.attr != "backward":
                continue
            scope = self.scope_of(call)
            if scope in self._unused:
                continue
            if self.qualname(func) in ("torch.autograd.backward",) and call.args:
                found.append(Backward(call, call.args[0], scope))
                continue
            if self.callees(call) or any(isinstance(w, (Imported, Class)) for w in self.values(func.value)):
                continue
            receiver = func.value
            if isinstance(receiver, ast.Name) and receiver.id in (
                "self",
                "ctx",
                "accelerator",
                "engine",
                "fabric",
            ):
                continue
            scaler = None
            if self.is_a(receiver, v.OPTIMIZER):
                continue
            if (
                isinstance(receiver, ast.Call)
                and self.understands_precision
                and isinstance(receiver.func, ast.Attribute)
                and receiver.func.attr == "scale"
                and receiver.args
            ):
                scaler, receiver = receiver.func.value, receiver.args[0]
            if scope.is_method and is_autograd_function(scope):
                continue
            found.append(Backward(call, receiver, scope, scaler))
        return sorted(found, key=lambda b: self.tree.start(b.call))

    @cached_property
    def _unused(self) -> set[Scope]:
        """Functions that nothing in the program names: other scripts train with them, or nobody.

        Those of the script itself count only where it trains in others of its functions, too.
        """
        if len(self.tree.named("backward")) < 2:
            return set()
        named: set[str] = set()
        for tree in {id(m.tree): m.tree for m in self.program.modules.values()}.values():
            named |= {n.id for n in tree.nodes(ast.Name)}
            named |= {n.attr for n in tree.nodes(ast.Attribute)}
            named |= {a.name for n in tree.nodes(ast.ImportFrom) for a in n.names}
        found = {
            scope
            for module in self.modules
            for scope in module.scopes.functions()
            if scope.parent is module.scopes.module
            and isinstance(scope.node, (ast.FunctionDef, ast.AsyncFunctionDef))
            and not scope.node.decorator_list
            and scope.node.name not in named
        }
        own = {scope for scope in found if self.module_of(scope.node) is self.module}
        trains = any(
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "backward"
            and self.scope_of(call) not in found
            for call in self.tree.nodes(ast.Call)
        )
        return found if trains and not named & {"Fire", "globals", "locals"} else found - own

    @cached_property
    def fixed_batch_size(self) -> ast.Call | None:
        """Where a model's `__init__` makes a tensor with the configured batch size as a dimension, if one does."""
        for value in self.interpreter.entities.values():
            if not isinstance(value, Class) or self.interpreter.kind_of_class(value) != v.MODEL:
                continue
            init = value.method("__init__")
            for node in init[1].calls if init is not None else ():
                if (dotted(node.func) or "").rsplit(".", 1)[-1] not in _MAKERS:
                    continue
                for argument in node.args:
                    name = (dotted(argument) or "").rsplit(".", 1)[-1]
                    if name and k.BATCH_SIZE_NAME.search(name):
                        return node
        return None

    @cached_property
    def understands_precision(self) -> bool:
        """Whether the script's casts are written out; casts to a dtype from a variable stay in the script."""
        for call in self.calls_to(k.AUTOCAST_CLASSES):
            dtype = call_keyword(call, "dtype")
            literal = dtype is None or (dotted(dtype) or "").rpartition(".")[0] in ("torch", "t", "th")
            opened = isinstance(self.tree.parent(call), ast.withitem) or stored_region(self, call)
            if not literal or not opened:
                return False
        return True

    def keep_precision(self, why: str) -> None:
        """Leave the script's casts and scaler alone: the runtime cannot know where they are switched on."""
        self.precision_stays = why
        self.__dict__["understands_precision"] = False
        self.__dict__.pop("backwards", None)
        self.__dict__.pop("every_backward", None)

    precision_stays = "its type is not written out"
    """Why the script's casts are left alone, where they are."""

    @cached_property
    def placeholders(self) -> list[ast.Name]:
        """Where the Accelerator is already used, in a script that was lowered to its plain form."""
        return [n for n in self.tree.nodes(ast.Name) if n.id == PLACEHOLDER]

    def depth(self, scope: Scope) -> int:
        """How many calls there are between the module's code and a scope (0 for the module's code)."""
        return self._depths.get(scope, 1)

    @cached_property
    def _depths(self) -> dict[Scope, int]:
        depths: dict[Scope, int] = {self.scopes.module: 0}
        queue = [self.scopes.module]
        roots = [s for s in self.functions() if not self.callers(s) and not s.is_method]
        for scope in roots:
            depths.setdefault(scope, 1)
            queue.append(scope)
        while queue:
            scope = queue.pop(0)
            for node in scope.calls:
                for target in self.callees(node):
                    if target not in depths:
                        depths[target] = depths[scope] + 1
                        queue.append(target)
        return depths

    # -- helpers for rules

    def is_without_gradients(self, node: Node) -> bool:
        """Whether a node is in a `with torch.no_grad():` of its function."""
        for ancestor in self.tree.ancestors(node):
            if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                return False
            if isinstance(ancestor, (ast.With, ast.AsyncWith)) and any(
                isinstance(item.context_expr, ast.Call) and self.qualname(item.context_expr.func) in k.NO_GRAD
                for item in ancestor.items
            ):
                return True
        return False

    def reads(self, name: str, scope: Scope) -> list[ast.Name]:
        """Every read of a variable of a scope, from that scope and the ones inside it."""
        reads = (n for n in self.tree.named(name) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
        return [n for n in reads if self.scope_of(n).resolve(name) is scope]

    @cached_property
    def main_guard(self) -> ast.If | None:
        """The script's `if __name__ == "__main__":`."""
        return own_main(self.tree)


__all__ = ["Backward", "Holder", "ScriptModel", "Value", "is_in_model", "target_names"]
