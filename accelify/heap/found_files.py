"""Files that every process finds: the main process has written them, and all have met since."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from accelify.heap.paths import file_of
from accelify.heap.run import Event, Run
from accelify.heap.values import Value

_WRITES = frozenset({"file.write", "file.append", "folder.make"})
_TAKES = frozenset({"file.delete", "file.move", "folder.delete"})


def is_found(run: Run, paths: Sequence[Value], node: ast.AST) -> bool:
    """Whether a file that a call asks for is there on all processes, of a script that is written for several.

    Args:
        run: the run.
        paths: the file or folder.
        node: the call. Of a path of which a part is not known, it has to have asked on the main process, too.
    """
    name = file_of(next(iter(paths), None)) if run.checks else ""
    run.depends()
    if not name or any(guard.parts_ranks for guard in run.guards):
        return False
    have_met = written = False
    for event in reversed(run.events):
        if event.kind == "collective" and not any(guard.parts_ranks for guard in event.guards):
            have_met = True
        elif file_of(event.path) == name:
            if event.kind in _TAKES:
                return False
            written = written or (have_met and event.kind in _WRITES and _is_of_main(event))
            if written and ("*" not in name or (event.node is node and _is_of_main(event))):
                return True
    return False


def _is_of_main(event: Event) -> bool:
    return any(guard.kind == "main" for guard in event.guards)
