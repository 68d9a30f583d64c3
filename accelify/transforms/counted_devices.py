"""Batch sizes and learning rates multiplied by the number of GPUs of the machine, as for DataParallel.

batch_size = 64 * torch.cuda.device_count()    ->  batch_size = 64
batch_size *= n_gpu                            ->  (gone)
batch_size = 64 * len(gpus)                    ->  batch_size = 64     (the list that DataParallel takes)
lr = 0.1 * n_gpu                               ->  lr = 0.1 * accelerator.num_processes
lr = 0.1 * batch_size / 256                    ->  lr = 0.1 * batch_size * accelerator.num_processes / 256

The same where the size is in a dictionary that the loader gets: `DataLoader(data, **params)`. A learning rate that
counts the GPUs like the batch size of the training data, or is computed from that, becomes one for the batches of all
processes. Where the loader that takes the size is not visible, or is made in a module that is not converted, the
factors stay and are reported.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from operator import attrgetter

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.gpu_counts import COUNTS, DeviceCounts, Product, entries
from accelify.analysis.program import Module
from accelify.analysis.schedules.schedule_lengths import Length
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument, dotted, names_in, target_names, walk
from accelify.analysis.values import Entity, Imported
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, Edit

COUNTED = Rule(
    "ACC413",
    "The batch size counts the GPUs of the machine, and each process takes all of it.",
    done="took the number of GPUs out of the batch size",
)


_RATES = ("lr", "learning_rate", "cur_lr", "new_lr")


def transform(context: Context) -> Iterator[Change]:
    """Yield the removal of the factor from each batch size of a loader that is sharded, and the rates with it."""
    if context.plan.batch_size == "total":
        return
    script, counts = context.script, DeviceCounts(context.script)
    named = list(_in_other_modules(context))
    yield from named
    made = [t for t in context.plan.prepared if t.kind == v.LOADER and isinstance(t.site, ast.Call)]
    yield from _stated(context, counts, made)
    if not counts.are_asked:
        return
    done, trained = set[ast.AST](), list[Product]()
    for entity in context.tree.in_order(made, attrgetter("site")):
        assert isinstance(entity.site, ast.Call)
        for size in counts.given(entity.site, 1, "batch_size"):
            for product in counts.products(size):
                if product.node not in done and context.is_claimed(product.node):
                    continue
                trained += [product] if entity in script.training_loaders else []
                if product.node not in done:
                    done.add(product.node)
                    message = (
                        "the batch size counts the GPUs of the machine, and each process takes all of it"
                    )
                    edits = _without_factor(context, counts, product.node)
                    yield context.change(COUNTED, product.node, message, edits)
    if not done and script.calls_to(k.PARALLEL_WRAPPERS):
        unseen = list(_of_unseen_loaders(context, counts))
        yield from unseen
        named += unseen
    if trained or named:
        yield from _rates(context, counts, trained)


def _stated(context: Context, counts: DeviceCounts, loaders: list[Entity]) -> Iterator[Change]:
    """Report the sizes that an option multiplies by the GPUs of DataParallel: it can stay, and has to be 1."""
    script = context.script
    if not script.calls_to(k.PARALLEL_WRAPPERS):
        return
    done = set[ast.AST]()
    own = [t.site for t in loaders if t.module in script.modules and isinstance(t.site, ast.Call)]
    for made in context.tree.in_order(own):
        for size in counts.given(made, 1, "batch_size"):
            stated = counts.stated(size)
            if stated is None or stated[0] in done or context.is_claimed(stated[0]):
                continue
            done.add(stated[0])
            message = (
                f"the batch size is multiplied by `{stated[1]}`, the GPUs of DataParallel, and each process takes all "
                f"of it: let `{stated[1]}` be 1"
            )
            yield context.change(COUNTED, stated[0], message)


def _in_other_modules(context: Context) -> Iterator[Change]:
    """Report the sizes that count the GPUs in a module that is not converted, which makes a sharded loader."""
    script, reported = context.script, set[ast.AST]()
    for entity in sorted(context.plan.prepared, key=Entity.place):
        module, site = entity.module, entity.site
        if (
            entity.kind != v.LOADER
            or module is None
            or module in script.modules
            or not isinstance(site, ast.Call)
        ):
            continue
        size = call_argument(site, 1, "batch_size") if module.tree.mentions("device_count") else None
        product = next(_products_there(script, module, size), None) if size is not None else None
        if product is None:
            continue
        place = f"{module.path.name if module.path is not None else module.name}, line {product.lineno}"
        for call in Length(site, module).places(script):
            if call not in reported:
                reported.add(call)
                message = (
                    f"the batch size counts the GPUs of the machine ({place}), and each process takes all of it: "
                    "leave the factor out there"
                )
                yield context.change(COUNTED, call, message)


def _products_there(script: ScriptModel, module: Module, size: ast.expr) -> Iterator[ast.expr | ast.stmt]:
    """The products with `torch.cuda.device_count()` from which a batch size is computed, in its function."""
    scope, names = module.scopes.of(size), names_in(size)
    made: list[ast.expr | ast.stmt] = [size]
    for node in scope.nodes:
        if isinstance(node, (ast.Assign, ast.AugAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            made += [node] if names & {n for target in targets for n in target_names(target)} else []
    for inner in (n for one in made for n in walk(one)):
        if isinstance(inner, (ast.BinOp, ast.AugAssign)) and isinstance(inner.op, ast.Mult):
            factors = [inner.value] if isinstance(inner, ast.AugAssign) else [inner.left, inner.right]
            # A number with a name is what the function assigns to that.
            named = {n.id for n in factors if isinstance(n, ast.Name)}
            factors += [
                n.value
                for n in scope.of_type(ast.Assign)
                if named & {t.id for t in n.targets if isinstance(t, ast.Name)}
            ]
            for factor in factors:
                if isinstance(factor, ast.Call):
                    contained = script.interpreter.evaluate(module, scope, factor.func)
                    if any(isinstance(w, Imported) and w.name in COUNTS for w in contained):
                        yield inner


def _of_unseen_loaders(context: Context, counts: DeviceCounts) -> Iterator[Change]:
    """Report the sizes that count the GPUs where it is not known which loader, of another module, takes them."""
    for stmt in context.tree.nodes(ast.Assign, ast.AugAssign):
        target = stmt.target if isinstance(stmt, ast.AugAssign) else stmt.targets[0]
        if not k.BATCH_SIZE_NAME.search((dotted(target) or "").rpartition(".")[2]) or context.is_claimed(
            stmt
        ):
            continue
        if counts.factor(stmt if isinstance(stmt, ast.AugAssign) else stmt.value) is not None:
            message = (
                "the batch size counts the GPUs of the machine for DataParallel, and each process takes all of it: "
                "leave the factor out once each process is given its part of the data"
            )
            yield context.change(COUNTED, stmt, message)


def _without_factor(context: Context, counts: DeviceCounts, node: ast.BinOp | ast.AugAssign) -> list[Edit]:
    tree = context.tree
    if isinstance(node, ast.BinOp):
        rest = node.right if counts.factor(node) is node.left else node.left
        context.claim(node)
        return [verbs.replace(node, rest)]
    branch = tree.parent(node)
    alone = isinstance(branch, ast.If) and branch.body == [node] and not branch.orelse
    gone = branch if alone and isinstance(branch, ast.stmt) else node
    context.claim(gone)
    return [Delete(gone)]


def _rates(context: Context, counts: DeviceCounts, sizes: list[Product]) -> Iterator[Change]:
    """Yield the edits that scale the learning rates which count the GPUs with the batches of all processes.

    Args:
        context: of the script.
        counts: its numbers of GPUs.
        sizes: the products that leave the batch sizes of the training data; none where those are only reported.
    """
    tree, gone = context.tree, {size.node for size in sizes}
    retained = {size.read for size in sizes}
    found: dict[ast.AST, Product] = {}
    for product in _products_of_rates(context, counts):
        if product.node not in gone:
            found.setdefault(product.node, product)
        elif product.read is not None and _follows(context, product):
            found.setdefault(product.read, product)
    statements = {tree.statement(node) for node in found}
    for node, product in found.items():
        if context.is_claimed(node):
            continue
        accelerator = context.accelerator(node)
        if not sizes:
            message = (
                "the learning rate counts the GPUs of the machine, as the batch size does: where the factor is left "
                "out there, let the rate count the processes (`accelerator.num_processes`)"
            )
            yield context.change(COUNTED, node, message)
            continue
        message = (
            "the learning rate counts the GPUs of the machine, as the batch size did; a step now takes a batch of each "
            "process"
        )
        if accelerator is None or node in retained:
            message = f"{message}: count these here (`accelerator.num_processes`)"
            yield context.change(COUNTED, node, message)
            continue
        number = f"{accelerator}.num_processes"
        factor = counts.factor(product.node) if node is product.node else None
        if factor is not None:
            edits: list[Edit] = [verbs.replace(factor, number)]
            edits += _of_test(context, counts, tree.statement(node), statements, number)
        else:
            assert isinstance(node, ast.expr)
            edits = _multiplied(context, node, number)
        context.claim(node)
        yield context.change(COUNTED, node, message, edits)


def _products_of_rates(context: Context, counts: DeviceCounts) -> Iterator[Product]:
    """The products with a number of GPUs in the learning rates of optimizers, and in variables with such a name."""
    script = context.script
    for entity in sorted(context.plan.prepared, key=Entity.place):
        if (
            entity.kind == v.OPTIMIZER
            and isinstance(entity.site, ast.Call)
            and entity.module in script.modules
        ):
            groups = [n for n in walk(entity.site) if isinstance(n, ast.Dict)]
            rates = [*counts.given(entity.site, 1, "lr"), *(r for g in groups for r in entries(g, "lr"))]
            for rate in rates:
                yield from counts.products(rate)
    for stmt in context.tree.nodes(ast.Assign, ast.AugAssign):
        target = stmt.target if isinstance(stmt, ast.AugAssign) else stmt.targets[0]
        if _is_learning_rate(target):
            if isinstance(stmt, ast.AugAssign) and counts.factor(stmt) is not None:
                yield Product(stmt, None)
            yield from counts.products(stmt.value)


def _follows(context: Context, product: Product) -> bool:
    """Whether the variable by which a rate is computed from a batch size was a product with the GPUs where it is read.

    A divisor is none of this: `len(data) // batch_size` is a number of steps.
    """
    tree, read = context.tree, product.read
    assert read is not None
    if isinstance(product.node, ast.AugAssign) and not tree.is_after(read, product.node):
        return False
    inner: ast.AST = read
    for around in tree.ancestors(read):
        if isinstance(around, ast.BinOp) and isinstance(around.op, (ast.Div, ast.FloorDiv)):
            if inner is around.right:
                return False
        inner = around
    return True


def _multiplied(context: Context, node: ast.expr, number: str) -> list[Edit]:
    """The edits that multiply the value of an expression."""
    around = context.tree.parent(node)
    if isinstance(around, ast.BinOp) and isinstance(around.op, (ast.Pow, ast.Mod)):
        return [verbs.replace(node, "(", node, f" * {number})")]
    if isinstance(around, ast.BinOp) and isinstance(around.op, ast.Mult) and around.right is node:
        node = around  # `rate * size * number`, in the order of the script
    return [verbs.replace(node, node, f" * {number}")]


def _of_test(
    context: Context, counts: DeviceCounts, stmt: ast.stmt, rates: set[ast.stmt], number: str
) -> list[Edit]:
    """The edit for `if n_gpu > 1:` around a rate, if the branch has nothing else: there may be more processes."""
    branch = context.tree.parent(stmt)
    if (
        not isinstance(branch, ast.If)
        or branch.orelse
        or stmt is not next(s for s in branch.body if s in rates)
    ):
        return []
    test = branch.test
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not counts.is_count(test.left):
        return []
    if not all(one in rates or context.is_claimed(one) for one in branch.body):
        return []
    return [verbs.replace(test.left, number)]


def _is_learning_rate(target: ast.expr) -> bool:
    """Whether a learning rate is assigned: `group["lr"]`, `lr`."""
    if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant):
        return target.slice.value == "lr"
    return (dotted(target) or "").rpartition(".")[2].lower() in _RATES
