"""Files that hold no tensors, as all that the script does with what it loads of them shows: settings, a vocabulary."""

from __future__ import annotations

import ast
import re
from collections import deque
from collections.abc import Iterator, Sequence
from functools import lru_cache

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ASKING = (
    ast.Compare,
    ast.BoolOp,
    ast.UnaryOp,
    ast.FormattedValue,
    ast.Assert,
    ast.If,
    ast.While,
    ast.Delete,
)
_PASSING = (ast.IfExp, ast.Starred, ast.Tuple, ast.List, ast.Dict, ast.Set, *_COMPREHENSIONS)
# What asks for a number or a text, and what may ask for a tensor as well.
_PLAIN_CALLS = frozenset("int float str bool range open exec eval".split())
_ASKING_CALLS = frozenset("len isinstance type hasattr max min sum".split())
# What has the same parts as its argument.
_PASSING_CALLS = frozenset(
    "dict list tuple set sorted enumerate zip vars getattr Namespace SimpleNamespace".split()
)
_PLAIN_METHODS = frozenset("split strip lower upper join format startswith endswith encode replace".split())
_PASSING_METHODS = frozenset("get items keys values pop copy setdefault update".split())
# Layers and optimizers by their sizes and settings; not what holds other modules or tensors.
_MADE_BY_SIZES = re.compile(
    r"^torch\.(?:nn|optim)\.(?:\w+\.)*(?!Sequential|Module|Parameter|Data|Distributed|Buffer)[A-Z]\w*$"
)
_OF_PATHS = re.compile(r"^(?:os|numpy|pathlib|PIL|cv2|json|random|logging|torch\.manual_seed)\b")
_OF_NUMBERS = frozenset(f"torch.{name}" for name in "arange device ones rand randn tensor zeros".split())
# What takes the positions of samples, after the data.
_OF_DATA = re.compile(r"^torch\.utils\.data\.(?:\w+\.)*(?:Subset|DataLoader|random_split)$")
# Attributes of a model or a parameter.
_TENSORS = frozenset({"bias", "data", "grad", "weight"})
_MOST = 300


def holds_no_tensors(loaded: ast.expr, tree: ast.Module, trees: Sequence[ast.Module]) -> bool:
    """Whether a script reads nothing but numbers, texts and lists of them of what it loads.

    What is called, moved, passed to a function that is not read, or used in any other way may be a tensor or a model.

    Args:
        loaded: the call that reads a file.
        tree: the module of the call.
        trees: all modules.
    """
    waiting, seen = deque[tuple[ast.AST, ast.Module]]([(loaded, tree)]), set[ast.AST]()
    shown = set[str]()
    while waiting:
        node, module = waiting.popleft()
        if node in seen:
            continue
        seen.add(node)
        shows, further = _use(node, module, trees)
        if further is None or len(seen) > _MOST:
            return False
        shown.add(shows)
        waiting.extend(further)
    return _SURE in shown or (_ASKED in shown and _SAMPLE not in shown)


_Uses = list[tuple[ast.AST, ast.Module]]
_Use = tuple[str, _Uses | None]
# What a use shows of a value: that it is a number or a text; that it is asked for its length, type or truth; that a
# data set gives it with a sample, where it may be a tensor; nothing.
_SURE, _ASKED, _SAMPLE, _OPEN = "sure", "asked", "sample", ""


def _use(node: ast.AST, module: ast.Module, trees: Sequence[ast.Module]) -> _Use:
    """What stands around an expression shows of its value, and where that or parts of it go from there; None where it
    may be used as a tensor."""
    around = _parents(module).get(node)
    if isinstance(around, ast.keyword):
        call = _parents(module).get(around)
        return (
            _argument(node, call, module, trees, around.arg) if isinstance(call, ast.Call) else (_OPEN, None)
        )
    if isinstance(around, ast.Call):
        return (_OPEN, None) if around.func is node else _argument(node, around, module, trees)
    if isinstance(around, ast.Attribute):
        return _attribute(around, module)
    if isinstance(around, ast.Subscript):
        # As what is asked for in a table it is a text or a number.
        return (_SURE, []) if around.slice is node else (_OPEN, [(around, module)])
    if isinstance(around, ast.Assign | ast.AnnAssign | ast.For | ast.comprehension | ast.NamedExpr):
        return _OPEN, _bound(around, module)
    if isinstance(around, _ASKING):
        texts = isinstance(around, ast.Compare) and any(map(_is_text, (around.left, *around.comparators)))
        return _SURE if texts or isinstance(around, ast.FormattedValue) else _ASKED, []
    if isinstance(around, ast.BinOp):
        other = around.left if around.right is node else around.right
        return _SURE if isinstance(other, ast.Constant) else _OPEN, [(around, module)]
    if isinstance(around, _PASSING):
        return _OPEN, [(around, module)]
    return (_OPEN, []) if isinstance(around, ast.Expr) else _returned(around, module, trees)


def _argument(
    node: ast.AST, call: ast.Call, module: ast.Module, trees: Sequence[ast.Module], word: str | None = ""
) -> _Use:
    name = _name(call.func, module)
    last = name.rpartition(".")[2]
    if name in _PLAIN_CALLS or _OF_PATHS.match(name) or name in _OF_NUMBERS:
        return _SURE, []
    if name in _ASKING_CALLS:
        return _ASKED, []
    if last in _PASSING_CALLS and (name == last or last[0].isupper()):
        return _OPEN, [(call, module)]
    if name in ("print", "setattr"):
        return _OPEN, []
    if isinstance(call.func, ast.Attribute) and last in _PLAIN_METHODS:
        return _SURE, []
    is_first = call.args[:1] == [node]
    if _MADE_BY_SIZES.match(name):
        # The first argument of an optimizer are parameters, and a layer may get its weights.
        held = (".optim." in name and is_first) or (word or "").startswith(("_", "params"))
        return _SURE, None if held else []
    if _OF_DATA.match(name):
        return _SURE, None if is_first or word == "dataset" else []
    return _OPEN, _handed(node, call, name, trees, word)


def _attribute(around: ast.Attribute, module: ast.Module) -> _Use:
    call = _parents(module).get(around)
    if not isinstance(call, ast.Call) or call.func is not around:
        return _OPEN, [(around, module)] if isinstance(around.ctx, ast.Load) else []
    if around.attr in _PASSING_METHODS:
        return _OPEN, [(call, module)]
    return (_SURE, []) if around.attr in _PLAIN_METHODS else (_OPEN, None)


def _handed(
    node: ast.AST, call: ast.Call, name: str, trees: Sequence[ast.Module], word: str | None
) -> _Uses | None:
    """Where a function of the project reads the parameters that get an argument; None for a function of another."""
    found = [(one, tree) for tree in trees for one in _functions(tree).get(name.rpartition(".")[2], ())]
    if len(found) != 1:
        return None
    (function, is_method), tree = found[0]
    names = [one.arg for one in (*function.args.posonlyargs, *function.args.args)][is_method:]
    spread = word is None
    if word:
        names = [word]
    elif not spread:
        number = next((n for n, one in enumerate(call.args) if one is node), len(names))
        names = names[number : number + 1]
    if any(isinstance(one, ast.Starred) for one in call.args) or not names:
        return None
    return [(one, tree) for one in _loads(function) if one.id in names]


def _bound(
    around: ast.Assign | ast.AnnAssign | ast.For | ast.comprehension | ast.NamedExpr, module: ast.Module
) -> _Uses | None:
    """Where what is assigned to names or attributes, or gone over, is read."""
    targets = around.targets if isinstance(around, ast.Assign) else [around.target]
    place: ast.AST | None = around
    while place is not None and not isinstance(
        place, (*_FUNCTIONS, *_COMPREHENSIONS, ast.ClassDef, ast.Module)
    ):
        place = _parents(module).get(place)
    found: _Uses = []
    for target in (part for one in targets for part in _parts(one)):
        if isinstance(target, ast.Name):
            found += [(one, module) for one in _loads(place or module) if one.id == target.id]
        elif isinstance(target, ast.Attribute) and target.attr not in _TENSORS:
            text = ast.unparse(target)
            read = (
                one for one in ast.walk(module) if isinstance(one, ast.Attribute) and one.attr == target.attr
            )
            found += [
                (one, module) for one in read if isinstance(one.ctx, ast.Load) and ast.unparse(one) == text
            ]
        else:
            return None
    return found


def _returned(around: ast.AST | None, module: ast.Module, trees: Sequence[ast.Module]) -> _Use:
    """Where a function is called that returns an expression; None where something else is done with it."""
    place = around
    while isinstance(around, ast.Return) and place is not None and not isinstance(place, _FUNCTIONS):
        place = _parents(module).get(place)
    if not isinstance(place, _FUNCTIONS):
        return _OPEN, None
    if place.name == "__getitem__":
        return _SAMPLE, []
    calls: _Uses = [
        (one, tree)
        for tree in trees
        for one in ast.walk(tree)
        if isinstance(one, ast.Call) and ast.unparse(one.func).rpartition(".")[2] == place.name
    ]
    return _OPEN, calls or None


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _parts(one)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


def _loads(place: ast.AST) -> Iterator[ast.Name]:
    return (one for one in ast.walk(place) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Load))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str | int | float)


def _name(func: ast.expr, module: ast.Module) -> str:
    """The name of what is called, as a library has it; of `super().__init__` that of the class above."""
    text = ast.unparse(func)
    if text == "super().__init__":
        place: ast.AST | None = func
        while place is not None and not isinstance(place, ast.ClassDef):
            place = _parents(module).get(place)
        text = ast.unparse(place.bases[0]) if isinstance(place, ast.ClassDef) and place.bases else text
    begin, dot, rest = text.partition(".")
    return _imported(module).get(begin, begin) + dot + rest


@lru_cache(maxsize=64)
def _imported(module: ast.Module) -> dict[str, str]:
    found = dict[str, str]()
    for one in ast.walk(module):
        if isinstance(one, ast.Import | ast.ImportFrom):
            begin = f"{one.module}." if isinstance(one, ast.ImportFrom) and not one.level else ""
            found |= {part.asname: begin + part.name for part in one.names if part.asname}
            found |= {part.name: begin + part.name for part in one.names if begin and not part.asname}
    return found


@lru_cache(maxsize=64)
def _parents(module: ast.Module) -> dict[ast.AST, ast.AST]:
    return {part: one for one in ast.walk(module) for part in ast.iter_child_nodes(one)}


@lru_cache(maxsize=64)
def _functions(module: ast.Module) -> dict[str, list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]]:
    """The functions of a module by their names, and the constructors by those of their classes; with whether the first
    parameter is the object."""
    found = dict[str, list[tuple[ast.FunctionDef | ast.AsyncFunctionDef, bool]]]()
    classes = [one for one in ast.walk(module) if isinstance(one, ast.ClassDef)]
    places: list[ast.Module | ast.ClassDef] = [module, *classes]
    for cls in places:
        for one in cls.body:
            if isinstance(one, _FUNCTIONS):
                name = cls.name if isinstance(cls, ast.ClassDef) and one.name == "__init__" else one.name
                static = any(ast.unparse(part) == "staticmethod" for part in one.decorator_list)
                found.setdefault(name, []).append((one, isinstance(cls, ast.ClassDef) and not static))
    return found
