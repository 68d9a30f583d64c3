"""What a finding of the engine says: what happens on several processes, the link that decides, and what to do."""

from __future__ import annotations

import re
from collections.abc import Sequence

from accelify.domains.reasons import Reason
from accelify.obligations import Obligation
from accelify.rule_codes import says_what_to_do

_BY_ALL = " is done by every process"
# What each process does that is to be done once, by the kind of the effect.
_DONE = {
    "terminal.write": "prints this",
    "log.write": "logs this",
    "bar.show": "shows this bar",
    "file.write": "writes a file here",
    "file.handed": "writes a file here",
    "file.append": "appends to a file here",
    "file.delete": "deletes this file",
    "file.move": "moves this file",
    "folder.fill": "writes files into this folder",
    "folder.make": "makes a folder here",
    "folder.delete": "deletes this folder",
    "network.get": "downloads this at the same time, where it is not there yet",
    "network.send": "sends this",
    "tracker.start": "starts a run of this tracker",
    "tracker.log": "logs to this tracker",
    "tracker.end": "ends the run of this tracker",
    "figure.show": "shows this picture",
    "wait.input": "waits for input",
    "process.run": "runs this command",
}
# What to do about it: with an Accelerator, where only a state is in reach, and with a process group.
_GUARD = (
    "put it under `if accelerator.is_main_process:`",
    "put it under `if PartialState().is_main_process:`",
    "put it under `if dist.get_rank() == 0:`",
)
_INSTEAD = {
    "network.get": ("let the main process do it first",) * 3,
    "wait.input": ("ask on the main process alone, and send the others its answer",) * 3,
    "bar.show": (
        "pass `disable=not accelerator.is_local_main_process`",
        "pass `disable=not PartialState().is_local_main_process`",
        "pass `disable=dist.get_rank() != 0`",
    ),
}
# Asking a prepared model or optimizer for what is written can take all processes.
_SAVED = ("write it with `accelerator.save`, which all processes call", *_GUARD[1:])
# The same of decorators, which stand under no condition.
_OF_DECORATORS = {
    "`hydra.main`": "give it a folder that all share, without the time (hydra.run.dir, hydra.output_subdir=null)"
}
# The same for other demands.
_WAYS = {
    "all ranks": ("let all come there, or agree on the condition first",) * 3,
    "path": ("send the others the main process's",) * 3,
    "unwrapped": (
        *("take the model out of the wrapper: accelerator.unwrap_model(model)",) * 2,
        "take the model out of the wrapper: model.module",
    ),
    "order": (
        "let all wait in between: accelerator.wait_for_everyone()",
        "let all wait in between: PartialState().wait_for_everyone()",
        "let all wait in between: dist.barrier()",
    ),
    "let go": ("call accelerator.free_memory() at the end of each round",) * 3,
    "same": ("let all processes do it alike",) * 3,
    "prepared": (*("prepare it: accelerator.prepare(model)",) * 2, "wrap it in DistributedDataParallel"),
    "accumulated": ("put each batch under `with accelerator.accumulate(model):`",) * 3,
}
# By which of these a script asks; one that is still to join its group can do so afterwards alone.
_ASKING = {"accelerator": 0, "state": 1, "group": 2, "early": 2}
_EARLY = " once the process group is there (after init_process_group)"
# The same for what would have been right further up.
_NEEDED = {
    "put together first": "put it together over the processes first (reduce or gather)",
    "put together in each round": "put it together over the processes in each round",
    "gathered first": "gather it first",
    "gathered before": "gather it before",
    "decided by all ranks together": "let all ranks decide together",
    "drawn with one seed": "draw it with one seed",
    "one seed": "draw it with one seed",
}
_UNLESS = ", unless it is "
_DIFFERS, _OF_SHARE = "what can differ between the processes", "what one process has of its share of the data"
# "printed: of one process's share".
_SHOWN = re.compile(
    r"(?P<done>printed|logged|shown|drawn|written|appended|sent)(?P<rest>[\w ]*): (?P<what>.*)"
)
# A sentence about an expression.
_SAID = re.compile(r"`[^`]*`.+")
# Steps that are no sentence and no name of something, as what comes after "from".
_NAMED = {
    "only on the main process": "what is true on the main process alone",
    "only on the main process of each machine": "what is true on one process of each machine",
    "only the main process": "what is true on the main process alone",
    "not on every rank": "what is not true on every rank",
    "counts the rounds of each process": "a count of the rounds of each process",
    "counts the batches of each process": "a count of the batches of each process",
    "gathered": "what is gathered",
}
_NAME = re.compile("`[^`]*`( as the round before left it)?")
_ADDS = "adds up over"
_FIGURES = re.compile(f"{_ADDS}|of which nothing is known")
# How a reason begins that says that a batch is of one process, and how one ends that says that its rows are mixed.
_SHARES = ("this rank's batch of", "the ranks share out")
_MIXED = "mixes rows of the batch"
_NOUNS = ("this ", "the rank", "the rows ", "the time", "the number ", "a ", "an ", "what ")


def what_of(one: Obligation) -> tuple[str, str]:
    """What happens, and what to do about it, for a demand that is not met; empty where that goes without saying."""
    asks = _ASKING[one.asks]
    found, _, way_out = one.found.partition("; ")
    found, _, needed = found.partition(_UNLESS)
    if found.startswith(_DIFFERS) and one.reason is not None:
        if not one.reason.says_why or _FIGURES.search(one.reason.text):  # a figure, and no condition
            found, needed = found.replace(_DIFFERS, _OF_SHARE), "put together first"
    way_out = way_out or _NEEDED.get(needed, f"have it {needed}" if needed else "")
    if one.demand == "once" and found.endswith(_BY_ALL) and one.sink in _DONE:
        found = f"every process {_DONE[one.sink]}: {found.removesuffix(_BY_ALL)}"
        way = next((way for name, way in _OF_DECORATORS.items() if name in found), "")
        way = way or (_SAVED if "`torch.save`" in found else _INSTEAD.get(one.sink, _GUARD))[asks]
        return found, way + _EARLY * (one.asks == "early" and "dist." in way)
    if (shown := _SHOWN.fullmatch(found)) is not None:
        what = re.sub("^of ", "covers ", shown["what"])
        verb = "" if what.startswith(("counts ", "covers ")) else "is "
        found = f"what is {shown['done']}{shown['rest']} {verb}{what}"
    way_out = way_out or (
        "" if says_what_to_do(found) else _WAYS[one.demand][asks] if one.demand in _WAYS else ""
    )
    return found, way_out


def effect_of(message: str) -> str:
    """The kind of the effect that a finding says every process has; empty for another finding."""
    return next((kind for kind, done in _DONE.items() if message.startswith(f"every process {done}: ")), "")


def distinct(steps: Sequence[Reason]) -> list[Reason]:
    """The steps of a chain without those that say again, in the same line, what the step before says."""
    found: list[Reason] = []
    for step in steps:
        before = found[-1] if found else None
        if (
            before is None
            or (before.path, before.line) != (step.path, step.line)
            or not _is_again(step, before)
        ):
            found.append(step)
    return found


def _is_again(step: Reason, before: Reason) -> bool:
    # `seed(rank)` seeds each process with another number: the rank
    return _SAID.match(before.text) is not None and not (step.says_why and step.parents)


def deciding(steps: Sequence[Reason]) -> list[Reason]:
    """Of the steps of a chain those that a reader needs: the first, what it is made of, and where it comes from."""
    first, *rest = steps
    if len(rest) < 2:
        return [first, *rest]
    *between, cause = rest
    lines = {first.line, cause.line}
    why = next((step for step in reversed(between) if step.says_why and step.line not in lines), None)
    if why is None and (not first.says_why or _ADDS in first.text):
        why = next((step for step in between if _ADDS not in step.text), None)
    return [first, *([why] if why is not None else []), cause]


def of_share(steps: Sequence[Reason]) -> list[Reason]:
    """The steps of a figure of one share: what it was made by on its way from the batch is of no account, but for
    where it adds up."""
    way, cause = list(steps[:-1]), steps[-1] if steps else None
    if not way or cause is None or not cause.text.startswith(_SHARES):
        return list(steps)
    return [way[0], *(step for step in way[1:] if _ADDS in step.text or not step.says_why), cause]


def unmixed(steps: Sequence[Reason]) -> list[Reason]:
    """The steps of a chain that comes from no batch, without those that speak of its rows."""
    mixing = (step.text.endswith(_MIXED) and step is not steps[-1] for step in steps)
    of_batch = any(step.text.startswith(_SHARES) for step in steps)
    return [step for step, mixes in zip(steps, mixing, strict=True) if of_batch or not mixes]


def link(step: Reason, place: str) -> str:
    """A step with its place."""
    return f"{step.text} ({place})" if place else step.text


def because(links: Sequence[str]) -> str:
    """Steps of a chain as one sentence."""
    return ", ".join([*links[:1], *map(_after, links[1:])])


def _after(text: str) -> str:
    """A step, as what comes after a comma."""
    what, _, place = text.rpartition(" (")
    if what in _NAMED:
        return f"from {_NAMED[what]} ({place}"
    is_name = _NAME.fullmatch(what) is not None or text.startswith(_NOUNS)
    return f"{'from' if is_name else 'as'} {text}"
