"""Modules that are imported by an option's name: only the one that the option's default names is converted.

trainer = import_module(args.trainer).Trainer(model)    (a finding: trainers of other names stay as they are)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

NAMED = Rule(
    "ACC427",
    "imported-by-name",
    "A module that is converted with the script is imported by the name of an option.",
    Severity.WARNING,
    Safety.MANUAL,
    effort=10,
)


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each import by a name of which one module, among others, is converted."""
    script = context.script
    for module in script.modules:
        for call, name in module.named.items():
            target = module.imports.get(name) if name is not None else None
            if target is None or target not in script.modules or isinstance(call.args[0], ast.Constant):
                continue
            message = (
                f"`{context.tree.segment(call)}` is taken for `{name}`, as the option has it where none is given: a "
                "module of another name is not converted with the script, and takes no Accelerator"
            )
            yield context.change(NAMED, call, message)
