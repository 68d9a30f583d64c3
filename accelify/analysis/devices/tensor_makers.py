"""What makes tensors and arrays, what returns them, and the devices that they are on."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import (
    call_argument,
    target_names,
)

HOST, DEVICE, ARRAY = "host", "device", "array"
Place = frozenset[str]
NOWHERE: Place = frozenset()
# Functions of torch that make a tensor where `device` says, on the host where it does not.
MAKERS = frozenset(
    "zeros ones full empty eye arange linspace logspace rand randn randint randperm normal tensor".split()
)
# Those that draw: where they draw decides what they draw.
DRAWING = frozenset("rand randn randint randperm normal bernoulli multinomial".split())
HOST_MAKERS = frozenset(
    "from_numpy Tensor FloatTensor DoubleTensor HalfTensor LongTensor IntTensor ShortTensor ByteTensor "
    "BoolTensor".split()
)
NUMBERS = frozenset(
    "item tolist size dim numel nelement get_device ndimension element_size is_contiguous stride keys".split()
)
# Calls that return their argument, or something on the same device.
HANDING_ON = frozenset(
    "builtins.sum builtins.max builtins.min builtins.list builtins.tuple builtins.dict builtins.reversed".split()
)
_LISTS = (ast.List, ast.Tuple, ast.ListComp)
# Methods of NumPy's and of pandas' arrays.
OF_ARRAYS = frozenset("astype to_numpy transpose reshape flatten ravel copy".split())
ARRAYS = ("numpy", "scipy", "pandas", "sklearn", "cv2", "PIL", "skimage")


def is_display(node: ast.expr) -> bool:
    """`[0, 1]`, `[i for i in x]` and `[0] * n`."""
    if isinstance(node, ast.BinOp):
        return is_display(node.left) or is_display(node.right)
    return isinstance(node, _LISTS)


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def union(places: Iterable[Place]) -> Place:
    return NOWHERE.union(*places)


def together(places: list[Place]) -> Place:
    """The device of the result of several operands: tensors of both devices never meet, or an edit prevents it."""
    return frozenset({DEVICE}) if any(place == {DEVICE} for place in places) else union(places)


def returned_by(script: ScriptModel, node: ast.Call) -> list[ast.expr]:
    """What the functions of these modules that a call can run return."""
    return [
        n.value
        for scope in script.callees(node)
        if script.tree.parent(scope.node) is not None
        for n in scope.of_type(ast.Return)
        if n.value is not None
    ]


def given_back(script: ScriptModel, node: ast.Call) -> list[ast.expr]:
    """The arguments that functions of modules which stay as they are return, by the names they have there."""
    found = []
    for scope in script.callees(node):
        names = scope.positional() if script.tree.parent(scope.node) is None else []
        values = [n.value for n in scope.of_type(ast.Return)]
        given = {value.id if isinstance(value, ast.Name) else "" for value in values}
        bound = {n.id for n in scope.of_type(ast.Name) if isinstance(n.ctx, ast.Store)}
        for name in sorted(given) if given <= set(names) - bound else ():
            place = names.index(name) - (scope.self_name() is not None)
            found.append(call_argument(node, place, name) if place >= 0 else None)
    return [argument for argument in found if argument is not None]


def moves_to_a_device(script: ScriptModel, call: ast.Call) -> bool:
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr == "cuda":
        return True
    return call.func.attr == "to" and bool(call.args) and script.is_a(call.args[0], v.DEVICE)


def is_list_of_numbers(script: ScriptModel, name: ast.Name) -> bool:
    """Whether a variable of a function only ever is a list that the function makes itself."""
    owner = script.scope_of(name).resolve(name.id)
    if owner is None or owner.takes(name.id):
        return False
    stored = [n for n in owner.of_type(ast.Name) if n.id == name.id]
    made = [s for s in script.tree.assigns(name.id) if script.scope_of(s).resolve(name.id) is owner]
    written = [n for n in stored if isinstance(n.ctx, ast.Store)]
    return len(written) == len(made) > 0 and all(is_display(s.value) for s in made)


def comprehension_of(script: ScriptModel, node: ast.Name) -> ast.comprehension | None:
    child: ast.AST = node
    for ancestor in script.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return None
        if isinstance(ancestor, (ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp)):
            for generator in ancestor.generators:
                if node.id in target_names(generator.target) and child is not generator:
                    return generator
        child = ancestor
    return None
