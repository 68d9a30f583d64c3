"""Which loaders are torch's: they can be sharded from outside, and their batches are on the host."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.loader_arguments import stated
from accelify.analysis.metrics.counts import made_once
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import (
    Node,
    call_argument,
    call_keyword,
    dotted,
    is_constant,
    target_names,
    walk,
)
from accelify.analysis.values import Entity, Function, Imported, Values


def is_shardable(entity: Entity) -> bool:
    """Whether a loader is known to be torch's DataLoader, which can be sharded from outside."""
    if entity.kind != v.LOADER:
        return False
    if entity.qualname in k.LOADER_CLASSES:
        return True
    return entity.cls is not None and bool(entity.cls.external_bases() & k.LOADER_CLASSES)


def is_shuffled(script: ScriptModel, entity: Entity) -> bool:
    """Whether torch's loader is sure to iterate over its data in an order that is drawn again for each pass."""
    if not is_shardable(entity) or not isinstance(entity.site, ast.Call):
        return False
    if call_keyword(entity.site, "generator") is not None:
        return False
    asked = call_argument(entity.site, 2, "shuffle")
    return all(is_constant(given, True) for given in stated(script, entity, asked))


def drops_last(script: ScriptModel, entity: Entity) -> bool:
    """Whether torch's loader is sure to leave out a last batch that is not full, by itself or by its batch sampler."""
    if not is_shardable(entity) or not isinstance(entity.site, ast.Call):
        return False
    own = entity.cls is not None  # a class of the script, with arguments in another order
    asked = call_argument(entity.site, -1 if own else 8, "drop_last")
    sampler = call_argument(entity.site, -1 if own else 4, "batch_sampler")
    if isinstance(sampler, ast.Name) and entity.module in script.modules:
        sampler = made_once(script, sampler)
    if isinstance(sampler, ast.Call) and (dotted(sampler.func) or "").endswith("BatchSampler"):
        asked = call_argument(sampler, 2, "drop_last")
    if isinstance(asked, ast.Compare):
        return _is_true_for_all(script, entity, asked)
    return all(is_constant(given, True) for given in stated(script, entity, asked))


def has_length(script: ScriptModel, entity: Entity) -> bool:
    """Whether nothing shows that a loader iterates over a stream, which has no length."""
    data = call_argument(entity.site, 0, "dataset") if isinstance(entity.site, ast.Call) else None
    if data is None or entity.module is None:
        return True
    return not any(_is_stream(value) for value in _values(script, entity, data) if isinstance(value, Entity))


def _is_stream(data: Entity) -> bool:
    """Whether a data set is iterable only: by its base, or by the name of a class that is not read."""
    if data.cls is not None:
        iterable = any("Iterable" in base.rsplit(".", 1)[-1] for base in data.cls.external_bases())
        return iterable and data.cls.method("__len__") is None
    if not isinstance(data.site, ast.Call):
        return False
    streamed = call_keyword(data.site, "streaming")
    name = (dotted(data.site.func) or "").rsplit(".", 1)[-1]
    return "Iterable" in name or (streamed is not None and is_constant(streamed, True))


def trains_on_whole_batches(script: ScriptModel) -> bool:
    """Whether every training loader is sure to leave out a batch that is smaller than the others."""
    return all(drops_last(script, loader) for loader in script.training_loaders)


def _is_true_for_all(script: ScriptModel, entity: Entity, test: ast.Compare) -> bool:
    """Whether `phase == "train"` is true for every value that its left side is known to have."""
    other = test.comparators[0]
    if len(test.ops) != 1 or not isinstance(test.left, ast.Name) or not isinstance(other, ast.Constant):
        return False
    if not isinstance(test.ops[0], (ast.Eq, ast.NotEq)):
        return False
    wanted = isinstance(test.ops[0], ast.Eq)
    return all(
        isinstance(given, ast.Constant) and (given.value == other.value) is wanted
        for given in stated(script, entity, test.left)
    )


def collating(script: ScriptModel, loader: Entity) -> list[ast.AST]:
    """The functions that put a loader's batches together, as far as the program has them."""
    if not isinstance(loader.site, ast.Call) or loader.module is None:
        return []
    given = call_argument(loader.site, 6, "collate_fn")
    if given is None:
        return []
    bodies: list[ast.AST] = []
    for function in [given, *_bound_to(script, loader, given)]:
        if isinstance(function, ast.Call) and function.args:
            function = function.args[0]  # functools.partial(collate, pad=0)
        bodies += [function] if isinstance(function, ast.Lambda) else []
        for value in _values(script, loader, function):
            if isinstance(value, Function):
                bodies.append(value.scope.node)
            elif isinstance(value, Entity) and value.cls is not None:
                called = value.cls.method("__call__")
                bodies += [called[1].node] if called is not None else []
    return bodies


def _bound_to(script: ScriptModel, loader: Entity, name: ast.expr) -> list[ast.expr]:
    """The call that makes the function which a loader gets by name: `collate = partial(pad_batch, value=0)`."""
    if not isinstance(name, ast.Name):
        return []
    owner = _scope_of(script, loader).resolve(name.id)
    assigned = owner.of_type(ast.Assign) if owner is not None else []
    bound = [n.value for n in assigned if any(isinstance(t, ast.Name) and t.id == name.id for t in n.targets)]
    return [value for value in bound if isinstance(value, (ast.Call, ast.Lambda))]


def gives_host_tensors(script: ScriptModel, loader: Entity) -> bool:
    """Whether the batches of a loader are on the host, as torch makes them of a data set that moves nothing itself.

    Of a loader that is not torch's nobody knows where they are.
    """
    if not is_shardable(loader) or (loader.cls is not None and loader.cls.method("__iter__") is not None):
        return False
    makers = collating(script, loader)
    data = call_argument(loader.site, 0, "dataset") if isinstance(loader.site, ast.Call) else None
    for value in _values(script, loader, data) if data is not None else ():
        if isinstance(value, Entity):
            makers += [one.scope.node for one in (value.cls.ancestry() if value.cls is not None else ())]
            if isinstance(value.site, ast.Call) and value.module is not None:
                # TensorDataset(x.to(device), y.to(device)), or of `x = kind(x)` before
                contained = _data_set_call(value.module, value.site)
                if any(_is_made_there(script, value.module, node) for one in contained for node in walk(one)):
                    return False
                makers += contained
    return not any(_moves(node) for maker in makers for node in walk(maker))


def _data_set_call(module: Module, made: ast.Call) -> list[Node]:
    """The call that makes a data set, and what its function has assigned before to the names in its arguments."""
    scope = module.scopes.of(made)
    names = {a.id for a in made.args if isinstance(a, ast.Name)}
    if scope.kind != "function" or not names:
        return [made]
    start = module.tree.start(made)
    assigned = [n for n in scope.of_type(ast.Assign) if module.tree.end(n) < start]
    return [made, *[s.value for s in assigned if any(names & set(target_names(t)) for t in s.targets)]]


def _is_made_there(script: ScriptModel, module: Module, node: Node) -> bool:
    """Whether a node makes a tensor of a GPU's type: `kind(x)`, where `kind` can be torch.cuda.FloatTensor."""
    if not isinstance(node, ast.Call):
        return False
    found = script.interpreter.evaluate(module, module.scopes.of(node), node.func)
    return any(
        isinstance(w, Imported) and w.name.startswith("torch.cuda.") and w.name.endswith("Tensor")
        for w in found
    )


def _values(script: ScriptModel, loader: Entity, node: ast.expr) -> Values:
    """What an argument of a loader can be."""
    assert loader.module is not None
    return script.interpreter.evaluate(loader.module, _scope_of(script, loader), node)


def _scope_of(script: ScriptModel, loader: Entity) -> Scope:
    """Where a loader is made."""
    assert loader.module is not None
    assert loader.site is not None
    if loader.module in script.modules:
        return script.scope_of(loader.site)
    return loader.module.scopes.of(loader.site)


def _moves(node: ast.AST) -> bool:
    """Whether a node brings a tensor to a device, or makes it there."""
    if not isinstance(node, ast.Call):
        return False
    if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
        return True
    target = call_keyword(node, "device")
    if target is None and isinstance(node.func, ast.Attribute) and node.func.attr == "to" and node.args:
        target = node.args[0]
    name = (dotted(target) or "") if target is not None else ""
    return target is not None and not name.startswith("torch.") and not is_constant(target, "cpu")
