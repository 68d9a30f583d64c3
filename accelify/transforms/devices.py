"""Device choices: the Accelerator's device, and not the same one on every process.

device = torch.device("cuda" if use_cuda else "cpu")    ->  device = accelerator.device
device = "cuda" if use_cuda else "cpu"                  ->  device = accelerator.device.type    (a text, as it was)
noise = torch.randn(8, 4, device="cuda")                ->  noise = torch.randn(8, 4, device=accelerator.device)
noise = noise.to(0)                                     ->  noise = noise.to(accelerator.device)
noise = sample(8)  # def sample(n, device="cuda")       ->  noise = sample(8, device=accelerator.device)
with torch.cuda.device(args.gpu):                       ->  with torch.cuda.device(-1):    (changes nothing)

device = torch.device("cuda:0")                         ->  device = torch.empty(0, device=accelerator.device).device
print(f"on {device}")                                       print(f"on {device}")    (a tensor says the number)

if args.train:                                          ->  if args.train:
    conf = Config(args)                                         conf = Config(args)
                                                                conf.device = accelerator.device
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.composed_device_texts import is_numbered_gpu
from accelify.analysis.devices.decisions import Branch
from accelify.analysis.devices.defaults import calls_without
from accelify.analysis.devices.device_as_text import in_place_of, texts_of
from accelify.analysis.devices.device_names import DeviceAssignment, names_cpu
from accelify.analysis.devices.named_devices import as_numbered, device_for
from accelify.analysis.devices.numbered_gpus import NumberedDevices
from accelify.analysis.devices.objects_with_devices import bound_later
from accelify.analysis.devices.options_at_accelerator import place_of
from accelify.analysis.devices.parts_on_cpu import parts_on_cpu
from accelify.analysis.files.effect_sites import TERMINAL
from accelify.analysis.files.log_files import is_log_method
from accelify.analysis.planning.anchors import NAME
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.statements.handed_options import holders, reads
from accelify.analysis.syntax import Tree, calls_in, dotted, text_of
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short
from accelify.transforms.selected_devices import selections
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, Edit, InsertAfter, InsertBefore

CHOICE = Rule(
    "ACC103",
    "A device chosen by the script is the same one on every process.",
    Severity.ERROR,
    done="took the device from the Accelerator",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to the places where a device is chosen."""
    tree = context.tree
    done: set[ast.AST] = set()
    for choices, branch in _in_every_branch(context):
        first = choices[0]
        accelerator = context.accelerator(first)
        if accelerator is not None and tree.own_line(branch) and not tree.is_elif(branch):
            target, value = first.targets[0], first.value
            done.update(choices)
            done.update(
                a.whole for a in context.plan.devices.assignments if a.whole and a.statement in choices
            )
            context.claim(*choices)
            line = f"{tree.segment(target)} = {_device(context, value, target, accelerator)}"
            edits: list[Edit] = [InsertBefore(branch, (line,)), *map(Delete, choices)]
            message = f"every process would use `{short(tree.segment(value))}`"
            yield context.change(CHOICE, first, message, edits, core=True)
    for assignment in context.plan.devices.assignments:
        node: ast.AST = assignment.whole or assignment.statement
        if assignment.is_part:
            node = assignment.value
        if node in done:
            continue
        done.add(node)
        accelerator = context.accelerator(assignment.statement)
        if accelerator is None and node is _anchored(context):
            accelerator = context.accelerator(assignment.statement) or "accelerator"
        if accelerator is None:
            continue
        context.claim(assignment.whole or assignment.value)
        target, value = assignment.target, assignment.value
        device = _device(context, value, target, accelerator)
        if _repeats(context, assignment):
            edit: Edit = Delete(assignment.statement)
        elif assignment.whole is not None:
            edit = verbs.replace(node, target, f" = {device}")
        else:
            edit = verbs.replace(value, device)
        evidence = (f"`{tree.segment(target)}` is assigned a device",)
        yield context.change(
            CHOICE,
            node,
            f"every process would use `{short(tree.segment(value))}`",
            [*_shown_besides(context, assignment, accelerator), edit],
            core=True,
            evidence=evidence,
        )
    yield from _of_parts(context)


def _shown_besides(context: Context, assignment: DeviceAssignment, accelerator: str) -> list[Edit]:
    """A call of another module's function that chose the device and shows or logs it goes on to do so, once."""
    call, statement, tree = assignment.value, assignment.statement, context.tree
    if not isinstance(call, ast.Call) or assignment.whole is not None or not tree.own_line(statement):
        return []
    script = context.script
    callees = [one for one in script.callees(call) if script.interpreter.module_of(one) not in script.modules]
    shows = any(
        any(site.kind == TERMINAL for site in context.effects.of_call(call, callee).sites)
        or any(is_log_method(script, inner.func) for inner in calls_in(callee.node))
        for callee in callees
    )
    text = tree.segment(call)
    if not shows or "\n" in text or tree.is_elif(statement):
        return []
    return [InsertBefore(statement, (f"if {accelerator}.is_main_process:", f"{tree.indent_unit()}{text}"))]


def _of_parts(context: Context) -> Iterator[Change]:
    """The parts of a model that the script keeps on the CPU: prepare moves the model as a whole."""
    for part in parts_on_cpu(context.script, context.plan.devices):
        name = context.tree.segment(part.device)
        message = (
            f"`{name}` keeps parts of `{part.model}` on the CPU; prepare puts the whole model on the device of each "
            f"process, which `{name}` stands for now"
        )
        yield context.change(CHOICE, part.device, message, severity=Severity.INFO)
        for module, moved in part.moved:
            message = f"`{short(text_of(moved))}` is a copy on another device, no parameter that is trained"
            if module not in context.script.modules:
                file = module.path.name if module.path is not None else "another module"
                message += f" ({file}, line {moved.lineno}): leave the move out there"
                yield context.change(CHOICE, part.device, message)
            elif not context.is_claimed(moved):
                context.claim(moved)
                yield context.change(CHOICE, moved, message, [verbs.keep_receiver(moved)])


def _in_every_branch(context: Context) -> Iterator[tuple[list[ast.Assign], ast.If]]:
    """Choices of a device in each branch of an `if`/`elif`/`else` that does other work too."""
    known = {a.statement: a.whole for a in context.plan.devices.assignments if not a.is_part}
    for branch in context.tree.nodes(ast.If):
        found = [
            [s for s in part if isinstance(s, ast.Assign) and s in known and known[s] is not branch]
            for part in _branches(context.tree, branch)
        ]
        choices = [one for part in found for one in part]
        if all(len(part) == 1 for part in found) and all(len(one.targets) == 1 for one in choices):
            if len({text_of(one.targets[0]) for one in choices}) == 1:
                yield choices, branch


def _branches(tree: Tree, branch: ast.If) -> Iterator[list[ast.stmt]]:
    """The content of each branch of an `if`/`elif`/`else`, with nothing for an `else` that is missing."""
    yield branch.body
    rest = branch.orelse
    if len(rest) == 1 and isinstance(link := rest[0], ast.If) and tree.is_elif(link):
        yield from _branches(tree, link)
    else:
        yield rest


def _device(context: Context, value: ast.expr, target: ast.expr, accelerator: str) -> str:
    """What to assign instead: a torch.device, or its text where the script assigned a text and reads it as one."""
    script, text = context.script, dotted(target) or ""
    if _is_text(value) or texts_of(script, value):
        return device_for(script, text, accelerator, original=value)
    return as_numbered(script, {text}, accelerator, value)


def _is_text(value: ast.expr) -> bool:
    """Whether a device is a text in every branch of a choice of several."""
    if isinstance(value, ast.IfExp):
        return _is_text(value.body) and _is_text(value.orelse)
    return isinstance(value, ast.Constant) or is_numbered_gpu(value)


def _repeats(context: Context, assignment: DeviceAssignment) -> bool:
    """Whether an `if` only replaces the device that was assigned above it, or comes right after it."""
    tree, statement = context.tree, assignment.statement
    branch = tree.parent(statement)
    if (
        not isinstance(branch, ast.If)
        or branch.orelse
        or tree.is_elif(branch)
        or assignment.whole is not None
        or assignment.is_part
    ):
        return False
    _, _, block = tree.block_of(branch)
    place = next(i for i, s in enumerate(block) if s is branch)
    beside = [*block[:place], *block[place + 1 : place + 2]]
    return any(
        other.statement in beside and _target(other) == _target(assignment)
        for other in context.plan.devices.assignments
        if other.whole is None
    )


def _target(assignment: DeviceAssignment) -> str | None:
    return dotted(assignment.target)


def _anchored(context: Context) -> ast.stmt | None:
    return context.plan.anchor.before if context.plan.anchor is not None else None


def written_out(context: Context) -> Iterator[Change]:
    """Yield the changes to devices that are written where they are used. Run when the moves are known."""
    yield from _copies(context)
    yield from _constants(context)
    yield from selections(context)
    yield from _of_objects(context)
    yield from _chosen_before(context)
    yield from _bound_anew(context)
    yield from _left_to_defaults(context)


def _left_to_defaults(context: Context) -> Iterator[Change]:
    """Calls that leave a device to a GPU which their function takes by default."""
    script, anchor = context.script, context.plan.anchor
    here = place_of(script, anchor) if anchor is not None else None
    stated = {named.text for named in context.plan.named_devices}
    for call, callee, name, text in calls_without(script):
        if context.is_claimed(call) or (callee is here and name in stated):
            continue
        if script.interpreter.module_of(callee) in script.modules:
            if all(map(context.is_claimed, script.reads(name, callee))):
                continue  # it was for the moves that are gone
        accelerator = context.accelerator(call)
        message = f"`{callee.name}` works on {text!r}, its default, on every process"
        if accelerator is not None:
            edit = verbs.AddArgument(call, f"{name}={device_for(script, name, accelerator)}")
            yield context.change(CHOICE, call, message, [edit], core=True)
        elif ":" in text:
            yield context.change(CHOICE, call, f"{message}: give it the device of the process")


def _chosen_before(context: Context) -> Iterator[Change]:
    """The names of devices that are chosen above the Accelerator, which needs the options, and read after it."""
    anchor, script = context.plan.anchor, context.script
    place = anchor.before or anchor.after if anchor is not None else None
    if anchor is None or place is None:
        return
    accelerator = f"{script.scope_of(place).self_name() or 'self'}.{NAME}" if anchor.attribute else NAME
    done = {stated.text for stated in context.plan.named_devices}
    chosen: list[tuple[str, ast.stmt, ast.expr]] = []
    for assignment in context.plan.devices.assignments:
        statement, target = assignment.statement, assignment.target
        if script.scope_of(statement) is not script.scope_of(place) or context.is_claimed(assignment.value):
            continue
        text = dotted(target) or ""
        if text in done or not anchor.is_after(context.tree, statement) or not _is_read_on(context, target):
            continue
        done.add(text)
        chosen.append((text, statement, assignment.value))
    for text, value in _handed_in(context, script.scope_of(place)):
        if text not in done:
            done.add(text)
            chosen.append((text, place, value))
    for text, where, value in chosen:
        lines = (f"{text} = {device_for(script, text, accelerator, original=value)}",)
        edit = context.beside_accelerator(lines, order=-49)
        message = f"every process would use `{short(context.tree.segment(value))}`"
        yield context.change(CHOICE, where, message, [edit], core=True)


def _bound_anew(context: Context) -> Iterator[Change]:
    """Options that come out of a checkpoint after the Accelerator, with the device of the process that saved them."""
    script, tree, anchor = context.script, context.tree, context.plan.anchor
    for stated in context.plan.named_devices if anchor is not None else ():
        if stated.text.split(".")[:-1] != [stated.name]:
            continue
        for bound in tree.writes(stated.name):
            stmt = tree.statement(bound)
            afterwards = anchor is not None and not anchor.is_after(tree, stmt)
            if not afterwards or not isinstance(stmt, ast.Assign):
                continue
            accelerator = context.accelerator(stmt)
            if accelerator is None or script.scope_of(bound).resolve(stated.name) is not stated.owner:
                continue
            if stated.owner is None:
                continue
            later = [n for n in script.reads(stated.name, stated.owner) if tree.is_after(n, stmt)]
            if _are_read(context, later, stated.text):
                line = f"{stated.text} = {device_for(script, stated.text, accelerator, stated.others, stated.option)}"
                message = f"`{stated.text}` would be that of the process which saved these options, on every process"
                yield context.change(CHOICE, stmt, message, [InsertAfter(stmt, (line,))], core=True)


def _handed_in(context: Context, scope: Scope) -> Iterator[tuple[str, ast.expr]]:
    """The parameters of the function with the Accelerator whose device is chosen in the call: `train(pick(args))`."""
    script, tree, anchor = context.script, context.tree, context.plan.anchor
    assert anchor is not None
    given: dict[str, list[ast.expr]] = {}
    for call in script.callers(scope):
        for value, name in handed_to(call, scope):
            given.setdefault(name, []).append(value)
    for name, values in given.items():
        if not all(
            isinstance(value, (ast.Call, ast.IfExp)) or is_numbered_gpu(value) for value in values
        ) or any(map(context.is_claimed, values)):
            continue
        if not all(script.is_a(value, v.DEVICE) and not names_cpu(value) for value in values):
            continue
        afterwards = [n for n in script.reads(name, scope) if not anchor.is_after(tree, n)]
        if not all(map(context.is_claimed, afterwards)):
            yield name, values[0]


def _is_read_on(context: Context, target: ast.expr) -> bool:
    """Whether a name, or an attribute of an object that is passed on, is read after the Accelerator as it was set."""
    script, anchor = context.script, context.plan.anchor
    assert anchor is not None
    base = target.value if isinstance(target, ast.Attribute) else target
    owner = script.scope_of(base).resolve(base.id) if isinstance(base, ast.Name) else None
    if not isinstance(base, ast.Name) or owner is None:
        return False
    later = [n for n in script.reads(base.id, owner) if not anchor.is_after(context.tree, n)]
    return _are_read(context, later, dotted(target) or "")


def _are_read(context: Context, names: list[ast.Name], text: str) -> bool:
    """Whether some reads of a name, or of an attribute of it, are for the device as it is set."""
    script, tree = context.script, context.tree
    base, _, attribute = text.partition(".")
    if not attribute:
        return not all(map(context.is_claimed, names))
    found: list[ast.Attribute] = []
    handed = False
    for name in names:
        parent = tree.parent(name)
        if isinstance(parent, ast.Attribute):
            found += [parent] if parent.attr == attribute and isinstance(parent.ctx, ast.Load) else []
            continue
        call = tree.parent(parent) if isinstance(parent, ast.keyword) else parent
        for one in holders(script, call, base) if isinstance(call, ast.Call) else ():
            handed = True
            found += reads(one, attribute)
    # The reader of an argument may not be visible: a class that is looked up by its name.
    return not all(map(context.is_claimed, found)) if found else handed


def _of_objects(context: Context) -> Iterator[Change]:
    """The device of an object of another module that is made after the Accelerator, where a read of it stays."""
    done: set[tuple[ast.Assign, str]] = set()
    for found in bound_later(context.script):
        key = (found.stmt, found.text)
        if key in done or all(map(context.is_claimed, found.reads)):
            continue
        if any(map(context.is_claimed, found.given)):
            continue  # a module that is converted with this one, where it is the Accelerator's already
        accelerator = context.accelerator(found.stmt) if context.reaches_cheaply(found.stmt) else None
        if accelerator is None:
            continue
        done.add(key)
        line = (
            f"{found.text} = {device_for(context.script, found.text, accelerator, original=found.given[0])}"
        )
        message = f"`{found.text}` would be the same device on every process"
        yield context.change(CHOICE, found.stmt, message, [InsertAfter(found.stmt, (line,))], core=True)


def _copies(context: Context) -> Iterator[Change]:
    """`self.device = args.device`, `x.to(args.device)`, where the option itself cannot be set."""
    tree = context.tree
    for value in tree.in_order(context.plan.copied_devices):
        accelerator = context.accelerator(value) if not context.is_claimed(value) else None
        stmt = tree.statement(value)
        if accelerator is None:
            continue
        context.claim(value)
        around = tree.parent(value)
        around = tree.parent(around) if isinstance(around, ast.keyword) else around
        device = f"{accelerator}.device"
        if isinstance(around, ast.Call):
            device = _argument(context, around, value, accelerator)
        elif isinstance(stmt, (ast.Assign, ast.AnnAssign)):
            target = stmt.targets[0] if isinstance(stmt, ast.Assign) else stmt.target
            device = device_for(context.script, dotted(target) or "", accelerator, original=value)
        message = f"every process would use `{short(tree.segment(value))}`"
        yield context.change(CHOICE, value, message, [verbs.replace(value, device)], core=True)


def _constants(context: Context) -> Iterator[Change]:
    """`device="cuda"` and `torch.device("cuda")` written where a device is used, or passed to a function."""
    tree, script = context.tree, context.script
    numbers = NumberedDevices(script)
    numbered = any(numbers.stands_in(module.tree) for module in script.modules)
    for call in script.calls():
        if context.is_claimed(call):
            continue
        values = [kw.value for kw in call.keywords if kw.arg == "device"]
        if isinstance(call.func, ast.Attribute) and call.func.attr == "to" and call.args:
            values.append(call.args[0])
        if script.callees(call):  # `Trainer(net, torch.device("cuda:0"))`
            given = [*call.args, *[kw.value for kw in call.keywords]]
            values += [one for one in given if isinstance(one, ast.Call) and one not in values]
        for value in values:
            text = value.value if isinstance(value, ast.Constant) else None
            if isinstance(value, ast.Call) and script.qualname(value.func) == "torch.device":
                first = value.args[0] if value.args else None
                chosen = isinstance(first, ast.IfExp) or is_numbered_gpu(first)
                text = first.value if isinstance(first, ast.Constant) else "cuda" if chosen else None
            elif is_numbered_gpu(value):
                text = "cuda"
            elif isinstance(value, ast.Call):
                chosen = script.is_a(value, v.DEVICE) and isinstance(
                    context.plan.devices.decisions.of_call(value), Branch
                )
                text = "cuda" if chosen else None
            elif isinstance(value, ast.IfExp) and context.plan.devices.is_device_expression(value):
                text = "cuda"
            elif numbered and numbers.is_number(value) and not script.callees(call):
                # What is not torch's may count devices of another kind.
                text = None if _is_foreign(context, call) else "cuda"
            if not isinstance(text, str) or not text.startswith("cuda"):
                continue
            accelerator = context.accelerator(call)
            if context.is_claimed(value) or accelerator is None:
                continue
            context.claim(value)
            edit = verbs.replace(value, _argument(context, call, value, accelerator))
            yield context.change(
                CHOICE, value, f"every process would use `{short(tree.segment(value))}`", [edit], core=True
            )


def _argument(context: Context, call: ast.Call, value: ast.expr, accelerator: str) -> str:
    """What a call gets in the place of a device: what is not torch's may read the text of its argument."""
    asks = context.script.callees(call) or _is_foreign(context, call)
    return in_place_of(context.script, [value] if asks else [], accelerator)


def _is_foreign(context: Context, call: ast.Call) -> bool:
    """Whether a call runs a function of a library that is not torch's."""
    library = (context.script.qualname(call.func) or "torch").split(".")[0]
    return library not in k.TORCH_LIBRARIES
