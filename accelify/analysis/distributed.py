"""What a script is distributed by already: a library, or torch's wrappers."""

from __future__ import annotations

import ast
import os
from collections.abc import Sequence
from pathlib import Path

from accelify.analysis import knowledge as k
from accelify.analysis.planning.reasons import Blocker
from accelify.analysis.program import Module
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import dotted
from accelify.analysis.values import Imported

# What is written wherever one of torch's wrappers, or of the libraries' names, is used.
_WORDS = (b"distributed", *sorted({name.rsplit(".", 1)[-1].encode() for name in k.DISTRIBUTED_NAMES}))
_CHANGE_IMPORT = "; to run it on accelify's runtime, import the same names from `accelify.runtime`"
_JOINS = "init_process_group("
# Of the named script apex is taken out before it comes here.
_APEX = (
    "NVIDIA apex, which is taken out of a script that is converted by itself, and not yet out of its modules; take it "
    "out there first: the Accelerator's mixed_precision does what its amp does"
)


def _user(script: ScriptModel, node: ast.AST) -> str:
    """Who uses a library: the script, or one of the modules that would be converted with it."""
    module = script.module_of(node)
    if module is script.module or module.path is None:
        return "it uses"
    folder = script.path.resolve().parent if script.path is not None else Path.cwd()
    return f"its module {Path(os.path.relpath(module.path, folder)).as_posix()} uses"


def _only_asks(script: ScriptModel, node: ast.Import | ast.ImportFrom) -> bool:
    """Whether an import only tries if a library is there, as nobody reads a name of it."""
    tree = script.module_of(node).tree
    names = {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return isinstance(tree.parent(node), ast.Try) and not any(
        name.id in names and isinstance(name.ctx, ast.Load) for name in tree.nodes(ast.Name)
    )


def already_distributed(script: ScriptModel, taken_out: bool = False) -> Blocker | None:
    """The library or wrapper by which a script is distributed already; torch's is fine once it is `taken_out`."""
    for node in [*script.tree.nodes(ast.Import), *script.tree.nodes(ast.ImportFrom)]:
        names = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
        if isinstance(node, ast.ImportFrom) and node.level:
            continue
        if script.scope_of(node) in script.dormant:
            continue
        for name in names:
            head = name.split(".")[0]
            if head == "accelify":
                return Blocker("ACC000", "it is converted already (it imports accelify)", node)
            if head == "apex" and _only_asks(script, node):
                continue
            if head == "apex" and script.module_of(node) is not script.module:
                return Blocker("ACC011", f"{_user(script, node)} {_APEX}", node)
            if head in k.DISTRIBUTED_LIBRARIES and not script.program.has(head):
                remedy = _CHANGE_IMPORT if head == "accelerate" else ""
                return Blocker(
                    "ACC001", f"{_user(script, node)} {k.DISTRIBUTED_LIBRARIES[head]} already{remedy}", node
                )
    if not any(module.tree.mentions(word) for module in script.program.modules.values() for word in _WORDS):
        return None  # no module of it can reach one of the names below
    sampler: Blocker | None = None
    for node in [*script.tree.nodes(ast.Name), *script.tree.nodes(ast.Attribute)]:
        if not isinstance(getattr(node, "ctx", None), ast.Load):
            continue
        text = dotted(node) or ""
        if not text.rsplit(".", 1)[-1][:1].isalpha() or script.scope_of(node) in script.dormant:
            continue
        for value in script.values(node):
            if not isinstance(value, Imported):
                continue
            if taken_out and (value.name in k.REPLACEABLE or value.name.startswith(k.PLAIN_DISTRIBUTED)):
                continue
            remedy = "; --replace-ddp may convert it" if value.name in k.REPLACEABLE else ""
            if value.name in k.DISTRIBUTED_NAMES:
                used = k.DISTRIBUTED_NAMES[value.name]
                found = Blocker("ACC001", f"{_user(script, node)} {used} already{remedy}", node)
                if value.name not in k.DISTRIBUTED_SAMPLERS:
                    return found
                sampler = sampler or found  # what the script is distributed by says more
            if value.name.startswith("torch.distributed."):
                remedy = (
                    "; --replace-ddp may convert it" if value.name.startswith(k.PLAIN_DISTRIBUTED) else ""
                )
                return Blocker("ACC001", f"{_user(script, node)} torch.distributed already{remedy}", node)
    return sampler or _joins_elsewhere(script)


def _joins_elsewhere(script: ScriptModel) -> Blocker | None:
    """A call of the script that joins a process group in a module which would not be converted with it."""
    for call in script.interpreter.calls:
        if script.tree.parent(call) is None or script.scope_of(call) in script.dormant:
            continue
        found = distributing(script, call, [_JOINS])
        if found is not None:
            called = f"its call `{script.tree.segment(call.func)}`"
            return Blocker("ACC001", f"{called} joins a process group in `{found[0].name}` already", call)
    return None


def distributing(script: ScriptModel, call: ast.Call, words: Sequence[str]) -> tuple[Module, str] | None:
    """The module, none of those that are converted, in which a call does what one of some words says, itself or
    through others, and the word."""
    calls = script.interpreter.calls
    modules = [one for one in script.program.modules.values() if one not in script.modules]
    modules = [one for one in modules if any(one.tree.mentions(word.encode()) for word in words)]
    queue, seen = list(calls.get(call, ())) if modules else [], set[ast.AST]()
    for callee in queue:  # which grows
        if callee.node in seen:
            continue
        seen.add(callee.node)
        home = next((one for one in modules if any(callee is s for s in one.scopes.functions())), None)
        text = home.tree.segment(callee.node) if home is not None else ""
        word = next((word for word in words if word in text), None)
        if home is not None and word is not None:
            return home, word
        queue += (
            one for node in ast.walk(callee.node) if isinstance(node, ast.Call) for one in calls.get(node, ())
        )
    return None
