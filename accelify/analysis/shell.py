"""Commands that a script hands to the shell, and whether they write files."""

from __future__ import annotations

import ast
import re

from accelify.analysis.syntax import call_argument, walk

SHELL = frozenset({"os.system", "subprocess.call", "subprocess.run", "subprocess.check_call"})
_WORDS = (
    "mkdir cp mv rm ln tar unzip gunzip zip wget curl gdown gsutil aws kaggle rsync scp touch tee split sort ffmpeg "
    "convert python python3 perl bash sh"
).split()
_WRITES = re.compile(rf">|git clone|(?:^|[;&|(]\s*|\n\s*)(?:{'|'.join(_WORDS)})\b")


def writes_by_shell(call: ast.Call, name: str | None) -> bool:
    """Whether a call runs a command that writes; one that cannot be seen counts, but for what asks for its output."""
    if name not in SHELL or any(kw.arg in ("stdout", "capture_output") for kw in call.keywords):
        return False
    command = call_argument(call, 0, "args") or call_argument(call, 0, "command")
    if isinstance(command, (ast.List, ast.Tuple)):
        command = command.elts[0] if command.elts else None
    text = [n.value for n in walk(command) if isinstance(n, ast.Constant)] if command is not None else []
    words = [part for part in text if isinstance(part, str)]
    return any(_WRITES.search(part.strip()) for part in words) or (not words and name == "os.system")


__all__ = ["SHELL", "writes_by_shell"]
