"""Which names become part of a path: names made from the clock, or from a random id, matter only there."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from accelify.analysis.files.clock_texts import ClockTexts
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.handed_options import holders, reads
from accelify.analysis.syntax import call_keyword, dotted, walk
from accelify.transforms.base import Context

_PATHS = frozenset(
    "os.path.join os.makedirs os.mkdir pathlib.Path glob.glob os.listdir builtins.open torch.load torch.save".split()
)
# A statement that binds a name.
Naming = ast.Assign | ast.AugAssign | ast.AnnAssign
# A name of a name of a name: beyond this they are not followed.
_DEEPEST = 3


def names_path(context: Context, texts: ClockTexts, stmt: Naming, value: ast.expr) -> bool:
    """Whether what a statement names by the clock is a path, or becomes part of one."""
    if isinstance(stmt, ast.Assign) and len(stmt.targets) != 1:
        return False
    if any(_is_path(context, node) for node in walk(value)):
        return True
    return _becomes_path(context, texts, stmt, 0)


def _becomes_path(context: Context, texts: ClockTexts, stmt: Naming, depth: int) -> bool:
    """Whether the text that a statement names becomes part of a path, through other names and options too."""
    name = dotted(naming_target(stmt))
    if name is None:
        return False
    if _is_part_of_path(context, texts, naming_target(stmt)):
        return True
    owner = context.script.scope_of(stmt).resolve(name.split(".")[0])
    for node in [*context.tree.nodes(ast.Name), *context.tree.nodes(ast.Attribute)]:
        if dotted(node) != name or not isinstance(node.ctx, ast.Load):
            continue
        if context.script.scope_of(node).resolve(name.split(".")[0]) is not owner:
            continue
        for ancestor in within_statement(context, node):
            option = option_of_default(node, ancestor)
            if _is_path(context, ancestor) or (option is not None and is_read_as_path(context, option)):
                return True
            if isinstance(ancestor, ast.Call) and hands_path_on(context, texts, ancestor, node):
                return True
        outer = context.tree.statement(node)
        if isinstance(outer, ast.Assign) and outer is not stmt and depth < _DEEPEST:
            if len(outer.targets) == 1 and _becomes_path(context, texts, outer, depth + 1):
                return True
    return False


def _is_part_of_path(context: Context, texts: ClockTexts, target: ast.expr) -> bool:
    """Whether an attribute becomes part of a path where its object is passed on: `self.p.name`."""
    script = context.script
    if not isinstance(target, ast.Attribute) or not isinstance(target.value, ast.Name):
        return False
    base, owner = target.value.id, script.scope_of(target).resolve(target.value.id)
    return owner is not None and any(
        texts.first_path(
            one.function,
            texts.named_in(one.function, {f"{name}.{target.attr}" for name in one.names}),
            partial(is_path_of, context),
        )
        for read in script.reads(base, owner)
        if isinstance(call := _handing(context, read), ast.Call)
        for one in holders(script, call, base)
        if next(reads(one, target.attr), None) is not None
    )


def is_path_in(context: Context, texts: ClockTexts, call: ast.Call, given: ast.expr) -> bool:
    """Whether the argument of a call becomes part of a path in the function that it runs."""
    return any(
        texts.is_taken_into_path(callee, name, partial(is_path_of, context))
        for callee in context.script.callees(call)
        for argument, name in handed_to(call, callee)
        if argument is given
    )


def hands_path_on(context: Context, texts: ClockTexts, call: ast.Call, name: ast.expr) -> bool:
    """Whether a call passes text with a name in it to a function that makes a path of it."""
    contained = {dotted(name) or ""}
    return any(
        texts.is_text(given, contained) and is_path_in(context, texts, call, given)
        for given in [*call.args, *[kw.value for kw in call.keywords]]
    )


def is_read_as_path(context: Context, option: str) -> bool:
    """Whether an option becomes part of a path somewhere."""
    return any(
        node.attr == option and any(_is_path(context, a) for a in within_statement(context, node))
        for node in context.tree.nodes(ast.Attribute)
    )


def option_of_default(node: ast.AST, ancestor: ast.AST) -> str | None:
    """The option of which a node is the default, where an ancestor of it adds one."""
    if not isinstance(ancestor, ast.Call) or getattr(ancestor.func, "attr", "") != "add_argument":
        return None
    default = call_keyword(ancestor, "default")
    if default is None or all(n is not node for n in walk(default)):
        return None
    flags = [a.value for a in ancestor.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = [f for f in flags if f.startswith("--")] or flags
    return long[0].lstrip("-").replace("-", "_") if long else None


def _handing(context: Context, given: ast.AST) -> ast.AST | None:
    """The call that passes an object on, unchanged."""
    parent = context.tree.parent(given)
    return context.tree.parent(parent) if isinstance(parent, ast.keyword) else parent


def naming_target(stmt: Naming) -> ast.expr:
    """What a statement gives the name to; of several targets the first."""
    return stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target


def is_path_of(context: Context, scope: Scope, node: ast.AST) -> bool:
    """Whether a node of any function of the program is a path, or opens one."""
    if not isinstance(node, ast.Call):
        return _is_joined(node)
    module = context.script.interpreter.module_of(scope)
    name = context.effects.qualname(module, scope, node.func)
    return name in _PATHS or getattr(node.func, "attr", "") == "joinpath"


def _is_path(context: Context, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = context.script.qualname(node.func)
        return name in _PATHS or getattr(node.func, "attr", "") == "joinpath"
    return _is_joined(node)


def _is_joined(node: ast.AST) -> bool:
    """Whether a node is `folder / name`, and not a time that is divided by a number."""
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Div):
        return False
    return not (isinstance(node.right, ast.Constant) and isinstance(node.right.value, (int, float)))


def within_statement(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    """What is around a node within its statement, innermost first."""
    for ancestor in context.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return
        yield ancestor
