"""Runs of a model that a script splits over the GPUs itself, without a wrapper.

out = nn.parallel.data_parallel(model, x, range(n))    ->  out = model(x)
out = nn.parallel.data_parallel(model, pair, ids)      ->  out = model(*pair)    (pair = (x, y))

Code that copies a model to all GPUs itself (replicate, scatter, parallel_apply, gather) is a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Set

from accelify.analysis import knowledge as k
from accelify.analysis.scopes import Scope, in_order
from accelify.analysis.statements.conditions import only_reads
from accelify.analysis.statements.tuples import is_one_of_tuples
from accelify.analysis.syntax import call_argument, calls_in, dotted, text_of
from accelify.analysis.values import Sequence
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit


def transform(context: Context) -> Iterator[Change]:
    """Yield the plain calls of the model, and the findings on its copies."""
    yield from _split_runs(context)
    yield from _copied_runs(context)


def _split_runs(context: Context) -> Iterator[Change]:
    """`nn.parallel.data_parallel(model, x)` splits the batch: here, the model gets the whole batch."""
    for call in context.script.calls_to(k.SPLIT_RUNS):
        if context.is_claimed(call):
            continue
        message = "prepare distributes the model; data_parallel must not spread it over the same GPUs"
        edits = _plain_run(context, call)
        if edits:
            context.claim(call.func, *call.args[2:4])
            edits = _of_one_branch(context, call) or edits
        yield context.change(PARALLEL, call, message, edits, core=bool(edits))


def _plain_run(context: Context, call: ast.Call) -> list[Edit]:
    """The edits that leave a call of the model; none where its arguments cannot be distinguished."""
    model, inputs = call_argument(call, 0, "module"), call_argument(call, 1, "inputs")
    options = call_argument(call, 4, "module_kwargs")
    plain = (ast.Name, ast.Attribute, ast.Call, ast.Subscript)
    if not isinstance(model, plain) or inputs is None or any(isinstance(a, ast.Starred) for a in call.args):
        return []
    if any(isinstance(w, Sequence) for w in context.script.values(inputs)):
        if not isinstance(inputs, ast.Tuple) and not is_one_of_tuples(context.script, inputs):
            return []  # a tuple is spread, a list is not
    given = inputs.elts if isinstance(inputs, ast.Tuple) else [inputs]
    if not given:
        return []
    pieces: list[verbs.Piece] = [model, "(*" if is_one_of_tuples(context.script, inputs) else "("]
    for index, one in enumerate(given):
        pieces += [", ", one] if index else [one]
    pieces += [")"] if options is None else [", **", options, ")"]
    return [verbs.replace(call, *pieces)]


def _of_one_branch(context: Context, call: ast.Call) -> list[Edit]:
    """`if several: y = data_parallel(model, x, ids)` and `else: y = model(x)` are the same: the second is left."""
    tree, stmt = context.tree, context.tree.statement(call)
    branch = tree.parent(stmt)
    if not isinstance(branch, ast.If) or branch.body != [stmt] or len(branch.orelse) != 1:
        return []
    other, inputs = branch.orelse[0], call_argument(call, 1, "inputs")
    if tree.is_elif(branch) or not tree.own_line(branch) or not only_reads(branch.test) or len(call.args) < 2:
        return []
    given = inputs.elts if isinstance(inputs, ast.Tuple) else [call.args[1]]
    run = text_of(ast.Call(call.args[0], list[ast.expr](given), []))
    one = text_of(stmt).replace(text_of(call), run)
    if one != text_of(other) or other.lineno != other.end_lineno:
        return []
    context.claim(stmt, branch.test)
    return [verbs.replace(branch, other)]


def _copied_runs(context: Context) -> Iterator[Change]:
    """Copies of a model on all GPUs that the script, or a function of another module that it calls, makes itself."""
    script, done = context.script, set[Scope]()
    for call in script.calls():
        if script.qualname(call.func) in k.COPIED_RUNS and script.scope_of(call) not in done:
            done.add(script.scope_of(call))
            yield _copied_run(context, call, "it")
        for callee in script.callees(call):
            module = script.interpreter.module_of(callee)
            if module in script.modules or callee in done or not module.tree.mentions("parallel"):
                continue
            if _copies(context, callee):
                done.add(callee)
                yield _copied_run(context, call, f"`{callee.name}`")


def _copies(context: Context, callee: Scope) -> bool:
    """Whether a function of another module runs copies of a model, itself or in methods of the same object."""
    scopes = [callee, *in_order({s for n in callee.nodes for s in _own_methods(context, callee, n)})]
    return any(_is_copied_run(context, scope, node) for scope in scopes for node in calls_in(scope.node))


def _is_copied_run(context: Context, scope: Scope, call: ast.Call) -> bool:
    """Whether a call is of torch's functions for it, or of a project's copy of the one that runs the copies."""
    module = context.script.interpreter.module_of(scope)
    return context.effects.qualname(module, scope, call.func) in k.COPIED_RUNS or any(
        callee.name == "parallel_apply" for callee in context.script.callees(call)
    )


def _own_methods(context: Context, scope: Scope, node: ast.AST) -> Set[Scope]:
    """The methods of the same object that a method calls at a node: `self.replicate(module, ids)`."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return set()
    own = scope.self_name() is not None and dotted(node.func.value) == scope.self_name()
    return context.script.callees(node) if own else set()


def _copied_run(context: Context, call: ast.Call, what: str) -> Change:
    message = (
        f"{what} copies the model to several GPUs and runs it there, in every process: call the model instead"
    )
    return context.todo(
        PARALLEL,
        call,
        message,
        "every process would run the model on all GPUs; call the prepared model instead",
    )
