"""Shuffled data that every process evaluates whole amid a training pass.

In such a loop the random streams of the processes differ, and each draws another order; after it they are equal again.
The figures differ where the loop ends early or its last batch is smaller.
"""

from __future__ import annotations

import ast

from accelify.analysis.data.loaders import is_shuffled
from accelify.analysis.planning.plan import Plan
from accelify.analysis.statements.within_loops import runs_in


def evaluates_in_other_orders(plan: Plan) -> bool:
    """Whether a script has such a loop, given the plan of its conversion."""
    script = plan.script
    passes: set[ast.AST] = {
        loop
        for loop, loaders in script.loader_loops
        if plan.is_sharded(loaders) and any(script.trains(s) for s in loop.body)
    }
    return any(
        e.loaders
        and not plan.is_sharded(e.loaders)
        and not plan.on_main_only(e.loop)
        and not e.only_looks
        and any(is_shuffled(script, loader) for loader in e.loaders)
        and runs_in(script, e.loop, passes)
        for e in plan.evaluations
    )
