"""State that outlives a batch and is trained with: parameters and buffers of models, settings of optimizers.

Writes to it are events of the kind `state.write`. An attribute of a model of the project is state once a parameter or a
buffer was put there; of a model of a library's class every attribute is.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.domains.placement import own
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of
from accelify.heap.model_parameters import is_parameter
from accelify.heap.run import Run
from accelify.heap.values import PARAMETER, TENSOR, UNSET, Bound, Instance, Ref, Value, constant

_HOLDERS = frozenset({"module", "parameters"})
_OF_OPTIMIZERS = frozenset({"param_groups"})
# What torch's optimizers read in a group of parameters at each step; a script may put what it likes beside it.
_SETTINGS = frozenset("lr momentum dampening weight_decay betas eps alpha rho lambd t0 lr_decay".split())

# What layers note of the batches that they see in training, and the method that forgets it.
_STATISTICS = frozenset({"running_mean", "running_var", "num_batches_tracked", "reset_running_stats"})

# The mode of a model, True for training: on most processes, and on the one that a guard leaves.
MODE, MODE_OF_ONE = "#mode", "#mode of one"
_OF_ONE = frozenset({"main", "others", "some"})


def is_part(value: Value) -> bool:
    """Whether a value is read from a model of a library's class, or from the settings of an optimizer."""
    return any(_is_part(ref) for ref in value.refs)


def _is_part(ref: Ref) -> bool:
    names = set()
    while isinstance(ref, Bound) and isinstance(ref.method, str):
        names.add(ref.method)
        holders = ref.receiver.of(Instance)
        if any(
            one.kind in _HOLDERS or (one.kind == "optimizer" and names & _OF_OPTIMIZERS) for one in holders
        ):
            return True
        inner = ref.receiver.of(Bound)
        if not inner:
            return False
        ref = inner[0]
    return False


def part_written(
    run: Run,
    base: Value,
    value: Value,
    node: ast.AST,
    key: Value | None = None,
    *,
    again: bool = False,
    name: str = "",
) -> None:
    """Something is written to a part of a model or an optimizer, maybe under a key or as the attribute `name`; `again`:
    made of what it was."""
    statistics_begun(run, name, node)
    if is_part(base):
        detail = "setting" if key is not None and key.const in _SETTINGS else ""
        if detail and again and run.in_each_round():
            detail = "in each round"
        if not detail and run.in_each_round():
            detail = "by hand"
        run.meet("state.write", node, run.segment(node), [value], detail=detail)


def parameter_written(run: Run, stmt: ast.AugAssign, stood: Value, value: Value) -> Value:
    """What a name gets in place of what it was; of a parameter that is the model's: `weight -= rate * gradient`."""
    if isinstance(stmt.target, ast.Name) and any(map(is_parameter, stood.refs)):
        run.meet("state.write", stmt, run.segment(stmt), [value])
    return value


def state_written(run: Run, ref: Ref, name: str, value: Value, node: ast.AST) -> Value:
    """What an attribute of an object becomes: notes what is state, and that it is written."""
    if not isinstance(ref, Instance) or ref.kind != "module":
        return value
    marked = f"#state {name}"
    if (known := run.read(ref, marked)) is not None:
        detail = "buffer" if known.const == "buffer" else ""
        run.meet("state.write", node, run.segment(node), [value], detail=detail)
    elif value.type == PARAMETER:
        run.store.set(ref, marked, constant(True))
    return replace(value, type=TENSOR) if value.type == PARAMETER else value


def registered(run: Run, ref: Instance, name: Value, value: Value, kind: str) -> None:
    """`register_buffer` or `register_parameter` of a model; `kind` says which."""
    if isinstance(name.const, str):
        run.store.set(
            ref, name.const, value if value.const is None else replace(value, type=TENSOR, where="")
        )
        run.store.set(ref, f"#state {name.const}", constant(kind))


def mode_set(run: Run, ref: Instance, word: str, args: Sequence[Value], node: ast.AST) -> None:
    """`model.train()` and `model.eval()`: the mode of a model on the main process, and that on the others."""
    inner = ref.wrapped.of(Instance)[0] if ref.wrapped is not None and ref.wrapped.of(Instance) else ref
    mode = constant(word == "train")
    if word == "train" and args:
        mode = args[0]
    run.depends()
    guard = next((one for one in run.guards if one.kind in _OF_ONE), None)
    if guard is None:
        run.store.set(inner, MODE, mode)
    elif mode.const is UNSET:
        mode = run.read(inner, MODE) or mode  # `model.train(before)` brings back what it was
    why = run.reason(node, f"`{run.segment(node)}` is done on some processes only") if guard else None
    run.store.set(inner, MODE_OF_ONE, replace(mode, why=why))


def made_again(run: Run, name: str, receiver: Value, node: ast.AST) -> None:
    """A prepared model that calls its own constructor: of its new parameters the Accelerator knows nothing."""
    for ref in receiver.of(Instance) if name == "__init__" else ():
        if ref.kind == "module" and (ref.prepared or run.read(ref, "#prepared") is not None):
            run.meet("state.write", node, run.segment(node), detail="made again")


def statistics_begun(run: Run, name: str, node: ast.AST) -> None:
    """An attribute is written, or a method called: the statistics of batches begin anew."""
    if name in _STATISTICS:
        run.meet("statistics.reset", node, run.segment(node))


def statistics_made(run: Run, ref: Instance, args: Sequence[Value], node: ast.AST) -> None:
    """A model in the mode for training sees a rank's batch: its layers note the statistics of that."""
    mode = run.read(ref, MODE)
    own = next((value for value in args if not array_of(value).is_same), None)
    if own is not None and mode is not None and mode.const is True and run.in_shared_loop():
        run.meet("statistics.made", node, run.segment(node), [own])


def mode_met(run: Run, ref: Instance, node: ast.AST) -> None:
    """A model is run that may be in another mode on one process."""
    inner = ref.wrapped.of(Instance)[0] if ref.wrapped is not None and ref.wrapped.of(Instance) else ref
    of_one, of_others = run.read(inner, MODE_OF_ONE), run.read(inner, MODE)
    if of_one is None or of_others is None or of_one.why is None or of_one.const == of_others.const:
        return
    run.depends()
    if not any(one.kind in _OF_ONE for one in run.guards):
        name = run.segment(getattr(node, "func", node))
        run.meet("state.write", node, name, [Value(own(), of_one.why)], detail="mode")
