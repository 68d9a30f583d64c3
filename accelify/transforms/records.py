"""What a training loop records of its batches, reduced before it is read: lists of losses and predictions, meters.

for data, target in loader:
    ...
    losses.append(loss.item())
                                    ->  losses = accelerator.reduce(losses, reduction="mean")
print(np.mean(losses))

Where their sum is divided by the batches of all processes (`len(dataset) // batch_size`), ACC701 names the figure.

Where an epoch ends with fewer samples than processes, a process without one takes a sample again. That sample has no
weight in the gradient, but it is recorded like the others: at most one sample too many for each process but one, each
epoch. Where such figures choose the best checkpoint, evaluate on a separate loader, whose repeated samples
`gather_for_metrics` leaves out, or set `drop_last=True` on the training loader.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.losses.reduction_kinds import SUM
from accelify.analysis.metrics.counts import made_once
from accelify.analysis.metrics.figures import (
    SHARE,
    BatchLoop,
    Figures,
    Place,
    head_of,
    is_afterwards,
    is_fresh,
    place_of,
    plain,
)
from accelify.analysis.metrics.meters import Meter, meter_of
from accelify.analysis.metrics.recorded_sums import RecordedSums, Sums
from accelify.analysis.syntax import calls_in, names_in, text_of, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit

RECORDS = Rule(
    "ACC304",
    "What is recorded in a loop covers one process's share of the data only.",
    safety=Safety.REVIEW,
    effort=5,
    done="added up recorded figures over all processes",
)
# Calls that make a number of a tensor, and those that bring one to the host with all its samples.
_NUMBERS = frozenset({"item", "float", "mean"})
_ON_HOST = frozenset({"numpy", "tolist", "cpu", "item"})


def transform(context: Context) -> Iterator[Change]:
    """Yield what puts the records of training loops over sharded loaders together."""
    for loop in context.shared_loops():
        if context.accelerator(loop) is None:
            continue
        yield from _lists(context, loop)
        yield from _meters(context, loop)
    for loop in context.ungathered_loops():
        if context.accelerator(loop) is not None:
            # Lists of samples depend on the order; what to gather is reported at the loop.
            yield from _lists(context, loop, samples=False)
            yield from _meters(context, loop)


# -- lists


def _lists(context: Context, loop: BatchLoop, samples: bool = True) -> Iterator[Change]:
    figures = context.figures
    batch = figures.of_the_batch(loop)
    kinds: dict[Place, set[str]] = {}
    records: dict[Place, list[ast.AST]] = {}
    for node in (n for stmt in loop.body for n in walk(stmt)):
        retained, value = _recorded(node)
        if retained is None or value is None or not names_in(value) & batch:
            continue
        place = place_of(context.script, retained)
        if place is not None and not place.whole:
            kind = _kind_of_record(context, figures, value, node)
            everywhere = figures.runs_everywhere(node, loop)
            records.setdefault(place, []).append(node)
            kinds.setdefault(place, set()).add(kind if everywhere or kind == "objects" else "unclear")
    numbers: dict[str, list[Place]] = {"mean": [], "sum": []}
    objects, unclear = [], []
    for place, found in kinds.items():
        if not figures.is_read_after(loop, place):
            continue
        fresh = figures.made_before(loop, place)
        begun = fresh is not None and _begins_empty(fresh)
        if found == {"mean"} and (begun or _is_list(context, place)):
            # Averages of what is the same everywhere already change nothing, sums do.
            numbers["mean"].append(place)
        elif found == {"tensor"}:
            numbers["mean"].append(place)
        elif found == {"sum"} and begun:
            numbers["sum"].append(place)
        elif not samples:
            continue
        elif found == {"objects"} and begun:
            objects.append(place)
        elif found != {"other"}:
            unclear.append(place)
    for place in [p for p in numbers["sum"] if _is_divided_by(context, loop, p, unclear)]:
        # Its divisor stays local to this process.
        numbers["sum"].remove(place)
        numbers["mean"].append(place)
    recorded = RecordedSums(context.script, loop)
    splits_batches = context.plan.batch_size == "total" or context.plan.hand_cut is not None
    for place in [] if splits_batches else [p for p in numbers["mean"] if kinds[p] == {"mean"}]:
        if any(_is_part_of_mean(context, figures, node) for node in records[place]):
            continue
        sums = recorded.of(place)
        fresh = figures.made_before(loop, place)
        if sums.by_all and not sums.others and fresh is not None and _begins_empty(fresh):
            numbers["mean"].remove(place)
            numbers["sum"].append(place)
        else:
            yield from _too_small(context, place, sums)
    if any(numbers.values()) or objects:
        yield _gathered(context, loop, numbers, objects)
    if unclear:
        names, s = ", ".join(f"`{p.text}`" for p in unclear), "s" if len(unclear) == 1 else ""
        message = f"{names} hold{s} what one process recorded of its share of the data"
        yield context.change(RECORDS, head_of(loop), message)


def _is_part_of_mean(context: Context, figures: Figures, record: ast.AST) -> bool:
    """Whether what is recorded was divided by the batches of one process already: `kept.append(loss / len(loader))`."""
    value = _recorded(record)[1]
    return value is not None and figures.is_part_of_mean(_assigned(context, value))


def _too_small(context: Context, place: Place, sums: Sums) -> Iterator[Change]:
    """Means that are summed and divided by the batches of all processes, in a list that is read otherwise as well."""
    for whole in sums.by_all:
        message = (
            f"`{place.text}` has the means over the processes of as many batches as one of them sees, and "
            f"`{context.tree.segment(whole)}` is divided by those of all: multiply it by accelerator.num_processes"
        )
        yield context.change(RECORDS, whole, message)


def _is_divided_by(context: Context, loop: BatchLoop, place: Place, others: list[Place]) -> bool:
    """Whether a list is divided by another one after the loop: `sum(losses) / sum(counts)`."""
    texts = {other.text for other in others}
    for node in context.script.divisions.get(context.script.scope_of(loop), ()) if texts else ():
        divided, by = (
            (node.target, node.value) if isinstance(node, ast.AugAssign) else (node.left, node.right)
        )
        if is_afterwards(context.tree, node, loop):
            if _holds(context, divided, {place.text}) and _holds(context, by, texts):
                return True
    return False


def _holds(context: Context, value: ast.expr, texts: set[str]) -> bool:
    """Whether an expression reads one of some places, or names what was made of it: `total = sum(losses)`."""
    for node in walk(value):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Subscript)):
            if text_of(node) in texts:
                return True
            made = made_once(context.script, node) if isinstance(node, ast.Name) else None
            if made is not None and any(text_of(n) in texts for n in walk(made)):
                return True
    return False


def _recorded(node: ast.AST) -> tuple[ast.expr | None, ast.expr | None]:
    """The list and the value of `kept.append(value)`, `kept.extend(value)`, `kept += value.tolist()`."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        call = node.value
        if isinstance(call.func, ast.Attribute) and call.func.attr in ("append", "extend") and call.args:
            return call.func.value, call.args[0]
    if isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
        if isinstance(node.value, (ast.List, ast.ListComp)) or _ends_in(node.value, {"tolist"}):
            return node.target, node.value
    if _is_grown(node):
        assert isinstance(node, ast.Assign)
        assert isinstance(node.value, ast.Call)
        parts = node.value.args[0]
        assert isinstance(parts, (ast.Tuple, ast.List))
        return node.targets[0], parts.elts[1]
    return None, None


def _is_grown(node: ast.AST) -> bool:
    """`kept = torch.cat((kept, value))`."""
    if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call) or len(node.targets) != 1:
        return False
    call = node.value
    parts = call.args[0] if call.args else None
    if not isinstance(parts, (ast.Tuple, ast.List)) or len(parts.elts) != 2:
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in ("cat", "concat", "concatenate") and text_of(parts.elts[0]) == text_of(node.targets[0])


def _kind_of_record(context: Context, figures: Figures, value: ast.expr, node: ast.AST) -> str:
    """`mean` or `sum` for one number a batch, `objects` for samples on the host, else `unclear`."""
    extends = isinstance(node, ast.AugAssign) or (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Call)
        and isinstance(node.value.func, ast.Attribute)
        and node.value.func.attr == "extend"
    )
    value = _assigned(context, value)
    if _is_grown(node):
        return "tensor" if figures.kind(value) == "mean" else "unclear"
    if extends:
        return "objects" if _reaches_host(value) else "unclear"
    share = figures.share_of_set_size(value)
    if share is not None and (context.plan.batch_size == "total" or context.plan.hand_cut is not None):
        # Each process has its part of every batch: shares add up to that of the batch, what they leave does not.
        return "sum" if share == SHARE else "unclear"
    if share is not None and figures.kind(value) == "sum":
        return "mean"
    if figures.kind(value) == "sum":
        number = _ends_in(value, {"item"}) or isinstance(value, ast.BinOp)
        if isinstance(value, ast.Name):  # one of several values that a call returns
            number = figures.reductions.of(value) == SUM
        return "sum" if number else "unclear"
    if figures.kind(value) == "mean" and not _reaches_host(value, but={"item", "cpu", "numpy"}):
        return "mean"
    if _ends_in(value, _NUMBERS):
        return "mean"
    if isinstance(value, (ast.Dict, ast.Tuple, ast.List)):
        # Numbers side by side: reduce goes through what they lie in, that of Accelerate's does not.
        beside = [] if isinstance(value, ast.Dict) or context.for_accelerate else value.elts
        found = {_kind_of_record(context, figures, one, node) for one in beside}
        return found.pop() if len(found) == 1 and found <= {"mean", "sum"} else "unclear"
    return "objects" if _reaches_host(value) else "unclear"


def _assigned(context: Context, value: ast.expr) -> ast.expr:
    """What a name was assigned, where that was once."""
    for _ in range(3):
        if not isinstance(value, ast.Name):
            break
        found = [b for b in context.locations[1].bindings(value) if b is not None]
        stmt = found[0] if len(found) == 1 else None
        if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name):
            break
        if "loss" in value.id.lower() and plain(stmt.value) is stmt.value:
            break  # the loss itself, of any input
        value = stmt.value
    return value


def _ends_in(value: ast.expr, names: set[str] | frozenset[str]) -> bool:
    if not isinstance(value, ast.Call):
        return False
    return (
        value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    ) in names


def _reaches_host(value: ast.expr, but: set[str] | frozenset[str] = frozenset()) -> bool:
    """Whether a tensor is brought to the host on the way, so that any process can read it."""
    return any(isinstance(n, ast.Attribute) and n.attr in _ON_HOST - but for n in walk(value))


def _begins_empty(stmt: ast.stmt) -> bool:
    value = stmt.value if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else None
    values = value.elts if isinstance(value, ast.Tuple) else [value]
    return all(one is not None and is_fresh(one) for one in values)


def _is_list(context: Context, place: Place) -> bool:
    """Whether a place is made as a list, somewhere in the script."""
    wanted = {place.text.replace("'", '"'), place.root}
    values: list[ast.expr] = []
    for stmt in context.tree.nodes(ast.Assign):
        for target in stmt.targets:
            pairs = [(target, stmt.value)]
            if isinstance(target, ast.Tuple) and isinstance(stmt.value, ast.Tuple):
                pairs = list(zip(target.elts, stmt.value.elts, strict=False))
            values += [w for t, w in pairs if text_of(t).replace("'", '"') in wanted]
    return bool(values) and all(
        isinstance(w, (ast.List, ast.Dict)) or (isinstance(w, ast.Call) and text_of(w.func) == "list")
        for w in values
    )


def _gathered(
    context: Context, loop: BatchLoop, numbers: dict[str, list[Place]], objects: list[Place]
) -> Change:
    accelerator, lines, edits = context.accelerator(loop), [], list[Edit]()
    recorded = [place for places in numbers.values() for place in places]
    for reduction, places in numbers.items():
        targets = [_target(context, loop, place) for place in places]
        if context.for_accelerate:
            # Accelerate's reduce takes only tensors. Numbers keep their type when they are gathered as objects.
            parts = f" / {accelerator}.num_processes" if reduction == "mean" else ""
            for target, place in zip(targets, places, strict=True):
                lines.append(f"{target} = [sum(n){parts} for n in zip(*gather_object([{place.text}]))]")
        elif places:
            joined = ", ".join(p.text for p in places)
            value = joined if len(places) == 1 else f"({joined})"
            lines.append(f'{", ".join(targets)} = {accelerator}.reduce({value}, reduction="{reduction}")')
    for place in objects:
        lines.append(f"{_target(context, loop, place)} = gather_object({place.text})")
    if objects or (recorded and context.for_accelerate):
        edits.append(_import(context, loop))
    edits.append(context.afterwards(loop, lines))
    context.settle(loop, [*recorded, *objects])
    text = ", ".join(f"`{p.text}`" for p in [*recorded, *objects])
    return context.change(
        RECORDS, head_of(loop), f"{text} would cover one process's share of the data", edits
    )


def _target(context: Context, loop: BatchLoop, place: Place) -> str:
    """How the place is assigned: a list with another reference outside is filled in place."""
    scope = context.script.scope_of(loop)
    if place.text != place.root or "." in place.root:
        return place.text
    parameter = scope.kind == "function" and scope.takes(place.root)
    own = scope.resolve(place.root) is scope or place.root in scope.globals
    return place.text if own and not parameter else f"{place.text}[:]"


def _import(context: Context, loop: BatchLoop) -> Edit:
    package = "accelerate.utils" if context.for_accelerate else "accelify.runtime"
    return context.import_for(loop, f"from {package} import gather_object")


# -- meters


def _meters(context: Context, loop: BatchLoop) -> Iterator[Change]:
    figures = context.figures
    batch = figures.of_the_batch(loop)
    found: dict[str, Meter] = {}
    lasting: list[str] = []
    for call in (n for stmt in loop.body for n in calls_in(stmt)):
        if not isinstance(call.func, ast.Attribute) or not call.args or not names_in(call.args[0]) & batch:
            continue
        place, meter = place_of(context.script, call.func.value), meter_of(context.script, call.func.value)
        if place is None or meter is None or meter.update != call.func.attr or place.whole:
            continue
        if place.text in found or place.text in lasting or not figures.is_read_after(loop, place):
            continue
        if figures.starts_over(loop, place):
            found[place.text] = meter
            context.settle(loop, [place])
        else:
            lasting.append(place.text)
    if found:
        lines = _lines(context, loop, found)
        edits: list[Edit] = [context.afterwards(loop, lines)]
        if context.for_accelerate:
            edits.insert(0, _import(context, loop))
        text = ", ".join(f"`{name}`" for name in found)
        message = f"{text} would cover one process's share of the data"
        yield context.change(RECORDS, head_of(loop), message, edits)
    if lasting:
        names, s = ", ".join(f"`{name}`" for name in lasting), "s" if len(lasting) == 1 else ""
        message = f"{names} average{s} over one process's share of the data"
        yield context.change(RECORDS, head_of(loop), message)


def _lines(context: Context, loop: BatchLoop, found: dict[str, Meter]) -> list[str]:
    accelerator, unit = context.accelerator(loop), context.tree.indent_unit()
    scope = context.script.scope_of(loop)
    name = next(n for n in ("meter", "average_meter", "meter_") if scope.resolve(n) is None)
    lines: list[str] = []
    for meter in dict.fromkeys(found.values()):
        names = [text for text, own in found.items() if own == meter]
        contained = names[0] if len(names) == 1 else name
        both = f"{contained}.{meter.total}, {contained}.{meter.count}"
        value = f'{accelerator}.reduce(({both}), reduction="sum")'
        if context.for_accelerate:
            value = f"map(sum, zip(*gather_object([({both})])))"
        own = [f"{both} = {value}"]
        if meter.average is not None:
            own.append(f"{contained}.{meter.average} = {meter.averaged(contained)}")
        if len(names) > 1:
            own = [f"for {name} in ({', '.join(names)}):", *[unit + line for line in own]]
        lines += own
    return lines
