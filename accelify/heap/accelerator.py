"""What the Accelerator and its functions do to values: accelify.runtime's, and Hugging Face Accelerate's alike."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from accelify.domains.collectives import all_reduced, broadcast, gathered
from accelify.domains.placement import (
    MAIN,
    SAME,
    SHARD,
    UNRELATED,
    Kind,
    Placement,
    function,
    own,
    same,
)
from accelify.domains.reasons import Reason
from accelify.domains.replacing import replace
from accelify.heap import misuse
from accelify.heap.containers import array_of, container, element, elements, fill_of, put, tuple_of
from accelify.heap.engines import ALTERED, ENGINE, SAVES_ALONE, is_sharding, puts_together, saves_alone
from accelify.heap.gradient_scalers import CASTING, PLAIN
from accelify.heap.models import has_parameters_of, mark
from accelify.heap.moved import was_sent
from accelify.heap.prepare_calls import of_prepare
from accelify.heap.prepared_models import given_back, meet_shapeless, stays
from accelify.heap.random_draws import OTHER_SEED, STREAMS, seed_alike, seed_apart
from accelify.heap.run import Run
from accelify.heap.state import MODE, MODE_OF_ONE
from accelify.heap.values import (
    DEVICE,
    FIRST_FLAG,
    MAIN_FLAG,
    NONE,
    ONCE,
    ONE_FLAG,
    OWN_DEVICE,
    PROCESSES,
    RANK,
    UNSET,
    WHOLE,
    Bound,
    Container,
    Guard,
    Instance,
    Ref,
    Value,
    constant,
    written_arguments,
)

PACKAGES = ("accelify.runtime", "accelerate")
STATES = frozenset({"PartialState", "AcceleratorState", "Accelerator"})
_MAIN_FLAGS = frozenset({"is_main_process", "is_local_main_process"})
_RANKS = frozenset({"process_index", "local_process_index"})
_GATHERS = frozenset({"gather", "gather_for_metrics", "gather_object"})
_WAITS = frozenset({"wait_for_everyone", "end_training", "free_memory", "clear", "save_state", "load_state"})
_ONCE_DECORATORS = frozenset({"on_main_process", "on_local_main_process", "on_process", "on_last_process"})
# What a reason ends with that is one for N times a figure.
AGAIN = " puts together once more what is of all processes already"
# A tracker, and what is in it; the slot of one that is asked for by its name, and what it has on the other processes.
_TRACKER, _UNWRAPPED = "accelerate.tracking.GeneralTracker", "accelerate.tracking.Unwrapped"
_BLANK = "#blank"
# The slot of an Accelerator that says where its trackers are begun, and so are in its list.
_BEGUN = "#trackers"
_OF_TRACKERS = frozenset("finish log main_process_only name start store_init_configuration".split())
# What gives a loader's batches but for the first ones.
_SKIPPING = "skip_first_batches"
# Functions of the runtime's that are methods of an Accelerator, too.
_WORDS = frozenset("gather gather_object reduce broadcast broadcast_object_list pad_across_processes".split())
_FIRST = frozenset({"main_process_first", "local_main_process_first"})


def is_accelerate(name: str) -> str:
    """The last word of a name of accelify.runtime or Hugging Face Accelerate, empty for another name."""
    first = name.split(".")[0]
    return name.rpartition(".")[2] if first == "accelerate" or name.startswith("accelify.runtime") else ""


def accelerate_call(
    run: Run, word: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value | None:
    """A call of a name of the runtime's: an Accelerator, a state, or one of its functions."""
    if word in STATES:
        begin(run, word, keywords, node)
        made = run.allocate((node, word), lambda: Instance(None, f"accelify.runtime.{word}", "accelerator"))
        return Value(refs=(made,))
    if word == "DataLoaderConfiguration":
        divide(run, keywords)
    version = keywords.get("fsdp_version")
    if word == "FullyShardedDataParallelPlugin" and version is not None and version.const == 2:
        run.in_place = ALTERED
    if word == "set_seed" and run.checks:
        specific = keywords.get("device_specific", args[1] if len(args) > 1 else NONE).const is True
        differing = [value for value in args[:1] if not array_of(value).is_uniform]
        if specific or differing:
            seed_apart(run, STREAMS, run.reason(node, OTHER_SEED, *differing))
        else:
            run.meet("seeded", node, run.segment(node))
            seed_alike(run, STREAMS)
            run.begun_alike, run.alike_streams = True, STREAMS
        return NONE
    if word in _WORDS:
        return accelerator_method(run, None, word, args, keywords, node)
    return args[0] if word == _SKIPPING and args else None


def begin(run: Run, word: str, keywords: Mapping[str, Value], node: ast.AST) -> None:
    """An Accelerator or a state is made, by its class or by one of the project that derives from it."""
    # Hugging Face's leaves the ranks' random numbers as they are.
    run.begun_alike = not (run.checks and run.at_model)
    alone = keywords.get("step_scheduler_with_optimizer", NONE).const is False
    divide(run, keywords)
    run.meet(
        "accelerator", node, word, detail="schedules alone" if alone or (run.split and run.at_model) else ""
    )
    if any(name.startswith("gradient_accumulation") and v.const != 1 for name, v in keywords.items()):
        run.meet("accumulates", node, "Accelerator")
    if run.checks and word == "Accelerator":
        precision = keywords.get("mixed_precision", constant("no"))
        run.accelerated = PLAIN if precision.const == "no" else CASTING
        run.accumulated |= _divisors(node)
    if word == "Accelerator" and is_sharding(run, keywords):
        run.in_place = run.in_place or ENGINE
    cpu = keywords.get("cpu")
    placement = keywords.get("device_placement")
    if (cpu is not None and cpu.const is True) or (placement is not None and placement.const is not True):
        run.on_cpu = True


def divide(run: Run, keywords: Mapping[str, Value]) -> None:
    """Note that each batch of a loader is divided between the processes, where an Accelerator is asked for that."""
    split = keywords.get("split_batches")
    if split is not None and split.const is True:
        run.split = not run.unsplit


def processes(run: Run, node: ast.AST) -> Value:
    """How many processes there are: several, where a script is written for them."""
    type_ = PROCESSES if run.checks else "builtins.int"
    return Value(same(-1), run.reason(node, "the number of processes"), type=type_)


def accelerator_attribute(run: Run, ref: Instance, name: str, node: ast.AST) -> Value | None:
    """An attribute of an Accelerator or a state, None for its methods."""
    if name in _MAIN_FLAGS:
        of_each = " of each machine" if name == "is_local_main_process" else ""
        return Value(own(), run.reason(node, f"only on the main process{of_each}"), type=MAIN_FLAG)
    if name == "is_last_process" and run.checks:
        return Value(own(), run.reason(node, "only on the last process"), type=ONE_FLAG)
    if name in _RANKS:
        return Value(own(), run.reason(node, "the rank"), type=RANK)
    if name == "num_processes":
        return processes(run, node)
    if name == "use_distributed" and run.checks:
        return constant(True)
    if name in ("device", "mixed_precision", "distributed_type", "sync_gradients", "use_distributed"):
        is_device = name == "device"
        where = DEVICE if is_device and not run.on_cpu else ""
        text = OWN_DEVICE if is_device and run.checks else ""
        return Value(type="torch.device" if is_device else "", where=where, text=text)
    if name == "state" and run.checks:
        return Value(
            own(), run.reason(node, "the rank"), refs=(ref,)
        )  # as a text it says which process it is
    if name in ("state", "gradient_state"):
        return Value(refs=(ref,))
    if name == "trackers":
        trackers = container(run, "list")
        put(run, trackers, _tracker(run, node))
        begun = run.read(ref, _BEGUN) or NONE
        return Value(begun.place, begun.why, refs=(trackers,), type="list")
    return None


def _tracker(run: Run, node: ast.AST, type_: str = _TRACKER) -> Value:
    """One of an Accelerator's trackers: on the other processes it does nothing."""
    return Value(refs=(run.allocate((node, "tracker"), lambda: Instance(None, type_, "object")),), type=type_)


def tracker_attribute(run: Run, ref: Instance, name: str, node: ast.AST) -> Value | None:
    """An attribute of a tracker that the main process alone has; None for another one, and of any other object."""
    if name in _OF_TRACKERS or not run.at_model or run.read(ref, _BLANK) is None:
        return None
    why = run.reason(node, f"`{run.segment(node)}` is there on the main process alone")
    tree = run.module.tree or ast.Module([], [])
    caught = [part for one in ast.walk(tree) if isinstance(one, ast.Try) for part in one.body]
    run.depends()
    if not (any(guard.parts_ranks for guard in run.guards) or any(node in ast.walk(part) for part in caught)):
        text = f"`.{name}` of a tracker is there on the main process alone, and the others end with an AttributeError"
        run.meet("misuse", node, text, detail="same")
    return Value(MAIN, why)


def accelerator_method(
    run: Run,
    ref: Instance | None,
    name: str,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    node: ast.AST,
) -> Value | None:
    """A call of one of the Accelerator's methods; None for one that is not known."""
    everything = [*args, *keywords.values()]
    first = args[0] if args else next(iter(keywords.values()), NONE)
    if name == "print":
        run.meet("terminal.write", node, "accelerator.print", everything, guards=[_main(run, node)])
        return NONE
    if name == "log":
        run.meet("tracker.log", node, "accelerator.log", everything, guards=[_main(run, node)])
        return NONE
    if name == "save":
        path = args[1] if len(args) > 1 else keywords.get("f")
        run.meet("file.write", node, "accelerator.save", [first], path, guards=[_main(run, node)])
        return NONE
    if name in _GATHERS:
        run.meet("collective", node, f"accelerator.{name}")
        if run.checks:
            misuse.of_gather(run, name, first, node)
            misuse.thrown_away(run, name, node)
            _meet_sums(run, name, first, node)
        if name == "gather_object" and first.of(Container):
            # The elements of all ranks' lists, one after the other.
            each = elements(run, first) or [element(run, first, node)]
            filled = any(map(fill_of, first.of(Container)))
            place = array_of(first) if filled else function(map(array_of, each), linearly=True)
            if place.kind is Kind.SHARD:
                text = (
                    "the last round has a row for each rank, without which one is taken again and is twice in"
                )
                run.assume(f"{text} `{run.segment(node)}`", node)
            return Value(gathered(place), run.reason(node, "gathered", *each))
        alike = _alike(run, first, node)
        if alike is not None and run.checks:
            run.meet("misuse", node, alike.text, detail="gathered")
        return _over_tensors(run, first, gathered, node, "gathered", alike=alike)
    if name == "reduce":
        operation = keywords.get("reduction", args[1] if len(args) > 1 else constant("sum")).const
        word = operation if isinstance(operation, str) else "sum"
        run.meet("collective", node, "accelerator.reduce")
        if run.checks:
            misuse.thrown_away(run, name, node)
            _meet_sums(run, name, first, node)
        alike = _alike(run, first, node) if word == "sum" else None
        return _over_tensors(
            run, first, lambda place: all_reduced(place, word), node, f"reduced by {word}", alike=alike
        )
    if name in ("broadcast", "broadcast_object_list"):
        run.meet("collective", node, f"accelerator.{name}")
        return _over_tensors(run, first, broadcast, node, "broadcast")
    if name == "pad_across_processes":
        run.meet("collective", node, f"accelerator.{name}")
        return _over_tensors(run, first, lambda place: replace(place, padded=False), node, "padded")
    if name == "backward":
        if run.checks:
            misuse.of_backward(run, node)
        run.meet("backward", node, "accelerator.backward", [first], detail=_word(keywords.get("reduction")))
        return NONE
    if name in ("clip_grad_norm_", "clip_grad_value_"):
        run.meet("collective", node, f"accelerator.{name}")
        return Value(type="torch.Tensor")
    run.depends()
    order = list(range(len(args)))
    if name.startswith("prepare"):
        named = [*zip(written_arguments(node), args, strict=False)]
        meet_shapeless(run, named, node)
        if run.checks:
            waits = any(map(_is_model, args)) or any(_is_trained(run, arg, value) for arg, value in named)
            run.meet("wrapped", node, name, detail="waits" * waits)
            order = of_prepare(run, args, node)
            given_back(run, name, named if not waits else (), node)
    if name in ("prepare", "prepare_model") and run.loops and any(map(_is_model, args)):
        run.meet("prepare", node, f"accelerator.{name}", args)
    if name == "prepare":
        made = [prepared(run, value, node, number) for number, value in enumerate(args)]
        given = node.args if isinstance(node, ast.Call) else []
        for value, arg in zip(made, given, strict=False):
            if run.checks and has_parameters_of(run, arg):
                for ref in value.of(Instance):
                    unknown = ref.kind == "object" and ref.cls is None and ref.prepared
                    ref.kind = "module" if unknown else ref.kind
        if len(made) == 1 and any(isinstance(one, ast.Starred) for one in given):
            # `prepare(*loaders)`, of which it is not known how many there are.
            several = container(run, "tuple")
            put(run, several, made[0])
            return Value(refs=(several,), type="tuple")
        # By what the names are meant for: all else that is wrong is found as well.
        made = [made[number] for number in order]
        return made[0] if len(made) == 1 else tuple_of(run, made)
    if name in ("prepare_model", "prepare_optimizer", "prepare_data_loader", "prepare_scheduler"):
        return prepared(run, first, node)
    if name == "unwrap_model":
        return unwrapped(first)
    if name == "shard_batch":
        run.meet("collective", node, "accelerator.shard_batch")
        run.part_loop()
        place = SHARD
        why = run.reason(node, "this rank's share of the batch")
        made = [value.placed(place, why) for value in args]
        return made[0] if len(made) == 1 else tuple_of(run, made)
    if name == "split_between_processes":
        return Value(SHARD, run.reason(node, "this rank's share"))
    if name in ("accumulate", "no_sync"):
        run.meet("accumulate", node, f"accelerator.{name}")
    if name == "init_trackers" and ref is not None:
        alone = next((one for one in run.guards if one.kind == "main"), None)
        run.store.set(ref, _BEGUN, Value(MAIN, alone.why) if alone is not None and run.checks else None)
    if name == "unscale_gradients":
        run.meet("unscaled", node, name)
    if name in _WAITS:
        if run.checks and name in ("save_state", "load_state"):
            misuse.of_folder(run, name, first, node)
        detail = SAVES_ALONE if name == "save_state" and saves_alone(run) else ""
        run.meet("collective", node, f"accelerator.{name}", detail=detail)
        return Value(refs=tuple(everything[0].refs)) if name == "free_memory" and everything else NONE
    if name == "get_state_dict" and puts_together(run):
        run.meet("collective", node, f"accelerator.{name}")
    if name == "get_tracker":
        unwraps = keywords.get("unwrap", args[1] if len(args) > 1 else NONE)
        found = _tracker(run, node) if unwraps.const is None else _tracker(run, node, _UNWRAPPED)
        for one in found.of(Instance):
            run.store.set(one, _BLANK, constant(True))
        return found
    if name == _SKIPPING:
        return first
    if name in _FIRST:
        run.meet("collective", node, f"accelerator.{name}")
        return Value(type=FIRST_FLAG)
    if name in _ONCE_DECORATORS:
        return Value(first.place, first.why, first.refs, type=ONCE)
    return Value(type=f"#accelerator.{name}")


def _divisors(node: ast.AST) -> frozenset[str]:
    """The text of the number of batches that an Accelerator accumulates gradients over."""
    words = node.keywords if isinstance(node, ast.Call) else []
    return frozenset(ast.unparse(one.value) for one in words if one.arg == "gradient_accumulation_steps")


def _is_model(value: Value) -> bool:
    models = [ref for ref in value.of(Instance) if ref.kind == "module"]
    return bool(models) and not any(ref.prepared for ref in models)


def _is_trained(run: Run, arg: ast.expr, value: Value) -> bool:
    """Whether an argument of which nothing is known is a model: the script asks for its parameters."""
    unknown = any(
        ref.kind == "object" and ref.cls is None and not stays(run, ref) for ref in value.of(Instance)
    )
    return unknown and has_parameters_of(run, arg)


def _main(run: Run, node: ast.AST) -> Guard:
    return Guard("main", run.reason(node, "only the main process"))


def _meet_sums(run: Run, name: str, value: Value, node: ast.AST) -> None:
    """What is put together of sums of each process: Accelerate's loaders fill up the last batches."""
    if run.at_model and name in ("gather", "reduce"):
        run.meet("reduces", node, f"accelerator.{name}", [value])


def _word(value: Value | None) -> str:
    return value.const if value is not None and isinstance(value.const, str) else ""


def prepared(run: Run, value: Value, node: ast.AST, number: int = 0) -> Value:
    """What `prepare` gives for an object; one of which nothing is known may be a loader as well as a model."""
    refs: list[Ref] = []
    if run.checks and value.refs and all(map(partial(stays, run), value.refs)):
        return value
    mark(run, value, trained=True)
    if not value.type and value.const is UNSET and all(isinstance(ref, Bound) for ref in value.refs):
        made = run.allocate((node, "prepared", number), lambda: Instance(None))
        made.prepared = True
        made.wrapped = Value(value.place, value.why)
        mark(run, Value(refs=(made,)), trained=True)
        return Value(value.place, value.why, (made,))
    for ref in value.refs:
        if isinstance(ref, Instance) and not ref.prepared and run.read(ref, WHOLE) is None:
            made = run.allocate((node, ref), partial(Instance, ref.cls, ref.type, ref.kind))
            made.prepared = True
            made.wrapped = Value(why=run.reason(node, f"`{run.segment(node)}`"), refs=(ref,))
            mark(run, Value(refs=(made,)), trained=True)
            _note_prepared(run, ref, made.wrapped)
            was_sent(run, ref)
            if ref.kind == "module":
                run.store.set(ref, MODE, constant(True))
                run.store.set(ref, MODE_OF_ONE, constant(True))
            refs.append(made)
        elif isinstance(ref, Container):
            inside = container(run, ref.type)
            for name, inner in list(ref.looked_into(wholly=True).items()):
                run.store.set(inside, name, prepared(run, inner, node) if name.startswith("[") else inner)
            refs.append(inside)
        else:
            refs.append(ref)
    return Value(value.place, value.why, tuple(refs), value.type)


def _note_prepared(run: Run, ref: Instance, whole: Value, depth: int = 0) -> None:
    """Note that an object is prepared, and the parts of a model with it, each in which `whole`."""
    run.store.set(ref, "#prepared", whole)
    if ref.kind != "module" or depth > 2:
        return
    run.store.look(ref)
    fields = {name: run.read(ref, name) for name in list(ref.fields) if name[0] != "#"}
    parts = fields.values()
    for name, value in fields.items() if run.checks else ():
        if value is not None and not value.place.is_same and run.read(ref, f"#state {name}") is not None:
            run.store.set(ref, name, value.placed(SAME))  # that of the main process
    for part in [one for value in parts if value is not None for one in value.of(Instance)]:
        if part.kind == "module" and run.read(part, "#prepared") is None:
            _note_prepared(run, part, whole, depth + 1)


def unwrapped(value: Value) -> Value:
    """What an object was before `prepare`."""
    refs: list[Ref] = []
    for ref in value.refs:
        inner = ref.wrapped.refs if isinstance(ref, Instance) and ref.wrapped is not None else (ref,)
        refs.extend(inner)
    return Value(value.place, value.why, tuple(refs), value.type)


def _alike(run: Run, value: Value, node: ast.AST) -> Reason | None:
    """Why all ranks have the same of a value in a loop over a loader that is not prepared; None elsewhere."""
    run.depends()
    whole = next((loop.whole for loop in reversed(run.loops) if loop.whole is not None), None)
    if whole is None or not array_of(value).is_same:
        return None
    text = f"`{run.segment(node)}` puts N copies of the same together, as {whole.text}"
    return run.reason(node, text, cause=True)


def again(run: Run, value: Value, node: ast.AST) -> Reason | None:
    """That a call puts together what is put together already, and the same on all ranks; None where it does not."""
    if not run.checks or array_of(value).kind is not Kind.SAME or value.why is None:
        return None
    if not any(step.text == "gathered" or step.text.startswith("reduced by") for step in value.why.steps()):
        return None
    return run.reason(node, f"`{run.segment(node)}`{AGAIN}", cause=True)


def _over_tensors(
    run: Run,
    value: Value,
    change: Callable[[Placement], Placement],
    node: ast.AST,
    text: str,
    in_list: bool = False,
    alike: Reason | None = None,
) -> Value:
    """A collective over a value, or over each in a structure of values; `alike` is why all ranks have the same."""
    containers = value.of(Container)
    if not containers:
        place = change(array_of(value))
        if place.is_same:
            why = run.reason(node, text, value) if run.checks else None
            return Value(place, why, type=value.type, where=value.where)
        if text == "gathered" and array_of(value).turned:
            text = f"`{run.segment(node)}` puts together along the first axis what has its rows along another"
            return run.cause(node, UNRELATED, text, value.type)
        # One by one, rows of the ranks are none of the original's, nor are figures of shares that are no means.
        apart = array_of(value).rows or array_of(value).kind is Kind.OWN
        listed = in_list and not (apart and text.startswith("reduced"))
        why = alike or again(run, value, node) or run.reason(node, text, value, by_data=listed)
        return Value(place, why, value.refs, value.type, where=value.where)
    known = elements(run, value)
    if known is not None:
        made = [_over_tensors(run, one, change, node, text, alike=alike) for one in known]
        return tuple_of(run, made)
    refs: list[Ref] = []
    for ref in containers:
        made_ref = container(run, ref.type)
        fill = fill_of(ref)
        for name, inner in list(ref.looked_into(wholly=True).items()):
            if name.startswith("["):
                changed = _over_tensors(run, inner, change, node, text, in_list=True)
                if fill == "samples" and text == "gathered":
                    changed = Value(SAME, type=inner.type)
                run.store.set(made_ref, name, changed)
            else:
                run.store.set(made_ref, name, inner)
        refs.append(made_ref)
    return Value(SAME, refs=tuple(refs), type=value.type)
