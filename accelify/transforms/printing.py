"""Prints: once, on the main process.

print(loss)       ->  accelerator.print(loss)     (in functions, too, which get a parameter for this)
print(loss, file=sys.stderr)    ->  accelerator.print(loss, file=sys.stderr)
print(loss)       ->  agent.accelerator.print(loss)     (where only an object has the Accelerator)
tqdm.write(text)  ->  if accelerator.is_main_process:
                          tqdm.write(text)
pprint(options)   ->  if accelerator.is_main_process:
                          pprint(options)     (the same for rich's console.print(table))

Prints where there is no Accelerator, and those of modules that are not converted, are named by ACC702.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.files.effect_sites import PRINTERS
from accelify.analysis.files.log_files import begins_log, is_log_method
from accelify.analysis.modules.module_names import module_at
from accelify.analysis.planning.anchors import NAME, node_of
from accelify.analysis.statements.statement_calls import needed_beside, statement_for
from accelify.analysis.syntax import call_keyword, dotted, is_constant, target_names
from accelify.analysis.values import Entity
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.display_parameters import is_called_within_reach
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, PutUnder

LOGGING = Rule("ACC209", "Every process would log the same lines.", done="left logging to the main process")
_STREAMS = frozenset({"sys.stdout", "sys.stderr", "sys.__stdout__", "sys.__stderr__"})
_OF_CONSOLE = frozenset({"print", "print_json", "log", "rule"})
# Through how many functions a data set may come to what it prints.
_DEEPEST = 3
PRINT = Rule(
    "ACC201", "Every process would print the same line.", effort=1, done="left printing to the main process"
)


def transform(context: Context) -> Iterator[Change]:
    """Yield accelerator.print for the script's prints, and quiet loggers on the other processes."""
    yield from _logging(context)
    yield from _log_files(context)
    yield from _beside_bars(context)
    tree = context.tree
    for call in context.script.calls():
        if not (
            isinstance(call.func, ast.Name)
            and call.func.id == "print"
            and (statement_for(tree, call) is not None or _is_body_of_lambda(context, call))
        ):
            continue
        if context.script.scope_of(call).resolve("print") is not None or not _to_terminal(context, call):
            continue
        if context.is_settled(call):
            continue
        if _is_of_failing_sample(context, call):
            continue
        cheap, home = context.reaches_cheaply(call), node_of(context.script, context.script.scope_of(call))
        near = cheap or is_called_within_reach(context, home)
        accelerator = context.accelerator(call) if cheap or (near and home.kind == "function") else None
        accelerator = accelerator or context.at_hand.expression(call)
        if accelerator is None:
            continue
        func = call.func
        yield context.change(
            PRINT,
            call,
            "every process would print this",
            [verbs.replace(func, f"{accelerator}.print")],
        )


def _is_of_failing_sample(context: Context, call: ast.Call, handled: bool = False, depth: int = 0) -> bool:
    """Whether it stands in a handler of what a data set does for one sample: the ranks have other samples, and what
    only the main process prints hides those that fail on the others."""
    script = context.script
    scope = script.scope_of(call)
    handled = handled or any(
        isinstance(one, ast.ExceptHandler) and script.scope_of(one) is scope
        for one in context.tree.ancestors(call)
    )
    if scope.kind != "function" or scope.name.rpartition(".")[2] == "__getitem__":
        return handled and scope.kind == "function"
    calls = script.callers(scope) if depth < _DEEPEST else []
    return bool(calls) and all(_is_of_failing_sample(context, one, handled, depth + 1) for one in calls)


def _to_terminal(context: Context, call: ast.Call) -> bool:
    """Whether a call prints on the terminal: it names no file, or `sys.stderr`."""
    given = [call_keyword(call, name) for name in ("file", "stream")]
    return all(place is None or is_constant(place, None) or _is_stream(context, place) for place in given)


def _is_stream(context: Context, place: ast.expr) -> bool:
    """Whether an expression is the terminal by name, and can be nothing else: a file would be open everywhere."""
    script = context.script
    if script.qualname(place) not in _STREAMS:
        return False
    owner = script.scope_of(place).resolve(place.id) if isinstance(place, ast.Name) else None
    if not isinstance(place, ast.Name) or owner is None:
        return isinstance(place, ast.Attribute) and isinstance(place.value, ast.Name)
    given = {alias.asname or alias.name for s in owner.of_type(ast.ImportFrom) for alias in s.names}
    made = [s.value for s in context.tree.assigns(place.id) if script.scope_of(s).resolve(place.id) is owner]
    stored = [n for n in owner.of_type(ast.Name) if n.id == place.id and isinstance(n.ctx, ast.Store)]
    return (
        not owner.takes(place.id)
        and len(stored) == len(made)
        and (place.id in given or bool(made))
        and all(isinstance(value, ast.Attribute) and _is_stream(context, value) for value in made)
    )


def _beside_bars(context: Context) -> Iterator[Change]:
    """What libraries print, or is written past a progress bar, where the Accelerator's print would break the line."""
    tree, script = context.tree, context.script
    for call in script.calls():
        func, statement = call.func, statement_for(tree, call)
        if not isinstance(func, (ast.Name, ast.Attribute)):
            continue
        if statement is None and not _is_body_of_lambda(context, call):
            continue
        if statement is not None and needed_beside(context.effects, statement):
            continue
        beside = isinstance(func, ast.Attribute) and func.attr == "write" and _is_bar(context, func.value)
        beside = beside or _is_of_console(context, func)
        if not beside and script.qualname(func) not in PRINTERS:
            continue
        if not _to_terminal(context, call):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None or context.is_settled(call) or not context.reaches_cheaply(call):
            continue
        guard: Edit
        if statement is None:
            guard = verbs.replace(call, call, f" if {accelerator}.is_main_process else None")
        else:
            context.guarded.add(statement)
            guard = PutUnder(statement, statement, f"if {accelerator}.is_main_process:")
        yield context.change(PRINT, call, "every process would print this", [guard])


def _is_body_of_lambda(context: Context, call: ast.Call) -> bool:
    """`lambda text: bar.write(text)`, which passes on how to print above the bar."""
    around = context.tree.parent(call)
    return isinstance(around, ast.Lambda) and around.body is call


def _is_of_console(context: Context, func: ast.expr) -> bool:
    """`console.print(table)` of rich's console."""
    if (
        not isinstance(func, ast.Attribute)
        or func.attr not in _OF_CONSOLE
        or not context.tree.mentions("Console")
    ):
        return False
    contained = context.script.values(func.value)
    return any(isinstance(one, Entity) and one.qualname == "rich.console.Console" for one in contained)


def _is_bar(context: Context, node: ast.expr) -> bool:
    """Whether an expression is tqdm itself, or a name that is only ever a bar."""
    script = context.script
    if k.is_progress(script.qualname(node)):
        return True
    made: list[ast.expr] = []
    if isinstance(node, ast.Attribute):
        own = script.scope_of(node).owner_class
        for stmt in context.tree.assigns(dotted(node) or "") if own is not None else ():
            if script.scope_of(stmt).owner_class is own:
                made.append(stmt.value)
    if not isinstance(node, ast.Name):
        return bool(made) and all(_makes_bar(context, value) for value in made)
    owner = script.scope_of(node).resolve(node.id)
    for stmt in context.tree.nodes(ast.Assign):
        if node.id in {n for t in stmt.targets for n in target_names(t)}:
            if script.scope_of(stmt).resolve(node.id) is owner:
                made.append(stmt.value)
    for block in context.tree.nodes(ast.With):
        for item in block.items:
            if item.optional_vars is not None and node.id in target_names(item.optional_vars):
                made.append(item.context_expr)
    return bool(made) and all(_makes_bar(context, value) for value in made)


def _makes_bar(context: Context, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and k.is_progress(context.script.qualname(value.func))


def _logging(context: Context) -> Iterator[Change]:
    """One line after the Accelerator limits the loggers of the other processes to warnings."""
    script, anchor = context.script, context.plan.anchor
    given = [stmt for stmt in context.tree.nodes(ast.Assign) if is_log_method(script, stmt.value)]
    calls = [c for c in script.calls() if _logs(context, c, given)]
    place = None if anchor is None else anchor.before or anchor.after
    if not calls or anchor is None or place is None:
        return
    name = NAME
    if anchor.attribute:
        name = f"{script.scope_of(place).self_name() or 'self'}.{NAME}"
    logging, line = module_at(script, place, "logging")
    lines = (
        f"if not {name}.is_main_process:",
        f"{context.tree.indent_unit()}{logging}.disable({logging}.INFO)",
    )
    again = _loaded_again(context, place)
    edits = [
        context.beside_accelerator(lines, order=-40)
        if again is None
        else InsertAfter(again, lines, order=-40)
    ]
    if line is not None:
        edits.append(context.import_for(place, line))
    yield context.change(LOGGING, calls[0], "every process would log the same lines", edits)


def _loaded_again(context: Context, place: ast.stmt) -> ast.stmt | None:
    """Where `reload(logging)` loads it again after the Accelerator, and undoes the switch."""
    script, tree = context.script, context.tree
    scope = script.scope_of(place)
    found = [
        stmt
        for call in (script.calls() if tree.mentions("reload(") else ())
        if (script.qualname(call.func) or "").rpartition(".")[2] == "reload" and len(call.args) == 1
        if script.qualname(call.args[0]) == "logging" and script.scope_of(call) is scope
        if isinstance(stmt := tree.statement(call), ast.Expr) and tree.is_before(place, stmt)
    ]
    last: ast.stmt | None = tree.last(found)
    return last


def _log_files(context: Context) -> Iterator[Change]:
    """A log file that is opened again: the main process does that, the others would empty it again."""
    for call in context.script.calls():
        mode = begins_log(call, context.script.qualname(call.func))
        if mode is None:
            continue
        if context.is_settled(call):
            continue
        accelerator = context.accelerator(call) if context.reaches_cheaply(call) else None
        if accelerator is not None:
            text = f'{context.tree.segment(mode)} if {accelerator}.is_main_process else "a"'
            edit = verbs.replace(mode, text)
            yield context.change(LOGGING, call, "every process empties this file when it opens it", [edit])


def _logs(context: Context, call: ast.Call, given: list[ast.Assign]) -> bool:
    """Whether a call logs a line: `logger.info(...)`, or by a name bound to the method: `say = logger.info`.

    Args:
        context: of the script.
        call: the call in question.
        given: the assignments that bind a name to the method.
    """
    func, script = call.func, context.script
    if is_log_method(script, func):
        return True
    text, scope = dotted(func) if given else None, script.scope_of(func)
    for stmt in given if text is not None else ():
        if not any(dotted(target) == text for target in stmt.targets):
            continue
        if isinstance(func, ast.Name):
            same = script.scope_of(stmt).resolve(func.id) is scope.resolve(func.id)
        else:
            same = script.scope_of(stmt).owner_class is scope.owner_class
        if same:
            return True
    return False
