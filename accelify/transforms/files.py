"""Files and directories: made by the main process alone.

os.makedirs(path)                   ->  if accelerator.is_main_process:
                                            os.makedirs(path)
if not os.path.exists(path): ...    ->  if accelerator.is_main_process and not os.path.exists(path): ...
log = open(path, "w")               ->  log = open(path if accelerator.is_main_process else os.devnull, "w")
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import values as v
from accelify.analysis.effects import READING, WRITING, WRITING_METHODS, opens_for_writing
from accelify.analysis.syntax import call_argument, walk, walk_scope
from accelify.edits import Edit, InsertAfter
from accelify.transforms.base import Change, Context, Rule

FILES = Rule("ACC203", "file-write", "Every process would write the same files.", effort=2)

# What can be opened on nothing, so that the other processes write nowhere.
_STREAMS = frozenset("builtins.open io.open codecs.open gzip.open bz2.open lzma.open".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield main-process guards for statements that write."""
    done: set[ast.stmt] = set()
    for stmt in _statements(context):
        if stmt in done or context.is_guarded(stmt):
            continue
        accelerator = context.accelerator(stmt)
        if accelerator is None:
            continue
        run = context.run_of(stmt, lambda s: bool(_writes(context, s)) and not context.is_guarded(s))
        done.update(run)
        edit, last = context.guard(run, accelerator)
        edits: list[Edit] = [edit]
        if _read_back(context, run):
            # All of them go on to read what the main process is still writing.
            if not context.runs_everywhere(last):
                yield context.todo(
                    FILES, stmt, "every process would write this file, which is read again",
                    "the main process should write this, the others wait for it",
                )  # fmt: skip
                continue
            edits.append(InsertAfter(last, (f"{accelerator}.wait_for_everyone()",)))
        context.guarded.update(run)
        yield context.change(FILES, stmt, "every process would write this", edits)
    yield from _left_open(context)


def _read_back(context: Context, written: list[ast.stmt]) -> bool:
    """Whether a file that some statements write is read behind them, here or in a function that is told where it is."""
    tree, script = context.tree, context.script
    paths = {tree.segment(path) for stmt in written for path in _paths(context, stmt)}
    if not paths:
        return False
    end, scope = tree.end(written[-1]), script.scope_of(written[-1])
    for node in walk_scope(scope.node.body):
        if not isinstance(node, ast.Call) or tree.start(node) < end or tree.in_fstring(node):
            continue
        given = [tree.segment(a) for a in [*node.args, *[kw.value for kw in node.keywords]]]
        name = script.qualname(node.func) or ""
        if name.startswith(tuple(READING)) and opens_for_writing(node, name) is None:
            if any(path in text for path in paths for text in given):
                return True
        callees = script.callees(node)
        if any(context.effects.of(callee).reads for callee in callees):
            if any(path == text or path.startswith(f"{text}.") for path in paths for text in given):
                return True
    return False


def _paths(context: Context, stmt: ast.stmt) -> Iterator[ast.expr]:
    for call in walk(stmt):
        if not isinstance(call, ast.Call):
            continue
        name = context.script.qualname(call.func) or ""
        path = opens_for_writing(call, name)
        if path is None and call.args and name.startswith(("numpy.save", "scipy.io.savemat")):
            path = call.args[0]
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if path is None and call.args and attribute.startswith("to_") and attribute in WRITING_METHODS:
            path = call.args[0]
        if path is not None:
            yield path


def _left_open(context: Context) -> Iterator[Change]:
    """Files that stay open, where the statement cannot go under a guard: the other processes write to nothing."""
    for call in sorted(context.script.calls(), key=context.tree.start):
        name = context.script.qualname(call.func)
        stmt = context.tree.statement(call)
        if isinstance(stmt, ast.Expr) and call is stmt.value and _is_writing(context, call):
            reason = context.needs_all(stmt)
            if reason and not context.is_guarded(stmt):
                mark = "compute this on every process, and let the main process write it"
                yield context.todo(FILES, stmt, f"every process would write this: {reason}", mark)
            continue
        if name == "builtins.input" and not context.is_guarded(call) and not context.plan.on_main_only(call):
            mark = "ask on the main process, and hand the answer to the others"
            yield context.todo(FILES, call, "every process would ask this, and one of them is answered", mark)
            continue
        path = opens_for_writing(call, name)
        if path is None or context.is_guarded(call) or context.plan.on_main_only(call):
            continue
        if any(t.qualname in ("io.BytesIO", "io.StringIO") for t in context.script.things(path)):
            continue  # kept in memory
        accelerator = context.accelerator(call)
        mode = call_argument(call, 1, "mode")
        plain = name in _STREAMS and isinstance(mode, ast.Constant) and "+" not in str(mode.value)
        again = _read_back(context, [stmt])
        if accelerator is None:
            yield context.change(FILES, call, "every process would write this file")
        elif not plain or context.tree.in_fstring(call):
            message = "every process would write this file, and what is made here is used by all of them"
            yield context.todo(FILES, stmt, message, "let one process write this file")
        elif again and not (isinstance(stmt, ast.With) and context.runs_everywhere(stmt)):
            message = "every process would write this file, which is read again"
            yield context.todo(
                FILES, stmt, message, "let one process write this file, and the others wait for it"
            )
        else:
            edits = _on_nothing(context, path, accelerator)
            if again:
                edits.append(InsertAfter(stmt, (f"{accelerator}.wait_for_everyone()",)))
            yield context.change(FILES, call, "every process would write this file", edits)


def _on_nothing(context: Context, path: ast.expr, accelerator: str) -> list[Edit]:
    tree = context.tree
    text = tree.segment(path)
    if isinstance(path, (ast.IfExp, ast.Lambda, ast.NamedExpr)):
        text = f"({text})"
    edits: list[Edit] = [
        verbs.replace(tree, path, f"{text} if {accelerator}.is_main_process else os.devnull")
    ]
    module = context.script.module_of(path).scopes.module
    assert isinstance(module.node, ast.Module)
    if "os" not in module.locals:
        edits.append(context.import_line(module.node, "import os")[0])
    return edits


def _statements(context: Context) -> Iterator[ast.stmt]:
    found = [s for s in [*context.tree.nodes(ast.Expr), *context.tree.nodes(ast.With)] if _writes(context, s)]
    yield from sorted(found, key=context.tree.start)


def _writes(context: Context, stmt: ast.stmt) -> bool:
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call):
        call = stmt.value
        return _is_writing(context, call) and not context.needs_all(stmt)
    if isinstance(stmt, ast.With):
        return any(
            _opens_for_writing(context, item.context_expr) for item in stmt.items
        ) and _keeps_to_itself(context, stmt)
    return False


def _is_writing(context: Context, call: ast.Call) -> bool:
    if context.script.qualname(call.func) in WRITING or _opened_and_left(context, call):
        return True
    if not isinstance(call.func, ast.Attribute) or context.script.callees(call):
        return False
    return call.func.attr in WRITING_METHODS or _saves_picture(context, call)


def _saves_picture(context: Context, call: ast.Call) -> bool:
    """`image.save(path)` of an image or an animation, which no tensor has."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr != "save" or not call.args:
        return False
    made = context.script.things(call.func.value)
    return any(
        t.kind == v.TENSOR or (t.qualname or "").startswith(("PIL.", "matplotlib.animation.", "imageio."))
        for t in made
    )


def _opened_and_left(context: Context, call: ast.Call) -> bool:
    """`open(path, "w").write(text)`."""
    return (
        isinstance(call.func, ast.Attribute)
        and call.func.attr in ("write", "writelines", "close")
        and _opens_for_writing(context, call.func.value)
    )


def _opens_for_writing(context: Context, node: ast.expr) -> bool:
    if not isinstance(node, ast.Call):
        return False
    if opens_for_writing(node, context.script.qualname(node.func)) is not None:
        return True
    # `path.open("w")` of pathlib.
    if not (isinstance(node.func, ast.Attribute) and node.func.attr == "open") or context.script.callees(
        node
    ):
        return False
    mode = call_argument(node, 0, "mode")
    return isinstance(mode, ast.Constant) and str(mode.value)[:1] in ("w", "a", "x")


def _keeps_to_itself(context: Context, stmt: ast.With) -> bool:
    """Whether nothing inside is needed by the other processes: no training, no gathering, no name used afterwards."""
    if context.needs_all(stmt) or context.changes_outside(stmt):
        return False
    stored = {
        n.id for s in stmt.body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if not stored:
        return True
    end = context.tree.end(stmt)
    scope = context.script.scope_of(stmt)
    return not any(
        n.id in stored
        and isinstance(n.ctx, ast.Load)
        and context.tree.start(n) > end
        and context.script.scope_of(n).resolve(n.id) is scope.resolve(n.id)
        and not _bound_again(context, n)
        for n in context.tree.nodes(ast.Name)
    )


def _bound_again(context: Context, read: ast.Name) -> bool:
    """Whether a `with` or `for` around a read gives the name a value of its own first."""
    return any(
        isinstance(ancestor, (ast.With, ast.For))
        and any(
            isinstance(n, ast.Name)
            and n.id == read.id
            and isinstance(n.ctx, ast.Store)
            and context.tree.start(n) < context.tree.start(read)
            for n in walk(ancestor)
        )
        for ancestor in context.tree.ancestors(read)
    )
