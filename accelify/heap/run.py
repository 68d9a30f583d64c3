"""The state of one abstract run: the store, the path that is taken, what was met, and how far it goes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar, cast

from accelify.domains.placement import SAME, Kind, Placement
from accelify.domains.reasons import Reason
from accelify.heap.locations import located
from accelify.heap.moved import Moved
from accelify.heap.paths import of_length
from accelify.heap.pieces import MADE
from accelify.heap.store import OF_DEFINITIONS, Store, as_it_is, is_fixed
from accelify.heap.values import NONE, RANK, TENSOR, Container, Guard, Instance, Key, ModuleRef, Ref, Value
from accelify.knowledge import Knowledge

_LONGEST_SEGMENT = 72
# How deep in containers the reason for an element is looked for.
_MOST_NESTED = 2
_DISTANCES = {"own": 1, "main": 2, "linear": 3, "clock": 4, "round": 5}
_DEFINITIONS = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
R = TypeVar("R", bound=Ref)


@dataclass(slots=True)
class Loop:
    """A loop that is being gone through; `number` says which one, `meets` whether ranks meet in it, `trains` and
    `steps` whether it is the innermost around a backward and a step, of several batches. `samples` is what the rows are
    that it goes over one by one, `whole` why each rank goes through all batches of a loader in it."""

    number: int
    shared: bool
    samples: Placement = SAME
    place: tuple[str, int] = ("", 0)  # where it stands: the file and the line
    meets: bool = False
    trains: bool = False
    steps: bool = False
    whole: Reason | None = None
    parted: bool = False  # each rank has its share of what it goes over
    # Why its rounds can be more on one rank than on another, where nothing parts the ranks in them but that.
    uneven: Reason | None = None
    # Why the ranks go through fewer samples than the original.
    fewer: Reason | None = None
    # Whether the ranks draw other numbers from torch's stream.
    apart: bool = False
    # Whether each round has as many rows on all ranks, the last one too.
    even: bool = False
    conditions: int = 0  # under how many it stands
    # The loaders that it goes through to their end.
    loaders: tuple[Instance, ...] = ()


# Never changed once it is made.
@dataclass(unsafe_hash=True, slots=True)
class Event:
    """Something that can be seen outside of one rank, or that ranks do together, where the script does it.

    `kind` is an effect (KIND.OPERATION of the knowledge), or one of collective, backward, step, leave; `shown` are the
    values that it shows or writes, `path` the file or folder; `guards` what it stands under, `loops` those around it,
    `via` the calls that led there, by module and line, the last one first.
    """

    kind: str
    module: ModuleRef
    node: ast.AST
    name: str
    shown: tuple[Value, ...] = ()
    path: Value | None = None
    guards: tuple[Guard, ...] = ()
    loops: tuple[Loop, ...] = ()
    detail: str = ""
    via: tuple[tuple[str, int], ...] = ()

    @property
    def shared(self) -> bool:
        """Whether it stands in a loop whose rounds are shared out."""
        return any(loop.shared for loop in self.loops)

    @property
    def in_training(self) -> bool:
        """Whether it stands in a loop over batches: one that is shared out, or one with a backward right in it."""
        return any(loop.shared or loop.trains or loop.steps for loop in self.loops)

    @property
    def line(self) -> int:
        """Its line, from 1."""
        return getattr(self.node, "lineno", 0)


@dataclass
class Run:
    """One abstract run.

    Args:
        knowledge: the tables.
        split: whether each process takes a share of every batch (`--batch-size total`), rather than its own.
        budget: how many operations may be gone through before the rest is listed as not read.
    """

    knowledge: Knowledge
    split: bool = False
    unsplit: bool = False  # each process takes batches of its own, whatever the script says
    on_cpu: bool = False  # the Accelerator stays there, whatever the machine has
    budget: int = 60_000
    store: Store = field(default_factory=Store)
    events: list[Event] = field(default_factory=list)
    # What modules do when they are imported, before all.
    imported: list[Event] = field(default_factory=list)
    assumptions: dict[str, Reason] = field(default_factory=dict)
    unread: dict[str, Reason] = field(default_factory=dict)
    # Modules that are imported, and are neither in the project nor in the knowledge.
    unknown_modules: dict[str, None] = field(default_factory=dict)
    # How many rows the batches of loaders have, as far as that is known.
    batch_sizes: set[int] = field(default_factory=set)
    # Loops that add up or list means over their rounds.
    means: dict[tuple[str, int], Reason] = field(default_factory=dict)
    # Loops that add up sums over the samples of each process, each of which repeats one where it has none.
    sums: dict[tuple[str, int], Reason] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    # How many conditions stand around, also those by which all ranks go the same way.
    conditions: int = 0
    loops: list[Loop] = field(default_factory=list)
    modules: list[ModuleRef] = field(default_factory=list)
    # The functions that are being gone through, each with the call that led there.
    calls: list[tuple[ast.AST, ast.AST]] = field(default_factory=list)
    # The functions that something of the script came to.
    reached: set[ast.AST] = field(default_factory=set)
    # Methods that were asked of objects of which nothing is known, and where first.
    asked: dict[str, tuple[ModuleRef, ast.AST]] = field(default_factory=dict)
    # Statements that were gone through, and those that a test of which the answer is known leaves out, with their file.
    entered: set[ast.stmt] = field(default_factory=set)
    left_out: dict[ast.stmt, str] = field(default_factory=dict)
    # Those that the budget does not reach.
    not_reached: dict[ast.stmt, str] = field(default_factory=dict)
    # Conditions that are the same on all ranks, with their file; "" for those that are not.
    agreed: dict[ast.AST, str] = field(default_factory=dict)
    # The slots in which nothing is yet on the ways that are gone, and how many pieces were begun before each.
    absent: list[tuple[Key | None, int]] = field(default_factory=list)
    recording: bool = True
    # Up to which level all processes but the main one have silenced their loggers; -1 where each has set them up.
    logs_once: int = 0
    # Whether gradients are put together at the prepared model alone, as Hugging Face Accelerate does.
    at_model: bool = False
    # Whether uses of the Accelerator that are wrong by themselves are met, too.
    checks: bool = False
    moved: Moved = field(default_factory=Moved)
    # Whether an Accelerator was made, and the texts of what it divides losses by.
    accelerated: str = ""
    grouped: bool = False  # it is in a process group that it joined by itself
    in_place: str = ""  # how models are that have no wrapper of DDP: ALTERED, or of an engine (ENGINE)
    path: Path | None = None  # where the script lies
    accumulated: frozenset[str] = frozenset()
    # Why ranks draw other numbers from a stream (torch, numpy, random) from now on, by a seed or as some drew more.
    parted_streams: dict[str, Reason] = field(default_factory=dict)
    # Whether all ranks draw the same from here on: a seed was set, or the Accelerator made.
    begun_alike: bool = False
    # The streams that a seed lets all ranks of a script draw alike from that is written for several.
    alike_streams: frozenset[str] = frozenset()
    # Whether any seed differs between ranks, a generator's too.
    seeded_apart: bool = False
    steps: int = 0
    _objects: dict[tuple[object, ...], Ref] = field(default_factory=dict)
    _lines: dict[ModuleRef, list[str]] = field(default_factory=dict)
    _segments: dict[tuple[ModuleRef, ast.AST], str] = field(default_factory=dict)

    @property
    def module(self) -> ModuleRef:
        """The module whose code is gone through now."""
        return self.modules[-1]

    def spend(self) -> bool:
        """Take one operation, and the containers that it looked into, from the budget; False when nothing is left."""
        self.steps += 1 + self.store.looks
        self.store.looks = 0
        return self.steps < self.budget

    def segment(self, node: ast.AST) -> str:
        """The text of a node, cut to fit into a sentence."""
        module = self.module
        found = self._segments.get((module, node))
        if found is None:
            found = self._segments[module, node] = self._segment(module, node)
        return found

    def _segment(self, module: ModuleRef, node: ast.AST) -> str:
        lines = self._lines.get(module)
        if lines is None:
            lines = self._lines[module] = module.text.split("\n")
        line, column = getattr(node, "lineno", 0), getattr(node, "col_offset", 0)
        if not 0 < line <= len(lines):
            return ""
        end = getattr(node, "end_col_offset", None) if getattr(node, "end_lineno", 0) == line else None
        text = lines[line - 1]  # the columns are those of bytes
        text = text[column:end] if text.isascii() else text.encode()[column:end].decode(errors="replace")
        text = text.strip()
        if end is None:
            text += " ..."
        if len(text) <= _LONGEST_SEGMENT:
            return text
        # A condition says at its end who it is true for.
        return f"{text[: _LONGEST_SEGMENT // 2]} ... {text[-_LONGEST_SEGMENT // 2 + 5 :]}"

    def reason(
        self,
        node: ast.AST,
        text: str,
        *values: Value | Reason | None,
        by_data: bool = False,
        cause: bool = False,
    ) -> Reason:
        """Why, at a node: the parents are the reasons of the values, the furthest from the same first."""
        parents = list[Reason]()
        for value in sorted(values, key=_distance) if len(values) > 1 else values:
            if isinstance(value, Reason):
                parents.append(value)
            elif value is not None and (parent := why_of(value)) is not None:
                parents.append(parent)
        return Reason(text, self.module.path, getattr(node, "lineno", 0), tuple(parents), by_data, cause)

    def made(self, node: ast.AST, place: Placement, *values: Value, type_: str = "", text: str = "") -> Value:
        """A value that an operation made of others; a reason is put together only where it will be asked for."""
        where = located(values) if type_ == TENSOR else ""
        # What was put together may be put together once more.
        if place.is_same and not (self.checks and any(one.why and one.place.degree == -1 for one in values)):
            return Value(SAME, type=type_, where=where, text=of_length(values))
        why = self.reason(node, text or f"`{self.segment(node)}`", *values)
        return Value(place, why, type=type_, where=where)

    def cause(self, node: ast.AST, place: Placement, text: str, type_: str = "") -> Value:
        """A value that an operation breaks: what becomes of it is wrong for this, wherever its operands come from."""
        return Value(place, self.reason(node, text, cause=True), type=type_)

    def assume(self, text: str, node: ast.AST) -> None:
        """Note what the proof of something rests on."""
        if text not in self.assumptions:
            self.assumptions[text] = Reason(text, self.module.path, getattr(node, "lineno", 0))

    def take_mean(self) -> None:
        """Note that a loop adds up or lists means over its rounds, of which the last may be shorter than the others."""
        cut = (loop for loop in reversed(self.loops) if loop.shared or (loop.parted and not loop.even))
        place = next((loop.place for loop in cut if loop.fewer is None), None)
        if place is not None:
            self.means.setdefault(place, Reason("means over the rounds", *place))

    def take_sum(self, loop: Loop) -> None:
        """Note that a loop adds up over the samples of each process."""
        self.sums.setdefault(loop.place, Reason("sums over the samples of each process", *loop.place))

    def leave_out(self, statements: Iterable[ast.stmt]) -> None:
        """Note statements that are not come to."""
        self.left_out.update(dict.fromkeys(statements, self.module.path))

    def stop_before(self, statements: Sequence[ast.stmt]) -> None:
        """Note that the budget does not reach some statements."""
        self.leave_unread("the budget of the analysis is used up", statements[0])
        self.leave_pieces(0)
        self.not_reached.update(dict.fromkeys(statements, self.module.path))

    def leave_unread(self, text: str, node: ast.AST) -> None:
        """Note what was not gone through."""
        self.unread.setdefault(text, Reason(text, self.module.path, getattr(node, "lineno", 0)))

    # The path

    @contextmanager
    def under(self, guard: Guard | None, *, is_condition: bool = False) -> Iterator[None]:
        """Go through something under a condition."""
        if guard is not None:
            self.guards.append(guard)
        self.conditions += is_condition
        try:
            yield
        finally:
            self.conditions -= is_condition
            if guard is not None:
                self.guards.pop()

    def depends(self) -> None:
        """What is gone through now depends on the guards or loops around."""
        if self.store.pieces:
            self.store.pieces[-1].around = True

    def in_shared_loop(self) -> bool:
        """Whether the rounds of a loop around are shared out."""
        self.depends()
        return any(loop.shared for loop in self.loops)

    def by_rows(self) -> bool:
        """Whether a loop around goes over the rows of this rank's batch."""
        self.depends()
        return any(loop.samples.kind is Kind.ROUND for loop in self.loops)

    def in_each_round(self) -> bool:
        """Whether it is done in each round of the innermost loop around whose rounds are shared out."""
        self.depends()
        return any(loop.conditions == self.conditions for loop in self.loops if loop.shared)

    def shared_loops(self) -> tuple[int, ...]:
        """The loops around whose rounds are shared out, outer ones first."""
        return tuple(loop.number for loop in self.loops if loop.shared)

    @contextmanager
    def loop(self, node: ast.AST, shared: bool, samples: Placement = SAME) -> Iterator[Loop]:
        """Go through a loop's body."""
        loop = Loop(id(node), shared, samples, (self.module.path, getattr(node, "lineno", 0)))
        loop.conditions = self.conditions
        self.loops.append(loop)
        try:
            yield loop
        finally:
            self.loops.pop()

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Go through something without recording what is met."""
        before, self.recording = self.recording, False
        try:
            yield
        finally:
            self.recording = before

    def meet(
        self,
        kind: str,
        node: ast.AST,
        name: str,
        shown: Iterable[Value] = (),
        path: Value | None = None,
        *,
        guards: Iterable[Guard] = (),
        detail: str = "",
    ) -> None:
        """Record an event at a node."""
        if kind in ("collective", "backward", "step"):
            self.ranks_meet()
        if kind in ("backward", "step"):
            self.trains(kind)
        if self.recording:
            found = (*self.guards, *guards)
            loops, via = tuple(self.loops), tuple(self.via())
            seen = tuple(map(as_it_is, shown))
            self.events.append(Event(kind, self.module, node, name, seen, path, found, loops, detail, via))

    def ranks_meet(self) -> None:
        """Ranks meet in all loops around."""
        for loop in self.loops:
            loop.meets = True
        for piece in self.store.pieces:
            piece.meets = True

    def trains(self, *kinds: str) -> None:
        """A backward or a step stands right in the innermost loop."""
        for loop in self.loops[-1:]:
            loop.trains, loop.steps = loop.trains or "backward" in kinds, loop.steps or "step" in kinds
        for piece in self.store.pieces:
            piece.trains |= {*kinds} if piece.loops == len(self.loops) else set()

    def part_loop(self) -> None:
        """Each rank has its share of what the innermost loop goes over."""
        for loop in self.loops[-1:]:
            loop.parted = True
        for piece in self.store.pieces:
            piece.parts = piece.parts or piece.loops == len(self.loops)

    def is_absent(self, slot: Key) -> bool:
        """Whether nothing is yet in a slot, as a condition around says."""
        for asked, pieces in self.absent:
            if asked == slot:
                for piece in self.store.pieces[pieces:]:
                    piece.alone = False
                return True
        return False

    def is_called(self, name: str) -> bool:
        """Whether a function of this name is what is gone through now."""
        if self.store.pieces and self.calls:
            piece = self.store.pieces[-1]
            piece.first_call = min(piece.first_call, len(self.calls) - 1)
        return bool(self.calls) and getattr(self.calls[-1][0], "name", "") == name

    def leave_pieces(self, call: int) -> None:
        """What the pieces give that began within a call (its number, from 0) depends on what is around it."""
        for piece in self.store.pieces:
            if piece.depth > call:
                piece.alone = False

    def via(self) -> Iterator[tuple[str, int]]:
        """The calls that are being gone through, the innermost first: the file and line of each."""
        for (_, call), caller in zip(reversed(self.calls), reversed(self.modules[:-1]), strict=False):
            yield caller.path, getattr(call, "lineno", 0)

    # Objects

    def allocate(self, site: object, make: Callable[[], R]) -> R:
        """The object that is made at a place of the script, called from the last two places: one for all rounds of a
        loop. Its fields are taken away, as it is a new one each time."""
        around = [call for _, call in self.calls[-2:]]
        if around and isinstance(around[-1], _DEFINITIONS):
            # A call that stands for many: it is one wherever it is made.
            around = around[-1:]
        key = (site, *around)
        if self.store.pieces:
            piece = self.store.pieces[-1]
            piece.first_call = min(piece.first_call, len(self.calls) - len(around))
        found = self._objects.get(key)
        if found is None:
            made = make()
            self._objects[key] = made
            self.store.set(made, MADE, NONE)
            return made
        for name in list(found.fields):
            self.store.set(found, name, None)
        self.store.set(found, MADE, NONE)
        return cast(R, found)

    def passing(self, type_: str, loops: tuple[int, ...]) -> Container:
        """A container that is made in passing, another one each time."""
        made = Container(type_, self.store, loops)
        if self.store.pieces:
            self.store.pieces[-1].born.append((made, made.fields))
            self.store.pieces[-1].placed[made] = loops
        return made

    def place(self, ref: Container | Instance, loops: tuple[int, ...]) -> None:
        """Say in which shared loops an object is made."""
        ref.loops = loops
        if self.store.pieces:
            self.store.pieces[-1].placed[ref] = loops

    # Variables and fields

    def read(self, owner: Ref, name: str) -> Value | None:
        """What stands in a slot; within a loop with a token, where nothing was written to it in this round yet."""
        value, store = owner.fields.get(name), self.store
        fixed = value is not None and is_fixed(value)
        if fixed and isinstance(owner, OF_DEFINITIONS):
            return value
        if store.pieces and owner.serial <= store.pieces[-1].made:
            store.note(owner, name)
        if value is None or fixed or store.touched_in_round(owner, name):
            return value
        token: Key = (owner, name)
        return value if value.token == token and value.delta is None else _with_token(value, token)

    def peek(self, owner: Ref, name: str) -> Value | None:
        """What `read` gives, where that decides nothing."""
        pieces, self.store.pieces = self.store.pieces, []
        try:
            return self.read(owner, name)
        finally:
            self.store.pieces = pieces


def _with_token(value: Value, token: Key) -> Value:
    return Value(
        value.place,
        value.why,
        value.refs,
        value.type,
        value.const,
        token,
        None,
        value.optional,
        value.text,
        value.where,
    )


def why_of(value: Value, depth: int = 0) -> Reason | None:
    """Why a value is not the same: for a container, why that of its elements is not that is furthest from it, and
    the rank by itself, which says nothing of the others, ahead of what all ranks have."""
    if value.why is not None:
        return None if value.place.is_same else value.why
    if not value.refs:
        return None
    parts: list[Value] = [
        part for ref in value.of(Container) for name, part in ref.fields.items() if name.startswith("[")
    ]
    found = sorted((part for part in parts if part.why and not part.place.is_same), key=_distance)
    found.sort(key=lambda part: (part.place.is_uniform, part.type == RANK))
    if found:
        return found[0].why
    inner = (why_of(part, depth + 1) for part in parts if depth < _MOST_NESTED and part.of(Container))
    return next((why for why in inner if why is not None), None)


def _distance(value: Value | Reason | None) -> int:
    if value is None or isinstance(value, Reason):
        return 0
    place = value.place
    if place.kind in ("same", "wide", "sample") and place.degree is None:
        return 4
    if place.kind == "round" and (place.needs or place.mixed):
        return 4
    return _DISTANCES.get(place.kind, 6)
