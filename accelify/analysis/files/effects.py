"""What code does beside returning a value: files, folders, pictures, questions, lines on the screen.

And whether one process may do it alone: what trains, calls a model, draws random numbers or changes what others read
has to be run by all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.fetches import asked_to_download
from accelify.analysis.files.effect_sites import (
    DOWNLOADS,
    FILES,
    LISTING,
    PICTURES,
    TERMINAL,
    Site,
    as_called,
    as_called_within,
    asked_for,
    asks_first,
    is_deletion,
    stops_first,
    updates_namespace,
)
from accelify.analysis.files.found_effects import HANDS_ON, Effects, changes_given, runs_it
from accelify.analysis.files.reading_calls import READING, may_read
from accelify.analysis.files.writing_calls import (
    OPENING,
    WRITING,
    WRITING_METHODS,
    WritingCalls,
    opens_for_writing,
)
from accelify.analysis.metrics.stored_state import StoredState, class_of, own_attribute
from accelify.analysis.models.changed_parts import changes_part
from accelify.analysis.models.handed_models import LOGGING, models_handed
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.local_objects import LOOKS, is_made_within, root_name
from accelify.analysis.statements.unreached import reached
from accelify.analysis.syntax import Node, dotted, flat_targets, is_constant, walk
from accelify.analysis.values import Class, Entity, Imported, Values

_LOOKING_METHODS = LOOKS | LOGGING
_NOT_RUNNING = LOOKS | WRITING_METHODS | {"save"}
CLOCKS = frozenset(
    {f"time.{name}" for name in ("time", "time_ns", "perf_counter", "monotonic", "process_time", "clock")}
    | {"timeit.default_timer", "datetime.datetime.now", "datetime.datetime.utcnow", "datetime.datetime.today"}
)
RANDOM = tuple(
    "torch.rand torch.normal torch.multinomial torch.bernoulli torch.manual_seed torch.cuda.manual_seed "
    "numpy.random. random.".split()
)
_RANDOM_METHODS = frozenset("normal_ uniform_ random_ bernoulli_ rsample multinomial".split())
_ASKING = ("torch.distributed.is_", "torch.distributed.get_")
_LEAVING = frozenset("sys.exit builtins.exit builtins.quit os._exit os.abort".split())
_DRAWING = frozenset({"builtins.iter", "builtins.next"})
_CALLED = (v.MODEL, v.CRITERION)
_ROLES = (v.OPTIMIZER, v.SCHEDULER, v.SCALER)
_TRAINING = frozenset("step update unscale_ scale add_param_group".split())
_LOOKING = frozenset(
    "builtins.print builtins.isinstance builtins.type builtins.str builtins.repr builtins.hasattr builtins.len "
    "builtins.getattr builtins.id torch.save builtins.list builtins.sum".split()
)
_CHANGING = frozenset(
    "append extend insert update pop popitem remove clear add discard setdefault sort reverse reset".split()
)
# What only the process needs that draws the picture.
_SETTINGS = ("matplotlib.rcParams", "matplotlib.pyplot.rcParams", "pylab.rcParams")
# What changes how a model runs, or what of it is trained.
_SETTING = frozenset(
    "train eval requires_grad_ apply to cuda cpu half float double bfloat16 add_module register_buffer".split()
)

_LOOKED_AT = frozenset(
    {ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete, ast.For, ast.AsyncFor, ast.comprehension}
    | {ast.Yield, ast.YieldFrom, ast.Await}
)


class SideEffects:
    """Asks about the functions of a program, each looked at once.

    Args:
        script: the script, with the modules that it imports.
    """

    def __init__(self, script: ScriptModel) -> None:
        self.script = script
        self.interpreter = script.interpreter
        self.writing = WritingCalls(script.interpreter)
        self.path_parameters: dict[Scope, set[str]] = {}  # as they become known
        self._known: dict[Scope, Effects] = {}
        self._known_nodes: dict[Node, Effects] = {}
        # Of single calls, in the function that they are looked at for; none while a function is gone through that
        # may call itself.
        self._known_calls: dict[tuple[ast.Call, Scope], Effects] = {}
        self._open = 0
        self._may_read = may_read(script.program)
        self._stored = StoredState(script, self._is_for_all, self._shows)

    def reads(self, scope: Scope) -> bool:
        """Whether a function of the program reads a file."""
        return self._may_read and self.of(scope).reads

    def of(self, scope: Scope) -> Effects:
        """What a function of the program does, itself and through what it calls."""
        found = self._known.get(scope)
        if found is None:
            found = self._known[scope] = Effects()
            module = self.interpreter.module_of(scope)
            self._open += 1
            self._look(found, module, scope, scope.nodes)
            self._open -= 1
            changed = {n for n, at in found.changes.items() if not is_made_within(module.tree, scope, n, at)}
            changed.discard(scope.self_name() or "")
            left_out = {a.arg for a, default in scope.defaults() if is_constant(default, None)}
            found.given = changed & left_out
            if changed - left_out:
                found.tie(f"it changes `{min(changed - left_out)}`")
            found.changes = {}
        return found

    def sites_of(self, call: ast.Call, callee: Scope) -> list[Site]:
        """What a function does where a call of the script runs it."""
        return list(as_called(self.of(callee).sites, call, callee, self.script.scope_of(call)))

    def of_nodes(self, node: Node) -> Effects:
        """What a statement or expression of the script does."""
        found = self._known_nodes.get(node)
        if found is None:
            found = self._known_nodes[node] = Effects()
            self._look(found, self.script.module_of(node), self.script.scope_of(node), walk(node))
            found.calls_model = found.calls_model or bool(found.models)
        return found

    def of_call(self, call: ast.Call, callee: Scope) -> Effects:
        """What a function does where a call of the script runs it: a model that is not an argument is not called."""
        effects = self.of(callee)
        surely, through = self._handed(self.script.module_of(call), self.script.scope_of(call), call, callee)
        effects = replace(effects, tied=effects.tied or changes_given(effects, call, callee))
        return replace(effects, calls_model=effects.calls_model or surely or bool(through), models=set())

    def _handed(self, module: Module, scope: Scope, call: ast.Call, callee: Scope) -> tuple[bool, set[str]]:
        called = self.of(callee).models
        return models_handed(call, callee, called, scope, lambda a: self._is_a(module, scope, a, *_CALLED))

    def attribute_set_by(self, node: Node) -> str:
        """The attribute or global that a node of the script sets for what all processes do; "" where it sets none."""
        state = self.of_nodes(node).state
        return min((name for owner, name in state if self._stored.is_read(owner, name)), default="")

    def keeps_log(self, cls: Class) -> bool:
        """Whether the instances of a class store a file that is open for writing, or a writer."""
        if any(
            isinstance(b, Imported) and b.name in k.WRITER_CLASSES for c in cls.ancestry() for b in c.bases
        ):
            return True
        for own in cls.ancestry():
            for method in own.scope.children.values():
                for node in method.nodes:
                    if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                        name = self.qualname(own.module, method, node.value.func)
                        opened = name in k.WRITER_CLASSES or opens_for_writing(node.value, name) is not None
                        if opened and any(own_attribute(method, t) for t in node.targets):
                            return True
        return False

    def not_alone(self, effects: Effects, *, unwrapped: bool = False) -> str:
        """Why one process may not do this alone; "" where it may.

        A model that is passed `unwrapped` may be called.
        """
        if effects.tied:
            return effects.tied
        if effects.calls_model and not unwrapped:
            return "it calls the model"
        # What only prints costs lines on the screen where all do it, and another model where one does it alone.
        prints = effects.kinds() <= {TERMINAL}
        if prints and effects.sets_model:
            return "it changes the model"
        for owner, name in sorted(effects.state, key=lambda pair: pair[1]):
            if self._stored.is_read(owner, name):
                return f"it sets `{name}`, which is read elsewhere"
            if self._stored.is_of_model(owner) or (prints and not self._stored.is_shown_only(owner, name)):
                return f"it sets `{name}` of its object"
        return ""

    def _is_for_all(self, scope: Scope) -> bool:
        effects = self.of(scope)
        runs = effects.calls_model or bool(effects.models)
        return bool(effects.tied or effects.given) or runs or scope in self.script.training_scopes

    def _shows(self, scope: Scope) -> bool:
        """Whether a function writes or prints, and nothing speaks against that one process alone runs it."""
        effects = self.of(scope)
        return bool(effects.sites) and not self.not_alone(effects, unwrapped=True)

    # -- looking

    def _look(self, found: Effects, module: Module, scope: Scope, nodes: Iterable[Node]) -> None:
        for node in reached(module.tree, nodes):
            kind = type(node)
            if kind is ast.Call:
                found.take(self._of_one_call(module, scope, node))  # type: ignore[arg-type]
            elif kind not in _LOOKED_AT:
                continue
            elif isinstance(node, (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Delete)):
                value = getattr(node, "value", None)
                if isinstance(value, ast.Call) and self.qualname(module, scope, value.func) in OPENING:
                    continue  # a file that is opened again
                targets = node.targets if isinstance(node, (ast.Assign, ast.Delete)) else [node.target]
                for target in (t for one in targets for t in flat_targets(one)):
                    self._store(found, module, scope, target)
            elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
                if any(
                    isinstance(w, Entity) and w.kind in (v.LOADER, v.ITERATOR)
                    for w in self.interpreter.evaluate(module, scope, node.iter)
                ):
                    found.tie("it reads batches")
            elif isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)):
                found.tie(HANDS_ON)

    def _store(self, found: Effects, module: Module, scope: Scope, target: ast.expr) -> None:
        name = own_attribute(scope, target)
        owner = class_of(scope)
        if name is not None and owner is not None:
            found.state.add((owner, name))
        elif isinstance(target, ast.Name):
            if target.id in scope.globals:
                found.state.add((module.scopes.module, target.id))
        else:
            changed = target.value if isinstance(target, (ast.Attribute, ast.Subscript)) else target
            if not (self.qualname(module, scope, changed) or "").startswith(_SETTINGS):
                self._change(found, changed)

    def _change(self, found: Effects, changed: ast.expr) -> None:
        root = root_name(changed)
        if root is None:
            found.tie("it changes what it is given")
            return
        found.changes.setdefault(root, []).append(changed)

    def _of_one_call(self, module: Module, scope: Scope, call: ast.Call) -> Effects:
        found = self._known_calls.get((call, scope))
        if found is None:
            found = Effects()
            self._call(found, module, scope, call)
            if not self._open or call not in self.interpreter.calls:
                self._known_calls[call, scope] = found
        return found

    def _call(self, found: Effects, module: Module, scope: Scope, call: ast.Call) -> None:
        func = call.func
        attribute = func.attr if isinstance(func, ast.Attribute) else ""
        contained = self.interpreter.evaluate(module, scope, func)
        name = _name_among(contained, scope, func) or ""
        runs = any(isinstance(w, Entity) and w.kind in _CALLED for w in contained)
        callees = self.interpreter.calls.get(call, set())
        kind = self.writing.kind_of(module, scope, call, name, attribute)
        if kind in (FILES, PICTURES) and self.writing.into_memory(module, scope, call):
            kind = None
        if kind is not None and not name and runs:
            kind = None  # a layer that is called `write`
        if kind is not None:
            path, line = self._place(module, call)
            missing = asks_first(module, call, deletes=is_deletion(name or attribute))
            missing = missing or (kind == TERMINAL and stops_first(module, call))
            asked = asked_for(module, scope, call)
            stated = asked_to_download(call, name) if kind == DOWNLOADS else None
            if isinstance(stated, ast.Name) and scope.takes(stated.id):
                asked = stated.id
            found.sites.append(Site(kind, name or attribute, path, line, missing, asked))
        if name.startswith(LISTING) or attribute in ("glob", "iterdir"):
            found.lists = True
        if name.startswith(READING) and kind is None:
            found.reads = True
        if name in _DRAWING and call.args and self._is_a(module, scope, call.args[0], v.LOADER, v.ITERATOR):
            found.tie("it reads batches")
        if name in _LEAVING:
            found.tie("it ends the run")
        elif name.startswith(RANDOM) or attribute in _RANDOM_METHODS:
            found.tie("it draws random numbers")
        elif name.startswith("torch.nn.init."):
            found.tie("it sets weights")
        elif name.startswith("torch.distributed.") and not name.startswith(_ASKING):
            found.tie("it communicates")
        elif attribute in ("backward", "load_state_dict", "zero_grad"):
            found.tie("it trains or loads")
        elif name == "builtins.setattr" or attribute == "__setattr__" or updates_namespace(func):
            found.tie("it sets attributes by name")
        if runs:
            runs_it(found, scope, func)
        elif isinstance(func, ast.Attribute):
            self._receiver(found, module, scope, call, func, name, bool(callees))
        elif isinstance(func, ast.Name) and scope.kind == "function" and not callees:
            if scope.takes(func.id):
                found.tie(f"it calls `{func.id}`, which it is given")
        if not callees and kind is None and name not in _LOOKING and attribute not in _LOOKING_METHODS:
            for argument in [*call.args, *[kw.value for kw in call.keywords]]:
                if isinstance(argument, (ast.Name, ast.Attribute)):
                    if self._is_a(module, scope, argument, v.MODEL):
                        runs_it(found, scope, argument)
            if changes_part(module.tree, call):
                found.tie("it changes the model")
        for callee in in_order(callees):
            inner = self.of(callee)
            within = as_called_within(inner.sites, module, call, callee, scope)
            found.sites += [site for site in within if site not in found.sites]
            found.reads = found.reads or inner.reads
            found.lists = found.lists or inner.lists
            surely, through = self._handed(module, scope, call, callee)
            found.models |= through
            found.calls_model = found.calls_model or inner.calls_model or surely
            found.sets_model = found.sets_model or inner.sets_model
            # What a generator yields reaches only the code that iterates over it, unless that returns it.
            tied = inner.tied or changes_given(inner, call, callee)
            if tied not in ("", HANDS_ON):
                found.tie(tied)
            own = class_of(callee)
            # An object that is made here, and only bound to a local variable, is visible to nobody else.
            fresh = callee.name.rsplit(".", 1)[-1] == "__init__" or self._is_local(scope, func)
            found.state |= {pair for pair in inner.state if not (fresh and pair[0] is own)}
        for callee in _losses(contained) if runs and not callees else ():
            shown = as_called_within(self._shown_by(callee), module, call, callee, scope)
            found.sites += [site for site in shown if site not in found.sites]

    def shown_in_losses(self, call: ast.Call) -> list[Site]:
        """What the forwards of other modules' losses print that a call of the script runs: `criterion(output, y)`."""
        script = self.script
        if not self._has_own_losses or self.interpreter.calls.get(call):
            return []
        module, scope = script.module_of(call), script.scope_of(call)
        found: list[Site] = []
        for callee in _losses(self.interpreter.evaluate(module, scope, call.func)):
            if self.interpreter.module_of(callee) not in script.modules:
                found += as_called(self._shown_by(callee), call, callee, scope)
        return found

    @cached_property
    def _has_own_losses(self) -> bool:
        """Whether a module that is not converted defines a loss, or a base of one."""
        return any(
            self.interpreter.kind_of_class(cls) == v.CRITERION
            and any(own.module not in self.script.modules for own in cls.ancestry())
            for cls in self.interpreter.classes()
        )

    def _shown_by(self, scope: Scope) -> list[Site]:
        return [site for site in self.of(scope).sites if site.kind == TERMINAL]

    def _receiver(
        self,
        found: Effects,
        module: Module,
        scope: Scope,
        call: ast.Call,
        func: ast.Attribute,
        called: str,
        is_seen: bool,
    ) -> None:
        """What a call does to the object whose method it is.

        Args:
            found: takes it.
            module: the module of the call.
            scope: the same.
            call: the call.
            func: its function.
            called: the qualified name of that, where it is a library's.
            is_seen: whether it runs functions of the program.
        """
        attribute = func.attr
        base = func.value
        if dotted(base) in ("accelerator", "self.accelerator"):
            found.tie("it asks the Accelerator")
        if attribute in _TRAINING and self._is_a(module, scope, base, *_ROLES) and not is_seen:
            found.tie("it trains or loads")
        if not is_seen and attribute not in _NOT_RUNNING and self._is_a(module, scope, base, v.MODEL):
            runs_it(found, scope, base)
            found.sets_model = found.sets_model or attribute in _SETTING
        inplace = attribute.endswith("_") and not attribute.startswith("_")
        # `os.remove` changes files, not `os`; `plt.rcParams.update` how pictures look.
        apart = called in WRITING or called.startswith(_SETTINGS)
        if (attribute in _CHANGING or inplace) and not is_seen and not apart:
            name, owner = own_attribute(scope, base), class_of(scope)
            if name is None and isinstance(base, ast.Attribute) and owner is not None:
                name = own_attribute(scope, func)
            if name is not None and owner is not None:
                found.state.add((owner, name))
            elif not (isinstance(base, ast.Name) and scope.imports(base.id)):
                self._change(found, base)
            elif inplace and call.args:
                self._change(found, call.args[0])  # `torch.relu_(x)`; `numpy.insert(x, 0, 0)` makes a new one

    def into_memory(self, call: ast.Call) -> bool:
        """Whether a call of the script writes into memory: `plt.savefig(buffer)`."""
        return self.writing.into_memory(self.script.module_of(call), self.script.scope_of(call), call)

    def qualname(self, module: Module, scope: Scope, node: ast.expr) -> str | None:
        """The qualified name of a library's function as seen from a module of the program."""
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return None
        return _name_among(self.interpreter.evaluate(module, scope, node), scope, node)

    def _is_a(self, module: Module, scope: Scope, node: ast.expr, *kinds: str) -> bool:
        contained: Values = self.interpreter.evaluate(module, scope, node)
        return any(isinstance(w, Entity) and w.kind in kinds for w in contained)

    def _is_local(self, scope: Scope, func: ast.expr) -> bool:
        root = root_name(func)
        if root is None or scope.kind != "function":
            return False
        return root in scope.locals and not scope.takes(root)

    def _place(self, module: Module, node: ast.AST) -> tuple[str, int]:
        tree = module.tree
        path, line, _ = tree.place(node)
        return path, line


def _name_among(contained: Values, scope: Scope, node: ast.expr) -> str | None:
    """The qualified name of a library's function among what a name or an attribute can be."""
    if not isinstance(node, (ast.Name, ast.Attribute)):
        return None
    names = [value.name for value in contained if isinstance(value, Imported)]
    if names:
        return min(names)
    if isinstance(node, ast.Name) and scope.resolve(node.id) is None:
        return f"builtins.{node.id}"
    return None


def _losses(contained: Values) -> list[Scope]:
    """The forwards of the program's losses among what is called, which the interpreter does not go into."""
    classes = [
        t.cls for t in contained if isinstance(t, Entity) and t.kind == v.CRITERION and t.cls is not None
    ]
    return in_order({method[1] for cls in classes if (method := cls.method("forward")) is not None})
