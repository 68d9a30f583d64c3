"""HDF5 files that are opened to write and only read: the file is locked, and only one process gets it.

file = h5py.File(path, "r+")     ->  file = h5py.File(path, "r")
data = Scans("scans.h5")         ->  (a finding, where its class in a module that is not converted does so)
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from accelify.analysis.modules.called_unconverted import come_to
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Node, call_argument
from accelify.transforms.base import Change, Context, where
from accelify.transforms.files import FILES
from accelify.writer import edits as verbs

_WORD = b"h5py"
# With "a" a file may be made.
_MODE = "r+"
# What is asked of a file without changing it.
_READING = frozenset("close keys values items get filename visit visititems".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield the mode of each such file, or a finding at the call that reaches one."""
    script, tree = context.script, context.tree
    found = list(script.calls()) if any(m.tree.mentions(_WORD) for m in script.modules) else []
    for call in found:
        mode = _writing_mode(call)
        if mode is None or script.qualname(call.func) != "h5py.File":
            continue
        if context.is_settled(call):
            continue
        if _is_only_read(call, script.scope_of(call), tree.parent):
            message = f"HDF5 gives a file that is opened with mode {mode.value!r} to one process alone"
            edit = verbs.say(tree, mode, "r") or verbs.replace(mode, '"r"')
            yield context.change(FILES, call, message, [edit])
    for call, module, scope in come_to(script, _WORD):
        if context.is_guarded(call) or context.plan.on_main_only(call):
            continue
        for node in scope.nodes:
            mode = _writing_mode(node) if isinstance(node, ast.Call) else None
            if not isinstance(node, ast.Call) or mode is None:
                continue
            if context.effects.qualname(module, scope, node.func) != "h5py.File":
                continue
            if _is_only_read(node, scope, module.tree.parent):
                message = (
                    f"this call opens a file with mode {mode.value!r} (h5py.File in {where(module, node)}), which "
                    "HDF5 gives to one process alone, and only reads it: open it with mode 'r' there"
                )
                yield context.change(FILES, call, message)
                break


def _writing_mode(call: ast.Call) -> ast.Constant | None:
    mode = call_argument(call, 1, "mode")
    return mode if isinstance(mode, ast.Constant) and mode.value == _MODE else None


def _is_only_read(call: ast.Call, scope: Scope, parent: Callable[[Node], Node | None]) -> bool:
    """Whether a file has one name in a function, which reads entries of it and closes it, and does no more."""
    around = parent(call)
    if isinstance(around, ast.Assign) and len(around.targets) == 1:
        target: ast.expr | None = around.targets[0]
    else:
        target = around.optional_vars if isinstance(around, ast.withitem) else None
    if not isinstance(target, ast.Name):
        return False
    reads = [n for n in scope.of_type(ast.Name) if n.id == target.id]
    return len(reads) > 1 and all(n is target or _reads(n, parent) for n in reads)


def _reads(name: ast.Name, parent: Callable[[Node], Node | None]) -> bool:
    if isinstance(name.ctx, ast.Store):
        return True  # another file, or nothing, by the same name
    node: Node = name
    around = parent(name)
    if isinstance(around, ast.Attribute) and around.attr in _READING:
        return True
    taken = False
    while isinstance(around, ast.Subscript) and around.value is node:
        if not isinstance(around.ctx, ast.Load):
            return False
        node, around, taken = around, parent(around), True
    # `file["x"].resize(...)` and `file["x"].attrs[...] = ...` write; of `file["x"][:]` what follows is an array's.
    whole = isinstance(node, ast.Subscript) and isinstance(node.slice, (ast.Slice, ast.Tuple))
    return taken and (whole or not isinstance(around, ast.Attribute) or around.attr in ("shape", "value"))
