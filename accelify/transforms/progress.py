"""Progress bars: one for each machine.

for batch in tqdm(loader):    ->  for batch in tqdm(loader, disable=not accelerator.is_local_main_process):
for batch in tqdm(loader, disable=quiet):
    ->  for batch in tqdm(loader, disable=not accelerator.is_local_main_process or quiet):

A disabled bar does not count: where its count is read, or its options are not written out in the call, it is a finding.

Bars of the library `progress` have no such switch: each process draws its own. Bars of other modules are a finding.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from accelify.analysis import knowledge as k
from accelify.analysis.planning.homes import node_of
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import call_keyword, dotted, is_constant, walk
from accelify.transforms.base import Change, Context, Rule
from accelify.transforms.display_parameters import is_called_within_reach
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

PROGRESS = Rule(
    "ACC202",
    "Every process would draw the same progress bar.",
    effort=1,
    done="left progress bars to the main process",
)
# What a disabled bar does not have, or leaves at its start.
_COUNTED = frozenset(
    "n last_print_n last_print_t start_t format_dict avg_time postfix desc unit unit_scale miniters mininterval ncols "
    "smoothing fp".split()
)
_BY_RANK = re.compile(r"rank|main_process|is_main|is_master")
_SILENT = "is_local_main_process"


def transform(context: Context) -> Iterator[Change]:
    """Yield the `disable` argument of progress bars, or the place of one whose count is read."""
    for call in context.script.calls_named(k.is_progress):
        if not _is_near(context, call):
            continue
        options = next((kw.value for kw in call.keywords if kw.arg is None), None)
        stated = call_keyword(call, "disable")
        accelerator = context.accelerator(call)
        if accelerator is None or (stated is not None and _is_off_elsewhere(context, stated)):
            continue
        read, place = _count_read(context, call), call_keyword(call, "file")
        if read is not None:
            if place is None or not any(getattr(n, "attr", "") == _SILENT for n in walk(place)):
                to = f'file=None if {accelerator}.{_SILENT} else open(os.devnull, "w")'
                message = (
                    f"every process draws this bar: it has to count on all of them, as `{context.tree.segment(read)}` "
                    f"is read; let the others write it to `{to}`"
                )
                yield context.change(PROGRESS, call, message)
            continue
        if options is not None and stated is None:
            text = context.tree.segment(options)
            message = f"every process draws this bar: `**{text}` may hold `disable`"
            yield context.change(PROGRESS, call, message)
            continue
        try:
            edits = _disabled(context, call, stated, accelerator)
        except verbs.EditError:
            continue
        yield context.change(PROGRESS, call, "every process would draw this bar", edits)


def _is_near(context: Context, call: ast.Call) -> bool:
    """Whether the Accelerator is available, or becomes so with one parameter more."""
    home = node_of(context.script, context.script.scope_of(call))
    return context.reaches_cheaply(call) or (
        home.kind == "function" and is_called_within_reach(context, home)
    )


def _is_off_elsewhere(context: Context, stated: ast.expr) -> bool:
    """Whether a bar is shown by one process already, or by none: `disable=rank != 0`, `disable=True`."""
    return is_constant(stated, True) or bool(_BY_RANK.search(context.tree.segment(stated)))


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
