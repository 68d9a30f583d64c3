"""NVIDIA apex: amp becomes the Accelerator's mixed precision, its synchronised batch norm becomes torch's.

model, optimizer = amp.initialize(model, optimizer, opt_level="O1")  ->  Accelerator(mixed_precision="fp16" ...)

with amp.scale_loss(loss, optimizer) as scaled_loss:                 ->  accelerator.backward(loss)
    scaled_loss.backward()

clip_grad_norm_(amp.master_params(optimizer), 1.0)  ->  accelerator.clip_grad_norm_(model.parameters(), 1.0)

model = apex.parallel.convert_syncbn_model(model)   ->  model = nn.SyncBatchNorm.convert_sync_batchnorm(model)

Level O0 casts nothing and becomes no mixed precision; O2 and O3 become what O1 is: the model's weights stay in
full precision. A checkpoint no longer contains amp's state. A function of another module that scales a loss by amp is
reported where it is called, as nothing calls amp.initialize any more.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Imported
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule

# Its edits are made before the script is analysed: accelify/lowering/apex.py.
APEX = Rule(
    "ACC117",
    "apex-amp",
    "The script casts, scales or synchronises by apex, past the Accelerator.",
    Severity.ERROR,
    Safety.REVIEW,
    effort=10,
)
# How it is written, so that other calls need not be looked up.
_SCALING = ("amp.scale_loss", "apex.amp.scale_loss", "scale_loss")


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each function of a module that is not converted which still scales a loss by amp."""
    interpreter = context.script.interpreter
    for module in context.script.program.modules.values():
        if module in context.script.modules or not module.tree.mentions("scale_loss"):
            continue
        for call in module.tree.nodes(ast.Call):
            scope = module.scopes.of(call)
            if dotted(call.func) not in _SCALING or not any(
                isinstance(w, Imported) and w.name == "apex.amp.scale_loss"
                for w in interpreter.evaluate(module, scope, call.func)
            ):
                continue
            own = _own_call(context, scope)
            if own is None:
                continue
            file = module.path.name if module.path is not None else "another module"
            message = (
                f"`{scope.name}` scales a loss by apex's amp in line {call.lineno} of {file}, which raises where "
                "nobody calls amp.initialize any more: hand it the Accelerator, for accelerator.backward(loss)"
            )
            yield context.change(APEX, own, message)
            break


def _own_call(context: Context, scope: Scope) -> ast.Call | None:
    """The call in the script through which a function is reached."""
    queue, seen = [scope], {scope}
    while queue:
        for module, call in context.script.interpreter.callers.get(queue.pop(), ()):
            if module in context.script.modules:
                return call
            caller = module.scopes.of(call)
            if caller not in seen:
                seen.add(caller)
                queue.append(caller)
    return None
