"""Models that `prepare` cannot do what it should with: those that it gives back as they are, or that have no shape yet.

The weights of some layers get their shape from the first batch, `nn.LazyLinear(8)`. No process can average or divide
what has no shape, so that a batch has to go through them before `prepare`.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from accelify.heap.frozen import OVER
from accelify.heap.models import part_trained
from accelify.heap.run import Run
from accelify.heap.values import Class, Container, Instance, Library, Ref, Value, constant

_LAZY = "torch.nn.Lazy"
# Of a layer: a batch has gone through it. Of a model: weights were loaded, which have shapes.
_SHAPED = "#shaped"
_DEEPEST = 6


def shaped(run: Run, ref: Instance) -> None:
    """Note that a batch goes through a layer."""
    if is_lazy(ref):
        run.store.set(ref, _SHAPED, constant(True))


def is_lazy(ref: Instance) -> bool:
    """Whether an object is a layer whose weights have no shape at first."""
    return ref.type.startswith(_LAZY)


def loaded(run: Run, model: Instance, name: str) -> None:
    """Note that a model gets weights by a method."""
    if name == "load_state_dict":
        run.store.set(model, _SHAPED, constant(True))


def given_back(run: Run, name: str, named: Sequence[tuple[ast.expr, Value]], node: ast.AST) -> None:
    """What has parts that are trained is handed to `prepare`, which gives it back as it is."""
    for arg, value in named:
        if any(stays(run, ref) for ref in value.refs) and (part := part_trained(run, arg)):
            text = f"`{name}` gives `{ast.unparse(arg)}` back as it is, as it is no Module"
            text = f"{text}: nothing averages the gradients of `{part}`; prepare that"
            run.meet("misuse", node, text, detail="prepared")


def meet_shapeless(run: Run, named: Sequence[tuple[ast.expr, Value]], node: ast.AST) -> None:
    """A model with layers that have no shape is prepared before anything went through it."""
    for arg, value in named:
        for ref in value.of(Instance):
            layer = next(_shapeless(run, ref, _DEEPEST), None)
            if layer is not None:
                short = layer.type.rpartition(".")[2]
                text = (
                    f"`{ast.unparse(arg)}` has a `{short}`, whose weights have no shape before the first batch: on "
                    "several processes `prepare` ends with an error; let a batch go through the model before it"
                )
                run.meet("misuse", node, text, detail="prepared")
                return


def _shapeless(run: Run, ref: Instance, left: int) -> Iterator[Instance]:
    """The layers of a model without a shape."""
    if run.read(ref, _SHAPED) is not None or not left:
        return
    if is_lazy(ref):
        yield ref
        return
    run.store.look(ref)
    for name in list(ref.fields) if ref.kind == "module" else ():
        if name[0] == "#" and name != OVER:
            continue
        value = run.read(ref, name) or Value()
        inside = [one for part in value.of(Container) for one in _values(part)] if name == OVER else [value]
        for one in inside:
            for part in one.of(Instance):
                if part.kind == "module" and part is not ref:
                    yield from _shapeless(run, part, left - 1)


def _values(ref: Container) -> list[Value]:
    return [value for name, value in ref.looked_into().items() if name.startswith("[")]


def stays(run: Run, ref: Ref) -> bool:
    """Whether `prepare` gives an object back as it is: it is known to be none that it prepares."""
    if not isinstance(ref, Instance) or ref.kind != "object" or ref.prepared:
        return False
    line = ref.cls.line_up() if ref.cls is not None else [Library(ref.type)]
    if any(not base.refs for one in line if isinstance(one, Class) for base in one.bases):
        return False  # nothing is known of one that it derives from
    bases = [run.knowledge.canonical(one.name) for one in line if isinstance(one, Library)]
    return all(_is_class(run, name) for name in bases)


def _is_class(run: Run, name: str) -> bool:
    """Whether the tables know a class, and no function that makes one of many: `hydra.utils.instantiate`."""
    row = run.knowledge.row(name)
    known = bool(run.knowledge.bases(name)) or (row is not None and not row.name.endswith(".*"))
    return known and name.rpartition(".")[2][:1].isupper()
