"""All observers of a run, in the order in which they are put in place."""

from __future__ import annotations

from accelify.verify.observe import decisions, effects, lifetimes, printed, scalars
from accelify.verify.observe.context import Context


def install(context: Context) -> None:
    """Watch everything but training itself, which the recorder watches, from now on."""
    context.sites.install()
    printed.install(context)
    scalars.install(context)
    effects.install(context)
    decisions.install(context)
    lifetimes.install(context)


def finish(context: Context) -> None:
    """Write what is known at the end only; called once, whatever ended the run."""
    for finish_one in context.at_end:
        finish_one()
    decisions.finish(context)
    lifetimes.finish(context)
    printed.finish(context)
    scalars.finish(context)
    effects.finish(context)
