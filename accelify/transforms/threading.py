"""The `accelerator` parameter of functions whose edits use it, and the argument in every call of them.

def train(model, loader, optimizer):    ->  def train(accelerator, model, loader, optimizer):
train(model, loader, optimizer)         ->  train(accelerator, model, loader, optimizer)

Where calls of such a function stay as they are, in files that are not converted with the script, they still fit:

def train(model, loader, optimizer):    ->  def train(model, loader, optimizer, accelerator=None):
                                                if accelerator is None:
                                                    accelerator = Accelerator()
train(model, loader, optimizer)         ->  train(model, loader, optimizer, accelerator=accelerator)
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import TypeAlias

from accelify.analysis.planning.anchors import NAME, node_of
from accelify.analysis.planning.homes import caller_of, class_value, function_of
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import Tree, calls_in, dotted
from accelify.analysis.values import Class, Imported
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore

_HOLDER = re.compile(rf"(\w+)\.{NAME}\b")
_Places: TypeAlias = Counter[ast.AST]
THREAD = Rule(
    "ACC105",
    "A function that trains has no way to the Accelerator.",
    Severity.ERROR,
    effort=3,
    done="passed the Accelerator to functions that use it",
)


def transform(context: Context, changes: list[Change]) -> Iterator[Change]:
    """Yield one change for every function that gets the parameter.

    Args:
        context: run last, when it is known which functions may need it.
        changes: what all the others yield: a function that was only considered takes no parameter for it.
    """
    reach = context.plan.reach
    assert reach is not None
    written = [edit for change in changes for edit in change.edits if NAME in verbs.text_of(edit)]
    places = _places(context.tree, written)
    needed = _needed(context, written, places)
    reach.threaded[:] = [scope for scope in reach.threaded if scope in needed]
    done: set[Scope] = set()
    # Writing the argument at a call can need the parameter one caller further out.
    while len(done) < len(reach.threaded):
        for scope in list(reach.threaded):
            if scope in done:
                continue
            done.add(scope)
            assert not isinstance(scope.node, ast.Module)
            problem, edits = "", []
            try:
                edits = _scope_edits(context, scope, places)
            except verbs.EditError as error:
                problem = str(error)
            change = context.change(
                THREAD, scope.node, f"`{scope.node.name}` needs the Accelerator", edits, core=True
            )
            yield Change(change.finding, change.edits, True, problem)


def _needed(context: Context, written: list[Edit], places: _Places) -> set[Scope]:
    """The functions and classes in which an edit writes the Accelerator, with those that pass it to them."""
    reach = context.plan.reach
    assert reach is not None
    classes = [scope for scope in reach.threaded if scope.kind == "class"]
    # `agent.accelerator` outside of the agent's class, which then has to store it.
    if classes and any(
        holder != "self" for edit in written for holder in _HOLDER.findall(verbs.text_of(edit))
    ):
        queue = classes[:]
    else:
        retained = {scope: _stored_for(context, scope) for scope in classes}
        queue = [scope for scope in classes if any(_has_in_objects(c, places) for c in retained[scope])]
    queue += [scope for scope in reach.threaded if scope.kind != "class" and places[scope.node]]
    needed = set(queue)
    while queue:
        for call in context.script.callers(function_of(context.script, queue.pop())):
            home = caller_of(context.script, call)
            if home in reach.threaded and home not in needed:
                needed.add(home)
                queue.append(home)
    return needed


def _places(tree: Tree, written: list[Edit]) -> _Places:
    """In which nodes edits write the Accelerator, or ask a person to do so, and how many of them."""
    nodes = map(verbs.node_of, written)
    return Counter(around for node in nodes for around in (node, *tree.ancestors(node)))


def _has_in_objects(cls: Scope, places: _Places) -> bool:
    """Whether a place is in a class and outside of methods that have no object: static methods and the class body."""
    bare = [s for s in cls.children.values() if s.is_method and not s.has_object]
    return places[cls.node] > sum(places[s.node] for s in bare)


def _stored_for(context: Context, scope: Scope) -> list[Scope]:
    """The classes whose methods find the Accelerator that a class keeps: it, and those that derive from it."""
    classes = [c for c in context.script.interpreter.entities.values() if isinstance(c, Class)]
    return [scope, *(c.scope for c in classes if any(base.scope is scope for base in c.ancestry()))]


def _hands_to_base(context: Context, call: ast.AST, places: _Places) -> bool:
    """Whether a call is the first line of a derived class's `__init__`, whose base then keeps the Accelerator.

    Nothing else in that line may use it: `self` does not have it before.
    """
    script, reach, tree = context.script, context.plan.reach, context.tree
    stmt = tree.parent(call)
    if reach is None or not isinstance(call, ast.Call) or not isinstance(stmt, ast.Expr):
        return False
    scope = script.scope_of(call)
    home = node_of(script, scope)
    callees = script.callees(call)
    if (
        home.kind != "class"
        or scope is not function_of(script, home)
        or stmt is not _first(scope)
        or not callees
    ):
        return False
    bases = {node_of(script, callee) for callee in callees}
    if not all(base.kind == "class" and base is not home and base in reach.threaded for base in bases):
        return False
    if any(callee is not function_of(script, node_of(script, callee)) for callee in callees):
        return False
    inner = (n for n in calls_in(call) if n is not call)
    if any(script.callees(n) for n in inner):
        return False
    return not places[stmt]


def _first(function: Scope) -> ast.stmt:
    """The first statement of a function after its docstring."""
    assert isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    body = function.node.body
    stated = isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant) and len(body) > 1
    return body[1] if stated else body[0]


def _begins_module(context: Context, scope: Scope, first: ast.stmt) -> bool:
    """Whether a statement is the `super().__init__()` of a torch module, after which attributes are set."""
    call = first.value if isinstance(first, ast.Expr) else None
    if (
        not isinstance(call, ast.Call)
        or not isinstance(call.func, ast.Attribute)
        or call.func.attr != "__init__"
    ):
        return False
    own = context.script.scope_of(call).self_name()
    plain = not call.keywords and all(dotted(argument) == own for argument in call.args)
    bases = class_value(context.script, scope).bases
    return plain and all(isinstance(one, Imported) and one.name == "torch.nn.Module" for one in bases)


def _scope_edits(context: Context, scope: Scope, places: _Places) -> list[Edit]:
    tree = context.tree
    function = function_of(context.script, scope)
    optional = context.stays_called(scope)
    edits: list[Edit] = _made_where_left_out(context, function) if optional else []
    if scope.kind == "class":
        first = _first(function)
        retained = isinstance(first, ast.Expr) and _hands_to_base(context, first.value, places)
        if not retained:
            lines = (f"{function.self_name()}.{NAME} = {NAME}",)
            afterwards = _begins_module(context, scope, first)
            edits.append((InsertAfter if afterwards else InsertBefore)(first, lines, order=-60))
    assert isinstance(function.node, (ast.FunctionDef, ast.AsyncFunctionDef))
    edits.append(_parameter(context, function, optional))
    for call in context.script.callers(function):
        accelerator = NAME if _hands_to_base(context, call, places) else context.accelerator(call)
        if accelerator is None:
            raise verbs.EditError(f"the Accelerator cannot be handed over in line {tree.line_of(call)}")
        if not optional and _is_unbound(context, call) and call.args:
            # `Base.__init__(self, lr)`: after the object.
            edits.append(verbs.AddArgument(call, accelerator, after=call.args[0]))
        else:
            edits.append(_argument(call, accelerator, optional))
    return edits


def _argument(call: ast.Call, accelerator: str, optional: bool) -> Edit:
    if optional:
        return verbs.AddArgument(call, f"{NAME}={accelerator}")
    return verbs.AddArgument(call, accelerator, first=True)


def _made_where_left_out(context: Context, function: Scope) -> list[Edit]:
    """The lines in which a function makes the Accelerator that a call has left out.

    Raises:
        EditError: when no line can be added before its first one.
    """
    first, script = _first(function), context.script
    if not context.tree.own_line(first):
        where = f"`{_name(function)}` in line {context.tree.line_of(function.node)}"
        raise verbs.EditError(
            f"{where}, which other files call, has its body in the line of its head: give it one"
        )
    # As the script makes it, as far as it does not depend on the script's options.
    arguments = [f"{name}={value}" for name, value in context.plan.arguments.items() if _is_literal(value)]
    made = f"{NAME} = Accelerator({', '.join(arguments)})"
    lines = (f"if {NAME} is None:", f"{context.tree.indent_unit()}{made}")
    edits: list[Edit] = [InsertBefore(first, lines, order=-61)]
    anchor, module = context.plan.anchor, script.module_of(function.node)
    if anchor is None or script.module_of(anchor.block[0]) is not module:
        root = module.scopes.module.node
        assert isinstance(root, ast.Module)
        package = "accelerate" if context.for_accelerate else "accelify.runtime"
        edits.append(context.import_line(root, f"from {package} import Accelerator")[0])
    return edits


def _is_literal(text: str) -> bool:
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return False
    return True


def _name(function: Scope) -> str:
    return getattr(function.node, "name", "")


def _is_unbound(context: Context, call: ast.Call) -> bool:
    """Whether a method is called through its class, with the object as the first argument."""
    return (
        isinstance(call.func, ast.Attribute)
        and any(isinstance(w, Class) for w in context.script.values(call.func.value))
        and all(scope.has_object for scope in context.script.callees(call))
    )


def _parameter(context: Context, function: Scope, optional: bool) -> Edit:
    node = function.node
    assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
    if optional:
        return verbs.AddParameter(node, NAME, default="None")
    own = function.self_name() is not None
    others = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs][own:]
    anchor, script = context.plan.anchor, context.script
    typed = bool(others) and all(one.annotation is not None for one in others)
    # Where the script imports it.
    imported = anchor is not None and script.module_of(anchor.block[0]) is script.module_of(node)
    after = [*node.args.posonlyargs, *node.args.args][0] if own else None
    return verbs.AddParameter(node, NAME, after, annotation="Accelerator" if typed and imported else "")
