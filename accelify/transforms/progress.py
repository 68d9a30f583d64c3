"""Progress bars: one for each machine.

for batch in tqdm(loader):    ->  for batch in tqdm(loader, disable=not accelerator.is_local_main_process):
for batch in tqdm(loader, disable=quiet):
    ->  for batch in tqdm(loader, disable=not accelerator.is_local_main_process or quiet):

A disabled bar does not count. Where its count is read, it counts on every process and is shown by one:

bar = tqdm(total=n)           ->  bar = tqdm(total=n, file=None if accelerator.is_local_main_process
print(total / bar.n)                         else open(os.devnull, "w"))
                                  print(total / bar.n)

A bar that ends at a number over the data of all processes ends where those of one do:

bar = tqdm(total=len(data))   ->  bar = tqdm(total=math.ceil(len(data) / accelerator.num_processes), ...)

Bars of the library `progress` have no such switch, and each writes to os.devnull on the other processes. Bars of other
modules are a finding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.metrics.set_numbers import is_set
from accelify.analysis.modules.module_names import module_at
from accelify.analysis.planning.homes import node_of
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import call_keyword, dotted, is_constant, walk
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.nearby import is_called_within_reach
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

PROGRESS = Rule("ACC202", "progress-bar", "Every process would draw the same progress bar.", effort=1)
# What a disabled bar does not have, or leaves at its start.
_COUNTED = frozenset(
    "n last_print_n last_print_t start_t format_dict avg_time postfix desc unit unit_scale miniters mininterval ncols "
    "smoothing fp".split()
)
_BY_RANK = re.compile(r"rank|main_process|is_main|is_master")
_SILENT = "is_local_main_process"


def transform(context: Context) -> Iterator[Change]:
    """Yield the `disable` argument of progress bars, or the place of one whose count is read."""
    shared: set[ast.expr] = set()
    for call in context.script.calls_named(k.is_progress):
        name = context.script.qualname(call.func)
        if not _is_near(context, call):
            continue
        options = next((kw.value for kw in call.keywords if kw.arg is None), None)
        stated = call_keyword(call, "disable")
        accelerator = context.accelerator(call)
        if accelerator is None or (stated is not None and _is_off_elsewhere(context, stated)):
            continue
        read, place = _count_read(context, call), call_keyword(call, "file")
        if (
            read is not None
            and place is not None
            and any(isinstance(n, ast.Attribute) and n.attr == _SILENT for n in walk(place))
        ):
            continue
        if read is not None and (place or options or "notebook" in str(name) or "tnrange" in str(name)):
            # A notebook's bar is no text that could be sent elsewhere.
            text = context.tree.segment(read)
            message = f"every process draws this bar: it has to count on all of them, as `{text}` is read"
            yield context.change(PROGRESS, call, message)
            continue
        if options is not None and stated is None:
            known = _written_options(context, options)
            if known is None:
                text = context.tree.segment(options)
                message = f"every process draws this bar: `**{text}` may hold `disable`, and is not seen here"
                yield context.change(PROGRESS, call, message)
                continue
            stated = known.get("disable")
            if stated is not None and (stated in shared or _is_off_elsewhere(context, stated)):
                continue
            shared |= {stated} if stated is not None else set()
        try:
            edits = (
                _silenced(context, call, accelerator)
                if read is not None
                else _disabled(context, call, stated, accelerator)
            )
        except verbs.EditError:
            continue
        edits += _own_total(context, call, accelerator)
        yield context.change(PROGRESS, call, "every process would draw this bar", edits)


def _own_total(context: Context, call: ast.Call, accelerator: str) -> list[Edit]:
    """The edits after which a bar over one process's share of the data ends with it."""
    tree, total = context.tree, call_keyword(call, "total")
    if total is None or context.for_accelerate or not is_set(context.script, total):
        return []
    shared = set(context.shared_loops())
    steps = list(_steps(context, call))
    loops = [loop for step in steps for loop in context.script.enclosing_loops(step)[:1]]
    around = next(
        (loop for loop in shared if not isinstance(loop, ast.While) and call in walk(loop.iter)), None
    )
    if around is None and (not steps or len(loops) < len(steps) or not shared.issuperset(loops)):
        return []
    by_batches = around is not None or any(not s.args or is_constant(s.args[0], 1) for s in steps)
    if by_batches and context.plan.batch_size == "total":
        return []  # as many as on one process
    math, line = module_at(context.script, call, "math")
    text = tree.segment(total)
    if isinstance(total, (ast.IfExp, ast.Lambda, ast.NamedExpr, ast.BinOp)):
        text = f"({text})"
    edits: list[Edit] = [verbs.replace(total, f"{math}.ceil({text} / {accelerator}.num_processes)")]
    if line is not None:
        edits.append(context.import_for(call, line))
    return edits


def _steps(context: Context, call: ast.Call) -> Iterator[ast.Call]:
    """The calls that advance a bar that is stored under one name: `bar.update(n)`."""
    script, parent = context.script, context.tree.parent(call)
    target = parent.optional_vars if isinstance(parent, ast.withitem) else None
    if isinstance(parent, ast.Assign) and len(parent.targets) == 1:
        target = parent.targets[0]
    if not isinstance(target, ast.Name):
        return
    owner = script.scope_of(target).resolve(target.id)
    for read in script.reads(target.id, owner) if owner is not None else ():
        method = context.tree.parent(read)
        step = context.tree.parent(method) if isinstance(method, ast.Attribute) else None
        if isinstance(step, ast.Call) and isinstance(method, ast.Attribute) and method.attr == "update":
            # Of several bars under one name, each advances in its block.
            block = context.tree.parent(parent) if isinstance(parent, ast.withitem) else None
            if block is None or any(a is block for a in context.tree.ancestors(read)):
                yield step


def _is_near(context: Context, call: ast.Call) -> bool:
    """Whether the Accelerator is available, or becomes so with one parameter more."""
    home = node_of(context.script, context.script.scope_of(call))
    return context.reaches_cheaply(call) or (
        home.kind == "function" and is_called_within_reach(context, home)
    )


def _is_off_elsewhere(context: Context, stated: ast.expr) -> bool:
    """Whether a bar is shown by one process already, or by none: `disable=rank != 0`, `disable=True`."""
    return is_constant(stated, True) or bool(_BY_RANK.search(context.tree.segment(stated)))


def _written_options(context: Context, options: ast.expr) -> dict[str, ast.expr] | None:
    """The options of `**options`, where they are written out in one dictionary for bars only that can be edited."""
    value = _made_for_bars(context, options) if isinstance(options, ast.Name) else options
    found: dict[str, ast.expr] = {}
    if isinstance(value, ast.Dict) and all(isinstance(key, ast.Constant) for key in value.keys):
        found = {str(key.value): v for key, v in zip(value.keys, value.values, strict=True)}  # type: ignore[union-attr]
    elif isinstance(value, ast.Call) and dotted(value.func) == "dict" and not value.args:
        if any(kw.arg is None for kw in value.keywords):
            return None
        found = {str(kw.arg): kw.value for kw in value.keywords}
    else:
        return None
    return found if "disable" not in found or context.accelerator(value) is not None else None


def _made_for_bars(context: Context, options: ast.Name) -> ast.expr | None:
    """What a variable holds that is bound once, and read only as the options of bars."""
    script, tree = context.script, context.tree
    owner = script.scope_of(options).resolve(options.id)
    if owner is None or owner.takes(options.id):
        return None
    uses = [n for n in tree.nodes(ast.Name) if n.id == options.id]
    uses = [n for n in uses if script.scope_of(n).resolve(n.id) is owner]
    stored = [n for n in uses if not isinstance(n.ctx, ast.Load)]
    made = tree.parent(stored[0]) if len(stored) == 1 else None
    if not isinstance(made, ast.Assign) or len(made.targets) > 1:
        return None
    return made.value if all(n in stored or _is_for_bar(context, n) for n in uses) else None


def _is_for_bar(context: Context, name: ast.Name) -> bool:
    """Whether a dictionary is read as the options of a bar."""
    keyword = context.tree.parent(name)
    call = context.tree.parent(keyword) if isinstance(keyword, ast.keyword) and keyword.arg is None else None
    return isinstance(call, ast.Call) and k.is_progress(context.script.qualname(call.func))


def _disabled(context: Context, call: ast.Call, stated: ast.expr | None, accelerator: str) -> list[Edit]:
    """The edits that turn a bar off on the other processes; on the first it is `stated` what it was."""
    tree, off = context.tree, f"not {accelerator}.{_SILENT}"
    if stated is None:
        return [verbs.AddArgument(call, f"disable={off}")]
    if is_constant(stated, False):
        return [verbs.replace(stated, off)]
    text = tree.segment(stated)
    loose = isinstance(stated, (ast.IfExp, ast.Lambda, ast.NamedExpr))
    return [verbs.replace(stated, f"{off} or ({text})" if loose else f"{off} or {text}")]


def _silenced(context: Context, call: ast.Call, accelerator: str) -> list[Edit]:
    os, line = module_at(context.script, call, "os")
    place = f'file=None if {accelerator}.{_SILENT} else open({os}.devnull, "w")'
    edits: list[Edit] = [verbs.AddArgument(call, place)]
    if line is not None:
        edits.append(context.import_for(call, line))
    return edits


def _count_read(context: Context, call: ast.Call) -> ast.Attribute | None:
    """Where the count of a bar is read: `bar.n`."""
    parent = context.tree.parent(call)
    if isinstance(parent, ast.Assign):
        targets = parent.targets
    elif isinstance(parent, (ast.AnnAssign, ast.NamedExpr)):
        targets = [parent.target]
    elif isinstance(parent, ast.withitem) and parent.optional_vars is not None:
        targets = [parent.optional_vars]
    else:
        return None
    for target in targets:
        if isinstance(target, ast.Name):
            owner = context.script.scope_of(target).resolve(target.id)
            found = _read_of(context, target.id, owner) if owner is not None else None
        else:
            found = _read_of_attribute(context, target)
        if found is not None:
            return found
    return None


def _read_of(context: Context, name: str, owner: Scope, far: int = 0) -> ast.Attribute | None:
    """The same for a variable, and for the parameters that it is passed to."""
    script, tree = context.script, context.tree
    for read in script.reads(name, owner):
        parent = tree.parent(read)
        if isinstance(parent, ast.Attribute) and _counts(parent):
            return parent
        call = tree.parent(parent) if isinstance(parent, ast.keyword) else parent
        if not isinstance(call, ast.Call) or far > 2:
            continue
        for callee in script.callees(call):
            for given, parameter in handed_to(call, callee):
                found = _read_of(context, parameter, callee, far + 1) if given is read else None
                if found is not None:
                    return found
    return None


def _read_of_attribute(context: Context, target: ast.expr) -> ast.Attribute | None:
    """The same for an attribute, by how it is written in the same class: `self.bar.n`."""
    text, scope_of = dotted(target), context.script.scope_of
    home = scope_of(target).owner_class
    attributes: Iterable[ast.Attribute] = context.tree.nodes(ast.Attribute)
    for node in attributes:
        if text and _counts(node) and dotted(node.value) == text and scope_of(node).owner_class is home:
            return node
    return None


def _counts(node: ast.Attribute) -> bool:
    return node.attr in _COUNTED and isinstance(node.ctx, ast.Load)
