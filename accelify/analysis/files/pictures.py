"""Calls that save a picture by its method: `image.save(path)`, `ToPILImage()(grid).save(path)`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable

from accelify.analysis import values as v
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import walk

# The statements that can have bound a name where it is read.
Bindings = Callable[[ast.Name], Iterable[ast.stmt | None]]
_PICTURES = tuple(".png .jpg .jpeg .gif .bmp .tif .tiff .webp .svg .pdf .mp4".split())


def saves_picture(script: ScriptModel, bindings: Bindings, call: ast.Call) -> bool:
    """`image.save(path)` of an image or an animation, which no tensor has."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "save" or not call.args:
        return False
    if _is_drawn(script, bindings, call.func.value) or _names_picture(bindings, call.args[0]):
        return True
    made, libraries = script.entities(call.func.value), ("PIL.", "matplotlib.animation.", "imageio.")
    return any(t.kind == v.TENSOR or (t.qualname or "").startswith(libraries) for t in made)


def _names_picture(bindings: Bindings, path: ast.expr) -> bool:
    """Whether a path ends as those of pictures do: `os.path.join(folder, "a.png")`, whatever saves itself there."""
    given = [path]
    if isinstance(path, ast.Name):
        given = [b.value for b in bindings(path) if isinstance(b, ast.Assign)]
    return any(
        isinstance(n, ast.Constant) and isinstance(n.value, str) and n.value.lower().endswith(_PICTURES)
        for one in given
        for n in walk(one)
    )


def _is_drawn(script: ScriptModel, bindings: Bindings, node: ast.expr, depth: int = 3) -> bool:
    """`ToPILImage()(grid)`, or a name that holds what such a transform returns."""
    if isinstance(node, ast.Name) and depth:
        found = [b for b in bindings(node) if isinstance(b, ast.Assign)]
        return bool(found) and all(_is_drawn(script, bindings, stmt.value, depth - 1) for stmt in found)
    if not isinstance(node, ast.Call):
        return False
    made = script.qualname(node.func) or ""
    inner = node.func.func if isinstance(node.func, ast.Call) else None
    if inner is None and isinstance(node.func, ast.Name) and depth:
        found = [b for b in bindings(node.func) if isinstance(b, ast.Assign)]
        calls = [b.value.func for b in found if isinstance(b.value, ast.Call)]
        return bool(calls) and all(_makes_pictures(script.qualname(one)) for one in calls)
    return made.endswith("to_pil_image") or (inner is not None and _makes_pictures(script.qualname(inner)))


def _makes_pictures(name: str | None) -> bool:
    return (name or "").endswith("transforms.ToPILImage")
