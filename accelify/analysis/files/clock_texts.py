"""Text that is made of the clock, and the functions that return it: `def run_name(): return strftime(...)`.

Ids from the machine's source of randomness (`uuid.uuid4().hex`) differ between processes like times, whatever the
seed, and are asked for as these are.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection
from functools import cached_property

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope, handed_to
from accelify.analysis.script import ScriptModel
from accelify.analysis.syntax import calls_in, dotted, target_names, walk

# How often a text is passed on before it is not followed any more.
_FARTHEST = 3
_TEXTS = frozenset({"strftime", "isoformat", "ctime", "asctime"})
_TIMES = frozenset({"time", "now", "today", "utcnow"})
_IDS = frozenset({"uuid1", "uuid4", "token_hex", "token_urlsafe"})
_PARTS = frozenset(
    "hex year month day hour minute second microsecond tm_year tm_mon tm_mday tm_hour tm_min tm_sec".split()
)
_DIFFERENT = _TEXTS | _IDS
# What text is put together by: methods of text, and functions of os.path and pathlib by their last name.
_JOINING = frozenset(
    """join format replace strip lstrip rstrip lower upper str repr Path PurePath expanduser abspath normpath realpath
    joinpath with_suffix as_posix resolve int round""".split()
)
_SHOWN = frozenset({"time", "now", "today", "utcnow", "localtime", "gmtime"})
# What is made of a time and is one, too, and dates that are no clock's but of the same kind.
_KEEPING = frozenset({"int", "round", "replace", "date", "timestamp", "astimezone"})
_DATES = frozenset({"datetime", "strptime", "fromtimestamp", "fromisoformat"})


class ClockTexts:
    """Asks for text of the clock, each function looked at once.

    Args:
        script: the script, with the modules that it imports.
    """

    def __init__(self, script: ScriptModel) -> None:
        self._script = script
        self._given: dict[Scope, bool] = {}
        self._telling: dict[Module, bool] = {}
        self._times: dict[Scope, set[str]] = {}

    def given_by(self, call: ast.Call) -> list[Scope]:
        """The functions of the program that a call runs and that return text of the clock."""
        return [callee for callee in self._script.callees(call) if self.is_given(callee)]

    def is_given(self, function: Scope) -> bool:
        """Whether a function returns text of the clock."""
        known = self._given.get(function)
        if known is None:
            self._given[function] = False  # one that calls itself
            known = self._given[function] = self._may_tell(function) and self._gives(function)
        return known

    @cached_property
    def is_near(self) -> bool:
        """Whether a module of the program asks for the time, or draws an id, at all."""
        return any(self._tells_time(m) for m in self._script.program.modules.values())

    def named_in(self, function: Scope, stated: Collection[str] = ()) -> set[str]:
        """The variables of a function, and attributes that it sets, with text of the clock, as `stated` ones have."""
        names: set[str] = set(stated) | self.times_in(function)
        before = -1
        while len(names) > before:
            before = len(names)
            for node in function.of_type(ast.Assign, ast.AugAssign, ast.AnnAssign):
                if node.value is not None:
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    plain = {name for t in targets if (name := dotted(t)) is not None}
                    if not plain <= names and self.is_text(node.value, names):
                        names |= plain
        return names

    def times_in(self, scope: Scope) -> set[str]:
        """The variables that hold a time where a scope reads them, also those of the module around it."""
        if not self._may_tell(scope):
            return set()
        found: set[str] = set()
        around: Scope | None = scope
        while around is not None:
            if around not in self._times:
                self._times[around] = _named_times(around)
            found |= {name for name in self._times[around] if scope.resolve(name) is around}
            around = around.parent
        return found

    def is_text(self, node: ast.AST, names: set[str]) -> bool:
        """Whether an expression is text with the time in it, where some names hold such text."""
        if isinstance(node, ast.Attribute) and node.attr in _PARTS:  # `uuid4().hex`, `now.hour`
            return self.is_text(node.value, names)
        if isinstance(node, (ast.Name, ast.Attribute)):
            return dotted(node) in names
        if isinstance(node, ast.BinOp):
            if isinstance(node.op, ast.Sub):  # the time that something took
                return False
            sides = self.is_text(node.left, names) or any(self.is_text(n, names) for n in _parts(node.right))
            return sides or is_text_of_time(node)
        if isinstance(node, (ast.JoinedStr, ast.FormattedValue)):
            inner = node.values if isinstance(node, ast.JoinedStr) else [node.value]
            return is_text_of_time(node) or any(self.is_text(n, names) for n in inner)
        if isinstance(node, (ast.IfExp, ast.BoolOp)):
            chosen = [node.body, node.orelse] if isinstance(node, ast.IfExp) else node.values
            return any(self.is_text(n, names) for n in chosen)
        if isinstance(node, ast.Subscript):
            return self.is_text(node.value, names)
        if isinstance(node, (ast.List, ast.Tuple)):  # `paths = [f"{run}.pt", f"{run}.csv"]`
            return any(self.is_text(n, names) for n in node.elts)
        if not isinstance(node, ast.Call):
            return False
        last = _last_name(node)
        if last in _DIFFERENT or (last in _JOINING | {"split"} and is_text_of_time(node)):
            return True
        if any(self.is_given(callee) for callee in self._called(node)):
            return True
        contained = [n for a in [*node.args, *[kw.value for kw in node.keywords]] for n in _parts(a)]
        contained += [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return last in _JOINING and any(self.is_text(n, names) for n in contained)

    def calls_one_of(self, function: Scope, others: set[Scope]) -> bool:
        """Whether a function is one of some others, or calls one."""
        return function in others or any(self._called(node) & others for node in function.nodes)

    def is_taken_into_path(
        self, function: Scope, name: str, is_path: Callable[[Scope, ast.AST], bool], left: int = _FARTHEST
    ) -> bool:
        """Whether a parameter of a function becomes part of a path: there, in a method of its class or further on."""
        names = self.named_in(function, {name})
        places = [(function, names)]
        if function.is_method and function.parent is not None:
            own = f"{function.self_name()}."
            retained = [n.removeprefix(own) for n in names if n.startswith(own)]
            for method in function.parent.children.values() if retained else ():
                stated = {f"{method.self_name()}.{n}" for n in retained}
                places.append((method, self.named_in(method, stated)))
        return any(self.first_path(scope, contained, is_path) for scope, contained in places) or any(
            self.is_taken_into_path(callee, parameter, is_path, left - 1)
            for scope, contained in (places if left else ())
            for node in scope.of_type(ast.Call)
            for callee in self._called(node)
            for given, parameter in handed_to(node, callee)
            if self.is_text(given, contained)
        )

    def first_path(
        self, function: Scope, names: set[str], is_path: Callable[[Scope, ast.AST], bool]
    ) -> ast.AST | None:
        """The first path of a function that text in it, or some names, become part of."""
        for node in function.nodes:
            if is_path(function, node):
                parts = [node.left, node.right] if isinstance(node, ast.BinOp) else getattr(node, "args", [])
                if any(self.is_text(part, names) for part in parts):
                    return node
        return None

    def _gives(self, function: Scope) -> bool:
        returned = [n.value for n in function.of_type(ast.Return) if n.value is not None]
        if not returned or function.kind != "function":
            return False
        names = self.named_in(function)
        return any(self.is_text(value, names) for value in returned)

    def _may_tell(self, function: Scope) -> bool:
        return self.is_near and (
            self._tells_time(self._script.interpreter.module_of(function))
            or any(
                self._tells_time(self._script.interpreter.module_of(callee))
                for call in function.calls
                for callee in self._called(call)
            )
        )

    def _called(self, node: ast.AST) -> set[Scope]:
        """The functions of the program, also of modules that are not converted, that a node calls."""
        return self._script.interpreter.calls.get(node, set()) if isinstance(node, ast.Call) else set()

    def _tells_time(self, module: Module) -> bool:
        stated = self._telling.get(module)
        if stated is None:
            mentions = module.tree.mentions  # of modules that are converted together: those of all
            times = mentions("time") and any(map(mentions, _TEXTS | _TIMES))
            stated = self._telling[module] = times or any(map(mentions, _IDS))
        return stated


def is_text_of_time(value: ast.AST) -> bool:
    """Whether an expression makes text of the time: `now().strftime(...)`, `str(time.time())`, text with one in it.

    An id that is drawn is one, too.
    """
    names = {_last_name(n) for n in calls_in(value)}
    if names & _DIFFERENT:
        return True
    if not names & _TIMES:
        return False
    return bool(names & {"str", "repr", "format"}) or any(_is_filled_text(n) for n in walk(value))


def _last_name(value: ast.expr) -> str:
    """By what a call calls, "" where it is none."""
    if not isinstance(value, ast.Call):
        return ""
    return str(dotted(value.func) or getattr(value.func, "attr", "")).rsplit(".", 1)[-1]


def _is_filled_text(node: ast.AST) -> bool:
    """An f-string, or `"%d" % number`."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)
    return isinstance(node, ast.JoinedStr)


def _parts(node: ast.expr) -> list[ast.expr]:
    """What a tuple or list holds, or the expression itself."""
    return node.elts if isinstance(node, (ast.Tuple, ast.List)) else [node]


def _named_times(scope: Scope) -> set[str]:
    """The variables of a function, class or module that hold what a clock showed, or a date in its place."""
    made: dict[str, list[ast.expr]] = {}
    others: set[str] = set()
    for node in scope.of_type(ast.Assign):
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            made.setdefault(node.targets[0].id, []).append(node.value)
        else:
            others.update(name for target in node.targets for name in target_names(target))
    if not any(any(map(_is_shown, values)) for values in made.values()):
        return set()
    for node in scope.of_type(ast.AugAssign, ast.For):
        others.update(target_names(node.target))
    found: set[str] = set()
    for name, values in made.items():
        if name not in others and any(_is_time(value, found) for value in values):
            if all(_is_time(value, {*found, name}) or _last_name(value) in _DATES for value in values):
                found.add(name)
    return found


def _is_shown(value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and any(_last_name(call) in _SHOWN for call in calls_in(value))


def _is_time(value: ast.expr, names: set[str]) -> bool:
    if isinstance(value, ast.Name):
        return value.id in names
    if not isinstance(value, ast.Call):
        return False
    last = _last_name(value)
    contained = [*value.args, *([value.func.value] if isinstance(value.func, ast.Attribute) else [])]
    return last in _SHOWN or (last in _KEEPING and any(_is_time(a, names) for a in contained))
