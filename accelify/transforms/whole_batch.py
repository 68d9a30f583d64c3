"""Losses that compare the samples of a batch with each other: each process sees its own samples only.

scores = images @ texts.t()
distances = torch.cdist(features, features)
distances = ((a.view(n, d, 1) - b.t()) ** 2).sum(1)
distances.addmm_(1, -2, features, features.t())
d = a.unsqueeze(0) - a.unsqueeze(1)
density = log_density(z.view(n, 1, d), mean.view(1, n, d))
target = q ** 2 / q.sum(0)
loss = criterion(fake - real.mean(0, keepdim=True), valid)
loss = loss + torch.log(torch.sum(torch.exp(scores)))
scores[:, j] = (x * centres[j]).sum(1)
loss = F.cross_entropy(scores, torch.arange(len(x)))    (in the forward of a model, too)
loss = -torch.diag(F.log_softmax(a @ b.t(), dim=1)).mean()
own = scores[range(n), range(n)]
loss = (margin + scores - scores.diag().view(-1, 1)).clamp(min=0).sum()
loss = losses.TripletMarginLoss()(features, target)     (of pytorch_metric_learning)
loss = F.cross_entropy(scores, y, reduction="none").topk(k, largest=False)[0].mean()
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.filled_matrices import counts_samples, fills_by_pairs, runs_in_forward
from accelify.analysis.devices.made_of_numbers import is_made_of_numbers
from accelify.analysis.losses.pitted_samples import PittedSamples
from accelify.analysis.losses.ranked_samples import ranks_losses
from accelify.analysis.losses.reductions import sums_samples
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.statements.given_none import is_ruled_out
from accelify.analysis.syntax import call_keyword, dotted, is_constant, names_in, target_names, text_of, walk
from accelify.analysis.trained import is_in_model
from accelify.analysis.values import Class, Thing
from accelify.transforms.base import Change, Context, Rule, short

WHOLE_BATCH = Rule(
    "ACC408", "whole-batch-loss", "A loss compares the samples of a batch with each other.", effort=15
)
_MARK = "gather the samples of all processes first if the loss is meant over the whole batch"
_PRODUCTS = frozenset({"matmul", "mm"})
_KEEPING = frozenset({"contiguous", "detach", "clone"})
# What rows are compared with that are no samples of the batch.
_NO_SAMPLES = re.compile(
    r"weight|kernel|matrix|center|centre|proto|embed\w*$|codebook|bank|queue|memory|table|(^|_)lut($|_)|basis|^[wW]\d?$|mask|"
    r"anchors$|anchor_?(box|grid|point|scale)"  # of a detector; the anchor of a pair is a sample
)
# What lies within one sample.
_PLACES = re.compile(r"box|point|pts|grid|coord|^xyz|anchor|gt_|loc|kpt")

# `x.view(1, n, d)`: in few scripts.
_FIRST_OF_ONE = re.compile(rb"\.(view|reshape)\(\s*1\s*,")


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each comparison of samples in what makes a loss."""
    if not context.plan.shares_training_data:
        return
    tree, pitted = context.tree, PittedSamples(context.script)
    for node in tree.nodes(ast.BinOp, ast.Call):
        if not _may_compare(node):
            continue
        scope = context.script.scope_of(node)
        if isinstance(node, ast.Call) and pitted.pits(scope, node):
            if not (
                _sees_all(context, node) or _serves_evaluation(context, scope) or _is_evaluated(context, node)
            ):
                yield context.todo(WHOLE_BATCH, node, _message(context, node), _MARK)
            continue
        filled = isinstance(node, ast.Call) and _compares_by_size(context, scope, node)
        if not filled and not _compares(context, scope, node):
            continue
        if (
            (_has_parameters(context, scope) and (not filled or runs_in_forward(scope)))
            or _is_of_weights(scope, node)
            or _sees_all(context, node)
            or (not filled and is_made_of_numbers(context.script, scope, node))
            or _serves_evaluation(context, scope)
            or is_ruled_out(context.script, node, scope)
            or not (scope.of_type(ast.Return) or any(map(context.script.trains, scope.calls)))
        ):
            continue
        yield context.todo(WHOLE_BATCH, node, _message(context, node), _MARK)
    yield from _in_other_modules(context, pitted)


def _message(context: Context, node: ast.AST) -> str:
    index = context.tree.parent(node)
    if isinstance(index, ast.Tuple) and isinstance(whole := context.tree.parent(index), ast.Subscript):
        node = whole  # `scores[range(n), range(n)]`
    text = short(context.tree.segment(node))
    return f"`{text}` compares the samples of a batch; a process sees its own only"


def _in_other_modules(context: Context, pitted: PittedSamples) -> Iterator[Change]:
    """Criteria of modules that are not converted with the script, where they are called to train."""
    script, known = context.script, dict[Scope, str]()
    making = _making_losses(context)
    for call in script.calls():
        if not script.callees(call) and not script.is_a(call.func, v.CRITERION):
            continue
        if script.scope_of(call) not in making or _sees_all(context, call):
            continue
        if any(
            script.is_a(a, v.LOADER, v.DATASET) for a in [*call.args, *[kw.value for kw in call.keywords]]
        ):
            continue  # it goes through data of its own: no loss of this batch
        held = script.things(call.func, v.CRITERION, v.MODEL)
        ruled_out = {_forward(t) for t in held if _is_ruled_out(context, call, t)}
        forwards = {f for t in held if t.kind == v.CRITERION and (f := _forward(t)) is not None}
        for callee in (*script.callees(call), *forwards):
            if callee in ruled_out:
                continue
            where = _place(context, callee, known)
            if not where and not _is_evaluated(context, call):
                where = _told(context, pitted.within(callee))
            if where:
                message = (
                    f"`{short(context.tree.segment(call.func))}` compares the samples of a batch ({where}); a process "
                    "sees its own only"
                )
                yield context.todo(WHOLE_BATCH, call, message, _MARK)
                break


def _told(context: Context, found: tuple[Scope, ast.expr] | None) -> str:
    """How it is said where in another module something stands; "" for nothing."""
    if found is None:
        return ""
    module = context.script.interpreter.module_of(found[0])
    return f"{module.path.name if module.path is not None else 'another module'}, line {found[1].lineno}"


def _making_losses(context: Context) -> set[Scope]:
    """The functions that train, and those of the script that they call, but for what evaluates and for models."""
    script = context.script
    found = set(script.training_scopes)
    queue = list(found)
    while queue:
        for call in queue.pop().calls:
            for callee in script.callees(call) - found:
                if script.interpreter.module_of(callee) in script.modules and not (
                    _evaluates(context, callee) or _has_parameters(context, callee)
                ):
                    found.add(callee)
                    queue.append(callee)
    return found


def _is_ruled_out(context: Context, call: ast.Call, criterion: Thing) -> bool:
    """Whether a call stands under `isinstance(criterion, Other)`, so that it is another criterion that runs."""
    inner: ast.AST = call
    for ancestor in context.tree.ancestors(call):
        test = ancestor.test if isinstance(ancestor, ast.If) and inner in ancestor.body else None
        inner = ancestor
        if isinstance(test, ast.Call) and isinstance(test.func, ast.Name) and test.func.id == "isinstance":
            asked, kind = (*test.args, None, None)[:2]
            if asked is None or not isinstance(kind, (ast.Name, ast.Attribute)) or criterion.cls is None:
                continue
            name = (dotted(kind) or "").rpartition(".")[2]
            if ast.dump(asked) == ast.dump(call.func):
                return name not in {one.name for one in criterion.cls.ancestry()}
    return False


def _forward(criterion: Thing) -> Scope | None:
    """What a criterion of a class of the program runs."""
    found = criterion.cls.method("forward") if criterion.cls is not None else None
    return found[1] if found is not None else None


def _place(context: Context, scope: Scope, known: dict[Scope, str], depth: int = 3) -> str:
    """Where a function of another module, or one that it calls, compares samples; "" where none does."""
    if scope not in known:
        known[scope] = ""
        script = context.script
        module = script.interpreter.module_of(scope)
        learned = _has_parameters(context, scope)
        if module in script.modules or (learned and runs_in_forward(scope)):
            return ""
        for node in scope.nodes:
            if (isinstance(node, ast.Call) and _compares_by_size(context, scope, node)) or (
                isinstance(node, (ast.BinOp, ast.Call))
                and not learned
                and _compares(context, scope, node)
                and not _is_of_weights(scope, node)
                and not is_made_of_numbers(script, scope, node)
            ):
                known[scope] = _told(context, (scope, node))
                break
            if isinstance(node, ast.Call) and depth:
                # Of what a model's own loss calls, its methods alone.
                inner = [
                    _place(context, c, known, depth - 1)
                    for c in script.callees(node)
                    if not learned or _has_parameters(context, c)
                ]
                if any(inner):
                    known[scope] = next(filter(None, inner))
                    break
    return known[scope]


def _serves_evaluation(context: Context, scope: Scope, depth: int = 3) -> bool:
    """Whether everything that calls a function evaluates: goes through data of its own without training on it."""
    script = context.script
    if scope in script.training_scopes or not script.callers(scope) or not depth:
        return False
    callers = [(one, call) for call in script.callers(scope) if (one := script.scope_of(call)) is not scope]
    return all(
        _evaluates(context, one, call) or _serves_evaluation(context, one, depth - 1) for one, call in callers
    )


def _evaluates(context: Context, scope: Scope, within: ast.Call | None = None) -> bool:
    """Whether a function that does not train goes through a loader, by itself or by what it calls, or says that it
    evaluates; what it says in a `with` holds for a call `within` that alone."""
    script = context.script
    if scope in script.training_scopes:
        return False
    called = {one for node in scope.calls for one in script.callees(node)}
    reading = {script.scope_of(loop) for loop, _ in script.loader_loops}
    if reading & {scope, *called}:
        return True
    marks = getattr(scope.node, "decorator_list", [])
    said = {script.qualname(n.func if isinstance(n, ast.Call) else n) for n in marks}
    part = within is not None and not script.is_without_gradients(within)
    return bool(said & set(k.NO_GRAD)) or any(
        isinstance(node, ast.Call)
        and (
            (
                script.qualname(node.func) in k.NO_GRAD
                and not (part and isinstance(context.tree.parent(node), ast.withitem))
            )
            or (isinstance(node.func, ast.Attribute) and node.func.attr == "eval" and not node.args)
        )
        for node in scope.nodes
    )


def _is_evaluated(context: Context, node: ast.AST) -> bool:
    """Whether a node stands in a loop, or in a function, that goes through data without training on it."""
    loops = context.script.enclosing_loops(node)
    return any(e.loop in loops for e in context.plan.evaluations) or _evaluates(
        context, context.script.scope_of(node)
    )


def _sees_all(context: Context, node: ast.AST) -> bool:
    """Whether a node stands in a loop over data that every process goes through whole."""
    loops = context.script.enclosing_loops(node)
    read = [loaders for loop, loaders in context.script.loader_loops if loop in loops]
    return bool(read) and not any(loaders & context.plan.prepared for loaders in read)


def _is_of_weights(scope: Scope, node: ast.AST) -> bool:
    """Whether a comparison is one of weights with each other, which a loop over a model's parameters goes through."""
    names = names_in(node)
    return any(
        isinstance(loop, ast.For)
        and isinstance(loop.iter, ast.Call)
        and isinstance(loop.iter.func, ast.Attribute)
        and loop.iter.func.attr in ("parameters", "named_parameters", "modules", "children")
        and names & set(target_names(loop.target))
        for loop in scope.nodes
    )


def _has_parameters(context: Context, scope: Scope) -> bool:
    """Whether a scope is a method of a module that learns something: a model or a part of one, and no criterion."""
    owner = scope.owner_class
    if owner is None or not is_in_model(context.script, scope):
        return False
    cls = context.script.interpreter.things.get((owner, "class"))
    for one in cls.ancestry() if isinstance(cls, Class) else ():
        for method in one.scope.children.values():
            for node in method.nodes:
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
                    if isinstance(node.targets[0], ast.Attribute) and _learns(
                        context, one, method, node.value
                    ):
                        return True
    return False


def _learns(context: Context, cls: Class, method: Scope, made: ast.Call) -> bool:
    attribute = made.func.attr if isinstance(made.func, ast.Attribute) else getattr(made.func, "id", "")
    held = context.script.interpreter.evaluate(cls.module, method, made)
    return attribute == "Parameter" or any(isinstance(one, Thing) and one.kind == v.MODEL for one in held)


def _may_compare(node: ast.BinOp | ast.Call) -> bool:
    return isinstance(node, ast.Call) or isinstance(node.op, (ast.Sub, ast.MatMult, ast.Div))


def _compares_by_size(context: Context, scope: Scope, call: ast.Call) -> bool:
    """Whether a call compares as many rows as the batch has samples, by pairs: those of no layer of a model."""
    if fills_by_pairs(scope, call):
        return True
    if len(call.args) < 2 or not context.script.callees(call):
        return False
    if not context.script.interpreter.module_of(scope).tree.mentions(_FIRST_OF_ONE):
        return False
    sizes = _pairs_of_views(scope, call.args)
    return any(counts_samples(scope, size) for size in sizes)


def _compares(context: Context, scope: Scope, node: ast.BinOp | ast.Call) -> bool:
    if isinstance(node, ast.BinOp):
        if isinstance(node.op, ast.Sub):
            sides = (node.left, node.right)
            return (
                _spread_against(*sides)
                or _spread_by_views(scope, sides)
                or _spread_by_names(scope, *sides)
                or _rows_against_columns(scope, *sides)
                or _rows_against_columns(scope, *reversed(sides))
                or any(_is_mean_of_batch(context, side) for side in sides)
            )
        if isinstance(node.op, ast.Div):
            return _divides_by_batch(context, scope, node)
        return isinstance(node.op, ast.MatMult) and _rows_with_rows(node.left, node.right)
    if len(node.args) > 1 and context.script.callees(node):
        tree = context.script.interpreter.module_of(scope).tree
        if tree.mentions(_FIRST_OF_ONE) and _spread_by_views(scope, node.args):
            return True
    if ranks_losses(context.script, scope, node):
        return True
    func = node.func
    last = func.attr if isinstance(func, ast.Attribute) else getattr(func, "id", "")
    if last == "log" and len(node.args) == 1:
        return _is_sum_of_batch(context, node.args[0])
    if not isinstance(func, ast.Attribute):
        return False
    if func.attr in ("pdist", "cdist"):
        pair = node.args[:2] if func.attr == "cdist" else node.args[:1] * 2
        if len(pair) < 2 or not isinstance(pair[0], ast.Name) or not isinstance(pair[1], ast.Name):
            return False
        return pair[0].id == pair[1].id or _is_kernel(context, scope, pair[0].id, pair[1].id)
    if func.attr in ("addmm", "addmm_"):
        # Of a tensor with itself: with another one, it is a layer.
        factors = [arg for arg in node.args if not isinstance(arg, (ast.Constant, ast.UnaryOp))][-2:]
        bases = [_base(factor) for factor in factors]
        return (
            len(bases) == 2
            and {turned for _, turned in bases} == {True, False}
            and (
                bases[0][0] is not None and bases[0][0] == bases[1][0] and not _NO_SAMPLES.search(bases[0][0])
            )
        )
    if func.attr not in _PRODUCTS:
        return False
    pair = node.args[:2] if len(node.args) >= 2 else [func.value, *node.args]
    return len(pair) == 2 and _rows_with_rows(pair[0], pair[1])


def _is_kernel(context: Context, scope: Scope, one: str, other: str) -> bool:
    """Whether a function of `x` and `y` is somewhere called with the same tensor twice, as `k(a, a)` of an MMD loss."""
    names = scope.positional()[1 if scope.self_name() else 0 :]
    if one not in names or other not in names:
        return False
    places = (names.index(one), names.index(other))
    for _, call in context.script.interpreter.callers.get(scope, []):
        given = [call.args[place] for place in places if place < len(call.args)]
        if len(given) == 2 and isinstance(given[0], ast.Name) and ast.dump(given[0]) == ast.dump(given[1]):
            return True
    return False


def _is_mean_of_batch(context: Context, node: ast.expr) -> bool:
    """`scores.mean(0)` of what a model gives for the batch: what a sample is compared with."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "mean":
        return False
    owner, given = node.func.value, node.args
    if context.script.qualname(node.func) == "torch.mean" and given:
        owner, given = given[0], given[1:]
    dim = given[0] if given else call_keyword(node, "dim")
    return dim is not None and is_constant(dim, 0) and context.script.is_a(owner, v.OUTPUT)


def _divides_by_batch(context: Context, scope: Scope, node: ast.BinOp) -> bool:
    """`q ** 2 / q.sum(0)` of what a model gives for the batch: every sample's share depends on the others."""
    total = node.right
    if (
        not isinstance(total, ast.Call)
        or not isinstance(total.func, ast.Attribute)
        or total.func.attr != "sum"
    ):
        return False
    whole = total.func.value
    given = total.args
    if dotted(whole) in ("torch", "th") and given:
        whole, given = given[0], given[1:]
    if not isinstance(whole, ast.Name) or not sums_samples(given, total.keywords):
        return False
    if all(n.id != whole.id for n in walk(node.left) if isinstance(n, ast.Name)):
        return False
    own = scope.owner_class is not None and scope.name.endswith(".forward")
    if own and scope.takes(whole.id):
        return not _NO_SAMPLES.search(whole.id)
    interpreter = context.script.interpreter
    held = interpreter.evaluate(interpreter.module_of(scope), scope, whole)
    return any(isinstance(one, Thing) and one.kind == v.OUTPUT for one in held)


def _is_sum_of_batch(context: Context, node: ast.expr, far: int = 0) -> bool:
    """`torch.sum(torch.exp(scores))`, by itself or in a name."""
    if isinstance(node, ast.Name) and not far and context.script.is_a(node, v.OUTPUT, v.TENSOR):
        scope = context.script.scope_of(node)
        made = [s.value for s in context.tree.assigns(node.id) if context.script.scope_of(s) is scope]
        return len(made) == 1 and _is_sum_of_batch(context, made[0], 1)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return any(_is_sum_of_batch(context, side, far) for side in (node.left, node.right))
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or node.func.attr != "sum":
        return False
    whole = 1 if context.script.qualname(node.func) == "torch.sum" else 0
    return len(node.args) == whole and not node.keywords and context.script.is_a(node, v.OUTPUT, v.TENSOR)


def _rows_with_rows(one: ast.expr, other: ast.expr) -> bool:
    """`a @ b.t()`: every row of the one with every row of the other, of two tensors of the batch or of the same."""
    (first, turned), (second, turned_too) = _base(one), _base(other)
    if first is None or second is None or turned == turned_too:
        return False
    return first == second or not (_NO_SAMPLES.search(first) or _NO_SAMPLES.search(second))


def _base(node: ast.expr) -> tuple[str | None, bool]:
    """The name at the root of an operand, and whether its two dimensions are swapped."""
    turned = False
    while True:
        if isinstance(node, ast.Attribute) and node.attr == "T":
            turned, node = not turned, node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            if _swaps(node):
                turned = not turned
            elif node.func.attr not in _KEEPING:
                return None, False
            node = node.func.value
        else:
            return (node.id, turned) if isinstance(node, ast.Name) else (None, False)


def _swaps(call: ast.Call) -> bool:
    """`t()`, `transpose(0, 1)`, `permute(1, 0)`: not the dimensions within one sample."""
    assert isinstance(call.func, ast.Attribute)
    given = sorted(a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, int))
    return call.func.attr == "t" or (call.func.attr in ("transpose", "permute") and given == [0, 1])


def _spread_against(one: ast.expr, other: ast.expr) -> bool:
    """`a.unsqueeze(0) - b.unsqueeze(1)`: every sample minus every sample."""
    dimensions = {_spread(one), _spread(other)}
    return dimensions == {0, 1}


def _rows_against_columns(scope: Scope, one: ast.expr, other: ast.expr) -> bool:
    """`a.view(n, d, 1) - b.t()`: every row of the one minus every row of the other."""
    rows = assigned_once(scope, one)
    row = _deepened(rows) if rows is not None else None
    columns = assigned_once(scope, other) if row is not None else None
    if row is None or columns is None:
        return False
    if isinstance(columns, ast.Call) and dotted(columns.func) in ("torch.t", "torch.transpose"):
        name, turned = _base(columns.args[0]) if columns.args else (None, False)
        turned = turned != _swaps(columns)
    else:
        name, turned = _base(columns)
    return turned and name is not None and not (_NO_SAMPLES.search(name) or _NO_SAMPLES.search(row))


def _deepened(node: ast.expr) -> str | None:
    """The name of a matrix that gets a third dimension: `a.view(n, d, 1)`, `a.unsqueeze(2)`, `a[:, :, None]`."""
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else []
        whole = len(parts) == 3 and all(isinstance(part, ast.Slice) for part in parts[:2])
        return node.value.id if whole and is_constant(parts[2], None) else None
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return None
    last = node.args[-1] if node.args else None
    shaped = node.func.attr in ("view", "reshape") and len(node.args) == 3 and is_constant(last, 1)
    deeper = node.func.attr == "unsqueeze" and is_constant(last, 2)
    return node.func.value.id if (shaped or deeper) and isinstance(node.func.value, ast.Name) else None


def _spread_by_views(scope: Scope, sides: Sequence[ast.expr]) -> bool:
    """Every sample against every sample: `a.view(n, 1, d)` and `b.view(1, n, d)`, or names of these."""
    return bool(_pairs_of_views(scope, sides))


def _pairs_of_views(scope: Scope, sides: Sequence[ast.expr]) -> set[str]:
    """How many rows are compared so, as source."""
    viewed = [_viewed(made) for side in sides if (made := assigned_once(scope, side)) is not None]
    rows = {size for place, size in filter(None, viewed) if place == 1}
    return {size for place, size in filter(None, viewed) if place == 0 and size in rows}


def _viewed(node: ast.expr) -> tuple[int, str] | None:
    """Where `x.view(n, 1, d)` has its new dimension, and how many samples it has in the other of the first two."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or len(node.args) < 3:
        return None
    name = dotted(node.func.value)
    if node.func.attr not in ("view", "reshape") or name is None or _NO_SAMPLES.search(name):
        return None
    new = [place for place, size in enumerate(node.args) if is_constant(size, 1)]
    if new not in ([0], [1]):
        return None
    size = node.args[1 - new[0]]
    return (new[0], text_of(size)) if isinstance(size, (ast.Name, ast.Call, ast.Subscript)) else None


def _spread_by_names(scope: Scope, one: ast.expr, other: ast.expr) -> bool:
    """`a - b` of `a = x.unsqueeze(0).expand(n, m, d)` and `b = y.unsqueeze(1).expand(n, m, d)`, or of these calls."""
    made = [assigned_once(scope, side) for side in (one, other)]
    whole = [_unexpanded(side) for side in made if side is not None]
    if len(whole) < 2 or {_spread(side) for side in whole} != {0, 1}:
        return False
    names = [n.id for side in whole for n in [_spread_name(side)] if n is not None]
    if len(names) < 2 or any(_NO_SAMPLES.search(name) for name in names):
        return False
    # Of two tensors: a kernel that is handed both, and no grid or boxes of one sample.
    handed = {a.arg for a in scope.parameters()}
    return names[0] == names[1] or (handed >= set(names) and not any(_PLACES.search(name) for name in names))


def _unexpanded(node: ast.expr) -> ast.expr:
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("expand", "expand_as", "repeat", *_KEEPING):
            break
        node = node.func.value
    return node


def _spread_name(node: ast.expr) -> ast.Name | None:
    """The name under `x.unsqueeze(0)` or `x[None]`."""
    inner = node.func.value if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) else None
    inner = node.value if isinstance(node, ast.Subscript) else inner
    return inner if isinstance(inner, ast.Name) else None


def _spread(node: ast.expr) -> int | None:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "unsqueeze":
        given = node.args[0] if node.args else None
        if isinstance(node.func.value, ast.Name) and isinstance(given, ast.Constant):
            return next((n for n in (0, 1) if given.value == n), None)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        new = [i for i, part in enumerate(parts) if isinstance(part, ast.Constant) and part.value is None]
        return new[0] if len(new) == 1 and new[0] in (0, 1) and len(parts) <= 3 else None
    return None
