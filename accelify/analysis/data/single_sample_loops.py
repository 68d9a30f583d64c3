"""Evaluation loops that work on one sample at a time: what they make has no row for every sample of a batch."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.enumerated import is_enumerated
from accelify.analysis.syntax import dotted, is_constant, target_names, text_of, walk

_WRITES = re.compile(
    r"^(imwrite|imsave|save_?(image|img|images|mask|pred|prediction|predictions|result|results|wav|audio|nii|nifti)|"
    r"savefig|write_wav|savemat|save_tensor_image)$"
)
# Of libraries: functions called `save` or `write` that make a file of an array.
_WRITING_LIBRARIES = (
    "numpy",
    "torch",
    "nibabel",
    "soundfile",
    "torchaudio",
    "scipy",
    "imageio",
    "PIL",
    "cv2",
)
_TEXT_METHODS = frozenset("split rsplit replace endswith startswith strip rstrip lstrip splitext".split())


def one_by_one(
    script: ScriptModel, loop: ast.For | ast.AsyncFor, statements: Sequence[ast.stmt], last: int
) -> str | None:
    """Why an evaluation loop needs its batches as they are; None: nothing speaks against larger ones.

    Args:
        script: its model.
        loop: over the batches.
        statements: of its body, those under a plain `with` as well.
        last: the index of the one with the last call of the model.
    """
    if any(isinstance(stmt, ast.Break) for stmt in loop.body):
        return "it ends with its first batch"
    parts = _Parts(script, loop)
    for stmt in statements[: last + 1]:
        for node in walk(stmt):
            sample = parts.sample(node)
            if sample is not None and not _asks_form(script, node):
                return f"`{sample}` is one sample of the batch"
            if isinstance(stmt, ast.Assign):
                parts.follow(stmt)
    written = next(_written(script, statements), None)
    return f"`{written}` writes a file for every batch" if written is not None else None


def writes_all(script: ScriptModel, loop: ast.For | ast.AsyncFor, statements: Sequence[ast.stmt]) -> bool:
    """Whether a loop makes a file of every batch, and does not end after some of them."""
    ends = (n for stmt in loop.body for n in walk(stmt) if isinstance(n, (ast.Break, ast.Return)))
    return next(_written(script, statements), None) is not None and next(ends, None) is None


class _Parts:
    """The variables that hold the batch, or one part of it (inputs, targets) of all samples."""

    def __init__(self, script: ScriptModel, loop: ast.For | ast.AsyncFor) -> None:
        target: ast.expr = loop.target
        if isinstance(target, ast.Tuple) and len(target.elts) == 2 and is_enumerated(script, loop.iter):
            target = target.elts[1]
        self.wholes = {target.id} if isinstance(target, ast.Name) else set()
        self.parts: set[str] = set()
        for element in target.elts if isinstance(target, (ast.Tuple, ast.List)) else ():
            if isinstance(element, ast.Starred):
                self.wholes |= set(target_names(element))
            else:
                self.parts |= set(target_names(element))

    def follow(self, stmt: ast.Assign) -> None:
        """Note what a statement makes of the batch: `x, y = batch`, `x = batch[0].to(device)`."""
        value = _moved(stmt.value)
        for target in stmt.targets:
            if isinstance(value, ast.Name) and value.id in self.wholes:
                names = target_names(target)
                (self.wholes if isinstance(target, ast.Name) else self.parts).update(names)
            elif isinstance(target, ast.Name) and self._is_part(value):
                self.parts.add(target.id)
                self.wholes.discard(target.id)

    def _is_part(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return node.id in self.parts
        return (
            isinstance(node, ast.Subscript)
            and isinstance(node.value, ast.Name)
            and node.value.id in self.wholes
            and isinstance(node.slice, ast.Constant)
        )

    def sample(self, node: ast.AST) -> str | None:
        """How one sample of the batch is written, where a node takes it: `path[0]`, `batch[0].unsqueeze(0)`."""
        if (
            isinstance(node, ast.Subscript)
            and is_constant(node.slice, 0)
            and self._is_part(_moved(node.value))
        ):
            return text_of(node)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], (ast.Tuple, ast.List)):
            value = node.value
            if isinstance(value, ast.Subscript) and is_constant(value.slice, 0) and self._is_part(value):
                return text_of(value)
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "unsqueeze"
        ):
            if (
                len(node.args) == 1
                and is_constant(node.args[0], 0)
                and self._is_part(_moved(node.func.value))
            ):
                return text_of(node)
        return None


def _moved(node: ast.expr) -> ast.expr:
    """What is brought elsewhere in `x.to(device)`, `x.cuda()`, `x.float()`."""
    while isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr not in ("to", "cuda", "cpu", "float", "long", "detach", "numpy", "double", "half"):
            break
        node = node.func.value
    return node


def _asks_form(script: ScriptModel, node: ast.AST) -> bool:
    """`len(x[0])`, `x[0].shape`: nothing of the sample itself."""
    parent = script.tree.parent(node)
    if isinstance(parent, ast.Call) and isinstance(parent.func, ast.Name):
        return parent.func.id in ("len", "type", "isinstance", "print")
    return isinstance(parent, ast.Attribute) and parent.attr in (
        "shape",
        "size",
        "dtype",
        "device",
        "dim",
        "ndim",
    )


def _written(script: ScriptModel, statements: Sequence[ast.stmt]) -> Iterator[str]:
    """The calls that make a file of what a batch gives, for every batch."""
    for stmt in statements:
        if isinstance(stmt, (ast.If, ast.Try)):
            continue
        for call in walk(stmt):
            if not isinstance(call, ast.Call):
                continue
            last = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            known = (script.qualname(call.func) or "").split(".")[0]
            by_library = last in ("save", "write") and known in _WRITING_LIBRARIES
            if (_WRITES.search(last) or by_library) and call.args:
                yield dotted(call.func) or last


def is_text(script: ScriptModel, read: ast.Name) -> bool:
    """Whether a variable is read as a text: `"out/" + name`, `os.path.join(folder, name)`, `name.split("/")`."""
    parent = script.tree.parent(read)
    if isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Add, ast.Mod)):
        other = parent.right if parent.left is read else parent.left
        return isinstance(other, (ast.JoinedStr, ast.Constant)) and not isinstance(
            getattr(other, "value", ""), (int, float)
        )
    if isinstance(parent, ast.Attribute):
        return parent.attr in _TEXT_METHODS and isinstance(script.tree.parent(parent), ast.Call)
    if isinstance(parent, ast.Call) and read in parent.args:
        return script.qualname(parent.func) in (
            "os.path.join",
            "os.path.basename",
            "pathlib.Path",
            "builtins.open",
        )
    return False
