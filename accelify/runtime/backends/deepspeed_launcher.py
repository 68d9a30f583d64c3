"""DeepSpeed's launcher writes `--local_rank=N` before the script's arguments; a script need not know of it.

The argument is there before any code of ours runs. So this is done when accelify.runtime is imported, which scripts do
at their top, before they read their arguments: where neither the script nor a module in its folder has the word, the
argument is taken out of `sys.argv`. Its value is in the environment variable LOCAL_RANK as well.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_ARGUMENT = re.compile(r"--local[_-]rank=(\d+)")
# A script whose directory has more files than this is looked at alone.
_MANY = 200


def hide_local_rank() -> None:
    """Take the launcher's argument out of `sys.argv` where the script does not ask for it."""
    # Only the launcher sets these; without them, an argument is the user's.
    if "CROSS_RANK" not in os.environ or "CROSS_SIZE" not in os.environ:
        return
    match = _ARGUMENT.fullmatch(sys.argv[1]) if len(sys.argv) > 1 else None
    if match is not None and not _is_asked_for():
        os.environ.setdefault("LOCAL_RANK", match[1])
        del sys.argv[1]


def _is_asked_for() -> bool:
    script = Path(getattr(sys.modules.get("__main__"), "__file__", None) or sys.argv[0])
    beside = sorted(script.parent.glob("*.py")) if script.parent.is_dir() else []
    for path in [script, *(beside if len(beside) <= _MANY else ())]:
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError:
            continue
        if "local_rank" in text or "local-rank" in text:
            return True
    return False
