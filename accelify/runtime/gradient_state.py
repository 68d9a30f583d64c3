"""Where the training loop is: the loader in use, and the accumulation window.

The state is shared: every instance sees the same values. Tests start again with `_reset_state()`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .open_passes import OpenPasses

if TYPE_CHECKING:
    from .data.loaders import DataLoaderShard
    from .plugins import GradientAccumulationPlugin


class GradientState:
    """Where the loop is: the loader in use, its batch's shares, and whether gradients are averaged now."""

    _shared_state: dict[str, Any] = {}

    sync_gradients: bool
    plugin: GradientAccumulationPlugin
    loaders: OpenPasses
    step: int
    window: WindowPosition
    # A pass that goes on where a checkpoint was taken, until its first backward.
    resumed: Any = None
    # Whether the size of a window is known to the launcher only: the script neither sets nor asks for it.
    steps_of_launch: bool = False
    # What `backward(weight=)` weighs the loss by that observers are called with; None where it does not.
    loss_weight: float | None = None

    def __init__(self, gradient_accumulation_plugin: GradientAccumulationPlugin | None = None) -> None:
        self.__dict__ = self._shared_state
        if "sync_gradients" not in self.__dict__:
            from .plugins import GradientAccumulationPlugin

            self.sync_gradients = True
            self.plugin = GradientAccumulationPlugin()
            self.loaders = OpenPasses()
            self.window = WindowPosition()
        if gradient_accumulation_plugin is not None:
            self.plugin = gradient_accumulation_plugin

    def __repr__(self) -> str:
        return f"Sync gradients: {self.sync_gradients}\nAt end of dataloader: {self.end_of_dataloader}\n"

    @staticmethod
    def _reset_state() -> None:
        """Forget everything, for tests."""
        GradientState._shared_state.clear()

    @property
    def initialized(self) -> bool:
        return "sync_gradients" in self.__dict__

    def check_resumed(self) -> None:
        """See, where a resumed pass trains first, that the script has not left its first batches out again.

        Raises:
            RuntimeError: it has.
        """
        resumed, self.resumed = self.resumed, None
        try:
            done, taken = resumed.first, resumed.position - resumed.first
        except ReferenceError:
            return
        # One batch may be left out for any reason.
        if taken == done + 1 and done > 1:
            raise RuntimeError(
                f"load_state has gone on with batch {done} of the epoch already, and the script has left {done} more "
                "out: take its own skipping (`if step < resume_step: continue`) out, and count from "
                f"enumerate(loader, start={done}), or use skip_first_batches, which knows of it"
            )

    @property
    def num_steps(self) -> int:
        self.steps_of_launch = False
        return self.plugin.num_steps

    @property
    def adjust_scheduler(self) -> bool:
        return self.plugin.adjust_scheduler

    @property
    def sync_with_dataloader(self) -> bool:
        return self.plugin.sync_with_dataloader

    @property
    def plugin_kwargs(self) -> dict[str, Any]:
        return self.plugin.to_kwargs()

    @property
    def active_dataloader(self) -> DataLoaderShard | None:
        """The prepared loader whose iteration began last and has not ended, None outside."""
        return self.loaders[-1].loader if self.loaders else None

    @property
    def in_dataloader(self) -> bool:
        return bool(self.loaders)

    @property
    def end_of_dataloader(self) -> bool:
        """Whether the active loader's current batch is its last."""
        entry = self.loaders.of_loop()
        return entry is not None and bool(entry.at_end)

    @property
    def remainder(self) -> int:
        """Samples in the active loader's last, shorter batch over all processes, -1 where it divides."""
        entry = self.loaders.of_outputs()
        if entry is None or not entry.at_end or entry.shares is None:
            return -1
        sizes = entry.shares.sizes
        return -1 if len(set(sizes)) == 1 else sum(sizes)


class WindowPosition:
    """Where the current accumulation window is, and how far a scheduler moves with this step."""

    def __init__(self) -> None:
        self.in_use = False
        self.passes = 0  # backward passes outside of `accumulate` since the last step
        self.lone_steps = 0  # steps in a row, outside of `accumulate`, after one pass each
        self.warned = False
        self.depth = 0  # regions of `accumulate` that are entered, one in another
        self.complete = True  # the next batch begins a window
        self.step = 0  # batches in the current window, the current one included
        self.size = 1  # what the loss of the current batch is divided by
        self.batches = 0  # batches of the original script in the current window
        self.advance = 1  # steps of the original's schedule at this optimizer step
        self.correction = 1.0  # factor on earlier gradients, when the window turns out shorter than expected
        self.iteration: Any = None  # pass of the loader that the window belongs to
