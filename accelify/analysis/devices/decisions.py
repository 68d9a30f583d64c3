"""What chooses a device, as a tree: tests at its nodes, devices at its leaves.

if args.cuda and torch.cuda.is_available():                     args.cuda
    device = "cuda:1" if args.gpu == 1 else "cuda:0"            yes: a GPU, whatever args.gpu says
else:                                                           no: the CPU
    device = "cpu"
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, TypeGuard

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.devices.choices_by_options import ChoicesByOptions
from accelify.analysis.devices.device_names import names_cpu, option_name
from accelify.analysis.devices.helper_device_arguments import as_given, is_shared
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.assignments import assigned_once
from accelify.analysis.statements.negation import negated
from accelify.analysis.syntax import assigned_pairs, call_keyword, dotted, is_constant, names_in

_DEEPEST = 12
_CPU_TEXT = re.compile(r'str\((.+)\) != "cpu"')


@dataclass(frozen=True)
class Setting:
    """What the user asks for: it is true where one of these is; and the names that they read."""

    either: tuple[str, ...]
    names: frozenset[str]

    @property
    def text(self) -> str:
        """As one expression."""
        return self.either[0] if len(self.either) == 1 else " or ".join(map(_inside, self.either))

    @property
    def opposite(self) -> str:
        """Where it is not true."""
        if len(self.either) == 1:
            return negated(self.either[0])
        return " and ".join(_inside(negated(one)) for one in self.either)


@dataclass(frozen=True)
class Branch:
    """A test, and what is chosen where it is true and where not."""

    test: ast.expr | Setting
    then: Choice
    otherwise: Choice


# A device; the text of a parameter that has it; None where none is chosen.
Choice: TypeAlias = Branch | ast.expr | Setting | None
# Whether there is a GPU: always, never, or as a setting says. None where nothing is chosen.
Answer: TypeAlias = bool | Setting | None
# A part of what a helper gives: its number in a tuple, its name in an object.
Part: TypeAlias = int | str
# The call of a helper that chooses, and the helper.
Frame: TypeAlias = tuple[Scope, ast.Call] | None


class UnknownSettingError(Exception):
    """A test of a helper that is not known where the helper is called."""


class Decisions:
    """The choices of a script.

    Args:
        script: its model.
        wish: the part of a test that is the user's setting; None where it only asks the machine.
        is_lasting: whether a name has the text of one GPU, and more reads than that of the choice.
        read_by: the names that an expression reads.
    """

    def __init__(
        self,
        script: ScriptModel,
        wish: Callable[[ast.expr], tuple[str, frozenset[str]] | None],
        is_lasting: Callable[[ast.Name | ast.Attribute], bool],
        read_by: Callable[[ast.expr], frozenset[str]],
    ) -> None:
        self.script, self.tree = script, script.tree
        self._wish, self._is_lasting, self._read_by = wish, is_lasting, read_by
        self.stated = ChoicesByOptions(script)

    def gpu(self, stmt: ast.stmt, target: ast.expr) -> Answer:
        """Whether the device that an assignment and those around it give a name is a GPU, on a machine with one."""
        name = dotted(target) or ""
        while (outer := self._outer(stmt)) is not None:
            stmt = outer
        block: list[ast.stmt] = self.tree.block_of(stmt)[2]
        index = block.index(stmt)
        end = next(
            (
                i
                for i, other in enumerate(block[index + 1 :], index + 1)
                if not isinstance(other, (ast.If, ast.Match)) and self._given(other, name)
            ),
            len(block),
        )
        try:
            return self._answer(self._after(block[:end], name, self._before(stmt, name)), None)
        except UnknownSettingError:
            return None

    def of_part(self, call: ast.Call, part: Part) -> Answer:
        """Whether one part of what a helper gives, such as `device, kind`, is a GPU, on a machine with one."""
        chosen = self.of_call(call, part)
        try:
            return (
                None
                if chosen is None
                else self._answer(chosen, (next(iter(self.script.callees(call))), call))
            )
        except UnknownSettingError:
            return None

    def of_call(self, call: ast.Call, part: Part | None = None) -> Choice:
        """What a helper of the project that a call runs chooses; None where that is not read."""
        callees = self.script.callees(call)
        if len(callees) != 1:
            return None
        (callee,) = callees
        if not isinstance(callee.node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return None
        return self._returned(callee.node.body, callee, _DEEPEST, part)

    def text(self, node: ast.expr) -> str:
        """An expression of the script, or of a helper in another module, as it is written."""
        return self.tree.segment(node) if self.tree.parent(node) is not None else ast.unparse(node)

    # -- trees

    def _outer(self, stmt: ast.stmt) -> ast.stmt | None:
        parent = self.tree.parent(stmt)
        if isinstance(parent, ast.match_case):
            parent = self.tree.parent(parent)
        found = isinstance(parent, (ast.If, ast.Match)) and not _is_main_guard(parent)
        return parent if found and isinstance(parent, ast.stmt) else None

    def _before(self, stmt: ast.stmt, name: str) -> Choice:
        """What a name has at first: what a caller gives, or an option, `args.device`."""
        root = name.partition(".")[0]
        scope = self.script.scope_of(stmt)
        stated = name != root and root != scope.self_name() and k.DEVICE_NAME.search(name.rpartition(".")[2])
        return Setting((name,), frozenset({root})) if stated or (name and scope.takes(name)) else None

    def _given(self, stmt: ast.stmt, name: str) -> ast.expr | None:
        if isinstance(stmt, (ast.Assign, ast.AnnAssign)) and stmt.value is not None:
            targets = stmt.targets if isinstance(stmt, ast.Assign) else [stmt.target]
            for target, value in [p for t in targets for p in assigned_pairs(t, stmt.value)]:
                if dotted(target) == name:
                    return value
        return None

    def _after(self, block: list[ast.stmt], name: str, chosen: Choice) -> Choice:
        """What a name has after some statements, which it had `chosen` before."""
        for stmt in block:
            if (value := self._given(stmt, name)) is not None:
                chosen = self._of(value, name, chosen)
            elif isinstance(stmt, (ast.With, ast.Try)) or _is_main_guard(stmt):
                chosen = self._after(stmt.body, name, chosen)
            elif isinstance(stmt, ast.If):
                then, otherwise = (self._after(part, name, chosen) for part in (stmt.body, stmt.orelse))
                if then is not otherwise:
                    chosen = Branch(stmt.test, then, otherwise)
            elif isinstance(stmt, ast.Match):
                cases = [self._after(case.body, name, chosen) for case in stmt.cases]
                if any(case is not chosen for case in cases):
                    chosen = self._of_cases(stmt, cases, chosen)
        return chosen

    def _returned(self, block: list[ast.stmt], callee: Scope, depth: int, part: Part | None) -> Choice:
        """What a function that is at the start of a block gives back, or one part of it."""
        for index, stmt in enumerate(block):
            rest = block[index + 1 :]
            if isinstance(stmt, ast.Return):
                value = stmt.value if part is None or stmt.value is None else self._part_of(stmt.value, part)
                named = self.stated.text_in(value) if value is not None else None
                if isinstance(named, ast.Name) and callee.resolve(named.id) is callee:
                    body = getattr(callee.node, "body", [])
                    return self._after(body, named.id, self._before(stmt, named.id))
                return None if value is None else self._of(value, "", None)
            if not depth or not any(n in callee.of_type(ast.Return) for n in ast.walk(stmt)):
                continue
            if isinstance(stmt, ast.If):
                parts = [
                    self._returned([*arm, *rest], callee, depth - 1, part) for arm in (stmt.body, stmt.orelse)
                ]
                return Branch(stmt.test, *parts)
            if isinstance(stmt, ast.Match):
                cases = [self._returned([*case.body, *rest], callee, depth - 1, part) for case in stmt.cases]
                return self._of_cases(stmt, cases, self._returned(rest, callee, depth - 1, part))
            if isinstance(stmt, (ast.With, ast.Try)):
                return self._returned([*stmt.body, *rest], callee, depth - 1, part)
        return None

    def _part_of(self, value: ast.expr, part: Part) -> ast.expr | None:
        """An element of what is written as a tuple, a dictionary, or an object of a class of the project."""
        if isinstance(value, (ast.Tuple, ast.List)):
            return value.elts[part] if isinstance(part, int) and part < len(value.elts) else None
        if isinstance(value, ast.Dict):
            pairs = zip(value.keys, value.values, strict=True)
            return next((one for key, one in pairs if key is not None and is_constant(key, part)), None)
        if isinstance(value, ast.Call) and isinstance(part, str) and not self.script.qualname(value.func):
            return call_keyword(value, part)
        return None

    def _of_cases(self, stmt: ast.Match, cases: list[Choice], chosen: Choice) -> Choice:
        subject, names = self.text(stmt.subject), self._read_by(stmt.subject)
        for case, given in reversed(list(zip(stmt.cases, cases, strict=True))):
            one = case.pattern
            values = [
                p.value
                for p in (one.patterns if isinstance(one, ast.MatchOr) else [one])
                if isinstance(p, ast.MatchValue) and isinstance(p.value, ast.Constant)
            ]
            if isinstance(one, ast.MatchAs) and one.pattern is None and case.guard is None:
                chosen = given
            elif values and case.guard is None:
                tests = tuple(f"{subject} == {self.text(value)}" for value in values)
                chosen = Branch(Setting(tests, names), given, chosen)
            else:
                chosen = None
        return chosen

    def _of(self, value: ast.expr, name: str, before: Choice) -> Choice:
        """What an expression chooses, in which a name has what it had before."""
        text = self.stated.text_in(value)
        if isinstance(text, ast.IfExp):
            return Branch(text.test, self._of(text.body, name, before), self._of(text.orelse, name, before))
        if isinstance(text, ast.BoolOp):
            *others, last = text.values
            chosen = self._of(last, name, before)
            if isinstance(text.op, ast.And):
                test = others[0] if len(others) == 1 else ast.BoolOp(ast.And(), others)
                return Branch(test, chosen, None)
            for other in reversed(others):
                if isinstance(other, ast.BoolOp):  # `cuda and "cuda" or "cpu"`
                    made = self._of(other, name, before)
                    assert isinstance(made, Branch)
                    chosen = Branch(made.test, made.then, chosen)
                else:
                    chosen = Branch(other, self._of(other, name, before), chosen)
            return chosen
        if isinstance(text, ast.Subscript) and (table := self.table(text.value)) is not None:
            return self._of_table(text, table, name, before)
        if name and dotted(text) == name and before is not None:
            return before
        return value

    def table(self, node: ast.expr) -> ast.Dict | ast.Tuple | ast.List | None:
        """What an expression is, or its name stands for, where that is a table."""
        if isinstance(node, ast.Name):
            node = assigned_once(self.script.scope_of(node), node) or node
        return node if isinstance(node, (ast.Dict, ast.Tuple, ast.List)) else None

    def _of_table(self, entry: ast.Subscript, table: ast.expr, name: str, before: Choice) -> Choice:
        """`{"cpu": "cpu", "gpu": "cuda"}[args.where]`, `("cpu", "cuda")[args.cuda]`."""
        if isinstance(table, (ast.Tuple, ast.List)):
            if len(table.elts) != 2:
                return entry
            return Branch(entry.slice, *(self._of(one, name, before) for one in reversed(table.elts)))
        assert isinstance(table, ast.Dict)
        chosen: Choice = None
        subject, names = self.text(entry.slice), self._read_by(entry.slice)
        for key, value in reversed(list(zip(table.keys, table.values, strict=True))):
            given = self._of(value, name, before)
            if not isinstance(key, ast.Constant):
                return entry
            if isinstance(key.value, bool):
                chosen = Branch(entry.slice, *((given, chosen) if key.value else (chosen, given)))
            else:
                chosen = Branch(Setting((f"{subject} == {self.text(key)}",), names), given, chosen)
        return chosen

    # -- answers

    def _answer(self, choice: Choice, frame: Frame) -> Answer:
        if isinstance(choice, Branch):
            return self._of_branch(choice, frame)
        if choice is None:
            return None
        if isinstance(choice, Setting):
            return _is_not_cpu(self._seen_by_caller(choice, frame))
        if names_cpu(choice):
            return False
        text = self.stated.text_in(choice)
        if isinstance(text, ast.Call) and not self.stated.is_stated(text):
            if (inner := self.of_call(text)) is not None and frame is None:
                (callee,) = self.script.callees(text)
                return self._answer(inner, (callee, text))
        if not self._names_device(choice, text):
            return True
        names = self._read_by(text)
        return _is_not_cpu(self._seen_by_caller(Setting((self.text(text),), names), frame))

    def _names_device(self, choice: ast.expr, text: ast.expr) -> bool:
        """Whether a device is what an option or a caller names."""
        if isinstance(text, ast.Call) and self.stated.is_stated(text):
            return True
        named = bool(k.DEVICE_NAME.search(option_name(text) or ""))
        if isinstance(text, ast.Call):
            return named
        if not isinstance(text, (ast.Name, ast.Attribute, ast.Subscript)) or self.script.is_a(text, v.FLAG):
            return False
        if isinstance(text, (ast.Name, ast.Attribute)):
            if self.script.qualname(text) or self._is_lasting(text):
                return False
        return named or text is not choice

    def _of_branch(self, choice: Branch, frame: Frame) -> Answer:
        then, other = self._answer(choice.then, frame), self._answer(choice.otherwise, frame)
        test = choice.test
        if then is None or other is None:
            if isinstance(test, ast.expr) and self.script.is_a(test, v.FLAG) and then is True:
                other = False
            else:
                return other if then is None else then
        if then == other:
            return then
        if then is False:
            then, other = other, then
            test = (
                ast.UnaryOp(ast.Not(), test)
                if isinstance(test, ast.expr)
                else Setting((test.opposite,), test.names)
            )
        asked = self._asked(test, frame)
        if asked is None:
            if other is False:
                return then
            lacks = isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not)
            return other if lacks else then
        return _together(asked, then, other)

    def _asked(self, test: ast.expr | Setting, frame: Frame) -> Setting | None:
        if isinstance(test, Setting):
            return self._seen_by_caller(test, frame)
        if frame is not None and (given := as_given(self.script, test, *frame)) is not None:
            test, frame = given, None
        found = self._wish(test)
        return None if found is None else self._seen_by_caller(Setting((found[0],), found[1]), frame)

    def _seen_by_caller(self, setting: Setting, frame: Frame) -> Setting:
        """A setting of a helper in the words of its call."""
        if frame is None:
            return setting
        callee, call = frame
        given = {name: value for value, name in handed_to(call, callee)}
        defaults = {one.arg: value for one, value in callee.defaults() if isinstance(value, ast.Constant)}
        texts, names = list(setting.either), set[str]()
        for name in setting.names:
            value = given.get(name) or defaults.get(name)
            if value is not None and not (names_in(value) and self.tree.in_fstring(value)):
                text = self.text(value)
                text = (
                    text
                    if isinstance(value, (ast.Name, ast.Attribute, ast.Constant, ast.Call))
                    else f"({text})"
                )
                texts = [_put(one, name, text) for one in texts]
                names |= self._read_by(value)
            elif callee.resolve(name) is not callee and is_shared(self.script, name, callee, call):
                names.add(name)
            else:
                raise UnknownSettingError
        return Setting(tuple(texts), frozenset(names))


def _is_main_guard(stmt: ast.stmt) -> TypeGuard[ast.If]:
    return isinstance(stmt, ast.If) and "__name__" in names_in(stmt.test)


def _together(asked: Setting, then: Answer, other: Answer) -> Setting:
    """A setting, by what is so where another one is true and where not."""
    names = asked.names.union(*(one.names for one in (then, other) if isinstance(one, Setting)))
    if other is False:
        if not isinstance(then, Setting):
            return Setting(asked.either, names)
        if _of_cpu(asked.text, then) is False and "!=" in asked.text:
            return asked  # `args.device != "cpu" and str(args.device) != "cpu"`
        return Setting((f"{_inside(asked.text)} and {_inside(then.text)}",), names)
    if then is True and isinstance(other, Setting):
        return (
            other if _of_cpu(asked.text, other) is False else Setting((*asked.either, *other.either), names)
        )
    assert isinstance(then, Setting)
    if other is True:
        return then if _of_cpu(asked.text, then) else Setting((negated(asked.text), *then.either), names)
    assert isinstance(other, Setting)
    return Setting((f"{_inside(then.text)} if {_inside(asked.text)} else {_inside(other.text)}",), names)


def _put(text: str, name: str, value: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(name)}\b", lambda _: value, text)


def _inside(text: str) -> str:
    alone = isinstance(ast.parse(text, mode="eval").body, (ast.BoolOp, ast.IfExp, ast.Lambda))
    return f"({text})" if alone else text


def _is_not_cpu(named: Setting) -> Setting:
    return Setting((f'str({named.text}) != "cpu"',), named.names)


def _of_cpu(test: str, named: Setting) -> bool | None:
    """Whether a test is true where the option that names the device is the text "cpu"; None where that is unknown."""
    found = _CPU_TEXT.fullmatch(named.text)
    if found is None:
        return None
    option, tree = ast.unparse(ast.parse(found[1])), ast.parse(test, mode="eval").body
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        inner = _of_cpu(ast.unparse(tree.operand), named)
        return None if inner is None else not inner
    if ast.unparse(tree) == option:
        return True
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or ast.unparse(tree.left) != option:
        return None
    value = tree.comparators[0]
    if not isinstance(value, ast.Constant):
        return None
    if isinstance(tree.ops[0], (ast.Eq, ast.Is)):
        return bool(value.value == "cpu")
    return bool(value.value != "cpu") if isinstance(tree.ops[0], (ast.NotEq, ast.IsNot)) else None


__all__ = ["Branch", "Decisions", "Part", "Setting"]
