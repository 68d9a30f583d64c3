"""Tensors that the script makes on the host to go with a batch, which prepare puts on the device before they meet.

onehot = torch.eye(10)[y]          ->  onehot = torch.eye(10, device=y.device)[y]
x = x + torch.rand(x.shape)        ->  x = x + torch.rand(x.shape).to(x.device)
right = output.cpu() == y          ->  right = output.cpu() == y.cpu()
weight = table[y]                  ->  weight = table[y.cpu()]
labels.append(y)                   ->  labels.append(y.cpu())
names.append(z)                    ->  names.append(z.cpu() if torch.is_tensor(z) else z)    (for NumPy)
accuracy_of_a_helper(output, y)    ->  accuracy_of_a_helper(output.cpu(), y)
baseline = Net()  # on the host    ->  baseline = Net().to(accelerator.device)
model(torch.zeros(1, 3))           ->  model(torch.zeros(1, 3, device=accelerator.device))
model([x, y])                      ->  model([x.to(accelerator.device), y.to(accelerator.device)])

A tensor that a function of another module makes on the host for a batch is made on the batch's device there.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.data.collated_parts import are_lists, collated_parts
from accelify.analysis.devices.meeting_elsewhere import meeting_elsewhere
from accelify.analysis.devices.tensor_makers import ARRAY, DEVICE, DRAWING, HOST, MAKERS
from accelify.analysis.metrics.collected import (
    Collecting,
    collecting,
    holds_tensors,
    is_read_by_numpy,
    is_tensor,
)
from accelify.analysis.script import is_in_model
from accelify.analysis.statements.negation import negated
from accelify.analysis.statements.reaching_assignments import reaching_assignments
from accelify.analysis.syntax import call_argument, call_keyword, is_constant, target_names, text_of, walk
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

MEETING = Rule(
    "ACC120",
    "A tensor made on the host meets a batch that prepare puts on the device.",
    Severity.ERROR,
    effort=3,
    done="put tensors that meet on one device",
)
# Methods that take tensors from anywhere, or only look at their shape: those of other objects too, as a dictionary's.
_TAKING_ANY = frozenset(
    "to type_as copy_ expand_as view_as reshape_as resize_as_ append extend update insert put write backward "
    "add_scalar add_image set_description set_postfix get pop setdefault".split()
)
_JOINING = frozenset({"torch", "torch.nn.functional", "torch.linalg"})
_ALONE = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
# The device of a function's tensor that some of its callers pass from the host and others from the device.
_EITHER = frozenset({HOST, DEVICE})


def transform(context: Context) -> Iterator[Change]:
    """Yield the edits that let host tensors follow the batch, or fetch the batch for them."""
    if context.plan.arguments.get("cpu") == "True" or not context.plan.prepared:
        return
    yield from _following(context)
    nodes = list(context.tree.nodes(ast.BinOp, ast.Compare, ast.Call, ast.Subscript, ast.AugAssign))
    loops = [evaluation.loop for evaluation in context.plan.evaluations if evaluation.collects]
    retained = {one.statement: one for one in collecting(context.script, loops)}
    nodes += [stmt for stmt in retained if isinstance(stmt, ast.Expr)]
    tree = context.tree
    taken_to_cpu = _taken_to_cpu(context)
    # What is settled inside an expression decides about the expression around it.
    for node in tree.inner_first(nodes):
        if isinstance(node, ast.Subscript):
            yield from _index(context, node)
            continue
        if node in retained:
            yield from _collected(context, retained[node])
            continue
        if isinstance(node, ast.AugAssign):
            yield from _added(context, node)
            continue
        if isinstance(node, ast.Call) and _runs_a_placed_model(context, node):
            yield from _given_to_model(context, node, taken_to_cpu)
            continue
        operands = _operands(context, node)
        if len(operands) > 1:
            yield from _meeting(context, node, operands)


def _following(context: Context) -> Iterator[Change]:
    """Models that are run on what prepare places, and that nothing moves: `baseline = Net()`."""
    for site in context.tree.in_order(context.locations[1].following.values()):
        text = short(context.tree.segment(site))
        message = f"`{text}` is left on the host, where the batches that it is run on no longer are"
        accelerator = context.accelerator(site)
        if accelerator is None or context.is_claimed(site):
            yield context.todo(MEETING, site, message, "move this model to the device of its batches")
            continue
        edit = verbs.replace(site, site, f".to({accelerator}.device)")
        yield context.change(MEETING, site, message, [edit], core=True)


def _collected(context: Context, one: Collecting) -> Iterator[Change]:
    """What an evaluation loop collects on the host stays there, for who reads it: NumPy, a plot, a comparison."""
    before, after = context.locations
    for value in one.values:
        if after.of(value) != {DEVICE} or before.of(value) != {HOST} or context.is_claimed(value):
            continue
        edits = _fetched(context, value)
        if not holds_tensors(context.script, one) and not is_tensor(context.script, value):
            # Of texts NumPy makes an array as well, and they cannot be fetched.
            names_torch = "torch" in context.script.module_of(value).scopes.module.locals
            if not names_torch or not isinstance(value, ast.Name):
                continue
            if not is_read_by_numpy(context.script, one):
                continue
            edits = _with_method(value, f".cpu() if torch.is_tensor({value.id}) else {value.id}")
        after.settle(value, HOST)
        text = short(context.tree.segment(value))
        message = f"`{text}` is on the device already, and what is collected of it was on the host"
        yield context.change(MEETING, value, message, edits, core=True)


def _operands(context: Context, node: ast.expr) -> list[ast.expr]:
    """The expressions whose tensors have to be together."""
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.Compare):
        if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in node.ops):
            return []
        return [node.left, *node.comparators]
    assert isinstance(node, ast.Call)
    name = context.script.qualname(node.func)
    if name is not None:
        head, _, last = name.rpartition(".")
        if head not in _JOINING or last in MAKERS or last.endswith("_like"):
            return []
    given = [*node.args, *[kw.value for kw in node.keywords if kw.arg != "device"]]
    parts = [e for a in given for e in (a.elts if isinstance(a, (ast.List, ast.Tuple)) else [a])]
    if name is not None:
        return parts
    if context.script.is_a(node.func, v.CRITERION):
        return parts
    if isinstance(node.func, ast.Attribute) and node.func.attr == "backward":
        gradient = call_argument(node, 0, "gradient")
        return [node.func.value, gradient] if gradient is not None else []
    if isinstance(node.func, ast.Attribute) and node.func.attr not in _TAKING_ANY:
        if not context.script.callees(node) and not context.script.models_of(node.func.value):
            return [node.func.value, *parts]
    return meeting_elsewhere(context.script, node)


def _meeting(context: Context, node: ast.expr, operands: list[ast.expr]) -> Iterator[Change]:
    before, after = context.locations
    places = [(o, after.of(o)) for o in operands]
    left = [o for o, place in places if place == {HOST}]
    if not left:
        return
    placed = [o for o, place in places if place == {DEVICE}]
    mixed = [] if placed else [o for o, place in places if place == _EITHER]
    # What a round before may have moved was on the host where it met what always was.
    if any(before.of(o) != {HOST} for o in [*mixed, *left]):
        return
    if any(HOST not in before.of(o) for o in placed):
        return
    if mixed:
        yield from _of_either(context, node, mixed, left)
    if not placed:
        return
    made = [_maker(context, o) for o in left]
    edits: list[Edit] = []
    if all(made):
        for maker, operand in zip(made, left, strict=True):
            assert maker is not None
            inside = any(maker is n for n in walk(operand))
            device = (_device_of(placed) if inside else None) or _own_device(context, maker)
            if device is None or context.is_claimed(maker):
                return
            edits.append(_make_there(context, maker, device))
            after.settle(maker, DEVICE)
        text = context.tree.segment(made[0])
        message = f"`{short(text)}` is made on the host, where the batch no longer is"
        yield context.change(MEETING, made[0] or node, message, edits, core=True)
        return
    for operand in placed:
        edits += _fetched(context, operand)
        after.settle(operand, HOST)
    message = f"`{short(context.tree.segment(placed[0]))}` is on the device already, and what it meets is not"
    yield context.change(MEETING, node, message, edits, core=True)


def _of_either(
    context: Context, node: ast.expr, mixed: list[ast.expr], left: list[ast.expr]
) -> Iterator[Change]:
    """An argument that some calls pass from the host and others from the device: it is moved to the device."""
    after = context.locations[1]
    device = _device_of(mixed)
    edits: list[Edit] = []
    # What is changed in its place has to stay the one that it is.
    in_place = isinstance(node, ast.Call) and getattr(node.func, "attr", "").endswith("_")
    for operand in left if device is not None and not in_place else []:
        maker = _maker(context, operand)
        if context.is_claimed(operand):
            return
        if maker is not None and any(maker is n for n in walk(operand)):
            edits.append(_make_there(context, maker, str(device)))
        else:
            edits += _with_method(operand, f".to({device})")
        after.settle(operand, DEVICE, HOST)
    text = context.tree.segment(mixed[0])
    message = f"`{short(text)}` is on the host or on the device, and what it meets is on the host"
    if not edits:
        for operand in mixed:
            edits += _fetched(context, operand)
            after.settle(operand, HOST)
    yield context.change(MEETING, node, message, edits, core=True)


def _is_none_or_moved(context: Context, node: ast.expr) -> bool:
    """Whether a name may be None, or is moved by the function already: under a test, for example."""
    if not isinstance(node, ast.Name):
        return False
    scope = context.script.scope_of(node).resolve(node.id)
    for read in context.script.reads(node.id, scope) if scope is not None else ():
        parent = context.tree.parent(read)
        if isinstance(parent, ast.Compare) and any(is_constant(c, None) for c in parent.comparators):
            return True
        if isinstance(parent, ast.Attribute) and parent.attr in ("to", "cuda"):
            stmt = context.tree.statement(read)
            if isinstance(stmt, ast.Assign) and any(node.id in target_names(t) for t in stmt.targets):
                return True
    return False


def _added(context: Context, node: ast.AugAssign) -> Iterator[Change]:
    """What a total on the host is added: the total stays there, for who reads it."""
    before, after = context.locations
    if not isinstance(node.target, (ast.Name, ast.Attribute)) or context.is_claimed(node.value):
        return
    total = before.of(node.target) == after.of(node.target) == {HOST}
    if total and after.of(node.value) in ({DEVICE}, _EITHER) and before.of(node.value) == {HOST}:
        after.settle(node.value, HOST)
        message = f"`{short(context.tree.segment(node.target))}` is on the host, where the batch no longer is"
        yield context.change(MEETING, node, message, _fetched(context, node.value), core=True)


def _runs_a_placed_model(context: Context, call: ast.Call) -> bool:
    """Whether a call runs a model that prepare, or a move of the script, has put on the device by then."""
    script = context.script
    models = script.models_run(call)
    prepared = models & context.plan.prepared
    if not models or not models <= prepared | context.locations[1].following.keys():
        return False
    if prepared and not context.plan.after_prepare(call, prepared):
        return False
    return not is_in_model(script, script.scope_of(call))


def _taken_to_cpu(context: Context) -> set[v.Entity]:
    """The models that the script moves to the CPU for good: their inputs are on the CPU from then on, too."""
    found: set[v.Entity] = set()
    for call in context.script.calls():
        func, stmt = call.func, context.tree.parent(call)
        if not isinstance(func, ast.Attribute) or func.attr not in ("cpu", "to"):
            continue
        if isinstance(stmt, ast.Attribute) and stmt.attr == "module":
            stmt = context.tree.parent(stmt)  # out of a wrapper that is gone: `model = model.cpu().module`
        own = isinstance(stmt, (ast.Expr, ast.Assign))
        device = call_argument(call, 0, "device")
        if own and (func.attr == "cpu" or (device is not None and context.plan.devices.is_cpu(device))):
            models = context.script.models_of(func.value)
            # `Net().to("cpu")` and other code before prepare does not decide where the model is after it.
            if not isinstance(func.value, ast.Call) and context.plan.after_prepare(call, models):
                found |= models
    return found


def _given_to_model(context: Context, call: ast.Call, taken_to_cpu: set[v.Entity]) -> Iterator[Change]:
    """Model inputs on the host, where the model was on the host itself: nothing else in the script moves them."""
    before, after = context.locations
    given = call.args
    if context.script.qualname(call.func) in k.SPLIT_RUNS:
        given = call.args[1:2]
    if any(before.of(argument) == {DEVICE} for argument in given):
        return  # The model was on the device before: inputs on the host are meant to be there.
    if context.script.models_run(call) & taken_to_cpu:
        return
    if _runs_on_cpu(context, call):
        return
    for argument in [tensor for one in given for tensor in _one_by_one(context, one)]:
        if isinstance(argument, ast.Starred) or after.of(argument) != {HOST} or before.of(argument) != {HOST}:
            continue
        device = _own_device(context, call)
        if device is None or context.is_claimed(argument) or _is_none_or_moved(context, argument):
            continue
        if _holds_several(context, argument):
            text = short(context.tree.segment(argument))
            message = (
                f"`{text}` holds tensors of the host, where the model no longer is: move each to {device}"
            )
            yield context.change(MEETING, argument, message)
            continue
        maker = _maker(context, argument)
        inside = maker is not None and any(maker is n for n in walk(argument))
        text = context.tree.segment(argument)
        edits = [_make_there(context, maker, device)] if maker is not None and inside else []
        if not edits:
            edits = [verbs.replace(argument, argument, f".to({device})", order=5)]
        after.settle(argument, DEVICE)
        for read in _moved_with(context, argument):
            after.settle(read, DEVICE)
        message = f"`{short(text)}` is on the host, where the model no longer is"
        yield context.change(MEETING, argument, message, edits, core=True)


def _moved_with(context: Context, batch: ast.expr) -> list[ast.Attribute]:
    """The later reads of the parts of a batch whose `to` works in place: `d.y`, after `model(d.to(device))`."""
    script = context.script
    loaders = {one for entity in script.entities(batch, v.BATCH) for one in entity.link("loader")}
    in_place = all((one.qualname or "").startswith(k.MOVED_IN_PLACE) for one in loaders)
    scope = script.scope_of(batch).resolve(batch.id) if isinstance(batch, ast.Name) else None
    if not loaders or not in_place or scope is None or not isinstance(batch, ast.Name):
        return []
    parents = [
        context.tree.parent(r) for r in script.reads(batch.id, scope) if context.tree.is_after(r, batch)
    ]
    return [parent for parent in parents if isinstance(parent, ast.Attribute)]


def _one_by_one(context: Context, given: ast.expr) -> list[ast.expr]:
    """The tensors of an argument: those of `[x, y]`, which has no `to` itself."""
    if isinstance(given, (ast.List, ast.Tuple)):
        return [tensor for part in given.elts for tensor in _one_by_one(context, part)]
    return [given]


def _holds_several(context: Context, node: ast.expr) -> bool:
    """Whether an expression is a list of tensors, or the like, of which none is written out here."""
    if isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Dict, ast.Set)):
        return True
    if are_lists(collated_parts(context.script, context.locations[1].bindings, node)):
        return True
    # A name is used again: `frames = torch.cat(frames, 1)`.
    made = reaching_assignments(context.script, node) if isinstance(node, ast.Name) else None
    values = [stmt.value for stmt in made] if made else [node]
    return any(isinstance(w, (v.Sequence, v.Mapping)) for one in values for w in context.script.values(one))


def _runs_on_cpu(context: Context, node: ast.AST) -> bool:
    """Whether a node only runs where all is on the CPU: in the `else` of a test for a GPU."""
    inner = node
    for ancestor in context.tree.ancestors(node):
        if isinstance(ancestor, ast.If):
            test = ancestor.test
            turned = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            asked = test.operand if isinstance(test, ast.UnaryOp) and turned else test
            if inner in (ancestor.body if turned else ancestor.orelse) and _asks_for_gpu(context, asked):
                return True
        inner = ancestor
    return False


def _asks_for_gpu(context: Context, test: ast.expr) -> bool:
    """Whether a test asks the machine for a GPU, or is the option that selects the Accelerator's device: `use_gpu`."""
    if context.script.is_a(test, v.FLAG):
        return isinstance(test, (ast.Name, ast.Attribute, ast.Call))
    wish = context.plan.devices.wish(test) if isinstance(test, _ALONE) else None
    return wish is not None and context.plan.arguments.get("cpu") == negated(wish[0])


def _index(context: Context, node: ast.Subscript) -> Iterator[Change]:
    """A tensor on the host, or an array, takes no index from the device."""
    after = context.locations[1]
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if not after.of(node.value) or not after.of(node.value) <= {HOST, ARRAY}:
        return
    found = [p for p in parts if _is_placed_by_now(context, p)]
    maker = node.value if isinstance(node.value, ast.Call) and after.makes(node.value) else None
    device = _device_of(found) if maker is not None else None
    if maker is not None and device is not None:
        after.settle(maker, *{place for part in found for place in after.of(part)})
        message = f"`{short(context.tree.segment(maker))}` is made on the host, where the batch no longer is"
        yield context.change(MEETING, maker, message, [_make_there(context, maker, device)], core=True)
    elif found:
        edits = [edit for part in found for edit in _fetched(context, part)]
        for part in found:
            after.settle(part, HOST)
        message = f"`{short(context.tree.segment(node.value))}` is on the host, where an index has to be too"
        yield context.change(MEETING, node, message, edits, core=True)


def _is_placed_by_now(context: Context, node: ast.expr) -> bool:
    """Whether prepare puts an expression on the device, or an argument of a call that its function reads."""
    before, after = context.locations
    if after.of(node) not in ({DEVICE}, _EITHER) or HOST not in before.of(node):
        return False
    if before.of(node) != after.of(node):
        return True
    names = [n for n in walk(node) if isinstance(n, ast.Name) and None in after.bindings(n)]
    return any(
        after.of(given) == {DEVICE} and HOST in before.of(given)
        for name in names
        for given in after.given(name.id, context.script.scope_of(name))
    )


def _maker(context: Context, node: ast.expr) -> ast.Call | None:
    """The call that makes a tensor here, through methods of it and a name that holds nothing else."""
    _, after = context.locations
    for _ in range(6):
        if isinstance(node, ast.Call):
            name = context.script.qualname(node.func) or ""
            if name.rpartition(".")[0] == "torch" and after.makes(node):
                return node
            if name in k.VARIABLE and node.args:
                node = node.args[0]
            elif not name and isinstance(node.func, ast.Attribute) and node.func.attr not in ("cpu", "to"):
                node = node.func.value
            else:
                return None
        elif isinstance(node, ast.Name):
            found = list(after.bindings(node))
            stmt = found[0] if len(found) == 1 else None
            if not isinstance(stmt, ast.Assign) or not isinstance(stmt.targets[0], ast.Name):
                return None
            if context.script.scope_of(stmt) is not context.script.scope_of(node) or _goes_to_host(
                context, node
            ):
                return None
            node = stmt.value
        else:
            return None
    return None


def _goes_to_host(context: Context, name: ast.Name) -> bool:
    """Whether something reads the variable that wants it on the host."""
    scope = context.script.scope_of(name).resolve(name.id)
    for read in context.script.reads(name.id, scope) if scope is not None else []:
        parent = context.tree.parent(read)
        if isinstance(parent, ast.Attribute) and parent.attr in ("numpy", "cpu"):
            return True
        if isinstance(parent, ast.Call) and parent.func is not read:
            if (context.script.qualname(parent.func) or "").split(".")[0] not in ("", "torch", "builtins"):
                return True
    return False


def _make_there(context: Context, maker: ast.Call, device: str) -> Edit:
    last = (context.script.qualname(maker.func) or "").rpartition(".")[2]
    if last in MAKERS - DRAWING and call_keyword(maker, "device") is None:
        try:
            return verbs.AddArgument(maker, f"device={device}")
        except verbs.EditError:
            pass
    # What is drawn is drawn where it was, so that it stays the same.
    return verbs.replace(maker, maker, f".to({device})")


def _device_of(placed: list[ast.expr]) -> str | None:
    """The device of a tensor that is available under a name."""
    for node in placed:
        while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            node = node.func.value
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            node = node.value  # x[:, :2] is on the device of x
        if isinstance(node, (ast.Name, ast.Attribute)):
            return f"{text_of(node)}.device"
    return None


def _own_device(context: Context, node: ast.AST) -> str | None:
    accelerator = context.accelerator(node)
    return f"{accelerator}.device" if accelerator is not None else None


def _fetched(context: Context, node: ast.expr) -> list[Edit]:
    return _with_method(node, ".cpu()")


def _with_method(node: ast.expr, call: str) -> list[Edit]:
    return [verbs.replace(node, node, call, order=5)]
