"""What the runs of a verification were too short to see: what the script does after an epoch, and by how many steps."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from accelify.verify.compare.verdict import Site
from accelify.verify.lines import LineMap
from accelify.verify.runs import Run

_DONE = {
    "terminal.write": "printing",
    "log.write": "logging",
    "tracker.log": "logging",
    "file.write": "saving",
    "file.append": "saving",
    "schedule": "the schedule",
}


@dataclass(frozen=True)
class Unseen:
    """What comes after the first epoch, which the runs end within.

    Args:
        what: in words with its lines, as far as it is known.
        steps: how many optimizer steps reach it, one more than the epoch has; None where no loader has a length.
        loaders: whether batches came from a loader: where none did, there is no epoch.
    """

    what: tuple[str, ...]
    steps: int | None
    loaders: bool = True


def is_seen(sink: str) -> bool:
    """Whether a run shows that it has come to a sink of this kind."""
    return sink in _DONE


def unseen(sinks: Iterable[tuple[str, Site]], original: Run, converted: Run, lines: LineMap) -> Unseen | None:
    """What the runs did not come to; None where they went through an epoch.

    Args:
        sinks: of the converted script, by kind.
        original: its run.
        converted: that of the converted script on one process.
        lines: which lines of the two scripts correspond.
    """
    if original.ranks[0].ended != "steps" or original.ranks[0].passes:
        return None
    events = original.ranks[0].events
    taken = Counter(tuple(event["key"]) for event in events.get("batch", ()))
    made = [tuple(event["key"]) for event in events.get("made_loader", ())]
    idle = [_named([key[:2]], original, lines, of_original=True) for key in made if key not in taken]
    seen = set(_sites(converted))
    found: dict[str, set[Site]] = {}
    for sink, site in sinks:
        if site not in seen:
            found.setdefault(_DONE[sink], set()).add(site)
    done = [f"{word} ({_named(sites, converted, lines)})" for word, sites in found.items()]
    loaders = [f"the loader made in {where}" for where in dict.fromkeys(idle)]
    lengths = {tuple(event["key"]): event["length"] for event in events.get("pass_begun", ())}
    steps = [
        -(-lengths[key] * original.steps // count) + 1
        for key, count in taken.most_common(1)
        if lengths.get(key)
    ]
    return Unseen((*loaders, *done), next(iter(steps), None), bool(taken))


def _sites(run: Run) -> Iterator[Site]:
    for events in run.ranks[0].events.values():
        for event in events:
            site: Any = event.get("site")
            if site:
                yield site[0], site[1]


def _named(sites: Iterable[Site], run: Run, lines: LineMap, of_original: bool = False) -> str:
    """Places, with their files where that is not the script's."""
    script = next(iter(run.texts))
    by_file: dict[str, list[Site]] = {}
    for site in sorted(sites):
        by_file.setdefault(site[0], []).append(site)
    words = []
    for file, found in by_file.items():
        where = lines.within_original(found[0]) if of_original else lines.within(*found)
        words.append(where if file == script else f"{os.path.basename(file)} {where}")
    return ", ".join(words)
