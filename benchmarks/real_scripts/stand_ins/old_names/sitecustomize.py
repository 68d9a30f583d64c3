"""Names that newer releases have dropped, given back to scripts that were written before: for rows with OLD_NAMES.

Nothing is imported early: each name is added when its module comes in.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from typing import Any


def numpy(module: Any) -> None:
    """Before NumPy 1.24 and 2.0."""
    module.Inf = module.inf
    for kind in (bool, int, float, object):
        if kind.__name__ not in module.__dict__:
            setattr(module, kind.__name__, kind)


def image(module: Any) -> None:
    """Before Pillow 10."""
    module.ANTIALIAS = module.Resampling.LANCZOS


def tensor(module: Any) -> None:
    """Before torch 0.5 a loss had one element to take out."""
    get = module.Tensor.__getitem__

    def item(self: Any, key: Any) -> Any:
        return get(self.reshape(1) if type(key) is int and self.dim() == 0 else self, key)

    module.Tensor.__getitem__ = item


def scheduler(module: Any) -> None:
    """Before torch 2.7 a scheduler could be asked to print."""
    made = module.ReduceLROnPlateau.__init__

    def init(self: Any, *args: Any, verbose: bool = False, **kwargs: Any) -> None:
        made(self, *args, **kwargs)

    module.ReduceLROnPlateau.__init__ = init


def pictures(module: Any) -> None:
    """Before SciPy 1.2; what these scripts import of it without using it here."""
    module.imread = module.imresize = module.imsave = None


def iterator(module: Any) -> None:
    """Before torch 1.13 a loader's iterator had a method `next`; the prepared loader's has it here too."""
    for name in ("_BaseDataLoaderIter", "LoaderIterator"):
        if hasattr(module, name):
            getattr(module, name).next = lambda self: next(self)


def figure(module: Any) -> None:
    """Before Matplotlib 3.5 a number of rows or columns could be 10.0."""
    add = module.Figure.add_subplot

    def add_subplot(self: Any, *places: Any, **options: Any) -> Any:
        return add(self, *(int(n) if isinstance(n, float) else n for n in places), **options)

    module.Figure.add_subplot = add_subplot


_LATER: dict[str, Callable[[Any], None]] = {
    "numpy": numpy, "PIL.Image": image, "torch": tensor, "torch.optim.lr_scheduler": scheduler,
    "scipy.misc": pictures, "torch.utils.data.dataloader": iterator, "accelify.runtime.data.loaders": iterator,
    "matplotlib.figure": figure,
}  # fmt: skip


class _Finder(importlib.abc.MetaPathFinder):
    """Finds what the others find, and adds to it once it is there."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """The module's own specification, with a step after it."""
        add = _LATER.pop(name, None)
        spec = importlib.util.find_spec(name) if add is not None else None
        if add is None or spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def then(module: Any) -> None:
            run(module)
            add(module)

        spec.loader.exec_module = then  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _Finder())
