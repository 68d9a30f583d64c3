"""Names made from the clock: one for all processes, so that all look into the folder that the main process writes.

run = datetime.now().strftime("%H-%M-%S")    ->  run = broadcast_object_list([datetime.now().strftime("%H-%M-%S")])[0]

The processes read the clock one after the other. A name is meant where the text of a time becomes part of a path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis.anchors import node_of
from accelify.analysis.syntax import dotted, walk
from accelify.edits import Edit
from accelify.transforms.base import Change, Context, Rule

CLOCK = Rule("ACC211", "clock-name", "Every process would name a file or folder by its own clock.")
_TEXTS = frozenset({"strftime", "isoformat", "ctime", "asctime"})
_TIMES = frozenset({"time", "now", "today", "utcnow"})
_PATHS = frozenset(
    "os.path.join os.makedirs os.mkdir pathlib.Path glob.glob os.listdir builtins.open torch.load torch.save".split()
)
_READS = frozenset({"torch.load", "glob.glob", "glob.iglob", "os.listdir", "os.scandir"})


def transform(context: Context) -> Iterator[Change]:
    """Yield the broadcasts, and a finding where the Accelerator is not there yet."""
    tree, script, anchor = context.tree, context.script, context.plan.anchor
    if anchor is None:
        return
    for stmt in tree.nodes(ast.Assign):
        scope = script.scope_of(stmt)
        home = node_of(script, scope)
        reached = home is anchor.root or scope in script.training_scopes or home.kind == "module"
        if not reached or scope in script.dormant or context.is_claimed(stmt) or context.is_guarded(stmt):
            continue
        if (
            context.plan.on_main_only(stmt)
            or script.enclosing_loops(stmt)
            or not _names_by_clock(context, stmt)
        ):
            continue
        tests = [a.test for a in tree.ancestors(stmt) if isinstance(a, ast.If) and a is not script.main_guard]
        accelerator = None if tree.in_fstring(stmt.value) else context.accelerator(stmt)
        message = f"every process would name `{tree.segment(stmt.targets[0])}` by its own clock"
        if accelerator is None or not all(script.is_uniform(test) for test in tests):
            if not any(script.qualname(call.func) in _READS for call in script.calls()):
                continue  # what is only written, the main process alone names
            advice = "broadcast_object_list([...])[0] makes it the main process's"
            yield context.change(CLOCK, stmt, f"{message}: behind the Accelerator, {advice}")
            continue
        context.claim(stmt.value)
        package = "accelerate.utils" if context.for_accelerate else "accelify.runtime"
        module = script.module_of(stmt).scopes.module.node
        assert isinstance(module, ast.Module)
        edits: list[Edit] = [
            verbs.insert(tree, tree.start(stmt.value), "broadcast_object_list(["),
            verbs.insert(tree, tree.end(stmt.value), "])[0]"),
            context.import_line(module, f"from {package} import broadcast_object_list")[0],
        ]
        yield context.change(CLOCK, stmt, message, edits)


def _names_by_clock(context: Context, stmt: ast.Assign) -> bool:
    if len(stmt.targets) != 1 or not _is_text_of_time(stmt.value):
        return False
    if any(_is_path(context, node) for node in walk(stmt.value)):
        return True
    name = dotted(stmt.targets[0])
    scope = context.script.scope_of(stmt)
    return any(
        dotted(node) == name
        and isinstance(node.ctx, ast.Load)
        and context.script.scope_of(node).resolve(str(name).split(".")[0])
        is scope.resolve(str(name).split(".")[0])
        and any(_is_path(context, a) for a in _within_statement(context, node))
        for node in [*context.tree.nodes(ast.Name), *context.tree.nodes(ast.Attribute)]
    )


def _is_text_of_time(value: ast.expr) -> bool:
    """Whether an expression makes text of the time: `now().strftime(...)`, `str(time.time())`, an f-string with one."""
    called = [n for n in walk(value) if isinstance(n, ast.Call)]
    names = {str(dotted(c.func) or getattr(c.func, "attr", "")).rsplit(".", 1)[-1] for c in called}
    text = any(isinstance(n, ast.JoinedStr) for n in walk(value)) or "str" in names
    return bool(names & _TEXTS) or (bool(names & _TIMES) and text)


def _is_path(context: Context, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return context.script.qualname(node.func) in _PATHS
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _within_statement(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    for ancestor in context.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return
        yield ancestor
