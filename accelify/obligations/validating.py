"""The engine over one script: every sink that it reaches, proved, assumed or named."""

from __future__ import annotations

import ast
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from accelify.deep_nesting import deeply
from accelify.domains.reasons import Reason
from accelify.heap.interpreter import Interpreter
from accelify.heap.moved import MarksOf
from accelify.heap.process_groups import ALONE
from accelify.heap.run import Event, Run
from accelify.heap.values import SPAWNED
from accelify.knowledge import Knowledge
from accelify.obligations.batch_statistics import of_one_share
from accelify.obligations.device_placement import placed
from accelify.obligations.distributed_scripts import checked_obligations_of
from accelify.obligations.missing_steps import never_accumulated, never_let_go
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.ordering import races
from accelify.obligations.sinks import (
    is_made_whole,
    is_of_nobody,
    is_parted,
    obligations_of,
)

_ORDER = list(Status)
_TOGETHER = frozenset({"accelerator", "collective", "wrapped"})
# What goes by how many rounds there are, unless a loop ends by their number.
_BY_ROUNDS = frozenset({"plain", "setting", "in each round"})
_PUTTING_TOGETHER = frozenset({"gather", "gather_for_metrics", "gather_object", "reduce"})


@dataclass
class Validation:
    """What was found: the obligations in the order of the script, what the proofs assume, and what was not read."""

    obligations: list[Obligation] = field(default_factory=list)
    assumptions: list[Reason] = field(default_factory=list)
    unread: list[Reason] = field(default_factory=list)
    steps: int = 0
    budget: int = 1
    # Whether each process takes a share of every batch.
    split: bool = False
    # Loops that add up or list means over their rounds, where figures are put together over the ranks.
    means: list[Reason] = field(default_factory=list)
    # Loops that add up sums over the samples of each process, where they are.
    sums: list[Reason] = field(default_factory=list)
    # Whether it has an Accelerator, or anything else that its processes do together.
    meets: bool = False
    # Modules that are imported, and are neither in the project nor in the knowledge.
    unknown_modules: list[str] = field(default_factory=list)
    # Statements that are never come to: the file, the first and the last line.
    left_out: list[tuple[str, int, int]] = field(default_factory=list)
    # The files and lines of conditions that are the same on all ranks.
    agreed: set[tuple[str, int]] = field(default_factory=set)

    # Statements that the budget does not reach.
    not_reached: list[tuple[str, int, int]] = field(default_factory=list)
    # Moves that a conversion dropped and that were come to; those with the use of what is not on the device.
    moves: dict[Hashable, Reason | None] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        """Whether the budget was used up, so that what comes later, or around again, is not looked at."""
        return self.steps >= self.budget

    def of(self, status: Status) -> list[Obligation]:
        """Those that stand in one way."""
        return [one for one in self.obligations if one.status is status]


def validate(
    text: str,
    path: Path | None = None,
    knowledge: Knowledge | None = None,
    read: Callable[[Path], str | None] | None = None,
    budget: int | None = None,
    checks: bool = False,
    unsplit: bool = False,
    moves: MarksOf | None = None,
) -> Validation:
    """Go through a script that is to run on several ranks and settle what each of its sinks requires.

    Args:
        text: the script.
        path: where it lies, so that the modules of its project are found.
        knowledge: the tables; the shipped ones where None.
        read: gives the text of a file in place of the disk's.
        budget: how many statements and expressions are gone through before the rest is not read; the engine's where
            None.
        moves: where a conversion dropped moves to the device, in the tree of a file.
        checks: it is written for several processes: there is no original that its figures are to be equal to.
        unsplit: each process takes whole batches, whatever the script says.

    Raises:
        SourceError: the script does not parse.
    """
    engines: list[Interpreter] = []

    def work() -> Run:
        engines[:] = [engine := Interpreter(path, knowledge or Knowledge(), read, checks, moves)]
        engine.run.unsplit = unsplit
        if budget is not None:
            engine.run.budget = budget
        return engine.start(text)

    try:
        run = deeply(work)
    except RecursionError:
        run = engines[0].run
        deep = "calls or expressions that are nested too deeply"
        run.unread[deep] = Reason(deep, path.name if path is not None else "", 1)
    if any(map(_is_spawned, run.events)):
        # All else is done by one process.
        run.events = [event for event in run.events if _is_spawned(event)]
    if checks:
        run.events = [] if _is_alone(run.events) else _come_to(run.events)
    found: dict[tuple[str, int, int, str, str, int], Obligation] = {}
    parted = any(is_parted(event) for event in run.events)
    asking = _asking(run.events)
    for event, asks in zip(run.events, asking, strict=True):
        if event.kind == "step" and event.detail == "bare" and not parted:
            event = replace(event, detail="plain")
        if event.detail in _BY_ROUNDS and is_made_whole(event, run.events):
            event = replace(event, detail="whole")
        for one in [
            *(checked_obligations_of(event, run.events) if checks else obligations_of(event, run.events)),
            *never_accumulated(event, run.events),
            *never_let_go(event, run.events),
            *of_one_share(event, run.events),
        ]:
            known = found.get(one.site)
            if known is None or _ORDER.index(one.status) > _ORDER.index(known.status):
                found[one.site] = replace(one, asks=asks) if checks else one
    for one in placed(run.moved):
        if one.site not in found or one.status is not Status.PROVED:
            found[one.site] = one
    found.update((one.site, replace(one, asks=asking[-1]) if checks else one) for one in races(run.events))
    kinds = {event.kind for event in run.events}
    together = any(map(_puts_together, run.events))
    ordered = sorted(found.values(), key=lambda one: (one.path, one.line, one.column, one.sink, one.demand))
    if run.split and any(map(_is_loss, ordered)):
        whole = validate(text, path, knowledge, read, budget, checks, unsplit=True)
        ordered = [_of_whole_batches(one, whole) for one in ordered]
    return Validation(
        ordered,
        list(run.assumptions.values()),
        list(run.unread.values()),
        run.steps,
        run.budget,
        run.split,
        list(run.means.values()) if together else [],
        list(run.sums.values()) if together else [],
        # A module that trains, and asks which process it is, another one starts in several.
        bool(kinds & _TOGETHER) or {"asks", "backward"} <= kinds,
        list(run.unknown_modules),
        _not_entered(run, run.left_out),
        {(path, getattr(test, "lineno", 0)) for test, path in run.agreed.items() if path},
        _not_entered(run, run.not_reached),
        {move: run.moved.unplaced.get(move) for move in run.moved.come_to},
    )


def _is_loss(one: Obligation) -> bool:
    return one.demand == "loss"


def _of_whole_batches(one: Obligation, whole: Validation) -> Obligation:
    """What is known of a loss of a share of a batch: a mean of something of each row is the mean over the shares of
    their means, too, and a loss that is none of a whole batch is none of a share. Where rows lie is followed in whole
    batches."""
    other = next((other for other in whole.obligations if other.site == one.site), None)
    if other is None or not _is_loss(one):
        return one
    return replace(one, status=other.status, found=other.found, reason=other.reason)


def _not_entered(run: Run, statements: Mapping[ast.stmt, str]) -> list[tuple[str, int, int]]:
    """The places of those statements that another way through the script does not come to either."""
    return [
        (path, stmt.lineno, stmt.end_lineno or stmt.lineno)
        for stmt, path in statements.items()
        if stmt not in run.entered
    ]


def _is_alone(events: list[Event]) -> bool:
    """Whether every process group that is made is one of one process."""
    made = [event for event in events if event.kind == "joins" and event.name == "init_process_group"]
    return bool(made) and all(event.detail == ALONE for event in made)


def _come_to(events: list[Event]) -> list[Event]:
    """Events without those of ways that no process goes, where another way reaches the same place: a function that the
    main process calls in one branch and the others in another asks within which of them it is in."""
    met = {event.node for event in events if not is_of_nobody(event)}
    return [event for event in events if not (is_of_nobody(event) and event.node in met)]


def _asking(events: list[Event]) -> list[str]:
    """By what the script can ask at each event which process it is: its Accelerator, where it is made in the same
    module and before; a state, which any module may ask for; its process group, if that is not still to be joined."""
    first = {
        name: next((number for number, one in enumerate(events) if one.name == name), len(events))
        for name in ("Accelerator", "init_process_group")
    }
    places = {event.module.path for event in events if event.name == "Accelerator"}
    if places:
        known = (event.module.path in places and n > first["Accelerator"] for n, event in enumerate(events))
        return ["accelerator" if one else "state" for one in known]
    if any(event.kind == "accelerator" for event in events):
        return ["state"] * len(events)
    begins = first["init_process_group"]
    called = next((number for number, one in enumerate(events) if one.kind == "entry"), len(events))
    return ["early" if n < begins < called else "group" for n in range(len(events))]


def _is_spawned(event: Event) -> bool:
    return any(guard.kind == SPAWNED for guard in event.guards)


def _puts_together(event: Event) -> bool:
    return event.kind == "collective" and event.name.rpartition(".")[2] in _PUTTING_TOGETHER
