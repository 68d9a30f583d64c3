"""Commands that a script passes to the shell, and whether they write files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from accelify.analysis.scopes import Scope
from accelify.analysis.syntax import call_argument, calls_in, dotted, walk

SHELL = frozenset(
    {"os.system", "subprocess.call", "subprocess.run", "subprocess.check_call", "subprocess.Popen"}
)
_WORDS = (
    "mkdir cp mv rm ln tar unzip gunzip zip wget curl gdown gsutil aws kaggle rsync scp touch tee split sort ffmpeg "
    "convert python python3 perl bash sh"
).split()
_WRITES = re.compile(
    rf">|git clone|(?:^|[;&|(]\s*|\n\s*)(?:(?:{'|'.join(_WORDS)})\b|\.{{1,2}}/|\S+\.(?:sh|py)\b)"
)
# What only shows something, what installs what each machine needs, and what is about the process itself.
_STAYS = frozenset(
    """nvidia-smi clear cls echo ls pwd date free top cat ps which hostname lscpu df du uname git nvcc stty
    pip pip3 conda apt apt-get export cd taskset renice kill ulimit numactl""".split()
)

_FILLING = frozenset({"split", "format", "strip"})


def writes_by_shell(call: ast.Call, name: str | None, scope: Scope) -> bool:
    """Whether a call runs a command that writes; one that cannot be seen counts, but for what asks for its output."""
    if not _runs(call, name):
        return False
    words = _texts(call, scope)
    return any(_WRITES.search(part.strip()) for part in words) or (not words and name == "os.system")


def run_for_all(call: ast.Call, name: str | None, scope: Scope) -> bool:
    """Whether a call runs a command that one process may run for all: not what shows something, or is about itself."""
    words = _texts(call, scope) if _runs(call, name) else []
    first = words[0].split() if words else []
    if not first or first[0] in _STAYS:
        return False
    return not any((dotted(n.func) or "").endswith("getpid") for n in calls_in(call))


def _runs(call: ast.Call, name: str | None) -> bool:
    asked = [kw for kw in call.keywords if kw.arg in ("stdout", "capture_output")]
    return name in SHELL and all((dotted(kw.value) or "").endswith("DEVNULL") for kw in asked)


def _texts(call: ast.Call, scope: Scope) -> list[str]:
    """The constant parts of a command, also of one that is put together in a variable before."""
    command = _whole(call_argument(call, 0, "args") or call_argument(call, 0, "command"))
    found = [command] if command is not None else []
    if isinstance(command, ast.Name):
        found += _assigned(scope, command.id)
    texts: list[str] = []
    for one in found:
        if isinstance(one, (ast.List, ast.Tuple)):
            one = one.elts[0] if one.elts else one
        parts = [n for n in walk(one) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
        texts += [str(n.value) for n in sorted(parts, key=lambda n: (n.lineno, n.col_offset))]
    return texts


def _whole(command: ast.expr | None) -> ast.expr | None:
    """What a command is cut out of or filled into: `command.split()`, `shlex.split(command.format(path))`."""
    while isinstance(command, ast.Call):
        if dotted(command.func) == "shlex.split" and command.args:
            command = command.args[0]
        elif isinstance(command.func, ast.Attribute) and command.func.attr in _FILLING:
            command = command.func.value
        else:
            break
    return command


def _assigned(scope: Scope, name: str) -> Iterator[ast.expr]:
    owner = scope.resolve(name)
    for node in owner.nodes if owner is not None else ():
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            yield node.value
