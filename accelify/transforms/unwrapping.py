"""Attributes and methods of a model that is wrapped after prepare.

model.module.encoder                  ->  accelerator.unwrap_model(model).encoder
model.hidden = None                   ->  accelerator.unwrap_model(model).hidden = None
sample = model.decode(z)  # no_grad   ->  sample = accelerator.unwrap_model(model).decode(z)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.edits import Replace
from accelify.transforms.base import Change, Context, Rule

UNWRAP = Rule(
    "ACC208",
    "unwrap-model",
    "After prepare the model may be wrapped: its own attributes lie one level down.",
    effort=1,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield unwrap_model for what is read off a prepared model."""
    yield from _bare_uses(context)
    tree = context.tree
    for node in tree.nodes(ast.Attribute):
        if (
            context.is_claimed(node)
            or tree.in_fstring(node)
            or not isinstance(node.value, (ast.Name, ast.Attribute))
        ):
            continue
        through_module = isinstance(node.value, ast.Attribute) and node.value.attr == "module"
        base = node.value.value if through_module and isinstance(node.value, ast.Attribute) else node.value
        if node.attr == "module" and not _keeps_bare_module(context, node):
            continue
        if not isinstance(base, (ast.Name, ast.Attribute)) or not _is_prepared_name(context, base):
            continue
        if not through_module and node.attr != "module":
            if node.attr in k.MODULE_API or not context.plan.after_prepare(node):
                continue
            if _routed(context, node):
                if not context.for_accelerate:
                    continue
                context.trained_methods.append(node)
        elif (
            through_module
            and node.attr in k.MODULE_API
            and node.attr != "state_dict"
            and not context.plan.after_prepare(node)
        ):
            continue
        accelerator = context.accelerator(node)
        if accelerator is None:
            if through_module:
                yield Change(
                    context.change(UNWRAP, node, "`.module` is there only while it is wrapped").finding, (), True,
                    f"`.module` in line {node.lineno} is read where the Accelerator cannot be had",
                )  # fmt: skip
            continue
        text = f"{accelerator}.unwrap_model({tree.segment(base)})"
        end = tree.end(node) if node.attr == "module" else tree.end(node.value)
        edit = Replace(tree.start(node), end, text)
        yield context.change(
            UNWRAP,
            node,
            f"`{tree.segment(node)}` lies one level down once the model is wrapped",
            [edit],
            core=through_module,
        )


def _bare_uses(context: Context) -> Iterator[Change]:
    """`len(model)`, `model[0]`, `for layer in model`, which a wrapper does not have."""
    tree = context.tree
    for name in tree.nodes(ast.Name, ast.Attribute):
        if not isinstance(name.ctx, ast.Load) or context.is_claimed(name) or tree.in_fstring(name):
            continue
        if isinstance(name, ast.Attribute) and name.attr == "module":
            continue
        parent = tree.parent(name)
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
        if not isinstance(parent, ast.Attribute) and context.is_guarded(name):
            # Only one process runs this: the wrapper would wait there for the others.
            wanted = True
        if not wanted or not _is_prepared_name(context, name) or not context.plan.after_prepare(name):
            continue
        accelerator = context.accelerator(name)
        if accelerator is None:
            continue
        edit = verbs.replace(tree, name, f"{accelerator}.unwrap_model({tree.segment(name)})")
        yield context.change(UNWRAP, name, "a wrapped model has no parts to count or to take", [edit])


def _keeps_bare_module(context: Context, node: ast.Attribute) -> bool:
    """Whether `model.module` stands for itself (`net = model.module`) and not as part of a longer chain."""
    return not isinstance(context.tree.parent(node), ast.Attribute) and context.plan.is_prepared(
        node.value, v.MODEL
    )


def _is_prepared_name(context: Context, node: ast.expr) -> bool:
    models = context.script.models_of(node)
    return bool(models) and models <= context.plan.prepared


def _routed(context: Context, node: ast.Attribute) -> bool:
    """Whether it is a method called to train: the runtime runs it through the wrapper, which reduces its gradients."""
    parent = context.tree.parent(node)
    if not (isinstance(parent, ast.Call) and parent.func is node) or node.attr in (
        "state_dict",
        "load_state_dict",
    ):
        return False
    if context.script.callees(parent) & context.script.training_scopes:
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
