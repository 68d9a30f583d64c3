"""Names made from the clock: one for all processes, so that all look into the folder that the main process writes.

run = datetime.now().strftime("%H-%M-%S")    ->  run = broadcast_object_list([datetime.now().strftime("%H-%M-%S")])[0]

The processes read the clock one after the other. A name is meant where the text of a time becomes part of a path.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis.anchors import node_of
from accelify.analysis.syntax import call_keyword, dotted, walk
from accelify.edits import Edit, InsertBefore
from accelify.transforms.base import Change, Context, Rule

CLOCK = Rule("ACC211", "clock-name", "Every process would name a file or folder by its own clock.")
_TEXTS = frozenset({"strftime", "isoformat", "ctime", "asctime"})
_TIMES = frozenset({"time", "now", "today", "utcnow"})
_PATHS = frozenset(
    "os.path.join os.makedirs os.mkdir pathlib.Path glob.glob os.listdir builtins.open torch.load torch.save".split()
)
# A name of a name of a name: beyond this they are not followed.
_DEEPEST = 3
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
            or any(script.trains_around(call) for call in script.callers(scope))
            or not _names_by_clock(context, stmt)
        ):
            continue
        tests = [a.test for a in tree.ancestors(stmt) if isinstance(a, ast.If) and a is not script.main_guard]
        accelerator = None if tree.in_fstring(stmt.value) else context.accelerator(stmt)
        message = f"every process would name `{tree.segment(stmt.targets[0])}` by its own clock"
        if accelerator is None or not all(script.is_uniform(test) for test in tests):
            if not any(script.qualname(call.func) in _READS for call in script.calls()):
                continue  # what is only written, the main process alone names
            edits = _agreed_later(context, stmt) if accelerator is None else []
            if edits:
                yield context.change(CLOCK, stmt, message, edits)
                continue
            advice = "broadcast_object_list([...])[0] makes it the main process's"
            yield context.change(CLOCK, stmt, f"{message}: behind the Accelerator, {advice}")
            continue
        context.claim(stmt.value)
        edits = [
            verbs.insert(tree, tree.start(stmt.value), "broadcast_object_list(["),
            verbs.insert(tree, tree.end(stmt.value), "])[0]"),
            _import(context, stmt),
        ]
        yield context.change(CLOCK, stmt, message, edits)


def _import(context: Context, stmt: ast.stmt) -> Edit:
    package = "accelerate.utils" if context.for_accelerate else "accelify.runtime"
    return context.import_for(stmt, f"from {package} import broadcast_object_list")


def _agreed_later(context: Context, stmt: ast.Assign) -> list[Edit]:
    """Edits that make the processes agree on a name once there is an Accelerator: it, or the option it is the default
    of. None where it went elsewhere by then."""
    tree, anchor = context.tree, context.plan.anchor
    assert anchor is not None
    place, name = anchor.before, dotted(stmt.targets[0])
    if place is None or name is None or all(stmt is not s for s in anchor.block):
        return []
    end = tree.end(stmt)
    between = [
        node
        for node in [*tree.nodes(ast.Name), *tree.nodes(ast.Attribute)]
        if dotted(node) == name and isinstance(node.ctx, ast.Load) and end < tree.start(node) < anchor.offset
    ]
    options = {_option(node, ancestor) for node in between for ancestor in tree.ancestors(node)} - {None}
    if options:
        parsed = [
            s.targets[0].id
            for s in anchor.block
            if isinstance(s, ast.Assign)
            and isinstance(s.targets[0], ast.Name)
            and isinstance(s.value, ast.Call)
            and getattr(s.value.func, "attr", "") == "parse_args"
            and tree.end(s) <= anchor.offset
        ]
        if len(options) > 1 or len(between) > 1 or len(parsed) != 1:
            return []
        name = f"{parsed[0]}.{options.pop()}"
    elif between:
        return []
    line = f"{name} = broadcast_object_list([{name}])[0]"
    return [InsertBefore(place, (line,), order=-49), _import(context, stmt)]


def _option(node: ast.AST, ancestor: ast.AST) -> str | None:
    """The option of which a node is the default, where an ancestor of it adds one."""
    if not isinstance(ancestor, ast.Call) or getattr(ancestor.func, "attr", "") != "add_argument":
        return None
    default = call_keyword(ancestor, "default")
    if default is None or all(n is not node for n in walk(default)):
        return None
    flags = [a.value for a in ancestor.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    long = [f for f in flags if f.startswith("--")] or flags
    return long[0].lstrip("-").replace("-", "_") if long else None


def _names_by_clock(context: Context, stmt: ast.Assign) -> bool:
    if len(stmt.targets) != 1 or not _is_text_of_time(stmt.value):
        return False
    if any(_is_path(context, node) for node in walk(stmt.value)):
        return True
    return _becomes_path(context, stmt, 0)


def _becomes_path(context: Context, stmt: ast.Assign, depth: int) -> bool:
    """Whether the text that a statement names becomes part of a path, through other names and options too."""
    name = dotted(stmt.targets[0])
    if name is None:
        return False
    owner = context.script.scope_of(stmt).resolve(name.split(".")[0])
    for node in [*context.tree.nodes(ast.Name), *context.tree.nodes(ast.Attribute)]:
        if dotted(node) != name or not isinstance(node.ctx, ast.Load):
            continue
        if context.script.scope_of(node).resolve(name.split(".")[0]) is not owner:
            continue
        for ancestor in _within_statement(context, node):
            option = _option(node, ancestor)
            if _is_path(context, ancestor) or (option is not None and _is_read_as_path(context, option)):
                return True
        outer = context.tree.statement(node)
        if isinstance(outer, ast.Assign) and outer is not stmt and depth < _DEEPEST:
            if len(outer.targets) == 1 and _becomes_path(context, outer, depth + 1):
                return True
    return False


def _is_read_as_path(context: Context, option: str) -> bool:
    return any(
        node.attr == option and any(_is_path(context, a) for a in _within_statement(context, node))
        for node in context.tree.nodes(ast.Attribute)
    )


def _is_text_of_time(value: ast.expr) -> bool:
    """Whether an expression makes text of the time: `now().strftime(...)`, `str(time.time())`, text with one in it."""
    called = [n for n in walk(value) if isinstance(n, ast.Call)]
    names = {str(dotted(c.func) or getattr(c.func, "attr", "")).rsplit(".", 1)[-1] for c in called}
    text = any(_is_filled_text(n) for n in walk(value)) or bool(names & {"str", "repr", "format"})
    return bool(names & _TEXTS) or (bool(names & _TIMES) and text)


def _is_filled_text(node: ast.AST) -> bool:
    """An f-string, or `"%d" % number`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    return isinstance(node, ast.JoinedStr)


def _is_path(context: Context, node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        name = context.script.qualname(node.func)
        return name in _PATHS or getattr(node.func, "attr", "") == "joinpath"
    return isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)


def _within_statement(context: Context, node: ast.AST) -> Iterator[ast.AST]:
    for ancestor in context.tree.ancestors(node):
        if isinstance(ancestor, ast.stmt):
            return
        yield ancestor
