"""A loader whose items are lists, with a backward for each element: processes come to different numbers of them.

loader = DataLoader(data, batch_size=16, collate_fn=groups)    # gives [batch, batch, ...], as many as there are
for batches in loader:
    for batch in batches:                                      (a finding)
        loss = model(batch).mean()
        loss.backward()
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.data.loaders import collating, drops_last
from accelify.analysis.data.padded import results_of
from accelify.analysis.syntax import dotted
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

INNER = Rule(
    "ACC428",
    "batches-in-an-item",
    "Each item of a loader is a list that is trained on element by element, and lists differ in length.",
    Severity.WARNING,
    Safety.MANUAL,
    effort=15,
)
_WRAPPING = frozenset({"enumerate", "tqdm", "tqdm.tqdm", "iter", "reversed", "trange"})


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each loop over the elements of such an item that calls backward."""
    script, plan = context.script, context.plan
    if plan.known.distributed or not any(
        m.tree.mentions("collate_fn") for m in script.program.modules.values()
    ):
        return
    drawing = {loop for loop, _ in script.loader_loops}
    for loop in context.tree.nodes(ast.For):
        if loop in drawing or not script.trains(loop) or not any(script.trains(s) for s in loop.body):
            continue
        item = _item(loop.iter)
        if item is None:
            continue
        loaders = {t for b in script.things(item, v.BATCH) for t in b.link("loader")}
        if not plan.is_sharded(loaders):
            continue
        if any(
            _gives_list(body) for t in loaders if not drops_last(script, t) for body in collating(script, t)
        ):
            yield context.change(
                INNER,
                loop.iter,
                f"`{dotted(item)}` is a list of the loader's collate function, and each of its elements is trained on: "
                "where the lists of two processes differ in length, as the last ones of an epoch can, their backwards "
                "no longer go together, and the run ends with an error; drop_last=True leaves those out",
            )


def _item(node: ast.expr) -> ast.Name | None:
    """The name whose elements a loop goes through."""
    while isinstance(node, ast.Call) and dotted(node.func) in _WRAPPING and node.args:
        node = node.args[0]
    return node if isinstance(node, ast.Name) else None


def _gives_list(body: ast.AST) -> bool:
    """Whether a collate function gives back a list with as many elements as it happens to have."""
    given = {body.args.args[-1].arg} if isinstance(body, _FUNCTIONS) and body.args.args else set()
    results, made = results_of(body)
    for result in results:
        value = made.get(result.id, result) if isinstance(result, ast.Name) else result
        if isinstance(value, ast.Name) and value.id in given:
            return True
        if isinstance(value, ast.ListComp) and not _columns(value):
            return True
        if isinstance(value, ast.List) and not value.elts:
            return True
        if isinstance(value, ast.Call) and dotted(value.func) == "list" and not value.args:
            return True
    return False


def _columns(node: ast.ListComp) -> bool:
    """`[stack(column) for column in zip(*items)]`: as many as a sample has parts."""
    over = node.generators[0].iter
    return isinstance(over, ast.Call) and dotted(over.func) in ("zip", "map")


_FUNCTIONS = (ast.FunctionDef, ast.Lambda)
