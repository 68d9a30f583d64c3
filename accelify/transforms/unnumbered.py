"""The text of the first GPU, `"cuda:0"`, whose number can be removed: `"cuda"` is each process's GPU."""

from __future__ import annotations

import ast

from accelify.analysis.program import Module
from accelify.analysis.syntax import walk
from accelify.transforms.base import Context, Rule
from accelify.transforms.fixes_elsewhere import FixElsewhere
from accelify.writer import edits as verbs

FIRST = "cuda:0"
MESSAGE = f'`"{FIRST}"` is the same GPU for every process, `"cuda"` is each process\'s own'


def unnumbered(context: Context, module: Module, text: ast.expr, rule: Rule) -> bool:
    """Take the number from `"cuda:0"` in a module that is not converted; False where that cannot be done."""
    if module in context.script.modules or not _can_go(context, module, text):
        return False
    quote = module.tree.segment(text)[0]
    # Without the number it is the process's GPU.
    edit = verbs.replace(text, f"{quote}cuda{quote}")
    context.fixes_elsewhere.append(FixElsewhere(module, text, edit, rule, MESSAGE))
    return True


def is_first_gpu(node: ast.AST) -> bool:
    """Whether a node is the text `"cuda:0"`."""
    return isinstance(node, ast.Constant) and node.value == FIRST


def _can_go(context: Context, module: Module, text: ast.expr) -> bool:
    """Whether a text is written out, and the program does not test for it: `if device == "cuda:0":`."""
    if not is_first_gpu(text) or isinstance(module.tree.parent(text), ast.JoinedStr):
        return False  # a part of a longer text is none that a device is made of
    modules = dict.fromkeys(context.script.program.modules.values())
    return module.tree.segment(text)[1:-1] == FIRST and not any(
        is_first_gpu(part)
        for one in modules
        if one.tree.mentions(FIRST)
        for test in one.tree.nodes(ast.Compare)
        for part in walk(test)
    )
