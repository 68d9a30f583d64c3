"""Names of weights without DataParallel, which puts `module.` before them.

for name, p in net.named_parameters():        ->  for name, p in net.named_parameters(prefix="module"):
    if name.startswith("module.head"): ...            if name.startswith("module.head"): ...
short = {n[7:]: w for n, w in net.state_dict().items()}    ->  ... in net.state_dict(prefix="module.").items()}
net.get_submodule("module.head")              ->  net.get_submodule("head")

keep = chosen(net.state_dict())               (a finding, where `chosen` asks its keys for `module.head`)

Code that reads the names stays as it is, be it a comparison, a dictionary or a function: it gets the names with their
prefix. Functions of modules that are not converted are a finding.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis.models.parallel_wraps import is_afterwards, is_for_several, wrapped_models
from accelify.analysis.models.weight_names import (
    PAIRS,
    PREFIX,
    WORDS,
    by_name,
    reader_of,
    reading_of,
    sources_in,
    sources_of,
)
from accelify.analysis.scopes import Scope, handed_to, in_order
from accelify.findings import Safety
from accelify.transforms.base import Change, Context
from accelify.transforms.parallel import PARALLEL
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

_LOST = "the names of weights begin with `module.` under DataParallel alone"
_BY_NAME = (b"get_parameter", b"get_submodule", b"get_buffer")


def transform(context: Context) -> Iterator[Change]:
    """Yield the prefix that the names had, and findings where it cannot be added."""
    modules = [context.script.module, *context.script.program.modules.values()]
    if not any(
        m.tree.mentions(word) and context.tree.mentions("DataParallel") for m in modules for word in WORDS
    ):
        if not any(context.tree.mentions(word) for word in _BY_NAME):
            return
    names = _Names(context)
    if names.wrapped:
        yield from names.read_here()
        yield from names.asked_by_name()
        yield from names.read_elsewhere()


class _Names:
    """The names of the weights of models that lose their wrapper."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.wrapped = wrapped_models(context.script)

    def wraps_of(self, model: ast.expr, at: ast.expr) -> list[ast.Call]:
        """The wrappers in which a model was where its names are read; none where it may be in none."""
        contained = self.context.script.models_of(model)
        if not contained or not contained <= self.wrapped.keys():
            return []
        if isinstance(model, ast.Attribute) and model.attr == "module":
            return []
        wraps = [wrap for one in contained for wrap in self.wrapped[one]]
        return [wrap for wrap in wraps if is_afterwards(self.context.script, at, wrap)]

    def read_here(self) -> Iterator[Change]:
        """`net.named_parameters()` of the script, whose names get their prefix."""
        context, tree = self.context, self.context.tree
        for source in sources_of(context.script.calls()):
            assert isinstance(source.func, ast.Attribute)
            wraps = self.wraps_of(source.func.value, source)
            scope = context.script.scope_of(source)
            reading = reading_of(context.script, source, scope, tree.parent) if wraps else None
            reader = reader_of(context.script, source, scope, tree.parent) if wraps and not reading else None
            if reader is not None:
                function = reader.name.rpartition(".")[2]
                mark = f"`{function}` reads names with `module.` before them"
                yield context.todo(PARALLEL, source, f"{_LOST}: `{function}` reads them with it", mark)
            if reading is None or not (reading.stated or self._are_sure(wraps)):
                continue
            after = context.plan.after_prepare(source, context.script.models_of(source.func.value))
            # Torch's wrapper adds a prefix; unwrapped, or in accelify's, the names have none.
            modules = source.func.attr == "named_modules"
            again = context.accelerator(source) is None if modules else context.for_accelerate
            if again and after:
                mark = "the names have no `module.` before them any more"
                yield context.todo(PARALLEL, source, f"{_LOST}: here they are read with it", mark)
                continue
            prefix = "module" if source.func.attr in PAIRS else PREFIX
            edits: list[Edit] = [verbs.AddArgument(source, f'prefix="{prefix}"')]
            safety = None if self._are_sure(wraps) else Safety.REVIEW
            message = f"{_LOST}, and are read with it here"
            yield context.change(PARALLEL, source, message, edits, core=True, safety=safety)

    def _are_sure(self, wraps: list[ast.Call]) -> bool:
        return not any(is_for_several(self.context.script, wrap) for wrap in wraps)

    def asked_by_name(self) -> Iterator[Change]:
        """`net.get_submodule("module.head")`, which is asked for without it."""
        context, tree = self.context, self.context.tree
        nodes = [*context.script.calls(), *tree.nodes(ast.Subscript)]
        for name, model in by_name(context.script, nodes):
            if context.is_claimed(name) or not self.wraps_of(model, name):
                continue
            text = str(name.value)
            gone = verbs.say(tree, name, text.removeprefix(PREFIX))
            if gone is None or not text.startswith(PREFIX):
                mark = "the name has no `module.` before it any more"
                yield context.todo(PARALLEL, name, f"{_LOST}: here one is asked for with it", mark)
                continue
            message = f"{_LOST}, and one is asked for with it here"
            yield context.change(PARALLEL, name, message, [gone], core=True)

    def read_elsewhere(self) -> Iterator[Change]:
        """Functions of modules that are not converted which get the model and read such names."""
        context, script = self.context, self.context.script
        own = set(script.modules)
        done: set[ast.Call] = set()
        for call in script.calls():
            for callee in in_order(script.callees(call)):
                module = script.interpreter.module_of(callee)
                if module in own or not any(module.tree.mentions(word) for word in WORDS):
                    continue
                for given, name in handed_to(call, callee):
                    wraps = self.wraps_of(given, call)
                    found = self._read_in(callee, name, self._are_sure(wraps)) if wraps else None
                    if found is None or call in done:
                        continue
                    done.add(call)
                    message = f"{_LOST}: `{found[0]}` reads them with it ({found[1]})"
                    mark = f"`{found[0]}` reads names with `module.` before them ({found[1]})"
                    yield context.todo(PARALLEL, call, message, mark)

    def _read_in(self, callee: Scope, name: str, sure: bool) -> tuple[str, str] | None:
        """The function that reads the names of what another one takes as `name`, and where it does."""
        script = self.context.script
        for scope, source in sources_in(script, callee, name):
            module = script.interpreter.module_of(scope)
            if module in script.modules:
                continue  # which get the prefix there
            reading = reading_of(script, source, scope, module.tree.parent)
            if reading is not None and (reading.stated or sure):
                file = module.path.name if module.path is not None else "another module"
                return scope.name, f"{file}, line {source.lineno}"
        return None


__all__ = ["transform"]
