"""Counting accumulation windows: when gradients are complete, and what each loss is divided by."""

from __future__ import annotations

from .state import GradientState


def enter_step(state: GradientState) -> None:
    """A batch begins inside `accumulator.accumulate`: place it in its window.

    Sets `sync_gradients`, the window's size as far as it is known, and how many steps of the original's schedule
    the optimizer step at its end represents.
    """
    plugin, window = state.plugin, state.window
    iterator = state.loaders.of_step()
    window.in_use = True
    if window.iteration is None:
        window.iteration = iterator
    if window.complete or (plugin.reset_each_epoch and iterator is not window.iteration):
        window.step = 0
        if plugin.reset_each_epoch and iterator is not window.iteration:
            window.batches = 0
    window.iteration = iterator
    window.step += 1
    shares = iterator.shares if iterator is not None else None
    window.batches += 1 if shares is None else shares.batches
    ends_with_loader = plugin.sync_with_dataloader and iterator is not None and iterator.at_end
    state.sync_gradients = window.complete = window.step >= plugin.num_steps or ends_with_loader
    if window.step == 1:
        window.size = plugin.num_steps
        left = iterator.batches_left() if iterator is not None else None
        if plugin.sync_with_dataloader and plugin.scale_last_window and left is not None:
            window.size = min(plugin.num_steps, left + 1)
    window.correction = 1.0
    if ends_with_loader and plugin.scale_last_window and window.step < window.size:
        # A loader without a length: the earlier losses of this window were divided by the full size.
        window.correction = window.size / window.step
        window.size = window.step
    if state.sync_gradients:
        if ends_with_loader:
            window.advance, window.batches = -(-window.batches // plugin.num_steps), 0
        else:
            window.advance, window.batches = divmod(window.batches, plugin.num_steps)


def loss_divisor(state: GradientState) -> int:
    """What the current batch's loss is divided by."""
    return state.window.size if state.window.in_use else state.plugin.num_steps
