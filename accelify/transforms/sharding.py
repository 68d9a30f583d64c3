"""What keeps several processes from sharing the work, or from going on together, said where it stands.

if loss.item() < 0.01:    ->  if accelerator.reduce(loss.item(), reduction="mean") < 0.01:
    break                         break
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.plan import is_shardable
from accelify.analysis.script import is_in_model
from accelify.analysis.syntax import walk
from accelify.edits import Replace
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

UNSHARDED = Rule(
    "ACC402", "unsharded-data", "Every process works on the same data.", Severity.WARNING, effort=30
)
BATCH_SHAPE = Rule(
    "ACC404",
    "batch-size-in-shape",
    "A shape holds the configured batch size, not the batch's own.",
    Severity.WARNING,
    effort=5,
)
EXIT = Rule(
    "ACC405",
    "local-early-exit",
    "Processes could leave the loop at different steps and wait for each other.",
    Severity.WARNING,
    effort=5,
)

WHOLE_BATCH = Rule(
    "ACC408", "whole-batch-loss", "A loss compares the samples of a batch with each other.", effort=15
)
_TURNS = frozenset({"t", "transpose", "permute", "contiguous", "detach"})
_VIEWS = frozenset({"view", "reshape"})
_HIDDEN_STATES = frozenset({"init_hidden", "init_state", "initHidden"})
_SHAPES = frozenset(
    "torch.zeros torch.ones torch.randn torch.rand torch.full torch.empty torch.randint torch.normal "
    "numpy.random.normal".split()
)


def transform(context: Context) -> Iterator[Change]:
    """Yield warnings about data that is not sharded, shapes and exits."""
    yield from _fixed_batch_size(context)
    yield from _unsharded(context)
    if context.plan.shares_training_data:
        yield from _shapes(context)
        yield from _whole_batch(context)
        yield from _exits(context)


def _fixed_batch_size(context: Context) -> Iterator[Change]:
    """A parameter with the batch size in its shape fits batches of that very size only."""
    call = context.script.fixed_batch_size
    if call is None or not context.script.training_loaders:
        return
    backward = context.script.backwards[0].call
    yield context.change(
        BATCH_SHAPE,
        call if context.tree.parent(call) is not None else backward,
        "the model's own shapes hold the configured batch size, so that no process can take a part of a batch: "
        "every process works on all of the data",
    )


def _unsharded(context: Context) -> Iterator[Change]:
    loaders = context.script.training_loaders
    if context.plan.shares_training_data:
        return
    backward = context.script.backwards[0].call
    if loaders and context.script.fixed_batch_size is not None:
        why = "its batches cannot be split"
    elif loaders and loaders <= context.script.episode_loaders:
        message = (
            "its loaders are made for one step and read once: every process draws episodes of its own, the same ones "
            "where they are seeded alike"
        )
        yield context.change(UNSHARDED, backward, message)
        return
    elif loaders & context.plan.prepared:
        rest = sorted({min(t.names, default="one") for t in loaders - context.plan.prepared})
        message = (
            f"some of its training data does not come from torch's DataLoader ({', '.join(rest)}): every process works "
            "on all of that, and on its own part of the rest"
        )
        yield context.change(UNSHARDED, backward, message)
        return
    elif any(is_shardable(loader) for loader in loaders):
        why = "its training data comes from a loader that is kept where prepare cannot reach it"
    elif loaders:
        seen = all(t.qualname and not t.qualname.startswith("torch") for t in loaders)
        why = f"its training data comes from a loader that is not {'' if seen else 'seen to be '}torch's DataLoader"
    else:
        why = "its training data does not come from a DataLoader"
    # An environment or a generator that seeds itself gives each process data of its own, and episodes of other lengths.
    drawn = "" if loaders else " (where what is drawn at random is seeded alike)"
    message = (
        f"{why}: every process works on the same data{drawn}, which is right but no faster on several of them"
    )
    if not loaders and context.script.fixed_batch_size is None and not context.for_accelerate:
        message += "; where batches are made by hand, accelerator.shard_batch gives each its share"
    yield context.change(UNSHARDED, backward, message)


def _shapes(context: Context) -> Iterator[Change]:
    tree = context.tree
    for call in context.script.calls():
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        viewed = method in _VIEWS
        if not viewed and context.script.qualname(call.func) not in _SHAPES and method not in _HIDDEN_STATES:
            continue
        if not _runs_for_each_batch(context, call):
            continue
        for argument in call.args:
            node = _configured_size(context, argument, whole=viewed or method in _HIDDEN_STATES)
            if node is None:
                continue
            text = tree.segment(node)
            message = f"`{text}` is the configured batch size; the batch of a process can be smaller"
            own = _batch_at_hand(context, call, viewed)
            leads = argument is call.args[0] and argument is node and not tree.in_fstring(call)
            if viewed and leads and not any(ast.unparse(a) == "-1" for a in call.args):
                edit = Replace(tree.start(argument), tree.end(argument), "-1")
                yield context.change(BATCH_SHAPE, call, message, [edit])
            elif leads and own and method not in _HIDDEN_STATES:
                edit = Replace(tree.start(argument), tree.end(argument), f"{own}.size(0)")
                yield context.change(BATCH_SHAPE, call, message, [edit], safety=Safety.REVIEW)
            else:
                yield context.todo(
                    BATCH_SHAPE, call, message, "take the size of the batch at hand, as in data.size(0)"
                )
            break


def _batch_at_hand(context: Context, call: ast.Call, viewed: bool) -> str | None:
    """A tensor of the batch that a call works with, whose first dimension is the batch's size."""
    if viewed:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        return receiver.id if isinstance(receiver, ast.Name) else None
    for loop in context.script.enclosing_loops(call):
        for known, _ in context.script.loader_loops:
            if known is not loop:
                continue
            target = known.target
            counted = isinstance(known.iter, ast.Call) and isinstance(known.iter.func, ast.Name)
            if counted and known.iter.func.id == "enumerate" and isinstance(target, ast.Tuple):  # type: ignore[attr-defined]
                target = target.elts[1]
            if isinstance(target, ast.Tuple) and target.elts and isinstance(target.elts[0], ast.Name):
                return target.elts[0].id
    return None


def _runs_for_each_batch(context: Context, node: ast.AST) -> bool:
    loops = context.script.enclosing_loops(node)
    return any(
        loop is outer
        for loop, loaders in context.script.loader_loops
        if loaders & context.plan.prepared
        for outer in loops
    )


def _configured_size(context: Context, argument: ast.expr, whole: bool) -> ast.expr | None:
    """The configured batch size in an argument: as the whole of it, or (in the shape of a new tensor) anywhere."""
    nodes = [argument] if whole else [n for n in walk(argument) if isinstance(n, ast.expr)]
    for node in nodes:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        if k.BATCH_SIZE_NAME.search(name) and not _own_size(context, node):
            return node
    return None


def _own_size(context: Context, node: ast.AST) -> bool:
    """Whether a name was assigned the size of the batch at hand."""
    if not isinstance(node, ast.Name):
        return False
    for stmt in context.tree.nodes(ast.Assign):
        if any(isinstance(t, ast.Name) and t.id == node.id for t in stmt.targets):
            for inner in walk(stmt.value):
                if isinstance(inner, ast.Attribute) and inner.attr in ("size", "shape"):
                    return True
                if (
                    isinstance(inner, ast.Call)
                    and isinstance(inner.func, ast.Name)
                    and inner.func.id == "len"
                ):
                    return True
    return False


def _whole_batch(context: Context) -> Iterator[Change]:
    """`x @ x.t()`, `cdist(x, x)`: a loss that compares the samples of a batch with each other."""
    for node in context.tree.nodes(ast.BinOp, ast.Call):
        if isinstance(node, ast.BinOp):
            pair = [node.left, node.right] if isinstance(node.op, ast.MatMult) else []
        else:
            name = (context.script.qualname(node.func) or "").rpartition(".")
            pair = node.args[:2] if name[0] == "torch" and name[2] in ("matmul", "mm", "cdist") else []
        if len(pair) < 2 or not _same_tensor(pair[0], pair[1]):
            continue
        scope = context.script.scope_of(node)
        if is_in_model(context.script, scope) or not any(
            isinstance(n, ast.Return) or context.script.trains(n) for n in walk(scope.node)
        ):
            continue
        yield context.todo(
            WHOLE_BATCH,
            node,
            f"`{context.tree.segment(node)}` compares the samples of a batch; a process sees its own only",
            "gather the samples of all processes first if the loss is meant over the whole batch",
        )


def _same_tensor(one: ast.expr, other: ast.expr) -> bool:
    """Whether two operands are one tensor, transposed or not."""

    def base(node: ast.expr) -> ast.expr:
        while True:
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr in _TURNS
            ):
                node = node.func.value
            elif isinstance(node, ast.Attribute) and node.attr in ("T", "mT"):
                node = node.value
            else:
                return node

    return isinstance(base(one), ast.Name) and ast.dump(base(one)) == ast.dump(base(other))


def _exits(context: Context) -> Iterator[Change]:
    done: set[ast.expr] = set()
    for decision in _decisions(context):
        test: ast.expr | None = decision
        if context.script.is_uniform(decision) or not _local_number(context, decision):
            test = _counted_by(context, decision)
        if test is None or test in done:
            continue
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
        if isinstance(stop, ast.Raise) and not _is_caught_around(context, stop):
            continue  # an error ends all processes
        if isinstance(stop, ast.Continue) and not _skips_backward(context, stop):
            continue
        yield test.test
    for loop in context.tree.nodes(ast.While):
        if any(context.script.trains(stmt) for stmt in loop.body):
            yield loop.test


def _skips_backward(context: Context, stop: ast.AST) -> bool:
    loop = context.script.enclosing_loops(stop)[0]
    return any(
        context.script.trains(stmt) and context.tree.start(stmt) > context.tree.start(stop)
        for stmt in loop.body
    )


def _is_caught_around(context: Context, stop: ast.Raise) -> bool:
    """Whether a raise ends the training like a break: somebody around it goes on."""
    calls = context.script.callers(context.script.scope_of(stop))
    return any(
        isinstance(ancestor, ast.Try) and bool(ancestor.handlers)
        for node in (stop, *calls)
        for ancestor in context.tree.ancestors(node)
    )


def _counted_by(context: Context, test: ast.expr) -> ast.expr | None:
    """The test of one process's own numbers that sets a counter which a test reads: how long a loss did not fall."""
    read = {n.id for n in walk(test) if isinstance(n, ast.Name)}
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
    """Whether a test reads a number that comes from the process's own batch."""
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
