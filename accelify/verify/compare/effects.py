"""Effects on the outside: each as often over all ranks as in the original, and in an order that nothing can change."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from accelify.verify.compare.races import Access, accesses, race_checks
from accelify.verify.compare.verdict import Check, Site, Verdict
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

_DONE = {
    "write": "written", "append": "appended to", "mkdir": "made", "rmdir": "removed", "remove": "removed",
    "rmtree": "removed", "rename": "put in place", "link": "linked", "chmod": "changed", "truncate": "cut",
    "run": "started", "connect": "connected to",
}  # fmt: skip
_WORDS = {1: "once", 2: "twice"}
# Parts of names that come from the clock, from entropy or from a process, not from the script's state.
_VOLATILE = re.compile(
    r"\d{4}[-_.]\d{2}[-_.]\d{2}([-_.T ]?\d{2}[-_.:]?\d{2}([-_.:]?\d{2})?)?|\d{2}[-_.:]\d{2}[-_.:]\d{2}"
    r"|\d{6,}([-_.T]\d{4,6}(?!\d))?|[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    r"|(?<![0-9a-zA-Z])[0-9a-f]{8,}(?![0-9a-zA-Z])"
)
_NUMBER = re.compile(r"\d+")


@dataclass(frozen=True)
class Effect:
    """One change on one rank.

    `name` is its path without what differs from process to process. `site` is the statement that made the change, or,
    for one of a library's thread (`in_thread`), the one that started the thread.
    """

    rank: int
    kind: str
    path: str
    name: str
    site: Site | None
    n: int
    in_thread: bool = False


def compare(original: Run, other: Run, lines: LineMap, exact: bool) -> list[Check]:
    """One check for each kind of effect and path (numbers in paths are ignored), and one for each race."""
    before, after = effects_of(original), effects_of(other)
    groups: dict[str, tuple[list[Effect], list[Effect]]] = {}
    for side, effects in enumerate((before, after)):
        for effect in effects:
            key = f"{effect.kind} {_NUMBER.sub('#', effect.name)}"
            groups.setdefault(key, ([], []))[side].append(effect)
    checks = [_counted(key, *pair, lines, other.processes) for key, pair in groups.items()]
    if other.failure:
        # What did not happen may have had to come yet.
        checks = [c for c, (old, new) in zip(checks, groups.values(), strict=True) if len(new) > len(old)]
    if exact and all(check.verdict is Verdict.EQUAL for check in checks):
        checks = _in_order(before, after, checks, lines)
    known = {check.key: check for check in checks if check.verdict is Verdict.DIFFERENT}
    reported = {
        effect.path for key, (_, effects) in groups.items() if key in known for effect in effects
    }  # fmt: skip
    found: list[list[Access]] = [accesses(number, record) for number, record in enumerate(other.ranks)]
    return checks + race_checks(other, found, lines, reported, shown)


def effects_of(run: Run) -> list[Effect]:
    """What each rank of a run changed, rank by rank, in order.

    What a library's thread does with one path counts once: how often is a matter of time.
    """
    found = []
    for rank, record in enumerate(run.ranks):
        pids = [str(event["pid"]) for event in record.events.get("process", [])]
        threads: set[tuple[str, str]] = set()
        for event in record.events.get("effect", []):
            kind, path = event["kind"], event["path"]
            if kind not in _DONE or (kind == "mkdir" and not event["new"]):
                continue
            in_thread = event["site"] is None
            if in_thread:
                if (kind, path) in threads:
                    continue
                threads.add((kind, path))
            site = as_site(event["site"] or event["starter"])
            name = _VOLATILE.sub("<>", _without(pids, path))
            found.append(Effect(rank, kind, path, name, site, event["n"], in_thread))
    return found


def _counted(key: str, before: list[Effect], after: list[Effect], lines: LineMap, processes: int) -> Check:
    """Each path as often over all ranks as in the original."""
    wanted = Counter(effect.path for effect in before)
    there = Counter(effect.path for effect in after)
    if any(effect.kind == "mkdir" for effect in before + after):
        # Two ranks that make one folder where both may are not two folders.
        wanted, there = Counter(set(wanted)), Counter(set(there))
    if wanted != there:
        # A name that differs from process to process cannot be found by itself.
        odd = {path for path in wanted | there if wanted[path] != there[path]}
        # Of several paths with one name one may be the original's by chance: made in the same second.
        odd_names = {effect.name for effect in before + after if effect.path in odd}
        odd = {effect.path for effect in before + after if effect.name in odd_names}
        wanted = _by_name(before, odd, wanted)
        there = _by_name(after, odd, there)
    first = before[0] if before else None
    if wanted == there:
        site = after[0].site if after else None
        return Check("effects", key, Verdict.EQUAL, "", site, first.site if first else None)
    name = next(name for name in [*there, *wanted] if wanted[name] != there[name])
    did = [effect for effect in after if name in (effect.path, effect.name)]
    asked = [effect for effect in before if name in (effect.path, effect.name)]
    sentence = _sentence(did, asked, wanted[name], there[name], processes, lines)
    # The line to look at is the one that the original does not have as often.
    spare = [effect for effect in did if effect.rank != did[0].rank] or did
    origin = asked[0].site if asked else lines.original(did[0].site if did else None)
    line = spare[-1].site if spare else lines.converted(origin)
    return Check("effects", key, Verdict.DIFFERENT, sentence, line, origin)


def _by_name(effects: Iterable[Effect], odd: set[str], counts: Counter[str]) -> Counter[str]:
    """Counts in which the odd paths go by their name."""
    answer = Counter({path: count for path, count in counts.items() if path not in odd})
    seen: set[str] = set()
    for effect in effects:
        if effect.path in odd and not (effect.kind == "mkdir" and effect.path in seen):
            seen.add(effect.path)
            answer[effect.name] += 1
    return answer


def _sentence(
    did: list[Effect], asked: list[Effect], wanted: int, there: int, processes: int, lines: LineMap
) -> str:
    one = (did or asked)[0]
    done = _DONE[one.kind]
    once = "not in the original" if not wanted else f"{times(wanted)} in the original"
    subject = f"`{one.path}`" if one.kind == "run" else shown(one.path)
    if not did:
        where = _in_original(asked[0], lines)
        how = f"not {done}" if processes == 1 else f"{done} by no rank"
        return f"{subject} is {how}, {once}{where}"
    ranks = sorted({effect.rank for effect in did})
    counts = Counter(effect.rank for effect in did)
    who = f"by {named(ranks)}" if processes > 1 else ""
    if len({effect.path for effect in did}) > 1 and len(ranks) > 1:
        subject += f" and {shown(next(effect.path for effect in did if effect.path != one.path))} are"
    else:
        subject += " is"
    often = "" if set(counts.values()) == {1} and processes > 1 else times(there)
    return f"{' '.join(filter(None, (subject, done, often, who)))}{at(did, lines)}, {once}"


def _in_order(before: list[Effect], after: list[Effect], checks: list[Check], lines: LineMap) -> list[Check]:
    """One process does everything in the original's order; what threads do is a matter of time."""
    first, second = ([e for e in effects if not e.in_thread] for effects in (before, after))
    for old, new in zip(first, second, strict=False):
        if (old.kind, old.name) != (new.kind, new.name):
            sentence = (
                f"{shown(new.path)} is {_DONE[new.kind]}{at([new], lines)} where the original has {shown(old.path)} "
                f"{_DONE[old.kind]}{_in_original(old, lines)}"
            )
            key = f"{old.kind} {_NUMBER.sub('#', old.name)}"
            return [
                Check("effects", key, Verdict.DIFFERENT, sentence, new.site, old.site) if c.key == key else c
                for c in checks
            ]
    return checks


def _without(pids: Sequence[str], path: str) -> str:
    """A path with `#` for each of these numbers of processes.

    In a namespace of their own they are small: a folder above, or a file, may have one in its name by chance.
    """
    here = os.getcwd() + os.sep
    above, below = (here, path.removeprefix(here)) if path.startswith(here) else ("", path)
    for pid in pids:
        below = re.sub(rf"(?<!\d){pid}(?!\d)", "#", below)
    return above + below


def shown(path: str) -> str:
    """A path as a person would name it: from the working folder where it is below."""
    try:
        relative = os.path.relpath(path)
    except (ValueError, OSError):
        return path
    return path if relative.startswith("..") or not path.startswith("/") else relative


def named(ranks: Sequence[int]) -> str:
    """ "rank 1", "ranks 0 and 1", "ranks 0, 1 and 2"."""
    words = [str(rank) for rank in ranks]
    return f"rank {words[0]}" if len(words) == 1 else f"ranks {', '.join(words[:-1])} and {words[-1]}"


def times(count: int) -> str:
    """ "once", "twice", "3 times"."""
    return _WORDS.get(count, f"{count} times")


def at(effects: Sequence[Effect], lines: LineMap) -> str:
    """The lines, in brackets."""
    found = [effect.site for effect in effects if effect.site is not None]
    return f" ({lines.within(*found, most=3)})" if found else ""


def _in_original(effect: Effect, lines: LineMap) -> str:
    return f" ({lines.within_original(effect.site)})" if effect.site is not None else ""


def as_site(value: Any) -> Site | None:
    """A site as JSON holds it."""
    return None if value is None else (str(value[0]), int(value[1]))
