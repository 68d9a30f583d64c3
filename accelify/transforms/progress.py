"""Progress bars: one a machine.

for batch in tqdm(loader):    ->  for batch in tqdm(loader, disable=not accelerator.is_local_main_process):

A disabled bar does not count. Where its count is read, it counts on every process and is shown by one:

bar = tqdm(total=n)           ->  bar = tqdm(total=n, file=None if accelerator.is_local_main_process
print(total / bar.n)                         else open(os.devnull, "w"))
                                  print(total / bar.n)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify import edits as verbs
from accelify.analysis import knowledge as k
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.syntax import call_keyword, dotted, walk
from accelify.edits import Edit
from accelify.transforms.base import Change, Context, Rule

PROGRESS = Rule("ACC202", "progress-bar", "Every process would draw the same progress bar.", effort=1)
# What a disabled bar does not have, or leaves at its start.
_COUNTED = frozenset(
    "n last_print_n last_print_t start_t format_dict avg_time postfix desc unit unit_scale miniters mininterval ncols "
    "smoothing fp".split()
)
_SILENT = "is_local_main_process"


def transform(context: Context) -> Iterator[Change]:
    """Yield the `disable` argument of progress bars, or the place of one whose count is read."""
    for call in context.script.calls():
        name = context.script.qualname(call.func)
        if not k.is_progress(name) or call_keyword(call, "disable") is not None:
            continue
        if any(kw.arg is None for kw in call.keywords) or not context.reaches_cheaply(call):
            continue
        accelerator = context.accelerator(call)
        if accelerator is None:
            continue
        read, place = _count_read(context, call), call_keyword(call, "file")
        if (
            read is not None
            and place is not None
            and any(isinstance(n, ast.Attribute) and n.attr == _SILENT for n in walk(place))
        ):
            continue
        if read is not None and (place is not None or "notebook" in str(name) or "tnrange" in str(name)):
            # A notebook's bar is no text that could be sent elsewhere.
            text = context.tree.segment(read)
            message = f"every process draws this bar: it has to count on all of them, as `{text}` is read"
            yield context.change(PROGRESS, call, message)
            continue
        try:
            edits = (
                _silenced(context, call, accelerator)
                if read is not None
                else _disabled(context, call, accelerator)
            )
        except verbs.EditError:
            continue
        yield context.change(PROGRESS, call, "every process would draw this bar", edits)


def _disabled(context: Context, call: ast.Call, accelerator: str) -> list[Edit]:
    return [verbs.add_keyword(context.tree, call, f"disable=not {accelerator}.{_SILENT}")]


def _silenced(context: Context, call: ast.Call, accelerator: str) -> list[Edit]:
    place = f'file=None if {accelerator}.{_SILENT} else open(os.devnull, "w")'
    edits: list[Edit] = [verbs.add_keyword(context.tree, call, place)]
    if not context.is_bound("os", call):
        edits.append(context.import_for(call, "import os"))
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
    """The same for a variable, and for the parameters that it is handed to."""
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
    attributes: Iterator[ast.Attribute] = context.tree.nodes(ast.Attribute)
    for node in attributes:
        if text and _counts(node) and dotted(node.value) == text and scope_of(node).owner_class is home:
            return node
    return None


def _counts(node: ast.Attribute) -> bool:
    return node.attr in _COUNTED and isinstance(node.ctx, ast.Load)
