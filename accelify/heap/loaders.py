"""What is noted of a loader as it is made, of a library's class or of one of the project that derives from it."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from accelify.domains.placement import Kind
from accelify.heap.collating import SAMPLERS, is_put_together, pads_rows, splits_by_number, stacks_rows
from accelify.heap.containers import array_of
from accelify.heap.on_tpu import of_padding
from accelify.heap.run import Run
from accelify.heap.values import NONE, Instance, Value, constant

# What says for loaders of graphs of which nodes or edges the batches are.
_CHOOSING = frozenset({"edge_label_index", "indices", "input_nodes"})
# Loaders whose batches are put together as `collate_fn` says.
_LOADERS = frozenset({"torch.utils.data.DataLoader", "torch.utils.data.dataloader.DataLoader"})


def loader_made(
    run: Run, made: Instance, args: Sequence[Value], keywords: Mapping[str, Value], node: ast.AST
) -> None:
    """Note what a loader is made of.

    Args:
        run: the run.
        made: the loader.
        args: what its class gets by position.
        keywords: by name.
        node: where it is made.
    """
    first = args[0] if args else keywords.get("dataset", NONE)
    size = args[1] if len(args) > 1 else keywords.get("batch_size", constant(1))
    if run.checks and not array_of(size).is_same:
        run.meet("loader", node, "batch_size", [size], detail="own size")
    run.batch_sizes.update([size.const] if isinstance(size.const, int) else ())
    if run.seeded_apart and (first.refs or first.place.kind is Kind.OWN):
        run.store.set(made, "#data", first)
    if made.type in _LOADERS and stacks_rows(args, keywords):
        run.store.set(made, "#rows first", constant(True))
    if made.type in _LOADERS and is_put_together(args, keywords):
        run.store.set(made, "#samples", first)
    for name in SAMPLERS:
        run.store.set(made, f"#{name}", keywords.get(name))
    for name in _CHOOSING & keywords.keys():
        run.store.set(made, "#sampler", keywords[name])
    run.store.set(made, "#dataset", first)
    run.store.set(made, "#shuffles", keywords.get("shuffle"))
    run.store.set(made, "#drops", keywords.get("drop_last", constant(False)))
    if pads_rows(args, keywords):
        run.store.set(made, "#padded", constant(True))
    if run.checks:
        of_padding(run, [*args, *keywords.values()], node)
    if run.checks and splits_by_number(args, keywords):
        run.store.set(made, "#lists", constant(True))
