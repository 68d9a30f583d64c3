"""Tensors that are read on the host: prepare places batches and models on the device, where NumPy cannot read them.

predictions.append(labels.numpy())      ->  predictions.append(labels.cpu().numpy())
counts += np.bincount(labels)           ->  counts += np.bincount(labels.cpu())
torch.LongTensor(labels)                ->  torch.LongTensor(labels.cpu())
pack_padded_sequence(x, lengths)        ->  pack_padded_sequence(x, lengths.cpu())

A function of another module that does so with an argument of the script gets the copy there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.data.collated_parts import are_lists, collated_parts
from accelify.analysis.devices.host_reads_in_modules import (
    HOST_TYPES,
    can_be_fixed,
    is_collated_by_torch,
    reads_on_host,
)
from accelify.analysis.devices.tensor_makers import ARRAY, DEVICE, HOST
from accelify.analysis.metrics.collected import may_be_texts
from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import call_argument, names_in, text_of, walk
from accelify.analysis.values import Entity, Sequence
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, where
from accelify.transforms.fixes_elsewhere import FixElsewhere
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

HOST_COPY = Rule(
    "ACC114",
    "A tensor that prepare puts on the device is read on the host: by NumPy, or as lengths of sequences.",
    Severity.ERROR,
    effort=1,
    done="copied tensors to the CPU where they are read there",
)
# Libraries whose functions read a tensor through NumPy.
_READERS = frozenset("numpy scipy sklearn pandas cv2 PIL skimage matplotlib seaborn imageio".split())
# Those whose first argument is the path of a file: text, which a batch may hold for each of its samples.
_OF_FILES = frozenset(
    "save savez savez_compressed savetxt load loadtxt genfromtxt fromfile imwrite imread imsave open read_csv".split()
)
# Those that make arrays of texts as well.
_OF_TEXTS = frozenset(
    "append array asarray asanyarray concatenate hstack vstack stack unique isin in1d Index Series".split()
)
_PACKING = "torch.nn.utils.rnn.pack_padded_sequence"
_OF_TENSORS = frozenset(
    "cpu to cuda long int size squeeze view flatten max min sum sort data detach shape".split()
)


def transform(context: Context) -> Iterator[Change]:
    """Yield `.cpu()` before `.numpy()` of what comes from a prepared loader or model, and in arguments of NumPy."""
    if context.plan.arguments.get("cpu") == "True":
        return
    yield from _conversions(context)
    yield from _arguments(context)
    yield from _lengths(context)
    yield from _elsewhere(context)


def _conversions(context: Context) -> Iterator[Change]:
    for call in context.script.calls():
        func = call.func
        if not isinstance(func, ast.Attribute) or func.attr != "numpy":
            continue
        if context.is_claimed(call) or not _needs_copy(context, func.value) or _is_on_cpu(context, call):
            continue
        yield context.change(
            HOST_COPY,
            call,
            "NumPy cannot read a tensor that lies on the device",
            _one_branch(context, call) or [verbs.replace(func.value, func.value, ".cpu()")],
            core=True,
        )


def _is_on_cpu(context: Context, node: ast.AST) -> bool:
    """Whether a node is in the branch of a test that is taken where the Accelerator is set to use the CPU."""
    stated = context.plan.arguments.get("cpu")
    child = node
    for branch in context.tree.ancestors(node) if stated is not None else ():
        if isinstance(branch, ast.If) and child in branch.orelse:
            wish = context.plan.devices.stated(branch.test)
            if wish is not None and negated(wish) == stated:
                return True
        if isinstance(branch, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return False
        child = branch
    return False


def _one_branch(context: Context, call: ast.Call) -> list[Edit]:
    """`x.numpy() if not use_cuda else x.cpu().numpy()` becomes its second branch, which is right everywhere."""
    choice: ast.AST | None = call
    while choice is not None and not isinstance(choice, (ast.IfExp, ast.stmt)):
        choice = context.tree.parent(choice)
    if not isinstance(choice, ast.IfExp) or context.is_claimed(choice):
        return []
    one, other = choice.body, choice.orelse
    if any(n is call for n in walk(other)):
        one, other = other, one
    if not any(n is call for n in walk(one)) or ".cpu" in text_of(one):
        return []
    if text_of(one) != text_of(other).replace(".cpu()", ""):
        return []
    context.claim(choice)
    return [verbs.replace(choice, other)]


def _arguments(context: Context) -> Iterator[Change]:
    """Tensors that are passed to a function of NumPy, or of a library on top of it, without a copy to the host."""
    before, after = context.locations
    for call in context.script.calls_named(_takes_from_host):
        name = context.script.qualname(call.func) or ""
        typed = name in HOST_TYPES
        given = call.args[1:] if name.rpartition(".")[2] in _OF_FILES else call.args
        for argument in [*given, *[kw.value for kw in call.keywords]]:
            if context.is_claimed(argument):
                continue
            # Where another line may have moved it, its copy costs nothing.
            if after.of(argument) != {DEVICE} or HOST not in before.of(argument):
                continue
            if any(isinstance(w, Sequence) for w in context.script.values(argument)):
                continue  # it is where its elements are, and has no cpu() itself
            if typed and not is_collated_by_torch(context.script, argument):
                continue  # it may be a list, which such a type takes as well
            fetched = ".cpu()"
            if may_be_texts(context.script, argument) and name.rpartition(".")[2] in _OF_TEXTS:
                if "torch" not in context.script.module_of(call).scopes.module.locals:
                    continue
                fetched = f".cpu() if torch.is_tensor({text_of(argument)}) else {text_of(argument)}"
            edits: list[Edit] = [verbs.replace(argument, argument, fetched, order=5)]
            after.settle(argument, HOST)
            reader = f"`{name}` takes no" if typed else "NumPy cannot read a"
            message = f"{reader} tensor that lies on the device"
            yield context.change(HOST_COPY, argument, message, edits, core=True)


def _takes_from_host(name: str) -> bool:
    """Whether a library's function works on data on the host."""
    return name.split(".")[0] in _READERS or name.endswith("ToPILImage") or name in HOST_TYPES


def _lengths(context: Context) -> Iterator[Change]:
    """Lengths of sequences out of a batch: torch packs by a tensor on the CPU, or by a list."""
    before, after = context.locations
    for call in context.script.calls_to([_PACKING]):
        if context.is_claimed(call):
            continue
        lengths = call_argument(call, 1, "lengths")
        if lengths is None or isinstance(lengths, (ast.Starred, ast.List)):
            continue
        # Some callers can pass what they made on the host: a copy there is right for all.
        if DEVICE not in after.of(lengths) or before.of(lengths) != {HOST}:
            continue
        # Nothing moves a list that the collate function makes.
        if are_lists(collated_parts(context.script, after.bindings, lengths)):
            continue
        if _is_tensor(context, lengths):
            edits: list[Edit] = [verbs.replace(lengths, lengths, ".cpu()", order=5)]
        else:
            # A batch can hold a list of them, which has no cpu().
            edits = [verbs.replace(lengths, "torch.as_tensor(", lengths, ', device="cpu")', order=5)]
            if "torch" not in context.script.module_of(call).scopes.module.locals:
                continue
        after.settle(lengths, HOST)
        message = "the lengths of packed sequences have to lie on the CPU, and the batch no longer does"
        yield context.change(HOST_COPY, lengths, message, edits, core=True)


def _elsewhere(context: Context) -> Iterator[Change]:
    """What functions of modules that are not converted read on the host: fixed there where it can only be a tensor.

    Where it may be an array for other callers, it is a finding that names the place.
    """
    reported: set[ast.Call] = set()
    for read in reads_on_host(context.script, *context.locations):
        if context.is_claimed(read.call) or read.call in reported:
            continue
        if can_be_fixed(read):
            edit = verbs.replace(read.tensor, read.tensor, ".cpu()")
            message = "NumPy cannot read a tensor that lies on the device"
            context.fixes_elsewhere.append(FixElsewhere(read.module, read.tensor, edit, HOST_COPY, message))
            continue
        reported.add(read.call)
        message = (
            f"`{read.callee.name}` reads a tensor on the host that lies on the device now "
            f"({where(read.module, read.tensor)}): put `.cpu()` after it there"
        )
        yield context.change(HOST_COPY, read.call, message)


def _is_tensor(context: Context, node: ast.expr) -> bool:
    """Whether the value of an expression is used as only a tensor can be, where it is read or on the way there."""
    if isinstance(node, ast.Call):
        return isinstance(node.func, ast.Attribute) and node.func.attr in _OF_TENSORS
    if not isinstance(node, ast.Name):
        return False
    scope = context.script.scope_of(node).resolve(node.id)
    for read in context.script.reads(node.id, scope) if scope is not None else []:
        parent = context.tree.parent(read)
        if isinstance(parent, ast.Attribute) and parent.attr in _OF_TENSORS:
            return True
    return False


def _needs_copy(context: Context, node: ast.expr) -> bool:
    """Whether a tensor is on the device once prepare has placed batches and models."""
    place = context.locations[1].of(node)
    if DEVICE in place and ARRAY not in place:
        return True  # a copy of what is on the host already costs nothing
    return place != {HOST} and _is_on_device(context, node) and not _is_copied(context, node)


def _is_on_device(context: Context, node: ast.expr) -> bool:
    """Whether a tensor comes out of a prepared loader or a prepared model."""
    queue = list(context.script.entities(node, v.BATCH, v.OUTPUT, v.TENSOR))
    seen: set[Entity] = set(queue)
    while queue:
        entity = queue.pop()
        if (
            entity.kind == v.BATCH
            and entity.link("loader")
            and entity.link("loader") <= context.plan.prepared
        ):
            return True
        if entity.kind == v.OUTPUT and entity.link("model") & context.plan.prepared:
            return True
        inner = {t for t in entity.link("sources") if t.kind in (v.BATCH, v.OUTPUT, v.TENSOR)}
        queue += inner - seen
        seen |= inner
    return False


def _is_copied(context: Context, node: ast.expr) -> bool:
    """Whether a tensor, or the name that holds it, was brought back already."""
    if any(isinstance(n, ast.Attribute) and n.attr in ("cpu", "tolist") for n in walk(node)):
        return True
    names = names_in(node)
    scope = context.script.scope_of(node)
    for stmt in context.tree.nodes(ast.Assign):
        stored = {n.id for t in stmt.targets for n in walk(t) if isinstance(n, ast.Name)}
        if stored & names and context.script.scope_of(stmt) is scope:
            for inner in walk(stmt.value):
                if isinstance(inner, ast.Attribute) and inner.attr in ("cpu", "numpy"):
                    return True
                if isinstance(inner, ast.Constant) and inner.value == "cpu":
                    return True
    return False
