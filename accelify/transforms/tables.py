"""Tables of counts that a loop fills by index, and the largest or smallest of a figure, reduced after the loop.

for images, labels in loader:
    ...
    for label, prediction in zip(labels, predictions):
        confusion[label, prediction] += 1
                                    ->  confusion = accelerator.reduce(confusion, reduction="sum")
print(confusion)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from accelify.analysis.metrics.figures import BatchLoop, Place, head_of, is_table, place_of, plain
from accelify.analysis.syntax import dotted, names_in, text_of, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit

TABLES = Rule(
    "ACC307",
    "count-tables",
    "A table of counts covers one process's share of the data only.",
    safety=Safety.REVIEW,
    effort=5,
)
_ROOMS = frozenset({"zeros", "zeros_like"})


def transform(context: Context) -> Iterator[Change]:
    """Yield the reduction of tables and extremes after the loops over sharded loaders that fill them."""
    for loop in [*context.shared_loops(), *context.ungathered_loops()]:
        accelerator = context.accelerator(loop)
        if accelerator is None:
            continue
        found = _Found(context, loop)
        if not found.places:
            continue
        lines, edits = _lines(context, accelerator, found), list[Edit]()
        if context.for_accelerate:
            edits.append(context.import_for(loop, "from accelerate.utils import gather_object"))
        edits.append(context.afterwards(loop, lines))
        context.settle(loop, found.places)
        names = ", ".join(f"`{place.text}`" for place in found.places)
        yield context.change(
            TABLES, head_of(loop), f"{names} would cover one process's share of the data", edits
        )


class _Found:
    """The tables and extremes of a loop: `places`, each with how its parts go together, and which are lists."""

    def __init__(self, context: Context, loop: BatchLoop) -> None:
        self.script, self.loop = context.script, loop
        self.figures = context.figures
        self.places: dict[Place, str] = {}
        self.lists: set[Place] = set()
        tables: dict[Place, bool] = {}
        batch: Set[str] | None = None
        for node in (n for stmt in loop.body for n in walk(stmt)):
            if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
                base = _table(context, node)
            elif isinstance(node, ast.Assign):
                base = _extreme(context, node)
            else:
                continue
            if base is None:
                continue
            batch = self.figures.of_the_batch(loop) if batch is None else batch
            place = place_of(self.script, base)
            if place is None or place.whole or not names_in(node) & batch:
                continue
            if isinstance(node, ast.Assign):
                if self.figures.is_read_after(loop, place):
                    self.places[place] = dotted(node.value.func) or ""  # type: ignore[attr-defined]
            else:
                tables[place] = tables.get(place, True) and self._is_table(place, node)
        # A table that is divided by another needs both.
        if tables and all(tables.values()):
            self.places.update(dict.fromkeys(tables, "sum"))

    def _is_table(self, place: Place, node: ast.AugAssign) -> bool:
        """Whether counts are added to a table that starts with nothing before each run of the loop."""
        made = self.figures.made_before(self.loop, place)
        value = made.value if isinstance(made, ast.Assign) else None
        if (
            isinstance(made, ast.Assign)
            and isinstance(made.targets[0], ast.Tuple)
            and isinstance(value, ast.Tuple)
        ):
            texts = [text_of(t) for t in made.targets[0].elts]
            value = value.elts[texts.index(place.text)] if place.text in texts else None
        if value is None or not self.figures.is_read_after(self.loop, place):
            return False
        if _is_list_of_numbers(value):
            self.lists.add(place)
        elif (
            (dotted(value.func) or "").rsplit(".", 1)[-1] not in _ROOMS
            if isinstance(value, ast.Call)
            else True
        ):
            return False
        return isinstance(node.target, ast.Name | ast.Attribute) or self._counts(node.value)

    def _counts(self, value: ast.expr) -> bool:
        if isinstance(value, ast.Constant) or self.figures.kind(value) == "sum" or _compares(value):
            return True
        inner = plain(value)
        if isinstance(inner, ast.Subscript) and isinstance(inner.value, ast.Name):
            made = self.figures.made_in_loop(inner.value)
            return made is not None and _compares(made)
        return False


def _table(context: Context, node: ast.AugAssign) -> ast.expr | None:
    """What is filled by `table[i] += 1`, or `table += np.bincount(...)`."""
    target: ast.expr = node.target
    if isinstance(target, ast.Subscript):
        while isinstance(target, ast.Subscript):
            if isinstance(target.slice, ast.Constant) and isinstance(target.slice.value, str):
                return None
            target = target.value
        return target
    return target if is_table(context.script, node.value) else None


def _extreme(context: Context, node: ast.Assign) -> ast.expr | None:
    """What holds the largest in `largest = max(largest, value)`."""
    value, target = node.value, node.targets[0]
    if not isinstance(value, ast.Call) or len(value.args) != 2 or len(node.targets) != 1 or value.keywords:
        return None
    if context.script.qualname(value.func) not in ("builtins.max", "builtins.min"):
        return None
    texts = [text_of(a) for a in value.args]
    return target if isinstance(target, (ast.Name, ast.Attribute)) and text_of(target) in texts else None


def _compares(value: ast.expr) -> bool:
    return any(
        isinstance(n, ast.Compare) or (isinstance(n, ast.Attribute) and n.attr in ("eq", "ne"))
        for n in walk(value)
    )


def _is_list_of_numbers(value: ast.expr) -> bool:
    """`[0, 0]`, `[0] * 10`, `[0.0 for _ in classes]`, `list(0. for _ in classes)`."""
    if isinstance(value, ast.Call) and dotted(value.func) == "list" and len(value.args) == 1:
        value = value.args[0]
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        value = value.left
    if isinstance(value, ast.List):
        return bool(value.elts) and all(isinstance(e, ast.Constant) for e in value.elts)
    return isinstance(value, (ast.ListComp, ast.GeneratorExp)) and isinstance(value.elt, ast.Constant)


def _lines(context: Context, accelerator: str, found: _Found) -> list[str]:
    lines = []
    for reduction in dict.fromkeys(found.places.values()):
        places = [place for place, kind in found.places.items() if kind == reduction]
        if context.for_accelerate:
            # Accelerate's reduce takes only tensors, and has no maximum.
            for place in places:
                parts = f"gather_object([{place.text}])"
                value = (
                    f"[sum(n) for n in zip(*{parts})]" if place in found.lists else f"{reduction}({parts})"
                )
                lines.append(f"{place.text} = {value}")
            continue
        joined = ", ".join(place.text for place in places)
        value = joined if len(places) == 1 else f"({joined})"
        lines.append(f'{joined} = {accelerator}.reduce({value}, reduction="{reduction}")')
    return lines
