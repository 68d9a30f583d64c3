"""What calls of torch and related libraries return, and what methods of the objects made by them return."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterable

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.interpretation.record_classes import NAMED, NAMED_TUPLE, NAMESPACES, names_given
from accelify.analysis.interpretation.state import State
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import call_argument, call_keyword, calls_in, is_constant
from accelify.analysis.values import Entity, Function, Mapping, Method, Sequence, Value, Values

TENSOR_KINDS = (v.BATCH, v.OUTPUT, v.TENSOR)
_CHAINS = frozenset({"itertools.chain", "itertools.chain.from_iterable"})
_ITERATORS = _CHAINS | {"itertools.cycle", "itertools.islice"}
_COPYING = frozenset({"copy.deepcopy", "torch.compile", "torch.jit.script", "copy.copy"})
# All of the library's that is known by a whole name.
_KNOWN = (
    k.LOADER_CLASSES
    | k.AVAILABILITY_CALLS
    | k.DEVICE_CALLS
    | k.SCALER_CLASSES
    | k.AUTOCAST_CLASSES
    | k.WRITER_CLASSES
    | k.PARALLEL_WRAPPERS
    | k.DDP_WRAPPERS
    | k.SYNC_BATCH_NORM
    | k.SPLIT_RUNS
    | k.VARIABLE
    | _COPYING
    | _ITERATORS
    | {"apex.amp.initialize", "itertools.repeat"}
)


class LibraryCalls(State):
    """The part of the interpreter that knows the library."""

    def call_imported(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        name: str,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        every = [*arguments, *keywords.values()]
        if name in NAMESPACES and keywords:
            made = self.entity(node, "result", v.UNKNOWN, module, qualname=name)
            self.keep(made, [], [], keywords)
            return {made}
        if _is_known_by_name(name) or k.is_unread_wrapper(name, node):
            found = self._call_known(module, scope, node, name, arguments, keywords)
            if found is not None:
                return found
        if k.is_module_class(name):
            made = self._make(node, v.MODEL, module, name, f"it is a {name}")
            for value in (w for values in every for w in values):
                self.reads.container(value)
            self.link(
                made,
                "parts",
                of_kind(every, v.MODEL)
                | of_kind([w.any() for values in every for w in values if isinstance(w, Sequence)], v.MODEL)
                | of_kind(
                    [w.get(object()) for values in every for w in values if isinstance(w, Mapping)], v.MODEL
                ),
            )
            return {made}
        if name.startswith(("torch.utils.data.", "torchvision.datasets.")):
            return {self._make(node, v.DATASET, module, name, f"it is a {name}")}
        if name == "functools.partial" and node.args:
            return {self.entity(node, "result", v.UNKNOWN, module)}
        sources = {w for values in every for w in values if isinstance(w, Entity) and w.kind in TENSOR_KINDS}
        if sources and not name.startswith(("torch.save", "numpy.save")):
            return {self.derived(module, node, set(sources))}
        made = self.entity(node, "result", v.UNKNOWN, module, qualname=name)
        self.link(made, "iterated", of_kind(arguments, v.LOADER) | of_kind(arguments, v.ITERATOR))
        parameters = of_kind(every, v.PARAMETERS)
        if (
            parameters
            and made.kind == v.UNKNOWN
            and name[:1] != "_"
            and name.rsplit(".", 1)[-1][:1].isupper()
            and not k.AVERAGE_NAME.search(name)
        ):
            made.kind = v.OPTIMIZER
            self.reads.nothing_holds()
            made.note(f"{name} takes the parameters of a model")
            self.link_optimizer(module, made, every)
        elif made.kind == v.OPTIMIZER:
            self.link_optimizer(module, made, every)
        if made.kind == v.SCHEDULER or of_kind(every, v.OPTIMIZER):
            self.link(made, "optimizer", of_kind(every, v.OPTIMIZER))
        return {made}

    def call_method(self, module: Module, node: ast.Call, method: Method, arguments: list[Values]) -> Values:
        receiver, name = method.receiver, method.name
        receiver.uses.add(name)
        if receiver.kind == v.MODEL:
            if name in k.SELF_RETURNING:
                return {receiver}
            if name in ("parameters", "named_parameters"):
                made = self.entity(node, "parameters", v.PARAMETERS, module)
                self.link(made, "models", {receiver})
                return {made}
            if name in (
                "state_dict",
                "children",
                "modules",
                "named_children",
                "named_modules",
                "load_state_dict",
            ):
                return set()
            if "optim" in name:
                return {self.entity(node, "result", v.UNKNOWN, module)}  # `model.get_optimizer(rate)`
            if name in ("encode", "decode", "sample", "generate", "loss") or arguments:
                made = self.entity(node, "output", v.OUTPUT, module)
                self.link(made, "model", {receiver})
                return {made}
            return {self._part(module, node, receiver)}
        if (
            receiver.kind == v.CRITERION
            and receiver.cls is not None
            and name in ("parameters", "named_parameters")
        ):
            # A loss with weights that are trained is a model.
            receiver.kind = v.MODEL
            self.changed = True
            self.reads.nothing_holds()
        if receiver.kind in (v.CRITERION, v.SCALER, v.WRITER):
            if name in ("cuda", "to", "cpu", "float", "double", "train", "eval"):
                return {receiver}
            if receiver.kind == v.SCALER and name == "scale" and arguments:
                return arguments[0]
            return set()
        if receiver.kind in (v.OPTIMIZER, v.SCHEDULER):
            if name == "add_param_group":
                self.link_optimizer(module, receiver, arguments)
            return set()
        if receiver.kind == v.PARAMETERS and name in ("extend", "append"):
            # `given = list(encoder.parameters())`, then `given.extend(head.parameters())`
            for more in of_kind(arguments, v.PARAMETERS):
                assert isinstance(more, Entity)
                self.reads.relation(more, "models")
                self.link(receiver, "models", more.links.get("models", set()))
            return set()
        if receiver.kind in (v.LOADER, v.ITERATOR):
            if name in ("next", "__next__"):
                return self.element_values(module, node, receiver)
            if name == "__iter__":
                iterator = self.entity(node, "iterator", v.ITERATOR, module)
                self.link(iterator, "iterated", {receiver})
                return {iterator}
            return set()
        if receiver.kind == v.UNKNOWN:
            if name in k.SELF_RETURNING:
                return {receiver}
            if name in ("parameters", "named_parameters"):
                made = self.entity(node, "parameters", v.PARAMETERS, module)
                self.link(made, "models", {receiver} | receiver.links.get(v.PART_OF, set()))
                return {made}
            if name == "numpy" or name == "item":
                return set()
            return {self._part(module, node, receiver)}
        return {self.entity(node, "result", v.UNKNOWN, module)}

    def _part(self, module: Module, node: ast.Call, receiver: Entity) -> Entity:
        """What a method gives that is called without arguments: of a model, a part of it."""
        made = self.entity(node, "result", v.UNKNOWN, module)
        if not (node.args or node.keywords):
            self.link(made, v.PART_OF, {receiver})
        return made

    def _call_known(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        name: str,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values | None:
        """What a library's function returns that is known by its name; None where that depends on more."""
        every = [*arguments, *keywords.values()]
        first = arguments[0] if arguments else set()
        if name in k.LOADER_CLASSES:
            loader = self._make(node, v.LOADER, module, name, f"it is a {name}")
            data = of_kind([first, keywords.get("dataset", set())], v.DATASET)
            if data:  # `loader.dataset` is what it was made with
                self.add(loader.attributes.setdefault("dataset", set()), data)
            return {loader}
        if name in k.AVAILABILITY_CALLS:
            return {self._make(node, v.FLAG, module, name, "it asks for an accelerator")}
        if name in k.DEVICE_CALLS:
            return {self._make(node, v.DEVICE, module, name, f"it is made by {name}")}
        if k.is_optimizer_class(name):
            made = self._make(node, v.OPTIMIZER, module, name, f"it is a {name}")
            self.link_optimizer(module, made, every)
            self.reads.relation(made, "models")
            if not made.links.get("models") and self.settled():
                self.link(made, "models", self._models_asked(module, scope, call_argument(node, 0, "params")))
            return {made}
        if k.is_scheduler_class(name):
            made = self._make(node, v.SCHEDULER, module, name, f"it is a {name}")
            optimizer = call_argument(node, 0, "optimizer")
            self.link(made, "optimizer", self.evaluate(module, scope, optimizer))
            return {made}
        if k.is_loss_class(name):
            return {self._make(node, v.CRITERION, module, name, f"it is a {name}")}
        if k.is_loss_function(name):
            made = self.derived(module, node, set().union(*every) if every else set())
            return {made}
        if name in k.SCALER_CLASSES:
            return {self._make(node, v.SCALER, module, name, f"it is a {name}")}
        if name in k.AUTOCAST_CLASSES:
            return {self._make(node, v.AUTOCAST, module, name, f"it is a {name}")}
        if name in k.WRITER_CLASSES:
            return {self._make(node, v.WRITER, module, name, f"it is a {name}")}
        if name in k.PARALLEL_WRAPPERS or name in k.DDP_WRAPPERS or name in k.SYNC_BATCH_NORM:
            return first or (keywords.get("module") or set())
        if k.is_unread_wrapper(name, node):
            return first or (keywords.get("module") or set())
        if name in k.SPLIT_RUNS:
            models = {w for w in first or keywords.get("module", set()) if isinstance(w, Entity)}
            inputs = arguments[1] if len(arguments) > 1 else keywords.get("inputs", set())
            for value in inputs:
                self.reads.container(value)
            given = next((w.elements for w in inputs if isinstance(w, Sequence)), [inputs])
            ran = (self.call_entity(module, scope, node, model, given, {}) for model in models)
            return set().union(*ran)
        if name == "apex.amp.initialize":
            return self._initialized(node, arguments, keywords)
        if k.is_progress(name) and not name.endswith("range"):  # `trange(epochs)` goes over numbers
            return first or (keywords.get("iterable") or set())
        if name in k.VARIABLE or name in _COPYING:
            if name == "copy.deepcopy":
                copies = {self._copied(module, node, value) for value in first}
                # What is not known to be a model yet may turn out to be one, and its copy then is another.
                return {
                    self.entity(node, "copy", v.UNKNOWN, module) if is_of(w, v.UNKNOWN) else w for w in copies
                }
            return first
        if name in _ITERATORS:
            if any(is_of(w, v.PARAMETERS) for values in arguments for w in values):
                return set().union(*arguments)
            iterator = self.entity(node, "iterator", v.ITERATOR, module)
            for argument, values in zip(
                node.args, arguments if name in _CHAINS else arguments[:1], strict=False
            ):
                if isinstance(argument, ast.Starred) or name.endswith("from_iterable"):
                    # One after the other, what iterates over each of several is gone through.
                    values = {e for value in values for e in self.element_values(module, node, value)}
                self.link(iterator, "iterated", values)
            return {iterator}
        if name == "itertools.repeat" and arguments:
            repeated = self.entities.setdefault((node, "sequence"), Sequence())
            assert isinstance(repeated, Sequence)
            repeated.rest |= first
            return {repeated}
        return None

    def keep(
        self, made: Entity, fields: list[str], arguments: list[Values], keywords: dict[str | None, Values]
    ) -> None:
        """Store the arguments of an object in it: by the order of its fields, and by their names."""
        for name, values in [*zip(fields, arguments, strict=False), *keywords.items()]:
            if name is not None:
                self.store_attribute(made, name, values)

    def call_entity(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        callee: Entity,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        callee.uses.add("()")
        if callee.qualname == NAMED_TUPLE and isinstance(callee.site, ast.Call):
            made = self.entity(node, "result", v.UNKNOWN, module, qualname=NAMED)
            self.keep(made, names_given(callee.site), arguments, keywords)
            return {made}
        if callee.kind == v.MODEL:
            if callee.cls is not None:
                forward = callee.cls.method("forward")
                if forward is not None:
                    self.call_function(
                        module,
                        scope,
                        node,
                        Function(forward[1], forward[0].module, callee),
                        arguments,
                        keywords,
                    )
            made = self.entity(node, "output", v.OUTPUT, module)
            self.link(made, "model", {callee})
            given = set[Value]().union(*arguments, *keywords.values())
            self.link(made, "sources", {w for w in given if isinstance(w, Entity)})
            return {made}
        if callee.kind == v.CRITERION:
            made = self.derived(module, node, set().union(*arguments, *keywords.values()))
            self.link(made, "criterion", {callee})
            return {made}
        if callee.kind == v.INSTANCE and callee.cls is not None:
            dunder = callee.cls.method("__call__")
            if dunder is not None:
                return self.call_function(
                    module, scope, node, Function(dunder[1], dunder[0].module, callee), arguments, keywords
                )
        if callee.kind == v.UNKNOWN:
            made = self.entity(node, "result", v.UNKNOWN, module)
            self.link(made, "callee", {callee})
            parameters = of_kind([*arguments, *keywords.values()], v.PARAMETERS)
            self.reads.note(made.uses)
            if parameters and made.kind in (v.UNKNOWN, v.OPTIMIZER) and "step" in made.uses:
                if made.kind != v.OPTIMIZER:
                    made.kind = v.OPTIMIZER
                    self.reads.nothing_holds()
                self.link_optimizer(module, made, [*arguments, *keywords.values()])
            return {made}
        return set()

    def _initialized(
        self, node: ast.Call, arguments: list[Values], keywords: dict[str | None, Values]
    ) -> Values:
        """`amp.initialize` gives its models and optimizers back."""
        models = arguments[0] if arguments else keywords.get("models", set())
        given = arguments[1] if len(arguments) > 1 else keywords.get("optimizers")
        if given is None:
            return models
        both = self.entities.setdefault((node, "pair"), Sequence([set(), set()]))
        assert isinstance(both, Sequence)
        both.elements[0] |= models
        both.elements[1] |= given
        return {both}

    # -- making `Entity` objects

    def _copied(self, module: Module, node: ast.Call, value: Value) -> Value:
        """What `copy.deepcopy` makes of a value: other models than its argument's, also in a list or a dictionary."""
        if isinstance(value, Entity) and value.kind == v.MODEL:
            copied = self._make(node, v.MODEL, module, value.qualname, "it is a copy of a model")
            copied.cls = value.cls
            self.link(copied, "original", {value})
            return copied
        if not isinstance(value, (Sequence, Mapping)):
            return value
        self.reads.container(value)
        contained = value.any() if isinstance(value, Sequence) else value.get(None)
        if not any(is_of(w, v.MODEL) for w in contained):
            return value
        empty = Sequence() if isinstance(value, Sequence) else Mapping()
        own = self.entities.setdefault(((node, value), "copy"), empty)
        # Deeper levels are not distinguished.
        pairs = [(own.rest, value.rest)] if isinstance(own, (Sequence, Mapping)) else []
        if isinstance(own, Sequence) and isinstance(value, Sequence):
            while len(own.elements) < len(value.elements):
                own.elements.append(set())
            pairs += zip(own.elements, value.elements, strict=True)
        elif isinstance(own, Mapping) and isinstance(value, Mapping):
            pairs += [(own.entries.setdefault(key, set()), entry) for key, entry in value.entries.items()]
        for mine, theirs in pairs:
            self.add(mine, [self._copied(module, node, w) if is_of(w, v.MODEL) else w for w in theirs])
        return own

    def _make(self, node: ast.Call, kind: str, module: Module, name: str | None, evidence: str) -> Entity:
        made = self.entity(node, kind, kind, module, qualname=name)
        made.note(evidence)
        return made

    def link_optimizer(self, module: Module, optimizer: Entity, groups: list[Values]) -> None:
        stack = [w for values in groups for w in values]
        seen: set[int] = set()
        while stack:
            value = stack.pop()
            if id(value) in seen:
                continue
            seen.add(id(value))
            self.reads.container(value)
            if isinstance(value, Entity) and value.kind == v.PARAMETERS:
                self.reads.relation(value, "models")
                self.link(optimizer, "models", value.links.get("models", set()))
            elif isinstance(value, Entity) and value.kind == v.MODEL:
                self.link(optimizer, "models", {value})
            elif isinstance(value, Sequence):
                stack.extend(value.any())
            elif isinstance(value, Mapping):
                stack.extend(value.get("params"))
            elif isinstance(value, Entity) and value.kind == v.ITERATOR:
                self.reads.relation(value, "iterated")
                stack.extend(value.links.get("iterated", ()))

    def _models_asked(self, module: Module, scope: Scope, given: ast.expr | None) -> Values:
        """The models that are asked for parameters by a method of the script: `Adam(model.optim_parameters(args))`."""
        found: Values = set()
        calls = [*calls_in(given)] if given is not None else []
        if isinstance(given, ast.Name):
            calls += [
                w.site
                for w in self.evaluate(module, scope, given)
                if isinstance(w, Entity) and isinstance(w.site, ast.Call) and w.module is module
            ]
        for call in calls:
            asked = [call.func.value] if isinstance(call.func, ast.Attribute) else []
            for expression in (*asked, *call.args):
                if isinstance(expression, (ast.Name, ast.Attribute)):
                    contained = self.evaluate(module, scope, expression)
                    found |= {w for w in contained if is_of(w, v.MODEL)}
        return found

    def derived(self, module: Module, node: ast.AST, sources: Values) -> Entity:
        made = self.entity(node, "tensor", v.TENSOR, module)
        self.link(made, "sources", {w for w in sources if isinstance(w, Entity) and w.kind in TENSOR_KINDS})
        return made

    def tensor_from(self, module: Module, node: ast.AST, contained: Values) -> Values:
        if any(isinstance(w, Entity) and w.kind in TENSOR_KINDS for w in contained):
            return {self.derived(module, node, contained)}
        return set()


@functools.lru_cache(maxsize=4096)
def _is_known_by_name(name: str) -> bool:
    """Whether a library's function is one of those that `_call_known` handles: most are not. Cached for all scripts."""
    return (
        name in _KNOWN
        or k.is_optimizer_class(name)
        or k.is_scheduler_class(name)
        or k.is_loss_class(name)
        or k.is_loss_function(name)
        or k.is_progress(name)
    )


def is_of(value: Value, kind: str) -> bool:
    return isinstance(value, Entity) and value.kind == kind


def kinds_of(contained: Values) -> set[str]:
    return {w.kind for w in contained if isinstance(w, Entity)}


def of_kind(groups: Iterable[Values], kind: str) -> Values:
    return {w for values in groups for w in values if is_of(w, kind)}


def reduction_of(call: ast.Call) -> str | None:
    """`sum`, `mean` or `none` where a loss call or loss constructor names its reduction, else None."""
    reduction = call_keyword(call, "reduction")
    if isinstance(reduction, ast.Constant) and reduction.value in ("sum", "mean", "none"):
        return str(reduction.value)
    if is_constant(call_keyword(call, "reduce"), False):
        return "none"
    average = call_keyword(call, "size_average")
    if is_constant(average, False):
        return "sum"
    if is_constant(average, True):
        return "mean"
    return None
