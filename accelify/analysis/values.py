"""Abstract values: what an expression of a training script can represent.

An `Entity` is one object made at one place of the script (its allocation site): a model, an optimizer, a loader. Names
hold sets of values, so a role belongs to what a name is bound to and not to the name.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from accelify.analysis.scopes import Scope

if TYPE_CHECKING:
    from accelify.analysis.program import Module

# The kinds a Thing can be of. "unknown" is replaced by another one, judged by the use.
MODEL, OPTIMIZER, SCHEDULER, LOADER = "model", "optimizer", "scheduler", "loader"
CRITERION, DEVICE, FLAG, SCALER, AUTOCAST = "criterion", "device", "flag", "scaler", "autocast"
# The relation of what a method gives that is called without arguments.
PART_OF = "part of"
WRITER, DATASET, PARAMETERS = "writer", "dataset", "parameters"
BATCH, OUTPUT, TENSOR, ITERATOR, INSTANCE, UNKNOWN = (
    "batch",
    "output",
    "tensor",
    "iterator",
    "instance",
    "unknown",
)


class Value:
    """Anything an expression can evaluate to. Compared by identity."""


Values = set[Value]


@dataclass(eq=False)
class Entity(Value):
    """An object of a role.

    `links` leads to other values by relation: an optimizer's `models`, a scheduler's `optimizer`, a batch's `loader`,
    an output's `model`, a tensor's `sources`, what a method of a model gives to that model (`part of`).
    """

    kind: str
    site: ast.AST | None
    module: Module | None = None
    qualname: str | None = None
    cls: Class | None = None
    links: dict[str, Values] = field(default_factory=dict)
    attributes: dict[str, Values] = field(default_factory=dict)
    names: set[str] = field(default_factory=set)
    uses: set[str] = field(default_factory=set)
    evidence: list[str] = field(default_factory=list)
    # The calls that made it, of the function that makes it outwards, where each of them makes another one.
    made_by: tuple[ast.Call, ...] = ()
    # The other classes that it can be of, where one of several is made in one place.
    others: list[Class] = field(default_factory=list)
    # What it was taken for before its use showed what it is: longer where its kind has changed.
    earlier_kinds: list[str] = field(default_factory=list)

    def link(self, relation: str) -> set[Entity]:
        """The `Entity` objects that a relation leads to."""
        return {v for v in self.links.get(relation, ()) if isinstance(v, Entity)}

    def place(self) -> tuple[object, ...]:
        """Where it is made, for an order that is the same in every run: at one place, the order of its calls."""
        sites = [(getattr(n, "lineno", 0), getattr(n, "col_offset", 0)) for n in (self.site, *self.made_by)]
        # An object that is read from another, and made nowhere, is identified by that other.
        wholes = sorted(order_of(whole) for whole in self.link("whole"))
        return (*sites[0], sites[1:], sorted(self.names), getattr(self.module, "name", ""), wholes)

    def note(self, text: str) -> None:
        """Record a reason for the kind of this `Entity`."""
        if text not in self.evidence:
            self.evidence.append(text)


@dataclass(eq=False)
class Sequence(Value):
    """A tuple or list: known elements by place, what else it may hold, and the calls that put something in.

    Of a comprehension, `gone_through` is what it iterates over.
    """

    elements: list[Values] = field(default_factory=list)
    rest: Values = field(default_factory=set)
    filled: set[ast.Call] = field(default_factory=set)
    gone_through: Values = field(default_factory=set)

    def any(self) -> Values:
        """What an element at an unknown place can be."""
        found: Values = set(self.rest)
        for element in self.elements:
            found |= element
        return found


@dataclass(eq=False)
class Mapping(Value):
    """A dictionary: entries by constant key, and what else it may hold."""

    entries: dict[object, Values] = field(default_factory=dict)
    rest: Values = field(default_factory=set)

    def get(self, key: object) -> Values:
        """The values under a key (all of them when the key is not known)."""
        if key in self.entries:
            return self.entries[key] | self.rest
        found: Values = set(self.rest)
        if isinstance(key, str):
            return found
        for entry in self.entries.values():
            found |= entry
        return found


@dataclass(eq=False)
class Function(Value):
    """A function or method of the program; `receiver` is what a method is bound to."""

    scope: Scope
    module: Module
    receiver: Value | None = None


@dataclass(eq=False)
class Class(Value):
    """A class of the program. Attributes are shared by all its instances: roles seldom differ between them."""

    scope: Scope
    module: Module
    bases: list[Value] = field(default_factory=list)
    attributes: dict[str, Values] = field(default_factory=dict)
    instance: Entity | None = None

    @property
    def name(self) -> str:
        """The class's name."""
        assert isinstance(self.scope.node, ast.ClassDef)
        return self.scope.node.name

    def ancestry(self) -> list[Class]:
        """This class and its bases that the program defines, nearest first."""
        seen: list[Class] = [self]
        for base in self.bases:
            if isinstance(base, Class) and base not in seen:
                seen.extend(c for c in base.ancestry() if c not in seen)
        return seen

    def external_bases(self) -> set[str]:
        """Qualified names of the bases that the program does not define, through all ancestors."""
        return {b.name for c in self.ancestry() for b in c.bases if isinstance(b, Imported)}

    def only_splits(self, wrappers: frozenset[str]) -> bool:
        """Whether it is one of some wrappers of a model, and runs the model as they do."""
        return bool(self.external_bases() & wrappers) and self.method("forward") is None

    def method(self, name: str) -> tuple[Class, Scope] | None:
        """The class and scope that define a method, through the ancestors."""
        for cls in self.ancestry():
            for node, scope in cls.scope.children.items():
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name == name:
                    return cls, scope
        return None


@dataclass(eq=False)
class Imported(Value):
    """Something of a library, by its qualified name (`torch.optim.Adam`)."""

    name: str


@dataclass(eq=False)
class Method(Value):
    """A method or attribute of an `Entity` that the program does not define."""

    receiver: Entity
    name: str


def order_of(value: Value) -> tuple[str, int, int, str]:
    """Where a value is made, and what it is: the same in every run, which the order of a set is not."""
    module, site = getattr(value, "module", None), getattr(value, "site", None)
    if isinstance(value, (Function, Class)):
        site = value.scope.node
    if isinstance(value, Method):
        module, site = value.receiver.module, value.receiver.site
    stated = getattr(value, "name", "") or getattr(value, "kind", "") or type(value).__name__
    where = getattr(module, "name", "")
    return where, getattr(site, "lineno", 0), getattr(site, "col_offset", 0), str(stated)
