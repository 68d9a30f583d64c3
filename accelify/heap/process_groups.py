"""What torch.distributed does to values: its collectives, ranks, DistributedDataParallel and DistributedSampler.

Met by `accelify check` alone: convert writes none of it.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from accelify.domains.collectives import all_reduced, broadcast, gathered, words_of
from accelify.domains.placement import EACH, MAIN, ONE, SAME, Kind, Placement, own
from accelify.domains.replacing import replace
from accelify.heap import misuse
from accelify.heap.accelerator import again, is_accelerate, prepared, processes
from accelify.heap.collating import SAMPLERS
from accelify.heap.containers import array_of, element, elements, put, tuple_of
from accelify.heap.counts import WORLDS, is_of_launcher
from accelify.heap.dividing import by_rank
from accelify.heap.engines import ALTERED
from accelify.heap.engines import ENGINE as IN_ENGINE
from accelify.heap.flags import truth
from accelify.heap.models import SENDS, has_buffers
from accelify.heap.paths import known_of
from accelify.heap.pieces import MADE
from accelify.heap.run import Run
from accelify.heap.tables import passed_back
from accelify.heap.unbound import has_attribute
from accelify.heap.values import (
    FIRST_FLAG,
    NONE,
    OWN_DEVICE,
    PROCESSES,
    RANK,
    SPAWNED,
    UNSET,
    Class,
    Container,
    Function,
    Guard,
    Instance,
    Library,
    Ref,
    Value,
    constant,
)
from accelify.heap.wrapper_attributes import ENGINE

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_GROUP = "torch.distributed."
_RANKS = frozenset({"get_rank", "get_node_local_rank"})
_MPI = "mpi4py.MPI.COMM_WORLD."
# OpenMMLab's rank and number of processes in one.
_OF_BOTH = ("mmcv.runner", "mmcv.runner.dist_utils", "mmengine.dist")
_BOTH = frozenset(f"{module}.get_dist_info" for module in _OF_BOTH)
# What is so in several processes.
_ALWAYS = frozenset({"is_available", "is_initialized", "is_torchelastic_launched"})
# Collectives by the number of the argument that they write, and of the one that they send.
# What divides a model's parameters over the processes.
_SHARDING = frozenset(
    f"torch.distributed.{name}"
    for name in ("fsdp.FullyShardedDataParallel", "fsdp.fully_shard", "_composable.fsdp.fully_shard")
)
_BATCHING = frozenset({"torch.utils.data.BatchSampler", "torch.utils.data.sampler.BatchSampler"})
_LOCKS = frozenset({"filelock.FileLock", "filelock.SoftFileLock", "fasteners.InterProcessLock"})
# A library's mean over the processes.
_MEANS = frozenset({"timm.utils.reduce_tensor", "timm.utils.distributed.reduce_tensor"})
_OVER_ALL = {
    **dict.fromkeys(("all_reduce", "broadcast", "broadcast_object_list", "reduce"), (0, 0)),
    **dict.fromkeys(("gather", "gather_object"), (1, 0)),
    **dict.fromkeys(
        "all_gather all_gather_into_tensor all_gather_single all_gather_object scatter scatter_object_list "
        "reduce_scatter reduce_scatter_tensor reduce_scatter_single all_to_all all_to_all_single".split(),
        (0, 1),
    ),
}
# The option by which torch.distributed.launch tells a script its rank.
LAUNCHED_WITH = "local_rank"
# The slot of what an object of Accelerate's runs in each process that it is called in.
_LAUNCHES = "#launches"
# What starts one process more, with its rank among its arguments where it starts one in each round of a loop.
_PROCESSES = frozenset({"torch.multiprocessing.Process", "multiprocessing.Process"})
_CONTEXTS = frozenset({"torch.multiprocessing.get_context", "multiprocessing.get_context"})
# How many objects are looked into that one process hands to another.
_MOST_HANDED = 100
_RANK = "the rank"
# Of a group of one process; the place of its size among the arguments.
ALONE, _SIZE = "alone", 3
# Of torch.distributed.checkpoint, and of a model that is divided over the processes.
_OF_CHECKPOINTS = frozenset(
    """
    checkpoint.async_save checkpoint.load checkpoint.load_state_dict checkpoint.save checkpoint.save_state_dict
    checkpoint.state_dict.get_model_state_dict checkpoint.state_dict.get_optimizer_state_dict
    checkpoint.state_dict.get_state_dict checkpoint.state_dict.set_model_state_dict
    checkpoint.state_dict.set_optimizer_state_dict checkpoint.state_dict.set_state_dict
    fsdp.FullyShardedDataParallel.full_optim_state_dict fsdp.FullyShardedDataParallel.optim_state_dict
    """.split()
)
_WAITS = frozenset({"barrier", "monitored_barrier", "init_process_group"})


def distributed_call(
    engine: Interpreter, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value | None:
    """A call of a name of torch.distributed, or of what goes with it; None for another name.

    Args:
        engine: that goes through the script.
        name: the canonical dotted name of what is called.
        args: by position.
        keywords: by name.
        node: the call.
    """
    run = engine.run
    word = name.removeprefix(_GROUP)
    if name in misuse.WRAPPERS:
        return wrapped(run, name, args, keywords, node)
    if name == "deepspeed.initialize":
        return _initialized(run, args, keywords, node)
    if name == "deepspeed.init_distributed":
        name, word = f"{_GROUP}init_process_group", "init_process_group"
    if name in _SHARDING and args:
        # It has no wrapper's names, and `fully_shard` changes the model itself.
        run.in_place = ALTERED
        sharded = wrapped(run, name, args, keywords, node)
        for ref in sharded.of(Instance) if name.endswith("DataParallel") else ():
            run.store.set(ref, misuse.SHARDED, constant(True))
        if name.endswith("fully_shard"):
            engine.calls.libraries.mutated.setdefault(node, {})[0] = sharded
        return sharded
    if name in misuse.SAMPLERS:
        shuffle = keywords.get("shuffle", args[3] if len(args) > 3 else NONE)
        detail = "in order" if shuffle.const is False else ""
        if not detail:
            misuse.of_sampler(run, args, keywords, node)
        # Which part it gives this process is no part of what it is.
        args = [Value() if value.type in (RANK, PROCESSES) else value for value in args]
        keywords = {word: value for word, value in keywords.items() if value.type not in (RANK, PROCESSES)}
        sampler = engine.calls.libraries.call(name, args, keywords, node)
        run.meet("sampler", node, "DistributedSampler", [sampler], detail=detail)
        return sampler
    if name in _BATCHING:
        # Batches of the samples that another sampler chooses.
        inner = args[0] if args else keywords.get("sampler", NONE)
        known = (ref.type in misuse.SAMPLERS or by_rank(run, ref) for ref in inner.of(Instance))
        return inner if any(known) else None
    if name in _LOCKS:
        return Value(
            type=FIRST_FLAG
        )  # one process after the other: those that come later find what the first left
    if name in _MEANS and args:
        run.meet("collective", node, word)
        place = all_reduced(array_of(args[0]), "mean")
        return Value(place, run.reason(node, f"reduced by {word}", args[0]), type=args[0].type)
    if name in ("torch.multiprocessing.spawn", "torch.multiprocessing.start_processes"):
        if keywords.get("start_method", args[5] if len(args) > 5 else NONE).const == "fork":
            misuse.of_launch(run, name.rpartition(".")[2], node)
        return _spawned(engine, args, keywords, node)
    if name in _CONTEXTS:
        return Value(refs=(Library(name.rpartition(".")[0]),))
    if name in _PROCESSES:
        return _started(engine, name, keywords, node)
    if is_accelerate(name) in ("notebook_launcher", "debug_launcher"):
        if is_accelerate(name) == "notebook_launcher":
            misuse.of_launch(run, "notebook_launcher", node)
        return _spawned(engine, args, keywords, node, with_rank=False)
    if is_accelerate(name) == "PrepareForLaunch" and args:
        made = run.allocate((node, name), lambda: Instance(None, name))
        run.store.set(made, _LAUNCHES, args[0])
        return Value(refs=(made,))
    if name in ("os.getenv", "os.environ.get") and args:
        return _of_environment(engine.run, args[0], node)
    if name == "builtins.hasattr" and len(args) == 2:
        return has_attribute(run, *args)
    if name == "copy.deepcopy" and args:
        return _copied(run, args[0], node)
    if name == "torch.device":
        # Where something lies is no part of what it is.
        if not all(value.place.is_same for value in args):
            return Value(type="torch.device", text=OWN_DEVICE)
        device = engine.calls.libraries.call(name, args, keywords, node)
        return replace(device, text=known_of(args[0])) if len(args) == 1 else device
    if name == "torch.cuda.current_device":
        return Value(own(), run.reason(node, "the rank"), type="builtins.int")
    if name.startswith(_MPI):
        return of_mpi(run, name.replace("Get_", ""), node)
    if name in _BOTH:
        return tuple_of(run, [rank(run, node), processes(run, node)])
    if not name.startswith(_GROUP):
        return None
    if word in _RANKS:
        run.meet("asks", node, word)
        return rank(run, node)
    if word == "get_world_size":
        return processes(run, node)
    if word == "get_backend":
        return _backend(run)
    if word in _ALWAYS:
        return constant(True)
    if word in _WAITS:
        run.on_cpu = run.grouped = True
        run.meet("collective", node, word)
        if word == "init_process_group":
            size = keywords.get("world_size", args[_SIZE] if len(args) > _SIZE else NONE)
            run.meet("joins", node, word, detail=ALONE if size.const == 1 else "")
            _told(engine, keywords, "rank", rank(run, node), node)
            _told(engine, keywords, "world_size", processes(run, node), node)
        return NONE
    if word in _OF_CHECKPOINTS:
        run.meet("collective", node, word)
    if word in _OVER_ALL:
        return _collective(engine, word, args, keywords, node)
    return None


def _backend(run: Run) -> Value | None:
    """The backend by which all process groups are joined; None where that is not known."""
    joined = [one.node for one in run.events if one.kind == "joins" and one.name == "init_process_group"]
    given = [
        next(
            (word.value for word in one.keywords if word.arg == "backend"), one.args[0] if one.args else None
        )
        for one in joined
        if isinstance(one, ast.Call)
    ]
    words = {one.value if isinstance(one, ast.Constant) else None for one in given}
    return constant(words.pop()) if len(words) == 1 and None not in words else None


def wrapped(
    run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value:
    """A model in the wrapper whose gradients the processes average."""
    misuse.of_call(run, name, args, keywords, node)
    run.at_model = run.on_cpu = run.grouped = True
    run.meet("joins", node, name)
    model = args[0] if args else keywords.get("module", NONE)
    run.meet("wrapped", node, name, detail="waits")
    wrapper = prepared(run, model, node)
    sent = keywords.get("broadcast_buffers", constant(True)).const is not False
    for ref in wrapper.of(Instance):
        ref.kind = "module"  # whatever is known of what it wraps
        inner = ref.wrapped.of(Instance) if ref.wrapped is not None else []
        if not sent or not all(has_buffers(run, one) for one in inner):
            run.store.set(
                ref, SENDS, constant("in training" if any(has_buffers(run, one) for one in inner) else "")
            )
    return wrapper


def _initialized(run: Run, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST) -> Value:
    """What `deepspeed.initialize` gives: the engine around a model, its optimizer, a loader of each process's share,
    and a schedule."""
    run.in_place = IN_ENGINE  # the engine has the attributes of the model
    model = keywords.get("model", args[1] if len(args) > 1 else NONE)
    model = wrapped(run, "deepspeed.initialize", [model], {}, node)
    for ref in model.of(Instance):
        run.store.set(ref, ENGINE, constant(True))
    made = [run.allocate((node, kind), partial(Instance, None, "", kind)) for kind in ("optimizer", "loader")]
    for one in made:
        one.prepared = True
    return tuple_of(run, [model, *(Value(refs=(one,)) for one in made), Value()])


def _copied(run: Run, value: Value, node: ast.AST) -> Value | None:
    """A copy of models that are not prepared: other objects, with parameters of their own."""
    models = [ref for ref in value.of(Instance) if ref.kind == "module" and not ref.prepared]
    if not models or len(models) < len(value.refs):
        return None
    made = list[Ref]()
    for ref in models:
        run.store.look(ref)
        copy = run.allocate((node, ref), partial(Instance, ref.cls, ref.type, ref.kind))
        for name, inner in list(ref.fields.items()):
            if name not in ("#prepared", MADE):
                run.store.set(copy, name, inner)
        made.append(copy)
    return Value(refs=tuple(made))


def rank_of_environment(engine: Interpreter, ref: Ref, args: Sequence[Value], node: ast.AST) -> Value | None:
    """The rank, where `os.environ[...]` asks for it; None elsewhere. Notes that it is set to one GPU."""
    known = isinstance(ref, Library) and ref.name == "os.environ" and args
    if known and len(args) > 1 and args[0].const == "CUDA_VISIBLE_DEVICES" and str(args[1].const).isdigit():
        engine.run.meet("sees one", node, str(args[1].const))
    return _of_environment(engine.run, args[0], node) if known else None


def _of_environment(run: Run, key: Value, node: ast.AST) -> Value | None:
    """The rank or the number of processes, as the launcher says them; None for another variable."""
    if key.const in WORLDS:
        return processes(run, node)
    return replace(rank(run, node), text="*") if is_of_launcher(key) else None


def rank(run: Run, node: ast.AST) -> Value:
    """This process's number among all."""
    return Value(own(), run.reason(node, "the rank"), type=RANK)


def of_mpi(run: Run, name: str, node: ast.AST) -> Value | None:
    """The rank or the number of processes, as MPI has them."""
    if not name.startswith(_MPI):
        return None
    asked = {"rank": rank, "size": processes}.get(name.removeprefix(_MPI))
    return asked(run, node) if asked is not None else None


def _spawned(
    engine: Interpreter,
    args: Sequence[Value],
    keywords: Mapping[str, Value],
    node: ast.AST,
    *,
    with_rank: bool = True,
) -> Value:
    """Every process runs a function, `with_rank` with its rank before the other arguments."""
    called = args[0] if args else keywords.get("fn", keywords.get("function", NONE))
    given = keywords.get("args", args[1] if len(args) > 1 else NONE)
    run = engine.run
    run.meet("joins", node, "spawn")
    several = keywords.get("nprocs")
    with run.under(Guard(SPAWNED, run.reason(node, "in the processes that are started here"))):
        launched = [run.read(ref, _LAUNCHES) for ref in called.of(Instance)]
        first = [rank(run, node)] if with_rank and not any(launched) else []
        called = next((one for one in launched if one is not None), called)
        rest = [_handed(run, value, set()) for value in elements(run, given) or []]
        several = None if several is not None and several.const == 1 else several
        rest = [processes(run, node) if several is not None and one == several else one for one in rest]
        _told(engine, keywords, "nprocs", processes(run, node), node)
        engine.calls.call(called, [*first, *rest], {}, node)
    return NONE


def _handed(run: Run, value: Value, seen: set[Ref]) -> Value:
    """What one process hands to those that it starts: they have alike what it drew, or took from the clock. What goes
    by a rank is of another machine's process on each machine."""
    for ref in value.refs:
        if isinstance(ref, Instance | Container) and ref not in seen and len(seen) < _MOST_HANDED:
            seen.add(ref)
            run.store.look(ref)
            for name in [name for name in ref.fields if name[0] != "#"]:
                stood = run.read(ref, name) or Value()
                made = _handed(run, stood, seen)
                if made is not stood:
                    run.store.set(ref, name, made)
    alike = value.place.is_uniform or (
        value.why is not None and any(s.text == _RANK for s in value.why.steps())
    )
    return value if alike else replace(value, place=SAME)


def _started(engine: Interpreter, name: str, keywords: Mapping[str, Value], node: ast.AST) -> Value | None:
    """The processes that a loop over their ranks starts one by one; None for one of another kind, which joins none."""
    run = engine.run
    ranks, count = _numbers_around(run.module.tree, node)

    def known(part: ast.expr, value: Value) -> Value:
        if isinstance(part, ast.Name) and part.id in ranks:
            return rank(run, node)
        if count is not None and ast.dump(part) == ast.dump(count):
            return processes(run, node)
        return _handed(run, value, set())

    asked = {one.arg: one.value for one in getattr(node, "keywords", ())}
    parts = getattr(asked.get("args"), "elts", [])
    given = [*map(known, parts, elements(run, keywords.get("args", NONE)) or [])]
    table = asked.get("kwargs")
    pairs = [(one.arg, one.value) for one in getattr(table, "keywords", ())]
    if isinstance(table, ast.Dict):
        pairs = [
            (getattr(key, "value", None), part) for key, part in zip(table.keys, table.values, strict=True)
        ]
    named = {
        word: known(part, element(run, keywords["kwargs"], node, word))
        for word, part in pairs
        if isinstance(word, str)
    }
    if not any(value.type == RANK for value in [*given, *named.values()]):
        return None
    met = len(run.events)
    run.store.begin()
    with run.under(Guard(SPAWNED, run.reason(node, "in the processes that are started here"))):
        engine.calls.call(keywords.get("target", NONE), given, named, node)
    written = run.store.undo()
    if not any(event.kind == "joins" or event.name == "Accelerator" for event in run.events[met:]):
        del run.events[met:]
        return None
    run.store.write_all(written)
    return Value(refs=(run.allocate((node, name), lambda: Instance(None, name)),))


def _numbers_around(tree: ast.Module | None, node: ast.AST) -> tuple[set[str], ast.expr | None]:
    """The names that count the rounds of the innermost loop around a node, and how many rounds there are."""
    found: tuple[set[str], ast.expr | None] = (set(), None)
    for one in ast.walk(tree) if tree is not None else ():
        loops = [one] if isinstance(one, ast.For) else getattr(one, "generators", [])
        for loop in loops:
            counts = loop.iter
            if isinstance(counts, ast.Call) and getattr(counts.func, "id", "") == "range" and counts.args:
                if isinstance(loop.target, ast.Name) and node in set(ast.walk(one)):
                    found = {loop.target.id}, counts.args[min(len(counts.args), 2) - 1]
    return found


def _collective(
    engine: Interpreter, word: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> Value:
    run = engine.run
    run.meet("collective", node, word)
    misuse.of_result(run, word, args, keywords, node)
    into, sent = _OVER_ALL[word]
    if len(args) <= max(into, sent):
        return NONE
    value = args[sent]
    inner = element(run, value, node) if value.of(Container) else value
    place = _made(word, array_of(inner), args, keywords)
    text = words_of(word, array_of(inner))
    made = Value(place, again(run, inner, node) or run.reason(node, text, inner), type=inner.type)
    containers = args[into].of(Container)
    if containers and (place.kind is Kind.PARTS or place.form == EACH):
        made = made.placed(replace(place, form=ONE))  # the list has an element of each
    for ref in containers:
        # What was there is overwritten.
        for slot in [name for name in ref.looked_into() if name.startswith("[")]:
            run.store.set(ref, slot, made)
        put(run, ref, made)
    if not containers:
        engine.calls.libraries.mutated.setdefault(node, {})[into] = made
    return NONE


def _told(engine: Interpreter, keywords: Mapping[str, Value], name: str, value: Value, node: ast.AST) -> None:
    """What a call gets as the rank or the number of processes holds from then on, wherever it comes from."""
    stood = keywords.get(name)
    if stood is None or stood.const is not UNSET or stood.type or not stood.place.is_same:
        return
    engine.calls.libraries.mutated.setdefault(node, {})[name] = value
    given = next((one.value for one in getattr(node, "keywords", ()) if one.arg == name), None)
    passed_back(engine, given, value)


def argument_of(run: Run, called: Value, name: str, node: ast.Call) -> ast.expr | None:
    """What a call hands to a parameter of a function of the project, None where that is not to be seen.

    Args:
        run: the run.
        called: the function, method or class.
        name: of the parameter.
        node: the call.
    """
    named = next((one.value for one in node.keywords if one.arg == name), None)
    for ref in called.refs if named is None else ():
        begins = run.read(ref, "__init__") if isinstance(ref, Class) else None
        found = begins.of(Function) if begins is not None else [getattr(ref, "method", ref)]
        names = [one.arg for part in found if isinstance(part, Function) for one in part.node.args.args]
        names = names if ref in found else names[1:]
        given = dict(zip(names, node.args, strict=False))
        if name in given and not any(isinstance(one, ast.Starred) for one in node.args):
            return given[name]
    return named


def _made(word: str, place: Placement, args: Sequence[Value], keywords: Mapping[str, Value]) -> Placement:
    if word == "all_reduce":
        asked = keywords.get("op", args[1] if len(args) > 1 else NONE)
        names = [ref.name.rpartition(".")[2] for ref in asked.refs if isinstance(ref, Library)]
        operation = {"MAX": "max", "MIN": "min", "AVG": "mean"}.get(names[0] if names else "", "sum")
        return all_reduced(place, operation)
    if word.startswith("all_gather"):
        return gathered(place)
    if word.startswith("broadcast"):
        return broadcast(place)
    return MAIN if word in ("reduce", "gather", "gather_object") else own("put together first")


def divided(run: Run, made: Value, keywords: Mapping[str, Value], node: ast.AST) -> Value:
    """A loader whose sampler gives each process its share, or that a library makes so, as one that is prepared;
    anything else as it is."""
    asked = truth(keywords.get("distributed", NONE))
    # Beside an Accelerator, which divides it once more, the sampler itself is named.
    for ref in made.of(Instance) if not run.accelerated else ():
        inner = [run.read(ref, f"#{name}") for name in SAMPLERS] if ref.kind == "loader" else []
        if (asked and ref.kind == "loader") or any(
            one.type in misuse.SAMPLERS for value in inner if value is not None for one in value.of(Instance)
        ):
            return prepared(run, made, node)
    return made
