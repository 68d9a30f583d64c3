"""Attributes and methods of a model that is wrapped after prepare.

model.module.encoder                  ->  accelerator.unwrap_model(model).encoder
model = model.cpu().module            ->  model = accelerator.unwrap_model(model).cpu()
model.hidden = None                   ->  accelerator.unwrap_model(model).hidden = None
sample = model.decode(z)  # no_grad   ->  sample = accelerator.unwrap_model(model).decode(z)
if type(model) is Net:                ->  if type(accelerator.unwrap_model(model)) is Net:
name = type(optimizer).__name__       ->  name = type(optimizer.optimizer).__name__
x = attack(model, x)  # of a copy     ->  x = attack(accelerator.unwrap_model(model), x)
torch.jit.script(model)               ->  torch.jit.script(accelerator.unwrap_model(model))
export(model.float(), x)  # by one    ->  export(accelerator.unwrap_model(model).float(), x)

Functions of other modules that ask for the class of a model, or read `.module` of it, are named by ACC715.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.models.parallel_wraps import is_unread_and_stays
from accelify.analysis.models.run_only_copies import copied_parameters, is_run_only
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import dotted, is_constant, text_of, walk
from accelify.transforms.asked_of_models import (
    GIVING_BACK,
    asks_for_class,
    is_compiled,
    is_list_by_now,
    taker_of,
)
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

# Attributes that a wrapper forwards to the model, or that other rules handle.
_THROUGH_WRAPPER = frozenset({"forward", "state_dict", "load_state_dict", "to", "cuda", "cpu", "zero_grad"})
# Functions of torch that look at the parts of a module, and would find those of the wrapper.
_LOOKS_INSIDE = frozenset(
    """state_dict load_state_dict children named_children modules named_modules get_submodule get_parameter get_buffer
    add_module register_module register_buffer register_parameter""".split()
)
# Around a model, what counts its parts, takes them or tests its class.
_TAKING_PARTS = frozenset({ast.Subscript, ast.For, ast.comprehension, ast.Starred, ast.Call})
_LOWER = "`{}` is another one in the wrapper that models have on several processes"
UNWRAP = Rule(
    "ACC208",
    "After prepare the model may be wrapped: its own attributes lie one level down.",
    effort=1,
    done="unwrapped the model where its attributes are used",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield unwrap_model for what is read off a prepared model."""
    yield from _either_way(context)
    yield from _bare_uses(context)
    yield from _copied(context)
    yield from _after_a_move(context)
    yield from _types_of_steppers(context)
    yield from _of_copies(context)
    tree = context.tree
    for node in tree.nodes(ast.Attribute):
        if context.is_claimed(node) or not isinstance(node.value, (ast.Name, ast.Attribute)):
            continue
        through_module = isinstance(node.value, ast.Attribute) and node.value.attr == "module"
        base = node.value.value if through_module and isinstance(node.value, ast.Attribute) else node.value
        own = (through_module or node.attr == "module") and _has_part_of_that_name(context, base)
        if own and through_module and context.script.models_of(base) == context.script.models_of(node.value):
            continue  # `net.module` of `net.module.fc` is what is read off the model
        if own:
            through_module, base = False, node.value
        if node.attr == "module" and not own and not _keeps_bare_module(context, node):
            continue
        known = _can_be_wrapped if node.attr == "__class__" else _is_prepared_name
        if not isinstance(base, (ast.Name, ast.Attribute)) or not known(context, base):
            continue
        if not through_module and _rebinds(context, node):
            continue
        if _is_unwrapped(context, base):
            continue
        if not through_module and (own or node.attr != "module"):
            overridden = node.attr in k.MODULE_API and _is_overridden(context, node)
            if (node.attr in k.MODULE_API and not overridden) or not _after_prepare(context, base):
                continue
            # What only one process runs never uses the wrapper: it would wait there for the others.
            if not overridden and not context.is_guarded(node) and _routed(context, node):
                if not context.for_accelerate:
                    continue
                context.trained_methods.append(node)
        if (through_module or node.attr == "module") and not own and _is_before_prepare(context, node, base):
            message = f"`{tree.segment(node)}` is the model's own: nothing wraps it here any more"
            yield context.change(
                UNWRAP,
                node,
                message,
                [verbs.replace(node if node.attr == "module" else node.value, base)],
                core=True,
            )
            continue
        accelerator = context.accelerator(node)
        if accelerator is None:
            if through_module:
                yield _out_of_reach(context, node)
            continue
        whole = node if node.attr == "module" and not own else node.value
        edit = verbs.replace(whole, f"{accelerator}.unwrap_model({tree.segment(base)})")
        yield context.change(
            UNWRAP,
            node,
            _LOWER.format(tree.segment(node)),
            [edit],
            core=through_module,
        )


def _types_of_steppers(context: Context) -> Iterator[Change]:
    """`type(optimizer)` of a prepared optimizer or schedule, which is of the wrapper's type."""
    script, tree = context.script, context.tree
    for call in tree.nodes(ast.Call) if tree.mentions("type") else ():
        if len(call.args) != 1 or script.qualname(call.func) not in ("type", "builtins.type"):
            continue
        node = call.args[0]
        found = script.entities(node, v.OPTIMIZER, v.SCHEDULER)
        kinds = {entity.kind for entity in found}
        if len(kinds) != 1 or not found <= context.plan.prepared or context.is_claimed(node):
            continue
        if context.plan.after_prepare(node, found):
            context.claim(node)
            name = "optimizer" if kinds == {v.OPTIMIZER} else "scheduler"
            message = f"a prepared {name} is of the wrapper's class"
            yield context.change(UNWRAP, call, message, [verbs.replace(node, node, f".{name}")])


def _of_copies(context: Context) -> Iterator[Change]:
    """`shadow.module` of a deep copy, which is of the wrapper where the copied model has one, and else of the model."""
    script, tree = context.script, context.tree
    if not tree.mentions("deepcopy") or not tree.mentions("DataParallel"):
        return
    for node in tree.nodes(ast.Attribute):
        if node.attr != "module" or context.is_claimed(node):
            continue
        if not isinstance(node.ctx, ast.Load) or not isinstance(node.value, (ast.Name, ast.Attribute)):
            continue
        models = script.models_of(node.value)
        prepared = context.plan.prepared
        if models & prepared or not any(model.link("original") & prepared for model in models):
            continue
        accelerator = context.accelerator(node)
        if accelerator is not None:
            context.claim(node)
            text = f"{accelerator}.unwrap_model({tree.segment(node.value)})"
            edit = verbs.replace(node, text)
            yield context.change(UNWRAP, node, _LOWER.format(tree.segment(node)), [edit])


def _after_a_move(context: Context) -> Iterator[Change]:
    """`model.cpu().module`: what moves a model or sets its mode returns it as it is, wrapped or not."""
    tree = context.tree
    for node in tree.nodes(ast.Attribute) if tree.mentions(").module") else ():
        model: ast.expr = node.value
        while isinstance(model, ast.Call) and isinstance(model.func, ast.Attribute):
            if model.func.attr not in GIVING_BACK:
                break
            model = model.func.value
        if node.attr != "module" or model is node.value or not isinstance(model, (ast.Name, ast.Attribute)):
            continue
        if context.is_claimed(node) or not _is_prepared_name(context, model):
            continue
        if _has_part_of_that_name(context, model):
            continue
        gone = verbs.replace(node, node.value)
        if _is_before_prepare(context, node, model):
            message = f"`{tree.segment(node)}` is the model's own: nothing wraps it here any more"
            yield context.change(UNWRAP, node, message, [gone], core=True)
            continue
        accelerator = context.accelerator(node)
        if accelerator is None:
            yield _out_of_reach(context, node)
            continue
        bare = verbs.replace(model, f"{accelerator}.unwrap_model({tree.segment(model)})")
        yield context.change(UNWRAP, node, _LOWER.format(tree.segment(node)), [bare, gone], core=True)


def _out_of_reach(context: Context, node: ast.Attribute) -> Change:
    """Why a script cannot be converted: a `.module` that cannot be removed without an Accelerator."""
    finding = context.change(UNWRAP, node, "`.module` is there only while it is wrapped").finding
    line = context.tree.line_of(node)
    reason = f"`.module` in line {line} is read where the Accelerator cannot be had"
    return Change(finding, (), True, reason)


def _without(arm: ast.expr, read: ast.Attribute) -> str:
    """An expression as it is without an attribute that is read in it."""

    class Without(ast.NodeTransformer):
        def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
            return node.value if text_of(node) == text_of(read) else self.generic_visit(node)

    return ast.unparse(Without().visit(copy.deepcopy(arm)))


def _either_way(context: Context) -> Iterator[Change]:
    """`model.module if several else model` is the same model, wrapped or not."""
    tree = context.tree
    for choice in tree.nodes(ast.IfExp) if tree.mentions(".module") else ():
        if context.is_claimed(choice):
            continue
        for arm, bare in ((choice.body, choice.orelse), (choice.orelse, choice.body)):
            inner = [n for n in walk(arm) if isinstance(n, ast.Attribute) and n.attr == "module"]
            if len(inner) != 1 or _without(arm, inner[0]) != ast.unparse(bare):
                continue
            model, accelerator = inner[0].value, context.accelerator(choice)
            if accelerator is None or not _is_prepared_name(context, model):
                continue
            if _has_part_of_that_name(context, model):
                continue
            text = f"{accelerator}.unwrap_model({tree.segment(model)})"
            if _is_before_prepare(context, inner[0], model):
                text = tree.segment(model)
            context.claim(choice)
            edits: list[Edit] = [verbs.replace(choice, arm), verbs.replace(inner[0], text)]
            message = "whether the model is wrapped is for the Accelerator to know"
            yield context.change(UNWRAP, choice, message, edits, core=True)
            break


def _is_unwrapped(context: Context, node: ast.expr) -> bool:
    """Whether a name holds what was unwrapped where it was bound: `bare = model.module if several else model`."""
    bound = list(context.locations[1].bindings(node)) if isinstance(node, ast.Name) else []
    return bool(bound) and all(
        isinstance(stmt, ast.Assign)
        and isinstance(stmt.targets[0], ast.Name)
        and (
            (isinstance(stmt.value, ast.IfExp) and stmt.value in context.claimed)
            or (
                isinstance(stmt.value, ast.Attribute)
                and stmt.value.attr == "module"
                and _keeps_bare_module(context, stmt.value)
                and not _has_part_of_that_name(context, stmt.value.value)
            )
        )
        for stmt in bound
    )


def _rebinds(context: Context, node: ast.Attribute) -> bool:
    """Whether a method returns the model to the same name, which must still be the prepared model."""
    call = context.tree.parent(node)
    stmt = context.tree.parent(call) if isinstance(call, ast.Call) and call.func is node else None
    return isinstance(stmt, ast.Assign) and any(dotted(t) == dotted(node.value) for t in stmt.targets)


def _is_overridden(context: Context, node: ast.Attribute) -> bool:
    """Whether the model defines a method of `nn.Module` itself, which a wrapper does not call, or calls differently.

    `def train(self, x, y): ...` that trains; any wrapper calls `def train(self, mode=True)`.
    """
    if node.attr in _THROUGH_WRAPPER:
        return False
    for model in context.script.models_of(node.value):
        own = model.cls.method(node.attr) if model.cls is not None else None
        if own is not None and (node.attr != "train" or not _is_torchs_train(context, own[1], node)):
            return True
    return False


def _is_torchs_train(context: Context, method: Scope, node: ast.Attribute) -> bool:
    """Whether a model's `train` takes what torch's does, a mode, and is called here with no more than that."""
    call, arguments = context.tree.parent(node), getattr(method.node, "args", None)
    if isinstance(call, ast.Call) and call.func is node:
        if len(call.args) > 1 or any(kw.arg != "mode" for kw in call.keywords):
            return False
    if arguments is None or arguments.vararg:
        return arguments is not None
    named = [*arguments.posonlyargs, *arguments.args][1:]
    if not named or len(named) > len(arguments.defaults) + 1:
        return False
    default = arguments.defaults[0] if len(named) == len(arguments.defaults) else None
    annotated = isinstance(named[0].annotation, ast.Name) and named[0].annotation.id == "bool"
    return named[0].arg == "mode" or annotated or is_constant(default, True, False)


def _has_part_of_that_name(context: Context, node: ast.expr) -> bool:
    """Whether `module` is an attribute that the model's class defines, and not the wrapper's name for the model."""
    models = context.script.models_of(node)
    return any(
        "module" in c.attributes for t in models if t.cls is not None for c in t.cls.ancestry()
    ) or any(is_unread_and_stays(context.script, model) for model in models)


def _is_before_prepare(context: Context, node: ast.AST, base: ast.expr) -> bool:
    """Whether a node is sure to run before its model is prepared: above it in one function, and in no loop."""
    scope, models = context.script.scope_of(node), context.script.models_of(base)
    own = [
        site
        for site in context.plan.sites
        if site.scope is scope and any(models & item.entities for item in site.items)
    ]
    return (
        bool(own)
        and not context.script.enclosing_loops(node)
        and not any(context.tree.is_after(node, site.after) for site in own)
    )


def _bare_uses(context: Context) -> Iterator[Change]:
    """`len(model)`, `model[0]`, `for layer in model`, which a wrapper does not have."""
    tree = context.tree
    compiles = any(module.tree.mentions("jit") for module in context.script.program.modules.values())
    for name in tree.nodes(ast.Name, ast.Attribute):
        parent = tree.parent(name)
        if type(parent) is ast.Attribute:
            if not compiles and parent.attr not in GIVING_BACK:
                continue
        elif not compiles and not context.guarded and type(parent) not in _TAKING_PARTS:
            continue
        if not isinstance(name.ctx, ast.Load) or (isinstance(name, ast.Attribute) and name.attr == "module"):
            continue
        wanted = (
            (isinstance(parent, ast.Subscript) and parent.value is name)
            or (isinstance(parent, (ast.For, ast.comprehension)) and parent.iter is name)
            or (isinstance(parent, ast.Starred))
            or (
                isinstance(parent, ast.Call)
                and isinstance(parent.func, ast.Name)
                and parent.func.id in ("len", "list")
            )
        )
        by_itself = wanted
        asked = isinstance(parent, ast.Call) and asks_for_class(context, parent, name)
        if (not isinstance(parent, ast.Attribute) or taker_of(tree, name) is not None) and context.is_guarded(
            name
        ):
            # Only one process runs this: the wrapper would wait there for the others.
            wanted = True
        compiled = compiles and is_compiled(context, name)
        if not (wanted or asked or compiled) or context.is_claimed(name):
            continue
        known = _can_be_wrapped if asked else _is_prepared_name
        if not known(context, name) or not _after_prepare(context, name):
            continue
        if by_itself and is_list_by_now(context, name):
            continue
        accelerator = context.accelerator(name)
        if accelerator is None:
            continue
        edit = verbs.replace(name, f"{accelerator}.unwrap_model({tree.segment(name)})")
        message = "a wrapped model has no parts to count or to take"
        if asked:
            message = "a wrapped model is of the wrapper's class"
        elif compiled:
            message = "TorchScript compiles the model and cannot compile a wrapper of it"
        yield context.change(UNWRAP, name, message, [edit])


def _copied(context: Context) -> Iterator[Change]:
    """Models of which a copy is made and run for its input's gradient, here or in a module that is not converted."""
    script = context.script
    for call in script.calls() if script.backwards else ():
        copied: list[ast.expr] = []
        message = "a copy of the wrapper waits for gradients of all the parts that the model has now"
        if script.qualname(call.func) == "copy.deepcopy":
            if len(call.args) == 1 and is_run_only(script, script.scope_of(call), call):
                copied = call.args
        elif not script.callees(call):
            continue
        elif callees := script.callees(call) & script.backward_elsewhere:
            copied = _handed(call, {s: copied_parameters(script, s) for s in callees})
        for model in copied:
            if not isinstance(model, (ast.Name, ast.Attribute)) or context.is_claimed(model):
                continue
            models = script.models_of(model) & context.plan.prepared
            accelerator = context.accelerator(model)
            if not models or accelerator is None or not context.plan.after_prepare(model, models):
                continue
            context.claim(model)
            edit = verbs.replace(model, context.unwrapped(model, accelerator))
            yield context.change(UNWRAP, model, message, [edit])


def _handed(call: ast.Call, wanted: dict[Scope, set[str]]) -> list[ast.expr]:
    """The arguments of a call that all of its functions take under names which are wanted."""
    pairs = [(names, handed_to(call, callee)) for callee, names in wanted.items() if names]
    if len(pairs) < len(wanted):
        return []
    return [
        argument
        for argument in [*call.args, *[kw.value for kw in call.keywords]]
        if all(any(a is argument and name in names for a, name in given) for names, given in pairs)
    ]


def _keeps_bare_module(context: Context, node: ast.Attribute) -> bool:
    """Whether `model.module` is used as a value (`net = model.module`) and not as part of a longer chain."""
    return not isinstance(context.tree.parent(node), ast.Attribute) and context.plan.is_prepared(
        node.value, v.MODEL
    )


def _is_prepared_name(context: Context, node: ast.expr) -> bool:
    models = context.script.models_of(node)
    prepared = bool(models) and models <= context.plan.prepared
    return prepared and not context.plan.placement.is_only_evaluated(node)


def _can_be_wrapped(context: Context, node: ast.expr) -> bool:
    """Whether one of the models of a name is prepared: to unwrap another one gives that back."""
    return bool(context.script.models_of(node) & context.plan.prepared)


def _after_prepare(context: Context, model: ast.expr) -> bool:
    """Whether a model is prepared already where it is read."""
    return context.plan.after_prepare(model, context.script.models_of(model))


def _routed(context: Context, node: ast.Attribute) -> bool:
    """Whether it is a method called to train: the runtime runs it through the wrapper, which reduces its gradients."""
    parent = context.tree.parent(node)
    if not (isinstance(parent, ast.Call) and parent.func is node) or node.attr in _LOOKS_INSIDE:
        return False
    if context.is_guarded(node) or context.plan.on_main_only(node):
        return False  # only one process runs it, and the wrapper would wait there for the others
    callees = context.script.callees(parent)
    if callees & context.script.training_scopes or callees & context.script.backward_elsewhere:
        return False  # it trains itself: its backward would run inside the wrapper's forward
    scope = context.script.scope_of(node)
    if scope not in {b.scope for b in context.script.backwards}:
        return False
    for ancestor in context.tree.ancestors(node):
        if isinstance(ancestor, ast.With):
            for item in ancestor.items:
                call = item.context_expr
                if isinstance(call, ast.Call) and context.script.qualname(call.func) in k.NO_GRAD:
                    return False
        if isinstance(ancestor, (ast.For, ast.While)) and context.script.trains(ancestor):
            return True
    return scope.kind == "function"
