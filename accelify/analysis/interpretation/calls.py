"""Evaluating expressions abstractly: what calls of torch, of the program and of the unknown return."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Callable

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.argument_returning import handed_back, is_super
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.interpretation.builtin_calls import BuiltinCalls
from accelify.analysis.interpretation.factories import Factories
from accelify.analysis.interpretation.parameters import Parameters
from accelify.analysis.interpretation.record_classes import fields_of
from accelify.analysis.interpretation.torch_calls import TENSOR_KINDS, LibraryCalls, of_kind
from accelify.analysis.modules.made_by_name import MadeByName, is_by_name, namespace_of
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.values import (
    Class,
    Entity,
    Function,
    Imported,
    Mapping,
    Method,
    Sequence,
    Value,
    Values,
    order_of,
)


class CallEvaluator(BuiltinCalls, Factories, LibraryCalls, MadeByName, Parameters):
    """The expression half of the interpreter."""

    # -- expressions

    def evaluate(self, module: Module, scope: Scope, node: ast.expr | None) -> Values:
        """What an expression can evaluate to."""
        retained = self.retained
        if retained is not None and (found := retained.get(node)) is not None:
            return found
        if type(node) is ast.Name:
            own = self._own_names.get(node)
            if own is not None:
                found = self.variable(module.scopes.module, own)
            else:
                found = self.lookup(module, scope, node.id)
        else:
            meant = _MEANT.get(type(node))
            # A comparison, a slice and whatever else has no known value.
            found = meant(self, module, scope, node) if meant is not None else set()
        if retained is not None:
            # All has been run, so that nothing changes any more what an expression evaluates to.
            retained[node] = found
        return found

    def _attribute_of(self, module: Module, scope: Scope, node: ast.Attribute) -> Values:
        if is_super(node.value):
            return self._inherited(module, scope, node.attr)
        found: Values = set()
        tensors: Values = set()
        for base in self.evaluate(module, scope, node.value):
            if isinstance(base, Entity) and base.kind in TENSOR_KINDS:
                if node.attr in k.TENSOR_SELF:
                    found |= {base} if node.attr == "data" else set()
                elif node.attr != "device":
                    tensors.add(base)
            elif isinstance(base, Entity) and base.kind == v.MODEL and node.attr in ("module", "forward"):
                if base.cls is not None:
                    for cls in base.cls.ancestry():
                        self.reads.note(cls.attributes)
                if base.cls is not None and any("module" in c.attributes for c in base.cls.ancestry()):
                    if node.attr == "module":
                        found |= self.attribute(base, node.attr, module)
                        continue
                # `model.forward(x)` runs the model as `model(x)` does.
                found.add(base)
            else:
                found |= self.attribute(base, node.attr, module)
        if tensors:
            found.add(self.derived(module, node, tensors))
        if node.attr == "SummaryWriter" and isinstance(node.value, ast.Call):  # import_module(name)
            return {self.entities.setdefault(("import", k.TENSORBOARD), Imported(k.TENSORBOARD))}
        return found

    def _inherited(self, module: Module, scope: Scope, name: str) -> Values:
        """What `super().name` is: the next method of that name among the bases, or the library's."""
        own = scope.self_name()
        cls = self.entities.get((scope.owner_class, "class"))
        found: Values = set()
        if own is None or not isinstance(cls, Class):
            return found
        for ancestor in cls.ancestry()[1:]:
            method = next(
                (
                    inner
                    for node, inner in ancestor.scope.children.items()
                    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name
                ),
                None,
            )
            if method is not None:
                for receiver in self.lookup(module, scope, own):
                    key = (method.node, ("bound", receiver))
                    found.add(self.entities.setdefault(key, Function(method, ancestor.module, receiver)))
                return found
        if name in k.SELF_RETURNING:
            for receiver in self.lookup(module, scope, own):
                if isinstance(receiver, Entity) and receiver.kind == v.MODEL:
                    found.add(self.entities.setdefault((receiver, ("method", name)), Method(receiver, name)))
        return found

    def _subscript(self, module: Module, scope: Scope, node: ast.Subscript) -> Values:
        found = self.of_globals(module, scope, node)
        if found:
            return found
        index = node.slice.value if isinstance(node.slice, ast.Constant) else None
        self.evaluate(module, scope, node.slice if isinstance(node.slice, ast.expr) else None)
        for base in self.evaluate(module, scope, node.value):
            self.reads.container(base)
            if isinstance(base, Mapping):
                found |= base.get(index)
            elif isinstance(base, Sequence):
                if isinstance(node.slice, ast.Slice):
                    found.add(base)  # some of its elements, in a list again
                elif (
                    isinstance(index, int)
                    and not base.rest
                    and -len(base.elements) <= index < len(base.elements)
                ):
                    found |= base.elements[index]
                else:
                    found |= base.any()
            elif isinstance(base, Entity) and base.kind in (*TENSOR_KINDS, v.PARAMETERS):
                found.add(base)
            elif isinstance(base, Entity) and base.kind == v.MODEL:
                # A part of a Sequential or ModuleList belongs to the model.
                continue
            elif isinstance(base, Entity) and base.kind == v.UNKNOWN:
                found.add(self.part(base, ("item", index), module))
        return found

    # -- elements of what is iterated or unpacked

    def item(self, module: Module, site: ast.AST, contained: Values, index: int) -> Values:
        """What unpacking gives at one place."""
        found: Values = set()
        for value in contained:
            self.reads.container(value)
            if isinstance(value, Sequence):
                if index < len(value.elements):
                    found |= value.elements[index]
                found |= value.rest
            elif isinstance(value, Entity):
                if value.kind in TENSOR_KINDS:
                    found.add(value)
                elif value.kind == v.PARAMETERS and index == 1:
                    found.add(value)  # `for name, parameter in model.named_parameters()`
                elif value.kind in (v.UNKNOWN, v.INSTANCE):
                    found.add(self.part(value, ("item", index), value.module or module))
        return found

    def elements(self, module: Module, scope: Scope, iterated: ast.expr) -> Values:
        """What a loop over an expression binds."""
        found: Values = set()
        for value in self.evaluate(module, scope, iterated):
            found |= self.element_values(module, iterated, value)
        return found

    def element_values(
        self, module: Module, site: ast.AST, value: Value, seen: frozenset[Value] = frozenset()
    ) -> Values:
        """What iterating a value gives. `seen` are iterators on the way: one can be made of itself."""
        if isinstance(value, Sequence):
            self.reads.container(value)
            return value.any()
        if isinstance(value, Entity):
            if value.kind == v.LOADER:
                return {self.batch(value)}
            if value.kind == v.ITERATOR:
                found: Values = set()
                self.reads.relation(value, "iterated")
                for inner in value.links.get("iterated", set()) - seen:
                    found |= self.element_values(module, site, inner, seen | {value})
                return found
            if value.kind == v.UNKNOWN:
                value.uses.add("[]for")
                return {self.part(value, "element", module)}
            if value.kind in TENSOR_KINDS or value.kind == v.PARAMETERS:
                return {value}
        return set()

    def batch(self, loader: Entity) -> Entity:
        """The `Entity` for the batches of a loader."""
        made = self.entity(loader, "batch", v.BATCH, loader.module)
        self.link(made, "loader", {loader})
        return made

    # -- calls

    def call(self, module: Module, scope: Scope, node: ast.Call) -> Values:
        """What a call returns; notes call graph edges and binds parameters on the way."""
        known = self._memo.get(node)
        if known is not None:
            self.reads.again(known[1])
            return known[0]
        before = self.reads.count()
        found: Values = set()
        self._memo[node] = found, ([], [])
        found |= self._call(module, scope, node)
        self._memo[node] = found, self.reads.since(before)
        return found

    def _call(self, module: Module, scope: Scope, node: ast.Call) -> Values:
        arguments = [self.evaluate(module, scope, a) for a in node.args]
        keywords = {kw.arg: self.evaluate(module, scope, kw.value) for kw in node.keywords}
        found: Values = set()
        if isinstance(node.func, ast.Attribute):
            if is_numbered_gpu(node):
                return {self.entity(node, "device", v.DEVICE, module)}
        elif not isinstance(node.func, ast.Name):
            if is_by_name(node.func):
                contained = self.evaluate(module, scope, node.func.args[0])  # type: ignore[attr-defined]
                found = self.made_by_name(module, scope, node, contained, arguments, keywords)
                if found:
                    return found
            namespace = namespace_of(node.func)
            if namespace is not None:
                contained = self.evaluate(module, scope, namespace)
                found = self.data_by_name(module, scope, node, contained, arguments, keywords)
                if found:
                    return found
        if module.named and (name := module.named.get(node)) is not None:
            return self._imported(module, name)
        callees = self.evaluate(module, scope, node.func)
        if not callees and isinstance(node.func, ast.Name) and not scope.resolve(node.func.id):
            if node.func.id == "eval":
                return self.evaluated(module, scope, node)
            if node.func.id == "dict":
                return self._dict(module, node, arguments, keywords)
            if hasattr(builtins, node.func.id):
                return self._builtin(module, scope, node, node.func.id, arguments)
        if len(callees) > 1 and any(isinstance(callee, Imported) for callee in callees):
            # `data.DataLoader(...)` where a later loop calls its batch `data` too.
            callees = {c for c in callees if not isinstance(c, Method) or c.receiver.kind != v.BATCH}
        # What is made of several classes is known by the first of them: the same one in every run.
        for callee in callees if len(callees) < 2 else sorted(callees, key=order_of):
            if isinstance(callee, Function):
                found |= self.call_function(module, scope, node, callee, arguments, keywords)
            elif isinstance(callee, Class):
                found |= self._instantiate(module, scope, node, callee, arguments, keywords)
            elif isinstance(callee, Imported):
                found |= self.call_imported(module, scope, node, callee.name, arguments, keywords)
            elif isinstance(callee, Method):
                found |= self.call_method(module, node, callee, arguments)
            elif isinstance(callee, Entity):
                found |= self.call_entity(module, scope, node, callee, arguments, keywords)
        if isinstance(node.func, ast.Attribute):
            known, tensors = bool(found), set[Value]()
            for base in self.evaluate(module, scope, node.func.value):
                if known and not isinstance(base, (Mapping, Sequence)):
                    continue  # a list may be one of the values of a name, and is filled all the same
                if isinstance(base, Entity) and base.kind in TENSOR_KINDS:
                    if node.func.attr in k.TENSOR_SELF:
                        found.add(base)
                    else:
                        tensors.add(base)
                elif isinstance(base, (Mapping, Sequence)):
                    found |= self._container_method(node, base, node.func.attr, arguments)
            if tensors:
                found.add(self.derived(module, node, tensors))
        if not callees and not found and self.settled():
            found.add(self.entity(node, "result", v.UNKNOWN, module))
        return found

    def call_function(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        function: Function,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        target = function.scope
        self.calls.setdefault(node, set()).add(target)
        known = self.callers.setdefault(target, [])
        if all(call is not node for _, call in known):
            known.append((module, node))
        parameters = target.parameters()
        own_self = target.self_name()
        names = target.positional()
        through_class = isinstance(node.func, ast.Attribute) and function.receiver is None
        if own_self is not None and not through_class:
            if function.receiver is not None:
                self.bind(target, own_self, {function.receiver})
                if self._handed_back(target) == own_self:
                    return {function.receiver}
            names = names[1:]
        for index, values in enumerate(arguments):
            if index < len(node.args) and isinstance(node.args[index], ast.Starred):
                # Of a function that calls itself these grow meanwhile: `def run(*args): run(*args)`.
                for rest_name in names[index:]:
                    for value in tuple(values):
                        self.bind(target, rest_name, self.element_values(module, node, value))
                break
            self._positional(target, names, index, values)
        every = {a.arg for a in parameters}
        signature = getattr(target.node, "args", None)
        rest = None
        if isinstance(signature, ast.arguments):
            # `*args` and `**kwargs` are not what a keyword of that name means.
            every -= {a.arg for a in (signature.vararg, signature.kwarg) if a is not None}
            rest = signature.kwarg.arg if signature.kwarg is not None else None
        for name, values in keywords.items():
            if name is None:
                for value in tuple(values):
                    self.reads.container(value)
                    if isinstance(value, Mapping):
                        for key, entry in tuple(value.entries.items()):
                            if key in every:
                                self.bind(target, str(key), entry)
                            elif rest is not None:
                                self._keyword(target, rest, key, entry)
            elif name in every:
                self.bind(target, name, values)
            elif rest is not None:
                self._keyword(target, rest, name, values)
        own = self._handed_back(target)
        if own is not None and own in names:
            # What comes out is what went in here, not what other calls put in.
            index = names.index(own)
            if index < len(arguments) and not any(isinstance(a, ast.Starred) for a in node.args):
                return set(arguments[index])
            if own in keywords:
                return set(keywords[own])
        made = self.made_in_helper(module, scope, node, target, arguments, keywords)
        return made or self.returned(node, target)

    def _handed_back(self, target: Scope) -> str | None:
        """The parameter that a function returns as it is, moved to a device at most: `to_var(x)`, `cuda(x)`."""
        if target not in self._hands_back:
            self._hands_back[target] = handed_back(target)
        return self._hands_back[target]

    def kind_of_class(self, cls: Class) -> str:
        """The kind of the instances of a class of the program."""
        bases = cls.external_bases()
        for base in bases:
            if k.is_loss_class(base):
                return v.CRITERION
            if k.is_module_class(base) or base.rsplit(".", 1)[-1] in (
                "Module",
                "PreTrainedModel",
                "LightningModule",
            ):
                return v.CRITERION if cls.name.endswith(("Loss", "Criterion")) else v.MODEL
            if k.is_optimizer_class(base):
                return v.OPTIMIZER
            if k.is_scheduler_class(base):
                return v.SCHEDULER
            if base in k.LOADER_CLASSES:
                return v.LOADER
            if base in k.WRITER_CLASSES:
                return v.WRITER
            if base.rsplit(".", 1)[-1] in ("Dataset", "IterableDataset", "ImageFolder", "InMemoryDataset"):
                return v.DATASET
        return v.INSTANCE

    def _instantiate(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        cls: Class,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        if arguments and arguments[0] and cls.only_splits(k.PARALLEL_WRAPPERS):
            return set(arguments[0])  # the model in it, as with torch's wrapper
        known = (node, "instance") in self.entities
        made = self.entity(node, "instance", v.INSTANCE, module, cls=cls, qualname=cls.name)
        kind = self.kind_of_class(cls)
        if kind in (v.DATASET, v.INSTANCE) and made.cls is not None and made.cls is not cls:
            # Where one of several is made, each is run by its methods.
            made = self.entity(node, cls, v.INSTANCE, module, cls=cls, qualname=cls.name)
        if made.cls is not None and cls not in (made.cls, *made.others):
            made.others.append(cls)
        # A loss whose weights are trained is a model from then on.
        if made.kind != kind and (made.kind, kind) != (v.MODEL, v.CRITERION):
            made.kind = kind
            made.note(f"it is an instance of {cls.name}")
            self.changed = True
            if known:
                self.reads.nothing_holds()  # what is new here has been read by nobody
        init = cls.method("__init__")
        if init is not None:
            self.call_function(
                module, scope, node, Function(init[1], init[0].module, made), arguments, keywords
            )
        elif fields := fields_of(cls):
            self.keep(made, fields, arguments, keywords)
        if kind == v.OPTIMIZER:
            self.link_optimizer(module, made, [*arguments, *keywords.values()])
        elif kind == v.SCHEDULER:
            self.link(made, "optimizer", of_kind([*arguments, *keywords.values()], v.OPTIMIZER))
        return {made}


_MEANT: dict[type | None, Callable[..., Values]] = {
    ast.Attribute: CallEvaluator._attribute_of,
    ast.Call: CallEvaluator.call,
    ast.Constant: CallEvaluator._constant,
    ast.Tuple: CallEvaluator._sequence,
    ast.List: CallEvaluator._sequence,
    ast.Dict: CallEvaluator._mapping,
    ast.Subscript: CallEvaluator._subscript,
    ast.IfExp: CallEvaluator._either,
    ast.BoolOp: CallEvaluator._condition,
    ast.UnaryOp: CallEvaluator._unary,
    ast.BinOp: CallEvaluator._binary,
    ast.JoinedStr: CallEvaluator._joined,
    ast.ListComp: CallEvaluator._comprehended,
    ast.GeneratorExp: CallEvaluator._comprehended,
    ast.SetComp: CallEvaluator._comprehended,
    ast.DictComp: CallEvaluator._comprehended_mapping,
    ast.Starred: CallEvaluator._inner,
    ast.Await: CallEvaluator._inner,
    ast.NamedExpr: CallEvaluator._inner,
}
