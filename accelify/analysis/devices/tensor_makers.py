"""What makes tensors and arrays, and the places that they lie in."""

from __future__ import annotations

import ast
from collections.abc import Iterable

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
# Calls that give back what they are given, or something that lies beside it.
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
    """Where the result of several operands lies: tensors of both sides never meet, or an edit sees to it."""
    return frozenset({DEVICE}) if any(place == {DEVICE} for place in places) else union(places)
