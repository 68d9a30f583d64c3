"""Metrics of an evaluation whose value changes when the batches of all processes are put together.

A count or a sum over samples is the same however the samples are cut into batches, and so is a sum of batch means
that is divided by the number of batches. Others are not: a mean of PSNRs, a sum of means that is divided by the number
of samples, a figure for an episode, a value stored by its position in the data set. Such an evaluation is left whole on
every process.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Sequence

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.losses.reduction_kinds import MEAN
from accelify.analysis.losses.reductions import LossReductions
from accelify.analysis.metrics.batch_answers import answer_of_a_batch
from accelify.analysis.metrics.counts import counts_own, made_once
from accelify.analysis.metrics.set_numbers import is_set
from accelify.analysis.metrics.undivided import shown_undivided
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import (
    call_argument,
    calls_in,
    dotted,
    is_constant,
    names_in,
    target_names,
    text_of,
    walk,
)
from accelify.analysis.values import Class, Entity

# `indices`, `previous` and `various` are none of them.
_OVERLAP = r"(?<![vr])iou|(?<!in)dice|jaccard"
_NO_AVERAGE = re.compile(rf"{_OVERLAP}|psnr|ssim|rmse|bleu|kappa|f1_?score|roc_auc", re.I)
_NO_AVERAGE_LOSS = re.compile(rf"{_OVERLAP}|tversky|lovasz", re.I)
# How many functions of a loss are looked at.
_MOST_CALLED = 12
_CURVED = frozenset({"log", "log2", "log10", "sqrt", "exp", "pow"})
_MATH = ("math", "numpy", "torch", "cmath")
# What makes a row for every sample without looking at one.
_LABELLING = frozenset({"torch.arange", "torch.eye", "torch.linspace", "numpy.arange", "torch.range"})


def changed_by_gathering(
    script: ScriptModel,
    loop: ast.For | ast.AsyncFor,
    loaders: set[Entity],
    statements: Sequence[ast.stmt],
    forward: ast.stmt,
    gathered: set[str],
) -> str | None:
    """Why the metrics of an evaluation loop change when the outputs of all processes are gathered; None: they do not.

    Args:
        script: its model.
        loop: over the batches.
        loaders: that it reads.
        statements: of its body, those under a plain `with` as well.
        forward: the call after which outputs and targets would be gathered.
        gathered: the names that would be.
    """
    later = statements[statements.index(forward) + 1 :]
    return (
        _named(script, statements)
        or _episodes(script, loaders)
        or _by_position(later, gathered)
        or _labels_beside(script, statements, later, gathered)
        or _curved(script, [forward, *later])
        or _extreme(script, later)
        or answer_of_a_batch(script, [forward, *later], gathered)
        or _share_of_a_part(later)
        or _mean_by_samples(script, loop, [forward, *later])
        or _sum_by_batches(script, loop, loaders, later)
    )


def _named(script: ScriptModel, statements: Sequence[ast.stmt]) -> str | None:
    """A metric of a batch that is known for not being an average (PSNR, IoU)."""
    for call in _calls(statements):
        last = (dotted(call.func) or "").rsplit(".", 1)[-1]
        known = script.qualname(call.func)
        if not isinstance(call.func, ast.Attribute) or known is not None:
            callees = script.callees(call)
            if _NO_AVERAGE.search(last) and (known or callees):
                if _each_sample_alone(callees):
                    return f"what `{last}` lists for each sample is not gathered"
                return f"`{last}` of several batches at once is not the average of theirs"
        inner = _within_criterion(script, call)
        if inner is not None:
            return f"`{inner}` of several batches at once is not the average of theirs"
    return None


def _each_sample_alone(callees: Collection[Scope]) -> bool:
    """Whether functions only sum over the dimensions after the first, and list a value for every sample."""
    return bool(callees) and all(
        _sums_within_samples(scope) and any(_lists(n) for n in scope.nodes) for scope in callees
    )


def _lists(node: ast.AST) -> bool:
    """`return list(x)`, `return x.tolist()`"""
    given = node.value if isinstance(node, ast.Return) else None
    return isinstance(given, ast.Call) and (
        dotted(given.func) == "list" or getattr(given.func, "attr", "") == "tolist"
    )


def _sums_within_samples(scope: Scope) -> bool:
    """Whether a function has sums, all of them of dimensions that leave the first, and takes no shape apart."""
    calls = [n for n in scope.calls if isinstance(n.func, ast.Attribute)]
    sums = [call for call in calls if call.func.attr in ("sum", "mean")]  # type: ignore[attr-defined]
    if any(call.func.attr in ("view", "reshape", "flatten", "ravel") for call in calls):  # type: ignore[attr-defined]
        return False
    return bool(sums) and all(_leaves_the_first(call) for call in sums)


def _leaves_the_first(call: ast.Call) -> bool:
    """`x.sum(dim=-1)`, `torch.sum(x, (1, 2))`"""
    own = (dotted(call.func.value) or "") not in ("torch", "np", "numpy")  # type: ignore[attr-defined]
    given = [*call.args[0 if own else 1 :], *[kw.value for kw in call.keywords if kw.arg in ("dim", "axis")]]
    try:
        dims = ast.literal_eval(given[0]) if len(given) == 1 else 0
    except ValueError:
        return False
    return all(isinstance(one, int) and one != 0 for one in (dims if isinstance(dims, tuple) else (dims,)))


def _within_criterion(script: ScriptModel, call: ast.Call) -> str | None:
    """The name of such a metric that a loss of the project, or of a module of its, is or computes."""
    classes = {t.cls for t in script.entities(call.func, v.CRITERION) if t.cls is not None}
    for cls in sorted(classes, key=lambda one: one.name):
        names = [one.name for one in cls.ancestry()]
        forward = cls.method("forward")
        queue, seen = [forward[1]] if forward is not None else [], set[Scope]()
        while queue and len(seen) < _MOST_CALLED:
            scope = queue.pop(0)
            seen.add(scope)
            run = {one for n in scope.calls for one in script.callees(n)} - seen
            queue += in_order(run)
            names += [one.name for one in in_order(run)]
        found = next((name for name in names if _NO_AVERAGE_LOSS.search(name)), None)
        if found is not None:
            return found
    return None


def _episodes(script: ScriptModel, loaders: set[Entity]) -> str | None:
    """A batch sampler of the project decides what belongs together: an episode, a bag, a task."""
    for loader in loaders:
        given = call_argument(loader.site, 2, "batch_sampler") if isinstance(loader.site, ast.Call) else None
        keyword = given is not None and any(
            kw.value is given for kw in getattr(loader.site, "keywords", ()) if kw.arg == "batch_sampler"
        )
        if keyword and given is not None and any(isinstance(t.cls, Class) for t in script.entities(given)):
            return "its batches are put together by a batch sampler of the script's own"
    return None


def _by_position(later: Sequence[ast.stmt], gathered: set[str]) -> str | None:
    """`scores[start:end] = output`: the places are those of the local batch."""
    for stmt in (n for s in later for n in walk(s)):
        if not isinstance(stmt, ast.Assign) or not names_in(stmt.value) & gathered:
            continue
        for target in stmt.targets:
            if isinstance(target, ast.Subscript) and not _is_key(target.slice):
                return f"`{text_of(target.value)}` is filled by position"
    return None


def _is_key(index: ast.expr) -> bool:
    return isinstance(index, (ast.Constant, ast.JoinedStr))


def _labels_beside(
    script: ScriptModel, statements: Sequence[ast.stmt], later: Sequence[ast.stmt], gathered: set[str]
) -> str | None:
    """Rows that are counted off, and not read from the batch, meet gathered ones: `label = torch.arange(way)`."""
    made: set[str] = set()
    for stmt in statements:
        if isinstance(stmt, ast.Assign) and not names_in(stmt.value) & gathered:
            counted = any(script.qualname(c.func) in _LABELLING for c in _calls([stmt]))
            if counted or names_in(stmt.value) & made:
                made |= {n for t in stmt.targets for n in target_names(t)}
    made -= gathered
    for call in _calls(later):
        names = {n for a in [*call.args, *[kw.value for kw in call.keywords]] for n in names_in(a)}
        if names & made and names & gathered:
            return f"`{sorted(names & made)[0]}` is made beside the batch, for its size"
    return None


def _curved(script: ScriptModel, statements: Sequence[ast.stmt]) -> str | None:
    """A logarithm or a root of a batch's mean, added up over batches."""
    added_by = {s for s in statements if isinstance(s, ast.AugAssign)}
    added = {n for s in added_by for n in names_in(s.value)}
    for stmt in statements:
        targets = (
            {n for t in stmt.targets for n in target_names(t)} if isinstance(stmt, ast.Assign) else set()
        )
        if not isinstance(stmt, ast.AugAssign) and not targets & added:
            continue
        for call in _calls([stmt]):
            name = script.qualname(call.func) or ""
            last = name.rsplit(".", 1)[-1]
            if last not in _CURVED or name.split(".")[0] not in _MATH or not call.args:
                continue
            if _is_number(call.args[0]) or (stmt in added_by and _is_loss(script, call.args[0])):
                return f"`{last}` of several batches at once is not the average of theirs"
    return None


def _extreme(script: ScriptModel, statements: Sequence[ast.stmt]) -> str | None:
    """`worst = max(worst, loss.item())`: the largest of larger batches is another."""
    for stmt in statements:
        value = stmt.value if isinstance(stmt, ast.Assign) else None
        if isinstance(value, ast.Call) and script.qualname(value.func) in ("builtins.max", "builtins.min"):
            name = dotted(stmt.targets[0])  # type: ignore[attr-defined]
            if name is not None and any(dotted(a) == name for a in value.args) and len(value.args) == 2:
                return f"`{name}` compares one batch with the next"
    return None


def _share_of_a_part(later: Sequence[ast.stmt]) -> str | None:
    """`hits / (labels == kind).sum()`, added up over batches: the mean of the shares of larger batches is another."""
    for stmt in (n for s in later for n in walk(s)):
        if isinstance(stmt, ast.AugAssign):
            added: list[ast.expr] = [stmt.value]
        elif (
            isinstance(stmt, ast.Call) and isinstance(stmt.func, ast.Attribute) and stmt.func.attr == "append"
        ):
            added = stmt.args
        else:
            continue
        for node in (n for value in added for n in walk(value)):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
                if any(isinstance(n, ast.Compare) for n in walk(node.right)):
                    return f"`{text_of(node)}` is the share in a part of the batch"
    return None


def _is_loss(script: ScriptModel, node: ast.expr) -> bool:
    return isinstance(node, (ast.Call, ast.Name)) and LossReductions(script).of(node) == MEAN


def _is_number(node: ast.expr) -> bool:
    """Whether an expression takes a number out of a tensor: the mean of a batch."""
    return any(isinstance(n, ast.Attribute) and n.attr in ("item", "mean") for n in walk(node))


def _mean_by_samples(
    script: ScriptModel, loop: ast.For | ast.AsyncFor, statements: Sequence[ast.stmt]
) -> str | None:
    """Means of batches, added up and divided by the number of samples."""
    reductions = LossReductions(script)
    for stmt in statements:
        if not (isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, ast.Add)):
            continue
        name = dotted(stmt.target)
        if name is None:
            continue
        by_samples = samples_divisor(script, loop, stmt.target)
        if not by_samples and not shown_undivided(script, loop, name):
            continue
        if is_mean(script, reductions, _without_factor(script, stmt.value)):
            if by_samples:
                return f"`{name}` adds up the means of batches and is divided by {by_samples}"
            return f"`{name}` adds up the means of batches, and larger batches are fewer"
    return None


def _without_factor(script: ScriptModel, value: ast.expr) -> ast.expr:
    """What is multiplied by a number that no batch sets: the `loss.item()` of `loss.item() * args.batch_size`."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        for factor, other in ((value.left, value.right), (value.right, value.left)):
            named = isinstance(factor, ast.Attribute) and k.BATCH_SIZE_NAME.search(factor.attr)
            if named or script.is_uniform(factor):
                return other
    return value


def _sum_by_batches(
    script: ScriptModel, loop: ast.For | ast.AsyncFor, loaders: set[Entity], statements: Sequence[ast.stmt]
) -> str | None:
    """What is added up over samples and divided by a number of batches: those of one process, of all its samples."""
    counts: set[str] = set()
    for stmt in statements:
        if isinstance(stmt, ast.Assign) and _is_count(stmt.value) and not _divides(stmt.value):
            counts.update(n for target in stmt.targets for n in target_names(target))
        if not (isinstance(stmt, ast.AugAssign) and isinstance(stmt.op, ast.Add)):
            continue
        if not _is_count(stmt.value) and (_divides(stmt.value) or not names_in(stmt.value) & counts):
            continue
        name = dotted(stmt.target)
        for divisor in divisors(script, loop, name) if name is not None else ():
            if counts_own(script, loop, loaders, divisor):
                return f"`{name}` adds up over samples and is divided by `{text_of(divisor)}`, which counts batches"
    return None


def _divides(value: ast.expr) -> bool:
    return any(isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) for n in walk(value))


def _is_count(value: ast.expr) -> bool:
    """Whether an expression counts samples: `(output.argmax(1) == y).sum()`."""
    return any(
        isinstance(n, ast.Call)
        and isinstance(n.func, ast.Attribute)
        and n.func.attr == "sum"
        and any(isinstance(c, ast.Compare) or getattr(c, "attr", "") in ("eq", "ne") for c in walk(n))
        for n in walk(value)
    )


def is_mean(script: ScriptModel, reductions: LossReductions, value: ast.expr) -> bool:
    """Whether an expression is the mean over the samples of a batch: a loss, or a share that a function returns."""
    while True:
        method = value.func if isinstance(value, ast.Call) else None
        if isinstance(method, ast.Attribute) and method.attr in ("item", "detach", "cpu"):
            value = method.value
        elif isinstance(value, ast.Attribute) and value.attr == "data":
            value = value.value
        elif isinstance(value, ast.Subscript) and is_constant(value.slice, 0):
            value = value.value  # loss.data[0], before there was item()
        else:
            break
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "float":
        value = value.args[0] if value.args else value
    if isinstance(value, ast.Call) and script.callees(value):
        return all(_returns_share(callee.node) for callee in script.callees(value))
    return isinstance(value, (ast.Call, ast.Name)) and reductions.of(value) == MEAN


def _returns_share(function: ast.AST) -> bool:
    """Whether a function divides by the size of its argument: an accuracy, not a count."""
    returned = [n.value for n in walk(function) if isinstance(n, ast.Return) and n.value is not None]
    assigned = {
        name: stmt.value
        for stmt in walk(function)
        if isinstance(stmt, ast.Assign)
        for target in stmt.targets
        for name in target_names(target)
    }
    found = []
    for value in returned:
        while isinstance(value, ast.Name) and value.id in assigned:
            value = assigned.pop(value.id)
        found.append(_divides_by_size(value) or _takes_mean(value))
    return bool(found) and all(found)


def _divides_by_size(value: ast.expr) -> bool:
    return any(
        isinstance(n, ast.BinOp) and isinstance(n.op, ast.Div) and _is_size(n.right) for n in walk(value)
    )


def _is_size(node: ast.expr) -> bool:
    return any(
        (isinstance(n, ast.Attribute) and n.attr in ("size", "shape", "numel"))
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "len")
        for n in walk(node)
    )


def _takes_mean(value: ast.expr) -> bool:
    return any(isinstance(n, ast.Attribute) and n.attr == "mean" for n in walk(value))


def divisors(script: ScriptModel, loop: ast.For | ast.AsyncFor | ast.While, name: str) -> Iterator[ast.expr]:
    """What a total is divided by after its loop, by itself or with its factors."""
    tree, scope = script.tree, script.scope_of(loop)
    for node in script.divisions.get(scope, ()):
        if tree.start(node) < tree.end(loop.body[-1]):
            continue
        if isinstance(node, ast.AugAssign):
            if dotted(node.target) == name:
                yield node.value
        else:
            left = node.left
            factors = [left.left, left.right] if isinstance(left, ast.BinOp) else [left]
            if isinstance(left, ast.BinOp) and not isinstance(left.op, ast.Mult):
                continue
            if any(dotted(factor) == name for factor in factors):
                yield node.right


def samples_divisor(script: ScriptModel, loop: ast.For | ast.AsyncFor, total: ast.expr) -> str | None:
    """The divisor of a loop's total after the loop, as text, where that counts the samples of all processes."""
    name = dotted(total)
    by = divisors(script, loop, name) if name is not None else ()
    found = next((d for d in by if _counts_samples(script, loop, d)), None)
    if found is None:
        return None
    if _is_worked_out(script, found):  # of samples and the size of a batch
        return f"`{text_of(found)}`, which stays what it was on one process"
    return "the number of samples"


def _is_worked_out(script: ScriptModel, number: ast.expr) -> bool:
    """Whether a number is none of samples as it is: a quotient of them, one that is written out, or an option."""
    while isinstance(number, ast.Call) and number.args and dotted(number.func) != "len":
        number = number.args[0]  # int(), math.ceil()
    made = made_once(script, number) if isinstance(number, ast.Name) else None
    if made is not None and not isinstance(made, ast.Name):
        return not is_constant(made, 0, 0.0) and _is_worked_out(script, made)
    return isinstance(number, (ast.BinOp, ast.Constant, ast.Attribute))


def _counts_samples(script: ScriptModel, loop: ast.For | ast.AsyncFor, divisor: ast.expr) -> bool:
    """The samples, or batches, of all processes, or a name that batch sizes were added up in."""
    name = dotted(divisor)
    return bool(is_set(script, divisor)) or any(
        isinstance(stmt, ast.AugAssign) and dotted(stmt.target) == name and _is_size(stmt.value)
        for stmt in walk(loop)
        if name is not None
    )


def _calls(statements: Sequence[ast.stmt]) -> Iterator[ast.Call]:
    return (n for stmt in statements for n in calls_in(stmt))
