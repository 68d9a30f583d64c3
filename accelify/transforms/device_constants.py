"""Devices that another module of the project chooses: the Accelerator's device, wherever this script reads them.

from conf import device
model = Net(device=device)     ->  device = accelerator.device
                                   model = Net(device=device)

device, ids = choose(n)       ->  device, ids = choose(n)
                                  device = accelerator.device

super().__init__(options)     ->  super().__init__(options)
                                  self.device = self.accelerator.device

mean = torch.zeros(3).cuda()      ->  (a finding where the Accelerator is made only after it)

torch.device("cuda:0")    ->  torch.device("cuda")    (a device of a module that is not converted, which others read)

GPUs that modules which are not converted select by their number are named by ACC714: `torch.device("cuda")` there is
the GPU of each process once the Accelerator is made, `"cuda:1"` is the same one for all of them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.devices.class_devices import own_devices
from accelify.analysis.devices.device_as_text import in_place_of
from accelify.analysis.devices.device_names import names_cpu
from accelify.analysis.devices.module_devices import DeviceConstant, constant_of
from accelify.analysis.devices.on_import import placed_on_import, with_derived
from accelify.analysis.program import Module
from accelify.analysis.syntax import dotted, walk
from accelify.analysis.values import DEVICE, Class
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.fixes_elsewhere import FixElsewhere
from accelify.writer import edits as verbs
from accelify.writer.edits import InsertAfter

CONSTANT = Rule(
    "ACC118",
    "A device that a module of the project chooses is the same one on every process.",
    Severity.ERROR,
    done="took the device from the Accelerator",
)
# What a device can be written as where it is chosen.
_WRITTEN = (ast.Call, ast.Constant, ast.JoinedStr, ast.BinOp)
_FIRST = "cuda:0"
_MESSAGE = f'`"{_FIRST}"` is the same GPU for every process, `"cuda"` is each process\'s own'


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to what is read of such devices, and what other modules do with them."""
    stated = {named.text for named in context.plan.named_devices}
    for constant in context.plan.device_constants:
        if constant.is_cpu or any(context.is_claimed(value) for value in constant.values):
            continue
        by_text: dict[str, list[ast.Name | ast.Attribute]] = {}
        for read in constant.reads:
            text = dotted(read)
            if text is not None and text not in stated and not context.is_claimed(read):
                by_text.setdefault(text, []).append(read)
        left: list[ast.Name | ast.Attribute] = []
        for text, reads in by_text.items():
            yield from _read(context, constant, text, reads, left)
        readers = [*constant.readers, *map(context.script.module_of, left)]
        if constant.is_indexed and readers:
            _take_number_off(context, constant)
    yield from _among_others(context)
    yield from _of_base_classes(context)
    yield from _on_import(context)


def _on_import(context: Context) -> Iterator[Change]:
    """What modules put on a GPU before there is an Accelerator, which selects that of each process."""
    script = context.script
    chosen: dict[Module, list[DeviceConstant]] = {}
    for constant in context.plan.device_constants:
        # A device with a number is named where it is used.
        if not constant.is_cpu and not constant.is_indexed:
            chosen.setdefault(constant.module, []).append(constant)
    entry = script.program.entry
    placed = {
        call: (module, names)
        for module in dict.fromkeys([entry, *script.program.modules.values()])
        for names, call in with_derived(
            module, placed_on_import(module, frozenset(c.name for c in chosen.get(module, ())))
        )
    }
    reads = _reads(context, {(m, name): call for call, (m, names) in placed.items() for name in names})
    for call, (module, names) in placed.items():
        own = module in script.modules
        if call in context.dropped or (own and context.is_claimed(call)):
            continue
        if module is entry and context.accelerator(call) is not None:
            continue
        read = [r for r in reads.get(call, ()) if not _is_moved(context, r)]
        if not read:
            continue
        shown = list(dict.fromkeys(dotted(r) or names[0] for r in read))
        several = len(shown) > 1
        named = (
            ", ".join(f"`{name}`" for name in shown[:-1]) + f" and `{shown[-1]}`"
            if several
            else f"`{shown[0]}`"
        )
        when = "the script starts" if module is entry else f"{_file(module)} is imported"
        message = (
            f"{named} {'are' if several else 'is'} put on the first GPU when {when}, before the Accelerator selects "
            f"each process's own: move {'them where they are' if several else 'it where it is'} used "
            f"({shown[0]}.to(accelerator.device))"
        )
        yield context.change(CONSTANT, call if own else read[0], message)


def _reads(
    context: Context, known: dict[tuple[Module, str], ast.Call]
) -> dict[ast.Call, list[ast.Name | ast.Attribute]]:
    """Where the script reads globals of modules, by what they are made of."""
    found: dict[ast.Call, list[ast.Name | ast.Attribute]] = {}
    for node in [*context.tree.nodes(ast.Name), *context.tree.nodes(ast.Attribute)] if known else ():
        name = node.id if isinstance(node, ast.Name) else node.attr
        if isinstance(node.ctx, ast.Load) and any(name == one for _, one in known):
            call = constant_of(context.script, node, known)
            if call is not None:
                found.setdefault(call, []).append(node)
    return found


def _is_moved(context: Context, read: ast.expr) -> bool:
    """Whether what is read is moved first: `mean.to(x.device)`."""
    func = context.tree.parent(read)
    return isinstance(func, ast.Attribute) and func.attr in ("to", "cuda", "type_as")


def _of_base_classes(context: Context) -> Iterator[Change]:
    """What a base class of another module, which is not converted, chooses for its subclass that trains."""
    script = context.script
    for call in script.calls():
        stmt, scope = context.tree.parent(call), script.scope_of(call)
        if not isinstance(call.func, ast.Attribute) or call.func.attr != "__init__":
            continue
        cls = script.interpreter.entities.get((scope.owner_class, "class"))
        if not isinstance(stmt, ast.Expr) or not isinstance(cls, Class):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None:
            continue
        for base in cls.ancestry():
            if script.interpreter.module_of(base.scope) in script.modules:
                continue
            chosen: dict[str, list[ast.expr]] = {}
            for name, value in own_devices(base.scope.node):
                chosen.setdefault(name, []).append(value)
            for name, values in chosen.items():
                own = scope.self_name() or "self"
                line = f"{own}.{name} = {in_place_of(script, values, accelerator)}"
                message = f"every process would use the `{own}.{name}` that `{base.scope.name}` chooses"
                yield context.change(CONSTANT, stmt, message, [InsertAfter(stmt, (line,))], core=True)


def _among_others(context: Context) -> Iterator[Change]:
    """`device, ids = prepare_device(n)`: a function of the project chooses a device and returns more than that."""
    script, tree = context.script, context.tree
    for call in script.calls():
        stmt = tree.parent(call)
        if not isinstance(stmt, ast.Assign) or stmt.value is not call or not script.callees(call):
            continue
        targets = [e for t in stmt.targets if isinstance(t, ast.Tuple) for e in t.elts]
        for target in targets:
            chosen = (
                script.entities(target, DEVICE) if isinstance(target, (ast.Name, ast.Attribute)) else set()
            )
            made = [t.site for t in chosen if isinstance(t.site, _WRITTEN)]
            if not made or len(made) < len(chosen) or all(names_cpu(site) for site in made):
                continue
            accelerator = context.accelerator(stmt)
            if accelerator is not None:
                text = tree.segment(target)
                message = f"every process would use the same `{text}`"
                line = f"{text} = {in_place_of(script, made, accelerator)}"
                yield context.change(CONSTANT, stmt, message, [InsertAfter(stmt, (line,))], core=True)


def _read(
    context: Context,
    constant: DeviceConstant,
    text: str,
    reads: list[ast.Name | ast.Attribute],
    left: list[ast.Name | ast.Attribute],
) -> Iterator[Change]:
    """The changes to the reads of one name; where the Accelerator cannot be had they are `left`."""
    message = f"every process would use `{text}` of {_file(constant.module)}"
    anchor = context.plan.anchor
    place = (anchor.before or anchor.after) if anchor is not None else None
    if anchor is not None and place is not None and _can_be_bound(context, reads):
        name = context.accelerator(reads[0]) or "accelerator"
        line = (f"{text} = {in_place_of(context.script, constant.values, name)}",)
        edit = context.beside_accelerator(line, order=-49)
        yield context.change(CONSTANT, reads[0], message, [edit], core=True)
        return
    for read in reads:
        accelerator = context.accelerator(read)
        if accelerator is not None:
            context.claim(read)
            edit = verbs.replace(read, in_place_of(context.script, constant.values, accelerator))
            yield context.change(CONSTANT, read, message, [edit], core=True)
        else:
            left.append(read)


def _can_be_bound(context: Context, reads: list[ast.Name | ast.Attribute]) -> bool:
    """Whether one assignment after the Accelerator comes before all reads and binds the name that they read."""
    anchor, reach = context.plan.anchor, context.plan.reach
    assert anchor is not None
    assert reach is not None
    script = context.script
    if anchor.root.kind != "module":
        return False
    return all(
        script.module_of(read).scopes.module is anchor.root
        and not anchor.is_after(context.tree, read)
        and reach.runs_after_anchor(read)
        for read in reads
    )


def _take_number_off(context: Context, constant: DeviceConstant) -> None:
    """Make `"cuda"` of the first GPU, where that is what a module which is not converted chooses."""
    module = constant.module
    texts = [n for value in constant.values for n in walk(value) if isinstance(n, ast.Constant)]
    first = [text for text in texts if _is_first_gpu(text)]
    numbered = [text for text in texts if isinstance(text.value, str) and ":" in text.value]
    if module in context.script.modules or len(first) < len(numbered):
        return
    for text in first if all(_can_go(context, module, text) for text in first) else ():
        quote = module.tree.segment(text)[0]
        # Without the number it is the process's GPU.
        edit = verbs.replace(text, f"{quote}cuda{quote}")
        context.fixes_elsewhere.append(FixElsewhere(module, text, edit, CONSTANT, _MESSAGE))


def _file(module: object) -> str:
    path = getattr(module, "path", None)
    return path.name if path is not None else "the script"


# The text of the first GPU, `"cuda:0"`, whose number can be removed: `"cuda"` is each process's GPU.


def _is_first_gpu(node: ast.AST) -> bool:
    """Whether a node is the text `"cuda:0"`."""
    return isinstance(node, ast.Constant) and node.value == _FIRST


def _can_go(context: Context, module: Module, text: ast.expr) -> bool:
    """Whether a text is written out, and the program does not test for it: `if device == "cuda:0":`."""
    if not _is_first_gpu(text) or isinstance(module.tree.parent(text), ast.JoinedStr):
        return False  # a part of a longer text is none that a device is made of
    modules = dict.fromkeys(context.script.program.modules.values())
    return module.tree.segment(text)[1:-1] == _FIRST and not any(
        _is_first_gpu(part)
        for one in modules
        if one.tree.mentions(_FIRST)
        for test in one.tree.nodes(ast.Compare)
        for part in walk(test)
    )
