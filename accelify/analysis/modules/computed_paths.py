"""Paths computed from `__file__`, as `os.path.join(os.path.dirname(__file__), "lib")`, without running the code."""

from __future__ import annotations

import ast
import os
from collections.abc import Mapping
from typing import NamedTuple

from accelify.analysis.syntax import dotted

_ABSOLUTE = frozenset({"abspath", "realpath", "resolve", "absolute"})
# Attributes of a path itself, not of the module in front of it.
_METHODS = frozenset({"resolve", "absolute", "as_posix", "joinpath"})
_JOINING = frozenset({"join", "joinpath", "Path", "PurePath", "str", "normpath", "as_posix"})
_WORDS = {"sep": os.sep, "pardir": os.pardir, "curdir": os.curdir}
_FARTHEST = 12


class ComputedPaths(NamedTuple):
    """The paths that the expressions of one file evaluate to, where it is at a path and is run in a folder.

    `assigned` are the assignments to its names, in order; `bound` what a call or a loop gives to those in it.
    """

    file: str
    folder: str
    assigned: Mapping[str, list[ast.Assign]]
    bound: Mapping[str, ast.expr]

    def place(self, node: ast.expr) -> str | None:
        """The path that an expression evaluates to, None where it is not known."""
        text = self._text(node)
        return None if text is None else os.path.normpath(os.path.join(self.folder, text))

    def _text(self, node: ast.expr, far: int = 0) -> str | None:
        if far > _FARTHEST:
            return None
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self._named(node, far)
        if isinstance(node, ast.BinOp):
            return self._joint(node, far)
        if isinstance(node, ast.JoinedStr):
            parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
            texts = self._texts(parts, far)
            return None if texts is None else "".join(texts)
        if isinstance(node, ast.Attribute):
            outer = self._text(node.value, far + 1) if node.attr == "parent" else None
            return os.path.dirname(outer) if outer is not None else _WORDS.get(node.attr)
        if isinstance(node, ast.Subscript):
            return self._part(node, far)
        return self._called(node, far) if isinstance(node, ast.Call) else None

    def _texts(self, nodes: list[ast.expr], far: int) -> list[str] | None:
        """The path for each of some expressions, None where one is not known."""
        found = [self._text(node, far + 1) for node in nodes]
        known = [text for text in found if text is not None]
        return known if len(known) == len(found) else None

    def _named(self, name: ast.Name, far: int) -> str | None:
        """What a name was last assigned in front of the line where it is, which may assign it again."""
        if name.id == "__file__":
            return self.file
        if name.id in self.bound:
            return self._text(self.bound[name.id], far + 1)
        made = self.assigned.get(name.id, [])
        before = [one for one in made if (one.end_lineno or one.lineno) < name.lineno]
        meant = (before or made)[-1:]
        return self._text(meant[0].value, far + 1) if meant else None

    def _joint(self, node: ast.BinOp, far: int) -> str | None:
        """`a + b`, `a / b` of paths, and `"%s/lib" % a`."""
        right = node.right.elts if isinstance(node.right, ast.Tuple) else [node.right]
        texts = self._texts([node.left, *right], far)
        if texts is None:
            return None
        if isinstance(node.op, ast.Mod):
            return (
                texts[0] % tuple(texts[1:])
                if texts[0].count("%") == texts[0].count("%s") == len(right)
                else None
            )
        if isinstance(node.op, ast.Div):
            return os.path.join(*texts)
        return "".join(texts) if isinstance(node.op, ast.Add) else None

    def _part(self, node: ast.Subscript, far: int) -> str | None:
        """`path.parents[1]`, `os.path.split(path)[0]` and `sys.path[0]`, which is the script's folder."""
        index = getattr(node.slice, "value", None)
        if index not in (0, 1, 2, 3):
            return None
        whole = node.value
        if dotted(whole) == "sys.path":
            return os.path.dirname(self.file) if index == 0 else None
        if isinstance(whole, ast.Attribute) and whole.attr == "parents":
            text = self._text(whole.value, far + 1)
            for _ in range(index + 1):
                text = None if text is None else os.path.dirname(text)
            return text
        if isinstance(whole, ast.Call) and (dotted(whole.func) or "").endswith("path.split") and whole.args:
            text = self._text(whole.args[0], far + 1)
            return None if text is None or index > 1 else os.path.split(text)[index]
        return None

    def _called(self, call: ast.Call, far: int) -> str | None:
        """What a call of `os.path` or `pathlib` makes of paths."""
        name = str(getattr(call.func, "attr", getattr(call.func, "id", "")))
        if name in ("getcwd", "cwd"):
            return self.folder
        if name in ("getfile", "getsourcefile"):
            return self.file  # of the frame in which it is called
        own = [call.func.value] if isinstance(call.func, ast.Attribute) and name in _METHODS else []
        if any(isinstance(arg, ast.Starred) for arg in call.args):
            return None
        texts = self._texts([*own, *call.args], far)
        if not texts or isinstance(getattr(call.func, "value", None), ast.Constant):  # `", ".join(...)`
            return None
        if name in _ABSOLUTE:
            return os.path.normpath(os.path.join(self.folder, texts[0]))
        if name == "dirname":
            return os.path.dirname(texts[0])
        return os.path.join(*texts) if name in _JOINING else None
