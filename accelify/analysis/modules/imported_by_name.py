"""Modules that are imported by a name in a variable: `import_module(args.trainer)`.

The name is looked for where it is: written out, or the default of the option, or else its first choice.
"""

from __future__ import annotations

import ast

from accelify.analysis.syntax import Tree, call_keyword, dotted

_IMPORTING = frozenset({"import_module", "importlib.import_module", "__import__"})


def imports_by_name(tree: Tree) -> dict[ast.Call, str | None]:
    """The calls of a module that import one by its name, with the name; None where it is not known."""
    if not tree.mentions(b"import_module") and not tree.mentions(b"__import__"):
        return {}
    calls = [call for call in tree.nodes(ast.Call) if dotted(call.func) in _IMPORTING and call.args]
    options = _options(tree) if calls else {}
    return {call: _text(tree, call.args[0], options) for call in calls}


def _options(tree: Tree) -> dict[str, str]:
    """The defaults of the command line's options, as far as they are text."""
    found: dict[str, str] = {}
    for call in tree.nodes(ast.Call):
        if getattr(call.func, "attr", "") not in ("add_argument", "add_option", "add"):
            continue
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        chosen = [call_keyword(call, "default"), *getattr(call_keyword(call, "choices"), "elts", [])]
        texts = [c.value for c in chosen if isinstance(c, ast.Constant) and isinstance(c.value, str)]
        long = [flag for flag in flags if flag.startswith("--")] or flags
        target = call_keyword(call, "dest")
        name = target.value if isinstance(target, ast.Constant) else long[0].lstrip("-") if long else None
        if texts and isinstance(name, str):
            found.setdefault(name.replace("-", "_"), texts[0])
    return found


def _text(tree: Tree, node: ast.expr, options: dict[str, str], far: int = 0) -> str | None:
    """The text of an expression with the defaults of all options."""
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else None
    if isinstance(node, ast.Attribute):
        return options.get(node.attr)
    if isinstance(node, ast.Name) and far < 3:
        made = tree.assigns(node.id)
        return _text(tree, made[0].value, options, far + 1) if len(made) == 1 else None
    parts: list[ast.expr] = []
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    elif isinstance(node, ast.JoinedStr):
        parts = [v.value if isinstance(v, ast.FormattedValue) else v for v in node.values]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "format" and not node.keywords:
        pattern = _text(tree, node.func.value, options, far) if isinstance(node.func, ast.Attribute) else None
        filled = [_text(tree, a, options, far) for a in node.args]
        if pattern is None or None in filled or pattern.count("{}") != len(filled):
            return None
        return pattern.format(*filled)
    texts = [_text(tree, part, options, far) for part in parts]
    return "".join(t for t in texts if t is not None) if texts and None not in texts else None
