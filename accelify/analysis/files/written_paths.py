"""The argument of a call that is the path of the file it writes, also where a function of the program passes it on."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.files.effects import SideEffects
from accelify.analysis.files.folders import folder_made, makes_folder
from accelify.analysis.files.writing_calls import WRITING, WRITING_METHODS, opens_for_writing
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.analysis.syntax import target_names, walk

_KEYWORDS = frozenset("f file filename fname file_name file_path fp path path_or_buf uri stream out".split())
# Functions whose path comes second, by the ends of their names, and those with two paths.
_SECOND = tuple(
    ".dump .safe_dump torch.save torch.save_file torch.save_model torchvision.utils.save_image torchaudio.save "
    "jit.save export.save write_png write_jpeg".split()
)
_THIRD = ("onnx.export", "onnx._export")
_MOVING = ("shutil.", "os.rename", "os.replace", "os.link", "os.symlink", "os.system", "subprocess.")
# Methods of a path.
_OF_PATHS = frozenset("write_text write_bytes mkdir unlink open".split())
_STREAM = ("write", "writelines")
_METHODS = WRITING_METHODS | {"save", "dump", "open", "render"}
_SIZES = frozenset("shape size ndim dtype device".split())


def paths_given(effects: SideEffects, call: ast.Call) -> list[ast.expr] | None:
    """The expressions for the paths that a call of the script writes; None where they are not known."""
    script = effects.script
    callees = script.callees(call)
    if not callees:
        func = call.func
        if isinstance(func, ast.Attribute) and func.attr in _STREAM and isinstance(func.value, ast.Call):
            call = func.value  # `open(path, "w").write(text)`
        return _paths_of(call, script.qualname(call.func) or "")
    stated = {callee: path_parameters(effects, callee) for callee in callees}
    if not any(stated.values()):
        return None
    return [
        given for callee, names in stated.items() for given, name in handed_to(call, callee) if name in names
    ]


def path_parameters(effects: SideEffects, scope: Scope) -> set[str]:
    """The parameters of a function that go into the paths of files which it writes, or has others write."""
    known = effects.path_parameters.get(scope)
    if known is not None:
        return known
    effects.path_parameters[scope] = set()  # of a function that calls itself
    module = effects.interpreter.module_of(scope)
    wanted: set[str] = set()
    for call in scope.calls:
        callees = effects.interpreter.calls.get(call, set())
        for callee in in_order(callees):
            inner = path_parameters(effects, callee) if effects.of(callee).sites else set()
            for given, name in handed_to(call, callee):
                wanted |= _read_in(given) if name in inner else set()
        if not callees:
            for path in _paths_of(call, effects.qualname(module, scope, call.func) or "") or ():
                wanted |= _read_in(path)
    found = _sources(scope, wanted) & {a.arg for a in scope.parameters()}
    effects.path_parameters[scope] = found
    return found


def _paths_of(call: ast.Call, name: str) -> list[ast.expr] | None:
    """The paths among the arguments of a library's function; None where it is none that writes."""
    opened = opens_for_writing(call, name)
    if opened is not None:
        return [opened]
    if makes_folder(call):
        made = folder_made(call)
        return [made] if made is not None else []
    if name.startswith(_MOVING):
        return [*call.args, *[kw.value for kw in call.keywords]]
    if name in WRITING or name == "torch.save":
        return _at(call, 1 if name.endswith(_SECOND) else 2 if name.endswith(_THIRD) else 0)
    if isinstance(call.func, ast.Attribute) and not name and call.func.attr in _METHODS:
        return [call.func.value] if call.func.attr in _OF_PATHS else _at(call, 0)
    return None


def _at(call: ast.Call, place: int) -> list[ast.expr]:
    given = [a for a in call.args[place : place + 1] if not isinstance(a, ast.Starred)]
    return given or [kw.value for kw in call.keywords if kw.arg in _KEYWORDS]


def _sources(scope: Scope, names: set[str]) -> set[str]:
    """The names whose values some names of a function are made of, themselves included."""
    bound: list[tuple[str, set[str]]] = []
    for node in scope.nodes:
        if isinstance(node, ast.Assign):
            pairs = [pair for target in node.targets for pair in _pairs(target, node.value)]
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension)):
            pairs = list(_pairs(node.target, node.iter))
        elif isinstance(node, ast.AugAssign):
            pairs = [(node.target, node.value)]
        else:
            continue
        bound += [(name, _read_in(value)) for target, value in pairs for name in target_names(target)]
    found, more = set(names), True
    while more:
        before = len(found)
        found.update(*[read for name, read in bound if name in found])
        more = len(found) > before
    return found


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """What is bound to what: `for i, (image, name) in enumerate(zip(images, names))` binds `name` to `names`."""
    if isinstance(target, (ast.Tuple, ast.List)):
        called = value.func.id if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) else ""
        parts: list[ast.expr] = []
        if isinstance(value, ast.Call) and called == "zip":
            parts = value.args
        elif isinstance(value, ast.Call) and called == "enumerate" and value.args:
            parts = [ast.Constant(0), value.args[0]]
        elif isinstance(value, (ast.Tuple, ast.List)):
            parts = value.elts
        if len(parts) == len(target.elts) and not any(isinstance(p, ast.Starred) for p in parts):
            for one, part in zip(target.elts, parts, strict=True):
                yield from _pairs(one, part)
            return
    yield target, value


def _read_in(node: ast.expr) -> set[str]:
    """The names whose values an expression takes, and not only their sizes."""
    sizes = [
        n
        for n in walk(node)
        if (isinstance(n, ast.Attribute) and n.attr in _SIZES)
        or (isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "len")
    ]
    measured = {id(inner) for size in sizes for inner in walk(size)}
    return {n.id for n in walk(node) if isinstance(n, ast.Name) and id(n) not in measured}
