"""Running totals of a training loop, made whole before they are used.

for data, target in loader:
    ...
    running_loss += loss.item()
                                    ->  running_loss = accelerator.reduce(running_loss, reduction="mean")
print(running_loss / len(loader))
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.averages import counts_all, divisors
from accelify.analysis.evaluation import size_of
from accelify.analysis.figures import BatchLoop, Figures, Place, head_of, place_of
from accelify.analysis.syntax import children, names_in, walk
from accelify.edits import Edit, InsertAfter
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule

TOTALS = Rule(
    "ACC302",
    "running-totals",
    "A running total covers one process's share of the data only.",
    safety=Safety.REVIEW,
    effort=5,
)
_TENSOR_METHODS = frozenset("sum mean eq ne gt lt ge le add mul div pow sqrt abs".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the reduction of running totals behind the loops that train on sharded loaders."""
    for loop in [*context.shared_loops(), *context.ungathered_loops()]:
        sums = _Totals(context, loop)
        totals = sums.found()
        for place, node in sums.unclear.items():
            message = f"`{place.text}` adds up something of one process's share of the data"
            yield context.change(TOTALS, node, message)
        accelerator = context.accelerator(loop) if totals else None
        if accelerator is None:
            continue
        lines = []
        edits: list[Edit] = []
        tensors = [place for place in totals if context.for_accelerate and _is_tensor(context, loop, place)]
        for reduction in ("sum", "mean"):
            places = [place for place, kind in totals.items() if kind == reduction]
            if context.for_accelerate:
                # Its reduce takes tensors alone. Numbers stay what they are when they are gathered as objects.
                parts = f" / {accelerator}.num_processes" if reduction == "mean" else ""
                lines += [
                    f"{p.text} = sum(gather_object([{p.text}])){parts}" for p in places if p not in tensors
                ]
                places = [p for p in places if p in tensors]
            if places:
                joined = ", ".join(p.text for p in places)
                value = joined if len(places) == 1 else f"({joined})"
                lines.append(f'{joined} = {accelerator}.reduce({value}, reduction="{reduction}")')
        if len(tensors) < len(totals) and context.for_accelerate:
            module = context.script.module_of(loop).scopes.module.node
            assert isinstance(module, ast.Module)
            edits.append(context.import_line(module, "from accelerate.utils import gather_object")[0])
        edits.append(InsertAfter(loop, tuple(lines)))
        context.reduced.update((context.script.scope_of(loop), place.root) for place in totals)
        yield context.change(
            TOTALS,
            head_of(loop),
            f"{', '.join(f'`{p.text}`' for p in totals)} would cover one process's share of the data",
            edits,
        )


class _Totals:
    """What adds something up over a loop and is read behind it, with how its parts are put together."""

    def __init__(self, context: Context, loop: BatchLoop) -> None:
        self.context, self.loop = context, loop
        self.script, self.tree = context.script, context.tree
        self.figures = Figures(context.script, context.plan.reductions)
        # Additions of which it is not known how the parts of processes go together.
        self.unclear: dict[Place, ast.AST] = {}

    def found(self) -> dict[Place, str]:
        found: dict[Place, str] = {}
        wrong: set[Place] = set()
        batch = self.figures.of_the_batch(self.loop)
        for node in (n for stmt in self.loop.body for n in walk(stmt)):
            target, value = _addition(node)
            place = place_of(self.script, target) if target is not None else None
            if place is None or value is None or self._is_set_inside(place, node):
                continue
            kind = self.figures.kind(value)
            if kind is None:
                own = names_in(value) & batch and self.figures.is_read_behind(self.loop, place)
                if own and not _is_collected(value):
                    self.unclear.setdefault(place, node)
                continue
            if found.setdefault(place, kind) != kind or (place.whole and self.context.for_accelerate):
                wrong.add(place)
        for place in wrong:
            del found[place]
        found = {
            place: kind
            for place, kind in found.items()
            # Averages of what is the same everywhere already change nothing, sums do.
            if (kind == "mean" or self.figures.starts_over(self.loop, place))
            and self.figures.is_read_behind(self.loop, place)
        }
        for counter in [p for p in found if self._only_counts(p)]:
            divided = self._divided_by(counter, found)
            if not divided <= {p.text for p in found}:
                # It divides something that stays this process's own.
                del found[counter]
                found.update({p: "mean" for p in found if p.text in divided})
        return {place: self._by_divisor(place, kind) for place, kind in found.items()}

    def _by_divisor(self, place: Place, kind: str) -> str:
        """Means of batches that are divided by the number of all samples are summed: each process has seen fewer."""
        if kind != "mean" or self.context.plan.batch_size == "total":
            return kind
        by = list(divisors(self.script, self.loop, place.text))
        whole = bool(by) and all(counts_all(self.script, divisor) for divisor in by)
        return "sum" if whole and self.figures.starts_over(self.loop, place) else kind

    def _is_set_inside(self, place: Place, addition: ast.AST) -> bool:
        """Whether the loop also sets the place, so that it holds no total of the whole loop."""
        texts = {place.text.replace("'", '"'), place.root}
        for stmt in (n for part in self.loop.body for n in walk(part)):
            if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt is not addition:
                targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
                for node in (n for t in targets for n in walk(t)):
                    stored = isinstance(getattr(node, "ctx", None), ast.Store)
                    if stored and ast.unparse(node).replace("'", '"') in texts:
                        return True
        return False

    def _only_counts(self, place: Place) -> bool:
        """Whether a total is a number of samples and nothing else."""
        values = []
        for node in walk(self.loop):
            target, value = _addition(node)
            if target is not None and value is not None and place_of(self.script, target) == place:
                values.append(value)
        return bool(values) and all(
            size_of(value) is not None or (isinstance(value, ast.Name) and self.figures.is_batch_size(value))
            for value in values
        )

    def _divided_by(self, counter: Place, found: dict[Place, str]) -> set[str]:
        """What a counter divides behind the loop, as it is written."""
        scope, end = self.script.scope_of(self.loop), self.tree.end(self.loop)
        stores = [
            self.tree.start(n)
            for n in self.tree.nodes(ast.Name)
            if n.id == counter.root and isinstance(n.ctx, ast.Store) and self.tree.start(n) > end
            if self.script.scope_of(n) is scope
        ]
        # From there on it counts something else.
        limit = min(stores, default=len(self.tree.data))
        divided: set[str] = set()
        for node in self.tree.nodes(ast.BinOp):
            if not isinstance(node.op, ast.Div) or not end < self.tree.start(node) < limit:
                continue
            if self.tree.in_fstring(node) or self.tree.segment(node.right) != counter.text:
                if ast.unparse(node.right) != counter.text:
                    continue
            if self.script.scope_of(node).resolve(counter.root) is scope.resolve(counter.root):
                divided |= self._variables(node.left, {p.text for p in found})
        return divided

    def _variables(self, node: ast.expr, known: set[str]) -> set[str]:
        text = ast.unparse(node)
        for place in known:
            if text.replace("'", '"') == place.replace("'", '"'):
                return {place}
        if isinstance(node, ast.Name):
            return {node.id} if self.script.scope_of(node).resolve(node.id) is not None else set()
        return {
            name
            for child in children(node)
            if isinstance(child, ast.expr)
            for name in self._variables(child, known)
        }


def _addition(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The target and value of `total += value`, `total = total + value`, `total = 0.9 * total + 0.1 * value`."""
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        return node.target, node.value
    if not isinstance(node, ast.Assign) or len(node.targets) != 1 or not isinstance(node.value, ast.BinOp):
        return None, None
    target, value = node.targets[0], node.value
    if not isinstance(value.op, ast.Add):
        return None, None
    text = ast.unparse(target)
    if ast.unparse(value.left) == text:
        return target, value.right
    sides = [value.left, value.right]
    if isinstance(target, ast.Name) and all(_is_product(side) for side in sides):
        own = [side for side in sides if target.id in names_in(side)]
        if len(own) == 1:
            return target, next(side for side in sides if side is not own[0])
    return None, None


def _is_collected(value: ast.expr) -> bool:
    """Whether a list grows, and no number."""
    return isinstance(value, (ast.List, ast.ListComp)) or (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr == "tolist"
    )


def _is_product(node: ast.expr) -> bool:
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)


def _is_tensor(context: Context, loop: BatchLoop, place: Place) -> bool:
    """Whether something that is no plain number is added to a total."""
    for node in walk(loop):
        target, value = _addition(node)
        if target is not None and value is not None and place_of(context.script, target) == place:
            if _gives_tensor(context, value):
                return True
    return False


def _gives_tensor(context: Context, node: ast.expr, depth: int = 0) -> bool:
    if isinstance(node, ast.BinOp):
        return any(_gives_tensor(context, side, depth) for side in (node.left, node.right))
    if isinstance(node, ast.UnaryOp):
        return _gives_tensor(context, node.operand, depth)
    if isinstance(node, ast.Compare):
        return True
    if isinstance(node, ast.Call):
        if context.script.qualname(node.func) is not None:
            known = context.script.qualname(node.func) or ""
            inside = known == "builtins.sum" and any(isinstance(a, ast.Compare) for a in node.args)
            return known.startswith("torch.") or inside
        if isinstance(node.func, ast.Attribute):
            return node.func.attr in _TENSOR_METHODS or (
                node.func.attr in ("cpu", "detach", "clone", "float", "double", "long")
                and _gives_tensor(context, node.func.value, depth)
            )
        return context.script.is_a(node, v.OUTPUT)
    if isinstance(node, ast.Attribute):
        return node.attr == "data" and _gives_tensor(context, node.value, depth)
    if not isinstance(node, ast.Name) or depth > 3:
        return False
    if any(isinstance(b.loss, ast.Name) and b.loss.id == node.id for b in context.script.backwards):
        return True
    scope = context.script.scope_of(node).resolve(node.id)
    return any(
        _gives_tensor(context, stmt.value, depth + 1)
        for stmt in context.tree.nodes(ast.Assign)
        for target in stmt.targets
        if isinstance(target, ast.Name) and target.id == node.id
        if context.script.scope_of(stmt).resolve(node.id) is scope
    )
