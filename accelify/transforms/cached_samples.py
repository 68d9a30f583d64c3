"""Samples that a data set caches in files: all processes would write the same files while others read them.

loader = DataLoader(Meshes(folder))         iterates over all of the data on every process; `Meshes.__getitem__` writes
                                            a file where there is none (a finding)
"""

from __future__ import annotations

from collections.abc import Iterator

from accelify.analysis.data.cached_samples import cached_samples
from accelify.transforms import files
from accelify.transforms.base import Change, Context


def transform(context: Context) -> Iterator[Change]:
    """Yield a finding for each loader of such a data set that is not sharded."""
    for found in cached_samples(
        context.script, context.effects, context.plan.prepared, context.plan.on_main_only
    ):
        file = found.site.path.replace("\\", "/").rsplit("/", 1)[-1]
        message = (
            f"`{found.cls.name}.__getitem__` writes a file where there is none and reads it where there is one "
            f"({found.site.name} in {file}, line {found.site.line}): every process goes through all of this data, so "
            "that one can read what another is still writing"
        )
        yield context.todo(
            files.FILES,
            found.call,
            message,
            "write these files under a name of the process's own and os.replace them, or make them all before",
        )
