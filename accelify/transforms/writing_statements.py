"""Which statements write files or show pictures, where to, and whether only the main process may run them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import partial

from accelify.analysis.files.array_files import dumps_to_file
from accelify.analysis.files.effect_sites import gives_text, makes_folder_again
from accelify.analysis.files.folders import path_text
from accelify.analysis.files.opened_paths import opened_path
from accelify.analysis.files.pictures import saves_picture
from accelify.analysis.files.renderings import RENDERING, opens_window, renders
from accelify.analysis.files.sample_files import writes_own
from accelify.analysis.files.saved_objects import saved_to
from accelify.analysis.files.shell import run_for_all, writes_by_shell
from accelify.analysis.files.writing_calls import WRITING, WRITING_METHODS, opens_for_writing
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.statement_calls import calls_done
from accelify.analysis.syntax import walk
from accelify.transforms.base import Context

# Windows, and the places of notebooks that pictures are drawn in.
SHOWING = frozenset("matplotlib.pyplot.show pylab.show cv2.imshow".split())


def writing_statements(context: Context) -> Iterator[ast.stmt]:
    """The statements of the script that write and that only the main process may run, in source order.

    Functions that only other scripts call do not change.
    """
    found = [*context.tree.nodes(ast.Expr), *context.tree.nodes(ast.With)]
    if dormant := context.script.dormant:
        found = [s for s in found if context.script.scope_of(s) not in dormant]
    yield from context.tree.in_order(s for s in found if writes(context, s))


def writes(context: Context, stmt: ast.stmt) -> bool:
    """Whether a statement writes, nothing of it is local to one process, and the main process may run it alone."""
    if isinstance(stmt, ast.Expr):
        written = [call for call in calls_done([stmt]) if is_writing(context, call)]
        return (
            bool(written)
            and not needs_all(context, stmt)
            and not context.own_folders.issuperset(written)
            and not any(writes_own(context.plan, context.effects, call) for call in written)
        )
    if isinstance(stmt, ast.With):
        return any(
            _opens_for_writing(context, item.context_expr)
            and not writes_own(context.plan, context.effects, item.context_expr)  # type: ignore[arg-type]
            for item in stmt.items
        ) and _keeps_to_itself(context, stmt)
    return False


def opens_in(context: Context, stmt: ast.stmt) -> bool:
    """Whether a statement that is no `if` writes, or opens a file to write it."""
    return not isinstance(stmt, ast.If) and (
        writes(context, stmt) or any(True for _ in written_paths(context, stmt))
    )


def shows(context: Context, stmt: ast.stmt) -> bool:
    """Whether a statement shows a picture and writes nothing."""
    calls = calls_done([stmt])
    return bool(calls) and all(
        context.script.qualname(call.func) in SHOWING or _opens_window(context, call) for call in calls
    )


def _opens_window(context: Context, call: ast.Call) -> bool:
    func = call.func
    if not isinstance(func, ast.Attribute) or func.attr != "render":
        return False
    return opens_window(call, context.tree.parent(call), context.script.values(func.value))


def needs_all(context: Context, stmt: ast.Expr) -> str:
    """Why every process has to make a call that writes; "" where one may make it alone."""
    retained = context.effects.attribute_set_by(stmt)
    return context.needs_all(stmt) or (f"it sets `{retained}`, which is read elsewhere" if retained else "")


def is_writing(context: Context, call: ast.Call) -> bool:
    """Whether a call writes on disk or shows a picture: not to memory, and no folder that may be there already."""
    if not _may_write(context, call):
        return False
    return not makes_folder_again(call) and not context.effects.into_memory(call)


def _may_write(context: Context, call: ast.Call) -> bool:
    """Whether a call writes to a path or file that is its argument."""
    name = context.script.qualname(call.func)
    if gives_text(call, name or str(getattr(call.func, "attr", ""))):
        return False
    if name in WRITING and any(_takes_its_name(context, s) for s in context.script.callees(call)):
        return False  # what the function writes is found in its body
    if name in WRITING or runs_command(context, call) or _opened_and_left(context, call):
        return True
    if not isinstance(call.func, ast.Attribute) or context.script.callees(call):
        return False
    if call.func.attr in WRITING_METHODS:
        return True
    if call.func.attr in RENDERING and renders(context.script.values(call.func.value)):
        return True
    if _opens_window(context, call):
        return True
    if name is None and dumps_to_file(call, partial(path_text, context.script)):
        return True
    if saved_to(context.script, call) is not None:
        return True
    return saves_picture(context.script, context.locations[1].bindings, call)


def _takes_its_name(context: Context, function: Scope) -> bool:
    """Whether a function of the script is bound to its name in any case, also over an import of that name."""
    module = function.parent
    if module is None or module.kind != "module" or function not in context.script.functions():
        return False
    body = module.node.body
    name = getattr(function.node, "name", "")
    imports = [
        index
        for index, stmt in enumerate(body)
        if isinstance(stmt, (ast.Import, ast.ImportFrom))
        and any((alias.asname or alias.name) == name for alias in stmt.names)
    ]
    return function.node in body and max(imports, default=-1) < body.index(function.node)


def runs_command(context: Context, call: ast.Call) -> bool:
    """Whether a call passes a command to the shell that one process runs for all, or one that writes."""
    name, scope = context.script.qualname(call.func), context.script.scope_of(call)
    if writes_by_shell(call, name, scope):
        return True
    # Where there is no Accelerator yet, what is not known to write is not reported. (Asking for the Accelerator
    # threads it to the function: only for what needs it.)
    return run_for_all(call, name, scope) and context.accelerator(call) is not None


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
    return opened_path(context.script, node) is not None


def _keeps_to_itself(context: Context, stmt: ast.With) -> bool:
    """Whether nothing inside is needed by the other processes: no training, no gathering, no name used afterwards."""
    if context.needs_all(stmt) or context.changes_outside(stmt) or context.effects.attribute_set_by(stmt):
        return False
    stored = {
        n.id for s in stmt.body for n in walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    }
    if not stored:
        return True
    scope = context.script.scope_of(stmt)
    return not any(
        n.id in stored
        and isinstance(n.ctx, ast.Load)
        and context.tree.is_after(n, stmt)
        and context.script.scope_of(n).resolve(n.id) is scope.resolve(n.id)
        and not _bound_again(context, n)
        for n in context.tree.nodes(ast.Name)
    )


def _bound_again(context: Context, read: ast.Name) -> bool:
    """Whether a `with` or `for` around a read binds the name again first."""
    return any(
        isinstance(ancestor, (ast.With, ast.For))
        and any(
            isinstance(n, ast.Name)
            and n.id == read.id
            and isinstance(n.ctx, ast.Store)
            and context.tree.is_before(n, read)
            for n in walk(ancestor)
        )
        for ancestor in context.tree.ancestors(read)
    )


def written_paths(context: Context, stmt: ast.stmt) -> Iterator[ast.expr]:
    """What a statement says of the files that it writes: their paths, as expressions."""
    for call in walk(stmt):
        if not isinstance(call, ast.Call):
            continue
        name = context.script.qualname(call.func) or ""
        path = opens_for_writing(call, name)
        if path is None and call.args and name.startswith(("numpy.save", "scipy.io.savemat")):
            path = call.args[0]
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if path is None and not name and dumps_to_file(call, partial(path_text, context.script)):
            path = call.args[0]
        if path is None and call.args and attribute.startswith("to_") and attribute in WRITING_METHODS:
            path = call.args[0]
        path = path or saved_to(context.script, call)
        if path is not None:
            yield path
