"""DistributedDataParallel in the script, replaced by the Accelerator on demand (`accelify convert --replace-ddp`).

dist.init_process_group("nccl")                    ->  (gone: the Accelerator makes the process group)

local_rank = int(os.environ["LOCAL_RANK"])         ->  local_rank = accelerator.local_process_index

model = DDP(model, device_ids=[local_rank])        ->  (gone: prepare wraps the model)

sampler = DistributedSampler(data)                 ->  loader = DataLoader(data, shuffle=True)
loader = DataLoader(data, sampler=sampler)

if dist.get_rank() == 0:                           ->  if accelerator.is_main_process:

mp.spawn(worker, args=(n, args), nprocs=n)         ->  worker(accelerator, accelerator.process_index, ...)

Batch sizes, learning rates and schedules stay those of one process, as they were. Code that is not understood leaves
the whole script unchanged and is reported with its line.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from accelify.analysis import values as v
from accelify.analysis.lowered import PLACEHOLDER
from accelify.analysis.syntax import walk
from accelify.findings import Safety, Severity
from accelify.transforms.base import Change, Context, Rule
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit

REPLACE = Rule(
    "ACC116",
    "The script distributes itself, past the Accelerator.",
    Severity.ERROR,
    Safety.REVIEW,
    effort=10,
    done="removed what the script did by hand to distribute itself",
)


def transform(context: Context) -> Iterator[Change]:
    """Yield the Accelerator for the placeholders that taking DistributedDataParallel out has left."""
    known = context.plan.known
    if not known.distributed:
        return
    context.guarded.update(context.plan.main_only)
    yield from _unprepared(context)
    yield from _placeholders(context)
    yield from _lengths(context)


def tests(context: Context) -> Iterator[Change]:
    """Yield the Accelerator for tests of the rank, where it is available; run when it is known who else needs it."""
    known = context.plan.known
    for node, test in known.main_tests(context.tree):
        if isinstance(node, (ast.Name, ast.Attribute, ast.Call)) or any(
            isinstance(n, ast.Name) and n.id == PLACEHOLDER for n in walk(node)
        ):
            continue  # a name that holds the answer, or one that is rewritten as a whole below
        accelerator = context.accelerator(node) if context.reaches_cheaply(node) else None
        if accelerator is None:
            continue
        text = f"{'not ' if test.negated else ''}{accelerator}.{test.attribute}"
        edit = verbs.replace(node, text)
        yield context.change(REPLACE, node, "the Accelerator knows the main process", [edit])


def _unprepared(context: Context) -> Iterator[Change]:
    """A loader that lost its DistributedSampler and is not prepared would give every process all of the data."""
    known = {t.site for t in context.plan.prepared if t.kind == v.LOADER}
    for call in context.script.calls():
        if context.plan.known.is_sharded(context.tree, call) and call not in known:
            if context.script.is_a(call, v.LOADER) or context.script.qualname(call.func) is not None:
                change = context.change(REPLACE, call, "the loader is not shared out")
                problem = "a loader that was given a DistributedSampler cannot be prepared"
                yield Change(change.finding, (), True, problem)


def _placeholders(context: Context) -> Iterator[Change]:
    tree = context.tree
    tests = {
        node: test
        for node, test in context.plan.known.main_tests(tree)
        if not isinstance(node, (ast.Name, ast.Attribute, ast.Call))
    }
    done: set[ast.AST] = set()
    for name in tree.nodes(ast.Name):
        if name.id != PLACEHOLDER:
            continue
        accelerator = context.accelerator(name)
        edits: list[Edit] = []
        problem = ""
        place: ast.AST = name
        test = next((n for n in tree.ancestors(name) if n in tests), None)
        [a for a in tree.ancestors(name) if isinstance(a, ast.JoinedStr)]
        if accelerator is None:
            line = context.plan.known.line_of(tree.statement(name).lineno)
            problem = f"the Accelerator cannot be had in line {line}, which asks for the rank"
        elif isinstance(test, ast.expr):
            place = test
            text = f"{'not ' if tests[test].negated else ''}{accelerator}.{tests[test].attribute}"
            edits = [verbs.replace(test, text)]
        else:
            edits = [verbs.replace(name, accelerator)]
        if place in done:
            continue
        done.add(place)
        change = context.change(
            REPLACE, place, "the Accelerator is asked instead of torch.distributed", edits, core=True
        )
        yield Change(change.finding, change.edits, True, problem)


def _lengths(context: Context) -> Iterator[Change]:
    """`len(loader)` counts a process's batches; before prepare it would count all."""
    script, plan = context.script, context.plan
    for call in script.calls():
        if not (isinstance(call.func, ast.Name) and call.func.id == "len" and len(call.args) == 1):
            continue
        argument = call.args[0]
        sampler = isinstance(argument, ast.Attribute) and argument.attr == "sampler"
        contained = argument.value if sampler and isinstance(argument, ast.Attribute) else argument
        loaders = script.entities(contained, v.LOADER) & plan.prepared
        if not loaders or not (sampler or not plan.after_prepare(call)):
            continue
        if sampler and any(_compares_with_data(a) for a in context.tree.ancestors(call)):
            continue  # prepared, the loader leaves no sample out, and the comparison shows that
        what = "the samples of one process" if sampler else "the batches of one process before prepare"
        change = context.change(REPLACE, call, f"it counts {what}")
        yield Change(change.finding, (), True, f"line {plan.known.line_of(call.lineno)} counts {what}")


def _compares_with_data(node: ast.AST) -> bool:
    """`len(loader.sampler) * world_size < len(loader.dataset)`: whether the samplers left samples out."""
    if isinstance(node, ast.If):
        return any(_compares_with_data(n) for n in walk(node.test))
    return isinstance(node, ast.Compare) and any(
        isinstance(n, ast.Attribute) and n.attr == "dataset" for c in node.comparators for n in walk(c)
    )
