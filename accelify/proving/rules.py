"""The rules of what is not proved: a sink's demand is one rule, and which rules of transforms speak of the same."""

from __future__ import annotations

from accelify.findings import Finding, Rule, Safety, Severity

# Codes of rules, the minutes that they take by hand, and the demands of the engine that they stand for.
_DEMANDS = """\
701 10 content
702 5 once
703 5 path
704 15 all ranks, same, saved
705 15 loss, prepared, accumulated
706 10 rounds
707 5 unwrapped
708 10 let go
709 3 order
710 3 one device, moved
711 3 taken
712 3 beside, divided
713 3 gathered
714 2 device
715 2 wrapper
716 1 epoch
717 3 tpu
"""
# The budget of the engine was used up before all of the script was gone through.
IN_PART = Rule("ACC013", "The analysis ended before the end of the script.", Severity.INFO, Safety.MANUAL)
_NOTED = frozenset({"saved"})
_BY_DEMAND: dict[str, Rule] = {}
for _code, _effort, _demands in (line.split(maxsplit=2) for line in _DEMANDS.splitlines()):
    _rule = Rule(f"ACC{_code}", "", safety=Safety.MANUAL, effort=int(_effort))
    _BY_DEMAND |= dict.fromkeys(_demands.split(", "), _rule)
RULES = tuple(dict.fromkeys(_BY_DEMAND.values()))


def rule_of(demand: str) -> Rule:
    """The rule that a demand of the engine is named by; a note where nothing goes wrong with most engines."""
    rule = _BY_DEMAND[demand]
    return rule._replace(severity=Severity.INFO) if demand in _NOTED else rule


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

# Findings that speak of all that one tracker does, wherever it does it: by the beginning of its sinks.
SPOKEN_OF_EVERYWHERE = {"ACC204": "tracker."}


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
