"""Moves: removed for what prepare places, and to the Accelerator's device for everything else.

model = Net().to(device)                     ->  model = Net()
data, target = data.cuda(), target.cuda()    ->  (gone: the prepared loader places its batches)
noise = noise.cuda()                         ->  noise = noise.to(accelerator.device)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.syntax import calls_in, dotted, is_constant, text_of, walk
from accelify.findings import Severity
from accelify.transforms.base import Change, Context, Rule, short
from accelify.transforms.move_fates import REMOVE, REWRITE, Fates, is_plain_variable
from accelify.writer import edits as verbs
from accelify.writer.edits import Delete, Edit

MOVE = Rule(
    "ACC104",
    "A move to the script's own device; prepare places models and batches.",
    Severity.ERROR,
    effort=1,
    done="removed moves to the device, which prepare makes",
)
_MOVES = ("to", "cuda", "cpu")
# What is wrong with a move that goes.
_BY_HAND = "moved to a device by hand"


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
        fates = Fates(context)
        for call in self.script.calls():
            if not context.is_claimed(call):
                fate = fates.of(call)
                if fate is not None:
                    self.fate[call] = fate

    def changes(self) -> Iterator[Change]:
        handled: set[ast.Call] = set()
        self.context.dropped += [call for call, fate in self.fate.items() if fate == REMOVE]
        yield from self._same_branches(ast.If, handled)
        gone = self._dead_statements()
        for stmt, calls in gone.items():
            if self._is_claimed(stmt):
                continue
            self.context.claim(stmt)
            handled.update(calls)
            yield self.context.change(
                MOVE,
                stmt,
                _BY_HAND,
                [Delete(stmt)],
                core=True,
            )
        yield from self._comprehensions(handled)
        yield from self._left_over(handled)
        # What goes with the statement around it, or with its target, needs no edit for itself.
        yield from self._same_branches(ast.IfExp, handled)
        selects = any(self.script.calls_to(["torch.cuda.set_device"]))
        for call, fate in self.fate.items():
            if call in handled or self._is_claimed(call):
                continue
            edits = self._edit(call, fate)
            if edits is None:
                continue
            assert isinstance(call.func, ast.Attribute) or fate == REMOVE
            if isinstance(call.func, ast.Attribute) and call.func.attr in _MOVES:
                # The device is dropped with the move: it is used for nothing else.
                self.context.claim(*call.args, *[kw.value for kw in call.keywords])
            what = _BY_HAND if fate == REMOVE or selects else "every process would move it to the same GPU"
            yield self.context.change(
                MOVE, call, f"`{short(self.tree.segment(call))}`: {what}", edits, core=True
            )

    def _is_claimed(self, node: ast.AST) -> bool:
        return self.context.is_claimed(node)

    # -- what is left of a statement

    def _stripped(self, node: ast.expr) -> ast.expr:
        """An expression without the moves that go."""
        while isinstance(node, ast.Call) and self.fate.get(node) == REMOVE:
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
            moved = any(isinstance(n, ast.Call) and self.fate.get(n) == REMOVE for n in walk(value))
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
        calls = [n for n in calls_in(stmt) if self.fate.get(n) == REMOVE]
        if isinstance(stmt, ast.Assign) and calls and len(stmt.targets) == 1:
            return calls if self._same(stmt.targets[0], stmt.value) else None
        if isinstance(stmt, ast.AnnAssign) and calls and stmt.value is not None:
            return calls if self._same(stmt.target, stmt.value) else None
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Call) and calls:
            # model.cuda() for its effect only; a move of a tensor without using the result does nothing at all
            left = self._stripped(stmt.value)
            if isinstance(left, ast.Subscript) and not any(isinstance(n, ast.Call) for n in walk(left)):
                left = left.value  # models["encoder"].to(device)
            return calls if dotted(left) is not None else None
        if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.IfExp) and calls:
            retained = [self._left_of(stmt.value.body), self._left_of(stmt.value.orelse)]
            return calls if self._only_asks(stmt.value.test) and None not in retained else None
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
            if fate != REMOVE:
                continue
            best: ast.stmt | None = None
            stmt: ast.AST | None = self.tree.statement(call)
            while isinstance(stmt, ast.stmt) and self._dead(stmt) is not None:
                best = stmt
                stmt = self.tree.parent(stmt)
            if best is not None:
                found[best] = self._dead(best) or []
        return found

    def _same_branches(self, kind: type[ast.If | ast.IfExp], handled: set[ast.Call]) -> Iterator[Change]:
        """`x.cuda() if cuda else x`, as an expression or as a statement with two branches."""
        for branch in self.tree.nodes(kind):
            if not self._is_claimed(branch):
                yield from self._same_branch(branch, handled)

    def _same_branch(self, branch: ast.If | ast.IfExp, handled: set[ast.Call]) -> Iterator[Change]:
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
            if self.fate.get(c) in (REMOVE, REWRITE) and isinstance(c.func, ast.Attribute)
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
                if self.script.qualname(func) in k.VARIABLE and is_plain_variable(part):
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
            if any(self.fate.get(c) == REMOVE for c in calls_in(other)):
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
            if fate == REWRITE and accelerator is None:
                return None
            retained = call.func.value if isinstance(call.func, ast.Attribute) else call.args[0]
            if not isinstance(call.func, ast.Attribute) or call.func.attr not in _MOVES:
                # Variable(x): its argument stays, where it needs no parentheses.
                retained = call.args[0]
                if not isinstance(retained, (ast.Name, ast.Attribute, ast.Subscript, ast.Call)):
                    return None
            new = (f".to({accelerator}.device)",) if fate == REWRITE else ()
            edits.append(verbs.replace(call, retained, *new))
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
            edit = verbs.replace(value, inner.generators[0].iter)
            yield self.context.change(
                MOVE,
                value,
                _BY_HAND,
                [edit],
                core=True,
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
                retained, given = left[0]
                if given.lineno != given.end_lineno:
                    continue
                edits = [verbs.replace(stmt.targets[0], retained), verbs.replace(stmt.value, given)]
            if edits is None:
                continue
            handled.update(calls)
            self.context.claim(*(value for _, value in gone))  # with the devices that it names
            yield self.context.change(
                MOVE,
                stmt,
                _BY_HAND,
                edits,
                core=True,
            )

    def _without(self, gone: list[bool], stmt: ast.Assign) -> list[Edit] | None:
        """Edits that take some of the pairs out of `a, b, c = x, y, z`."""
        edits: list[Edit] = []
        for side in (stmt.targets[0], stmt.value):
            assert isinstance(side, ast.Tuple)
            edits += [verbs.DropArgument(side, one) for one, out in zip(side.elts, gone, strict=True) if out]
        return edits

    def _edit(self, call: ast.Call, fate: str) -> list[Edit] | None:
        if fate == REMOVE:
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
