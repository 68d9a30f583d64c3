"""Batch sizes that count the GPUs of the machine, as DataParallel wants them.

batch_size = 64 * torch.cuda.device_count()    ->  batch_size = 64
batch_size *= n_gpu                            ->  (gone)
batch_size = 64 * len(gpus)                    ->  batch_size = 64     (the list that DataParallel is given)

So too where the size stands in a dictionary that the loader is given: `DataLoader(data, **params)`.
Where the loader that takes the size is not seen, or made in a module that is not converted, the factor stays and is
named.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.program import Module
from accelify.analysis.schedule_lengths import Length
from accelify.analysis.script import ScriptModel
from accelify.analysis.steps import sources
from accelify.analysis.syntax import call_argument, call_keyword, dotted, is_constant, target_names, walk
from accelify.analysis.values import Imported, Thing
from accelify.edits import DeleteStatement, Edit
from accelify.transforms.base import Change, Context, Rule

COUNTED = Rule(
    "ACC413",
    "counted-devices",
    "The batch size counts the GPUs of the machine, and each process takes all of it.",
    effort=2,
)
_COUNTS = frozenset({"torch.cuda.device_count"})
_FAR = 4


def transform(context: Context) -> Iterator[Change]:
    """Yield the removal of the factor from each batch size of a loader that is shared out."""
    if context.plan.batch_size == "total":
        return
    yield from _in_other_modules(context)
    asks = any(context.script.qualname(call.func) in _COUNTS for call in context.script.calls())
    if not asks and not any(_device_lists(context)):
        return
    done: set[ast.AST] = set()
    made = [t.site for t in context.plan.prepared if t.kind == v.LOADER and isinstance(t.site, ast.Call)]
    for call in sorted(made, key=context.tree.start):
        for node in (product for size in _sizes(context, call) for product in _products(context, size)):
            if node in done or context.is_claimed(node):
                continue
            done.add(node)
            message = "the batch size counts the GPUs of the machine, and each process takes all of it"
            yield context.change(COUNTED, node, message, _without_factor(context, node))
    if not done and k.PARALLEL_WRAPPERS & {
        context.script.qualname(call.func) for call in context.script.calls()
    }:
        yield from _of_unseen_loaders(context)


def _in_other_modules(context: Context) -> Iterator[Change]:
    """Name the sizes that count the GPUs in a module that is not converted, which makes a loader that is shared out."""
    script, said = context.script, set[ast.AST]()
    for thing in sorted(context.plan.prepared, key=Thing.place):
        module, site = thing.module, thing.site
        if (
            thing.kind != v.LOADER
            or module is None
            or module in script.modules
            or not isinstance(site, ast.Call)
        ):
            continue
        size = call_argument(site, 1, "batch_size") if b"device_count" in module.tree.data else None
        product = next(_products_there(script, module, size), None) if size is not None else None
        if product is None:
            continue
        place = f"{module.path.name if module.path is not None else module.name}, line {product.lineno}"
        for call in Length(site, module).places(script):
            if call not in said:
                said.add(call)
                message = (
                    f"the batch size counts the GPUs of the machine ({place}), and each process takes all of it: "
                    "leave the factor out there"
                )
                yield context.change(COUNTED, call, message)


def _products_there(script: ScriptModel, module: Module, size: ast.expr) -> Iterator[ast.expr | ast.stmt]:
    """The products with `torch.cuda.device_count()` that a batch size is made of, in its own function."""
    scope, names = module.scopes.of(size), {n.id for n in walk(size) if isinstance(n, ast.Name)}
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
                for n in scope.nodes
                if isinstance(n, ast.Assign) and named & {t.id for t in n.targets if isinstance(t, ast.Name)}
            ]
            for factor in factors:
                if isinstance(factor, ast.Call):
                    held = script.interpreter.evaluate(module, scope, factor.func)
                    if any(isinstance(w, Imported) and w.name in _COUNTS for w in held):
                        yield inner


def _of_unseen_loaders(context: Context) -> Iterator[Change]:
    """Name the sizes that count the GPUs where it is not seen which loader, of another module, takes them."""
    for stmt in context.tree.nodes(ast.Assign, ast.AugAssign):
        target = stmt.target if isinstance(stmt, ast.AugAssign) else stmt.targets[0]
        if not k.BATCH_SIZE_NAME.search((dotted(target) or "").rpartition(".")[2]) or context.is_claimed(
            stmt
        ):
            continue
        if isinstance(stmt, ast.AugAssign):
            counts = isinstance(stmt.op, ast.Mult) and _is_count(context, stmt.value)
        else:
            value = stmt.value
            counts = isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult)
            counts = counts and _is_count(context, value.left) != _is_count(context, value.right)
        if counts:
            message = (
                "the batch size counts the GPUs of the machine for DataParallel, and each process takes all of it: "
                "leave the factor out once each process is given its part of the data"
            )
            yield context.change(COUNTED, stmt, message)


def _sizes(context: Context, call: ast.Call) -> Iterator[ast.expr]:
    """What a loader is told as its batch size: by itself, or in a dictionary, as in `DataLoader(data, **given)`."""
    size = call_argument(call, 1, "batch_size")
    if size is not None:
        yield size
        return
    for given in [kw.value for kw in call.keywords if kw.arg is None]:
        yield from _entries(given)
        if not isinstance(given, (ast.Name, ast.Attribute)):
            continue
        for source in sources(context.script, given):
            yield from _entries(source)
        for stmt in context.tree.nodes(ast.Assign):
            target = stmt.targets[0]
            if isinstance(target, ast.Subscript) and is_constant(target.slice, "batch_size"):
                if _is_same(context, target.value, given):
                    yield stmt.value


def _entries(given: ast.expr) -> Iterator[ast.expr]:
    """The batch size in a dictionary that is written out."""
    if isinstance(given, ast.Dict):
        yield from (
            value
            for key, value in zip(given.keys, given.values, strict=True)
            if is_constant(key, "batch_size")
        )
    elif isinstance(given, ast.Call) and dotted(given.func) == "dict":
        size = call_keyword(given, "batch_size")
        yield from [size] if size is not None else []


def _products(context: Context, size: ast.expr) -> Iterator[ast.BinOp | ast.AugAssign]:
    """The products with a number of devices that a batch size is computed from."""
    queue, seen = [(size, 0)], set()
    while queue:
        node, far = queue.pop()
        if node in seen:
            continue
        seen.add(node)
        for inner in walk(node):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
                if _is_count(context, inner.left) != _is_count(context, inner.right):
                    yield inner
            elif isinstance(inner, (ast.Name, ast.Attribute)) and far < _FAR:
                queue += [(value, far + 1) for value in sources(context.script, inner)]
                yield from _times(context, inner)


def _times(context: Context, read: ast.Name | ast.Attribute) -> Iterator[ast.AugAssign]:
    scope, name = context.script.scope_of(read), dotted(read)
    for stmt in context.tree.nodes(ast.AugAssign):
        if isinstance(stmt.op, ast.Mult) and dotted(stmt.target) == name is not None:
            if context.script.scope_of(stmt) is scope and _is_count(context, stmt.value):
                yield stmt


def _is_count(context: Context, node: ast.expr, far: int = 0) -> bool:
    """Whether an expression is the number of GPUs: the call, a name of it, or that and at least one."""
    if isinstance(node, ast.Call):
        if dotted(node.func) == "max" and len(node.args) == 2:
            return any(_is_count(context, a, far) for a in node.args) and any(
                isinstance(a, ast.Constant) for a in node.args
            )
        if dotted(node.func) == "len" and len(node.args) == 1:
            return any(_is_same(context, node.args[0], given) for given in _device_lists(context))
        return context.script.qualname(node.func) in _COUNTS
    if isinstance(node, ast.IfExp):
        return any(_is_count(context, a, far) for a in (node.body, node.orelse))
    if isinstance(node, (ast.Name, ast.Attribute)) and far < _FAR:
        given = [s for s in sources(context.script, node) if not isinstance(s, ast.Constant)]
        return bool(given) and all(_is_count(context, s, far + 1) for s in given)
    return False


def _device_lists(context: Context) -> Iterator[ast.expr]:
    """The lists of GPUs that DataParallel is given, where they have a name."""
    for call in context.script.calls():
        if context.script.qualname(call.func) in k.PARALLEL_WRAPPERS:
            given = call_argument(call, 1, "device_ids")
            if isinstance(given, (ast.Name, ast.Attribute)):
                yield given


def _is_same(context: Context, node: ast.expr, given: ast.expr) -> bool:
    """Whether two expressions name one variable or attribute."""
    name, script = dotted(node), context.script
    if name is None or name != dotted(given):
        return False
    root = name.partition(".")[0]
    return script.scope_of(node).resolve(root) is script.scope_of(given).resolve(root)


def _without_factor(context: Context, node: ast.BinOp | ast.AugAssign) -> list[Edit]:
    tree = context.tree
    if isinstance(node, ast.BinOp):
        rest = node.right if _is_count(context, node.left) else node.left
        context.claim(node)
        return [verbs.replace(tree, node, tree.segment(rest))]
    branch = tree.parent(node)
    alone = isinstance(branch, ast.If) and branch.body == [node] and not branch.orelse
    gone = branch if alone and isinstance(branch, ast.stmt) else node
    context.claim(gone)
    return [DeleteStatement(gone)]
