"""Data sets that keep in a file what they make of a sample, and read the file where it is there.

def __getitem__(self, index):
    if os.path.exists(cache):
        return np.load(cache)
    sample = prepare(self.paths[index])
    np.savez_compressed(cache, **sample)

Workers of one loader never take the same sample at a time. Processes that each read all of the data do: one reads
what another is still writing.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.files.effect_sites import FILES, Site
from accelify.analysis.files.effects import SideEffects
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import call_argument
from accelify.analysis.values import Class, Entity, order_of

# What puts a whole file in the place of the one that is missing, at once.
_AT_ONCE = ("os.rename", "os.replace", "shutil.move")
_FARTHEST = 6


class CachedSamples(NamedTuple):
    """A loader that every process reads whole, the class of its data, where that writes, and the script's call."""

    call: ast.Call
    cls: Class
    site: Site


def cached_samples(
    script: ScriptModel, effects: SideEffects, shared: Set[Entity], alone: Callable[[ast.AST], bool]
) -> Iterator[CachedSamples]:
    """The loaders of such data sets, by the calls of the script that make or reach them.

    Args:
        script: its model, with the modules that are converted.
        effects: what functions do to the world.
        shared: loaders that give each process a different part of the data.
        alone: whether only one process reaches a node of the script.
    """
    if not any(module.tree.mentions(b"__getitem__") for module in script.program.modules.values()):
        return
    loaders = [
        entity
        for entity in script.interpreter.entities.values()
        if isinstance(entity, Entity) and entity.kind == v.LOADER and entity not in shared
    ]
    done: set[tuple[ast.Call, Class]] = set()
    for loader in sorted(loaders, key=order_of):
        for cls in _data_of(script, loader):
            found = cls.method("__getitem__")
            site = _stored(effects, found[1]) if found is not None else None
            call = _seen_from(script, loader) if site is not None else None
            if site is None or call is None or (call, cls) in done or alone(call):
                continue
            done.add((call, cls))
            yield CachedSamples(call, cls, site)


def _data_of(script: ScriptModel, loader: Entity) -> list[Class]:
    """The classes of the program whose objects a loader iterates over."""
    data = call_argument(loader.site, 0, "dataset") if isinstance(loader.site, ast.Call) else None
    if data is None or loader.module is None or loader.site is None:
        return []
    contained = script.interpreter.evaluate(loader.module, loader.module.scopes.of(loader.site), data)
    return sorted(
        {one.cls for one in contained if isinstance(one, Entity) and one.cls is not None}, key=order_of
    )


def _stored(effects: SideEffects, method: Scope) -> Site | None:
    """Where a function writes a file that is missing, and reads it where it is there."""
    found = effects.of(method)
    written = [site for site in found.sites if site.kind == FILES]
    if not found.reads or any(site.name in _AT_ONCE for site in written):
        return None
    return next((site for site in written if site.missing and not site.deletes), None)


def _seen_from(script: ScriptModel, loader: Entity) -> ast.Call | None:
    """The call of the converted modules that makes a loader, or reaches the function of another module that does."""
    assert loader.module is not None
    assert loader.site is not None
    if loader.module in script.modules:
        return loader.site if isinstance(loader.site, ast.Call) else None
    around = [loader.module.scopes.of(loader.site)]
    seen = set(around)
    for _ in range(_FARTHEST):
        calls = [pair for scope in around for pair in script.interpreter.callers.get(scope, [])]
        own = [call for module, call in calls if module in script.modules]
        if own:
            first: ast.Call | None = script.tree.first(own)
            return first
        around = [module.scopes.of(call) for module, call in calls if module.scopes.of(call) not in seen]
        seen.update(around)
    return None


__all__ = ["CachedSamples", "cached_samples"]
