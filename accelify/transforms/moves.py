"""Moves: none of what prepare places, and to the Accelerator's device of everything else.

model = Net().to(device)                     ->  model = Net()
data, target = data.cuda(), target.cuda()    ->  (gone: the prepared loader places its batches)
noise = noise.cuda()                         ->  noise = noise.to(accelerator.device)
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from typing import Any

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.locations import HOST
from accelify.analysis.models.early_use import is_needed_before_prepare
from accelify.analysis.models.filled_from_host import filled_from_host
from accelify.analysis.models.grown import grown_models
from accelify.analysis.models.shared_factories import is_told_device
from accelify.analysis.syntax import (
    call_argument,
    calls_in,
    dotted,
    is_constant,
    stores_in,
    target_names,
    text_of,
    walk,
)
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, Edit

MOVE = Rule(
    "ACC104",
    "device-move",
    "A move to the script's own device; prepare places models and batches.",
    Severity.ERROR,
    effort=1,
)
_MOVES = ("to", "cuda", "cpu")
_SCRIPTING = ("torch.jit.script", "torch.jit.Script")
_REMOVE, _REWRITE, _KEEP = "remove", "rewrite", "keep"


def transform(context: Context) -> Iterator[Change]:
    """Yield the changes to moves."""
    yield from _Moves(context).changes()


class _Moves:
    """Every `.to(device)` and `.cuda()`, and what of the statement around it is left without it."""

    def __init__(self, context: Context) -> None:
        self.context = context
        self.script = context.script
        self.tree = context.tree
        self.fate: dict[ast.Call, str] = {}
        self._needed_early: dict[v.Thing, bool] = {}
        self._loaders: dict[ast.stmt, set[v.Thing]] = dict(self.script.loader_loops)
        self._scripts = any(module.tree.mentions("jit") for module in self.script.modules)
        for call in self.script.calls():
            if not context.is_claimed(call):
                fate = self._decide(call)
                if fate is not None:
                    self.fate[call] = fate

    def changes(self) -> Iterator[Change]:
        handled: set[ast.Call] = set()
        for branch in [*self.tree.nodes(ast.If), *self.tree.nodes(ast.IfExp)]:
            if not self._is_claimed(branch):
                yield from self._same_branches(branch, handled)
        gone = self._dead_statements()
        for stmt, calls in gone.items():
            if self._is_claimed(stmt):
                continue
            self.context.claim(stmt)
            handled.update(calls)
            yield self.context.change(
                MOVE,
                stmt,
                "a prepared loader or model is on the right device already",
                [Delete(stmt)],
                core=True,
            )
        yield from self._comprehensions(handled)
        yield from self._left_over(handled)
        for call, fate in self.fate.items():
            if call in handled or self._is_claimed(call):
                continue
            edits = self._edit(call, fate)
            if edits is None:
                continue
            assert isinstance(call.func, ast.Attribute) or fate == _REMOVE
            if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES:
                # The device goes with the move: nothing else is done with it.
                self.context.claim(*call.args, *[kw.value for kw in call.keywords])
            what = (
                "it is placed by prepare"
                if fate == _REMOVE
                else "every process would move it to the same GPU"
            )
            yield self.context.change(
                MOVE, call, f"`{short(self.tree.segment(call))}`: {what}", edits, core=True
            )

    def _is_claimed(self, node: ast.AST) -> bool:
        return self.context.is_claimed(node)

    # -- what becomes of a call

    def _decide(self, call: ast.Call) -> str | None:
        func = call.func
        if self._is_the_other_way(call):
            return _REMOVE
        if self.script.qualname(func) in k.VARIABLE:
            return _REMOVE if self._plain_variable(call) and self._is_placed(call.args[0]) else None
        if not isinstance(func, ast.Attribute) or func.attr not in ("to", "cuda"):
            return None
        if self.script.callees(call):
            # A method of the script's own that is only named so, or that moves more than prepare does.
            return None
        if func.attr == "cuda":
            if isinstance(func.value, ast.Name) and self.script.qualname(func.value) == "torch":
                return None
            if self._scripts and self._is_scripted(call):
                return None  # TorchScript knows no Accelerator; cuda() is the process's own GPU
            pure = True
        else:
            device = call_argument(call, 0, "device")
            if device is None or self._is_cpu(device) or not self.script.is_a(device, v.DEVICE):
                return None
            if self._is_tried_out(device):
                return None
            if (
                isinstance(device, ast.Attribute)
                and device.attr == "device"
                and not self._is_namespace(device.value)
            ):
                return None  # x.to(y.device) is right on every process
            pure = not call_argument(call, 1, "dtype")
            if pure and is_told_device(self.script, device) and self._is_model(func.value):
                return None  # other scripts call the function, too, and prepare nothing
        if pure and self._is_placed(func.value) and not self._comes_back(call):
            return _REMOVE
        if func.attr == "cuda":
            return _REWRITE
        device = call_argument(call, 0, "device")
        if pure and isinstance(device, ast.Call) and self.script.callees(device):
            return _REWRITE  # x.to(get_device())
        return None

    def _is_scripted(self, node: ast.AST) -> bool:
        """Whether a node stands in what TorchScript compiles."""
        for ancestor in self.tree.ancestors(node):
            marks = getattr(ancestor, "decorator_list", [])
            marks = marks + ancestor.bases if isinstance(ancestor, ast.ClassDef) else marks
            if any((self.script.qualname(one) or "").startswith(_SCRIPTING) for one in marks):
                return True
        return False

    def _is_cpu(self, device: ast.expr) -> bool:
        return self.context.plan.devices.is_cpu(device)

    def _is_tried_out(self, device: ast.expr) -> bool:
        """`for device in ["cpu", "cuda"]`: devices that a loop goes through are none that the script runs on."""
        return isinstance(device, ast.Name) and any(
            isinstance(loop, ast.For) and device.id in target_names(loop.target)
            for loop in self.script.enclosing_loops(device)
        )

    def _comes_back(self, call: ast.Call) -> bool:
        """Whether this moves a model that the script takes to the CPU in between, or adds to what lies there."""
        assert isinstance(call.func, ast.Attribute)
        models = {t for t in self._at_hand(call.func.value) if t.kind == v.MODEL}
        return self.context.plan.after_prepare(call) and bool(models & self._taken_to_cpu)

    @functools.cached_property
    def _taken_to_cpu(self) -> set[v.Thing]:
        found = filled_from_host(self.script) | grown_models(self.script)
        for call in self.script.calls():
            func = call.func
            if isinstance(func, ast.Attribute) and func.attr in ("cpu", "to"):
                device = call_argument(call, 0, "device")
                if func.attr == "cpu" or (device is not None and self._is_cpu(device)):
                    found |= self.script.things(func.value, v.MODEL)
        return found

    def _is_the_other_way(self, call: ast.Call) -> bool:
        """`x = x.cpu()` where there is no GPU, in the `else` of a move to one."""
        func, stmt = call.func, self.tree.statement(call)
        branch = self.tree.parent(stmt)
        if not isinstance(func, ast.Attribute) or func.attr != "cpu" or not isinstance(branch, ast.If):
            return False
        if stmt not in branch.orelse or not self.script.is_a(branch.test, v.FLAG):
            return False
        moved = {
            text_of(n.func.value)
            for s in branch.body
            for n in calls_in(s)
            if isinstance(n.func, ast.Attribute) and n.func.attr in ("cuda", "to")
        }
        return text_of(func.value) in moved and self._is_placed(func.value)

    def _is_namespace(self, node: ast.expr) -> bool:
        return self.script.is_a(node, v.UNKNOWN, v.INSTANCE)

    def _plain_variable(self, call: ast.Call) -> bool:
        return len(call.args) == 1 and all(
            is_constant(kw.value, False) and kw.arg == "requires_grad" for kw in call.keywords
        )

    def _is_model(self, node: ast.expr) -> bool:
        things = self._at_hand(node)
        return bool(things) and all(thing.kind == v.MODEL for thing in things)

    def _is_placed(self, node: ast.expr) -> bool:
        """Whether prepare puts what an expression stands for on the right device."""
        things = self._at_hand(node)
        if not things or HOST in self.context.locations[1].of(node):
            return False
        for thing in things:
            if thing.kind == v.BATCH:
                loaders, plan = thing.link("loader"), self.context.plan
                if not loaders or not loaders <= plan.prepared or loaders & plan.doubtful.keys():
                    return False
            elif thing.kind == v.MODEL:
                if isinstance(thing.site, ast.ClassDef):
                    return False
                if thing not in self.context.plan.prepared or self._is_anothers(node, thing):
                    return False
                if self._is_needed_early(thing):
                    return False
            else:
                return False
        return True

    def _is_needed_early(self, model: v.Thing) -> bool:
        if model not in self._needed_early:
            sites = self.context.plan.sites
            self._needed_early[model] = is_needed_before_prepare(self.script, sites, model)
        return self._needed_early[model]

    def _is_anothers(self, node: ast.expr, model: v.Thing) -> bool:
        """Whether a factory makes a model here that goes by another name than the one that is prepared."""
        if self.context.plan.placement.is_only_evaluated(node):
            return True
        if self.context.plan.makes_unprepared(self.script.scope_of(node)):
            return True
        if not isinstance(node, ast.Call) or not self.script.callees(node):
            return False
        stmt = self.tree.statement(node)
        known = [c for site in self.context.plan.sites for item in site.items for c in item.creations]
        made = [
            c
            for c in known
            if isinstance(c, ast.Assign) and any(model in self.script.models_of(t) for t in c.targets)
        ]
        return isinstance(stmt, ast.Assign) and bool(made) and stmt not in made

    def _at_hand(self, node: ast.expr) -> set[v.Thing]:
        """What an expression is at its place: a name bound by a loop over a loader is the batch's until bound anew."""
        if not isinstance(node, ast.Name):
            return self.script.things(node)
        for loop in self.script.enclosing_loops(node):
            if not isinstance(loop, (ast.For, ast.AsyncFor)):
                return self.script.things(node)
            stmt = self.tree.statement(node)
            stores = [
                n
                for n in stores_in(loop).get(node.id, ())
                if isinstance(n.ctx, ast.Store) and self.tree.is_before(n, stmt)
            ]
            loaders = self._loaders.get(loop)
            if loaders is not None and stores and all(self._takes_of_batch(loop, n) for n in stores):
                return {self.script.interpreter.batch(loader) for loader in loaders}
            if stores:
                break
        return self.script.things(node)

    def _takes_of_batch(self, loop: ast.For | ast.AsyncFor, store: ast.Name) -> bool:
        """Whether a name is bound by a loop, or by the statement that takes the parts of its batch: `x, y = batch`."""
        if any(store is target for target in walk(loop.target)):
            return True
        stmt = self.tree.statement(store)
        whole = loop.target.id if isinstance(loop.target, ast.Name) else None
        return isinstance(stmt, ast.Assign) and isinstance(stmt.value, ast.Name) and stmt.value.id == whole

    # -- what is left of a statement

    def _stripped(self, node: ast.expr) -> ast.expr:
        """An expression without the moves that go."""
        while isinstance(node, ast.Call) and self.fate.get(node) == _REMOVE:
            node = (
                node.func.value
                if isinstance(node.func, ast.Attribute) and node.func.attr in _MOVES
                else node.args[0]
            )
        return node

    def _same(self, target: ast.expr, value: ast.expr) -> bool:
        """Whether assigning the value to the target does nothing once the moves are gone."""
        if isinstance(target, (ast.Tuple, ast.List)) and isinstance(value, (ast.Tuple, ast.List)):
            return len(target.elts) == len(value.elts) and all(map(self._same, target.elts, value.elts))
        if isinstance(value, ast.IfExp):
            # `x = x.to(device) if x is not None else None`
            moved = any(isinstance(n, ast.Call) and self.fate.get(n) == _REMOVE for n in walk(value))
            one, other = self._same(target, value.body), self._same(target, value.orelse)
            none = is_constant(value.orelse, None) and text_of(value.test) == (
                f"{text_of(target)} is not None"
            )
            return moved and one and (other or none)
        stripped = self._stripped(value)
        if isinstance(stripped, (ast.ListComp, ast.DictComp)) or (
            isinstance(stripped, ast.Call)
            and dotted(stripped.func) in ("tuple", "list")
            and len(stripped.args) == 1
        ):
            return self._identity_comprehension(target, stripped)
        return (dotted(target) is not None and text_of(target) == text_of(stripped)) or (
            isinstance(target, ast.Subscript)
            and stripped is not value
            and text_of(target) == text_of(stripped)
        )

    def _identity_comprehension(self, target: ast.expr, value: ast.expr) -> bool:
        if isinstance(value, ast.Call):
            value = value.args[0]
        if (
            not isinstance(value, (ast.ListComp, ast.GeneratorExp, ast.DictComp))
            or len(value.generators) != 1
        ):
            return False
        generator = value.generators[0]
        if generator.ifs:
            return False
        if isinstance(value, ast.DictComp):
            inner = self._stripped(value.value)
            return (
                inner is not value.value
                and isinstance(generator.target, ast.Tuple)
                and [text_of(e) for e in generator.target.elts] == [text_of(value.key), text_of(inner)]
                and isinstance(generator.iter, ast.Call)
                and isinstance(generator.iter.func, ast.Attribute)
                and generator.iter.func.attr == "items"
                and text_of(generator.iter.func.value) == text_of(target)
            )
        inner = self._stripped(value.elt)
        return (
            inner is not value.elt
            and text_of(generator.target) == text_of(inner)
            and text_of(generator.iter) == text_of(target)
        )

    def _dead(self, stmt: ast.stmt) -> list[ast.Call] | None:
        """The moves of a statement that does nothing without them; None when something is left of it."""
        calls = [n for n in calls_in(stmt) if self.fate.get(n) == _REMOVE]
        if isinstance(stmt, ast.Assign) and calls and len(stmt.targets) == 1:
            return calls if self._same(stmt.targets[0], stmt.value) else None
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and calls:
            # model.cuda() for its effect alone; a move of a tensor by itself does nothing at all
            left = self._stripped(stmt.value)
            if isinstance(left, ast.Subscript) and not any(isinstance(n, ast.Call) for n in walk(left)):
                left = left.value  # models["encoder"].to(device)
            return calls if dotted(left) is not None else None
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.IfExp) and calls:
            kept = [self._left_of(stmt.value.body), self._left_of(stmt.value.orelse)]
            return calls if self._only_asks(stmt.value.test) and None not in kept else None
        if isinstance(stmt, (ast.If, ast.For)) and not stmt.orelse:
            if isinstance(stmt, ast.If) and not self._only_asks(stmt.test):
                return None
            inner = [self._dead(s) for s in stmt.body]
            if all(one is not None for one in inner):
                return [call for one in inner if one for call in one]
        return None

    def _left_of(self, branch: ast.expr) -> str | None:
        """What a branch of `model.cuda() if cuda else model.cpu()` only moves; None where it does more."""
        node = self._stripped(branch)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "cpu":
            node = node.func.value if self.script.is_a(node.func.value, v.MODEL) else node
        return "None" if is_constant(node, None) else dotted(node)

    def _only_asks(self, test: ast.expr) -> bool:
        return self.script.is_a(test, v.FLAG, v.DEVICE) or not any(
            isinstance(n, ast.Call) for n in walk(test)
        )

    def _dead_statements(self) -> dict[ast.stmt, list[ast.Call]]:
        found: dict[ast.stmt, list[ast.Call]] = {}
        for call, fate in self.fate.items():
            if fate != _REMOVE:
                continue
            best: ast.stmt | None = None
            stmt: ast.AST | None = self.tree.statement(call)
            while isinstance(stmt, ast.stmt) and self._dead(stmt) is not None:
                best = stmt
                stmt = self.tree.parent(stmt)
            if best is not None:
                found[best] = self._dead(best) or []
        return found

    def _same_branches(self, branch: ast.If | ast.IfExp, handled: set[ast.Call]) -> Iterator[Change]:
        """`x.cuda() if cuda else x`, as an expression or as a statement with two branches."""
        if not self.script.is_a(branch.test, v.FLAG):
            return
        if isinstance(branch, ast.IfExp):
            pairs = [(branch.body, branch.orelse)]
        elif len(branch.body) == len(branch.orelse) and branch.orelse:
            pairs = []
            for one, other in zip(branch.body, branch.orelse, strict=True):
                if not (isinstance(one, ast.Assign) and isinstance(other, ast.Assign)):
                    return
                if [text_of(t) for t in one.targets] != [text_of(t) for t in other.targets]:
                    return
                pairs.append((one.value, other.value))
        else:
            return
        moved = [
            c for one, _ in pairs for c in calls_in(one)
            if self.fate.get(c) in (_REMOVE, _REWRITE) and isinstance(c.func, ast.Attribute)
        ]  # fmt: skip
        if not moved or any(self._bare(one) != self._bare(other) for one, other in pairs):
            return
        edits = self._merge(branch, pairs)
        if edits is None:
            return
        self.context.claim(branch)
        handled.update(c for c in calls_in(branch) if c in self.fate)
        yield self.context.change(
            MOVE, branch, "both branches are the same once the move is gone", edits, core=True
        )

    def _bare(self, node: ast.expr) -> str:
        """An expression without any move or Variable, as a text to compare."""

        def strip(part: Any) -> Any:
            if isinstance(part, list):
                return [strip(p) for p in part]
            if not isinstance(part, ast.AST):
                return part
            if isinstance(part, ast.Call):
                func = part.func
                if isinstance(func, ast.Attribute) and func.attr in _MOVES and part in self.fate:
                    return strip(func.value)
                if self.script.qualname(func) in k.VARIABLE and self._plain_variable(part):
                    return strip(part.args[0])
            return type(part)(**{name: strip(value) for name, value in ast.iter_fields(part)})

        return text_of(strip(node))

    def _merge(self, branch: ast.If | ast.IfExp, pairs: list[tuple[ast.expr, ast.expr]]) -> list[Edit] | None:
        texts = []
        for one, other in pairs:
            stripped = self._stripped(one)
            if stripped is not one and isinstance(stripped, (ast.Name, ast.Attribute, ast.Subscript)):
                texts.append(self.tree.segment(stripped))
                continue
            accelerator = self.context.accelerator(branch)
            text = self._moved(one, accelerator)
            if any(self.fate.get(c) == _REMOVE for c in calls_in(other)):
                text = text if text is not None and "\n" not in text else ""
            if text is None:
                return None
            texts.append(text)
        if isinstance(branch, ast.IfExp):
            if not texts[0]:
                return None
            return [verbs.replace(branch, texts[0])]
        lines = []
        for stmt, text, (one, _) in zip(branch.orelse, texts, pairs, strict=True):
            assert isinstance(stmt, ast.Assign)
            if len(stmt.targets) == 1 and self._same(stmt.targets[0], one):
                continue
            if not text:
                return None
            target = " = ".join(self.tree.segment(t) for t in stmt.targets)
            if target != text:
                lines.append(f"{target} = {text}")
        if self.tree.is_elif(branch):
            return None
        if not lines:
            return [Delete(branch)]
        return [verbs.replace(branch, "\n".join(lines))]

    def _moved(self, node: ast.expr, accelerator: str | None) -> str | None:
        """An expression's text with its moves gone, or to the Accelerator's device; None where it cannot be written."""
        edits: list[Edit] = []
        for call in walk(node):
            fate = self.fate.get(call) if isinstance(call, ast.Call) else None
            if fate is None:
                continue
            assert isinstance(call, ast.Call)
            if fate == _REWRITE and accelerator is None:
                return None
            kept = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in _MOVES:
                # Variable(x): what it wraps stays, where it needs no parentheses of its own.
                kept = call.args[0]
                if not isinstance(kept, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
                    return None
            new = (f".to({accelerator}.device)",) if fate == _REWRITE else ()
            edits.append(verbs.replace(call, kept, *new))
        return verbs.written(self.tree, node, edits) if edits else self.tree.segment(node)

    def _comprehensions(self, handled: set[ast.Call]) -> Iterator[Change]:
        """`x, y = [t.to(device) for t in batch]` becomes `x, y = batch`."""
        for stmt in self.tree.nodes(ast.Assign):
            value = stmt.value
            inner = value
            if (
                isinstance(value, ast.Call)
                and dotted(value.func) in ("tuple", "list")
                and len(value.args) == 1
            ):
                inner = value.args[0]
            if not isinstance(inner, (ast.ListComp, ast.GeneratorExp)) or not isinstance(
                stmt.targets[0], ast.Tuple
            ):
                continue
            if self._is_claimed(stmt) or not self._identity_comprehension(inner.generators[0].iter, inner):
                continue
            calls = [n for n in calls_in(inner) if n in self.fate]
            handled.update(calls)
            self.context.claim(value)
            edit = verbs.replace(value, self.tree.segment(inner.generators[0].iter))
            yield self.context.change(
                MOVE, value, "a prepared loader is on the right device already", [edit], core=True
            )

    def _left_over(self, handled: set[ast.Call]) -> Iterator[Change]:
        """`x, y = x.cuda(), other(y)` becomes `y = other(y)`, and `x, y = x.cuda(), y` goes."""
        for stmt in self.tree.nodes(ast.Assign):
            target, value = stmt.targets[0], stmt.value
            if not (
                isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(stmt.targets) == 1
            ):
                continue
            if self._is_claimed(stmt) or len(target.elts) != len(value.elts):
                continue
            pairs = list(zip(target.elts, value.elts, strict=True))
            gone = [(t, w) for t, w in pairs if self._same(t, w)]
            calls = [c for _, w in gone for c in calls_in(w) if c in self.fate]
            left = [(t, w) for t, w in pairs if not self._same(t, w)]
            if not calls or not left or any(isinstance(e, ast.Starred) for p in pairs for e in p):
                continue
            edits: list[Edit] | None = self._without([t in [g for g, _ in gone] for t in target.elts], stmt)
            if len(left) == 1:
                kept, given = left[0]
                if given.lineno != given.end_lineno:
                    continue
                edits = [verbs.replace(stmt.targets[0], kept), verbs.replace(stmt.value, given)]
            if edits is None:
                continue
            handled.update(calls)
            yield self.context.change(MOVE, stmt, "the rest of it is placed by prepare", edits, core=True)

    def _without(self, gone: list[bool], stmt: ast.Assign) -> list[Edit] | None:
        """Edits that take some of the pairs out of `a, b, c = x, y, z`."""
        edits: list[Edit] = []
        for side in (stmt.targets[0], stmt.value):
            assert isinstance(side, ast.Tuple)
            edits += [verbs.DropArgument(side, one) for one, out in zip(side.elts, gone, strict=True) if out]
        return edits

    def _edit(self, call: ast.Call, fate: str) -> list[Edit] | None:
        if fate == _REMOVE:
            if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES:
                return [verbs.keep_receiver(call)]
            return [verbs.replace(call, call.args[0])]
        accelerator = self.context.accelerator(call)
        if accelerator is None:
            return None
        assert isinstance(call.func, ast.Attribute)
        extra = "".join(
            f", non_blocking={self.tree.segment(kw.value)}"
            for kw in call.keywords
            if kw.arg in ("non_blocking", "async", "async_")
        )
        return [verbs.replace(call, call.func.value, f".to({accelerator}.device{extra})")]
