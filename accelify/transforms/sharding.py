"""Reasons why several processes would not share the work, reported where they are found."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.indirect_loaders import only_from_lists
from accelify.analysis.data.loaders import drops_last, is_shardable, trains_on_whole_batches
from accelify.analysis.metrics.counts import first_of_shape
from accelify.analysis.models.stored_batch_sizes import state_of_stored_size
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.within_loops import runs_in
from accelify.analysis.syntax import call_argument, calls_in, dotted, target_names, text_of, walk
from accelify.analysis.values import Entity
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule, short
from accelify.transforms.rounds import epochs_of_whole_batches
from accelify.writer import edits as verbs

UNSHARDED = Rule("ACC402", "Every process works on the same data.", effort=30)
BATCH_SHAPE = Rule(
    "ACC404",
    "A shape holds the configured batch size, not the batch's own.",
    effort=5,
    done="took the batch's size for the configured one",
)

_VIEWS = frozenset({"view", "reshape"})
_HIDDEN_STATES = frozenset({"init_hidden", "init_state", "initHidden"})
_SHAPES = frozenset(
    "torch.zeros torch.ones torch.randn torch.rand torch.full torch.empty torch.randint torch.normal "
    "numpy.random.normal".split()
)
# `torch.cuda.FloatTensor(batch_size, n)` of the first releases, which take data as well.
_KINDS = ("", "Float", "Double", "Half", "Long", "Int", "Short", "Byte", "Bool")
_TYPES = frozenset(f"torch.{place}{kind}Tensor" for place in ("", "cuda.") for kind in _KINDS)


def transform(context: Context) -> Iterator[Change]:
    """Yield warnings about data that is not sharded, and shapes."""
    yield from _fixed_batch_size(context)
    yield from _unsharded(context)
    if context.plan.shares_training_data:
        yield from _shapes(context)
        yield from _stored_sizes(context)


def _fixed_batch_size(context: Context) -> Iterator[Change]:
    """A parameter with the batch size in its shape fits batches of that very size only."""
    call = context.script.fixed_batch_size
    if call is None or not context.script.training_loaders or context.plan.shares_training_data:
        return
    backward = context.script.backwards[0].call
    cures = [] if trains_on_whole_batches(context.script) else ["give the training loaders drop_last=True"]
    cures += ["convert with --batch-size per-process"] if context.plan.batch_size == "total" else []
    message = (
        "the model's own shapes hold the configured batch size, so that no process can take a smaller batch: "
        "every process works on all of the data"
    )
    if cures:
        message += f"; {' and '.join(cures)} to have it shared out in whole batches"
    yield context.change(BATCH_SHAPE, call if context.tree.parent(call) is not None else backward, message)


def _unsharded(context: Context) -> Iterator[Change]:
    # A bar that counts rounds (`trange(epochs)`) gives no data.
    loaders = {t for t in context.script.training_loaders if not k.is_progress(t.qualname)}
    backward = context.script.backwards[0].call
    if context.plan.shares_training_data:
        doubtful = sorted({one for t, one in context.plan.doubtful.items() if t in loaders})
        if doubtful:
            what = "not torch's DataLoader and which prepare gives back as it is: every process then"
            if doubtful[0] in context.plan.unseen.values():
                what = "not seen to give torch's DataLoader; of anything else every process"
            message = (
                f"the training data can come from `{doubtful[0]}`, which is {what} works on the same data, which is "
                f"right but no faster on several of them; prepare the DataLoader inside `{doubtful[0]}`, or make a "
                "DataLoader in every case"
            )
            yield context.change(UNSHARDED, backward, message)
        return
    if loaders and context.script.fixed_batch_size is not None:
        why = "the batches cannot be split"
    elif loaders and loaders <= context.script.episode_loaders:
        message = (
            "the loaders are made for one step and read once: every process draws episodes of its own, the same ones "
            "where they are seeded alike"
        )
        yield context.change(UNSHARDED, backward, message)
        return
    elif loaders & context.plan.prepared:
        rest = sorted({min(t.names, default="one") for t in loaders - context.plan.prepared})
        message = (
            f"some of the training data does not come from torch's DataLoader ({', '.join(rest)}): every process works "
            "on all of that, and on its own part of the rest"
        )
        yield context.change(UNSHARDED, backward, message)
        return
    elif loaders and only_from_lists(context.script, loaders):
        # What a loader was filled with before: tensors, or a list of tasks that names no data at all.
        why, loaders = "no training loop is seen to read a DataLoader itself", set()
    elif any(is_shardable(loader) for loader in loaders):
        why = "the training data comes from a loader that is stored where prepare cannot reach it"
    elif loaders:
        seen = all(t.qualname and not t.qualname.startswith("torch") for t in loaders)
        why = f"the training data comes from a loader that is not {'' if seen else 'seen to be '}torch's DataLoader"
    elif (handed := _handed_to_a_library(context)) is not None:
        loader, function = handed
        message = (
            f"`{loader}` is handed to `{function}`, which draws its batches out of sight and so stays as it is: every "
            f"process works on all of its data, {_cost(context)}; where that function only loops over it, "
            f"prepare `{loader}`"
        )
        yield context.change(UNSHARDED, backward, message)
        return
    else:
        why = "the training data is not seen to come from a DataLoader"
    # An environment or a generator that seeds itself gives each process different data, and episodes of other lengths.
    drawn = "" if loaders else " (where what is drawn at random is seeded alike)"
    message = f"{why}: every process works on the same data{drawn}, {_cost(context)}"
    if not loaders and context.script.fixed_batch_size is None and not context.for_accelerate:
        message += "; where batches are made by hand, accelerator.shard_batch gives each its share"
    yield context.change(UNSHARDED, backward, message)


def _cost(context: Context) -> str:
    """What it costs that every process works on the same data."""
    wrappers = k.PARALLEL_WRAPPERS | k.SPLIT_RUNS
    if not context.script.calls_to(wrappers):
        return "which is right but no faster on several of them"
    return (
        "which is right but slower than DataParallel was, which split each batch over the GPUs: each process computes "
        "all of it, and needs the memory for that on its own GPU"
    )


def _handed_to_a_library(context: Context) -> tuple[str, str] | None:
    """A DataLoader that a library's function gets, and what is called: `trainer.run(loader)`."""
    modules = context.script.modules
    for call in context.script.calls():
        name = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        own = [c for c in context.script.callees(call) if context.script.interpreter.module_of(c) in modules]
        if name not in ("run", "fit", "train") or own:
            continue
        for argument in [*call.args, *[kw.value for kw in call.keywords]]:
            loaders = context.script.entities(argument, v.LOADER)
            if isinstance(argument, (ast.Name, ast.Attribute)) and any(map(is_shardable, loaders)):
                return context.tree.segment(argument), short(context.tree.segment(call.func))
    return None


def _shapes(context: Context) -> Iterator[Change]:
    tree = context.tree
    whole = {loop: branch for branch, loop, _ in epochs_of_whole_batches(context)}
    given = _sizes_of_loaders(context)
    for call in context.script.calls():
        method = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        viewed = method in _VIEWS
        name = context.script.qualname(call.func)
        if not viewed and name not in _SHAPES and name not in _TYPES and method not in _HIDDEN_STATES:
            continue
        if _fills_buffer(context, call):
            continue  # of the configured size, not the batch's
        together = call.args[0] if viewed and len(call.args) == 1 else None
        arguments = together.elts if isinstance(together, ast.Tuple) else call.args
        shaped = viewed and not any(text_of(a) == "-1" for a in arguments)
        carried = not _runs_for_each_batch(context, call)
        if carried and shaped and arguments and _is_size_of_loader(context, arguments[0], given):
            carried = not _is_called_for_each_batch(context, call)
        if carried and not _carried_into_batches(context, call):
            continue
        around = list(whole) if carried else context.script.enclosing_loops(call)
        scope = context.script.scope_of(call)
        if any(loop in whole and context.script.scope_of(loop) is scope for loop in around):
            continue  # the batch that is smaller is left out
        if not carried and (_takes_whole_batches(context, around) or _is_of_whole_data(context, call)):
            continue
        for argument in arguments:
            whole_argument = viewed or name in _TYPES or method in _HIDDEN_STATES
            node = _configured_size(context, argument, given, whole_argument)
            if node is None:
                continue
            text = tree.segment(node)
            message = f"`{text}` is the configured batch size; the batch of a process can be smaller"
            if carried:
                mark = "give the loader drop_last=True: the last batch of a process can be smaller than this"
                yield context.todo(BATCH_SHAPE, call, message, mark)
                break
            # Of a shape in brackets, what it is the shape of may have its dimensions put together.
            own = _batch_at_hand(context, call, viewed) if arguments is call.args else None
            leads = argument is arguments[0] and argument is node
            if shaped and leads:
                edit = verbs.replace(argument, "-1")
                yield context.change(BATCH_SHAPE, call, message, [edit])
            elif leads and own and method not in _HIDDEN_STATES:
                edit = verbs.replace(argument, f"{own}.size(0)")
                yield context.change(BATCH_SHAPE, call, message, [edit], safety=Safety.REVIEW)
            else:
                yield context.todo(
                    BATCH_SHAPE, call, message, "take the size of the current batch, as in data.size(0)"
                )
            break


def _stored_sizes(context: Context) -> Iterator[Change]:
    """A state of a model that has the configured size fits no part of a batch that is split between processes."""
    if context.plan.batch_size != "total":
        return
    models = [
        t for t in sorted(context.plan.prepared, key=Entity.place) if t.kind == v.MODEL and t.cls is not None
    ]
    found = state_of_stored_size(c for t in models if t.cls is not None for c in t.cls.ancestry())
    if found is None:
        return
    cls, call, size = found
    if any(isinstance(n.ctx, ast.Store) and dotted(n) != size for n in _attributes(context, size)):
        return  # the script sets it for each batch
    own = cls.module in context.script.modules
    where = "" if own or cls.module.path is None else f" ({cls.module.path.name}:{call.lineno})"
    message = (
        f"`{cls.name}`{where} makes a state of `{size}` samples, and a process's part of a batch is smaller: hand the "
        "model batch_size // accelerator.num_processes, or take the size of the current batch, as in data.size(0)"
    )
    yield context.change(BATCH_SHAPE, call if own else context.script.backwards[0].call, message)


def _attributes(context: Context, size: str) -> Iterator[ast.Attribute]:
    return (n for n in context.tree.nodes(ast.Attribute) if n.attr == size.rpartition(".")[2])


def _batch_at_hand(context: Context, call: ast.Call, viewed: bool) -> str | None:
    """A tensor of the batch that a call works with, whose first dimension is the batch's size."""
    if viewed:
        receiver = call.func.value if isinstance(call.func, ast.Attribute) else None
        return receiver.id if isinstance(receiver, ast.Name) else None
    for loop in context.script.enclosing_loops(call):
        for known, _ in context.script.loader_loops:
            target = _batch_target(known) if known is loop else None
            if isinstance(target, ast.Tuple) and target.elts and isinstance(target.elts[0], ast.Name):
                return target.elts[0].id
    return None


def _batch_target(loop: ast.For | ast.AsyncFor) -> ast.expr | None:
    """What of a loop's targets is the batch: the second where it is counted; None where something else is around."""
    names = {dotted(n.func) or "" for n in calls_in(loop.iter)}
    words = {name.rpartition(".")[2] for name in names}
    if "enumerate" not in words:
        return loop.target if words <= {"tqdm", "iter", "DataLoader", "track"} else None
    pair = loop.target
    return pair.elts[1] if isinstance(pair, ast.Tuple) and len(pair.elts) == 2 else None


def _takes_whole_batches(context: Context, loops: Collection[ast.AST]) -> bool:
    """Whether some loops over loaders leave the batch out that is not whole: a process's are never smaller then."""
    if context.plan.batch_size == "total" or context.plan.hand_cut is not None:
        return False
    loaders = {
        t
        for loop, contained in context.script.loader_loops
        if loop in loops
        for t in contained & context.plan.prepared
    }
    return bool(loaders) and all(drops_last(context.script, t) for t in loaders)


def _is_of_whole_data(context: Context, call: ast.Call) -> bool:
    """Whether what a call makes is read only where every process iterates over all of some data: a validation."""
    stmt, script = context.tree.parent(call), context.script
    if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name):
        return False
    owner = script.scope_of(stmt).resolve(stmt.targets[0].id)
    reads = script.reads(stmt.targets[0].id, owner) if owner is not None else []
    known = dict(script.loader_loops)
    innermost = [next((a for a in script.enclosing_loops(read) if a in known), None) for read in reads]
    return bool(reads) and all(
        loop is not None and not known[loop] & context.plan.prepared for loop in innermost
    )


def _runs_for_each_batch(context: Context, node: ast.AST) -> bool:
    loops = context.script.enclosing_loops(node)
    return any(
        loop is outer
        for loop, loaders in context.script.loader_loops
        if loaders & context.plan.prepared
        for outer in loops
    )


def _is_called_for_each_batch(context: Context, node: ast.AST) -> bool:
    """Whether a function is called in a loop over batches that are sharded, by itself or through others."""
    loops = {loop for loop, loaders in context.script.loader_loops if loaders & context.plan.prepared}
    return runs_in(context.script, node, loops)


def _sizes_of_loaders(context: Context) -> set[tuple[str, Scope | None]]:
    """The variables that loaders get as their batch size, under any name.

    One without a scope comes by `from settings import *`.
    """
    found: set[tuple[str, Scope | None]] = set()
    for loader in context.plan.prepared:
        made = loader.site if loader.kind == v.LOADER else None
        if isinstance(made, ast.Call) and context.tree.parent(made) is not None:
            size = call_argument(made, 1, "batch_size")
            if isinstance(size, ast.Name):
                found.add((size.id, context.script.scope_of(made).resolve(size.id)))
    return found


def _is_size_of_loader(context: Context, node: ast.expr, given: set[tuple[str, Scope | None]]) -> bool:
    if not isinstance(node, ast.Name) or not given:
        return False
    return (node.id, context.script.scope_of(node).resolve(node.id)) in given


def _fills_buffer(context: Context, call: ast.Call) -> bool:
    """`noise.copy_(torch.randn(batch_size, n))`."""
    parent = context.tree.parent(call)
    return (
        isinstance(parent, ast.Call)
        and isinstance(parent.func, ast.Attribute)
        and parent.func.attr == "copy_"
    )


def _carried_into_batches(context: Context, call: ast.Call) -> bool:
    """Whether the result of a call is read by a loop over batches after it: a state that goes from batch to batch."""
    made: ast.AST = call
    stmt = context.tree.parent(call)
    while isinstance(stmt, ast.Attribute) or (
        isinstance(stmt, ast.Call) and _keeps_size(context, stmt, made)
    ):
        made, stmt = stmt, context.tree.parent(stmt)
    if not isinstance(stmt, ast.Assign) or stmt.value is not made:
        return False
    scope = context.script.scope_of(stmt)
    names = {t.id for t in stmt.targets if isinstance(t, ast.Name) and not _is_resized(scope, t.id)}
    return bool(names) and any(
        _meets_batch(context, loop, names)
        for loop, loaders in context.script.loader_loops
        if loaders & context.plan.prepared
        and not any(drops_last(context.script, t) for t in loaders)
        and context.script.scope_of(loop) is scope
        and context.tree.is_after(loop, stmt)
    )


def _keeps_size(context: Context, call: ast.Call, inner: ast.AST) -> bool:
    """`Tensor(n).fill_(1.0)`, `Variable(Tensor(n))`: what stays as large as it was made."""
    if call.func is inner:
        return isinstance(inner, ast.Attribute) and inner.attr.endswith(("_", "cuda", "to", "float"))
    return bool(call.args) and call.args[0] is inner and context.script.qualname(call.func) in k.VARIABLE


def _is_resized(scope: Scope, name: str) -> bool:
    """`label.resize_(n)`: it gets the size of the current batch."""
    return any(
        isinstance(n, ast.Attribute)
        and n.attr.startswith("resize_")
        and (dotted(n) or "").startswith(f"{name}.")
        for n in scope.nodes
    )


def _meets_batch(context: Context, loop: ast.For | ast.AsyncFor, names: set[str]) -> bool:
    """Whether one of some names, whole, is passed to a call together with the batch, or is filled with it."""
    batch, tree = set(target_names(loop.target)), context.tree
    for node in walk(loop):
        if isinstance(node, ast.Call):
            read = [n for a in node.args for n in walk(a) if isinstance(n, ast.Name)]
            given = {n.id for n in read}
            whole = {n.id for n in read if not _is_sliced(tree.parent(n), n)}
            if isinstance(node.func, ast.Attribute) and node.func.attr == "copy_":
                whole |= set(filter(None, [dotted(node.func.value)]))
            if whole & names and (given & batch or any(context.script.is_a(a, v.BATCH) for a in node.args)):
                return True
            own = [a for a in node.args if isinstance(a, ast.Name) and a.id in names]
            if own and any(context.script.is_a(a, v.OUTPUT) for a in node.args if a not in own):
                return True
    return False


def _is_sliced(parent: ast.AST | None, node: ast.Name) -> bool:
    return isinstance(parent, ast.Subscript) and parent.value is node and isinstance(parent.slice, ast.Slice)


def _configured_size(
    context: Context, argument: ast.expr, given: set[tuple[str, Scope | None]], whole: bool
) -> ast.expr | None:
    """The configured batch size in an argument: as the whole of it, or (in the shape of a new tensor) anywhere."""
    nodes = [argument] if whole else [n for n in walk(argument) if isinstance(n, ast.expr)]
    for node in nodes:
        name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
        known = _is_size_of_loader(context, node, given) or k.BATCH_SIZE_NAME.search(name)
        if known and not _own_size(context, node):
            return node
    return None


def _own_size(context: Context, node: ast.AST) -> bool:
    """Whether a name was assigned the size of the current batch."""
    if not isinstance(node, ast.Name):
        return False
    script = context.script
    scope = script.scope_of(node).resolve(node.id)
    for store in context.tree.writes(node.id):
        # `bs, crops, c, h, w = x.size()`
        stmt = context.tree.statement(store)
        if isinstance(stmt, ast.Assign) and script.scope_of(stmt).resolve(node.id) is scope:
            if first_of_shape(stmt, node.id) is not None:
                return True
    for stmt in context.tree.assigns(node.id):
        if script.scope_of(stmt).resolve(node.id) is scope:
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
