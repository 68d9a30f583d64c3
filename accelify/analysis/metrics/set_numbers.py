"""Numbers that stay what they were on one process: written out, or the lengths of lists that no batch fills.

count = len(os.listdir(folder))
for x, y in loader: ...; total += loss.item()
print(total / int(count / batch_size))    each process adds up its share, and the divisor is that of all
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from accelify.analysis import values as v
from accelify.analysis.devices.options import holds_options
from accelify.analysis.metrics.counts import arguments_for, counts_all
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import assigned_pairs, call_argument, dotted, is_constant

_ROUNDED = frozenset(
    "builtins.float builtins.int builtins.max builtins.min builtins.round math.ceil math.floor numpy.ceil "
    "numpy.floor".split()
)
# What lists files, lines or records.
_LISTING = frozenset(
    "os.listdir glob.glob json.load pickle.load pandas.read_csv numpy.load numpy.loadtxt numpy.genfromtxt "
    "random.sample sklearn.model_selection.train_test_split".split()
)
_LISTING_METHODS = frozenset({"readlines", "splitlines", "split", "glob", "rglob"})
_PASSING = frozenset(
    "builtins.list builtins.sorted builtins.tuple natsort.natsorted numpy.array numpy.asarray torch.tensor "
    "torch.from_numpy".split()
)
_GROWING = frozenset({"append", "extend", "insert", "add", "update"})
# Smaller ones are weights and numbers of parts as well.
_FEWEST = 50
_DEEPEST = 6


def is_set(script: ScriptModel, number: ast.expr, depth: int = 0) -> bool | None:
    """Whether a number is made of nothing that several processes change: True where it counts samples or batches.

    None where it is made of something else, or of what is not followed.
    """
    if depth > _DEEPEST:
        return None
    if counts_all(script, number):
        return True
    if isinstance(number, ast.Constant):
        return number.value >= _FEWEST if isinstance(number.value, (int, float)) else None
    if isinstance(number, ast.BinOp):
        divides = isinstance(number.op, (ast.Div, ast.FloorDiv)) and is_written(script, number.right, depth)
        return _of_parts(script, (number.left,) if divides else (number.left, number.right), depth)
    if isinstance(number, ast.IfExp):
        return _of_parts(script, (number.body, number.orelse), depth)
    if isinstance(number, ast.Name):
        return _of_parts(script, _given_to(script, number), depth)
    if isinstance(number, ast.Attribute):
        return _of_attribute(script, number, depth)
    if isinstance(number, ast.Subscript):
        shape = number.value
        first = isinstance(shape, ast.Attribute) and shape.attr == "shape" and is_constant(number.slice, 0)
        return True if first and is_listed(script, shape.value, depth + 1) else None  # type: ignore[attr-defined]
    if not isinstance(number, ast.Call) or number.keywords:
        return None
    counted = _counted(number)
    if counted is not None:
        return True if is_listed(script, counted, depth + 1) else None
    return _of_parts(script, number.args, depth) if script.qualname(number.func) in _ROUNDED else None


def is_written(script: ScriptModel, number: ast.expr, depth: int = 0) -> bool:
    """Whether a number is written out in the script, by whatever name: the size of a batch."""
    if depth > _DEEPEST:
        return False
    if isinstance(number, ast.IfExp):
        return all(is_written(script, part, depth + 1) for part in (number.body, number.orelse))
    if isinstance(number, ast.Name):
        given = _given_to(script, number)
        return bool(given) and all(is_written(script, one, depth + 1) for one in given)
    return isinstance(number, ast.Constant) and isinstance(number.value, (int, float))


def _of_parts(script: ScriptModel, parts: Iterable[ast.expr], depth: int) -> bool | None:
    known = [is_set(script, part, depth + 1) for part in parts]
    return None if None in known or not known else any(known)


def _counted(call: ast.Call) -> ast.expr | None:
    """The list in `len(files)` and `files.__len__()`."""
    if dotted(call.func) == "len":
        return call.args[0] if len(call.args) == 1 else None
    return call.func.value if isinstance(call.func, ast.Attribute) and call.func.attr == "__len__" else None


def _given_to(script: ScriptModel, name: ast.Name) -> list[ast.expr]:
    """All that a name is assigned, or that callers pass for it; nothing where it gets values otherwise as well."""
    scope = script.scope_of(name).resolve(name.id)
    if scope is None:
        return []
    given: list[ast.expr] = []
    for write in _writes(script, name.id, scope):
        stmt = script.tree.statement(write)
        made = stmt if isinstance(stmt, ast.Assign) else None
        pairs = [p for t in made.targets for p in assigned_pairs(t, made.value)] if made else []
        values = [value for target, value in pairs if target is write]
        if not values:
            return []
        given += values
    if scope.takes(name.id):
        return [] if given else arguments_for(script, name)
    return given


def _writes(script: ScriptModel, name: str, scope: Scope) -> Iterator[ast.Name]:
    return (w for w in script.tree.writes(name) if script.scope_of(w).resolve(name) is scope)


def _of_attribute(script: ScriptModel, number: ast.Attribute, depth: int) -> bool | None:
    """`args.batch_size` and `loader.batch_size`; `self.count`, where all that is stored there is set."""
    if number.attr == "batch_size" and script.entities(number.value, v.LOADER):
        return False
    stored = [
        n
        for n in script.tree.nodes(ast.Attribute)
        if n.attr == number.attr and not isinstance(n.ctx, ast.Load)
    ]
    if not stored:
        option = isinstance(number.value, ast.Name) and holds_options(script, number.value)
        return False if option else None
    given: list[ast.expr] = []
    for node in stored:
        stmt = script.tree.parent(node)
        if not isinstance(stmt, ast.Assign):
            return None
        given.append(stmt.value)
    return _of_parts(script, given, depth)


def is_listed(script: ScriptModel, node: ast.expr, depth: int = 0) -> bool:
    """Whether an expression lists what the script has besides its loaders: files, lines, samples."""
    if depth > _DEEPEST or script.entities(node, v.LOADER):
        return False
    if script.is_a(node, v.DATASET) or _is_loaded(script, node):
        return True
    if isinstance(node, (ast.List, ast.Tuple)):
        return True
    if isinstance(node, ast.ListComp):
        over = node.generators[0].iter
        return dotted(getattr(over, "func", None)) == "range" or is_listed(script, over, depth + 1)
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Slice) and is_listed(script, node.value, depth + 1)
    if isinstance(node, ast.Attribute):
        return node.attr == "dataset" or script.is_a(node.value, v.DATASET)
    if isinstance(node, ast.Name):
        return _is_name_of_list(script, node, depth)
    if not isinstance(node, ast.Call):
        return False
    name = script.qualname(node.func)
    if name in _PASSING:
        return bool(node.args) and is_listed(script, node.args[0], depth + 1)
    return name in _LISTING or (
        isinstance(node.func, ast.Attribute) and node.func.attr in _LISTING_METHODS and name is None
    )


def _is_loaded(script: ScriptModel, node: ast.expr) -> bool:
    """Whether a loader iterates over what a name holds, of whatever class."""
    owner = script.scope_of(node).resolve(node.id) if isinstance(node, ast.Name) else None
    if owner is None:
        return False
    sites = (loader.site for _, loaders in script.loader_loops for loader in loaders)
    given = (call_argument(site, 0, "dataset") for site in sites if isinstance(site, ast.Call))
    return any(
        isinstance(one, ast.Name) and one.id == node.id and script.scope_of(one).resolve(one.id) is owner  # type: ignore[attr-defined]
        for one in given
    )


def _is_name_of_list(script: ScriptModel, name: ast.Name, depth: int) -> bool:
    """A name whose list is made, and filled, outside of the loops over batches."""
    scope = script.scope_of(name).resolve(name.id)
    if scope is None:
        return False
    given = _given_to(script, name) or _unpacked(script, name.id, scope)
    if not given or not all(is_listed(script, value, depth + 1) for value in given):
        return False
    grown = [
        call
        for call in script.calls()
        if isinstance(call.func, ast.Attribute) and call.func.attr in _GROWING
        if isinstance(call.func.value, ast.Name) and call.func.value.id == name.id
        if script.scope_of(call).resolve(name.id) is scope
    ]
    loops = {loop for loop, _ in script.loader_loops}
    return all(
        script.scope_of(call) is scope and not loops & set(script.enclosing_loops(call)) for call in grown
    )


def _unpacked(script: ScriptModel, name: str, scope: Scope) -> list[ast.expr]:
    """The call whose lists a statement unpacks: `train, test = train_test_split(files)`."""
    stmts = [script.tree.statement(write) for write in _writes(script, name, scope)]
    calls = [s.value for s in stmts if isinstance(s, ast.Assign) and isinstance(s.value, ast.Call)]
    return list(calls) if len(calls) == len(stmts) else []
