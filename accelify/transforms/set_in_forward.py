"""Parameters that a model sets or makes while it runs: from its first batch, which every process has another one of.

if not self.initialized:
    self.shift.data.copy_(-x.mean(0))     (a finding: each process sets its own, behind the broadcast of prepare)

self.sums = nn.Parameter(self.sums * decay + (1 - decay) * chosen.t() @ x)     (a finding: in every forward)

self.codes = decay * self.codes + (1 - decay) * means(x)    (the same for buffers that the output is made with)

update_bn(loader, model)     (each process from its own share of the loader)

codes = nn.Embedding(count, size, max_norm=1)     (a finding: it scales the rows that this process looks up)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.models.bounded_rows import bounded_embeddings
from accelify.analysis.models.updated_buffers import updated_buffers
from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted, names_in, text_of, walk
from accelify.analysis.values import Class
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short

IN_FORWARD = Rule(
    "ACC422",
    "set-in-forward",
    "Parameters that a forward sets from its batch are each process's own.",
    Severity.WARNING,
    effort=15,
)
_ANEW = frozenset({"update_bn", "bn_update"})
_FILLING = frozenset({"copy_", "set_"})
_BOUNDING = frozenset("clamp clip clamp_min clamp_max abs relu detach clone".split())


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each class of a prepared model whose forward sets a parameter."""
    if not context.plan.shares_training_data or not any(t.kind == v.MODEL for t in context.plan.prepared):
        return
    script = context.script
    yield from _bounded(context)
    yield from _made_anew(context)
    for cls in script.interpreter.classes():
        words = (b"Parameter(", b"register_buffer(")
        if (
            not any(cls.module.tree.mentions(word) for word in words)
            or script.interpreter.kind_of_class(cls) != v.MODEL
        ):
            continue
        found = _set_in_forward(cls)
        if found is None:
            yield from _of_buffers(context, cls)
            continue
        updated = _updated_in_forward(cls)
        if updated is None and _are_run_first(context):
            continue
        own = cls.module in script.modules
        where = "" if own else f" ({cls.module.path.name})" if cls.module.path is not None else ""
        message = (
            f"`{cls.name}`{where} sets parameters in its forward, and each process would from its own batch: run one "
            "batch through the model before prepare"
        )
        if updated is not None:
            what = "each of them" if len(updated) > 1 else "it"
            message = (
                f"`{cls.name}`{where} updates {_listed(updated)} in every forward, from one process's own batch, so "
                f"that the models of the processes part: sum what the batch adds to {what} over all processes first "
                '(accelerator.reduce(..., reduction="sum"))'
            )
        yield context.change(IN_FORWARD, found if own else script.backwards[0].call, message)


def _are_run_first(context: Context) -> bool:
    """Whether the script runs its models before prepare, which gives all processes what the main one has set."""
    script, plan = context.script, context.plan
    models = {thing for thing in plan.prepared if thing.kind == v.MODEL}
    for site in plan.sites:
        own = {thing for item in site.items for thing in item.things} & models
        for call in site.scope.nodes if own else ():
            if isinstance(call, ast.Call) and not script.tree.is_after(call, site.after):
                models -= script.models_run(call) & own
    return not models


def _made_anew(context: Context) -> Iterator[Change]:
    """Statistics of batch norm that are made anew over a loader, without a backward that would share them."""
    script = context.script
    for call in script.calls():
        name = script.qualname(call.func) or str(getattr(call.func, "attr", ""))
        if name.rsplit(".", 1)[-1] not in _ANEW or script.callees(call):
            continue
        shared = [a for a in call.args if script.things(a, v.LOADER) & context.plan.prepared]
        if shared:
            text = short(context.tree.segment(shared[0]))
            message = (
                f"`{short(context.tree.segment(call.func))}` takes the statistics of batch norm from one process's "
                f"share of `{text}`, so that each process has others: give it a loader of all the data that is not "
                "prepared"
            )
            yield context.change(IN_FORWARD, call, message)


def _of_buffers(context: Context, cls: Class) -> Iterator[Change]:
    """Codebooks and the like, which are kept in buffers: those of the main process are kept for all."""
    forward = next((m for m in cls.scope.children.values() if m.name.endswith("forward")), None)
    updated = updated_buffers(cls, _reached(cls, forward)) if forward is not None else None
    if updated is None:
        return
    names, place = updated
    own = cls.module in context.script.modules
    where = "" if own or cls.module.path is None else f" ({cls.module.path.name}, line {place.lineno})"
    message = (
        f"`{cls.name}`{where} moves {_listed(names)} on in every forward by one process's own batch, and those of the "
        "main process are kept for all: sum what the batch adds over all processes first "
        '(accelerator.reduce(..., reduction="sum"))'
    )
    yield context.change(IN_FORWARD, place if own else context.script.backwards[0].call, message)


def _bounded(context: Context) -> Iterator[Change]:
    """Embeddings that scale what is looked up: the rows of its own batch, on each process others."""
    script = context.script
    for thing, bound in bounded_embeddings(script, context.plan.prepared):
        own = thing.module in script.modules
        site = thing.site if own else script.backwards[0].call
        assert site is not None
        path = thing.module.path if thing.module is not None and not own else None
        file = "" if path is None else f" ({path.name})"
        name = min(thing.names, key=len, default="the embedding")
        given = "" if isinstance(bound, ast.Constant) else f", where `{text_of(bound)}` is given,"
        message = (
            f"`{name}`{file}{given} scales by max_norm in place the rows that a forward looks up, which each process "
            "does for its own batch only, so that the weights of the processes part: look up those of all processes "
            f"first (with torch.no_grad(): {name}(accelerator.gather_for_metrics(indices)))"
        )
        yield context.change(IN_FORWARD, site, message)


def _set_in_forward(cls: Class) -> ast.AST | None:
    own = {dotted(n.targets[0]) for m in cls.scope.children.values() for n in _parameters_made(m)}
    own |= {
        name for m in cls.scope.children.values() for n in m.nodes if (name := _registered(n)) is not None
    }
    forward = next((m for m in cls.scope.children.values() if m.name.endswith("forward")), None)
    for method in _reached(cls, forward) if forward is not None else ():
        made = next(_parameters_made(method), None)
        if made is not None:
            return made
        for node in method.nodes:
            if _registered(node) is not None or any(
                name in own and not all(_keeps_to_itself(value, name) for value in values)
                for name, values in _filled(node)
            ):
                return node
    return None


def _registered(node: ast.AST) -> str | None:
    """`self.x`, of `self.register_parameter("x", ...)`."""
    if not isinstance(node, ast.Call) or dotted(node.func) != "self.register_parameter" or not node.args:
        return None
    name = node.args[0]
    return f"self.{name.value!s}" if isinstance(name, ast.Constant) else "self.?"


def _filled(node: ast.AST) -> Iterator[tuple[str, list[ast.expr]]]:
    """What gets other values in place, and from what: `self.x.data.copy_(y)`, `self.x.data = y`."""
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _FILLING:
        yield (dotted(node.func.value) or "").removesuffix(".data"), node.args
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            name = dotted(target) or ""
            if name.endswith(".data"):
                yield name.removesuffix(".data"), [node.value]


def _updated_in_forward(cls: Class) -> list[str] | None:
    """The parameters and buffers in which a forward carries something on from batch to batch, one parameter among
    them; None where it sets its parameters anew."""
    forward = next((m for m in cls.scope.children.values() if m.name.endswith("forward")), None)
    methods = _reached(cls, forward) if forward is not None else []
    carried: dict[str, bool] = {}
    for method in methods:
        own = method.locals - {method.self_name() or ""}
        for n in method.nodes:
            name = dotted(n.targets[0]) or "" if isinstance(n, ast.Assign) else ""
            if isinstance(n, ast.Assign) and name.startswith("self.") and name in _attributes_in(n.value):
                carried[name] = carried.get(name, False) or bool(names_in(n.value) & own)
    # A count of the rounds is the same on every process.
    beside = [name for name, of_batch in carried.items() if of_batch]
    for method in methods:
        for made in _parameters_made(method):
            read, target = _attributes_in(made.value), str(dotted(made.targets[0]))
            if read & carried.keys():
                # Of one that is only made of what is carried on, that is what a batch adds to.
                first = [] if beside and target not in read else [target]
                return list(dict.fromkeys([*first, *beside]))
        for base, values in (filled for node in method.nodes for filled in _filled(node)):
            if any(base in _attributes_in(value) and not _keeps_to_itself(value, base) for value in values):
                return list(dict.fromkeys([base, *beside]))
    return None


def _keeps_to_itself(value: ast.expr, name: str) -> bool:
    """Whether a parameter is only held within bounds: `torch.clamp(self.a.data, 0.1, 3.0)`, on all processes alike."""
    while (
        isinstance(value, ast.Call) and isinstance(value.func, ast.Attribute) and value.func.attr in _BOUNDING
    ):
        known = dotted(value.func.value) == "torch" and bool(value.args)
        bounds = [*value.args[int(known) :], *[kw.value for kw in value.keywords]]
        if not all(_is_number(bound) for bound in bounds):
            return False
        value = value.args[0] if known else value.func.value
    return (dotted(value) or "").removesuffix(".data") == name


def _is_number(node: ast.expr) -> bool:
    inner = node.operand if isinstance(node, ast.UnaryOp) else node
    return isinstance(inner, ast.Constant)


def _listed(names: list[str]) -> str:
    quoted = [f"`{name}`" for name in names]
    return " and ".join([", ".join(quoted[:-1]), quoted[-1]] if len(quoted) > 1 else quoted)


def _attributes_in(node: ast.AST) -> set[str]:
    return {name for n in walk(node) if isinstance(n, ast.Attribute) and (name := dotted(n)) is not None}


def _parameters_made(method: Scope) -> Iterator[ast.Assign]:
    """`self.x = nn.Parameter(...)`"""
    for node in method.nodes:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            name = dotted(node.value.func) or ""
            if name.rsplit(".", 1)[-1] == "Parameter" and (dotted(node.targets[0]) or "").startswith("self."):
                yield node


def _reached(cls: Class, forward: Scope) -> list[Scope]:
    """The forward, and the methods of the class that it calls."""
    methods = {m.name.rsplit(".", 1)[-1]: m for m in cls.scope.children.values()}
    found = [forward]
    for method in found:
        for node in method.nodes:
            name = dotted(node.func) if isinstance(node, ast.Call) else None
            called = (
                methods.get((name or "").removeprefix("self.")) if (name or "").startswith("self.") else None
            )
            if called is not None and called not in found:
                found.append(called)
    return found
