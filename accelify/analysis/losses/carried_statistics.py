"""Statistics of a batch that a script stores for the next loss: radii, quantiles, running centres.

`self.R.data = torch.tensor(np.quantile(dist.data.cpu().numpy(), 0.9))`: what is computed from one process's part of
the batch. A state that a model carries on for each sample (`hidden`) is none: it belongs to the process's samples.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Set

from accelify.analysis.losses.carried import Update, made_last
from accelify.analysis.metrics.figures import BatchLoop
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, names_in, walk

_STATISTICS = frozenset(
    """mean nanmean average median nanmedian quantile nanquantile percentile nanpercentile std var sum nansum max min
    amax amin norm kthvalue topk mode cov logsumexp""".split()
)
# What takes a value out of the graph: what is not taken out belongs to a loss of several rounds, and is no statistic.
_TAKEN_OUT = frozenset("data detach detach_ item numpy tolist".split())
_AGREEING = frozenset(
    "reduce gather gather_for_metrics broadcast all_reduce all_gather all_gather_into_tensor".split()
)
_FARTHEST = 3


def keeps_statistic(
    script: ScriptModel, loop: BatchLoop, stmt: Update, batch: Set[str], runs_model: Callable[[Scope], bool]
) -> bool:
    """Whether a statement of a training loop stores a statistic of one process's part of the batch.

    Args:
        script: its model.
        loop: over the batches.
        stmt: the statement that sets what is stored.
        batch: the names in the loop that hold something of the batch.
        runs_model: whether a function runs a model.
    """
    parts = _made_of(script, loop, stmt, batch)
    nodes = [node for part in parts for node in walk(part)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    bodies: list[ast.AST] = []
    for call in calls:
        if not script.models_of(call.func):
            bodies += [c.node for c in script.callees(call) if not runs_model(c)]
    nodes += [node for body in bodies for node in walk(body)]
    if any(_last(node) in _AGREEING for node in nodes if isinstance(node, ast.Call)):
        return False
    inner = [n for body in bodies for n in calls_in(body)]
    if not any(names_in(call) & batch and _last(call) in _STATISTICS for call in calls):
        if not any(_last(call) in _STATISTICS for call in inner):
            return False
    targets = (
        stmt.targets if isinstance(stmt, ast.Assign) else [] if isinstance(stmt, ast.Expr) else [stmt.target]
    )
    out = any(isinstance(node, ast.Attribute) and node.attr in _TAKEN_OUT for node in nodes)
    out = out or any(isinstance(n, ast.Attribute) and n.attr in _TAKEN_OUT for t in targets for n in walk(t))
    return out or any(
        isinstance(around, ast.With)
        and any(
            (dotted(getattr(i.context_expr, "func", None)) or "").endswith("no_grad") for i in around.items
        )
        for around in script.tree.ancestors(stmt)
    )


def _made_of(script: ScriptModel, loop: BatchLoop, stmt: Update, batch: Set[str]) -> list[ast.expr]:
    """What a statement sets something to, and what the variables in it were set to in the loop before."""
    found: list[ast.expr] = []
    queue: list[tuple[ast.expr, int]] = [(stmt.value, 0)]
    while queue:
        part, far = queue.pop()
        if part in found or not names_in(part) & batch:
            continue
        found.append(part)
        for name in walk(part) if far < _FARTHEST else ():
            if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load) and name.id in batch:
                made = made_last(script, loop, name)
                if made is not None:
                    queue.append((made, far + 1))
    return found


def _last(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


__all__ = ["keeps_statistic"]
