"""What is made by a name that only the run knows: `getattr(module, config["type"])(...)`, alone or in a helper.

One helper makes data, models and optimizers alike, so that calls are distinguished by their module argument.
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.interpretation.state import State
from accelify.analysis.interpretation.torch_calls import of_kind
from accelify.analysis.modules.evaluated_names import begun_with, evaluated_names
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Class, Function, Imported, Values

_LIBRARIES = {
    "torch.optim": v.OPTIMIZER,
    "torch.optim.lr_scheduler": v.SCHEDULER,
    "torchvision.models": v.MODEL,
    "torchvision.datasets": v.DATASET,
}
# Classes that are defined next to what is asked for: the layers of a model, the data set of a loader.
_KINDS = (v.LOADER, v.MODEL, v.OPTIMIZER, v.SCHEDULER, v.DATASET, v.CRITERION)


class MadeByName(State):
    """The part of the interpreter that follows a class chosen by name."""

    def made_in_helper(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        target: Scope,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        """What one call of such a helper returns; nothing where the function is none.

        Args:
            module: the module of the call.
            scope: the scope of the call.
            node: the call.
            target: the function that is called.
            arguments: what its arguments represent.
            keywords: the same of its keywords.
        """
        inner = self._returned_by_name(target)
        if inner is None:
            return set()
        names = target.positional()[1 if target.self_name() is not None else 0 :]
        given = dict(zip(names, arguments, strict=False)) | {
            k: contained for k, contained in keywords.items() if k
        }
        assert isinstance(inner.func, ast.Call)
        base = inner.func.args[0]
        assert isinstance(base, ast.Name)
        signature = target.node.args  # type: ignore[union-attr]
        handed: list[Values] = []
        for argument in inner.args:
            if isinstance(argument, ast.Starred):
                rest = signature.vararg
                if (
                    rest is not None
                    and isinstance(argument.value, ast.Name)
                    and argument.value.id == rest.arg
                ):
                    handed += arguments[len(names) :]
            elif isinstance(argument, ast.Name):
                handed.append(given.get(argument.id, set()))
        named = {
            kw.arg: given.get(kw.value.id, set()) for kw in inner.keywords if isinstance(kw.value, ast.Name)
        }
        made = self.made_by_name(module, scope, node, given.get(base.id, set()), handed, named)
        if not made and self.settled():
            # Each call makes a new object of unknown kind: its use shows the kind.
            made = {self.entity(node, "by name", v.UNKNOWN, module)}
        return made

    def made_by_name(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        contained: Values,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        """What a call makes of some class of the modules in `contained`; nothing where that can be of several kinds."""
        every = [*arguments, *keywords.values()]
        if self._returned_by_name(scope) is node:
            return set()  # known by the calls of the helper
        for value in contained:
            if not isinstance(value, Imported):
                continue
            kind = _LIBRARIES.get(value.name)
            if kind is not None:
                made = self.entity(node, "by name", kind, module, qualname=f"{value.name}.?")
            else:
                target = module.imports.get(value.name) or self.program.modules.get(value.name)
                classes = self._classes_in(target) if target is not None else []
                kind = next((k for k in _KINDS if any(self.kind_of_class(c) == k for c in classes)), None)
                classes = [c for c in classes if self.kind_of_class(c) == kind]
                if kind is None or not classes:
                    continue
                # Of several classes nobody knows which: what they have in common is their kind.
                cls = classes[0] if len(classes) == 1 or kind == v.LOADER else None
                made = self.entity(
                    node, "by name", kind, module, cls=cls, qualname=cls.name if cls is not None else None
                )
                for one in classes:
                    init = one.method("__init__")
                    if init is not None:
                        function = Function(init[1], init[0].module, made if one is cls else None)
                        self.call_function(module, scope, node, function, arguments, keywords)
            made.note(f"it is made by a name that {value.name} knows")
            if kind == v.OPTIMIZER:
                self.link_optimizer(module, made, every)
            elif kind == v.SCHEDULER:
                self.link(made, "optimizer", of_kind(every, v.OPTIMIZER))
            return {made}
        return set()

    def data_by_name(
        self,
        module: Module,
        scope: Scope,
        node: ast.Call,
        contained: Values,
        arguments: list[Values],
        keywords: dict[str | None, Values],
    ) -> Values:
        """The data set of `sets.__dict__[name](...)`: any class or function of the modules can have made it.

        Only what makes data sets is followed: models are recognised by their use.
        """
        found: Values = set()
        for value in contained:
            target = module.imports.get(value.name) if isinstance(value, Imported) else None
            if target is None and isinstance(value, Imported):
                target = self.program.modules.get(value.name)
            for maker in self._makers_of_data(target) if target is not None else ():
                if isinstance(maker, Function):
                    found |= self.call_function(module, scope, node, maker, arguments, keywords)
                    continue
                found.add(self.entity(node, "by name", v.DATASET, module))
                init = maker.method("__init__")
                if init is not None:
                    own = Function(init[1], init[0].module, None)
                    self.call_function(module, scope, node, own, arguments, keywords)
        return found

    def evaluated(self, module: Module, scope: Scope, node: ast.Call) -> Values:
        """What `eval(TABLE[name])` represents: the data sets whose names the table has, and functions that make one.

        `eval("plot_" + kind)` represents the functions whose names begin so.
        """
        begun = self._begun_so(module, scope, node.args[0]) if len(node.args) == 1 else set()
        if begun:
            return begun
        contained = [
            w for name in evaluated_names(module.tree, node) for w in self.lookup(module, scope, name)
        ]
        return {
            w
            for w in contained
            if (isinstance(w, Class) and self._is_data(w))
            or (isinstance(w, Function) and self._makes_data(w))
        }

    def of_globals(self, module: Module, scope: Scope, node: ast.Subscript) -> Values:
        """The functions that `globals()["train_" + kind]` can be."""
        if not isinstance(node.value, ast.Call) or dotted(node.value.func) != "globals":
            return set()
        return self._begun_so(module, scope, node.slice)

    def _begun_so(self, module: Module, scope: Scope, name: ast.expr) -> Values:
        """The functions that a module has by names which begin as one that is put together."""
        begin = begun_with(name)
        known = sorted(n for n in module.scopes.module.locals if n.startswith(begin)) if begin else []
        return {w for n in known for w in self.lookup(module, scope, n) if isinstance(w, Function)}

    def _is_data(self, cls: Class) -> bool:
        derived = any(base.startswith("torchvision.datasets.") for base in cls.external_bases())
        return derived or self.kind_of_class(cls) == v.DATASET

    def _makers_of_data(self, target: Module) -> list[Class | Function]:
        """The data sets that a module has names for, and its functions that return a new one."""
        found: list[Class | Function] = []
        for name in sorted(target.scopes.module.locals):
            for value in self.variable(target.scopes.module, name):
                if isinstance(value, Class):
                    found += [value] if self.kind_of_class(value) == v.DATASET else []
                elif isinstance(value, Function):
                    found += [value] if self._makes_data(value) else []
        return found

    def _makes_data(self, function: Function) -> bool:
        """Whether a function returns what one class of its module makes, and that is a data set."""
        made = {
            n.value.func.id if isinstance(n.value, ast.Call) and isinstance(n.value.func, ast.Name) else ""
            for n in function.scope.of_type(ast.Return)
        }
        contained = [value for name in made for value in self.variable(function.module.scopes.module, name)]
        return len(made) == 1 and any(
            isinstance(value, Class) and self.kind_of_class(value) == v.DATASET for value in contained
        )

    def _returned_by_name(self, function: Scope) -> ast.Call | None:
        if function not in self._by_name:
            self._by_name[function] = _returned_by_name(function)
        return self._by_name[function]

    def _classes_in(self, target: Module) -> list[Class]:
        """The classes that a module defines itself, those aside that others of them are made of by inheritance.

        Of one that defines nothing, a package most of the time, those that it passes on.
        """
        found = self._defined_in(target) or self._passed_on_by(target, {target})
        return [c for c in found if not any(c is not other and c in other.ancestry() for other in found)]

    def _defined_in(self, target: Module) -> list[Class]:
        return [
            cls
            for name in dict.fromkeys(n.name for n in target.tree.module.body if isinstance(n, ast.ClassDef))
            for cls in self.variable(target.scopes.module, name)
            if isinstance(cls, Class) and cls.module is target
        ]

    def _passed_on_by(self, target: Module, seen: set[Module]) -> list[Class]:
        """The classes that a module takes from others to pass them on; none where that is not all it does."""
        if target.scopes.module.children:
            return []
        imported = [
            alias.asname or alias.name
            for node in target.tree.module.body
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        ]
        found = {
            cls: None
            for name in imported
            for cls in self.variable(target.scopes.module, name)
            if isinstance(cls, Class)
        }
        for other in self._star_imports.get(target, ()):
            if other not in seen:
                found |= dict.fromkeys(self._defined_in(other) or self._passed_on_by(other, seen | {other}))
        kinds = {self.kind_of_class(cls) for cls in found}
        return [] if {v.LOADER, v.MODEL} <= kinds else list(found)


def is_by_name(func: ast.expr) -> bool:
    """Whether what is called is `getattr(x, name)` with a name that is no constant."""
    return (
        isinstance(func, ast.Call)
        and isinstance(func.func, ast.Name)
        and func.func.id == "getattr"
        and len(func.args) > 1
        and not isinstance(func.args[1], ast.Constant)
    )


def namespace_of(func: ast.expr) -> ast.expr | None:
    """The module in `module.__dict__[name]` or `vars(module)[name]`; None for anything else."""
    if not isinstance(func, ast.Subscript) or isinstance(func.slice, ast.Constant):
        return None
    contained = func.value
    if isinstance(contained, ast.Attribute) and contained.attr == "__dict__":
        return contained.value
    if isinstance(contained, ast.Call) and dotted(contained.func) == "vars" and len(contained.args) == 1:
        return contained.args[0]
    return None


def _returned_by_name(function: Scope) -> ast.Call | None:
    """The call `getattr(PARAMETER, name)(...)` that is all a function returns."""
    if not isinstance(function.node, ast.FunctionDef):
        return None
    returned = [node.value for node in function.of_type(ast.Return)]
    if len(returned) != 1 or not isinstance(returned[0], ast.Call) or not is_by_name(returned[0].func):
        return None
    base = returned[0].func.args[0]  # type: ignore[attr-defined]
    known = {a.arg for a in function.parameters()}
    return returned[0] if isinstance(base, ast.Name) and base.id in known else None
