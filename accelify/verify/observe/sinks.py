"""Which functions of which libraries take figures to log, as data: one row a function.

A row is skipped where the library has no such function, so that rows for several versions can stand side by side. An
argument is known by its position (the object of a method not counted) and its names.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Argument:
    """Where a call has one argument: its position, None for one by name only, and the names it goes by."""

    position: int | None
    names: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sink:
    """A function that takes figures.

    Args:
        module: where it is defined; it is watched once that module has been imported.
        path: its name there, with the class in front for a method.
        value: the argument with a figure, a text, or a mapping of names to figures.
        tag: the argument with the figure's name; None for a mapping.
        step: the argument with the step, if it has one.
        under: attribute of the object that names what is logged, for handles.
        keywords: further arguments by name are figures too.
        made_by: the function returns an object whose method of that name takes the figures.
        hidden: attribute that is true of an object that shows nothing.
    """

    module: str
    path: str
    value: Argument
    tag: Argument | None = None
    step: Argument | None = None
    under: str = ""
    keywords: bool = False
    made_by: str = ""
    hidden: str = ""


def _at(position: int | None, *names: str) -> Argument:
    return Argument(position, names)


def _board(module: str) -> tuple[Sink, ...]:
    """SummaryWriter, of torch and of tensorboardX."""
    step = ("global_step",)
    return (
        Sink(module, "SummaryWriter.add_scalar", _at(1, "scalar_value"), _at(0, "tag"), _at(2, *step)),
        Sink(
            module, "SummaryWriter.add_scalars", _at(1, "tag_scalar_dict"), _at(0, "main_tag"), _at(2, *step)
        ),
        Sink(module, "SummaryWriter.add_text", _at(1, "text_string"), _at(0, "tag"), _at(2, *step)),
        Sink(module, "SummaryWriter.add_hparams", _at(1, "metric_dict"), step=_at(4, *step)),
    )


def _comet(name: str) -> tuple[Sink, ...]:
    """An experiment of comet_ml; its class has had several names."""
    module = "comet_ml.experiment" if name != "CometExperiment" else "comet_ml._experiment"
    return tuple(
        Sink(place, f"{name}.{method}", value, tag, _at(step, "step"))
        for place in dict.fromkeys((module, "comet_ml.experiment"))
        for method, value, tag, step in (
            ("log_metric", _at(1, "value"), _at(0, "name"), 2),
            ("log_metrics", _at(0, "dic"), None, 2),
        )
    )


SINKS: tuple[Sink, ...] = (
    *_board("torch.utils.tensorboard.writer"),
    *_board("tensorboardX.writer"),
    # A run that is disabled has another `log`, so the object that `init` makes is what is watched.
    Sink("wandb", "init", _at(0, "data"), step=_at(1, "step"), made_by="log"),
    Sink("trackio", "log", _at(0, "metrics"), step=_at(1, "step")),
    Sink("swanlab", "log", _at(0, "data"), step=_at(1, "step")),
    Sink("mlflow", "log_metric", _at(1, "value"), _at(0, "key"), _at(2, "step")),
    Sink("mlflow", "log_metrics", _at(0, "metrics"), step=_at(1, "step")),
    Sink("mlflow.tracking.client", "MlflowClient.log_metric", _at(2, "value"), _at(1, "key"), _at(4, "step")),
    *_comet("BaseExperiment"),
    *_comet("CometExperiment"),
    Sink("neptune.handler", "Handler.append", _at(0, "value"), step=_at(None, "step"), under="_path"),
    Sink("neptune.handler", "Handler.log", _at(0, "value"), step=_at(1, "step"), under="_path"),
    Sink("neptune.handler", "Handler.assign", _at(0, "value"), under="_path"),
    Sink("clearml.logger", "Logger.report_scalar", _at(2, "value"), _at(1, "series"), _at(3, "iteration")),
    Sink("clearml.logger", "Logger.report_single_value", _at(1, "value"), _at(0, "name")),
    Sink("clearml.logger", "Logger.report_text", _at(0, "msg")),
    Sink("visdom", "Visdom.line", _at(0, "Y"), _at(2, "win"), _at(1, "X")),
    Sink("visdom", "Visdom.text", _at(0, "text"), _at(1, "win")),
    Sink("aim.sdk.run", "Run.track", _at(0, "value"), _at(None, "name"), _at(None, "step")),
    Sink("dvclive.live", "Live.log_metric", _at(1, "val"), _at(0, "name")),
    Sink("sacred.run", "Run.log_scalar", _at(1, "value"), _at(0, "metric_name"), _at(2, "step")),
    Sink("tqdm.std", "tqdm.set_postfix", _at(0, "ordered_dict"), keywords=True, hidden="disable"),
    Sink("tqdm.std", "tqdm.set_postfix_str", _at(0, "s"), hidden="disable"),
    Sink("tqdm.std", "tqdm.set_description", _at(0, "desc"), hidden="disable"),
    Sink("tqdm.std", "tqdm.set_description_str", _at(0, "desc"), hidden="disable"),
    # Every rank evaluates these; the main process passes them on to a library of the rows above.
    Sink("accelify.runtime.tracking", "Tracking.log", _at(0, "values"), step=_at(1, "step"), hidden="*"),
    Sink("accelerate.accelerator", "Accelerator.log", _at(0, "values"), step=_at(1, "step"), hidden="*"),
)  # fmt: skip
