"""Tests after which processes could leave a loop, or skip a step, at different times: the processes agree on them.

if loss.item() < 0.01:             ->  if accelerator.reduce(loss.item(), reduction="mean") < 0.01:
    break                                  break
if x.size(0) == 1:                 ->  if accelerator.reduce(x.size(0), reduction="min") == 1:
    continue                               continue
if i * len(x) > limit:             ->  if i * accelerator.reduce(len(x), reduction="sum") > limit:
    break                                  break
if x.size(0) != y.size(0):         ->  if accelerator.reduce(int(x.size(0) != y.size(0)), reduction="max"):
    continue                               continue
if time.time() - start > limit:    ->  if accelerator.reduce(int(time.time() - start > limit), reduction="max"):
    break                                  break
if os.path.exists("stop"):         ->  if accelerator.reduce(int(bool(os.path.exists("stop"))), reduction="max"):
    break                                  break
except RuntimeError: continue      (named by ACC704, after a `try` with an optimizer step: the others wait in it)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis import values as v
from accelify.analysis.data.loaders import drops_last
from accelify.analysis.files.clock_tests import asks_clock, asks_for_file, has_clocks
from accelify.analysis.metrics.counts import shape_of, size_of
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.caught_errors import is_caught
from accelify.analysis.syntax import is_constant, names_in, text_of, walk
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

EXIT = Rule(
    "ACC405",
    "Processes could leave the loop at different steps and wait for each other.",
    effort=5,
    done="made the processes leave loops together",
)
_ENDING = frozenset({"builtins.exit", "builtins.quit", "sys.exit", "os._exit"})


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits that let processes agree, or a finding where they cannot be made."""
    if context.plan.shares_training_data:
        yield from _sizes(context)
        if has_clocks(context.script):
            yield from _own_answers(context, asks_clock, "each process's own clock")
        yield from _own_answers(context, asks_for_file, "for a file, each process at its own time")
        yield from _exits(context)


def _sizes(context: Context) -> Iterator[Change]:
    """`if x.size(0) == 1: continue`, `if len(x) > 1:` around a step: last batches differ in size between processes."""
    tests = {d for d in _decisions(context) if isinstance(context.tree.parent(d), ast.If)}
    around = [
        n.test for n in context.tree.nodes(ast.If) if _asks_size(n.test) and _trains_in_one_branch(context, n)
    ]
    for test in [*context.tree.in_order(tests), *[t for t in around if t not in tests]]:
        sizes = [n for n in walk(test) if isinstance(n, ast.expr) and _is_batch_size(context, n)]
        loops = context.script.enclosing_loops(test)
        if not (sizes or _compares_shapes(context, test)) or not loops or context.is_reported(test):
            continue
        context.reported.add(test)
        loaders = {t for loop, contained in context.script.loader_loops if loop in loops for t in contained}
        configured = {size for size in sizes if _is_against_whole_batch(context, size)}
        seen = {s for s in sizes if _makes_samples_seen(context, s) and not context.is_claimed(s)}
        shared = context.plan.batch_size == "total"
        if not shared and not seen and loaders and all(drops_last(context.script, t) for t in loaders):
            continue  # every batch is as large as the others
        accelerator, text = context.accelerator(test), context.tree.segment(test)
        message = f"`{text}` can be true on one process only; the others then wait for ever"
        if shared and configured:
            message = f"`{text}` would ask for the size of one process's share of the batch, not for the batch's own"
        if seen:
            message = (
                f"`{text}` asks for the samples that one process has seen: all N have seen N times as many"
            )
        if accelerator is None or context.for_accelerate:
            mark = "let all processes agree: accelerator.reduce(value) before the test"
            yield context.todo(EXIT, context.tree.statement(test), message, mark)
            continue
        if not shared and any(_leaves_out_smaller(context, test, size) for size in configured):
            message += " (agreed upon, up to N-1 full batches of a pass are left out on N processes)"
        edits: list[Edit] = []
        if _compares_several(context, test, sizes) and not (sizes and shared and configured == set(sizes)):
            # The minimum over each does not show whether they are equal on every process: the answer does.
            edits, sizes = [_answered_together(context, test, accelerator)], []
        for size in sizes:
            kind = "sum" if size in seen or (shared and size in configured) else "min"
            edits.append(
                verbs.replace(size, f"{accelerator}.reduce(", size, f', reduction="{kind}")', order=10)
            )
        yield context.change(EXIT, test, message, edits, safety=Safety.REVIEW)


def _answered_together(context: Context, test: ast.expr, accelerator: str) -> Edit:
    """A test that is true where it is on some process, or, where the loop goes on by it, on all of them."""
    text = context.tree.segment(test)
    text = f"int({text})" if isinstance(test, ast.Compare) else f"int(bool({text}))"
    kind = "min" if _goes_on_within(context, test) else "max"
    return verbs.replace(test, f'{accelerator}.reduce({text}, reduction="{kind}")')


def _own_answers(
    context: Context, asks: Callable[[ScriptModel, ast.expr], bool], what: str
) -> Iterator[Change]:
    """`if time.time() - start > limit: break`: the clocks of the processes differ, and the times of a question too."""
    script, figures = context.script, context.figures
    for stmt in (n for n in context.tree.nodes(ast.If, ast.While) if isinstance(n, (ast.If, ast.While))):
        if isinstance(stmt, ast.While):
            loops: list[ast.stmt] = [stmt] if any(script.trains(s) for s in stmt.body) else []
        else:
            loops = [loop for loop in script.enclosing_loops(stmt) if script.trains(loop)]
        if not loops or context.is_reported(stmt.test) or not asks(script, stmt.test):
            continue
        if isinstance(stmt, ast.If) and not (_leaves(context, stmt) or context.meets_others(stmt)):
            continue
        context.reported.add(stmt.test)
        text, accelerator = context.tree.segment(stmt.test), context.accelerator(stmt.test)
        message = f"`{text}` asks {what}, and can be true on one only; the others then wait for ever"
        together = isinstance(stmt, ast.While) or figures.runs_everywhere(stmt, loops[0])
        if accelerator is None or context.for_accelerate or not together:
            mark = 'let all processes agree: accelerator.reduce(int(...), reduction="max")'
            yield context.todo(EXIT, stmt, message, mark)
            continue
        edit = _answered_together(context, stmt.test, accelerator)
        yield context.change(EXIT, stmt.test, message, [edit], safety=Safety.REVIEW)


def _leaves(context: Context, branch: ast.If) -> bool:
    """Whether a test decides that a training loop, or the script, ends here."""
    for node in (n for s in [*branch.body, *branch.orelse] for n in walk(s)):
        if isinstance(node, ast.Return) or (isinstance(node, ast.Raise) and is_caught(context.script, node)):
            return True
        if isinstance(node, ast.Break) and _meets_others_within(context, node):
            return True
        if isinstance(node, ast.Continue) and _skips_backward(context, node):
            return True
        if isinstance(node, ast.Call) and context.script.qualname(node.func) in _ENDING:
            return True
    return False


def _compares_several(context: Context, test: ast.expr, sizes: list[ast.expr]) -> bool:
    """Whether a comparison in a test is one of several sizes with each other: of two batches, for example."""
    if _compares_shapes(context, test):
        return True
    for compare in (n for n in walk(test) if isinstance(n, ast.Compare)):
        inside = set(walk(compare))
        asked = {text_of(n) for n in inside if isinstance(n, ast.expr) and _is_read_off(n)}
        own = {text_of(size) for size in sizes if size in inside}
        if own and len(own | asked) > 1:
            return True
    return False


def _is_read_off(node: ast.expr) -> bool:
    """Whether an expression is one size of a tensor, whichever: `hidden.size(1)`, `x.shape[0]`, `len(x)`."""
    if isinstance(node, ast.Subscript):
        return shape_of(node.value) is not None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return node.func.attr == "size" and bool(node.args)
    return size_of(node) is not None


def _compares_shapes(context: Context, test: ast.expr) -> bool:
    """`x.shape != y.shape`, where one of them is of the current batch."""
    for compare in (n for n in walk(test) if isinstance(n, ast.Compare)):
        shaped = [one for side in (compare.left, *compare.comparators) if (one := shape_of(side)) is not None]
        if len(shaped) > 1 and any(context.script.is_a(one, v.BATCH) for one in shaped):
            return True
    return False


def _goes_on_within(context: Context, test: ast.expr) -> bool:
    """Whether the step is taken where a test is true: all have to be for it then, else one is enough."""
    branch = context.tree.parent(test)
    if isinstance(branch, ast.While):
        return True
    if not isinstance(branch, ast.If):
        return False
    if any(context.script.trains(stmt) for stmt in branch.body):
        return True
    leaving = (ast.Break, ast.Continue, ast.Raise, ast.Return)
    ways = [
        [n for s in block for n in walk(s) if isinstance(n, leaving)]
        for block in (branch.body, branch.orelse)
    ]
    return not ways[0] and bool(ways[1])


def _makes_samples_seen(context: Context, size: ast.expr) -> bool:
    """Whether a size is multiplied with a number of batches, and that compared with a limit: `i * len(x) > limit`."""
    product = context.tree.parent(size)
    compare = context.tree.parent(product) if product is not None else None
    return (
        isinstance(product, ast.BinOp)
        and isinstance(product.op, ast.Mult)
        and isinstance(compare, ast.Compare)
        and all(isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)) for op in compare.ops)
        and not any(isinstance(side, ast.Constant) for side in (product.left, product.right))
    )


def _is_against_whole_batch(context: Context, size: ast.expr) -> bool:
    """Whether a size is compared with that of a whole batch, and not with what is too few: `len(x) == 1`."""
    compare = context.tree.parent(size)
    if not isinstance(compare, ast.Compare) or len(compare.ops) != 1:
        return False
    other = compare.comparators[0] if compare.left is size else compare.left
    return not is_constant(other, 0, 1, 2)


def _leaves_out_smaller(context: Context, test: ast.expr, size: ast.expr) -> bool:
    """Whether the branch of a test skips the steps of batches that are not full."""
    compare, branch = context.tree.parent(size), context.tree.parent(test)
    assert isinstance(compare, ast.Compare)
    if not isinstance(branch, ast.If):
        return False
    first = compare.left is size
    smaller = isinstance(compare.ops[0], (ast.NotEq, *((ast.Lt, ast.LtE) if first else (ast.Gt, ast.GtE))))
    around = [compare, *context.tree.ancestors(compare)]
    for node in around[: around.index(test)]:
        smaller ^= isinstance(context.tree.parent(node), ast.UnaryOp)
    return smaller is not any(context.script.trains(stmt) for stmt in branch.body)


def _asks_size(test: ast.expr) -> bool:
    """Whether a test reads the size of a first dimension."""
    return any(isinstance(n, ast.expr) and size_of(n) is not None for n in walk(test))


def _is_batch_size(context: Context, node: ast.expr) -> bool:
    """Whether an expression is the size of the current batch: `x.size(0)`, `len(x)`, or a name for it."""
    if isinstance(node, ast.Name):
        return isinstance(node.ctx, ast.Load) and context.figures.is_batch_size(node)
    measured = size_of(node)
    if measured is None:
        return False
    return any(
        isinstance(n, ast.Name) and n.id == measured and context.script.is_a(n, v.BATCH, v.TENSOR)
        for n in walk(node)
    )


def _trains_in_one_branch(context: Context, branch: ast.If) -> bool:
    trains = [any(context.script.trains(s) for s in block) for block in (branch.body, branch.orelse)]
    return trains.count(True) == 1 and context.script.trains_around(branch)


def _exits(context: Context) -> Iterator[Change]:
    done: set[ast.expr] = set()
    for decision in _decisions(context):
        test: ast.expr | None = decision
        if context.script.is_uniform(decision) or not _local_number(context, decision):
            test = _counted_by(context, decision)
        if test is None or test in done or test in context.reported:
            continue
        context.reported |= {decision, test}
        edits = context.agreed(test)
        # Where a counter is in between and cannot be made to agree, the test that leaves is the one to show.
        shown = test if edits else decision
        message = (
            f"`{context.tree.segment(shown)}` can be true on one process only; the others then wait for ever"
        )
        if edits:
            done.add(test)
            yield context.change(EXIT, shown, message, edits, safety=Safety.REVIEW)
        else:
            mark = "let all processes agree: accelerator.reduce(value) before the test"
            yield context.todo(EXIT, context.tree.statement(shown), message, mark)


def _decisions(context: Context) -> Iterator[ast.expr]:
    """The tests of a training loop after which a process makes fewer steps: it leaves, or skips a backward."""
    for stop in context.tree.nodes(ast.Break, ast.Continue, ast.Raise):
        test = context.tree.parent(stop)
        while test is not None and not isinstance(test, (ast.If, ast.For, ast.While, ast.FunctionDef)):
            test = context.tree.parent(test)
        if not isinstance(test, ast.If) or not context.script.trains_around(stop):
            continue
        if isinstance(stop, ast.Raise) and not is_caught(context.script, stop):
            continue  # an error ends all processes
        if isinstance(stop, ast.Continue) and not _skips_backward(context, stop):
            continue
        if isinstance(stop, ast.Break) and not _meets_others_within(context, stop):
            continue
        yield test.test
    for loop in context.tree.nodes(ast.While):
        if any(context.script.trains(stmt) for stmt in loop.body):
            yield loop.test


def _skips_backward(context: Context, stop: ast.AST) -> bool:
    loop = context.script.enclosing_loops(stop)[0]
    return any(
        isinstance(call, ast.Call) and context.script.trains(call) and context.tree.is_before(stop, call)
        for stmt in loop.body
        for call in walk(stmt)
    )


def _meets_others_within(context: Context, stop: ast.Break) -> bool:
    """Whether the loop that a `break` leaves takes steps or iterates over a loader: decoding word by word does not."""
    loop = next(a for a in context.tree.ancestors(stop) if isinstance(a, (ast.For, ast.AsyncFor, ast.While)))
    return context.script.trains(loop) or any(loop is known for known, _ in context.script.loader_loops)


def _counted_by(context: Context, test: ast.expr) -> ast.expr | None:
    """The process-dependent test that sets a counter which a test reads: for how long a loss did not fall."""
    read = names_in(test)
    for stmt in [*context.tree.nodes(ast.Assign), *context.tree.nodes(ast.AugAssign)]:
        targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
        names = {t.id for t in targets if isinstance(t, ast.Name)} & read
        here, scope = context.script.scope_of(test), context.script.scope_of(stmt)
        if not any(scope.resolve(name) is here.resolve(name) for name in names):
            continue
        for ancestor in context.tree.ancestors(stmt):
            if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
                break
            if (
                isinstance(ancestor, ast.If)
                and not context.script.is_uniform(ancestor.test)
                and _local_number(context, ancestor.test)
            ):
                return ancestor.test
    return None


def _local_number(context: Context, test: ast.expr) -> bool:
    """Whether a test reads a number that comes from the process's batch."""
    if context.gathered(test):
        return False
    for node in walk(test):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "item":
            return True
        if isinstance(node, ast.Name) and context.script.is_a(node, v.TENSOR, v.OUTPUT):
            return True
        if isinstance(node, ast.Name) and "loss" in node.id.lower():
            return True
    return False
