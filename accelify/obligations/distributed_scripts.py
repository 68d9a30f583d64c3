"""What a script requires that is written for several processes: there is no original to be equal to, but what one
process does alone, or has of its share alone, is wrong all the same."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

from accelify.domains.placement import Kind, Placement, own
from accelify.domains.reasons import Reason
from accelify.heap.containers import array_of
from accelify.heap.engines import SAVES_ALONE
from accelify.heap.handlers import FAILS
from accelify.heap.random_draws import DRAWS
from accelify.heap.run import Event
from accelify.heap.values import Value
from accelify.obligations.branches_by_rank import are_crossed, are_met, called_with, is_on_both_ways
from accelify.obligations.drawn_batches import is_added_up_before, is_of_evaluation, is_total, whole_of
from accelify.obligations.error_messages import MESSAGES, ends_by_error, is_of_error, is_of_failing
from accelify.obligations.hazards import are_without_training, goes_into_training, hazards_of
from accelify.obligations.input_gradients import is_for_input
from accelify.obligations.left_groups import after_leaving
from accelify.obligations.loaded_weights import is_of_no_device
from accelify.obligations.missing_steps import of_gradients
from accelify.obligations.obligation import Obligation, Status
from accelify.obligations.ordering import is_handle, is_there_already
from accelify.obligations.padded_shares import gathered
from accelify.obligations.past_wrappers import is_averaged_by_hand, is_trained_in, unprepared
from accelify.obligations.placed_parts import places
from accelify.obligations.rank_labels import (
    RANK,
    SHARE,
    fills_environment,
    is_alone,
    is_by_rank,
    is_of_no_data,
    names_rank,
    says_who,
    shows_rank,
)
from accelify.obligations.runs import has_accelerator, is_within_step
from accelify.obligations.sample_messages import is_of_own_sample
from accelify.obligations.sampler_epochs import numbered
from accelify.obligations.schedules import cut_short, scheduled, stepped
from accelify.obligations.sinks import is_of_loop_before, is_of_nobody, made, obligations_of, word_of

# Demands that are the same with and without an original.
_ALIKE = frozenset({"once", "path", "all ranks", "same", "unwrapped", "one device", "let go", "accumulated"})
_OF_EFFECTS = frozenset({"once", "content", "path"})
# How a reason begins that says that data differ.
_APART = "the ranks share out"
# What one says of what split_between_processes gives.
_OWN_ITEMS = "this rank's share"
# How one says that a batch is of one process.
_BATCH = "this rank's batch of"
_TOGETHER = frozenset({"gathered", "broadcast"})
_PUT_TOGETHER = "put it together over the processes first (gather, reduce)"
_OVER_OTHERS = (
    "every process writes its share to this file, over those of the others; put the rank into its name, or gather the "
    "shares first"
)
_DRAW_ALIKE = "let all processes draw the same data first, with one seed"
_DECIDED = "decided by all ranks together"
_MIXED = "mixes rows of the batch"
# What weighs the figures of the rounds.
_COUNTS = ("counts samples", "the number of processes")
_MOST_STEPS = 100
_OF_ANOTHER = "the optimizer steps parameters of another object than the model that is trained"
_SAME_NOISE = (
    "all processes draw the same numbers, each for other rows of the batch; add the rank to the seed"
)
_OVERLAP = (
    "the processes share out rows that each has put in another order: some are trained with several times, others "
    "never; draw it with one seed"
)
_FINE = frozenset({Kind.MAIN, Kind.CLOCK})
# What asks whether a number is one.
_BROKEN = re.compile(r"\bis_?(?:nan|inf|finite)\(")
# What starts the processes themselves.
_LAUNCHERS = ("torch.multiprocessing.", "torch.distributed.", "multiprocessing.")


def checked_obligations_of(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """What one event requires, each with what was found.

    Args:
        event: of a script that is written for several processes.
        events: all of the script.
    """
    if is_within_step(event, events):
        return  # it is named where the step is taken
    yield from hazards_of(event, events)
    yield from after_leaving(event)
    if event.kind == "misuse":
        unscaled = event.detail == "beside" and "clip_grad" in event.name and _are_unscaled(event, events)
        if not (unscaled or (event.detail == "device" and is_of_no_device(event, events))):
            yield from obligations_of(event)
    elif event.kind == "gather":
        yield from gathered(event)
    elif event.kind == "sampler":
        again = _passes_again(events) or any(loop.trains for loop in event.loops)  # one for each pass
        if not event.detail and again and not numbered(event, events):
            text = (
                "the sampler shuffles alike in every epoch; call `sampler.set_epoch(epoch)` before each pass "
                "through the loader"
            )
            yield made(event, "epoch", Status.NAMED, text)
    elif event.kind == "epochs":
        yield from cut_short(event, events)
    elif event.kind == "drawn alike":
        if event.loops and event.loops[-1].trains and not _is_of_one(event):
            seeds = [other for other in events if other.kind == "seeded"][:1]
            why = next((Reason(f"`{one.name}`", one.module.path, one.line) for one in seeds), None)
            yield made(event, "loss", Status.NAMED, _SAME_NOISE, why)
    elif event.kind in ("forward", "backward") and is_for_input(event, events):
        return
    elif event.kind == "forward":
        yield from unprepared(event, events) if event.detail else ()
    else:
        if event.kind == "step":
            yield from stepped(event, events)
        if event.kind == "schedule":
            yield from scheduled(event, events)
        for one in obligations_of(event, events):
            yield from _checked(event, one, events)
        yield from _further_causes(event)


def _checked(event: Event, one: Obligation, events: Sequence[Event]) -> Iterator[Obligation]:
    """An obligation of a converted script, as one of a script without an original."""
    if event.module.copied and one.demand in _OF_EFFECTS:
        return  # what a library does by itself, as an installed one would
    if one.demand in _OF_EFFECTS and _is_of_own_file(event):
        if one.demand != "once" or not _is_named_by_figure(event):
            return
    if one.demand == "path" and (event.path is None or _is_of_some(event, events) or is_handle(event)):
        return  # another process's is of no account; an open file was named where it was opened
    if one.sink == "state.write" and one.demand == "same":
        if (
            not goes_into_training(event, events)
            or _is_taken_back(event, one)
            or are_without_training(event, events)
        ):
            return
        one = of_gradients(one, events)
    if one.demand == "content":
        if _is_of_one(event) or not _writes_shares(event):
            yield from _content(event, events)
    elif one.demand == "loss":
        yield from _loss(event, one, events)
    elif one.demand == "once":
        # A rank in what is written says no more than who was the last to write the file.
        says = not _writes_one_file(event) and shows_rank(event, events)
        known = _is_shared_out(event) or says or _is_of_own_batch(event)
        fails = event.kind in (*MESSAGES, "file.write") and event.loops and ends_by_error(event, events)
        known = (
            known or fails or is_of_error(event) or _is_of_others(event, events) or _ends_none(event, events)
        )
        known = known or is_of_own_sample(event, events) or fills_environment(event)
        known = known or is_there_already(event, events)
        if not (known or event.name.startswith(_LAUNCHERS)):
            yield replace(one, found=_OVER_OTHERS) if one.found and _writes_shares(event) else one
    elif one.demand == "all ranks" and is_on_both_ways(event, events):
        yield replace(one, status=Status.PROVED, found="", reason=None)
    elif one.sink == "collective" and event.name.endswith(".save_state") and _is_of_one(event):
        yield _saved_by_main(event, one)
    elif one.sink == "collective" and one.demand == "all ranks":
        yield _met_by_the_others(event, one, events)
    elif one.sink == "leave" and one.demand == "all ranks" and one.reason is not None:
        text = f"some ranks leave the loop of line {one.line}, in which all meet"
        here = one.reason.path == one.path
        yield replace(one, found=text, line=one.reason.line, column=1) if here else replace(one, found=text)
    elif one.demand == "prepared":
        # One that puts gradients together by hand has no need of it.
        if not is_averaged_by_hand(event, events):
            trains = event.detail == "bare" and is_trained_in(event, events)
            yield replace(one, found=_OF_ANOTHER) if trains else one
    elif one.demand in _ALIKE or (one.demand == "rounds" and one.sink in ("collective", "backward", "step")):
        if one.demand != "rounds" or "more often than others" in one.found:
            yield one


def _saved_by_main(event: Event, one: Obligation) -> Obligation:
    """A state that the main process alone saves: of models that each process has whole it needs no other one."""
    if event.detail != SAVES_ALONE:
        return replace(
            one, found=f"`{event.name}` is called by the main process alone, which waits for the others there"
        )
    text = (
        "is called by the main process alone, without the random states of the others, and with DeepSpeed or FSDP it "
        "would wait for them; let all processes call it"
    )
    why = next(guard.why for guard in event.guards if guard.kind in ("main", "one"))
    return replace(one, demand="saved", found=f"`{event.name}` {text}", reason=why)


def _passes_again(events: Sequence[Event]) -> bool:
    """Whether the script goes through its data more than once: it trains in a loop within another one."""
    return any(event.kind == "backward" and len(event.loops) > 1 for event in events)


def _is_taken_back(event: Event, one: Obligation) -> bool:
    """Whether the main process writes what it has taken under the same condition: weights that it had changed."""
    last = one.reason.steps()[-1] if one.reason is not None else None
    return last is not None and any(
        guard.kind == "main" and (guard.why.path, guard.why.line) == (last.path, last.line)
        for guard in event.guards
    )


def _are_unscaled(event: Event, events: Sequence[Event]) -> bool:
    """Whether the script takes the loss scale off the gradients in the same loop."""
    return any(other.kind == "unscaled" and other.loops[-1:] == event.loops[-1:] for other in events)


def _is_of_own_file(event: Event) -> bool:
    """Whether each process writes a file of its own, by its rank or by what it has alone; a figure of a tracker, by its
    rank, as its name is no file."""
    place, why = (array_of(event.path), event.path.why) if event.path is not None else (None, None)
    if event.kind == "tracker.log" and not (
        why is not None and any(step.text == RANK for step in why.chain())
    ):
        return False
    return place is not None and not place.is_uniform and place.kind not in _FINE


def _writes_one_file(event: Event) -> bool:
    """Whether all processes write what they have to one file, in place of what was there."""
    return event.kind == "file.write" and event.path is not None and event.path.place.is_uniform


def _writes_shares(event: Event) -> bool:
    """Whether each process writes its share of what they have shared out among them."""
    found = [pair for value in event.shown for pair in places(value)] if event.kind == "file.write" else []
    return any(
        place.kind is Kind.SHARD or (why is not None and why.steps()[-1].text == _OWN_ITEMS)
        for place, why in found
    )


def _is_named_by_figure(event: Event) -> bool:
    """Whether what all processes have alike is written under a name by a figure of one share: `f"{loss}.pt"`."""
    place, why = (array_of(event.path), event.path.why) if event.path is not None else (None, None)
    figure = place is not None and place.kind in (Kind.ROUND, Kind.LINEAR, Kind.EXTREME) and not place.rows
    of_rank = why is not None and any(step.text == RANK for step in why.chain())
    return figure and not of_rank and bool(event.shown) and all(map(_is_same, event.shown))


def _is_same(value: Value) -> bool:
    return all(place.is_same for place, _ in places(value))


def _further_causes(event: Event) -> Iterator[Obligation]:
    """Further conditions that keep ranks from a meeting, each where it stands."""
    if event.kind not in ("backward", "step", "collective"):
        return
    if event.detail == SAVES_ALONE and _is_of_one(event):
        return
    causes = [guard.why for guard in event.guards if guard.parts_ranks and guard.why is not None]
    for why in causes[1:]:
        # A condition that is another on some ranks for the first cause is right once that is.
        made_by = {(step.line, step.text) for step in why.steps()}
        if why.path == event.module.path and (causes[0].line, causes[0].text) not in made_by:
            text = f"`{event.name}` is not reached by all ranks"
            one = made(event, "all ranks", Status.NAMED, text, why)
            yield replace(one, line=why.line, column=1)


def _met_by_the_others(event: Event, one: Obligation, events: Sequence[Event]) -> Obligation:
    """A collective of one branch, where the main process goes one way and the others another: they meet all the same
    where each reaches the same ones in the same order."""
    of: dict[str, list[Event]] = {"main": [], "others": []}
    if not {guard.kind for guard in event.guards} & of.keys():
        return one
    for other in events:
        kinds = {guard.kind for guard in other.guards} & of.keys() if other.kind == "collective" else set()
        if len(kinds) == 1:
            of[kinds.pop()].append(other)
    main, others = ([each.name for each in of[way]] for way in of)
    if main == others and are_crossed(of["main"], of["others"]):
        main, others = ([called_with(each) for each in of[way]] for way in of)
    if main == others:
        return replace(one, status=Status.PROVED, found="", reason=None)
    if sorted(main) == sorted(others):
        one_name, other_name = next(pair for pair in zip(main, others, strict=True) if len({*pair}) > 1)
        text = f"the main process reaches `{one_name}` first and the others `{other_name}`"
        return replace(one, found=f"{text}; call them in one order")
    own, theirs = (of[way] for way in (("main", "others") if event in of["main"] else ("others", "main")))
    return replace(one, status=Status.PROVED, found="", reason=None) if are_met(event, own, theirs) else one


def _is_of_own_batch(event: Event) -> bool:
    """Whether it is a message of the process alone whose batch asks for it: `if loss.isnan(): print("NaN")`."""
    lines = {
        guard.why.line
        for guard in event.guards
        if guard.kind == "divergent"
        and (guard.place.kind is Kind.ROUND or _BROKEN.search(guard.why.text))
        and guard.why.path == event.module.path
    }
    return event.kind in MESSAGES and any(
        isinstance(one, ast.If) and one.test.lineno in lines and event.node in set(ast.walk(one))
        for one in (ast.walk(event.module.tree) if lines and event.module.tree is not None else ())
    )


def _ends_none(event: Event, events: Sequence[Event]) -> bool:
    """Whether it ends a run that the main process alone has begun, of which the others have none; or whether it is of
    one that is switched off on the others."""
    library = event.name.partition(".")[0]
    is_method = "." not in event.name
    of_it = [
        one
        for one in (events if event.kind in ("tracker.end", "tracker.log") else ())
        if is_method or one.name.partition(".")[0] == library
    ]
    begun = [one for one in of_it if one.kind == "tracker.start"]
    is_off = (event.kind == "tracker.end" and not is_method) or any(
        one.kind == "tracker.off" for one in of_it
    )
    return is_off and bool(begun) and all(map(_is_of_one, begun))


def _is_of_others(event: Event, events: Sequence[Event]) -> bool:
    """Whether it is a message of the other processes alone, to which the main process comes by no other way."""
    return event.kind in MESSAGES and all(
        any(guard.kind == "others" for guard in other.guards) and not is_of_nobody(other)
        for other in events
        if other.node is event.node
    )


def _is_shared_out(event: Event) -> bool:
    """Whether the processes share out among them how often it is done: `if number % size == rank`."""
    return any(guard.kind == "divergent" and is_by_rank(guard.why) for guard in event.guards)


def _is_of_some(event: Event, events: Sequence[Event]) -> bool:
    """Whether one process alone does it, or those to which something happens that the others know nothing of."""
    alone = any(guard.kind == "divergent" for guard in event.guards)
    return _is_of_one(event) or alone or is_of_failing(event, events)


def _is_of_one(event: Event) -> bool:
    return any(guard.kind in ("main", "one") for guard in event.guards)


def _content(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """Figures that are shown or written are of all processes, or such as they have alike: one for the data of each."""
    found = list(_of_shares(event, events))
    named: dict[tuple[str, int, str], Obligation] = {}
    for one in found:
        if one.status is Status.NAMED:
            data = one.reason.steps()[-1] if one.reason is not None else Reason("")
            named.setdefault((data.path, data.line, data.text), replace(one, part=len(named)))
    yield from named.values() or found[:1] or [made(event, "content", Status.PROVED)]


def _of_shares(event: Event, events: Sequence[Event]) -> Iterator[Obligation]:
    """The figures of one process's share among those that are shown or written at an event."""
    of_main = _is_of_one(event)
    if (not of_main and names_rank(event)) or is_of_own_sample(event, events):
        return  # it says whose figures they are
    for value in event.shown:
        for place, why in places(value):
            if place.is_uniform or place.kind in _FINE or place == own("broadcast"):
                continue
            if why is not None and (says_who(why, events) or (of_main and is_alone(event, value, why))):
                continue
            if place.kind is Kind.OWN and why is not None and is_of_no_data(why):
                continue
            if place.needs == _DECIDED and why is not None and why.steps()[-1].text == FAILS:
                continue  # how far it came: that it stops is named where it does
            counted = place.kind is Kind.LINEAR and place.degree == 0
            if why is not None and _meets_before(why, events if of_main else (), counted):
                continue
            before = is_of_loop_before(event, why, events) or is_added_up_before(event, why, events)
            total = before and is_total(why, events)
            of_rounds = place.kind in (Kind.ROUND, Kind.WIDE) and not is_of_evaluation(
                event, place, why, events
            )
            if (event.in_training and not before) or (of_rounds and not total):
                yield made(event, "content", Status.LOOP, f"{word_of(event)}, of one process's share", why)
                continue
            drawn = why is not None and _is_of_draws(why)
            way = f", unless it is {_DECIDED}" if place.needs == _DECIDED else f"; {_PUT_TOGETHER}"
            text = f"{_what(place)} is {word_of(event)}{f'; {_DRAW_ALIKE}' if drawn else way}"
            yield made(event, "content", Status.NAMED, text, why if drawn else why and _of_share(why))


def _is_of_draws(why: Reason) -> bool:
    """Whether a loader that is not divided gives each process other rows, as each draws what lies in it."""
    texts = [step.text for step in why.steps()]
    first = next((number for number, text in enumerate(texts) if text.startswith(_BATCH)), len(texts))
    return any(text.endswith(DRAWS) for text in texts[first:])


def _of_share(why: Reason) -> Reason:
    """Why a figure is one of a share, by those of its operands that are of rows, and not of a batch as a whole: that
    a model mixes the rows of a batch is of no account here, nor why the processes' data differ."""
    found = tuple(one for one in why.parents if not any(step.text.endswith(_MIXED) for step in one.steps()))
    why = replace(why, parents=found) if 0 < len(found) < len(why.parents) else why
    steps = why.steps()
    for number, step in enumerate(steps):
        if step.text.startswith((_APART, _BATCH)):
            shared = replace(step, parents=())
            return reduce(lambda last, one: replace(one, parents=(last,)), reversed(steps[:number]), shared)
    return why


def _meets_before(why: Reason, events: Sequence[Event], counted: bool) -> bool:
    """Whether what a figure comes from was put together over the processes on its way, or all that it comes from but
    for counts of samples, and that the main process alone has it: `events` are all where it alone shows it. Where it is
    one of all processes as soon as it is a count, `counted`, the number of processes puts it together."""
    return any(map(_puts_together, why.steps())) or _is_put_together(why, events, counted)


def _puts_together(step: Reason) -> bool:
    return step.text in _TOGETHER or step.text.startswith("reduced by")


def _is_put_together(why: Reason, events: Sequence[Event], counted: bool) -> bool:
    waiting, seen, together = [why], set[int](), False
    while waiting:
        step = waiting.pop()
        of_main = events and not step.parents and step.text != RANK and says_who(step, events)
        if of_main or _puts_together(step) or (counted and step.text == _COUNTS[1]):
            together = True
        elif step.parents and not step.text.endswith("counts samples"):
            waiting += [one for one in step.parents if id(one) not in seen]
            seen |= {id(one) for one in step.parents}
        elif len(seen) > _MOST_STEPS or (step.says_why and not step.text.endswith(_COUNTS)):
            return False
    return together


def _what(place: Placement) -> str:
    if place.kind is Kind.LINEAR:
        return "a sum or mean of one process's share of the data"
    if place.kind is Kind.EXTREME:
        return "the largest or smallest of one process's share of the data"
    if place.needs == _DECIDED:
        return "what can differ between the processes"
    return "what one process has of its share of the data"


def _loss(event: Event, one: Obligation, events: Sequence[Event]) -> Iterator[Obligation]:
    if (whole := whole_of(event, events)) is not None:
        one = replace(one, status=Status.NAMED, found="all processes train on the same samples", reason=whole)
    if "same samples" in one.found:
        yield one
        return
    steps = one.reason.steps() if one.reason is not None else []
    apart = next((number for number, step in enumerate(steps) if step.text.startswith(_APART)), None)
    if one.status is Status.NAMED and apart is not None:
        # It stands where the data part.
        later = [step for step in steps[apart + 1 :] if step.says_why]
        drawn = [step for step in later if step.text.endswith(DRAWS)]
        cause = (*reversed(drawn), *later, steps[-1])[0]
        one = replace(one, found="the processes train on data that differ between them", reason=cause)
        yield replace(one, line=cause.line, column=1) if cause.path == one.path else one
    if (draw := _drawn_before_shared(event)) is not None:
        shared = made(event, "loss", Status.NAMED, _OVERLAP, draw)
        yield replace(shared, line=draw.line, column=1) if draw.path == shared.path else shared
        return
    if event.detail == "plain" and has_accelerator(event, events) and not _is_stand_in(event):
        text = "`backward` works beside the Accelerator; accelerator.backward(loss) scales and accumulates"
        yield made(event, "beside", Status.NAMED, text)
        return
    yield made(event, "loss", Status.PROVED)


def _drawn_before_shared(event: Event) -> Reason | None:
    """What puts the rows in another order on each process that they then share out by their ranks."""
    why = event.shown[0].why if event.shown else None
    steps = why.steps() if why is not None else ()
    # Numbers are in their order, however many each process has.
    shares = [step for step in steps if step.text.endswith(SHARE) and not step.text.startswith("`range(")]
    draws = (step for share in shares for one in share.parents for step in one.steps())
    return next((step for step in draws if step.text.endswith(DRAWS)), None)


def _is_stand_in(event: Event) -> bool:
    """Whether it is what a class does that stands in for an Accelerator, where the package is missing."""
    classes = (
        one for one in ast.walk(event.module.tree or ast.Module([], [])) if isinstance(one, ast.ClassDef)
    )
    for one in classes:
        methods = {stmt.name: stmt for stmt in one.body if isinstance(stmt, ast.FunctionDef)}
        if {"prepare", "backward"} <= methods.keys() and event.node in ast.walk(methods["backward"]):
            return True
    return False
