"""Counting accumulation windows: when gradients are complete, and what each loss is divided by."""

from __future__ import annotations

import warnings

from .state import GradientState, PartialState


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
    window.batches += 1 if shares is None else shares.batches + shares.left_out
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
    """What the current batch's loss is divided by; called once for each of them.

    Outside of `accumulate` the script counts by itself. It cannot count to a number that only the launcher knows.
    """
    if not state.window.in_use:
        state.window.passes += 1
    return divisor_now(state)


def divisor_now(state: GradientState) -> int:
    """The same at any time."""
    if state.window.in_use:
        return state.window.size
    return 1 if state.steps_of_launch else state.plugin.num_steps


def check_step(state: GradientState) -> None:
    """Warn, once, where each batch steps outside of `accumulate` although several are to make one step."""
    window, steps = state.window, state.plugin.num_steps
    passes, window.passes = window.passes, 0
    # A shorter window at an epoch's end can be one batch, the one after it is not.
    window.lone_steps = window.lone_steps + 1 if passes == 1 else 0
    if window.warned or not (state.steps_of_launch or window.lone_steps == 2):
        return
    window.warned = True
    if not PartialState().is_main_process:
        return
    around = "`with accelerator.accumulate(model):`"
    warnings.warn(
        f"gradient_accumulation_steps is {steps} by the launcher or its configuration, and has no effect: the script "
        f"steps outside of {around}; put the training step into that block"
        if state.steps_of_launch
        else f"the Accelerator divides each loss by its {steps} gradient_accumulation_steps, and each batch steps by "
        f"itself: put the training step into {around}, or take gradient_accumulation_steps out",
        stacklevel=3,
    )
