"""Random numbers: which ranks draw the same, from seeds and from who draws."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import pairwise

from accelify.domains.placement import Kind, Placement, function, own
from accelify.domains.reasons import Reason
from accelify.heap.containers import array_of, fill_of, parts_of
from accelify.heap.run import Run
from accelify.heap.values import UNSET, Container, Instance, Value
from accelify.knowledge import Row

Args = Sequence[Value]
Keywords = Mapping[str, Value]

_ALIKE = (
    "what is drawn at random before the Accelerator is made, and before a seed is set, is the same on every rank, as "
    "where `accelify launch` starts all of them on one machine"
)
# What gives rows in another order: the places of rows, and no rows.
_ORDERS = ("randperm", "permutation")
# How a reason ends that says that ranks draw alike what each of them takes for other rows.
FOR_OTHER_ROWS = "the same on every process, each time for other rows"
# Functions and classes of libraries that start processes, which begin with what the one that starts them has drawn.
_STARTERS = frozenset(
    "spawn start_processes Process notebook_launcher debug_launcher PrepareForLaunch elastic_launch launch".split()
)
# How a reason ends that says so of a draw, and how one begins of a draw of one of several, or of parts of something.
DRAWS = " draws random numbers"
_ONE_OF, _SPLITS = re.compile(r"`[\w.]*\bchoice\("), re.compile(r"`.*\b(?:random_split|train_test_split)\(")
# What draws of other seeds need to be the same.
SEEDED = "drawn with one seed"
# How a reason ends that says that the other processes draw less.
_OF_SOME = " draws on some processes only"
# A draw of some processes, by its stream.
DRAWN_ALONE = "drawn alone"
# How a reason ends that says so of what nothing seeds.
UNSEEDED = "draws others on each process, as nothing seeds them"
SEEDED_APART, OTHER_SEED = "seeds each process with another number", "each process has another seed"
STREAMS = frozenset({"torch", "numpy", "random"})
# The notes of what draws where `shuffle=` says so, or in each case, seeded by an argument.
_SHUFFLING, _BY_STATE, _STATE = "draws where it shuffles", "draws from its state", "random_state"
# Arguments that seed one draw.
_SEEDS = frozenset({"seed", "random_state", "rng", "generator"})


def is_as_long(value: Value) -> bool:
    """Whether each process draws others, but as many: all of what a draw gives, or a part that it splits off."""
    why = value.why if array_of(value) == own(SEEDED) else None
    if why is not None and len(why.parents) == 1 and _SPLITS.match(why.parents[0].text):
        why = why.parents[0]
    drawn = why is not None and why.text.endswith(DRAWS) and not _ONE_OF.match(why.text)
    return why is not None and drawn and not any(step.text.endswith(DRAWS) for step in why.steps()[1:])


class RandomDraws:
    """Finds what draws give, and follows the streams that they are from.

    A stream is torch's, NumPy's or Python's: once some ranks draw from it and others do not, they go on to
    draw other numbers, until it is seeded anew.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        # Whether each draw was from a generator of the script's that is the same on every process.
        self.drawn: list[bool] = []
        # Where a row is changed at random as it is read.
        self.of_rows: set[tuple[str, int]] = set()

    def draw(
        self, row: Row, args: Args, keywords: Keywords, node: ast.AST, of_shape: Placement | None
    ) -> Value:
        """What a draw gives; `of_shape` is its placement where its arguments say how large it is."""
        generators = _generators(args, keywords)
        operands = [value for value in [*args, *keywords.values()] if not set(value.refs) & set(generators)]
        places = [array_of(value) for value in operands]
        self.drawn.append(bool(generators) and self._is_alike(row, generators))
        if any(getattr(called, "name", "") in ("__getitem__", "__iter__") for called, _ in self.run.calls):
            self.of_rows.add((self.run.module.path, getattr(node, "lineno", 0)))
        place = of_shape or function(places, rowwise=True)
        text = f"`{self.run.segment(node)}`{DRAWS}"
        differing = self._generated(row, generators, node)
        if self.run.checks and any(guard.kind == "main" for guard in self.run.guards):
            differing = None  # no other process draws it
        if differing is not None and place.is_same and not self.run.in_shared_loop():
            return Value(own(SEEDED), self.run.reason(node, text, differing), type=row.returns)
        if place.is_same and not self._begins_alike(row):
            self.run.assume(_ALIKE, node)
        in_rounds = self.run.in_shared_loop() and place.kind in (Kind.SAME, Kind.ROUND)
        apart = place.kind is Kind.WIDE and _stream(row) == "torch" and not generators
        if apart and any(loop.apart for loop in self.run.loops):
            text = f"{text}, in a shuffled pass others on each process"
            return self.run.cause(node, own("drawn before the gather"), text, row.returns)
        orders = row.name.endswith(_ORDERS)
        alike = in_rounds and not orders and self._is_alike(row, generators)
        if alike and self._is_by_row(row, args, keywords):
            place = Placement(Kind.ROUND, rows=True, samples=None, mixed=True)
            if self.run.checks:
                self.run.meet("drawn alike", node, self.run.segment(node))
            return self.run.cause(node, place, f"{text}: {FOR_OTHER_ROWS}", row.returns)
        if alike and self.run.checks and place.is_same and not draws_rows(row, args, keywords):
            return Value(type=row.returns)
        if in_rounds:
            rows = not orders and (place.rows or draws_rows(row, args, keywords))
            place = Placement(Kind.ROUND, rows=rows, samples=0 if rows else None)
        return self.run.made(node, place, *args, *keywords.values(), type_=row.returns, text=text)

    def made(self, row: Row, generator: Instance, args: Args, keywords: Keywords, node: ast.AST) -> None:
        """A generator is made: without a seed another one on each rank, but for torch's."""
        if row.name.startswith("torch.") or (
            row.note == _SHUFFLING and not _is_asked(keywords.get("shuffle"))
        ):
            return
        given = [*args, *keywords.values()]
        if row.note in (_SHUFFLING, _BY_STATE):
            given = [keywords[_STATE]] if _STATE in keywords else []
            generator.kind = "generator" if given else "object"  # else it draws from NumPy's stream
            if not given:
                return
        seeds = [value for value in given if value.const is not None]
        parted = [value for value in seeds if not array_of(value).is_uniform]
        if parted or not seeds:
            words = "has another seed on each process" if seeds else "has no seed: each process draws others"
            why = self.run.reason(node, f"`{self.run.segment(node)}` {words}", *parted)
            self.run.seeded_apart = True
            self.run.store.set(generator, "#seeded", Value(own("one seed"), why))

    def seeded(self, row: Row, result: Value, args: Args, node: ast.AST, receiver: bool) -> Value:
        """A seed: where it differs between ranks, so does what is drawn afterwards."""
        differing = [value for value in args[int(receiver) :] if not array_of(value).is_uniform]
        streams = STREAMS & {_stream(row)} or STREAMS
        if not differing:
            if not receiver:
                seed_alike(self.run, streams)
            if not (receiver or (self.run.checks and _is_left_out(self.run, node))):
                if self.run.checks:
                    self.run.meet("seeded", node, self.run.segment(node))
                self.run.alike_streams |= streams
            return result
        why = self.run.reason(node, f"`{self.run.segment(node)}` {SEEDED_APART}", *differing)
        if not receiver:
            on_gpu = ".cuda." in row.name  # data are drawn on the host
            seed_apart(self.run, streams - self.run.parted_streams.keys() if on_gpu else streams, why)
            return result
        self.run.seeded_apart = True
        for ref in args[0].of(Instance):
            self.run.store.set(ref, "#seeded", Value(own("one seed"), why))
        return result.placed(own("one seed"), why)

    def exchanges_rounds(self, row: Row, args: Args, keywords: Keywords) -> bool:
        """Whether a list of what rounds gave is put in another order, the same one on all ranks: each stays a round."""
        lists = [ref for value in args for ref in value.of(Container)]
        filled = bool(lists) and all(fill_of(ref) == "rounds" for ref in lists)
        return filled and self._is_alike(row, _generators(args, keywords))

    def _is_by_row(self, row: Row, args: Args, keywords: Keywords) -> bool:
        """Whether there is a number for each row of this rank's batch."""
        sizes = [inner for value in [*args, *keywords.values()] for inner in parts_of(value)]
        # As large as something of the batch, of which no more is known.
        taken = self.run.checks and row.name.startswith("torch.")
        return any(
            one.place.kind is Kind.ROUND and (taken or one.place.even or one.place.rows) for one in sizes
        )

    def _is_alike(self, row: Row, generators: Sequence[Instance]) -> bool:
        """Whether all ranks draw the same: only torch's stream is another one on each, unless a seed says so."""
        if any(self.run.read(ref, "#seeded") for ref in generators):
            return False
        parted = self.run.parted_streams.get(_stream(row))
        if self.run.checks and (self.run.at_model or self.run.grouped) and not generators:
            return _stream(row) in self.run.alike_streams and not parted
        return bool(generators) or (_stream(row) in ("numpy", "random") and not parted)

    def _generated(self, row: Row, generators: Sequence[Instance], node: ast.AST) -> Reason | None:
        """Why a draw is another one on each rank, None where all ranks draw the same."""
        if generators:
            found = [self.run.read(ref, "#seeded") for ref in generators]
            return next((value.why for value in found if value is not None), None)
        self.run.depends()
        parted = self.run.parted_streams
        guard = next(
            (one for one in self.run.guards if one.kind in ("main", "others", "some", "missing")), None
        )
        if guard is not None:
            before = parted.get(_stream(row))
            self.run.meet(DRAWN_ALONE, node, _stream(row))
            text = f"`{self.run.segment(node)}`{_OF_SOME}"
            parted.setdefault(_stream(row), self.run.reason(node, text, guard.why))
            return None if before is None or before.text.endswith(_OF_SOME) else before
        return parted.get(_stream(row)) or self._unseeded(row, node)

    def _begins_alike(self, row: Row) -> bool:
        """Whether all processes begin with the same numbers: a seed of one stream says nothing of the others."""
        alike = self.run.alike_streams
        return self.run.begun_alike or (_stream(row) in alike if _stream(row) in STREAMS else bool(alike))

    def _unseeded(self, row: Row, node: ast.AST) -> Reason | None:
        """Why the processes of a script that nothing seeds draw others."""
        run = self.run
        if self._begins_alike(row) or not run.checks:
            return None
        # Before the processes meet: each draws for itself, unless one starts them all and gives them what it has drawn.
        if not (run.at_model or run.grouped) and _starts_processes(run.modules[0].tree):
            return None
        if isinstance(node, ast.Call) and any(word.arg in _SEEDS for word in node.keywords):
            return None
        run.seeded_apart = True
        return run.reason(node, f"`{run.segment(node)}` {UNSEEDED}")


def drawn_on_both(run: Run, before: Collection[str], met: Sequence[int]) -> None:
    """The main process has gone one way and the others another: who drew by the same calls on both goes on alike.

    Args:
        run: the run.
        before: the streams of which the processes drew others before.
        met: how many events there were before the first way, between them, and after the second.
    """
    drawn = [
        list(dict.fromkeys((one.name, one.node) for one in run.events[first:last] if one.kind == DRAWN_ALONE))
        for first, last in pairwise(met)
    ]
    for stream in {stream for way in drawn for stream, _ in way} - set(before):
        of_it = [[node for name, node in way if name == stream] for way in drawn]
        if of_it[0] == of_it[1]:
            seed_alike(run, [stream])


def seed_apart(run: Run, streams: Iterable[str], why: Reason) -> None:
    """Each process goes on with numbers of its own in some streams."""
    run.seeded_apart = True
    run.parted_streams.update(dict.fromkeys(streams, why))


def seed_alike(run: Run, streams: Iterable[str]) -> None:
    """All processes go on with the same numbers in some streams."""
    for stream in streams:
        run.parted_streams.pop(stream, None)


def _generators(args: Args, keywords: Keywords) -> list[Instance]:
    """The generators that a draw may be from: the receiver, or what `generator=` gives."""
    given = [*args[:1], *([keywords["generator"]] if "generator" in keywords else [])]
    return [ref for value in given for ref in value.of(Instance) if ref.kind == "generator"]


def _is_left_out(run: Run, node: ast.AST) -> bool:
    """Whether a seed is set only where an option says so that has no default: `if args.seed is not None`."""
    nodes = {node, *(call for _, call in run.calls)}
    trees = list(dict.fromkeys(module.tree for module in run.modules if module.tree is not None))
    unset = {name for tree in trees for name in _without_default(tree)}
    return any(
        isinstance(one, ast.If)
        and _asked_for(one.test) in unset
        and any(part in nodes for stmt in one.body for part in ast.walk(stmt))
        for tree in (trees if unset else ())
        for one in ast.walk(tree)
    )


def _asked_for(test: ast.expr) -> str:
    """The last name of what a condition asks for being there."""
    if isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and len(test.ops) == 1:
        test = test.left if getattr(test.comparators[0], "value", "") is None else test
    return test.attr if isinstance(test, ast.Attribute) else test.id if isinstance(test, ast.Name) else ""


@functools.lru_cache(maxsize=8)
def _without_default(tree: ast.Module) -> frozenset[str]:
    """The options of a script that are None unless they are given."""
    found = set[str]()
    for one in ast.walk(tree):
        if isinstance(one, ast.Call) and getattr(one.func, "attr", "") == "add_argument":
            words = {word.arg: getattr(word.value, "value", word.value) for word in one.keywords}
            plain = words.keys().isdisjoint({"action", "required"}) and words.get("default") is None
            names = [str(getattr(arg, "value", "")) for arg in one.args] if plain else []
            found |= {name[2:].replace("-", "_") for name in names if name.startswith("--")}
    return frozenset(found)


@functools.lru_cache(maxsize=8)
def _starts_processes(tree: ast.Module) -> bool:
    """Whether a module names what starts processes, or imports accelify, whose `launch` starts them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in _STARTERS:
            return True
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            module = getattr(node, "module", None) or ""
            names = {alias.name for alias in node.names}
            if names & _STARTERS or any(one.partition(".")[0] == "accelify" for one in (module, *names)):
                return True
    return False


def _is_asked(flag: Value | None) -> bool:
    """Whether a flag may be set."""
    return flag is not None and (flag.const is UNSET or bool(flag.const))


def _stream(row: Row) -> str:
    return row.name.partition(".")[0]


def draws_rows(row: Row, args: Args, keywords: Keywords) -> bool:
    """Whether a draw is taken for one row of each sample: it gives an array of more than one number."""
    if row.name.startswith("torch."):
        sizes = [inner for value in args for inner in parts_of(value)]
        return any(value.const is UNSET or value.const not in (0, 1) for value in sizes)
    plain = row.name.rpartition(".")[2] in ("rand", "randn") and bool(args)
    return plain or "size" in keywords or any(value.of(Container) for value in args)
