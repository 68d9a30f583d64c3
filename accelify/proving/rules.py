"""The rules of what is not proved: a sink's demand is one rule, and which rules of transforms speak of the same."""

from __future__ import annotations

from typing import NamedTuple

from accelify.findings import Finding, Rule, Safety


class ProofRule(NamedTuple):
    """A rule, and the demands of the engine that it stands for."""

    rule: Rule
    demands: frozenset[str]


def _rule(code: str, name: str, summary: str, demands: str, effort: int) -> ProofRule:
    rule = Rule(code, name, summary, safety=Safety.MANUAL, effort=effort)
    return ProofRule(rule, frozenset(demands.split(", ")))


RULES = (
    _rule(
        "ACC701",
        "unproved-figure",
        "A figure that is shown or written is not proved to be that of a single process.",
        "content",
        10,
    ),
    _rule(
        "ACC702",
        "effect-by-all",
        "Every process does what a single process does once.",
        "once",
        5,
    ),
    _rule(
        "ACC703",
        "parted-path",
        "A path that all processes use can differ between them.",
        "path",
        5,
    ),
    _rule(
        "ACC704",
        "parted-processes",
        "Processes do not all come to a place where they meet, or decide something differently.",
        "all ranks, same",
        15,
    ),
    _rule(
        "ACC705",
        "parted-gradients",
        "The gradients of a step are not proved to be those of a single process.",
        "loss, prepared, accumulated",
        15,
    ),
    _rule(
        "ACC706",
        "counted-rounds",
        "A count of one process's rounds stands for that of a single process.",
        "rounds",
        10,
    ),
    _rule(
        "ACC707",
        "written-with-wrapper",
        "A prepared model is written with its wrapper.",
        "unwrapped",
        5,
    ),
    _rule(
        "ACC708",
        "never-released",
        "Each round of a loop prepares objects anew, and none are let go of.",
        "let go",
        10,
    ),
    _rule(
        "ACC709",
        "unordered-files",
        "A file is read by every process, and nothing waits for the main process, which writes it.",
        "order",
        3,
    ),
    _rule(
        "ACC710",
        "two-devices",
        "An operation joins tensors that lie on the host and on the device.",
        "one device, moved",
        3,
    ),
    _rule(
        "ACC711",
        "misplaced-prepare",
        "The results of `prepare` are taken in another order.",
        "taken",
        3,
    ),
    _rule(
        "ACC712",
        "beside-accelerator",
        "Something is done by hand that the Accelerator does, too.",
        "beside, divided",
        3,
    ),
    _rule(
        "ACC713",
        "counted-twice",
        "Samples count more than once in a figure.",
        "gathered",
        3,
    ),
    _rule(
        "ACC714",
        "one-device-for-all",
        "Every process uses the same device.",
        "device",
        2,
    ),
    _rule(
        "ACC715",
        "attribute-of-wrapper",
        "An attribute is asked of a prepared model that may be wrapped.",
        "wrapper",
        2,
    ),
    _rule(
        "ACC716",
        "same-order-each-epoch",
        "A DistributedSampler never gets the number of the epoch.",
        "epoch",
        1,
    ),
    _rule(
        "ACC717",
        "unfit-for-tpu",
        "What is meant for TPUs makes XLA wait or compile anew in each step, or loses the parameters.",
        "tpu",
        3,
    ),
)

_BY_DEMAND = {demand: one.rule for one in RULES for demand in one.demands}


def rule_of(demand: str) -> Rule:
    """The rule that a demand of the engine is named by."""
    return _BY_DEMAND[demand]


def _table(lines: str) -> dict[str, frozenset[str]]:
    rows = (line.partition(": ") for line in lines.splitlines())
    return {
        f"ACC{code}": frozenset(demands.split(", ")) for codes, _, demands in rows for code in codes.split()
    }


# Of what the findings of transforms speak, in the engine's demands: at their places it is not said once more.
SPOKEN_OF = _table(
    """\
109: unwrapped
120: one device
201 202 203 204 205 207 209 210 214: once
206: once, unwrapped
208: unwrapped
211 213: path, content
212: content, loss
301 302 304 307 309: content
401 412 604: rounds
402: loss, content, rounds
403: same, all ranks
405: all ranks
406 416 417 418 603: loss, content
420: loss, prepared
423: loss
605: accumulated, loss
""".rstrip()
)

# Of which effects the findings at a call speak, by the beginnings of the engine's sinks.
_EFFECTS = {
    "ACC201": ("terminal.",),
    "ACC202": ("bar.",),
    "ACC203": ("file.", "folder.", "wait."),
    "ACC204": ("tracker.",),
    "ACC205": ("network.",),
    "ACC206": ("file.",),
    "ACC209": ("log.",),
    "ACC214": ("figure.",),
}
# What ACC210 says of a call.
_EFFECTS_BY_WORD = {
    "writes files": ("file.", "folder."),
    "makes folders": ("folder.",),
    "draws pictures": ("figure.", "file."),
    "a log": ("log.", "file."),
    "prints": ("terminal.",),
    "asks with": ("wait.", "terminal."),
}

# Findings that speak of all that one logger or tracker does, wherever it does it: by the beginning of its sinks.
SPOKEN_OF_EVERYWHERE = {"ACC204": "tracker.", "ACC209": "log."}


def effects_of(finding: Finding) -> tuple[str, ...]:
    """The effects of which a finding at a call speaks, by the beginnings of the engine's sinks."""
    if finding.code != "ACC210":
        return _EFFECTS.get(finding.code, ())
    return tuple(
        one for word, effects in _EFFECTS_BY_WORD.items() if word in finding.message for one in effects
    )


# Findings of transforms that are untrue where the engine proves this demand of all that stands at their place.
_SETTLED_BY = _table(
    """\
201 202 203 204 205 206 209 210 214: once
304 307: content
406: loss
403: same
""".rstrip()
)


def settled_by(finding: Finding) -> frozenset[str]:
    """The demands by which a finding of a transform is untrue, where the engine proves them at its places."""
    # That it is done once says nothing of when.
    is_race = finding.message.startswith("the main process may")
    return frozenset() if is_race else _SETTLED_BY.get(finding.code, frozenset())
