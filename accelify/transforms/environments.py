"""Environments of reinforcement learning: the same episodes on every process.

env = gym.make("CartPole-v1")    ->  env = gym.make("CartPole-v1")
                                     if accelerator.num_processes > 1:
                                         env.reset(seed=torch.initial_seed() % 2**31)

An environment without a seed takes one from the operating system. Every process then plays different episodes, of
different lengths, and makes another number of steps than the others, which wait for it. torch's seed is the same on all
of them once the Accelerator is made, and new in every run of a script that sets none. One process plays what it played.
A seed that the script sets if an option asks for one, which is off by default, still counts; so does one from a
variable that the script sets to nothing (`seed = None`). Next to an environment that is seeded, the one for evaluation
can have been forgotten.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import NamedTuple

from accelify.analysis.program import Module
from accelify.analysis.scopes import Scope
from accelify.analysis.statements.option_defaults import constants_in, is_false_by_default, option_defaults
from accelify.analysis.syntax import Tree, call_keyword, calls_in, dotted
from accelify.findings import Safety
from accelify.transforms.base import Change, Context, Rule
from accelify.writer.edits import Edit, InsertAfter, InsertBefore

UNSEEDED = Rule(
    "ACC212",
    "Every process would play other episodes: nobody seeds the environment.",
    safety=Safety.REVIEW,
    effort=5,
    done="seeded the environments alike",
)
_WORD = re.compile(rb"\bgym(nasium)?\b")
_MAKERS = frozenset(
    f"{library}.{name}"
    for library in ("gym", "gymnasium")
    for name in ("make", "make_vec", "vector.make", "vector.SyncVectorEnv", "vector.AsyncVectorEnv")
)
_SEED = "torch.initial_seed() % 2**31"
# What `env.step(action)` returns in the libraries' old form, and in the current one.
_OLD, _NEW = 4, 5


class _Made(NamedTuple):
    """An environment, where it is made and under which name."""

    stmt: ast.Assign
    call: ast.Call
    name: str


class _Place(NamedTuple):
    """Where an environment is seeded: after a statement or before it, and how the Accelerator is written there."""

    stmt: ast.stmt
    accelerator: str | None
    afterwards: bool = True

    def is_before(self, tree: Tree, node: ast.AST) -> bool:
        """Whether a node comes after the place."""
        return tree.is_after(node, self.stmt) if self.afterwards else not tree.is_before(node, self.stmt)

    def seeded(self, lines: tuple[str, ...], unless: str = "") -> Edit:
        """The edit that adds lines there, for several processes only where the Accelerator is available, and not where
        the script has set its seed by then."""
        tests = [f"{self.accelerator}.num_processes > 1"] if self.accelerator is not None else []
        tests += [f"not ({unless})"] if unless else []
        if tests:
            lines = (f"if {' and '.join(tests)}:", *(f"    {line}" for line in lines))
        return InsertAfter(self.stmt, lines) if self.afterwards else InsertBefore(self.stmt, lines, -49)


def transform(context: Context) -> Iterator[Change]:
    """Yield a seed for each environment that has none, or a finding where it cannot be set."""
    if not any(module.tree.mentions(_WORD) for module in context.script.modules):
        return
    found = list(_environments(context))
    asked = _asked_for_seeds(context) if found else None
    if asked is None:
        found, asked = _forgotten(context, found), []
    form, samples = _form(context), _samples(context)
    for number, made in enumerate(found):
        edits, why = [], ""
        if form is None or not context.is_bound("torch", made.stmt):
            why = ": it is not seen which of the library's forms seeds it"
        elif (place := _place(context, made)) is None:
            why = ": it is made where the Accelerator is not known yet, or several times"
        else:
            sampled = any(_runs_after(context, sample, place) for sample in samples)
            lines = _lines(made, form, sampled, number)
            unless = _unless(context, asked, place)
            if unless is None:
                why = ": where it is asked for a seed is out of sight of where it could be given one"
            else:
                edits = [place.seeded(lines, unless)]
        seldom = f" unless `{context.tree.segment(asked[0].test)}`" if asked else ""
        message = (
            f"nobody seeds `{made.name}`{seldom}: every process would play other episodes, of other lengths"
        )
        yield context.change(UNSEEDED, made.call, f"{message}{why}", edits)


def _environments(context: Context) -> Iterator[_Made]:
    script = context.script
    for stmt in context.tree.nodes(ast.Assign):
        if len(stmt.targets) != 1 or script.scope_of(stmt) in script.dormant or context.is_claimed(stmt):
            continue
        name = dotted(stmt.targets[0])
        if name is None or not _gives_environment(stmt.value):
            continue
        call = next((c for c in _around(stmt.value) if script.qualname(c.func) in _MAKERS), None)
        if call is not None:
            yield _Made(stmt, call, name)


def _gives_environment(value: ast.expr) -> bool:
    """`gym.make(...)`, possibly in wrappers or unwrapped; not other attributes of an environment."""
    while isinstance(value, ast.Attribute) and value.attr in ("unwrapped", "env"):
        value = value.value
    return isinstance(value, ast.Call)


def _around(value: ast.expr) -> Iterator[ast.Call]:
    """The calls that make a value: a wrapper's, and that of its first argument."""
    while isinstance(value, (ast.Attribute, ast.Call)):
        if isinstance(value, ast.Attribute):
            value = value.value
            continue
        yield value
        if not value.args:
            return
        value = value.args[0]


def _asked_for_seeds(context: Context) -> list[ast.If] | None:
    """The tests of options and constants under which the program seeds environments, all of them false by default.

    None where it gives one a seed otherwise: one that does knows of it.
    """
    script = context.script
    modules = list(script.program.modules.values())
    asked: dict[ast.If, None] = {}
    defaults: dict[str, object] | None = None
    for module in modules:
        for call in module.tree.nodes(ast.Call) if module.tree.mentions("seed") else ():
            if not _gives_seed(call) or script.interpreter.calls.get(call):
                continue  # what a function of the program does is found in its body
            if module in script.modules and script.module_of(call) is not module:
                continue  # modules that are converted together have one tree
            defaults = option_defaults(modules) if defaults is None else defaults
            test = _test_around(module, call)
            if test is None or module not in script.modules:
                return None
            if not is_false_by_default(test.test, defaults, constants_in(module, test.test)):
                return None
            asked[test] = None
    return list(asked)


def _forgotten(context: Context, found: list[_Made]) -> list[_Made]:
    """The environments that are played and not seeded, where every seed is seen to be that of another one by name."""
    script = context.script
    named = [(script.scope_of(made.stmt).resolve(made.name), made.name) for made in found]
    seeded = set()
    for module in script.program.modules.values() if len(found) > 1 else ():
        for call in module.tree.nodes(ast.Call) if module.tree.mentions("seed") else ():
            if not _gives_seed(call) or script.interpreter.calls.get(call):
                continue
            if module not in script.modules or not isinstance(call.func, ast.Attribute):
                return []
            if script.module_of(call) is not module:
                continue
            asked = (dotted(call.func.value) or "").removesuffix(".action_space").removesuffix(".unwrapped")
            one = (script.scope_of(call).resolve(asked), asked)
            if one not in named:
                return []
            seeded.add(one)
    return [
        made
        for made, one in zip(found, named, strict=True)
        if seeded and one not in seeded and one[0] is not None and _is_played(context, one[0], made.name)
    ]


def _is_played(context: Context, scope: Scope, name: str) -> bool:
    """Whether an environment is stepped, here or in a function that it is passed to."""
    for read in context.script.reads(name, scope):
        parent = context.tree.parent(read)
        if isinstance(parent, ast.Attribute) and parent.attr in ("step", "reset"):
            return True
        if isinstance(parent, ast.Call) and read in parent.args:
            return True
    return False


def _gives_seed(call: ast.Call) -> bool:
    """`env.seed(1)`, `env.reset(seed=1)`, `gym.make_vec(..., seed=1)`."""
    if not isinstance(call.func, ast.Attribute):
        return False
    if call.func.attr in ("reset", "make", "make_vec"):
        return call_keyword(call, "seed") is not None
    return call.func.attr == "seed" and "random" not in (dotted(call.func) or "").split(".")


def _test_around(module: Module, call: ast.Call) -> ast.If | None:
    """The innermost test in whose first branch a call is."""
    inner: ast.AST = call
    for ancestor in module.tree.ancestors(call):
        if isinstance(ancestor, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return None
        if isinstance(ancestor, ast.If) and inner in ancestor.body:
            return ancestor
        inner = ancestor
    return None


def _unless(context: Context, asked: list[ast.If], place: _Place) -> str | None:
    """The test under which the script's seed has been set at a place; None where it cannot be written there."""
    tree, tests = context.tree, list[str]()
    for test in asked:
        if context.script.scope_of(test) is not context.script.scope_of(place.stmt):
            return None
        if not place.is_before(tree, test):
            tests.append(tree.segment(test.test))
    return " or ".join(tests)


def _form(context: Context) -> int | None:
    """How many values a step returns: what distinguishes the libraries' forms, None where that is not known."""
    for module in context.script.modules:
        if any(
            name.split(".")[0] == "gymnasium"
            for node in module.tree.nodes(ast.Import, ast.ImportFrom)
            for name in _imported(node)
        ):
            return _NEW
    for stmt in context.tree.nodes(ast.Assign):
        target, value = stmt.targets[0], stmt.value
        if not isinstance(value, ast.Call) or not isinstance(value.func, ast.Attribute):
            continue
        if not isinstance(target, ast.Tuple) or any(isinstance(e, ast.Starred) for e in target.elts):
            continue
        if value.func.attr == "step" and value.args and len(target.elts) in (_OLD, _NEW):
            return len(target.elts)
        if value.func.attr == "reset" and not value.args and len(target.elts) == 2:
            return _NEW
    return None


def _imported(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []


def _samples(context: Context) -> list[ast.Attribute]:
    """Where actions are drawn from an environment's space, which has a separate random generator."""
    return [
        node
        for node in context.tree.nodes(ast.Attribute)
        if node.attr == "sample"
        and isinstance(node.value, ast.Attribute)
        and node.value.attr == "action_space"
    ]


def _runs_after(context: Context, node: ast.AST, place: _Place) -> bool:
    """Whether a node can run after an environment was seeded: what comes before it in the same code has run."""
    tree = context.tree
    if context.script.scope_of(node) is not context.script.scope_of(place.stmt):
        return True
    return place.is_before(tree, node)


def _lines(made: _Made, form: int, sampled: bool, number: int) -> tuple[str, ...]:
    seed = f"{_SEED} + {number}" if number else _SEED
    # A wrapper that the script defines may take no seed.
    name = made.name if made.stmt.value is made.call or form == _OLD else f"{made.name}.unwrapped"
    first = f"{made.name}.seed({seed})" if form == _OLD else f"{name}.reset(seed={seed})"
    return (first, f"{made.name}.action_space.seed({seed})") if sampled else (first,)


def _place(context: Context, made: _Made) -> _Place | None:
    """Where it can be seeded: after it is made and after the Accelerator has set the same seed on all processes."""
    script, tree, anchor = context.script, context.tree, context.plan.anchor
    if anchor is None or context.for_accelerate or not _runs_once(context, made.stmt):
        return None
    scope = script.scope_of(made.stmt)
    place = anchor.before or anchor.after
    if place is None:
        return None
    if scope is script.scope_of(place):
        if not anchor.is_after(tree, made.stmt):
            return _Place(made.stmt, context.accelerator(made.stmt))
        if any(made.stmt is s for s in anchor.block) and anchor.before is not None:
            return _Place(place, context.accelerator(place), afterwards=False)
        return None
    accelerator = context.accelerator(made.stmt)
    if accelerator is not None:
        return _Place(made.stmt, accelerator)
    maker = _making_accelerator(context, made, script.scope_of(place))
    if maker is None:
        return None
    target = maker.targets[0] if isinstance(maker, ast.Assign) else maker.target
    retained = f"{dotted(target)}.accelerator" if anchor.root.kind == "class" and dotted(target) else None
    return _Place(maker, retained)


def _making_accelerator(context: Context, made: _Made, home: Scope) -> ast.Assign | ast.AnnAssign | None:
    """The statement that makes the Accelerator after that which makes the environment: `agent = Agent(env)`.

    None where there is none in the same block, or where the environment is used before it.
    """
    block = context.tree.block_of(made.stmt)[2]
    for stmt in block[block.index(made.stmt) + 1 :]:
        if isinstance(stmt, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            continue
        calls = calls_in(stmt)
        if any(dotted(c.func) in (f"{made.name}.reset", f"{made.name}.step") for c in calls):
            return None
        if any(home in context.script.callees(c) for c in calls):
            return stmt if isinstance(stmt, (ast.Assign, ast.AnnAssign)) else None
    return None


def _runs_once(context: Context, stmt: ast.AST) -> bool:
    """Whether a statement runs once: each of several environments needs a different seed."""
    script = context.script
    for _ in range(10):
        scope = script.scope_of(stmt)
        if script.enclosing_loops(stmt):
            return False
        if scope.kind != "function":
            return True
        calls = script.callers(scope)
        if len(calls) != 1 or any(isinstance(n, ast.Lambda) for n in context.tree.ancestors(stmt)):
            return False
        stmt = calls[0]
    return False
