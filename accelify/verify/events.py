"""The records of a run, one JSON line an event: written in the process, read by the one that compares."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


class EventWriter:
    """Appends events of one rank; a line is written whole, so that worker processes may share the file."""

    def __init__(self, path: str) -> None:
        self.file = open(path, "ab", buffering=0)  # noqa: SIM115 (open for the life of the process)

    def write(self, event: dict[str, Any]) -> None:
        self.file.write(json.dumps(event).encode() + b"\n")


@dataclass(frozen=True)
class Loss:
    """One call of backward on one rank.

    `value` is the loss as the script has it, `scale` what the runtime multiplies it by, `raw` the number that backward
    was really called on (without fp16's scaling). `step` counts the optimizer steps before it. `weight` is what the
    script has the loss weighed by, among those of all ranks.
    """

    value: float
    scale: float
    raw: float
    step: int
    dtype: str
    site: tuple[str, int] | None = None
    weight: float | None = None


def mean_loss(values: Sequence[float], weights: Sequence[float | None]) -> float:
    """The mean of all ranks' losses, weighed where each has a weight."""
    known = [weight for weight in weights if weight is not None]
    if len(known) < len(values) or not sum(known):
        return sum(values) / len(values)
    return sum(value * weight for value, weight in zip(values, known, strict=True)) / sum(known)


@dataclass(frozen=True)
class Step:
    """One optimizer step: which optimizer, in order of creation, and its learning rates, one a group."""

    optimizer: int
    rates: tuple[float, ...]
    site: tuple[str, int] | None = None


@dataclass
class RankRecord:
    """All records of one rank.

    `weights` is a digest of the bytes of parameters at the end, None where the script has none, `buffers` one of their
    modules' buffers, `states` one of the state of the `living` optimizers then. `deviation` says how far they are from
    those of the reference run, `reasons` why ranks may legitimately differ, `error` how it failed. `ended` is "steps"
    for a run cut short after enough of them and "finished" for one that ended by itself; `passes` counts the loaders
    that ran out until then.
    `events` has every event by its kind, in order, each with its position `n` among all of this rank's.
    """

    losses: list[Loss] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)
    reasons: dict[str, str] = field(default_factory=dict)
    autocast: str | None = None
    weights: str | None = None
    buffers: str | None = None
    states: str | None = None
    living: int = 0
    parameters: int = 0
    deviation: dict[str, float] | None = None
    ended: str | None = None
    passes: int = 0
    error: dict[str, Any] | None = None
    events: dict[str, list[dict[str, Any]]] = field(default_factory=dict)


def read_rank(path: Path) -> RankRecord:
    """The record of one rank; one that is absent or cut off is simply incomplete (`ended` is None)."""
    record = RankRecord()
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return record
    for number, line in enumerate(lines):
        try:
            event = json.loads(line)
        except ValueError:
            continue
        kind = event.pop("event")
        record.events.setdefault(kind, []).append({**event, "n": number})
        if kind == "loss":
            record.losses.append(Loss(**{**event, "site": _site(event)}))
        elif kind == "step":
            record.steps.append(Step(event["optimizer"], tuple(event["rates"]), _site(event)))
        elif kind == "reason":
            record.reasons.setdefault(event["reason"], event["what"])
        elif kind == "autocast":
            record.autocast = event["dtype"]
        elif kind == "weights":
            record.weights, record.buffers = event["digest"], event["buffers"]
            record.parameters = event["parameters"]
            record.deviation = event["deviation"]
            record.states, record.living = event["states"], event["living"]
        elif kind == "error":
            record.error = event
        elif kind == "end":
            record.ended, record.passes = event["why"], event["passes"]
    return record


def _site(event: dict[str, Any]) -> tuple[str, int] | None:
    site = event.get("site")
    return (site[0], site[1]) if site else None


def same_end(a: RankRecord, b: RankRecord) -> bool:
    """Whether two ranks end with the same weights and, where as many optimizers are left, the same states of them."""
    same_weights = (a.weights, a.buffers) == (b.weights, b.buffers)
    return same_weights and (a.living != b.living or a.states == b.states)


def same(a: float, b: float) -> bool:
    """Equal to the bit, as far as a number in JSON shows it; two NaN are the same."""
    return a == b or (math.isnan(a) and math.isnan(b))
