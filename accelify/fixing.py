"""Fixes of single findings in scripts that are written for several processes.

Each is tried: after it, the finding has to be gone and none may be new, or the fix is taken back. A script for one
device is no case for it: what `accelify convert` writes there is one whole.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from accelify.analysis.scopes import Scopes
from accelify.analysis.syntax import Tree, call_keyword, dotted
from accelify.conversion import CONVERTED
from accelify.findings import Finding
from accelify.linting import Linted, lint
from accelify.project import Imports
from accelify.proving.wording import effect_of
from accelify.selection import IGNORING, UNUSED_IGNORE
from accelify.source import Source
from accelify.writer import edits as verbs
from accelify.writer.checks import check
from accelify.writer.edits import Edit

# What fixes of one round may uncover is fixed in the next.
_MOST_ROUNDS = 10
_MAKING = "Accelerator"
_CLIPS = frozenset({"clip_grad_norm_", "clip_grad_value_"})
# What of an Accelerator one process may do alone.
_ALONE = frozenset({"unwrap_model", "print", "log", "save"})
_MEETING = re.compile(
    r"gather|reduce|broadcast|barrier|wait_for|all_|prepare|backward|save_state|load_state|get_state_dict|step$|scatter"
    r"|save_pretrained|save_model|push_to_hub|full_tensor"
)
# Effects that nothing waits for; the others go on with what these leave, and would have to wait for it.
_SAFE = frozenset(
    {"terminal.write", "log.write", "file.write", "file.append", "network.send", "tracker.log", "figure.show"}
)
_NEEDED = frozenset({"network.get", "wait.input"})
_BEGINS = "init_process_group"
_SHARDED = re.compile("FullyShardedDataParallel|fully_shard|fsdp|deepspeed", re.I)


@dataclass(frozen=True)
class Fix:
    """A fix of one finding: what it does, whether it is safe, and its edits; or a line, and what comes in its place."""

    finding: Finding
    title: str
    safe: bool
    edits: tuple[Edit, ...] = ()
    line: tuple[int, str] | None = None


class Fixes:
    """What can be fixed in one script.

    Args:
        linted: the script, with its findings.
    """

    def __init__(self, linted: Linted) -> None:
        self.linted = linted
        self.source = linted.source
        self.tree = Tree(self.source.text, str(self.source.path or "<stdin>"), self.source.tree)
        self._scopes = Scopes(self.tree)
        self._accelerators = [
            stmt
            for stmt in self.tree.nodes(ast.Assign)
            if isinstance(stmt.value, ast.Call)
            and (dotted(stmt.value.func) or "").rpartition(".")[2] == _MAKING
            and len(stmt.targets) == 1
        ]

    @property
    def is_plain(self) -> bool:
        """Whether the script is for one device, so that its findings are fixed by its conversion alone."""
        return self.linted.conversions[0].status == CONVERTED

    def all(self) -> Iterator[Fix]:
        """The fixes of the findings in the script itself, one for a finding."""
        own = str(self.source.path or "<stdin>")
        for finding in self.linted.findings:
            way = _WAYS.get(finding.code)
            if way is not None and finding.path == own and not self.is_plain:
                fix = way(self, finding)
                if fix is not None:
                    yield fix

    def call_at(self, finding: Finding) -> ast.Call | None:
        """The outermost call that begins where a finding is."""
        lines = self.source.lines
        line = lines[finding.line - 1] if finding.line <= len(lines) else ""
        start = len(line[: finding.column - 1].encode())
        calls = [c for c in self.tree.nodes(ast.Call) if (c.lineno, c.col_offset) == (finding.line, start)]
        return max(calls, key=lambda call: (call.end_lineno or 0, call.end_col_offset or 0), default=None)

    def accelerator_at(self, node: ast.AST) -> str | None:
        """How the Accelerator is called where a node stands; None where it is not known there."""
        scope = self._scopes.of(node)
        for made in self._accelerators:
            target = made.targets[0]
            home = self._scopes.of(made)
            if isinstance(target, ast.Name):
                first = made.lineno < getattr(node, "lineno", 0) or scope is not home
                if first and scope.resolve(target.id) is home:
                    return target.id
            elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name):
                owner = home.owner_class
                named = target.value.id == home.self_name() and scope.self_name() == target.value.id
                if owner is not None and named and scope.owner_class is owner and scope is not home:
                    return f"{target.value.id}.{target.attr}"
        return None

    def main_test(self, node: ast.AST) -> str | None:
        """The test that is true on the main process alone."""
        if (name := self.accelerator_at(node)) is not None:
            return f"{name}.is_main_process"
        if self._accelerators:
            return None
        scope = self._scopes.of(node)
        for stmt in self.tree.nodes(ast.Import):
            for alias in stmt.names:
                if alias.name == "torch.distributed" and alias.asname and stmt in self.tree.module.body:
                    if scope.resolve(alias.asname) is self._scopes.module:
                        return f"{alias.asname}.get_rank() == 0"
        return None

    def may_ask(self, node: ast.AST) -> bool:
        """Whether it is sure where a node stands which process this is: an Accelerator is there, or they have met."""
        if self._accelerators:
            return True
        around = {self.tree.module, *self.tree.ancestors(node)}
        return any(
            (dotted(call.func) or "").rpartition(".")[2] == _BEGINS
            and call.lineno < getattr(node, "lineno", 0)
            and self.tree.parent(self.tree.statement(call)) in around
            for call in self.tree.nodes(ast.Call)
        )


def _by_main(fixes: Fixes, finding: Finding) -> Fix | None:
    """An effect of all processes becomes one of the main process."""
    tree, call, effect = fixes.tree, fixes.call_at(finding), effect_of(finding.message)
    if call is None or effect in _NEEDED:
        return None
    stmt = tree.statement(call)
    if not isinstance(stmt, ast.Expr) or stmt.value is not call:
        return None
    name = fixes.accelerator_at(call)
    if isinstance(call.func, ast.Name) and call.func.id == "print" and name is not None:
        if not any(word.arg == "file" for word in call.keywords):
            return Fix(
                finding, "Print on the main process", True, (verbs.replace(call.func, f"{name}.print"),)
            )
    if dotted(call.func) == "torch.save" and name is not None:
        # What it is given may be asked of all processes: the state of a sharded model.
        if len(call.args) == 2 and not call.keywords:
            return Fix(finding, "Save by the Accelerator", True, (verbs.replace(call.func, f"{name}.save"),))
        return None
    outer: ast.stmt = stmt
    parent = tree.parent(stmt)
    while isinstance(parent, ast.With) and any(_opens(item.context_expr) for item in parent.items):
        outer, parent = parent, tree.parent(parent)
    test = fixes.main_test(outer)
    sharded = _SHARDED.search(fixes.source.text) is not None
    if test is None or any(_meets(node, name, sharded) for node in ast.walk(outer)) or _binds(outer):
        return None
    edit = verbs.PutUnder(outer, outer, f"if {test}:")
    return Fix(finding, "Do it on the main process", effect in _SAFE and fixes.may_ask(outer), (edit,))


def _opens(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and (dotted(node.func) or "").rpartition(".")[2] == "open"


def _binds(stmt: ast.stmt) -> bool:
    """Whether a statement sets something that the other processes may read afterwards."""
    files = {
        item.optional_vars
        for node in ast.walk(stmt)
        if isinstance(node, ast.With)
        for item in node.items
        if _opens(item.context_expr)
    }
    return any(
        (isinstance(getattr(node, "ctx", None), (ast.Store, ast.Del)) and node not in files)
        or isinstance(node, (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef))
        for node in ast.walk(stmt)
    )


def _meets(node: ast.AST, accelerator: str | None, sharded: bool) -> bool:
    """Whether a node may be a call that all processes have to make, as the state of a sharded model is."""
    if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await, ast.Return, ast.Break, ast.Continue)):
        return True
    if not isinstance(node, ast.Call):
        return False
    base, _, name = (dotted(node.func) or "").rpartition(".")
    if accelerator is not None and base == accelerator:
        return name not in _ALONE
    return _MEETING.search(name) is not None or (sharded and name == "state_dict")


def _through_accelerator(fixes: Fixes, finding: Finding) -> Fix | None:
    """`loss.backward()` and the clipping of gradients by the Accelerator."""
    call = fixes.call_at(finding)
    name = fixes.accelerator_at(call) if call is not None else None
    if call is None or name is None:
        return None
    called = (dotted(call.func) or "").rpartition(".")[2]
    if called in _CLIPS:
        edit = verbs.replace(call.func, f"{name}.{called}")
        return Fix(finding, f"Use {name}.{called}", True, (edit,))
    if isinstance(call.func, ast.Attribute) and call.func.attr == "backward" and not call.args:
        loss = call.func.value
        if isinstance(loss, (ast.Name, ast.Attribute, ast.Subscript)):
            given = [fixes.tree.segment(word) for word in call.keywords]
            edit = verbs.replace(
                call, f"{name}.backward(", loss, "".join(f", {word}" for word in given) + ")"
            )
            return Fix(finding, f"Use {name}.backward", True, (edit,))
    return None


def _to_own_device(fixes: Fixes, finding: Finding) -> Fix | None:
    """`torch.load(path)` with a `map_location`."""
    call = fixes.call_at(finding)
    if call is None or (dotted(call.func) or "") != "torch.load" or len(call.args) > 1:
        return None
    if call_keyword(call, "map_location") is not None or any(word.arg is None for word in call.keywords):
        return None
    name = fixes.accelerator_at(call)
    place = f"{name}.device" if name is not None else '"cpu"'
    edit = verbs.AddArgument(call, f"map_location={place}")
    return Fix(finding, "Load to the device of the process", name is not None, (edit,))


def _with_epochs(fixes: Fixes, finding: Finding) -> Fix | None:
    """`sampler.set_epoch(epoch)` at the start of the loop over epochs."""
    call = fixes.call_at(finding)
    made = fixes.tree.statement(call) if call is not None else None
    if not isinstance(made, ast.Assign) or made.value is not call or len(made.targets) != 1:
        return None
    sampler = made.targets[0]
    if not isinstance(sampler, ast.Name):
        return None
    loaders = {
        stmt.targets[0].id
        for stmt in fixes.tree.nodes(ast.Assign)
        if isinstance(stmt.value, ast.Call)
        and isinstance(given := call_keyword(stmt.value, "sampler"), ast.Name)
        and given.id == sampler.id
        and isinstance(stmt.targets[0], ast.Name)
    }
    for loop in fixes.tree.nodes(ast.For):
        if not any(isinstance(node, ast.Name) and node.id in loaders for node in ast.walk(loop.iter)):
            continue
        outer = fixes.tree.parent(loop)
        while outer is not None and not isinstance(outer, (ast.For, ast.FunctionDef, ast.AsyncFunctionDef)):
            outer = fixes.tree.parent(outer)
        if isinstance(outer, ast.For) and isinstance(outer.target, ast.Name) and outer.lineno > made.lineno:
            edit = verbs.InsertBefore(outer.body[0], (f"{sampler.id}.set_epoch({outer.target.id})",))
            return Fix(finding, "Shuffle anew in every epoch", True, (edit,))
    return None


def _without_comment(fixes: Fixes, finding: Finding) -> Fix | None:
    """A comment that silences nothing goes."""
    line = fixes.source.lines[finding.line - 1]
    code, end = line.rstrip("\r\n"), line[len(line.rstrip("\r\n")) :]
    comment = IGNORING.search(code, max(finding.column - 1, 0))
    if comment is None:
        return None
    left = (code[: comment.start()] + code[comment.end() :]).rstrip()
    return Fix(finding, "Remove the comment", True, line=(finding.line, left + end if left.strip() else ""))


_WAYS: dict[str, Callable[[Fixes, Finding], Fix | None]] = {
    "ACC702": _by_main,
    "ACC712": _through_accelerator,
    "ACC714": _to_own_device,
    "ACC716": _with_epochs,
    UNUSED_IGNORE.code: _without_comment,
}


def marked(linted: Linted) -> list[Finding]:
    """The findings of a script, those with a fix with the word whether it is safe."""
    if not any(one.code in _WAYS and not one.fixable for one in linted.findings):
        return linted.findings
    ways = {id(fix.finding): "safe" if fix.safe else "unsafe" for fix in Fixes(linted).all()}
    return [replace(one, fix=ways.get(id(one), "")) for one in linted.findings]


def text_with(fixes: Fixes, chosen: Sequence[Fix]) -> str | None:
    """The script with some fixes; None where they do not fit together."""
    if commented := dict(fix.line for fix in chosen if fix.line is not None):
        # The others come in the next round, of the lines as they are then.
        return "".join(commented.get(number, line) for number, line in enumerate(fixes.source.lines, 1))
    edits = list(dict.fromkeys(edit for fix in chosen for edit in fix.edits))
    from accelify.writer.writing import apply

    try:
        text = apply(fixes.tree, edits).decode("utf-8")
        check(fixes.tree, [fixes.source.text], [text], fixes.tree.paths())
    except (verbs.EditError, SyntaxError, ValueError):
        return None
    return text


def fixed(
    source: Source, imports: Imports, select: Sequence[str], ignore: Sequence[str], *, unsafe: bool
) -> tuple[Source, int]:
    """A script with its findings fixed as far as that goes, and how many are.

    Args:
        source: the script.
        imports: what the files of its project import.
        select: codes that are fixed; all where empty.
        ignore: codes that are not.
        unsafe: make also those fixes that may change what the script does otherwise.

    Raises:
        SourceError: for a configuration that makes no sense, and for files that cannot be read.
    """
    linted, number = lint(source, imports, select, ignore), 0
    refused: set[tuple[str, str]] = set()
    for _ in range(_MOST_ROUNDS):
        fixes = Fixes(linted)
        chosen = [
            fix for fix in fixes.all() if (unsafe or fix.safe) and _mark(linted, fix.finding) not in refused
        ]
        if not chosen:
            break
        found = _better(fixes, chosen, imports, select, ignore)
        if found is not None:
            number += len(linted.findings) - len(found.findings)
            linted = found
            continue
        for fix in chosen:  # one of them does not do what it is for
            found = _better(Fixes(linted), [fix], imports, select, ignore)
            if found is not None:
                number += 1
                linted = found
                break
            refused.add(_mark(linted, fix.finding))
        else:
            break
    return linted.source, number


def _better(
    fixes: Fixes, chosen: Sequence[Fix], imports: Imports, select: Sequence[str], ignore: Sequence[str]
) -> Linted | None:
    """The script with some fixes; None where one of them does not help, or brings a finding that was not there."""
    text = text_with(fixes, chosen)
    if text is None or text == fixes.source.text:
        return None
    source = Source.from_bytes(fixes.source.encode(text), fixes.source.path)
    found = lint(source, imports, select, ignore)
    before = Counter(one.code for one in fixes.linted.findings)
    after = Counter(one.code for one in found.findings)
    # Several of one kind are one finding: where one is fixed, the next may show.
    worse = any(number > before[code] for code, number in after.items())
    gone = {_mark(fixes.linted, fix.finding) for fix in chosen if fix.edits} & {
        _mark(found, one) for one in found.findings
    }
    return None if worse or gone else found


def _mark(linted: Linted, finding: Finding) -> tuple[str, str]:
    lines = linted.source.lines
    line = lines[finding.line - 1] if 0 < finding.line <= len(lines) else ""
    return finding.code, "".join(line.split())
