"""Functions that make a folder of the first name that is free: who comes later finds it taken, and takes another.

while True:
    path = os.path.join(root, "".join(random.choice(letters) for _ in range(8)))
    if not os.path.isdir(path):
        break
os.makedirs(path)    subprocess.Popen("mkdir -p %s" % path, shell=True)

while os.path.exists(root + str(version)):
    version += 1
os.makedirs(root + str(version))

for number in range(100):
    path = os.path.join(root, str(number))
    if not os.path.exists(path):
        os.makedirs(path)
        return path
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.files.folders import folder_made, makes_folder
from accelify.analysis.files.shell import SHELL
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, text_of, walk

_ASKING = frozenset({"exists", "isdir", "is_dir"})
# The function may be called by one that is called by another one, as far as this.
_FARTHEST = 2


Loop = ast.While | ast.For


def free_name_of(script: ScriptModel, function: Scope, far: int = _FARTHEST) -> tuple[Scope, Loop] | None:
    """Where a function, or one that it calls, looks for a free name of a folder that it makes; None if it does not."""
    for loop, _ in _searches(function):
        return function, loop
    for call in function.calls if far else ():
        for inner in in_order(script.callees(call)):
            found = free_name_of(script, inner, far - 1)
            if found is not None:
                return found
    return None


def gives_free_name(function: Scope) -> Loop | None:
    """The same loop of a function that returns where it has made its folder."""
    returned = [n.value for n in function.of_type(ast.Return) if n.value is not None]
    return next(
        (loop for loop, path in _searches(function) if any(text_of(value) == path for value in returned)),
        None,
    )


def _searches(function: Scope) -> Iterator[tuple[Loop, str]]:
    """The loops of a function that look for a free name, each with the path of the folder that is made then."""
    for loop in function.of_type(ast.While, ast.For):
        paths = _looked_for(loop) if isinstance(loop, ast.While) else _first_free(loop)
        for path in sorted(paths):
            if any(_makes(node, path) for node in function.nodes):
                yield loop, path


def _first_free(loop: ast.For) -> set[str]:
    """The paths of which a loop makes the first one that is not there, and goes no further."""
    return {
        text_of(path)
        for choice in walk(loop)
        if isinstance(choice, ast.If) and isinstance(choice.test, ast.UnaryOp)
        if isinstance(choice.test.op, ast.Not) and isinstance(choice.body[-1], (ast.Return, ast.Break))
        if isinstance(call := choice.test.operand, ast.Call) and isinstance(call.func, ast.Attribute)
        if call.func.attr in _ASKING
        for path in (call.args or [call.func.value])
        if any(_makes(node, text_of(path)) for stmt in choice.body for node in walk(stmt))
    }


def _looked_for(loop: ast.While) -> set[str]:
    """The paths, as they are written, which a loop gives another name until there is nothing of it."""
    tests = [loop.test]
    tests += [
        n.test for n in walk(loop) if isinstance(n, ast.If) and any(isinstance(s, ast.Break) for s in n.body)
    ]
    asked = [
        path
        for test in tests
        for call in calls_in(test)
        if isinstance(call.func, ast.Attribute) and call.func.attr in _ASKING
        for path in (call.args or [call.func.value])
    ]
    given = {dotted(t) for n in walk(loop) if isinstance(n, ast.Assign) for t in n.targets}
    given |= {dotted(n.target) for n in walk(loop) if isinstance(n, ast.AugAssign)}
    return {text_of(path) for path in asked if given & ({dotted(n) for n in walk(path)} - {None})}


def _makes(node: ast.AST, path: str) -> bool:
    """Whether a call makes the folder, itself or by a command of the shell."""
    if not isinstance(node, ast.Call):
        return False
    if makes_folder(node):
        made = folder_made(node)
        return made is not None and text_of(made) == path
    if dotted(node.func) not in SHELL:
        return False
    inside = list(walk(node))
    mkdir = any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and "mkdir" in n.value for n in inside
    )
    return mkdir and any(isinstance(n, (ast.Name, ast.Attribute)) and dotted(n) == path for n in inside)


__all__ = ["free_name_of", "gives_free_name"]
