"""Abstract values, and the objects that they may be."""

from __future__ import annotations

import ast
import builtins
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import TYPE_CHECKING, Any

from accelify.domains.placement import OWN, SAME, Placement
from accelify.domains.reasons import Reason

if TYPE_CHECKING:
    from accelify.heap.store import Store


class _Unset(Enum):
    UNSET = "unset"


UNSET = _Unset.UNSET
# The type of the positions of rows, by which others are chosen: `torch.where(y == 1)[0]`.
POSITIONS = "#positions"
# Of a slice up to or from a part of the number of rows: `x[: len(x) // 2]`.
PART_OF_ROWS = "#part of rows"
# What one iteration of a loader gives: tensors in a structure that only its use shows; how one says whose it is.
BATCH = "#batch"
OF_BATCH = "this rank's batch of"
# A tuple or a list of tensors: how long it is counts no samples.
TUPLE = "builtins.tuple"
TENSOR, PARAMETER = "torch.Tensor", "torch.nn.Parameter"
# Where a tensor lies.
HOST, DEVICE = "host", "device"
# On the host as well, as it was made there: it may be meant for there.
MADE_HERE = "made"
# What a value says of the rank that has it: `is_main_process` and its opposite.
# The guard of what runs in processes that the script itself starts.
SPAWNED = "spawned"
MAIN_FLAG, OTHERS_FLAG, RANK = "#main", "#others", "#rank"
# The text of the device that is this process's own.
OWN_DEVICE = "cuda:*"
# What stands before the name of a variable that is bound only on the ranks of a guard, and the kinds of such guards.
ONLY, OF_SOME = "#only ", ("main", "others", "one")
# The type of what the main process goes into before the others.
FIRST_FLAG = "#first"
# True on one process that is not the main one.
ONE_FLAG = "#one"
# The last word of the name of the wrapper around a model, as the type of the wrapper's class.
WRAPPER = "DistributedDataParallel"
# The number of processes of a script that is written for several.
PROCESSES = "#processes"
# What is true wherever such a script runs in several.
SEVERAL = "#several"
# True on the main process, and on the others where something that is the same on all ranks says so.
SOME_FLAG = "#some"
# The type of what is called on the main process, and of which a call does nothing on the others.
ONCE = "#once"
# The type of two ranges of which the main process goes through one, and the others through the other, which is longer.
OTHER_ROUNDS = "#other-rounds"
# What is false only where a file is not there, and what is true only there.
FOUND_FLAG, MISSING_FLAG = "#found", "#missing"
# The type of a number of rounds that begins with 0: one more is the number of those that are done.
COUNTER = "builtins.counter"
# The type of what goes round with a count of rounds, as `i % n`: the share of rounds in which it is zero is the same.
TURN = "#turn"
# The type of a whole part of how many rounds each process makes: nothing where the process makes few.
PART = "#part"
# The types of a shape: of a batch as a loader gives it, and of anything else.
SHAPES = ("#batch shape", "#shape")
# The type of how long a batch is along another axis than that of the rows.
WIDTH = "builtins.width"
# The type of a number beside that of the rounds, such as the number of the last one: one less, or one more.
LAST = "#last"
# How many samples there are of something, and that by the samples of a batch: the rounds of a pass over all of it.
LENGTH, PASS = "#length", "#pass"
# A multiple or a part of the rounds of such a pass, such as those of several epochs.
PASSES = "#passes"
# The type of how many batches a loader has that is not prepared yet, where a script is written for several processes.
UNDIVIDED = "#undivided"
# Of a loader that is no DataLoader: `prepare` leaves it as it is.
WHOLE = "#whole"
# The type of whether a loader has given another batch.
MORE = "#more"
# The type of what a call gives that never returns.
ENDED = "typing.NoReturn"


# Among the loops in which a container is made: it is made for one row of all ranks' batches.
OF_SAMPLE = -1


class Ref:
    """Something that a value may be: an object, a function, a class, a module, a name of a library."""

    __slots__ = ("fields",)
    # Whether it is a function, a class or an import.
    fixed = False
    # Scopes, and containers made in passing, are numbered as they are made: what was made after a way began is of that
    # way alone.
    serial = 0

    def __init__(self) -> None:
        # What the abstract run wrote to it, by name; written through the store alone, which can undo it.
        self.fields: dict[str, Value] = {}


class Library(Ref):
    """A name of a library: `torch.nn.functional.relu`, or the library itself."""

    __slots__ = ("name",)
    fixed = True

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


class ModuleRef(Ref):
    """A module of the project, run when something of it is first asked for."""

    __slots__ = ("_yield", "copied", "name", "path", "state", "text", "tree")
    fixed = True

    def __init__(self, name: str, path: str, tree: ast.Module | None = None, text: str = "") -> None:
        super().__init__()
        self.name = name
        self.path = path
        self.tree = tree
        self.text = text
        self.state = "new"
        self.copied = False  # it is of a library of which the project has a copy
        self._yield: bool | None = None

    @property
    def has_yield(self) -> bool:
        """Whether its text has the word, once it is there."""
        if self._yield is None:
            self._yield = "yield" in self.text
        return self._yield


_serials = count(1)


class Scope(Ref):
    """The variables of one call of a function, of a class's body or of a comprehension."""

    __slots__ = ("cls", "globals", "is_class", "module", "nonlocals", "outer", "serial")

    def __init__(self, module: ModuleRef, outer: Ref | None, is_class: bool = False) -> None:
        super().__init__()
        self.serial = next(_serials)
        self.is_class = is_class
        # Of a class's body: the class.
        self.cls: Class | None = None
        self.module = module
        self.outer = outer
        self.globals: frozenset[str] = frozenset()
        self.nonlocals: frozenset[str] = frozenset()


def newest_scope() -> int:
    """A number that all scopes made from now on are above."""
    return next(_serials)


class Function(Ref):
    """A function or lambda of the project, with what it closes over."""

    __slots__ = ("_gives", "decorators", "defaults", "module", "name", "node", "outer")
    fixed = True

    def __init__(
        self,
        node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda,
        module: ModuleRef,
        outer: Ref,
        name: str,
    ) -> None:
        super().__init__()
        self.node = node
        self.module = module
        self.outer = outer
        self.name = name
        self.defaults: dict[str, Value] = {}
        self.decorators: tuple[Value, ...] = ()
        self._gives: bool | None = None

    @property
    def only_raises(self) -> bool:
        """Whether it ends with an error and gives nothing."""
        last = self.node.body[-1] if isinstance(self.node.body, list) else None
        return isinstance(last, ast.Raise) and not any(isinstance(n, ast.Return) for n in ast.walk(self.node))

    @property
    def is_generator(self) -> bool:
        """Whether it gives values by `yield`."""
        if self._gives is None:
            body = self.node.body if isinstance(self.node.body, list) and self.module.has_yield else []
            self._gives = any(map(_yields, body))
        return self._gives

    @property
    def does_nothing(self) -> bool:
        """Whether it does and gives nothing: `lambda *args: None`."""
        body = self.node.body if isinstance(self.node.body, list) else [self.node.body]
        return all(
            isinstance(one, ast.Pass | ast.Constant)
            or (isinstance(one, ast.Expr | ast.Return) and isinstance(one.value, ast.Constant | None))
            for one in body
        )


def _yields(node: ast.AST) -> bool:
    if isinstance(node, ast.Yield | ast.YieldFrom):
        return True
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
        return False
    return any(_yields(child) for child in ast.iter_child_nodes(node))


class Class(Ref):
    """A class of the project: its fields are what its body bound."""

    __slots__ = ("_line", "bases", "module", "name", "node")
    fixed = True

    def __init__(self, node: ast.ClassDef, module: ModuleRef, name: str, bases: tuple[Value, ...]) -> None:
        super().__init__()
        self.node = node
        self.module = module
        self.name = name
        self.bases = bases
        self._line: list[Ref] | None = None

    def line_up(self) -> list[Ref]:
        """The class and its bases, in the order in which attributes are looked for (depth first)."""
        if self._line is not None:
            return self._line
        found: list[Ref] = []
        stack: list[Ref] = [self]
        while stack and len(found) < 50:
            cls = stack.pop(0)
            if cls not in found:
                found.append(cls)
                if isinstance(cls, Class):
                    stack = [ref for base in cls.bases for ref in base.refs] + stack
        self._line = found
        return found


class Instance(Ref):
    """An object: of a class of the project, or of a library's.

    `type` is the dotted name of the library's class (of the nearest base for a class of the project), `kind` what the
    knowledge calls it (module, loader, optimizer), `prepared` whether it went through `prepare`, `loops` the shared
    loops in which it was made.
    """

    __slots__ = ("cls", "kind", "loops", "prepared", "type", "wrapped")

    def __init__(self, cls: Class | None, type_: str = "", kind: str = "object") -> None:
        super().__init__()
        self.cls = cls
        self.type = type_
        self.kind = kind
        self.prepared = False
        self.wrapped: Value | None = None
        self.loops: tuple[int, ...] = ()


class Container(Ref):
    """A list, tuple, set, dictionary, or an unknown object that takes in values.

    Elements under known keys are fields `[key]`; `[]` is what all others may be. `fill` says what filled it in a shared
    loop that it outlives: "rounds" (one element a round) or "samples" (the elements of rows).
    """

    __slots__ = ("loops", "passing", "serial", "store", "type")

    def __init__(
        self, type_: str, store: Store, loops: tuple[int, ...] = (), *, passing: bool = True
    ) -> None:
        super().__init__()
        self.type = type_
        # Takes down that it is read.
        self.store = store
        # Whether it is made in passing, another one each time.
        self.passing = passing
        self.serial = next(_serials) if passing else 0
        self.loops = loops

    def looked_into(self, *, wholly: bool = False) -> dict[str, Value]:
        """All that stands in it, with its size and what filled it where `wholly` says so."""
        self.store.looks += 1
        if self.store.pieces:
            self.store.look(self)
            for name in ("#known", "#fill", "#keys") if wholly else ():
                self.store.note(self, name)
        return self.fields

    def slot(self, name: str) -> Value | None:
        """What stands in one slot of it."""
        if self.store.pieces:
            self.store.note(self, name)
        return self.fields.get(name)


class Bound(Ref):
    """A method with its receiver: a function of the project, or the name of a library's method."""

    __slots__ = ("method", "receiver")

    def __init__(self, receiver: Value, method: Function | str) -> None:
        super().__init__()
        self.receiver = receiver
        self.method = method


class Super(Ref):
    """`super()` in a method of a class: what comes after that class."""

    __slots__ = ("cls", "receiver")

    def __init__(self, receiver: Value, cls: Class | None) -> None:
        super().__init__()
        self.receiver = receiver
        self.cls = cls


class Iterable(Ref):
    """What a loop goes over: what one element is, and whether its rounds are shared out; `samples` is what the rows are
    that it goes over one by one, SAME where it goes over something else, `whole` why each rank goes through all batches
    of a loader, where it does, `uneven` why ranks can have different numbers of rounds, `fewer` why they go through
    fewer samples, all together, than the original, `limited` why each rank goes through as many rounds as the original,
    `apart` whether the ranks draw other numbers from torch's stream, `loaders` the loaders that it goes through to
    their end, `bounds` the numbers by which a range goes.
    """

    __slots__ = (
        "apart",
        "bounds",
        "elements",
        "even",
        "fewer",
        "item",
        "limited",
        "loaders",
        "rounds",
        "samples",
        "shared",
        "uneven",
        "whole",
    )

    def __init__(
        self,
        item: Value,
        shared: bool,
        rounds: Placement = SAME,
        elements: tuple[Value, ...] = (),
        samples: Placement = SAME,
    ) -> None:
        super().__init__()
        self.item = item
        self.shared = shared
        self.rounds = rounds
        self.samples = samples
        self.elements = elements
        self.whole: Reason | None = None
        self.uneven: Reason | None = None
        self.fewer: Reason | None = None
        self.limited: Reason | None = None
        self.loaders: tuple[Instance, ...] = ()
        self.apart = self.even = False
        self.bounds: tuple[object, ...] = ()

    @property
    def as_many(self) -> bool:
        """Whether each rank goes through as many rounds as the original."""
        return not self.shared and self.rounds.is_same and self.uneven is None

    def like(self, other: Iterable) -> Iterable:
        """This, going over the same as another one."""
        self.whole, self.uneven = self.whole or other.whole, self.uneven or other.uneven
        self.fewer, self.limited = self.fewer or other.fewer, self.limited or other.limited
        self.apart, self.even = self.apart or other.apart, self.even or other.even
        return self


Key = tuple[Ref, str]


# Never changed once it is made, and not frozen: that would make it three times as dear.
@dataclass(slots=True)
class Value:
    """What is known of a value at one place of the script.

    `place` is its placement and `why` the reason for it; `refs` are the objects that it may be; `type` is a library's
    type for what is no object of the heap ("torch.Tensor"); `const` its value where that is known. Within a loop
    `token` names the place that it was read from before anything was written there in this round, and `delta` what has
    been added since.
    """

    place: Placement = SAME
    why: Reason | None = None
    refs: tuple[Ref, ...] = ()
    type: str = ""
    const: Any = UNSET
    token: Key | None = None
    delta: Placement | None = None
    # Whether it is None on some ways; MAIN_FLAG where it is None on all ranks but the main one.
    optional: bool | str = False
    # Of a text or a path: what is known of it, with `*` for what is not.
    text: str = ""
    # Of a tensor: HOST or DEVICE, where that is known; of a device, DEVICE where it is that of the process.
    where: str = ""

    def placed(self, place: Placement, why: Reason | None = None) -> Value:
        """The same value elsewhere: no constant, no token."""
        return Value(
            place, why or self.why, self.refs, self.type, UNSET, None, None, self.optional, where=self.where
        )

    def plain(self) -> Value:
        """Without what only a loop's head asks."""
        if self.token is None:
            return self
        return Value(
            self.place,
            self.why,
            self.refs,
            self.type,
            self.const,
            None,
            None,
            self.optional,
            self.text,
            self.where,
        )

    def of(self, cls: builtins.type[Any]) -> list[Any]:
        """The objects of one class that it may be."""
        return [ref for ref in self.refs if isinstance(ref, cls)] if self.refs else []


NONE = Value(const=None)


def is_zero(value: Value) -> bool:
    """Whether it is known to be the number nothing, or an array of it."""
    return not value.refs and isinstance(value.const, int | float) and value.const == 0


@dataclass(unsafe_hash=True, slots=True)
class Guard:
    """What a piece of code stands under, with the placement of the condition.

    `divergent`: some ranks may come there and others not; `main`: only the main process does; `others`: all but it;
    `one`: one of those does; `left`: all but the main process do, or all, where it has not left before;
    `some`: the main process does, the others where all ranks agree on it; `counted`: all ranks do, by a count of the
    rounds of each; `first`: the main process does before the others; `missing`: who does not find a file;
    `spawned`: the processes that the script itself starts.
    """

    kind: str
    why: Reason
    place: Placement = OWN
    # Where those leave that do not come there, as "return (line 9)"; empty where the condition stands around it.
    left: str = ""

    @property
    def parts_ranks(self) -> bool:
        """Whether some ranks go a way that others do not."""
        return self.kind not in ("counted", "first", "missing", SPAWNED)


def constant(value: Any) -> Value:
    """A literal."""
    return Value(const=value, type=f"builtins.{type(value).__name__}")


@dataclass(slots=True)
class Flow:
    """How a block of statements ends: whether its end is reached, and how else it may be left.

    `exits` are the ways by which it may be left earlier (return, break, continue); each with what the rest of the block
    stands under then, None where all ranks go the same way.
    """

    reached: bool = True
    exits: dict[str, Guard | None] = field(default_factory=dict)


def written_arguments(node: ast.AST) -> list[ast.expr]:
    """The arguments by position that a call is written with: none where a decorator is called, whose place is the
    function below it."""
    return node.args if isinstance(node, ast.Call) else []
