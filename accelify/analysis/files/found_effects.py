"""What running some code does besides returning a value."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from accelify.analysis.files.effect_sites import (
    Site,
)
from accelify.analysis.models.handed_models import parameter_of
from accelify.analysis.scopes import Scope, handed_to, spread_to

HANDS_ON = "it yields values"  # to whoever iterates over what it yields


@dataclass
class Effects:
    """What some code does.

    `tied` is why all processes have to run it ("" where nothing speaks against one alone), `state` are the attributes
    and globals that it assigns, by owner; `changes` the names from outside whose objects it changes, each with the
    expressions that it changes; `given` the parameters whose objects it changes where a call passes it some, which are
    None by default; `models` the parameters whose model it calls.
    """

    sites: list[Site] = field(default_factory=list)
    tied: str = ""
    state: set[tuple[Scope, str]] = field(default_factory=set)
    changes: dict[str, list[ast.expr]] = field(default_factory=dict)
    given: set[str] = field(default_factory=set)
    models: set[str] = field(default_factory=set)
    sets_model: bool = False
    reads: bool = False
    lists: bool = False
    calls_model: bool = False

    def kinds(self) -> set[str]:
        """The kinds of what it does."""
        return {site.kind for site in self.sites}

    def tie(self, reason: str) -> None:
        """Note why all processes have to run it; of several reasons that also apply to callers the first counts."""
        if self.tied in ("", HANDS_ON):
            self.tied = reason

    def take(self, other: Effects) -> None:
        """Add what a part of the code does."""
        if other.sites:
            self.sites += [site for site in other.sites if site not in self.sites]
        if other.tied:
            self.tie(other.tied)
        self.state |= other.state
        for name, changed in other.changes.items():
            self.changes.setdefault(name, []).extend(changed)
        self.models |= other.models
        self.sets_model = self.sets_model or other.sets_model
        self.reads = self.reads or other.reads
        self.lists = self.lists or other.lists
        self.calls_model = self.calls_model or other.calls_model


def changes_given(effects: Effects, call: ast.Call, callee: Scope) -> str:
    """Why all processes have to make a call: it passes an object that the function changes."""
    handed = (
        {name for _, name in [*handed_to(call, callee), *spread_to(call, callee)]} if effects.given else set()
    )
    return f"it changes `{min(handed & effects.given)}`" if handed & effects.given else ""


def runs_it(found: Effects, scope: Scope, model: ast.expr) -> None:
    """Note that a model is called, by the parameter through which it is passed."""
    own = parameter_of(scope, model)
    found.models |= {own} if own else set()
    found.calls_model = found.calls_model or not own
