"""The basis of every transform: the context that it queries and the changes that it yields."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from accelify.analysis.data.differing_shuffles import evaluates_in_other_orders
from accelify.analysis.data.drawn_samples import draws_samples
from accelify.analysis.devices.models_left_on_host import Locations, before_and_after
from accelify.analysis.files.effect_sites import goes_over_files
from accelify.analysis.files.effects import SideEffects
from accelify.analysis.metrics.collected import filling_loops
from accelify.analysis.metrics.evaluation_loop import EvaluationLoop
from accelify.analysis.metrics.figures import BatchLoop, Figures, Place
from accelify.analysis.planning.accelerator_attributes import AtHand
from accelify.analysis.planning.anchors import node_of
from accelify.analysis.planning.meeting import meeting_scopes
from accelify.analysis.planning.plan import Plan
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.statement_calls import needed_beside
from accelify.analysis.syntax import calls_in, names_in, walk
from accelify.analysis.values import LOADER, MODEL
from accelify.dropped_moves import MovePlace
from accelify.findings import Finding, Safety, Severity
from accelify.findings import Rule as Rule
from accelify.rule_codes import PUBLIC
from accelify.transforms.agreement import Agreement
from accelify.writer import edits as verbs
from accelify.writer.edits import Edit, InsertAfter, InsertBefore, PutUnder

if TYPE_CHECKING:
    from accelify.transforms.fixes_elsewhere import FixElsewhere

Above: TypeAlias = Callable[[ast.stmt], bool]
# Methods by which a loop collects what it has computed.
_FILLING = frozenset("append extend add update".split())


class Change(NamedTuple):
    """A finding with the edits that fix it. Core changes are made all together or not at all.

    `problem` says why a core change cannot be made; the whole script is then left unchanged.
    """

    finding: Finding
    edits: tuple[Edit, ...] = ()
    core: bool = False
    problem: str = ""

    def without_edits(self, why: str) -> Change:
        """The same finding as a warning, for when its edits cannot be made."""
        return Change(self.finding.not_done(why))


class Context(Agreement):
    """What a transform may ask: the script's model, the plan, and the verbs with the rule's name on them."""

    def __init__(
        self, script: ScriptModel, plan: Plan, name: str, stays_called: Callable[[Scope], bool] | None = None
    ) -> None:
        self.script = script
        self.plan = plan
        # Whether a function or class is called by what is not converted with the script, and must go on to fit.
        self.stays_called = stays_called or (lambda scope: False)
        self.tree = script.tree
        self.name = name
        self.claimed: set[ast.AST] = set()
        self.retained: frozenset[MovePlace] = (
            frozenset()
        )  # moves that stay where prepare places what they move
        self.dropped: list[ast.Call] = []  # moves that are gone
        self.guarded: set[ast.AST] = set()  # statements that are under a main-process guard already
        self.taking_turns: set[ast.stmt] = set()  # which the processes run in turn, the main one first
        self.waiting: set[ast.stmt] = set()  # statements before which all processes wait
        self.reduced: set[tuple[Scope, str]] = set()  # totals that are reduced after their loop
        # The loops after which something is reduced, by the name of its variable.
        self.settled: dict[str, list[BatchLoop]] = {}
        self.reported: set[ast.AST] = set()  # already reported or fixed: processes can differ in them
        self.averaged: list[ast.expr] = []  # numbers that are averaged over processes at this expression
        self.everywhere: set[ast.Call] = set()  # calls that open a log, or write, on every process
        # That make a folder in which each process puts the files of its samples at once.
        self.own_folders: set[ast.Call] = set()
        self.ungathered: list[EvaluationLoop] = []  # evaluation loops whose outputs cannot be gathered
        self.trained_methods: list[ast.Attribute] = []  # for which Accelerate's wrapper knows only forward
        self.fixes_elsewhere: list[FixElsewhere] = []  # in modules that are not converted otherwise
        self.effects = SideEffects(script)

    def release(self) -> None:
        """Free everything, when no question is left: see `ScriptModel.release`."""
        vars(self.effects).clear()
        vars(self).clear()

    @property
    def for_accelerate(self) -> bool:
        """Whether the script is written for Hugging Face Accelerate and not for accelify's runtime."""
        return self.plan.for_accelerate

    @cached_property
    def locations(self) -> tuple[Locations, Locations]:
        """Where tensors are in the script as it is, and where they are once prepare places its batches."""
        loops = [evaluation.loop for evaluation in self.plan.evaluations if evaluation.collects]
        loops += [loop for loop in filling_loops(self.script) if loop not in loops]
        sure = self.plan.prepared - self.plan.doubtful.keys()
        return before_and_after(self.script, sure, self.plan.devices.is_cpu, loops)

    @cached_property
    def figures(self) -> Figures:
        """What the values are made of that loops add up or collect."""
        return Figures(self.script, self.plan.reductions)

    @cached_property
    def draws_other_orders(self) -> bool:
        """Whether every process evaluates shuffled data whole amid a training pass: each draws another order there."""
        return evaluates_in_other_orders(self.plan)

    def leaves_own(self, loop: BatchLoop) -> bool:
        """Whether a loop adds up or collects something that is not reduced after it, or after a loop around it."""
        around = [loop, *self.tree.ancestors(loop)]
        reduced = {root for root, known in self.settled.items() if any(one in around for one in known)}
        filled: set[str] = set()
        for node in (n for stmt in loop.body for n in walk(stmt)):
            if isinstance(node, ast.AugAssign):
                filled |= names_in(node.target)
            elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
                func = node.value.func
                if isinstance(func, ast.Attribute) and func.attr in _FILLING:
                    filled |= names_in(func.value)
        return not reduced or not filled <= reduced

    def import_line(self, module: ast.Module, line: str, above: Above | None = None) -> tuple[Edit, ast.AST]:
        """The edit that adds an import after the others at the top of a file, and the statement next to which it goes.

        `above` tests whether a statement comes before the name is needed.
        """
        body, last = module.body, None
        if line.startswith("import "):
            # A module of the standard library is with the others of its kind, which come first, by their names.
            name = line.removeprefix("import ")
            for stmt in body:
                if isinstance(stmt, ast.Import) and stmt.names[0].name > name and self.tree.own_line(stmt):
                    if above is None or above(stmt):
                        return InsertBefore(stmt, (line,), order=-101), stmt
        for index, stmt in enumerate(body):
            if isinstance(stmt, (ast.Import, ast.ImportFrom)):
                late = above is not None and not above(stmt)
                # Imports of the same block at the top of the file are a few lines apart.
                if late or (last is not None and stmt.lineno - (last.end_lineno or last.lineno) > 12):
                    break
                last = stmt
            elif isinstance(stmt, (ast.FunctionDef, ast.ClassDef, ast.For, ast.While)) or (
                index and last is not None and not isinstance(stmt, (ast.Expr, ast.Try, ast.If, ast.Assign))
            ):
                break
        first = line.endswith("Accelerator") or "Accelerator," in line  # the Accelerator's import comes first
        if last is not None:
            return InsertAfter(last, (line,), order=-200 if first else -199), last
        docstring = bool(body) and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant)
        place = body[1] if docstring and len(body) > 1 else body[0]
        order = -100 if first else -101
        return InsertBefore(place, (line, "") if first else (line,), order, above_comment=True), place

    def beside_accelerator(self, lines: tuple[str, ...], order: int) -> Edit:
        """The edit that puts lines where the Accelerator is made."""
        anchor = self.plan.anchor
        assert anchor is not None
        if anchor.before is not None:
            return InsertBefore(anchor.before, lines, order, above_comment=True)
        assert anchor.after is not None
        return InsertAfter(anchor.after, lines, order)

    def is_bound(self, name: str, node: ast.AST) -> bool:
        """Whether a name that a module imports is available at a node: in a notebook the import may come below it."""
        scope = self.script.scope_of(node)
        if scope.kind != "module":
            return scope.resolve(name) is not None
        imports = self.tree.nodes(ast.Import, ast.ImportFrom)
        own = [s for s in imports if any((a.asname or a.name.split(".")[0]) == name for a in s.names)]
        own = [s for s in own if self.script.scope_of(s) is scope]
        return name in scope.locals and (not own or any(self.tree.is_before(s, node) for s in own))

    def import_for(self, node: ast.AST, line: str) -> Edit:
        """The edit that adds the import of what is used at a node of any module, before the node."""
        module = self.script.module_of(node).scopes.module.node
        assert isinstance(module, ast.Module)
        outer = next((a for a in [node, *self.tree.ancestors(node)] if a in module.body), None)
        above = None if outer is None else partial(self._is_above, outer)
        return self.import_line(module, line, above)[0]

    def _is_above(self, node: ast.AST, stmt: ast.stmt) -> bool:
        return self.tree.is_before(stmt, node)

    def settle(self, loop: BatchLoop, places: Iterable[Place]) -> None:
        """Note places whose parts are combined after a loop, so that they are equal on every process."""
        scope = self.script.scope_of(loop)
        for place in places:
            self.reduced.add((scope, place.root))
            name = place.root.rsplit(".", 1)[-1]
            self.settled.setdefault(name, []).append(loop)

    def afterwards(self, loop: BatchLoop, lines: list[str]) -> Edit:
        """The edit that adds lines after a loop: in its `else`, where that is what comes next."""
        if loop.orelse and not any(isinstance(n, ast.Break) for s in loop.body for n in walk(s)):
            return InsertBefore(loop.orelse[0], tuple(lines))
        return InsertAfter(loop, tuple(lines))

    def is_reported(self, node: ast.AST) -> bool:
        """Whether a node, or a part of it, is already reported or fixed as differing between processes."""
        return any(n in self.reported for n in walk(node))

    @cached_property
    def at_hand(self) -> AtHand:
        """The Accelerators of objects that keep one."""
        return AtHand(self.script, self.plan.reach)

    def accelerator(self, node: ast.AST) -> str | None:
        """How the accelerator, or an object that has it, is written at a node; None where it is not available."""
        return self.plan.accelerator(node) or self.at_hand.expression(node)

    def reaches_cheaply(self, node: ast.AST) -> bool:
        """Whether the accelerator is available without adding a parameter only for this."""
        reach = self.plan.reach
        if reach is None:
            return False
        home = node_of(self.script, self.script.scope_of(node))
        return (
            home is reach.root
            or reach.is_global
            or home in reach.threaded
            or home in self.script.training_scopes
        )

    def is_settled(self, node: ast.AST) -> bool:
        """Whether a node is being rewritten, or run by the main process alone, or going to be."""
        return self.is_claimed(node) or self.is_guarded(node) or self.plan.on_main_only(node)

    def is_guarded(self, node: ast.AST) -> bool:
        """Whether a node is being put under a main-process guard, by itself or with what is around it."""
        return bool(self.guarded) and self.tree.is_within(node, self.guarded)

    def meets_others(self, node: ast.AST) -> str:
        """Why processes meet in a node (it trains, gathers, reads shared batches); "" where they do not."""
        if self.script.trains(node):
            return "it trains"
        inside = set(walk(node))
        for evaluation in self.plan.evaluations:
            shared = evaluation.loaders & self.plan.prepared
            places = [evaluation.loop, evaluation.before, evaluation.after, *evaluation.gathered_nodes]
            if shared and any(place in inside for place in places if place is not None):
                return "its metrics are gathered"
        for call in inside:
            if self._begins_pass(call):
                return "a pass over a loader that they share begins in it"
            for callee in self.script.callees(call) if isinstance(call, ast.Call) else ():
                if callee in self._meeting_scopes:
                    return f"`{callee.name}` has to be run by all of them"
        return ""

    def _begins_pass(self, node: ast.AST) -> bool:
        if not (isinstance(node, ast.Call) and getattr(node.func, "id", "") == "iter" and node.args):
            return False
        loader = node.args[0]
        return isinstance(loader, (ast.Name, ast.Attribute)) and self.plan.is_prepared(loader, LOADER)

    def needs_all(self, node: ast.AST) -> str:
        """Why every process has to run a node; "" where one may run it alone.

        A direct call of a model is treated differently from functions of other modules: a model that is called under a
        guard is unwrapped there.
        """
        reason = self.meets_others(node)
        for call in walk(node):
            for callee in self.script.callees(call) if isinstance(call, ast.Call) and not reason else ():
                if self.script.interpreter.module_of(callee) not in self.script.modules:
                    assert isinstance(call, ast.Call)
                    effects = self.effects.of_call(call, callee)
                    if effects.sites:
                        unwrapped = not callee.is_method and self._hands_over_model(call)
                        reason = self.effects.not_alone(effects, unwrapped=unwrapped)
                    reason = reason or effects.tied
        return reason or needed_beside(self.effects, node) or draws_samples(self.script, self.effects, node)

    def _hands_over_model(self, call: ast.Call) -> bool:
        given = [*call.args, *[kw.value for kw in call.keywords]]
        named = [a for a in given if isinstance(a, (ast.Name, ast.Attribute))]
        return any(self.plan.is_prepared(a, MODEL) for a in named)

    def changes_outside(self, node: ast.stmt) -> bool:
        """Whether a statement changes objects (`results.append(x)`) that are read outside of it."""
        inside = set(walk(node))
        scope = self.script.scope_of(node)
        changed = self.effects.of_nodes(node).changes
        return any(
            isinstance(read, ast.Name)
            and isinstance(read.ctx, ast.Load)
            and read not in inside
            and self.script.scope_of(read).resolve(name) is scope.resolve(name)
            for name in changed
            for read in self.tree.named(name)
        )

    @cached_property
    def _meeting_scopes(self) -> set[Scope]:
        return meeting_scopes(self.script, self.plan.prepared)

    def runs_everywhere(self, stmt: ast.stmt, seen: frozenset[Scope] = frozenset()) -> bool:
        """Whether all processes are sure to reach a statement: waiting anywhere else could hang."""
        if self.plan.on_main_only(stmt) or self.is_guarded(stmt):
            return False
        for ancestor in self.tree.ancestors(stmt):
            if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef)):
                scope = self.script.scope_for(ancestor)
                return scope in seen or all(
                    self.runs_everywhere(self.tree.statement(c), seen | {scope})
                    for c in self.script.callers(scope)
                )
            if isinstance(ancestor, ast.If) and not (
                self.script.is_uniform(ancestor.test)
                or (self.gathered(ancestor.test) and not self.draws_other_orders)
            ):
                return False
            if goes_over_files(self.script, ancestor):
                return False
            if isinstance(ancestor, (ast.ExceptHandler, ast.Try)):
                return isinstance(ancestor, ast.Try) and stmt not in ancestor.finalbody
        return True

    def takes_a_test(self, parent: ast.If) -> bool:
        """Whether all of an `if` may be left to the main process: no other branch, and a test that does nothing."""
        calls = calls_in(parent.test)
        return (
            not parent.orelse
            and not self.tree.is_elif(parent)
            and not any(self.script.callees(call) or self._draws(call) for call in calls)
            and not self.is_guarded(parent)
        )

    def main_process_too(self, parent: ast.If | ast.IfExp, accelerator: str) -> Edit:
        """`if test:` as `if accelerator.is_main_process and test:`."""
        test = parent.test
        first = f"{accelerator}.is_main_process and "
        return verbs.replace(test, first, test, order=-20)

    def run_of(self, first: ast.stmt, belongs: Callable[[ast.stmt], bool]) -> list[ast.stmt]:
        """A statement and those that follow it, in its block and cell, that belong to it, up to a wait or prepare."""
        block, ends = self.tree.block_of(first)[2], {site.after for site in self.plan.sites}
        run = [first]
        for following in block[block.index(first) + 1 :]:
            parted = following in self.waiting or run[-1] in ends or self.tree.parted(run[-1], following)
            if parted or not belongs(following):
                break
            run.append(following)
        return run

    def guard(self, run: list[ast.stmt], accelerator: str) -> tuple[Edit, ast.stmt]:
        """The edit that leaves neighbouring statements to the main process, and the statement they end with then."""
        parent = self.tree.parent(run[0])
        # What all wait for in front of the statements is inside the `if`.
        if isinstance(parent, ast.If) and run == parent.body and run[0] not in self.waiting:
            merged = self.takes_a_test(parent) and self.accelerator(parent) == accelerator
            drawn = any(self._draws(call) for stmt in run for call in calls_in(stmt))
            if merged and not drawn and parent is not self.script.main_guard:
                return self.main_process_too(parent, accelerator), parent
        return PutUnder(run[0], run[-1], f"if {accelerator}.is_main_process:"), run[-1]

    def unwrapped(self, model: ast.expr, accelerator: str) -> str:
        """A prepared model without its wrapper, as source; `model.module` meant the same."""
        if isinstance(model, ast.Attribute) and model.attr == "module":
            if self.script.models_of(model) == self.script.models_of(model.value):
                model = model.value
        return f"{accelerator}.unwrap_model({self.tree.segment(model)})"

    def claim(self, *nodes: ast.AST) -> None:
        """Note that these nodes are being rewritten, so that no other transform touches them."""
        self.claimed.update(nodes)

    def is_claimed(self, node: ast.AST) -> bool:
        """Whether a node or anything around it is being rewritten already."""
        return self.tree.is_within(node, self.claimed)

    def change(
        self,
        rule: Rule,
        node: ast.AST,
        message: str,
        edits: list[Edit] | tuple[Edit, ...] = (),
        *,
        core: bool = False,
        evidence: tuple[str, ...] = (),
        severity: Severity | None = None,
        safety: Safety | None = None,
        done: str = "",
    ) -> Change:
        """A finding of a rule at a node, with its edits, and what they did; without edits it is a warning."""
        path, line, column = self.tree.place(node)
        _, end_line, end_column = self.tree.end_place(node)
        safety = (safety or rule.safety) if edits else Safety.MANUAL
        finding = Finding(
            path, line, column, rule.code, rule.name, message, end_line, end_column,
            severity or rule.severity, safety, rule.effort, evidence, fixable=bool(edits),
            done=done or rule.done,
        )  # fmt: skip
        return Change(finding, tuple(edits), core)

    def todo(self, rule: Rule, node: ast.AST, message: str, mark: str) -> Change:
        """A finding left to a person, with a `# TODO(accelify CODE)` comment in the script."""
        path, line, column = self.tree.place(node)
        _, end_line, end_column = self.tree.end_place(node)
        finding = Finding(
            path, line, column, rule.code, rule.name, message, end_line, end_column,
            rule.severity, Safety.MANUAL, rule.effort, (), fixable=False, mark=mark,
        )  # fmt: skip
        try:
            edit = verbs.todo(self.tree, node, PUBLIC.get(rule.code, rule.code), mark)
        except verbs.EditError:
            return Change(finding)
        return Change(finding, (edit,))


Transform = Callable[[Context], Iterator[Change]]


def short(text: str) -> str:
    """Source text in one line of a message."""
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:57]}..."


def where(module: Module, node: ast.AST) -> str:
    """`tools.py, line 3`."""
    path, line, _ = module.tree.place(node)
    return f"{file_name(path)}, line {line}"


def file_name(path: str) -> str:
    """A file as a message names it, without its folders."""
    return path.replace("\\", "/").rpartition("/")[2]
