"""Trackers of metrics: TensorBoard, Weights & Biases, MLflow, or a user's class. Only the main process writes."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelify.installing import install_command

from .process import ProcessControl
from .state import PartialState


class GeneralTracker:
    """Base of all trackers. A user's class has `name`, `requires_logging_directory` and the three methods.

    Args:
        run_name: of the experiment.
        logging_dir: where files go, for trackers that need it.
    """

    name: str = ""
    requires_logging_directory: bool = False
    main_process_only: bool = True

    @property
    def tracker(self) -> Any:
        """The library's object."""
        return None

    def start(self) -> None:
        """Begin; called by `init_trackers`."""

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        """Record the run's settings. To be written by the subclass."""
        raise NotImplementedError(
            f"the tracker {type(self).__name__} needs a method store_init_configuration(values)"
        )

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record numbers, texts or nested dicts of numbers at a step. To be written by the subclass."""
        raise NotImplementedError(f"the tracker {type(self).__name__} needs a method log(values, step)")

    def finish(self) -> None:
        """End; called by `end_training`."""


def _need(module: str, package: str) -> None:
    if importlib.util.find_spec(module) is None:
        raise ImportError(
            f"this tracker needs {package}, which is not installed: {install_command('trackers')}"
        )


def _plain(value: Any) -> Any:
    return value if isinstance(value, (int, float, str, bool)) else str(value)


class TensorBoardTracker(GeneralTracker):
    """Event files under `logging_dir/run_name`."""

    name = "tensorboard"
    requires_logging_directory = True

    def __init__(self, run_name: str, logging_dir: str | Path, **kwargs: Any) -> None:
        _need("tensorboard", "tensorboard")
        from torch.utils.tensorboard import SummaryWriter

        self.run_name = run_name
        self.logging_dir = Path(logging_dir) / run_name
        self.writer = SummaryWriter(str(self.logging_dir), **kwargs)

    @property
    def tracker(self) -> Any:
        return self.writer

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        self.writer.add_hparams({k: _plain(v) for k, v in values.items()}, {}, run_name=".")
        self.writer.add_text("configuration", json.dumps(values, default=str, indent=1))
        self.writer.flush()

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        for key, value in values.items():
            if isinstance(value, str):
                self.writer.add_text(key, value, global_step=step, **kwargs)
            elif isinstance(value, dict):
                self.writer.add_scalars(key, value, global_step=step, **kwargs)
            else:
                self.writer.add_scalar(key, value, global_step=step, **kwargs)
        self.writer.flush()

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record batches of images.

        Args:
            values: arrays or tensors by name; NHWC needs `dataformats="NHWC"`.
            step: of the run.
            **kwargs: for `SummaryWriter.add_images`.
        """
        for key, value in values.items():
            self.writer.add_images(key, value, global_step=step, **kwargs)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class WandBTracker(GeneralTracker):
    """A Weights & Biases run; its offline mode writes to `logging_dir` or the directory of its settings."""

    name = "wandb"

    def __init__(self, run_name: str, logging_dir: str | Path | None = None, **kwargs: Any) -> None:
        _need("wandb", "wandb")
        import wandb

        if logging_dir is not None:
            kwargs.setdefault("dir", str(logging_dir))
        self.run_name = run_name
        self.run = wandb.init(project=run_name, **kwargs)

    @property
    def tracker(self) -> Any:
        return self.run

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        config: Any = self.run.config
        config.update(values, allow_val_change=True)

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        self.run.log(values, step=step, **kwargs)

    def log_images(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        """Record lists of images by name, of any kind that `wandb.Image` takes."""
        import wandb

        self.log({k: [wandb.Image(image) for image in v] for k, v in values.items()}, step=step, **kwargs)

    def log_table(
        self,
        table_name: str,
        columns: list[str] | None = None,
        data: list[list[Any]] | None = None,
        dataframe: Any = None,
        step: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Record a table, from columns and rows or from a data frame."""
        import wandb

        table = wandb.Table(columns=columns, data=data, dataframe=dataframe)
        self.log({table_name: table}, step=step, **kwargs)

    def finish(self) -> None:
        self.run.finish()


class MLflowTracker(GeneralTracker):
    """An MLflow run, on a local folder unless MLFLOW_TRACKING_URI names a server."""

    name = "mlflow"

    def __init__(self, experiment_name: str, logging_dir: str | Path | None = None, **kwargs: Any) -> None:
        _need("mlflow", "mlflow")
        import mlflow

        if "MLFLOW_TRACKING_URI" not in os.environ and logging_dir is not None:
            folder = Path(logging_dir).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
        mlflow.set_experiment(experiment_name)
        self.mlflow = mlflow
        self.run = mlflow.start_run(**kwargs)

    @property
    def tracker(self) -> Any:
        return self.run

    def store_init_configuration(self, values: dict[str, Any]) -> None:
        # MLflow refuses more than 100 at once.
        items = [(k, _plain(v)) for k, v in values.items()]
        for start in range(0, len(items), 100):
            self.mlflow.log_params(dict(items[start : start + 100]))

    def log(self, values: dict[str, Any], step: int | None = None, **kwargs: Any) -> None:
        numbers = {
            k: float(v) for k, v in values.items() if isinstance(v, (int, float)) or hasattr(v, "item")
        }
        self.mlflow.log_metrics(numbers, step=step)

    def log_figure(self, figure: Any, artifact_file: str, **save_kwargs: Any) -> None:
        """Record a figure of matplotlib or plotly under a file name."""
        self.mlflow.log_figure(figure=figure, artifact_file=artifact_file, **save_kwargs)

    def log_artifact(self, local_path: str, artifact_path: str | None = None) -> None:
        """Record a file."""
        self.mlflow.log_artifact(local_path=local_path, artifact_path=artifact_path)

    def log_artifacts(self, local_dir: str, artifact_path: str | None = None) -> None:
        """Record all files of a folder."""
        self.mlflow.log_artifacts(local_dir=local_dir, artifact_path=artifact_path)

    def finish(self) -> None:
        self.mlflow.end_run()


TRACKERS: dict[str, type[Any]] = {t.name: t for t in (TensorBoardTracker, WandBTracker, MLflowTracker)}
_PACKAGES = {"tensorboard": "tensorboard", "wandb": "wandb", "mlflow": "mlflow"}


def choose(log_with: Any) -> list[Any]:
    """Names of trackers, and trackers of the user's classes, from the value of `log_with`.

    Raises:
        ValueError: an unknown name.
    """
    if log_with is None:
        return []
    chosen: list[Any] = []
    for item in log_with if isinstance(log_with, (list, tuple)) else [log_with]:
        name = getattr(item, "value", item)
        if isinstance(item, GeneralTracker):
            chosen.append(item)
        elif name == "all":
            chosen += [n for n, package in _PACKAGES.items() if importlib.util.find_spec(package)]
        elif name in TRACKERS:
            chosen.append(name)
        else:
            raise ValueError(
                f"log_with must be one of {', '.join(TRACKERS)}, all, or a GeneralTracker, not {item!r}"
            )
    return chosen


class Tracking(ProcessControl):
    """The part of the Accelerator that records metrics."""

    logging_dir: Any

    def _begin_tracking(self, log_with: Any) -> None:
        self.log_with = choose(log_with)
        self.trackers: list[GeneralTracker] = []

    def init_trackers(
        self,
        project_name: str,
        config: dict[str, Any] | None = None,
        init_kwargs: dict[str, dict[str, Any]] | None = None,
    ) -> None:
        """Start the trackers that `log_with` named.

        Args:
            project_name: of the experiment.
            config: settings to record.
            init_kwargs: further arguments by tracker, such as `{"wandb": {"mode": "offline"}}`.

        Raises:
            ValueError: a tracker needs a directory and none is known.
        """
        for chosen in self.log_with:
            tracker = chosen if isinstance(chosen, GeneralTracker) else None
            only_main = tracker.main_process_only if tracker else TRACKERS[chosen].main_process_only
            if only_main and not PartialState().is_main_process:
                continue
            if tracker is None:
                kind = TRACKERS[chosen]
                if kind.requires_logging_directory and self.logging_dir is None:
                    raise ValueError(
                        f'the tracker "{chosen}" needs a directory: give project_dir to the Accelerator'
                    )
                tracker = kind(
                    project_name, logging_dir=self.logging_dir, **(init_kwargs or {}).get(chosen, {})
                )
            tracker.start()
            self.trackers.append(tracker)
        for tracker in self.trackers if config is not None else []:
            tracker.store_init_configuration(config or {})

    def get_tracker(self, name: str, unwrap: bool = False) -> Any:
        """A tracker by its name, or with `unwrap` the library's object. On processes that do not track, a
        stand-in that does nothing.

        Raises:
            ValueError: no such tracker was started.
        """
        for tracker in self.trackers:
            if tracker.name == name:
                return tracker.tracker if unwrap else tracker
        if not self.is_main_process:
            return Silent()
        raise ValueError(
            f"no tracker {name!r} was started; started: {', '.join(t.name for t in self.trackers) or 'none'}"
        )

    def log(
        self, values: dict[str, Any], step: int | None = None, log_kwargs: dict[str, Any] | None = None
    ) -> None:
        """Record values with every tracker.

        Args:
            values: numbers and texts by name.
            step: of the training.
            log_kwargs: further arguments by tracker.
        """
        for tracker in self.trackers:
            tracker.log(values, step=step, **(log_kwargs or {}).get(tracker.name, {}))

    if TYPE_CHECKING:
        # The Accelerator's other part has it.
        def wait_for_saving(self) -> None: ...

    def end_training(self) -> None:
        """End every tracker, and a checkpoint that is still being written."""
        try:
            self.wait_for_saving()
        finally:
            # A checkpoint that could not be written is an error, and no reason to lose what was recorded.
            for tracker in self.trackers:
                tracker.finish()
            self.trackers.clear()
        self.wait_for_everyone()


class Silent:
    """Takes any call and does nothing."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self
