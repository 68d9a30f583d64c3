"""Whether the training comes before or after a place of a function: the steps that are not around it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import Node

_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
_LOOPS = (ast.For, ast.AsyncFor, ast.While)
_EXITS = frozenset({"sys.exit", "builtins.exit", "builtins.quit", "os._exit"})


def trained_before(script: ScriptModel, node: Node) -> bool:
    """Whether the training has run when a place is reached, as far as no option leaves it out.

    `if __name__ == "__main__":` around both is no step, and neither is the training of the branch not taken.
    """
    start = script.tree.start(node)
    steps = list(_steps(script, node))
    return any(
        script.tree.end(step) <= start
        and not _leads_elsewhere(script, step, node)
        and not _is_left_out(script, step, node, steps)
        for step in steps
    )


def trains_only_after(script: ScriptModel, node: Node) -> bool:
    """Whether all of a function's training comes after a place of it, and there is some."""
    steps = [script.tree.start(step) for step in _steps(script, node)]
    return bool(steps) and script.tree.start(node) < min(steps)


def _steps(script: ScriptModel, node: Node) -> Iterator[Node]:
    """The calls that train in the scope of a node, without those that it is in."""
    around = set(script.tree.ancestors(node))
    for step in script.scope_of(node).calls:
        if script.trains(step) and step not in around:
            yield step


def _leads_elsewhere(script: ScriptModel, step: Node, node: Node) -> bool:
    """Whether no run goes from a step to a place: the one is in the other's `else`, or the step's branch leaves."""
    if script.enclosing_loops(node):
        return False  # the next round may take the other branch
    around = set(script.tree.ancestors(node))
    child: ast.AST = step
    for ancestor in script.tree.ancestors(step):
        if isinstance(ancestor, (*_DEFINED, *_LOOPS)) and ancestor in around:
            return False
        if isinstance(ancestor, ast.If) and isinstance(child, ast.stmt):
            branch = ancestor.body if child in ancestor.body else ancestor.orelse
            if ancestor in around:
                return not any(stmt in around or stmt is node for stmt in branch)
            if branch and _leaves(script, branch[-1]):
                return True
        child = ancestor
    return False


def _is_left_out(script: ScriptModel, step: Node, node: Node, steps: list[Node]) -> bool:
    """Whether a run may reach a place without a step: `if args.train:` around all of the training before it."""
    around = set(script.tree.ancestors(node))
    child: ast.AST = step
    optional = False
    for ancestor in script.tree.ancestors(step):
        if ancestor in around:
            break
        if isinstance(ancestor, _LOOPS):
            optional = False  # a round may do without it, and another has it
        elif isinstance(ancestor, ast.If) and isinstance(child, ast.stmt):
            other = ancestor.orelse if child in ancestor.body else ancestor.body
            optional |= not any(one in script.tree.ancestors(s) for s in steps for one in other)
        child = ancestor
    return optional


def _leaves(script: ScriptModel, last: ast.stmt) -> bool:
    call = last.value if isinstance(last, ast.Expr) else None
    return isinstance(last, (ast.Return, ast.Raise)) or (
        isinstance(call, ast.Call) and script.qualname(call.func) in _EXITS
    )
