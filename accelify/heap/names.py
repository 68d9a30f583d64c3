"""Names: where they are bound, modules that are run when something of them is asked for, and attributes."""

from __future__ import annotations

import ast
import builtins
import re
import sys
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.domains.meeting_rows import turned_over
from accelify.domains.placement import SAME, Kind, Placement, function
from accelify.domains.replacing import replace
from accelify.heap import shapes
from accelify.heap.accelerator import accelerator_attribute, tracker_attribute
from accelify.heap.builtin_calls import FILLING
from accelify.heap.containers import array_of
from accelify.heap.counts import shape
from accelify.heap.derived import is_wrapper
from accelify.heap.fields import OTHERS, as_dictionary, shows_fields, whole_of
from accelify.heap.misuse import of_replaced
from accelify.heap.models import mark
from accelify.heap.paths import named_in
from accelify.heap.process_groups import LAUNCHED_WITH, of_mpi, rank
from accelify.heap.questions import of_class
from accelify.heap.state import state_written
from accelify.heap.unbound import meet_unbound
from accelify.heap.values import (
    ENDED,
    ONLY,
    Bound,
    Class,
    Container,
    Function,
    Instance,
    Library,
    ModuleRef,
    Ref,
    Scope,
    Super,
    Value,
    constant,
)
from accelify.heap.wrapper_attributes import OF_MODULES, SET, of_attribute, of_attribute_set

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# Attributes of arrays that are no methods: their shape, what is the same array, and what says nothing of its numbers.
_SHAPES = frozenset({"shape"})
_TURNED = frozenset({"T", "H"})
# The kind of device, which all ranks have alike where the number differs.
_KIND_OF_DEVICE = ("torch.device", "type")
_VIEWS = frozenset({"data", "mT", "real", "imag", "grad", "values"})
_ABOUT = frozenset(
    {
        "dtype",
        "device",
        "ndim",
        "requires_grad",
        "is_cuda",
        "name",
        "__name__",
        "__class__",
        "is_leaf",
        "layout",
        "itemsize",
    }
)
_ARRAYS = ("torch", "numpy", "#batch", "pandas")
_PLAIN = frozenset({"True", "False", "None"})


# What a star import brings along of a module that was not read: what is called like a module of Python's is that one.
_BY_STARS = {name: name for name in sys.stdlib_module_names} | {
    "np": "numpy",
    "numpy": "numpy",
    "pd": "pandas",
    "plt": "matplotlib.pyplot",
    "torch": "torch",
    "nn": "torch.nn",
}
_STAR = re.compile(r"^[ \t]*from[ \t]+[\w.]+[ \t]+import[ \t]*\*", re.M)


@lru_cache(maxsize=64)
def _imports_stars(text: str) -> bool:
    return _STAR.search(text) is not None


def _ends_here(name: str, text: str) -> bool:
    """Whether a name that nothing binds has a line of its own, as what ends the script there: `stop_here`."""
    if _imports_stars(text) or len(re.findall(rf"\b{name}\b", text)) != 1:
        return False
    alone = re.search(rf"^(.*)\n[ \t]*{name}[ \t]*(?:#.*)?$", text, re.M)
    return alone is not None and not alone[1].strip().startswith("try:")  # asked for there


# What `prepare(*objects)` may give besides a model.
_NO_MODELS = frozenset({"loader", "optimizer", "scheduler"})


class Names:
    """Reads and writes variables."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run

    def read(self, name: str, scope: Ref, node: ast.AST) -> Value:
        """What a name stands for."""
        owner = self.owner(name, scope)
        value = self.run.read(owner, name) if owner is not None else None
        if value is not None:
            if owner is not None and self.run.checks and f"{ONLY}{name}" in owner.fields:
                meet_unbound(self.run, owner, name, node)
            return self.engine.modules.loaded(value)
        if name == "__name__":
            return constant(self.run.module.name)
        if name == "__file__":
            return Value(type="builtins.str")
        if hasattr(builtins, name):
            full = f"builtins.{name}"
            return self.engine.calls.libraries.state.current(full) or Value(refs=(Library(full),))
        if name in _BY_STARS and _imports_stars(self.run.module.text):
            return Value(refs=(Library(_BY_STARS[name]),))
        if self.run.checks and _ends_here(name, self.run.module.text):
            return Value(type=ENDED)
        self.run.assume(f"`{name}`, which nothing binds that was read, is the same on every rank", node)
        return Value()

    def owner(self, name: str, scope: Ref) -> Ref | None:
        """The scope in which a name is bound now."""
        place: Ref | None = scope
        pieces = self.run.store.pieces
        while isinstance(place, Scope):
            if place.is_class and place is not scope:
                # What a class's body binds, its methods do not see.
                place = place.outer
                continue
            if name in place.globals:
                return place.module
            if name in place.fields:
                return place
            if pieces and place.serial <= pieces[-1].made:
                self.run.store.note(place, name)
            place = place.outer
        module = place if isinstance(place, ModuleRef) else self.run.module
        if name in module.fields:
            return module
        if pieces:
            self.run.store.note(module, name)
        return None

    def write(self, name: str, value: Value, scope: Ref) -> None:
        """Bind a name."""
        owner: Ref = scope
        if isinstance(scope, Scope):
            if name in scope.globals:
                owner = scope.module
            elif name in scope.nonlocals:
                owner = self.owner(name, scope.outer) or scope if scope.outer is not None else scope
        self.run.store.set(owner, name, value)
        if f"{ONLY}{name}" in owner.fields:
            self.run.store.set(owner, f"{ONLY}{name}", None)


def _as_inside(name: str) -> str:
    """What a private attribute is called in its class: `__sum` for `_Average__sum`."""
    if name[:1] != "_" or name[:2] == "__" or name[-2:] == "__" or "__" not in name:
        return name
    return name[name.index("__") :]


class Attributes:
    """Reads and writes attributes."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.run = engine.run

    def read(self, base: Value, name: str, node: ast.AST) -> Value:
        """What an attribute of a value is."""
        found, methods = list[Value](), set[object]()
        name = _as_inside(name)
        if name == "__dict__" and shows_fields(base):
            return as_dictionary(self.run, base)
        parts: list[Value] = []
        for ref in base.refs:
            one = self._of(ref, base, name, node, parts)
            method = _method_of(one, base)
            if one is not None and (method is None or method not in methods):
                found.append(one)
                methods.add(method)
        if found:
            return found[0] if len(found) == 1 else self.engine.together(found)
        return self._unknown(base, name, node)

    def has(self, base: Value, name: str) -> bool | None:
        """Whether an object of the project has an attribute; None where that is not known."""
        found: set[bool | None] = set()
        for ref in base.refs:
            if self.run.read(ref, name) is not None or (
                isinstance(ref, Instance)
                and ref.cls is not None
                and self._in_class(ref.cls, name) is not None
            ):
                found.add(True)
            else:
                line = ref.cls.line_up() if isinstance(ref, Instance) and ref.cls is not None else []
                written = self.run.read(ref, OTHERS) is not None
                closed = line and not written and all(isinstance(one, Class) for one in line)
                found.add(False if closed else None)
        return found.pop() if len(found) == 1 else None

    def _of(self, ref: Ref, base: Value, name: str, node: ast.AST, parts: list[Value]) -> Value | None:
        """What it is of one object; `parts` has what it is of all those of which no more is known, once it is."""
        if isinstance(ref, Library):
            name = f"{ref.name}.{name}"
            known = of_mpi(self.run, name, node) or self.engine.calls.libraries.state.current(name)
            return known or Value(refs=(Library(name),))
        if isinstance(ref, ModuleRef):
            self.engine.modules.ready(ref)
            value = self.run.read(ref, name)
            return (
                self.engine.modules.loaded(value)
                if value is not None
                else self.engine.modules.part(ref, name)
            )
        if isinstance(ref, Class):
            value = self._in_class(ref, name)
            if value is not None and value.of(Function) and "classmethod" in _words(value.of(Function)[0]):
                return Value(refs=(Bound(base, value.of(Function)[0]),))
            return value if value is not None else Value(refs=(Bound(base, name),))
        if isinstance(ref, Instance):
            return self._of_instance(ref, base, name, node)
        if isinstance(ref, Container) and name in FILLING:
            # What is in it does not matter to the method.
            return Value(refs=(Bound(base, name),))
        for one in ref.receiver.of(Instance) if isinstance(ref, Super) else ():
            value = accelerator_attribute(self.run, one, name, node) if one.kind == "accelerator" else None
            if value is not None:
                return value
        if isinstance(ref, Bound) and (made := self._type_of(ref)):
            return Value(array_of(base), base.why, refs=(Bound(replace(base, type=made), name),))
        if isinstance(ref, Container | Bound | Function | Super):
            if not parts:
                part = Value(array_of(base), base.why, (Bound(base, name),), self._type_alike(base, name))
                parts.append(named_in(base, part, name))
            return parts[0]
        return None

    def _type_of(self, ref: Bound) -> str:
        """The type of an attribute of a library's object, which its row says: `book.sheet1.append_row(...)`."""
        kinds = [one.type for one in ref.receiver.of(Instance) if one.cls is None]
        method = ref.method if isinstance(ref.method, str) else ""
        rows = [self.run.knowledge.method(kind, method) for kind in kinds if kind and method]
        return next((row.returns for row in rows if row is not None and row.transfer == "pure"), "")

    def _of_instance(self, ref: Instance, base: Value, name: str, node: ast.AST) -> Value:
        own_value = self.run.read(ref, name)
        if own_value is not None:
            return self.engine.modules.loaded(own_value)
        if name == "__class__":
            of_class(self.run, [base], node)
            return Value(refs=(ref.cls,) if ref.cls is not None else ())
        if self.run.checks or name == "module":
            besides = {one.kind for one in base.of(Instance)} & _NO_MODELS
            if not besides and all(
                one.prepared and not self._has_itself(one, name) for one in base.of(Instance)
            ):
                of_attribute(self.run, ref, name, node)
            if name == "module" and ref.prepared and ref.wrapped is not None:
                return ref.wrapped
            if name == "forward" and ref.prepared and ref.kind == "module":
                return Value(refs=(Bound(Value(refs=(ref,)), name),))  # the wrapper's
        if ref.kind == "accelerator" and (ref.cls is None or self._in_class(ref.cls, name) is None):
            value = accelerator_attribute(self.run, ref, name, node)
            if value is not None:
                return value
        if name == "dataset" and ref.kind == "loader":
            loaders = ref.wrapped.refs if ref.wrapped is not None else (ref,)
            data = next((one for part in loaders if (one := self.run.read(part, "#dataset"))), None)
            if data is not None and all(one.cls is not None for one in data.of(Instance)) and data.refs:
                return data
        if self.run.checks and (given := tracker_attribute(self.run, ref, name, node)) is not None:
            return given
        receiver = Value(refs=(ref,))
        if ref.prepared and ref.wrapped is not None and ref.kind != "loader" and not is_wrapper(ref):
            inner = ref.wrapped.of(Instance)
            if inner and (found := self._of_wrapped(inner[0], name, node)) is not None:
                return found
        if ref.cls is not None:
            value = self._in_class(ref.cls, name)
            if value is not None:
                return self._bound(value, receiver, node)
        launched = name == LAUNCHED_WITH and self.run.checks
        others = self.run.read(ref, OTHERS)
        if others is not None and not launched:
            return named_in(base, others.plain(), name, whole_of(base))
        known = name.startswith("__") or (ref.kind == "module" and name in OF_MODULES)
        asked = self.method(ref, "__getattr__") if not known else None
        if asked is not None and not asked.only_raises:
            return self.engine.calls.call_function(asked, [receiver, constant(name)], {}, node)
        if launched:
            return rank(self.run, node)
        taken = self.engine.calls.libraries.unknown_calls.bag_attribute(ref, name, node)
        if taken is not None:
            return taken
        # An object that was made of what differs between ranks shows it in its methods.
        receiver = receiver if base.place.is_same else Value(base.place, base.why, (ref,), base.type)
        column = base if ref.kind == "table" else Value()
        return named_in(base, Value(column.place, column.why, (Bound(receiver, name),)), name, whole_of(base))

    def _has_itself(self, ref: Instance, name: str) -> bool:
        """Whether a wrapper of the project's class has an attribute, or asks the model for what it has not."""
        known = ("__getattr__", name)
        return is_wrapper(ref) and any(self._in_class(ref.cls, one) for one in known if ref.cls is not None)

    def _of_wrapped(self, ref: Instance, name: str, node: ast.AST) -> Value | None:
        """An attribute that a prepared object has from the script's own one, None for one of a library's class."""
        value = self.run.read(ref, name)
        if value is None and ref.cls is not None:
            value = self._in_class(ref.cls, name)
            return self._bound(value, Value(refs=(ref,)), node) if value is not None else None
        return value

    def _in_class(self, cls: Class, name: str) -> Value | None:
        for one in cls.line_up():
            if isinstance(one, Class):
                value = self.run.read(one, name)
                if value is not None:
                    return value
        return None

    def _bound(self, value: Value, receiver: Value, node: ast.AST) -> Value:
        functions = value.of(Function)
        if not functions:
            return value
        function_ = functions[0]
        words = _words(function_)
        if "classmethod" in words:
            classes = tuple(ref.cls for ref in receiver.of(Instance) if ref.cls is not None)
            return Value(refs=(Bound(Value(refs=classes), function_),))
        if words & {"property", "cached_property"}:
            return self.engine.calls.call_function(function_, [receiver], {}, node)
        if "staticmethod" in words:
            return value
        return Value(refs=(Bound(receiver, function_),))

    def method(self, ref: Instance, name: str) -> Function | None:
        """The function of the project that a method of an object is, None where it is a library's."""
        value = self._in_class(ref.cls, name) if ref.cls is not None else None
        found = value.of(Function) if value is not None else []
        return found[0] if found else None

    def _unknown(self, base: Value, name: str, node: ast.AST) -> Value:
        bound = (Bound(base, name),)
        if name == LAUNCHED_WITH and self.run.checks:
            return rank(self.run, node)
        if name in _SHAPES:
            return shape(base)
        if (name in _ABOUT and base.place.kind is not Kind.OWN) or (base.type, name) == _KIND_OF_DEVICE:
            return named_in(base, Value(SAME, refs=bound), name, whole_of(base))
        if name in _TURNED:
            return Value(shapes.counted(turned_over(base.place), 2), base.why, refs=bound, type=base.type)
        if base.type == "#batch":
            return Value(base.place, base.why, refs=bound, type="#batch")
        if name in _VIEWS:
            return Value(base.place, base.why, refs=bound, type=base.type)
        place = base.place if base.place.is_same else function((base.place,), rowwise=True)
        if base.place.kind is Kind.SAME and not base.place.is_same:
            place = Placement(Kind.SAME, base.place.degree)
        return named_in(base, Value(place, base.why, refs=bound, type=self._type_alike(base, name)), name)

    def _type_alike(self, base: Value, name: str) -> str:
        """The type of an attribute of a library's object that is one of its own type: `path.parent`."""
        row = self.run.knowledge.method(base.type, name) if base.type else None
        return base.type if row is not None and (row.returns, row.transfer) == (base.type, "pure") else ""

    def write(self, base: Value, name: str, value: Value, node: ast.AST) -> None:
        """Write an attribute of all objects that a value may be."""
        name = _as_inside(name)
        for ref in base.refs:
            if isinstance(ref, Library):
                self.engine.calls.libraries.state.replace(f"{ref.name}.{name}", value)
            if isinstance(ref, Instance | Class | ModuleRef | Function | Container):
                target: Ref = ref
                if (
                    isinstance(ref, Instance)
                    and ref.prepared
                    and not is_wrapper(ref)
                    and ref.wrapped is not None
                    and ref.wrapped.of(Instance)
                ):
                    target = ref.wrapped.of(Instance)[0]
                    if self.run.checks:
                        self.run.store.set(ref, f"{SET}{name}", constant(True))
                        of_attribute_set(self.run, target, name, node)
                if isinstance(target, Instance) and target.kind == "module":
                    mark(self.run, value)
                if self.run.checks and isinstance(target, Instance):
                    of_replaced(self.run, target, name, value, node)
                setter = self.method(target, f"{name}.setter") if isinstance(target, Instance) else None
                if setter is not None:
                    self.engine.calls.call_function(setter, [Value(refs=(target,)), value], {}, node)
                    continue
                self.run.store.set(target, name, state_written(self.run, target, name, value, node))
                if f"{ONLY}{name}" in target.fields:
                    self.run.store.set(target, f"{ONLY}{name}", None)


def _method_of(one: Value | None, base: Value) -> object:
    """The method that a value is of some objects, and which is named once, however many these are."""
    ref = one.refs[0] if one is not None and len(one.refs) == 1 else None
    return ref.method if isinstance(ref, Bound) and ref.receiver is base else None


def bound_as(stmt: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """The name by which a definition is found: the setter of a property does not take the place of the property."""
    setters = [one for one in stmt.decorator_list if isinstance(one, ast.Attribute) and one.attr == "setter"]
    return f"{stmt.name}.setter" if setters else stmt.name


def _words(function_: Function) -> set[str]:
    """The last words of a function's decorators."""
    return {
        getattr(deco, "id", getattr(deco, "attr", ""))
        for deco in getattr(function_.node, "decorator_list", [])
    }
