"""What is written before what is read: files of the main process that others read with no wait between.

A read happens after a write of another rank only where all ranks meet between the two. The pairs are found in the order
in which the abstract run reaches them, by what is known of their paths' texts.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatch, fnmatchcase

from accelify.domains.placement import Kind
from accelify.domains.reasons import Reason
from accelify.heap.library_calls import QUESTIONS
from accelify.heap.paths import file_of, forms_of, goes_by_length, goes_by_round, words_of
from accelify.heap.run import Event
from accelify.heap.values import Instance
from accelify.obligations.exclusive_branches import chosen_by, is_on_another_way, is_within
from accelify.obligations.obligation import Obligation, Status

_WRITES = frozenset(
    "file.write file.append file.move folder.fill folder.make folder.delete file.delete".split()
)
_READS = frozenset({"file.read", "folder.list", "file.handed"})
# What makes a folder, or something in it, that others then find there.
_MAKES = frozenset({"folder.make", "tracker.start"})
# Where nothing of what stands before goes on: ranks meet, or another function is begun with that nothing called.
_MEETINGS = frozenset({"collective", "backward", "entry"})


def _read_by_other_names(events: Sequence[Event]) -> Iterator[Obligation]:
    """Files that are written under names by the rounds of each process, and read under names by how many there are in
    the original, or that are written out."""
    written: dict[str, Event] = {}
    for event in events:
        path = event.path
        if path is None or not (name := file_of(path)):
            continue
        if event.kind == "file.write" and path.place.kind is Kind.SAME and path.place.degree:
            written.setdefault(name, event)
        if event.kind != "file.read" or _is_question(event) or not path.place.is_same:
            continue
        if goes_by_length(path) or isinstance(path.const, str):
            write = next((one for other, one in written.items() if fnmatch(name, other)), None)
            why = write.path.why if write is not None and write.path is not None else None
            if why is not None and not why.goes_by_data:
                text = (
                    f"`{_called(event)}` looks for a name that no process writes: it is by the rounds of each, 1/N of "
                    "those of a single process; name it by the epoch"
                )
                yield _named(event, text, why, "rounds")


def races(events: Sequence[Event]) -> Iterator[Obligation]:
    """Reads of all processes that the main process's writes may come between, or that find nothing."""
    yield from _in_order(events)
    yield from _read_by_other_names(events)
    loops: dict[int, list[Event]] = {}
    for event in events:
        for loop in event.loops:
            loops.setdefault(loop.number, []).append(event)
    for number, inside in loops.items():
        # The next round reads what this one wrote.
        line = next(loop.place[1] for loop in inside[0].loops if loop.number == number)
        yield from _in_order([*inside, *inside], line)


def _in_order(events: Sequence[Event], line: int = 0) -> Iterator[Obligation]:
    """The races of some events: `line` is that of a loop whose rounds they are two of."""
    written: dict[str, Event] = {}
    asked: dict[str, list[Event]] = {}
    folders: dict[str, Event] = {}
    listed: dict[str, Event] = {}
    filled: dict[str, Event] = {}
    for event in events:
        # A wrapper around a model waits for that of each process as it is made.
        waits = event.kind in _MEETINGS or (event.kind == "wrapped" and event.detail == "waits")
        if waits and not any(guard.parts_ranks for guard in event.guards):
            written.clear()
            asked.clear()
            folders.clear()
            listed.clear()
            filled.clear()
        if event.kind == "process.run" and _of_main(event):
            # What a command writes is among what it names.
            for word in (word for value in event.shown for word in words_of(value)):
                written.setdefault(word, event)
        if event.kind not in _WRITES | _READS | _MAKES:
            continue
        name = file_of(event.path)
        if not name or is_handle(event):
            continue
        if event.kind == "folder.list":
            yield from (
                _still_filled(event, one) for other, one in filled.items() if _lists(event, name, other)
            )
        elif _is_by_rank(event) and _writes(event):
            filled.setdefault(name, event)
        if event.kind in _MAKES or (_of_main(event) and _writes(event)):
            found = _listing_around(name, listed)
            # What a loop goes over has its name already.
            if found is not None and not (event.path is not None and goes_by_round(event.path)):
                yield _listed(found, event)
        if event.kind == "tracker.start":
            continue
        if _of_main(event):
            if _writes(event):
                written.setdefault(name, event)
                if event.kind == "folder.make":
                    folders.setdefault(name, event)
                yield from (
                    _asked(one, event)
                    for one in _asked_for(name, asked)
                    if _is_asked_again(one, event)
                    or _is_read_of(one, event, name)
                    or _decides(one, event, events)
                    if not (_excludes(one, event) or _are_of_rounds(one, event, line))
                )
        elif not _is_ordered(event):
            folder = _folder_around(event, folders)
            # A file that is read in it was there before, and so was the folder.
            if folder is not None and (_writes(event) or event.kind in ("folder.list", "file.handed")):
                yield _inside(event, folder)
            if _writes(event):
                continue
            before = written.get(name) or _written_in(event, name, written)
            if before is not None and not (_excludes(before, event) or _are_of_rounds(before, event, line)):
                yield _read(event, before)
            # `if os.path.exists(path): read it`: the contents count, too.
            before_now = asked.setdefault(name, [])
            if all(_is_question(one) != _is_question(event) for one in before_now):
                before_now.append(event)
            if event.kind == "folder.list":
                listed.setdefault(name, event)


def _is_by_rank(event: Event) -> bool:
    """Whether each process has a file of its own, by its rank."""
    path = event.path
    if (
        path is None
        or path.place.is_uniform
        or path.why is None
        or any(one.parts_ranks for one in event.guards)
    ):
        return False
    return any(step.text == "the rank" for step in path.why.chain())


def _still_filled(event: Event, write: Event) -> Obligation:
    """A folder that is listed, in which each process puts a file of its own."""
    text = (
        f"`{_called(event)}` lists a folder in which the other processes may still write their files: nothing waits "
        "for them in between"
    )
    return _named(event, text, Reason(f"`{_called(write)}`", write.module.path, write.line), "order")


def _are_of_rounds(one: Event, other: Event, line: int) -> bool:
    """Whether two files have their names by what a loop goes over, so that each round has others."""
    paths = [event.path for event in (one, other) if event.path is not None]
    return line > 0 and len(paths) == 2 and all(goes_by_round(path, line) for path in paths)


def is_sought(event: Event, events: Sequence[Event]) -> bool:
    """Whether every process looks for what the main process alone has written by its own clock or id."""
    path = event.path
    if event.kind not in _READS or path is None or path.place.kind not in (Kind.CLOCK, Kind.OWN):
        return False
    if path.why is None or _of_main(event) or _is_question(event):
        return False
    made = [one.path.why for one in events if _of_main(one) and _writes(one) and one.path is not None]
    return path.why.origin() in [why.origin() for why in made if why is not None]


def is_there_already(event: Event, events: Sequence[Event]) -> bool:
    """Whether the main process has done the same download before, and all have met since, or each process has made the
    same folder before.

    Args:
        event: a download, a folder that is made, or another event.
        events: all, in their order.
    """
    there = met = False
    folder = file_of(event.path) if event.kind == "folder.make" else ""
    for other in events if folder else ():
        if other is event:
            break
        if other.kind == event.kind and file_of(other.path) == folder and not other.guards:
            return True
    for other in events if event.kind == "network.get" else ():
        if other is event:
            return there and met
        if other.kind == event.kind and _of_main(other) and _is_same_call(other, event):
            there = True
        met = there and (
            met or (other.kind in _MEETINGS and not any(one.parts_ranks for one in other.guards))
        )
    return False


def _is_same_call(one: Event, other: Event) -> bool:
    return one.name == other.name and ast.unparse(one.node) == ast.unparse(other.node)


def _written_in(event: Event, name: str, written: Mapping[str, Event]) -> Event | None:
    """What was written in a folder that is listed, filled the folder of what is read, or may be what is read."""
    forms = forms_of(event.path) if event.path is not None else []
    for other, one in written.items():
        if event.kind == "folder.list" and _lists(event, name, other):
            return one
        if one.kind == "folder.fill" and any(form.startswith(f"{other}/") for form in forms):
            return one
        if event.kind == "file.read" and _may_name(name, other):
            return one
    return None


def _may_name(pattern: str, name: str) -> bool:
    """Whether a name of which a part is not known, but how it begins, is that of a file of which all is."""
    begin = pattern.rpartition("/")[2].partition("*")[0]
    known = "*" not in name and "*" in pattern and pattern.count("/") == name.count("/")
    return known and re.search(r"\w{3}", begin) is not None and fnmatchcase(name, pattern)


def _listing_around(name: str, listed: Mapping[str, Event]) -> Event | None:
    """The listing that a name would be in which is not written out in the script: the next free one, as a rule."""
    found = (one for other, one in listed.items() if _lists(one, other, name, first=True))
    return next(found, None) if "*" in name else None


def _lists(event: Event, name: str, other: str, *, first: bool = False) -> bool:
    """Whether a listing by a name has another name in it, or with `first` the folder that it begins with."""
    # `glob` names what it lists: "images/*.png".
    folder, _, named = name.rpartition("/") if event.name.startswith("glob.") else (name, "", "*")
    inside = other.removeprefix(f"{folder}/")
    if not folder or inside == other:
        return False
    if first:
        inside = inside.partition("/")[0]
        return "*" in inside and fnmatch(inside, named)
    return fnmatch(inside, named) or ("*" in inside and _may_be_one(inside, named))


def _may_be_one(one: str, other: str) -> bool:
    """Whether two names of which parts are not known may be of one file: they begin and end alike as far as known."""
    begins, ends = [[text.split("*")[number] for text in (one, other)] for number in (0, -1)]
    long, short = max(begins, key=len), min(begins, key=len)
    last, part = max(ends, key=len), min(ends, key=len)
    return long.startswith(short) and last.endswith(part)


def _asked_for(name: str, asked: Mapping[str, Sequence[Event]]) -> Iterator[Event]:
    """The reads of a file, or of one of several of which the name begins so."""
    for other, events in asked.items():
        if name == other or (other.endswith("*") and name.startswith(other[:-1])):
            yield from events


def _folder_around(event: Event, folders: Mapping[str, Event]) -> Event | None:
    """The folder of the main process that a file lies in."""
    forms = forms_of(event.path) if folders and event.path is not None else []
    return next((one for folder, one in folders.items() for f in forms if f.startswith(f"{folder}/")), None)


def _of_main(event: Event) -> bool:
    return any(guard.kind in ("main", "one") for guard in event.guards)


def _is_ordered(event: Event) -> bool:
    """Whether it is done by some ranks alone, or after the main process has done what stands before it."""
    return any(guard.kind in ("main", "one", "others", "first", "divergent") for guard in event.guards)


def is_handle(event: Event) -> bool:
    """Whether it is done with an open file, whose opening stands for it."""
    refs = event.path.of(Instance) if event.path is not None else []
    return any(ref.kind == "file" for ref in refs)


def _writes(event: Event) -> bool:
    return event.kind in _WRITES or bool(set(event.detail) & set("wax+"))


def _is_asked_again(read: Event, write: Event) -> bool:
    """Whether the read asks in a loop that has nothing to do with the write, such as for a name that is free."""
    inner = {loop.number for loop in read.loops} - {loop.number for loop in write.loops}
    return bool(inner) and not read.in_training


def _decides(read: Event, write: Event, events: Sequence[Event]) -> bool:
    """Whether all meet where a file is written that is not there yet, and where it is there do not: who asks when it is
    written goes past where the others wait."""
    path, meetings = read.module.path, [one for one in events if one.kind == "collective"]
    return _is_question(read) and any(
        is_within(way, write, path)
        and any(is_within(way, one, path) for one in meetings)
        and not any(is_within(other, one, path) for one in meetings)
        for way, other in chosen_by(read)
    )


def _is_read_of(read: Event, write: Event, name: str) -> bool:
    """Whether the contents of one file are read that is written anew: who is slower reads the new ones, or a part."""
    reads = read.kind == "file.read" and not _is_question(read)
    return reads and file_of(read.path) == name and not write.kind.startswith("folder.")


def _excludes(one: Event, other: Event) -> bool:
    """Whether all ranks go the way of one of them alone."""
    return is_on_another_way(one, other, of_all=True)


def _is_question(read: Event) -> bool:
    return read.name.rpartition(".")[2] in QUESTIONS


def _read(read: Event, write: Event) -> Obligation:
    text = (
        f"`{_called(read)}` of every process, and nothing waits for the main process, which writes it before"
    )
    return _named(
        read, text, Reason(f"`{_called(write)}` by the main process", write.module.path, write.line), "order"
    )


def _inside(event: Event, folder: Event) -> Obligation:
    text = (
        f"`{_called(event)}` of every process, and nothing waits for the main process, which makes the folder"
    )
    return _named(
        event,
        text,
        Reason(f"`{_called(folder)}` by the main process", folder.module.path, folder.line),
        "order",
    )


def _asked(read: Event, write: Event) -> Obligation:
    text = f"`{_called(read)}` of every process, and nothing waits for all of them before the main process writes it"
    return _named(
        read, text, Reason(f"`{_called(write)}` by the main process", write.module.path, write.line), "order"
    )


def _listed(read: Event, write: Event) -> Obligation:
    text = f"`{_called(read)}` of every process, and nothing waits for all of them before one adds to that folder"
    return _named(read, text, Reason(f"`{_called(write)}`", write.module.path, write.line), "order")


def _called(event: Event) -> str:
    return event.name.removeprefix("builtins.")


def _named(event: Event, text: str, why: Reason | None, demand: str) -> Obligation:
    column = getattr(event.node, "col_offset", 0) + 1
    path, line = event.module.path, event.line
    return Obligation(event.kind, demand, path, line, column, Status.NAMED, text, why, event.via)
