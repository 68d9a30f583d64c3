"""What something unknown is, by what a script does with it."""

from __future__ import annotations

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.values import Thing


def kind_from_use(thing: Thing) -> str | None:
    """The kind that the methods called on something show it to be, with the names it goes by; None: they show none."""
    uses, names = thing.uses, thing.names
    if thing.kind == v.INSTANCE:
        return None
    if "zero_grad" in uses and ("step" in uses or "param_groups" in uses) and "parameters" not in uses:
        thing.note("zero_grad() and step() are called on it")
        return v.OPTIMIZER
    if "parameters" in uses and not uses & {"parse_args", "add_argument"}:
        thing.note("its parameters() are read")
        return v.MODEL
    if "load_state_dict" in uses and ("eval" in uses or "train" in uses):
        thing.note("it is loaded and switched between train() and eval()")
        return v.MODEL
    if (
        "()" in uses
        and ("zero_grad" in uses or {"train", "eval"} & uses)
        and any(k.MODEL_NAME.search(n) for n in names)
    ):
        thing.note("it is called and switched between train() and eval()")
        return v.MODEL
    if "unscale_" in uses or ("scale" in uses and "update" in uses and "step" in uses):
        thing.note("scale(), step() and update() are called on it")
        return v.SCALER
    if {"step"} <= uses and any(k.SCHEDULER_NAME.search(n) for n in names):
        thing.note("it is named like a scheduler and step() is called on it")
        return v.SCHEDULER
    if "step" in uses and any(k.OPTIMIZER_NAME.search(n) for n in names):
        thing.note("it is named like an optimizer and step() is called on it")
        return v.OPTIMIZER
    if "[]for" in uses and any(k.LOADER_NAME.search(n) for n in names):
        thing.note("it is named like a loader and iterated")
        return v.LOADER
    if "()" in uses and any(k.CRITERION_NAME.search(n) for n in names):
        thing.note("it is named like a criterion and called")
        return v.CRITERION
    if "add_scalar" in uses or "add_image" in uses or "add_summary" in uses:
        thing.note("add_scalar() is called on it")
        return v.WRITER
    return None
