"""Uses of an Accelerator that are wrong wherever their values come from; most are met by `accelify check` alone.

Each is an event of the kind "misuse", whose detail is the demand that is not met.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from accelify.domains.placement import SAME, Kind
from accelify.heap import on_tpu
from accelify.heap.containers import array_of, elements, fill_of
from accelify.heap.device_texts import is_compared, where_named
from accelify.heap.dividing import DISTRIBUTED
from accelify.heap.divisors import divisors, made_of
from accelify.heap.gradient_scalers import scales_alone
from accelify.heap.loaded_files import is_of_weights
from accelify.heap.options import NUMBER
from accelify.heap.prepare_calls import assigned, taken
from accelify.heap.run import Event, Run
from accelify.heap.values import (
    BATCH,
    SPAWNED,
    UNSET,
    Class,
    Container,
    Guard,
    Instance,
    Library,
    Ref,
    Value,
    constant,
)
from accelify.heap.wrapper_attributes import is_asked_for

# The names of torch's wrapper for several processes, and of its sampler.
WRAPPERS = frozenset(
    f"torch.nn.parallel.{name}" for name in ("DistributedDataParallel", "distributed.DistributedDataParallel")
)
SAMPLERS = DISTRIBUTED
_SEED = 4  # the place of its seed among its arguments
# Functions that do by themselves what the Accelerator does, with the way out.
_BESIDE = {
    "torch.nn.utils.clip_grad_norm_": "use accelerator.clip_grad_norm_, which takes the loss scale off first",
    "torch.nn.utils.clip_grad_value_": "use accelerator.clip_grad_value_, which takes the loss scale off first",
    "torch.nn.DataParallel": "leave it out: accelerator.prepare wraps the model",
    **dict.fromkeys(
        ("torch.amp.GradScaler", "torch.cuda.amp.GradScaler"),
        "use Accelerator(mixed_precision='fp16'), which scales the loss in accelerator.backward",
    ),
    **dict.fromkeys(WRAPPERS, "leave it out: accelerator.prepare wraps the model"),
}
_CONDITIONS = (ast.If, ast.IfExp)
# What meets the copies that a DataParallel makes: the method that each copy's part is given, before it runs.
_REPLICATED = "__data_parallel_replicate__"
_SCALING = "apex.amp.scale_loss"
_SPLITTING = frozenset(
    {"torch.nn.DataParallel", "torch.nn.parallel.DataParallel", "torch.nn.parallel.data_parallel"}
)
_LOADED = "`torch.load` puts what was on a GPU on the same GPU for every process; pass map_location"
# What puts something into a list.
_FILLING = frozenset({"append", "extend"})
# The mark of a model in FSDP's first wrapper, whose weights the processes put together for `state_dict`.
SHARDED = "#sharded"
_PLACES = ("device", "device_id", "gpu", "gpu_id", "map_location")
# The text of a device with its number.
_INDEXED = re.compile(r"(?:cuda|xpu|npu):\d+")
_DEVICE_CALLS = frozenset({"torch.device", "torch.cuda.set_device", "torch.cuda.device"})
# Libraries whose functions put what they make where `device=` says.
_PUTTING = ("torch.", "torchvision.", "torchaudio.", "torchtext.", "torch_geometric.", "monai.", "kornia.")
# What says which GPU is this process's.
_CHOOSES_DEVICE = frozenset(
    {
        "torch.cuda.set_device",
        "torch.cuda.device",
        "torch.xpu.set_device",
        "torch.accelerator.set_device_index",
        "torch.accelerator.set_device_idx",
        "torch.set_default_device",
    }
)
# What begins to use a GPU without a tensor on it.
_TOUCHES_GPU = frozenset(
    f"torch.cuda.{name}"
    for name in """
    current_device current_stream get_device_capability get_device_name get_device_properties init mem_get_info
    memory_summary synchronize
    """.split()
)


def of_launch(run: Run, name: str, node: ast.AST) -> None:
    """The processes that a notebook, or a fork, starts as copies of its own, which may have no Accelerator and use no
    GPU.

    Args:
        run: the run.
        name: the function that starts them.
        node: its call.
    """
    for event in [one for one in run.events if one.module is run.module]:
        made = event.kind == "accelerator" and event.name == "Accelerator"
        if made or (event.kind == "device" and event.detail.split(",")[0] not in ("chosen", "fixed")):
            taker = "Accelerator" if made else event.name
            text = f"`{taker}` takes a device before `{name}` copies the process, which then raises"
            way = "put it into the function that is launched"
            guard = Guard(SPAWNED, run.reason(node, "in the processes that are started here"))
            run.meet("misuse", event.node, f"{text}; {way}", guards=[guard], detail="device")


def of_sampler(run: Run, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST) -> None:
    """A sampler that puts the samples in another order on each rank before each takes its share of them."""
    seed = keywords.get("seed", args[_SEED] if len(args) > _SEED else None)
    if seed is not None and not array_of(seed).is_uniform:
        text = (
            "the sampler has another seed on each process, which shuffles before it takes its share: some samples are "
            "in several shares, others in none; use one seed"
        )
        run.meet("misuse", node, text, [seed], detail="loss")


def of_epoch(run: Run, args: Sequence[Value], node: ast.AST) -> None:
    """The number of the epoch that a sampler gets, which is another one on one process."""
    place, why = (array_of(args[0]), args[0].why) if args else (SAME, None)
    by_rank = why is not None and any(step.text == "the rank" for step in why.steps())
    if run.checks and not place.is_uniform and (place.kind is Kind.MAIN or by_rank):
        text = (
            "the sampler gets another epoch on each process, by which it shuffles before it takes its share: some "
            "samples are in several shares, others in none; call set_epoch with one number on all"
        )
        run.meet("misuse", node, text, args[:1], detail="loss")


def of_conversion(
    run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """A call in a converted script: of what a conversion has taken the preparation out of, or with a GPU's number."""
    if name in _SPLITTING:
        _splits(run, name.rpartition(".")[2], node)
    if name == _SCALING:
        text = (
            "apex's `scale_loss` raises where nothing calls amp.initialize: accelerator.backward(loss) scales"
        )
        run.meet("misuse", node, text, detail="beside")
    _of_device(run, name, args, keywords, node)


def splits(run: Run, ref: Ref) -> bool:
    """Whether a class, or a function, runs a model on several GPUs of one process."""
    line = ref.line_up() if isinstance(ref, Class) else [ref]
    return any(isinstance(one, Library) and run.knowledge.canonical(one.name) in _SPLITTING for one in line)


def _splits(run: Run, name: str, node: ast.AST) -> None:
    text = f"`{name}` runs a model on all GPUs, which only the process on the first one can: call the model itself"
    run.meet("misuse", node, text, detail="beside")


def _is_chosen(run: Run, node: ast.AST) -> bool:
    """Whether it stands under a condition, which may be true in a run of one process alone."""
    conditions = (
        one for one in ast.walk(run.module.tree or ast.Module([], [])) if isinstance(one, _CONDITIONS)
    )
    return any("__name__" not in ast.unparse(one.test) and node in ast.walk(one) for one in conditions)


def of_object(run: Run, cls: Class, node: ast.AST) -> None:
    """An object of a class whose parts meet over the copies of a DataParallel, of which a process has none; or of one
    that is a DataParallel."""
    if splits(run, cls):
        _splits(run, cls.name, node)
    if any(isinstance(one, Class) and run.read(one, _REPLICATED) is not None for one in cls.line_up()):
        text = (
            f"`{cls.name}` meets the copies that a DataParallel makes, and each process normalises its own share: "
            "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model) in front of prepare puts the processes together"
        )
        run.meet("misuse", node, text, detail="loss")


def of_call(run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST) -> None:
    """A call of a library's function or class, by its canonical name."""
    if name == "torch.autograd.backward" and args:
        run.meet("backward", node, "backward", [args[0]], detail="plain")
    if name in _CHOOSES_DEVICE:
        run.meet("device", node, name, detail="chosen")
    if name in _TOUCHES_GPU:
        run.meet("device", node, run.segment(node), detail="touched")
    if name.startswith("torch.") and "device" in keywords:
        _on_current(run, [keywords["device"]], node)
    if not (run.accelerated or run.grouped):
        if name in _DEVICE_CALLS or name.startswith("torch."):
            _fixed(run, [*(args if name in _DEVICE_CALLS else ()), *_at(keywords)], node, name)
        if _loads_anywhere(run, name, args, keywords, node) and is_of_weights(run.module.tree, node):
            run.meet("device", node, _LOADED, detail="fixed")
        return
    beside = run.accelerated and name in _BESIDE
    # Where it asks for the engine first, it knows what that one does.
    if beside and not (scales_alone(run, name, node) or is_asked_for(run, node)):
        short = name.rpartition(".")[2]
        run.meet("misuse", node, f"`{short}` works beside the Accelerator; {_BESIDE[name]}", detail="beside")
    elif run.grouped and name in _SPLITTING and not _is_chosen(run, node):
        _splits(run, name.rpartition(".")[2], node)
    _of_device(run, name, args, keywords, node)


def _of_device(
    run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """A call that puts something on the same GPU for every process, or on all of them."""
    if not run.checks and name == "torch.device":
        return  # what a script makes of it may be replaced: it is named where it is used
    if name in _CHOOSES_DEVICE and not run.checks:
        # A negative number chooses none.
        alike = all(value.place.is_same and value.type != "torch.device" for value in args)
        alike = alike and not any(isinstance(value.const, int) and value.const < 0 for value in args)
        if args and alike and any(one.kind == "accelerator" for one in run.events):
            text = f"`{run.segment(node)}` chooses one GPU for all processes, after the Accelerator chose"
            run.meet("misuse", node, text, detail="device")
        return  # in front of it the Accelerator chooses again
    spread = keywords.get("device_map", Value())
    maps = {part.const for part in (spread, *(elements(run, spread) or []))} - {"cpu"}
    whole = not run.checks and any(isinstance(one, str | int) for one in maps)
    if whole and name.endswith(".from_pretrained"):
        text = f"`device_map` spreads the model over the GPUs of all processes; use {_own_device(run)}"
        run.meet("misuse", node, text, detail="device")
    if name in _DEVICE_CALLS or name.startswith(_PUTTING):
        listed = keywords.get("device_ids") if name in WRAPPERS else None
        numbers = elements(run, listed) if listed is not None else None
        _fixed(run, [*(args if name in _DEVICE_CALLS else ()), *(numbers or ()), *_at(keywords)], node, name)
    if _loads_anywhere(run, name, args, keywords, node):
        # In a converted module it is data, of the host, and in one without weights.
        text = run.module.text
        if run.checks or ("load_state_dict" in text and "accelerator" not in text):
            run.meet("misuse", node, _LOADED, detail="device")


def _loads_anywhere(
    run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> bool:
    """Whether every process loads what a file has to where that was when it was written."""
    passed_on = isinstance(node, ast.Call) and any(word.arg is None for word in node.keywords)
    mapped = len(args) > 1 or keywords.get("map_location", constant(None)).const is not None
    if name != "torch.load" or mapped or passed_on:
        return False
    run.depends()
    # A file that each rank has for itself was written by it, on its device.
    of_rank = any(not array_of(value).is_uniform for value in args[:1])
    return not (of_rank or any(guard.kind in ("main", "one") for guard in run.guards))


def of_method(
    run: Run, receiver: Value, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """A call of a method of a library's object."""
    on_tpu.of_method(run, receiver, name, node)
    if name == "set_epoch":
        run.meet("epoch", node, name, [receiver])
        of_epoch(run, args, node)
    if name == "state_dict" and any(run.read(ref, SHARDED) is not None for ref in receiver.of(Instance)):
        run.meet("collective", node, run.segment(getattr(node, "func", node)))
    if name == "load_state_dict" and is_trained(run, receiver):
        # Where it asks for the wrapper first, it knows which names the weights have.
        wrapped = all(
            ref.prepared and ref.kind == "module" for ref in receiver.refs if isinstance(ref, Instance)
        )
        detail = "wrapper" if wrapped and not (run.in_place or is_asked_for(run, node)) else ""
        run.meet("loaded", node, run.segment(node), [receiver, *args[:1]], detail=detail)
    if name in ("to", "cuda"):
        given = [*args[:1], *_at(keywords)]
        of_move(run, name, args, keywords, node)
        _on_current(run, given or [constant("cuda")] * (name == "cuda"), node)


def of_move(run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST) -> None:
    """A move to a device, which is the same one for every process where it has a number."""
    if name in ("to", "cuda"):
        _fixed(run, [*args[:1], *_at(keywords)], node, name)


def is_trained(run: Run, value: Value) -> bool:
    """Whether the processes train on with one of some objects: what is prepared, and what makes the steps."""
    return any(
        ref.kind in ("optimizer", "scheduler") or ref.prepared or run.read(ref, "#prepared") is not None
        for ref in value.of(Instance)
    )


def without_devices(keywords: Mapping[str, Value]) -> Mapping[str, Value]:
    """The arguments of a call, but for where its result lies, which is no part of what it is."""
    return {
        word: Value(type=value.type) if word in _PLACES and not array_of(value).is_same else value
        for word, value in keywords.items()
    }


def _at(keywords: Mapping[str, Value]) -> list[Value]:
    return [keywords[word] for word in _PLACES if word in keywords]


def _on_current(run: Run, values: Sequence[Value], node: ast.AST) -> None:
    """What goes to the GPU that is the process's by then: the first one, unless it chose another."""
    known = any("cuda" in (one.const, one.text) for one in values)
    early = not (run.accelerated or run.grouped)
    if known or (early and any(one.type == "torch.device" and one.text in ("", "*") for one in values)):
        detail = f"{'early' * early} {'known' * known}"
        run.meet("device", node, run.segment(node), detail=detail)


def _fixed(run: Run, values: Sequence[Value], node: ast.AST, name: str) -> None:
    for value in values:
        # A `torch.device` is named where it is made, and in a converted script where it is used.
        named = (value.type != "torch.device" or not run.checks) and _INDEXED.fullmatch(value.text)
        const = value.text if named else value.const
        if const in (0, "cuda:0"):
            run.depends()
            if any(guard.kind == "main" for guard in run.guards):
                continue  # the main process's
        number = type(const) is int and const >= 0
        if not run.checks and any(isinstance(one, ast.FormattedValue) for one in ast.walk(node)):
            continue  # a number that a name stands for may be one process's
        if name == "to":
            # A number that a name stands for may be one process's.
            number = number and isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant)
        number = number or value.type == NUMBER
        if (isinstance(const, str) and const.startswith(("cuda:", "xpu:", "npu:"))) or (
            number and "load" not in name
        ):
            if is_compared(run, node):
                return
            at = node if "load" in name else where_named(run, node, const)
            text = f"`{run.segment(at)}` names one device for every process"
            if run.checks:
                begun = run.accelerated or run.grouped
                detail = "fixed, begun" if begun else "fixed"
                run.meet("device", at, f"{text}; use {_own_device(run)}", detail=detail)
            else:
                run.meet("misuse", at, f"{text}; use {_own_device(run)}", detail="device")


def of_replaced(run: Run, owner: Instance, name: str, value: Value, node: ast.AST) -> None:
    """A device with a number that an object has from its class, and for which it gets another one."""
    before = run.read(owner, name) if value.type in ("", "torch.device") and value.const is UNSET else None
    if before is not None and before.type == "torch.device" and before.text != value.text:
        run.meet("replaced", node, name, [Value(refs=(owner,))])


def _own_device(run: Run) -> str:
    return "accelerator.device" if run.accelerated or not run.checks else "the one of its local rank"


def of_gather(run: Run, name: str, value: Value, node: ast.AST) -> None:
    """A gather of what was gathered already."""
    place = array_of(value)
    # What a shared loop has put into a list and is the same on all ranks was gathered there.
    whole = place.is_same and any(fill_of(ref) for ref in value.of(Container))
    parts = [place, *map(array_of, elements(run, value) or ())]
    if whole or any(one.kind is Kind.WIDE and (one.rows or one.degree is None) for one in parts):
        run.meet(
            "misuse",
            node,
            "gathered twice, so that each row counts once for every process",
            detail="gathered",
        )
    elif (
        name == "gather"
        and run.at_model
        and place.kind is Kind.ROUND
        and (place.rows or value.type == BATCH)
        and not _is_cut(run, node)
    ):
        run.meet("gather", node, f"accelerator.{name}", [value])


def _is_cut(run: Run, node: ast.AST) -> bool:
    """Whether the script cuts by hand what a call gives, `labels = labels[:left]`, or what it makes of that."""
    names, tree = set(taken(run, node) or ()), run.module.tree
    for one in ast.walk(tree) if tree is not None else ():
        if isinstance(one, ast.Call) and getattr(one.func, "attr", "") in _FILLING and node in one.args:
            into = ast.unparse(getattr(one.func, "value", one))
            # What the list is put together to, mostly under the same name.
            made = [to for value, to in assigned(tree) if into in map(ast.unparse, ast.walk(value))]
            names |= {into, *map(ast.unparse, made)}
    return tree is not None and any(
        isinstance(one, ast.Subscript)
        and isinstance(one.slice, ast.Slice)
        and one.slice.lower is None
        and ast.unparse(one.value) in names
        for one in ast.walk(tree)
    )


def of_folder(run: Run, name: str, folder: Value, node: ast.AST) -> None:
    """The folder of a state that all processes save together, or load: one for all."""
    place = array_of(folder)
    run.depends()
    alone = any(guard.kind in ("main", "one") for guard in run.guards)
    if not (alone or place.is_uniform or place.kind is Kind.MAIN):
        clock = "by the clock of each" if place.kind is Kind.CLOCK else "of each"
        text = f"`accelerator.{name}` gets a folder {clock} process: the parts of one state may lie apart"
        run.meet("misuse", node, text, [folder], detail="path")


def of_result(
    run: Run, name: str, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """What a collective of torch.distributed gathers, and its result, which is None: it writes to what it gets."""
    if "_object" in name and any(map(_is_nccl, run.events)):
        _on_current(run, [constant("cuda")], node)  # NCCL sends the bytes of an object from there
    if kind := "gathers" if "gather" in name else "reduces" if "reduce" in name else "":
        run.meet(kind, node, name, [*args, *(keywords[word] for word in ("op",) if word in keywords)])
    tree = run.module.tree
    if "async_op" in keywords or tree is None:
        return
    left = (one.value for one in ast.walk(tree) if isinstance(one, ast.Expr | ast.Return | ast.Await))
    plain = {getattr(one, "elt", one) for one in left}
    plain |= {one.body for one in ast.walk(tree) if isinstance(one, ast.Lambda)}
    if node not in plain:
        text = f"`{name}` returns None: it changes its argument in place, which is what to use"
        run.meet("misuse", node, text, detail="content")


def _is_nccl(event: Event) -> bool:
    """Whether the processes join by NCCL, and none says there which device is its own."""
    words = event.node.keywords if event.kind == "joins" and isinstance(event.node, ast.Call) else []
    given = [*getattr(event.node, "args", ()), *(one.value for one in words)] if event.kind == "joins" else []
    by_nccl = any(isinstance(one, ast.Constant) and "nccl" in str(one.value) for one in given)
    return by_nccl and all(one.arg != "device_id" for one in words)


def thrown_away(run: Run, name: str, node: ast.AST) -> None:
    """What the Accelerator puts together of something that has a name, where nothing takes it."""
    given = node.args[0] if isinstance(node, ast.Call) and node.args else None
    if given is None or isinstance(given, ast.Call) or run.module.tree is None:
        return
    if any(isinstance(one, ast.Expr) and one.value is node for one in ast.walk(run.module.tree)):
        text = f"`accelerator.{name}` returns what it makes, and leaves its argument as it is: nothing takes the result"
        way = (
            f"; assign it: `{run.segment(given)} = {run.segment(node)}`"
            if isinstance(given, ast.Name | ast.Attribute)
            else ""
        )
        run.meet("misuse", node, f"{text}{way}", detail="content")


def of_backward(run: Run, node: ast.AST) -> None:
    """A backward pass of a loss that is divided by the number of batches that the Accelerator divides it by."""
    loss = node.args[0] if isinstance(node, ast.Call) and node.args and run.accumulated else None
    around = run.calls[-1][0] if run.calls else run.module.tree
    if loss is None or around is None:
        return
    made = made_of(around, loss.id, loss.lineno) if isinstance(loss, ast.Name) else [loss]
    for divisor in [text for one in made for text in divisors(around, one)]:
        last = divisor.rpartition(".")[2] if divisor.replace(".", "").isidentifier() else divisor
        known = {text if text.isdecimal() else text.rpartition(".")[2] for text in run.accumulated}
        if last in known or divisor.endswith("gradient_accumulation_steps"):
            text = f"the loss is divided by `{divisor}`, which accelerator.backward does once more"
            run.meet("misuse", node, text, detail="divided")
            return


def of_length(run: Run, length: Value, node: ast.AST) -> None:
    """The length of a schedule, made of the number of batches of a prepared loader."""
    if array_of(length).degree == 2:
        text = (
            "the length of the schedule is divided by the number of processes, and the loader's length is that of one "
            "process already"
        )
        run.meet("misuse", node, text, detail="rounds")
