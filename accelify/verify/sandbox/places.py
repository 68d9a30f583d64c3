"""Where a run finds its script, its working folder and everything else, by kind of sandbox."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from accelify.verify.sandbox.changes import Change, layer_changes
from accelify.verify.sandbox.mirror import Mirror
from accelify.verify.sandbox.root import LAYERS
from accelify.verify.sandbox.scratch import Scratch

FORCE = "ACCELIFY_VERIFY_SANDBOX"
"""Environment variable that forces a kind: `namespaces`, `redirected`, or `redirected-bare`, without Landlock."""

if TYPE_CHECKING:
    from accelify.verify.runs import Job


class Place(Protocol):
    """What the processes of one run are to know about its sandbox."""

    def order(self) -> dict[str, Any]:
        """For the leader of the run."""

    def rank_order(self) -> dict[str, Any]:
        """For each rank."""

    def environment(self) -> dict[str, str]:
        """Variables of each rank."""

    def script(self) -> str:
        """Path of the script that runs."""

    def working(self) -> str:
        """The working folder."""

    def word(self, word: str) -> str:
        """A word of the command line, as the run needs it."""

    def changes(self) -> list[Change]:
        """What the run has changed, once it has ended."""


class InNamespaces:
    """Everything is where it really is; converted files are in the layer above the original ones."""

    def __init__(self, job: Job, scratch: Scratch) -> None:
        self.job = job
        self.scratch = scratch
        self.replaced: dict[str, str] = {}
        folder = scratch.home / "replaced"
        folder.mkdir()
        for number, (path, data) in enumerate(job.replaced.items()):
            (folder / str(number)).write_bytes(data)
            self.replaced[os.path.realpath(path)] = str(folder / str(number))

    def order(self) -> dict[str, Any]:
        return {
            "real": [str(self.scratch.results), str(self.scratch.temporary), *_written(self.job)],
            "replaced": self.replaced,
            "folders": _likely([self.working(), os.path.dirname(self.script())], self.job.arguments),
        }

    def rank_order(self) -> dict[str, Any]:
        return {"tree": ""}

    def environment(self) -> dict[str, str]:
        return {}

    def script(self) -> str:
        return os.path.realpath(self.job.script)

    def working(self) -> str:
        return str(Path.cwd())

    def word(self, word: str) -> str:
        return word

    def changes(self) -> list[Change]:
        try:
            layers = json.loads((self.scratch.home / LAYERS).read_text())
        except OSError:
            return []
        return layer_changes(layers, self.replaced)


def _likely(folders: Sequence[str], words: Sequence[str]) -> list[str]:
    """Folders where a run probably writes: these, and those that the command line names."""
    named = [word.partition("=")[2] if word.startswith("-") else word for word in words]
    places = [os.path.realpath(word) for word in named if "/" in word]
    places = [place if os.path.isdir(place) else os.path.dirname(place) for place in places]
    return list(dict.fromkeys([*folders, *places]))


class InMirror:
    """A tree of links represents the real one, and Python's calls are led into it."""

    def __init__(self, job: Job, scratch: Scratch) -> None:
        self.job = job
        self.since = time.time()
        self.replaced = {os.path.realpath(path): data for path, data in job.replaced.items()}
        self.mirror = Mirror(scratch, Path(os.path.realpath(job.script)), Path.cwd(), job.replaced)
        self.paths = {
            path: self.mirror.translate(path)
            for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path
        }  # fmt: skip

    def order(self) -> dict[str, Any]:
        return {"real": _written(self.job)}

    def rank_order(self) -> dict[str, Any]:
        return {
            "home": str(self.mirror.home), "tree": str(self.mirror.tree), "real": _written(self.job),
            "paths": self.paths,
        }  # fmt: skip

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join(self.paths.values())}

    def script(self) -> str:
        return str(self.mirror.path(self.mirror.script))

    def working(self) -> str:
        return str(self.mirror.path(self.mirror.working))

    def word(self, word: str) -> str:
        return self.mirror.translate(word)

    def changes(self) -> list[Change]:
        return self.mirror.links.changes(self.since, self.replaced)


def _written(job: Job) -> list[str]:
    """Folders outside the run's that the recorder writes into."""
    files = [file for file in (job.save_weights, job.save_trace) if file is not None]
    return list(dict.fromkeys(os.path.realpath(file.parent) for file in files))
