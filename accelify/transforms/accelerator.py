"""The import, the Accelerator itself, and the one prepare.

from accelify.runtime import Accelerator
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
models = [accelerator.prepare(model) for model in models]

Where runs follow each other (folds, seeds), `accelerator.free_memory()` before a run makes its first objects lets go of
what the run before it has prepared.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from functools import partial

from accelify.analysis import values as v
from accelify.analysis.devices.named_devices import device_for
from accelify.analysis.interpretation.containers import DICT, TUPLE
from accelify.analysis.planning.homes import node_of
from accelify.analysis.planning.lifted import writes
from accelify.analysis.planning.sites import Item, PrepareSite
from accelify.analysis.schedules.separate_runs import begins_run
from accelify.analysis.values import Entity, Mapping
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore

IMPORT = Rule(
    "ACC101", "The script does not import the runtime.", Severity.ERROR, effort=1, done="made an Accelerator"
)
CREATE = Rule(
    "ACC102",
    "The script runs on one device: it has no Accelerator.",
    Severity.ERROR,
    effort=3,
    done="made an Accelerator",
)
PREPARE = Rule(
    "ACC106",
    "Models, optimizers and loaders are not prepared for several processes.",
    Severity.ERROR,
    effort=10,
    done="prepared the training objects",
)
DROPPED = Rule(
    "ACC410",
    "An option of the script cannot be read where the Accelerator is made, or is set later than that.",
    effort=5,
    done="read options where the Accelerator is made",
)
HANDED = Rule("ACC415", "A model is handed over by a script that is not converted with this one.", effort=10)
_LONGEST_LINE = 100


def transform(context: Context) -> Iterator[Change]:
    """Yield the import, the creation and the prepare statements."""
    yield _import(context)
    yield _creation(context)
    anchor, wish = context.plan.anchor, context.plan.dropped.get("cpu", "True")
    place = (anchor.before or anchor.after) if anchor is not None else None
    if place is not None and wish != "True":
        message = (
            f"`{wish}` is not known in every run where the Accelerator is made, which takes what the machine has: "
            f"give it cpu={wish} where that can be had"
        )
        yield context.change(DROPPED, place, message)
    yield from _set_later(context)
    yield from _prepares(context)
    yield from _handed(context)


def _set_later(context: Context) -> Iterator[Change]:
    """Report the options that a function still sets when the Accelerator has read them."""
    anchor, read = context.plan.anchor, context.plan.argument_reads.get("cpu", frozenset())
    if anchor is None or anchor.root.kind != "module" or not read:
        return
    for call in context.script.calls():
        if not any(writes(context.script, [call], name, depth=1) for name in read):
            continue
        scope = context.script.scope_of(call)
        if scope.kind == "function" and not scope.is_method:
            wish = context.plan.arguments["cpu"]
            message = (
                f"`{scope.name}` sets options when the Accelerator is made already, by the `{wish}` of before: "
                "what is given here for the device has no effect"
            )
            yield context.change(DROPPED, call, message)


def _handed(context: Context) -> Iterator[Change]:
    """Report the models that a caller outside of these files makes: the caller uses them where they were."""
    for site in context.plan.sites:
        if site.scope.kind != "function" or context.script.callers(site.scope):
            continue
        names = {argument.arg for argument in site.scope.parameters()} - {site.scope.self_name()}
        for item in site.items:
            for stmt in item.creations if item.kind == v.MODEL else ():
                given = getattr(stmt, "value", None)
                if isinstance(given, ast.Name) and given.id in names:
                    taker = site.scope.name.removesuffix(".__init__")
                    message = (
                        f"the model `{given.id}` is handed to `{taker}` by a script that is not converted with this "
                        "one: convert that one, which makes the model and what it works on"
                    )
                    yield context.change(HANDED, stmt, message)


def _import(context: Context) -> Change:
    anchor = context.plan.anchor
    anchored = anchor.block[0] if anchor is not None else context.tree.module
    root = context.script.module_of(anchored).scopes.module.node
    assert isinstance(root, ast.Module)
    arguments = context.plan.arguments.values()
    configured = (
        "DistributedDataParallelKwargs",
        "GradScalerKwargs",
        "GradientAccumulationPlugin",
        "DataLoaderConfiguration",
    )
    names = ["Accelerator", *[n for n in configured if any(n in value for value in arguments)]]
    package = "accelerate" if context.for_accelerate else "accelify.runtime"
    above = (
        partial(anchor.is_after, context.tree)
        if anchor is not None and anchor.root.kind == "module"
        else None
    )
    edit, place = context.import_line(root, f"from {package} import {', '.join(names)}", above)
    return context.change(IMPORT, place, "no Accelerator is imported", [edit], core=True)


def _creation(context: Context) -> Change:
    anchor = context.plan.anchor
    assert anchor is not None
    arguments = ", ".join(f"{name}={value}" for name, value in context.plan.arguments.items())
    name = "accelerator"
    if anchor.attribute:
        init = anchor.before or anchor.after
        assert init is not None
        name = f"{context.script.scope_of(init).self_name() or 'self'}.accelerator"
    lines: tuple[str, ...] = (f"{name} = Accelerator({arguments})",)
    place = anchor.before or anchor.after
    assert place is not None
    if len(context.tree.indent(place)) + len(lines[0]) > _LONGEST_LINE:
        unit = context.tree.indent_unit()
        lines = (
            f"{name} = Accelerator(",
            *[f"{unit}{k}={v}," for k, v in context.plan.arguments.items()],
            ")",
        )
    for stated in context.plan.named_devices:
        # For code that still reads it: tensors made in the loop, functions with a device parameter.
        lines += (
            f"{stated.text} = {device_for(context.script, stated.text, name, stated.others, stated.option)}",
        )
    edit = context.beside_accelerator(lines, order=-50)
    evidence = tuple(f"{key}={value}" for key, value in context.plan.arguments.items())
    return context.change(
        CREATE,
        place,
        f"there is no Accelerator, whose place is {'before' if anchor.before else 'after'} this statement: the script "
        "runs on one device",
        [edit],
        core=True,
        evidence=evidence,
    )


def _prepares(context: Context) -> Iterator[Change]:
    begins = begins_run(context.script, context.plan.sites, context.plan.anchor)
    for site in context.plan.sites:
        accelerator = context.accelerator(site.after)
        if accelerator is None:
            retained = context.plan.anchor is not None and context.plan.anchor.attribute
            accelerator = f"{site.scope.self_name() or 'self'}.accelerator" if retained else "accelerator"
        names = site.names()
        line = f"{', '.join(names)} = {accelerator}.prepare({', '.join(names)})"
        lines: tuple[str, ...] = (line,) if names else ()
        if len(context.tree.indent(site.after)) + len(line) > _LONGEST_LINE:
            unit = context.tree.indent_unit()
            lines = (f"{', '.join(names)} = {accelerator}.prepare(", f"{unit}{', '.join(names)}", ")")
        inner = [(item, _each(context, site, item, accelerator)) for item in site.containers()]
        models = [text for item, texts in inner for text in texts if item.kind == v.MODEL]
        others = [text for item, texts in inner for text in texts if item.kind != v.MODEL]
        # Optimizers come after the models whose parameters they update.
        if any(item.container is None and item.kind == v.MODEL for item in site.items):
            lines = (*models, *lines, *others)
        else:
            lines = (*models, *others, *lines)
        names += [item.holder.text(site.scope) for item, _ in inner]
        evidence = tuple(
            f"{item.holder.text(site.scope)}: {item.kind}, {note}"
            for item in site.items
            # A set has no order, but the report has to be the same in every run.
            for note in sorted({t.evidence[0] for t in item.entities if t.evidence})
        )
        message = f"{', '.join(names)} {'are' if len(names) > 1 else 'is'} not prepared for several processes"
        message += "; the place for it is after this statement"
        kinds = Counter({item.holder.text(site.scope): item.kind for item in site.items}.values())
        *most, last = (
            f"the {kind}" if number == 1 else f"{number} {kind}s" for kind, number in kinds.items()
        )
        done = f"prepared {' and '.join([*([', '.join(most)] if most else []), last])}"
        put_in: list[Edit] = [InsertAfter(site.after, lines)]
        if site is begins:
            freed = (f"{accelerator}.free_memory()",)
            put_in.append(InsertBefore(_first_made(context, site), freed, order=-50, above_comment=True))
        yield context.change(PREPARE, site.after, message, put_in, core=True, evidence=evidence, done=done)
    yield from _inline(context)


def _first_made(context: Context, site: PrepareSite) -> ast.stmt:
    """The first statement of the block of a site that makes something of what is prepared there."""
    made = {call for item in site.items for call in item.creations}
    block = context.tree.block_of(site.after)[2]
    return next((s for s in block if any(context.tree.is_within(call, {s}) for call in made)), site.after)


def _each(context: Context, site: PrepareSite, item: Item, accelerator: str) -> list[str]:
    """The statements that prepare the elements of a container: all in one, or those that are sharded."""
    name = item.holder.text(site.scope)
    if item.kind == v.LOADER and (keys := _keys_of_some(context, item)):
        return [f"{name}[{key!r}] = {accelerator}.prepare({name}[{key!r}])".replace("'", '"') for key in keys]
    short = item.holder.name
    one = short[:-1] if len(short) > 2 and short.endswith("s") and not short.endswith("ss") else item.kind
    if one in (accelerator, "name", short):
        one = "element"
    shared = context.plan.placement.containers.is_shared(item.holder)
    if item.container == DICT:
        each = f"{{name: {accelerator}.prepare({one}) for name, {one} in {name}.items()}}"
        return [f"{name}.update({each})" if shared else f"{name} = {each}"]
    each = f"{accelerator}.prepare({one}) for {one} in {name}"
    if item.container == TUPLE:
        return [f"{name} = tuple({each})"]
    return [f"{name}[:] = [{each}]" if shared else f"{name} = [{each}]"]


def _keys_of_some(context: Context, item: Item) -> list[object]:
    """The keys of a dictionary under which loaders are sharded, where others in it stay whole."""
    chosen: dict[object, None] = {}
    whole = False
    for container in item.holder.containers:
        if not isinstance(container, Mapping) or container.rest:
            return []
        for key, values in container.entries.items():
            loaders = {w for w in values if isinstance(w, Entity) and w.kind == v.LOADER}
            if loaders & context.plan.prepared:
                chosen[key] = None
            whole = whole or (bool(loaders) and not loaders & context.plan.prepared)
    return list(chosen) if whole and all(isinstance(key, str) for key in chosen) else []


def _why_not_had(context: Context, call: ast.Call) -> str:
    """Where a loader is made that cannot be prepared, and why the Accelerator is not available there."""
    path, line, _ = context.tree.place(call)
    why = f"the Accelerator cannot be had where a loader is made ({path}, line {line})"
    reach = context.plan.reach
    home = node_of(context.script, context.script.scope_of(call))
    obstacle = reach.obstacles.get(home) if reach is not None else None
    return f"{why}: {obstacle}" if obstacle else why


def _inline(context: Context) -> Iterator[Change]:
    for call in context.plan.inline:
        reached = context.accelerator(call)
        kind = "optimizer" if context.script.is_a(call, v.OPTIMIZER) else "loader"
        message = f"the {kind} is not prepared for several processes"
        if reached is None:
            change = context.change(PREPARE, call, message)
            yield Change(change.finding, (), True, _why_not_had(context, call))
            continue
        edits: list[Edit] = [
            verbs.replace(call, f"{reached}.prepare(", call, ")", order=10),
        ]
        yield context.change(PREPARE, call, message, edits, core=True, done=f"prepared the {kind}")
