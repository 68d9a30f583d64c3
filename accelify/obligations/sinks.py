"""What each kind of event of an abstract run requires of its values and of the way to it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from accelify.domains.placement import BEFORE, CARRIED, COUNTED, SAMPLE, Kind, Placement, own, same
from accelify.domains.reasons import Reason
from accelify.heap.containers import array_of
from accelify.heap.host_reads import READ
from accelify.heap.paths import is_temporary
from accelify.heap.run import Event
from accelify.heap.values import DEVICE, HOST, MADE_HERE, Container, Instance, Value
from accelify.heap.wrapped_weights import WRAPPED_WEIGHTS
from accelify.obligations.error_messages import is_of_caught_error
from accelify.obligations.obligation import BY_HAND, Obligation, Status
from accelify.obligations.ordering import is_sought
from accelify.obligations.placed_parts import places
from accelify.obligations.runs import by_own_count, has_own_runtime, whole_loop
from accelify.obligations.unread_library_paths import writes_below
from accelify.obligations.weighted_losses import is_weighed, way_out

_SHOWN = frozenset({"terminal.write", "log.write", "bar.show", "tracker.log", "figure.show"})
_BUFFERS = frozenset({"io.BytesIO", "io.StringIO"})
_LOGGED = frozenset({"log.write", "tracker.log"})
_WRITTEN = frozenset({"file.write", "file.append", "folder.fill", "network.send"})
SHOWING = _SHOWN | _WRITTEN
_ONCE = frozenset(
    "network.get folder.delete file.delete file.move tracker.start tracker.end process.run wait.input "
    "search.run".split()
)
# What may be done by all, after the main process has done it.
_FIRST = frozenset({"network.get", "folder.make"})
UNKNOWN_LOSS = "the loss is not what it would be on a single process"
# Of figures that are put together from all ranks and go through more than the algebra follows.
TAKEN = "the same on every rank, taken for that of a single process"
_MEETING = frozenset({"collective", "backward", "step"})
# What would have helped where a value comes from a rank's rows, and from nothing else that it has by itself.
_OF_SHARES = frozenset({"put together first", "gathered first", "gathered before"})
# What a condition asks for more with than the rank.
_JOINED = re.compile(r"\b(?:and|or|is)\b")
_MOST_WRITTEN, _LONGEST_NAME = 100, 48
_OF_ALL = "if it is to count those of all, multiply it by `accelerator.num_processes`"
_OWN_ROUNDS = "the schedule counts the rounds of each process, 1/N of those of a single process"
_OF_OTHER_ROUNDS = {
    COUNTED: "the loss goes with a count of the rounds of each process, 1/N of those of a single process",
    CARRIED: "the loss goes with what each process's round before left, on a single process that of another batch",
}
_BY_ITSELF = {"search.run": "chooses the settings of its trainings on every process by itself"}
_OF_STATE = "`{}` gets another value on each rank, and they train other models from then on"
# The wrapper gives all processes the main one's buffers in each forward pass.
_OF_BUFFERS = (
    "`{}` gets what each process's batch gives, and from the next forward pass on all have the main process's: what "
    "the others wrote is lost; gather or reduce what is written first: `accelerator.gather(...)`"
)
_PLACES = {
    HOST: "`{}` gets a batch on the host, of a loader that is not prepared: the model is on the device; prepare it",
    MADE_HERE: "`{}` gets a tensor that is made on the host, and prepare has put the model on the device",
    DEVICE: "`{}` gets a batch on the device, where prepare has put it, and the model was sent to the host",
    READ: "`{}` reads a tensor on the host, which lies on the device; take it there first: .cpu()",
}
TIMES = "N times what it would be on a single process"
WARNS = "warns in every process"
MISSED = "where not all ranks come"
# Of which batches a figure is that is shown where it is right on one process alone.
SHARES = (
    INSIDE := "inside the training loop, of the main process's own batches",
    OUTSIDE := "after the loop over batches, of one batch, that of the main process",
    TOGETHER := "after the loop over batches, of one batch of each process, N times as large",
    STEPS := "as counts of steps: on N processes each makes 1/N of the steps",
)
_WORDS = {
    "terminal.write": "printed",
    "log.write": "logged",
    "bar.show": "shown in a bar",
    "tracker.log": "logged to a tracker",
    "figure.show": "drawn",
    "file.write": "written to a file",
    "file.append": "appended to a file",
    "network.send": "sent",
}


def obligations_of(event: Event, events: Sequence[Event] = ()) -> Iterator[Obligation]:
    """What one event requires, each with what was found.

    Args:
        event: of the abstract run.
        events: all of them.
    """
    if event.kind in _LOGGED and not event.shown and event.path is None:
        return  # nothing is logged: `x.log()` of what is not known
    in_memory = event.path is not None and any(ref.type in _BUFFERS for ref in event.path.of(Instance))
    if in_memory or (is_temporary(event.path) and event.kind != "file.read"):
        return  # each process has its own
    if is_of_caught_error(event):
        return
    if event.kind in SHOWING:
        yield _once(event)
        yield from _content(event, events)
        if event.path is not None:
            yield _path(event)
        if event.kind in _WRITTEN:
            yield from _wrapped(event, events)
    elif event.kind in _ONCE or (event.kind == "folder.make" and not _exists_ok(event)):
        yield _once(event)
    elif event.kind == "file.handed":
        yield from [_once(event)] if writes_below(event, events) else ()
    elif event.path is not None and (event.kind == "folder.make" or is_sought(event, events)):
        yield _path(event)
    elif event.kind == "leave":
        why = event.guards[-1].why if event.guards[-1].parts_ranks else None  # the last is within the loop
        if event.detail == "counted":
            text = "a loop ends by a number of rounds, which each of N processes makes, N times as much work in all"
            yield made(event, "rounds", Status.NAMED, text, event.guards[-1].why)
        elif why is not None:
            yield made(event, "all ranks", Status.NAMED, "some ranks leave a loop in which all meet", why)
    elif event.kind in _MEETING:
        yield _meeting(event)
        if event.kind == "step" and (counted := by_own_count(event)) is not None:
            text = "an optimizer steps by a count of the rounds of each process, 1/N of those of a single one"
            yield made(event, "rounds", Status.NAMED, text, counted)
        if event.kind == "step" and event.detail == "bare":
            text = (
                "the model that is trained has no wrapper that averages gradients: each process trains alone"
            )
            yield made(event, "prepared", Status.NAMED, text)
        if event.kind == "backward":
            yield from _losses(event, events)
        yield from _as_often(event)
    elif event.kind == "state.write":
        yield _state(event)
    elif event.kind == "misuse":
        why = event.shown[0].why if event.shown else None
        yield made(event, event.detail, Status.NAMED, event.name, why)
    elif event.kind == "divide":
        text = "divides by a whole part of the rounds of each process, which is 0 where a process has few of them"
        yield made(event, "rounds", Status.NAMED, text, event.shown[0].why)
    elif event.kind == "draw" and event.in_training:
        text = "as many rounds on each process as on a single one, each of a batch that no other process has"
        why = event.shown[0].why if event.shown else None
        yield made(event, "rounds", Status.NAMED, text, why)
    elif event.kind == "forward":
        guard = next((guard for guard in event.guards if guard.kind in ("main", "one", "others")), None)
        if guard is not None:
            text = f"`{event.name}` is called on some processes: a wrapper around it may wait for the others"
            yield made(event, "all ranks", Status.NAMED, text, guard.why)
    elif event.kind == "together":
        text = _PLACES.get(event.detail) or (
            f"`{event.name}` joins a tensor on the host with one on the device, which prepare has put there"
        )
        text = text.replace("{}", event.name)
        yield made(event, "one device", Status.NAMED, text, event.shown[0].why)
    elif event.kind == "schedule":
        yield _meeting(event)
        yield from _steered(event)
        if event.detail == "plain" and event.shared:
            yield made(event, "rounds", Status.NAMED, _OWN_ROUNDS)
        elif event.detail == "fast" and event.shared:
            text = "the schedule's length is in rounds of each process, and each round takes a step for every process"
            yield made(event, "rounds", Status.NAMED, text)


def is_made_whole(event: Event, events: Sequence[Event]) -> bool:
    """Whether a schedule counts the rounds of a loop that ends by such a count: it makes all its steps."""
    around = {loop.number for loop in event.loops}
    return event.kind in ("schedule", "state.write") and any(
        other.kind == "leave" and other.detail == "counted" and id(other.node) in around for other in events
    )


def is_parted(event: Event) -> bool:
    """Whether it is a backward pass whose gradients are others on each rank."""
    return event.kind == "backward" and any(not array_of(value).is_same for value in event.shown[:1])


def made(
    event: Event, demand: str, status: Status, found: str = "", reason: Reason | None = None
) -> Obligation:
    """How a demand at an event stands."""
    column = getattr(event.node, "col_offset", 0) + 1
    path, line = event.module.path, event.line
    return Obligation(event.kind, demand, path, line, column, status, found, reason, event.via)


def _steered(event: Event) -> Iterator[Obligation]:
    """A schedule that is stepped with a figure: it has to be one figure on all ranks."""
    for value in event.shown[:1]:
        if event.detail == "prepared" and event.shared and _is_counted(array_of(value), value.why):
            yield made(event, "rounds", Status.NAMED, _OWN_ROUNDS, value.why)
        if array_of(value).is_uniform:
            yield made(event, "same", Status.PROVED)
        else:
            yield made(
                event, "same", Status.NAMED, "what steers the schedule differs between ranks", value.why
            )


def _once(event: Event) -> Obligation:
    kinds = {guard.kind for guard in event.guards}
    if is_of_nobody(event):
        return made(event, "once", Status.NAMED, f"`{_called(event)}` is done by no process")
    bar = event.kind == "bar.show" and event.detail != "made"
    # A tracker that is given no folder writes into one of its own.
    if event.path is not None and event.path.place.kind is Kind.MAIN and event.kind[:8] != "tracker.":
        return made(event, "once", Status.PROVED)
    if kinds & {"main", "one"} or bar or ("first" in kinds and (event.kind in _FIRST or "missing" in kinds)):
        return made(event, "once", Status.PROVED)
    done = _BY_ITSELF.get(event.kind, "is done by every process")
    if event.name == "warnings.warn" or event.detail == "loud":
        done = WARNS
    return made(event, "once", Status.NAMED, f"`{_called(event)}` {done}")


def is_of_nobody(event: Event) -> bool:
    """Whether it is on a way that is the main process's and that of the others: of a condition that asks for more than
    the rank, the main process may go the other way, too."""
    kinds = {
        guard.kind
        for guard in event.guards
        if guard.kind == "main" or not any(map(_JOINED.search, (one.text for one in guard.why.chain())))
    }
    return {"main", "others"} <= kinds


def _called(event: Event) -> str:
    name = event.name.removeprefix("builtins.")
    if "." in name or not isinstance(event.node, ast.Call) or isinstance(event.node.func, ast.Name):
        return name
    text = ast.unparse(event.node.func)
    return text if len(text) <= _LONGEST_NAME else name


def _exists_ok(event: Event) -> bool:
    node = event.node
    keywords = node.keywords if isinstance(node, ast.Call) else []
    return any(
        word.arg == "exist_ok" and isinstance(word.value, ast.Constant) and word.value.value
        for word in keywords
    )


def is_of_loop_before(event: Event, why: Reason | None, events: Sequence[Event]) -> bool:
    """Whether a figure comes from another loop over batches than those around it, which has been gone through."""
    origin = why.origin() if why is not None else None
    place = (origin.path, origin.line) if origin is not None else None
    adds_up = any(loop.steps for loop in event.loops)  # the batches that a step adds up are of its round
    loops = (loop for other in events for loop in other.loops if loop.place == place)
    return place not in {loop.place for loop in event.loops} and any(
        loop.shared or loop.trains for loop in loops if loop.steps or not (adds_up and loop.trains)
    )


def _content(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    of_main = any(guard.kind == "main" for guard in event.guards)
    divergent = next(
        (
            guard.why
            for guard in event.guards
            if guard.kind == "divergent" and not (of_main and guard.place.kind is Kind.CLOCK)
        ),
        None,
    )
    nothing: tuple[Status, str, Reason | None] = (Status.PROVED, "", None)
    found = [_shown(event, *pair, events) for value in event.shown for pair in places(value)]
    worst = max([nothing, *found], key=_order)
    if divergent is not None and worst[0] in (Status.PROVED, Status.ASSUMED):
        status, where = (Status.LOOP, INSIDE) if event.in_training else (Status.NAMED, MISSED)
        worst = status, f"{word_of(event)} {where}", divergent
    yield made(event, "content", *worst)
    if worst[0] is Status.LOOP:
        # Of figures beside each other, each is of batches of its own.
        others = {text: why for status, text, why in found if status is Status.LOOP and text != worst[1]}
        for part, (text, why) in enumerate(others.items(), 1):
            yield replace(made(event, "content", Status.LOOP, text, why), part=part)


def word_of(event: Event) -> str:
    """What an event does with what it shows, as a participle."""
    return _WORDS.get(event.kind, event.kind)


def _order(found: tuple[Status, str, Reason | None]) -> float:
    return list(Status).index(found[0]) - found[1].endswith(": a time") * 1.5  # it hides no figure beside it


def _shown(
    event: Event, place: Placement, why: Reason | None, events: Sequence[Event]
) -> tuple[Status, str, Reason | None]:
    words = word_of(event)
    if place.kind is Kind.CLOCK and (place.degree != 0 or place.form):
        place = Placement(Kind.ROUND) if place.form else same(place.degree)  # what stands beside it
    if place.kind is Kind.SAME and place.degree == 0 and place.phase != BEFORE:
        return Status.PROVED, "", None
    if place.kind is Kind.CLOCK:
        return Status.ASSUMED, f"{words}: a time", why
    if place.kind is Kind.MAIN or place == SAMPLE:
        return Status.PROVED, "", None
    if place == own("broadcast"):
        return Status.ASSUMED, f"{words}: as good as that of any run, from the main process", why
    whole = place.kind is Kind.LINEAR and not place.phase and is_of_loop_before(event, why, events)
    if (
        event.in_training
        and not whole
        and (
            place.phase
            or place.kind in (Kind.ROUND, Kind.WIDE, Kind.LINEAR, Kind.SAME, Kind.SHARD)
            or (place.kind is Kind.OWN and (event.kind in _SHOWN or place.needs in _OF_SHARES))
        )
    ):
        return Status.LOOP, f"{words} {INSIDE}", why
    if place.kind in (Kind.ROUND, Kind.WIDE) and place.degree is not None:
        return Status.LOOP, f"{words} {TOGETHER if place.kind is Kind.WIDE else OUTSIDE}", why
    if place.is_uniform and place.degree is None and why is not None and why.goes_by_data:
        return Status.ASSUMED, f"{words}: {TAKEN}", why
    if place.kind is Kind.SAME and place.degree in (1, None) and why is not None and why.counts_rounds:
        return Status.LOOP, f"{words} {STEPS}", why
    return Status.NAMED, f"{words}: {_what(place)}", why


def _what(place: Placement) -> str:
    if place.kind is Kind.LINEAR:
        return "of the main process's share; take its sum or mean over the ranks (reduce)"
    if place.kind is Kind.SAME and place.degree == 1:
        return f"counts the rounds of each process, 1/N of those of a single process; {_OF_ALL}"
    if place.kind is Kind.SAME and place.degree == -1:
        return TIMES
    if place.kind is Kind.SHARD:
        return "of the main process's share of the rows"
    if place.kind is Kind.EXTREME:
        return "the main process's largest or smallest, not that of all"
    return f"not what it would be on a single process{_unless(place)}"


def _unless(place: Placement) -> str:
    return f", unless it is {place.needs}" if place.kind is Kind.OWN and place.needs else ""


def _wrapped(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """Whole models that are written: prepared, they are written with the wrapper."""
    waiting, seen = list(event.shown), 0
    while waiting and seen < _MOST_WRITTEN:
        value, seen = waiting.pop(), seen + 1
        if value.type == WRAPPED_WEIGHTS:
            text = "the weights are written with the names of the wrapper around the model (`module.` before each)"
            yield made(event, "unwrapped", Status.NAMED, text)
            return
        if any(ref.kind == "module" and ref.prepared for ref in value.of(Instance)):
            if not has_own_runtime(event, events):
                yield made(
                    event, "unwrapped", Status.NAMED, "the model is written with the wrapper around it"
                )
            return
        waiting += [
            inner for ref in value.of(Container) for name, inner in ref.fields.items() if name.startswith("[")
        ]


def _what_of_round(exponent: int | None) -> str:
    if exponent == 1:
        return "a sum of its rows, and the gradients are averaged over the ranks"
    return f"that of a single process but for the number of ranks to the power of {exponent}"


def _path(event: Event) -> Obligation:
    assert event.path is not None
    place = array_of(event.path)
    if place.kind is Kind.CLOCK:
        if any(guard.kind == "main" for guard in event.guards):
            return made(event, "path", Status.ASSUMED, "a name by the clock", event.path.why)
        text = "a name by the clock, which can differ between ranks"
        return made(event, "path", Status.NAMED, text, event.path.why)
    if place.is_uniform or place.kind in (Kind.MAIN, Kind.ROUND, Kind.LINEAR):
        return made(event, "path", Status.PROVED)
    return made(event, "path", Status.NAMED, "the path differs between ranks", event.path.why)


def _meeting(event: Event) -> Obligation:
    guard = next((guard for guard in event.guards if guard.parts_ranks), None)
    if guard is None:
        return made(event, "all ranks", Status.PROVED)
    text = f"`{event.name}` is not reached by all ranks{guard.left and f', as some leave by {guard.left}'}"
    return made(event, "all ranks", Status.NAMED, text, guard.why)


def _as_often(event: Event) -> Iterator[Obligation]:
    """Meetings in loops of which ranks can go through more rounds, or all through fewer samples than the original."""
    uneven = next((loop.uneven for loop in event.loops if loop.uneven is not None), None)
    if uneven is not None:
        text = f"some ranks may come to `{event.name}` more often than others, which wait"
        yield made(event, "rounds", Status.NAMED, text, uneven)
    fewer = event.loops[-1].fewer if event.loops and event.kind == "collective" else None
    if fewer is not None and not event.loops[-1].trains:
        text = "this evaluation covers fewer samples than on a single process"
        yield made(event, "rounds", Status.NAMED, text, fewer)


def _state(event: Event) -> Obligation:
    """What is trained with stays the same on all ranks: what is written to it is, and all write it."""
    guard = next((guard for guard in event.guards if guard.kind == "divergent"), None)
    if guard is not None:
        text = f"`{event.name}` is done on some ranks only, which train another model from then on"
        return made(event, "same", Status.NAMED, text, guard.why)
    guard = next((guard for guard in event.guards if guard.kind in ("main", "others")), None)
    if event.detail in ("setting", "in each round") and guard is not None:
        text = f"`{event.name}` is done on some ranks only (line {guard.why.line}), which make other steps from then on"
        return made(event, "same", Status.NAMED, text)
    if event.detail == "mode":
        text = f"`{event.name}` is in another mode on the main process than on the others"
        return made(event, "same", Status.NAMED, text, event.shown[0].why)
    if event.detail == "shared out":
        text = f"the ranks share out `{event.name}`, whose data or order are others on each"
        return made(event, "same", Status.NAMED, text, event.shown[0].why)
    if event.detail == "made again":
        text = f"`{event.name}` gives a prepared model new parameters, whose gradients no Accelerator reduces"
        return made(event, "same", Status.NAMED, text)
    if event.detail == "in each round":
        text = f"each round changes `{event.name}`, and each process makes 1/N of those of a single process"
        return made(event, "rounds", Status.NAMED, text)
    guard = next((guard for guard in event.guards if guard.kind == "counted"), None)
    if event.detail == "setting" and guard is not None:
        return made(event, "rounds", Status.NAMED, _of_counts(event), guard.why)
    for value in event.shown:
        for place, why in places(value):
            if not place.is_uniform:
                text = (_OF_BUFFERS if event.detail == "buffer" else _OF_STATE).format(event.name)
                return made(event, "same", Status.NAMED, text, why)
            if event.detail == "setting" and _is_counted(place, why):
                return made(event, "rounds", Status.NAMED, _of_counts(event), why)
        if any(ref.kind == "loader" and ref.prepared for ref in value.of(Instance)):
            text = f"`{event.name}` goes through the main process's share of a loader"
            return made(event, "same", Status.NAMED, text, value.why)
    by_hand = event.detail == "by hand" or event.name == "update_parameters"
    return made(event, "same", Status.PROVED, BY_HAND * (event.shared and by_hand))


def _of_counts(event: Event) -> str:
    return f"`{event.name}` follows a count of the rounds of each process, 1/N of those of a single process"


def _is_counted(place: Placement, why: Reason | None) -> bool:
    """Whether a value is the same on all ranks and goes by how many rounds each has made."""
    return place.kind is Kind.SAME and place.degree != 0 and not (why is not None and why.goes_by_data)


def _losses(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What is trained goes with as many rounds as in the original, and with the batch as the gradients do."""
    one, value = _loss(event, events), event.shown[0] if event.shown else Value()
    place = array_of(value)
    if one.demand == "loss" and place.kind is Kind.ROUND and place.needs in _OF_OTHER_ROUNDS:
        # A state of the round before makes rows of more than this batch's, which is the same cause.
        apart = place.needs == COUNTED and (place.mixed or place.samples not in (0, None))
        why = None if value.why is None or (place.mixed and apart) else value.why.by_count()
        yield made(event, "rounds", Status.NAMED, _OF_OTHER_ROUNDS[place.needs], why)
        if not apart:
            return
    yield one


def _loss(event: Event, events: Sequence[Event]) -> Obligation:
    value = event.shown[0] if event.shown else Value()
    place = array_of(value)
    if event.detail == "plain" and not place.is_same:
        text = "gradients are not averaged over the ranks: a plain backward"
        return made(event, "loss", Status.NAMED, text, value.why)
    whole = whole_loop(event)
    if whole is not None and (place.kind is Kind.SAME or whole.shared):
        return made(event, "loss", Status.NAMED, "all processes train on the same samples", whole.whole)
    summed = event.detail == "sum"
    exponent = None if place.samples is None else place.samples + (place.degree or 0)
    if place.kind is Kind.ROUND and place.mixed:
        if is_weighed(event):
            return made(
                event, "loss", Status.ASSUMED, "taken for a mean by what `weight=` is given", value.why
            )
        text = "the loss is neither the mean nor the sum of something of each row of its batch"
        return made(event, "loss", Status.NAMED, text + way_out(event, events, value.why), value.why)
    if place.kind is Kind.ROUND and exponent is None:
        return made(event, "loss", Status.ASSUMED, "taken for a mean or a sum of its rows", value.why)
    if place.kind is Kind.ROUND and exponent != int(summed):
        text = (
            "a mean of its rows, and the gradients are summed over the ranks"
            if summed
            else _what_of_round(exponent)
        )
        return made(event, "loss", Status.NAMED, f"the loss is {text}", value.why)
    if place.is_same and summed:
        text = (
            "the loss is that of a single process on every rank, and the gradients are summed over the ranks"
        )
        return made(event, "loss", Status.NAMED, text, value.why)
    if place.kind in (Kind.ROUND, Kind.SAME) or (place.kind is Kind.LINEAR and place.degree == int(summed)):
        return made(event, "loss", Status.PROVED)
    found = f"{UNKNOWN_LOSS}{_unless(place)}" if place.kind is Kind.OWN else f"the loss is {_what(place)}"
    return made(event, "loss", Status.NAMED, found, value.why)
