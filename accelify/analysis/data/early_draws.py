"""Data that is drawn at random before the Accelerator is made, by a generator that nothing of the program seeds.

The Accelerator gives all processes the random numbers of the first. What was drawn before it stays as each drew it: a
split into training and test data is another one then on every process.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from accelify.analysis import values as v
from accelify.analysis.data.drawn_seeds import drawn_seed
from accelify.analysis.planning.anchors import Anchor
from accelify.analysis.planning.homes import class_value
from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.option_defaults import option_defaults
from accelify.analysis.syntax import Node, call_keyword, children, dotted, is_constant, walk

Qualname = Callable[[Module, Scope, ast.expr], str | None]

_DEEPEST = 3  # calls between what runs before the Accelerator and the draw
# What orders, splits or chooses samples. Plain numbers are more often colours, ports and names of runs than data.
_ORDERS = {
    "numpy.random.": frozenset("choice permutation shuffle".split()),
    "random.": frozenset("choice choices sample shuffle".split()),
    "torch.": frozenset({"randperm"}),
}
_TORCH_DATA = frozenset({"torch.utils.data.random_split", "torch.utils.data.dataset.random_split"})
_SPLITS = frozenset(
    "train_test_split shuffle resample ShuffleSplit StratifiedShuffleSplit GroupShuffleSplit".split()
)
_FOLDS = frozenset({"KFold", "StratifiedKFold", "StratifiedGroupKFold"})
_SHOWN = {"numpy.random.": "NumPy", "random.": "Python's random", "torch.": "torch"}
_STATES = frozenset("set_state setstate set_rng_state".split())
_NAMES = frozenset().union(*_ORDERS.values(), _SPLITS, _FOLDS, {"random_split"})
_LATER = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.GeneratorExp)
_WITHOUT_CALLS = frozenset({ast.Name, ast.Constant, ast.Import, ast.ImportFrom, ast.Pass})
_LEAVING = frozenset({ast.Return, ast.Continue, ast.Break})
_LOOPS = (ast.For, ast.ListComp, ast.SetComp, ast.DictComp)


class EarlyDraw(NamedTuple):
    """A draw, the call of the script that comes to it (or is it), its module, and the generator in words.

    `seed` is what seeds that generator and is drawn by each process itself.
    """

    shown: ast.Call
    call: ast.Call
    module: Module
    generator: str
    seed: str | None = None


def early_draw(script: ScriptModel, anchor: Anchor, qualname: Qualname) -> EarlyDraw | None:
    """The first draw of data that surely runs before the Accelerator is made and that nothing seeds."""
    modules = list(dict.fromkeys([*script.modules, *script.program.modules.values()]))
    if not any(
        m.tree.mentions(b"rand") or m.tree.mentions(b"shuffle") or m.tree.mentions(b"_split") for m in modules
    ):
        return None
    return _Draws(script, modules, qualname).first(_before(script, anchor))


def _before(script: ScriptModel, anchor: Anchor) -> list[Node]:
    """What surely runs before the Accelerator is made, in its order: statements, and arguments of calls."""
    tree, offset = script.tree, anchor.offset
    node: Node | None = anchor.block[0]
    found: list[Node] = []
    seen: set[Scope] = set()
    while node is not None:
        scope = script.scope_of(node)
        if scope in seen:
            return []
        seen.add(scope)
        found = [*_preceding(script, node, offset), *found]
        if scope.kind != "function":
            break
        calls = script.callers(scope)
        if len(calls) != 1 or script.called_from_elsewhere(scope):
            break
        call = calls[0]
        node, offset = call, tree.start(call)
        found = [*call.args, *(keyword.value for keyword in call.keywords), *found]
    return found


def _preceding(script: ScriptModel, node: Node, offset: int) -> list[Node]:
    """The statements of the blocks around a place that stand before it, as far as its function or module goes."""
    tree = script.tree
    found: list[Node] = []
    stmt: Node = node if isinstance(node, ast.stmt) else tree.statement(node)
    while True:
        holder, _, block = tree.block_of(stmt)
        found = [s for s in block if isinstance(s, ast.stmt) and tree.end(s) <= offset] + found
        while not isinstance(holder, (ast.stmt, ast.Module)):
            parent = tree.parent(holder)  # a handler or a case
            if parent is None:
                return found
            holder = parent
        if isinstance(holder, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            return found
        stmt = holder


class _Draws:
    """Finds draws in what surely runs, and in the functions that it calls."""

    def __init__(self, script: ScriptModel, modules: list[Module], qualname: Qualname) -> None:
        self.script = script
        self.modules = modules
        self.qualname = qualname
        self._seen: set[Scope] = set()

    def first(self, nodes: list[Node]) -> EarlyDraw | None:
        """The first draw in nodes of the modules that are converted."""
        for node in nodes:
            scope = self.script.scope_of(node)
            found = self._in(self.script.interpreter.module_of(scope), scope, [node], None, 0)
            if found is not None:
                return found
        return None

    @cached_property
    def _seeded(self) -> dict[str, str | None]:
        return _seeded(self.script, self.modules, self.qualname)

    def _in(
        self, module: Module, scope: Scope, body: list[Node], shown: ast.Call | None, depth: int
    ) -> EarlyDraw | None:
        for node, looped in _running(body):
            at = shown if shown is not None and module not in self.script.modules else node
            name = (dotted(node.func) or "").rpartition(".")[2]
            generator = None
            if name in _NAMES:
                generator = _generator(self.qualname(module, scope, node.func) or "", node, looped)
            if generator is not None and self._seeded.get(generator, "") is not None:
                return EarlyDraw(at, node, module, generator, self._seeded.get(generator))
            called = self.script.callees(node)
            if len(called) != 1 or depth == _DEEPEST:
                continue
            (function,) = called
            if function in self._seen or function.kind != "function" or self._is_of_model(function):
                continue
            self._seen.add(function)
            home, inner = self.script.interpreter.module_of(function), function.node
            if not isinstance(inner, ast.FunctionDef) or function.of_type(ast.Yield, ast.YieldFrom):
                continue
            found = self._in(home, function, list(inner.body), at, depth + 1)
            if found is not None:
                return found
        return None

    def _is_of_model(self, function: Scope) -> bool:
        """Whether it is a method of a model, whose weights all processes get from the first."""
        if not function.has_object or function.parent is None:
            return False
        return self.script.interpreter.kind_of_class(class_value(self.script, function.parent)) == v.MODEL


def _running(body: Sequence[Node], looped: bool = False) -> Iterator[tuple[ast.Call, bool]]:
    """The calls of statements that surely run, and whether over and over; up to where a function may be left."""
    for node in body:
        if type(node) in _WITHOUT_CALLS:
            continue
        if isinstance(node, _LATER):
            continue
        if isinstance(node, (ast.If, ast.While, ast.IfExp)):
            yield from _running([node.test], looped)
        elif isinstance(node, ast.BoolOp):
            yield from _running(node.values[:1], looped)
        elif isinstance(node, (ast.Try, ast.Match)):
            continue  # which of its parts run is not known
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
            continue  # letters of a name
        elif isinstance(node, (ast.For, ast.AsyncFor)):
            yield from _running([node.iter], looped)
            yield from _running(list(node.body), True)
        else:
            yield from _running(children(node), looped or isinstance(node, _LOOPS))
            if isinstance(node, ast.Call):
                yield node, looped
        if isinstance(node, ast.stmt) and any(type(n) in _LEAVING for n in walk(node)):
            return


def _generator(name: str, call: ast.Call, looped: bool) -> str | None:
    """The generator that a call of a library draws data from, the one of the process; None where it draws none."""
    if any(keyword.arg is None for keyword in call.keywords):
        return None
    own, _, last = name.rpartition(".")
    if own.startswith("sklearn"):
        return _SHOWN["numpy.random."] if _draws_split(last, call) else None
    if any(call_keyword(call, word) is not None for word in ("generator", "random_state")):
        return None
    if name in _TORCH_DATA:
        return _SHOWN["torch."] if len(call.args) < 3 else None
    if last == "choice" and not looped and len(call.args) < 2 and call_keyword(call, "size") is None:
        return None  # one name of many, as it is
    return next((_SHOWN[p] for p, words in _ORDERS.items() if own + "." == p and last in words), None)


def _draws_split(last: str, call: ast.Call) -> bool:
    state, order = call_keyword(call, "random_state"), call_keyword(call, "shuffle")
    if state is not None and not is_constant(state, None):
        return False
    if last in _FOLDS:
        return order is not None and is_constant(order, True)
    return last in _SPLITS and not (order is not None and not is_constant(order, True))


def _seeded(script: ScriptModel, modules: list[Module], qualname: Qualname) -> dict[str, str | None]:
    """The generators that a call anywhere in the program seeds, or may seed where it cannot be read.

    With each the seed, where every process draws that itself, and None where it is set.
    """
    found: dict[str, str | None] = {}
    defaults = option_defaults(modules)
    # The modules that are converted have one tree together.
    for module in [m for m in modules if m is script.module or m not in script.modules]:
        if b"seed" not in module.tree.data.lower() and not module.tree.mentions(b"state"):
            continue
        for call in module.tree.nodes(ast.Call):
            last = (dotted(call.func) or "").rpartition(".")[2]
            seeds = "seed" in last.lower() or last in _STATES
            if not seeds and not _is_given_seed(call):
                continue
            if script.callees(call):
                continue  # what it calls is looked at itself
            scope = script.scope_of(call) if module is script.module else module.scopes.of(call)
            name = qualname(script.interpreter.module_of(scope), scope, call.func) or ""
            known = next((p for p in _SHOWN if name.startswith(p)), None)
            if known is not None:
                if seeds:
                    drawn = drawn_seed(module, call, defaults)
                    found[_SHOWN[known]] = drawn if found.get(_SHOWN[known], drawn) is not None else None
            elif not name.startswith(("builtins.", "numpy.")):
                found |= dict.fromkeys(_SHOWN.values())
    return found


def _is_given_seed(call: ast.Call) -> bool:
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    named = [dotted(one) or "" for one in given] + [keyword.arg or "" for keyword in call.keywords]
    return any("seed" in name.lower() for name in named)


__all__ = ["EarlyDraw", "early_draw"]
