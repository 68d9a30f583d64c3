"""The user's source with its tests recorded: `if x:` becomes `if __accelify_decided__(7, True if x else False):`.

Lines, names and docstrings stay, so that tracebacks, `inspect.getsource` and whatever reads the source see what is
in the file. A test is still evaluated once, in place, and with the same jumps: `a and b` asks each of the two at most
once. Handlers of exceptions begin with a call that says that they were reached. Comprehensions and lambdas are left as
they are, and so is what belongs to a data set or a sampler: it decides about samples.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

DECIDED = "__accelify_decided__"
PASSED = "__accelify_passed__"
# Calls after which training is not what it was. Names of methods and functions of torch.
_TRAINING = {
    "backward", "step", "load_state_dict", "train", "eval", "zero_grad", "copy_", "requires_grad_", "unscale_",
    "clip_grad_norm_", "clip_grad_value_",
}  # fmt: skip
_SAVING = {"save", "save_state", "save_model", "save_pretrained", "state_dict", "deepcopy"}
_RANK = {
    "is_main_process", "is_local_main_process", "is_last_process", "process_index", "local_process_index",
    "get_rank", "local_rank",
}  # fmt: skip
_NOT_INSTRUMENTED = {
    "__getitem__",
    "__getitems__",
    "__len__",
    "__repr__",
    "__str__",
    "__del__",
    "__getattr__",
}
_LEFT = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
_ANYWHERE = (0, sys.maxsize)
Extent = tuple[int, int]


@dataclass
class Test:
    """One place where the script decides.

    Args:
        line: of the statement.
        kind: "if", "while", "choice" (a conditional expression), "assert" or "except".
        leaves: its body or else leaves a loop or a function.
        trains: its body or else has calls that change training.
        saves: its body or else saves or copies state.
        carries: it assigns a name that its test reads, such as the best score so far.
        by_rank: the test asks which process this is.
        ends: what it leaves, it leaves for good: not by `continue`.
        body, orelse: first and last line of what runs where it is true, and where it is not; (0, 0) for nothing.
        scope: first and last line of the loop or the function that it leaves, or of what a handler stands by for.
        nth: which of those of its kind on its line it is, from 0.
    """

    line: int
    kind: str
    leaves: bool = False
    trains: bool = False
    saves: bool = False
    carries: bool = False
    by_rank: bool = False
    ends: bool = False
    body: Extent = (0, 0)
    orelse: Extent = (0, 0)
    scope: Extent = (0, 0)
    nth: int = 0


@dataclass
class Instrumented:
    """A module's tree and its tests; the first is number `first` in the tree."""

    tree: ast.Module
    tests: list[Test] = field(default_factory=list)


def instrument(source: bytes | str, first: int, file: str = "<unknown>") -> Instrumented:
    """Instrument a module.

    Args:
        source: its text.
        first: number of its first test.
        file: named in the warnings of the parser.

    Raises:
        SyntaxError, ValueError: it is not Python.
    """
    result = Instrumented(ast.parse(source, file))
    _Instrumenter(result, first).visit(result.tree)
    return result


class _Instrumenter(ast.NodeTransformer):
    def __init__(self, result: Instrumented, first: int) -> None:
        self.tests = result.tests
        self.first = first
        # Around the place that is being visited.
        self.loop: Extent = _ANYWHERE
        self.function: Extent = _ANYWHERE
        self.attempt: Extent = (0, 0)
        self._on_line: Counter[tuple[int, str]] = Counter()

    # What decides

    def visit_If(self, node: ast.If) -> ast.AST:
        test = Test(node.lineno, "if", body=_extent(node.body), orelse=_extent(node.orelse))
        self._describe(test, node.test, [*node.body, *node.orelse])
        self._wrap(node, test)
        self.generic_visit(node)
        return node

    def visit_While(self, node: ast.While) -> ast.AST:
        test = Test(node.lineno, "while", body=_extent(node.body), orelse=_extent(node.orelse))
        self._describe(test, node.test, node.body)
        test.leaves = test.ends = True
        test.scope = test.body
        self._wrap(node, test)
        return self._inside(node, loop=_extent([node]))

    def visit_IfExp(self, node: ast.IfExp) -> ast.AST:
        test = Test(node.lineno, "choice")
        self._describe(test, node.test, [node.body, node.orelse])
        self._wrap(node, test)
        self.generic_visit(node)
        return node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        test = Test(node.lineno, "assert", leaves=True, ends=True, scope=self.function)
        test.by_rank = _asks_for_rank(node.test)
        self._wrap(node, test)
        self.generic_visit(node)
        return node

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> ast.AST:
        test = Test(node.lineno, "except", body=_extent(node.body))
        self._describe(test, None, node.body)
        # What did not run because of the exception is what the handler decides about.
        test.scope = test.scope if test.leaves else self.attempt
        self.generic_visit(node)
        node.body.insert(0, _statement(DECIDED, [self._number(test), True], node.lineno, node.col_offset))
        return node

    # What is around

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._inside(node, loop=_extent([node]))

    def visit_AsyncFor(self, node: ast.AsyncFor) -> ast.AST:
        return self._inside(node, loop=_extent([node]))

    def visit_Try(self, node: Any) -> Any:
        handlers = [handler.lineno for handler in node.handlers]
        last = node.body[-1]
        self._inside(node, attempt=_extent(node.body))
        if handlers:
            numbers = [
                self.first + number
                for number, test in enumerate(self.tests)
                if test.kind == "except" and test.line in handlers
            ]
            # At the end of what was tried, none of the handlers was needed.
            node.body.append(_statement(PASSED, numbers, last.end_lineno or last.lineno, last.col_offset))
        return node

    visit_TryStar = visit_Try  # noqa: N815

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if node.name in _NOT_INSTRUMENTED or is_compiled(node):
            return node
        return self._inside(node, loop=_ANYWHERE, function=_extent(node.body))

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        return self._inside(node, loop=_ANYWHERE, function=_extent(node.body))

    def _inside(self, node: ast.AST, **around: Extent) -> ast.AST:
        before = {name: getattr(self, name) for name in around}
        for name, extent in around.items():
            setattr(self, name, extent)
        self.generic_visit(node)
        for name, extent in before.items():
            setattr(self, name, extent)
        return node

    # What is left as it is

    def visit(self, node: ast.AST) -> Any:
        return node if isinstance(node, _LEFT) else super().visit(node)

    # How

    def _number(self, test: Test) -> int:
        place = (test.line, test.kind)
        test.nth = self._on_line[place]
        self._on_line[place] += 1
        self.tests.append(test)
        return self.first + len(self.tests) - 1

    def _wrap(self, node: ast.If | ast.While | ast.IfExp | ast.Assert, test: Test) -> None:
        asked = node.test
        choice = ast.IfExp(asked, ast.Constant(True), ast.Constant(False))
        call = ast.Call(ast.Name(DECIDED, ast.Load()), [ast.Constant(self._number(test)), choice], [])
        for part in (choice, choice.body, choice.orelse, call, call.func, call.args[0]):
            ast.copy_location(part, asked)
        node.test = call

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == DECIDED:
            # The choice in it is not the script's; what is asked may have some.
            choice = node.args[1]
            assert isinstance(choice, ast.IfExp)
            choice.test = self.visit(choice.test)
            return node
        return self.generic_visit(node)

    def _describe(self, test: Test, asked: ast.expr | None, parts: Sequence[ast.AST]) -> None:
        ways = {way for part in parts for way in _ways_out(part)}
        test.leaves = bool(ways)
        test.ends = bool(ways - {"continue"})
        if ways:
            test.scope = self.loop if ways & {"break", "continue"} else self.function
        calls = {_called(node) for part in parts for node in ast.walk(part) if isinstance(node, ast.Call)}
        test.trains, test.saves = bool(calls & _TRAINING), bool(calls & _SAVING)
        if asked is not None:
            read = {_name(node) for node in ast.walk(asked)} - {""}
            test.carries = bool(read & _assigned(parts))
            test.by_rank = _asks_for_rank(asked)


def _statement(function: str, arguments: list[Any], line: int, column: int) -> ast.Expr:
    call = ast.Call(ast.Name(function, ast.Load()), [ast.Constant(argument) for argument in arguments], [])
    statement = ast.Expr(call)
    for part in ast.walk(statement):
        if isinstance(part, (ast.expr, ast.stmt)):
            part.lineno = part.end_lineno = line
            part.col_offset = part.end_col_offset = column
    return statement


def _ways_out(node: ast.AST) -> Iterator[str]:
    """How a statement leaves a loop or a function that is around it."""
    if isinstance(node, (ast.Break, ast.Continue, ast.Return, ast.Raise)):
        yield type(node).__name__.lower()
    elif isinstance(node, (ast.For, ast.AsyncFor, ast.While)):
        # The breaks of such a loop stay inside it.
        inner = {way for part in ast.iter_child_nodes(node) for way in _ways_out(part)}
        yield from inner & {"return", "raise"}
    elif not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
        for part in ast.iter_child_nodes(node):
            yield from _ways_out(part)


def _asks_for_rank(asked: ast.expr) -> bool:
    return any(
        (node.id if isinstance(node, ast.Name) else getattr(node, "attr", "")) in _RANK
        for node in ast.walk(asked)
    )


def _called(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else getattr(call.func, "attr", "")


def _name(node: ast.AST) -> str:
    """A name, or an attribute with what it belongs to."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute) and (owner := _name(node.value)):
        return f"{owner}.{node.attr}"
    return ""


def _assigned(parts: Sequence[ast.AST]) -> set[str]:
    found = set()
    for part in parts:
        for node in ast.walk(part):
            if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store):
                found.add(_name(node))
    return found - {""}


def is_compiled(node: ast.FunctionDef) -> bool:
    """Whether a decorator reads the function's source or its instructions."""
    for decorator in node.decorator_list:
        for part in ast.walk(decorator):
            name = part.id if isinstance(part, ast.Name) else getattr(part, "attr", "")
            if name in ("compile", "script", "script_method", "jit", "njit", "triton"):
                return True
    return False


def _extent(body: Sequence[ast.stmt]) -> Extent:
    return (body[0].lineno, body[-1].end_lineno or body[-1].lineno) if body else (0, 0)
