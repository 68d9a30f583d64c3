"""Handlers of exceptions that one rank reaches alone."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import TYPE_CHECKING

from accelify.domains.placement import ROUND
from accelify.domains.replacing import replace
from accelify.heap.containers import array_of
from accelify.heap.counts import WORLDS, is_of_launcher
from accelify.heap.run import Event, Run
from accelify.heap.values import OF_SOME, Class, Flow, Guard, Instance, Library, Ref, constant

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

# What the main process does to files and folders, and what that may raise.
_CAN_FAIL = frozenset({"file.delete", "file.move", "folder.make", "folder.delete"})
_RAISED = frozenset(
    "OSError IOError EnvironmentError FileNotFoundError FileExistsError PermissionError Exception BaseException".split()
)
# What no batch raises: what a program has or lacks, and a loader that ends on all ranks after as many rounds.
_ALIKE = frozenset(
    "AttributeError ImportError KeyboardInterrupt ModuleNotFoundError NameError NotImplementedError "
    "StopIteration UnboundLocalError".split()
)


# What asks torch.distributed for the group that a process is in.
_ASKING = frozenset({"get_rank", "get_world_size", "is_available", "is_initialized"})
# What several processes meet by.
_NEEDED = ("torch.distributed.", "torch.nn.", "accelerate.", "accelify.")
# What an error of its batch does to one rank.
FAILS = "an exception that one rank's batch raises"
# A line so near to a condition goes without saying.
_NEAR = 3
_MEETING = frozenset({"collective", "backward", "step"})


def left_alone(run: Run, stmt: ast.Try, met: int) -> None:
    """Note meetings of ranks in a `try` that one rank may leave: by an error of its batch, or as the main process.

    Args:
        run: the run, whose events of these meetings get a guard.
        stmt: the statement, whose body was gone through.
        met: how many events there were before it.
    """
    _left_by_main(run, stmt, met)
    _left_by_raise(run, stmt, met)
    handler = next((one for one in stmt.handlers if not _ends(one) and parting(run, one, met)), None)
    if handler is not None:
        text = "one process gets over its error, and goes on without what the others wait in"
        guard = Guard("divergent", run.reason(handler, text))
        for number, event in enumerate(run.events[met:], met):
            if event.kind in _MEETING:
                run.events[number] = replace(event, guards=(*event.guards, guard))


def _left_by_main(run: Run, stmt: ast.Try, met: int) -> None:
    """What the main process does to a file fails, and a handler goes on."""
    if not any(map(_goes_on, stmt.handlers)):
        return
    within = {node for part in stmt.body for node in ast.walk(part)}
    alone: Event | None = None
    for number, event in enumerate(run.events[met:], met):
        if event.node not in within:
            continue
        if event.kind in _CAN_FAIL and any(guard.kind == "main" for guard in event.guards):
            alone = alone or event
        elif alone is not None and event.kind in _MEETING:
            name = alone.name.removeprefix("builtins.")
            text = f"the main process goes on in the handler ({stmt.handlers[0].lineno}) where its `{name}` fails"
            guard = Guard("divergent", run.reason(alone.node, text))
            run.events[number] = replace(event, guards=(*event.guards, guard))


def _left_by_raise(run: Run, stmt: ast.Try, met: int) -> None:
    """An error that one process alone raises, and a handler gets over: the others wait in the next meeting."""
    caught = next((one for one in stmt.handlers if _catches_all(one)), None)
    if caught is None or _ends(caught) or not run.checks:
        return
    around, loops = len(run.guards), len(run.loops)
    inner = [one for part in stmt.body for one in ast.walk(part) if isinstance(one, ast.Try) and one.handlers]
    for begin, event in enumerate(run.events[met:], met):
        guard = next((one for one in event.guards[around:] if one.kind in OF_SOME), None)
        if event.kind != "raise" or guard is None:
            continue
        if any(event.node in ast.walk(part) for one in inner for part in one.body):
            continue
        rounds = {loop.number for loop in event.loops[loops:]}
        for number, other in enumerate(run.events[met:], met):
            again = rounds & {loop.number for loop in other.loops}
            if other.kind in _MEETING and (again or number > begin):
                left = Guard("divergent", guard.why)
                run.events[number] = replace(other, guards=(*other.guards, left))


def _catches_all(handler: ast.ExceptHandler) -> bool:
    return getattr(handler.type, "id", "") in ("Exception", "BaseException") or handler.type is None


def of_some(run: Run, stmt: ast.Try, met: int) -> Guard | None:
    """What the handlers of a `try` stand under in which some ranks alone do something, as the main process; else None.

    A process that is alone, in no group that could say its rank, comes there, too.

    Args:
        run: the run.
        stmt: the statement, whose body was gone through.
        met: how many events there were before it.
    """
    asks = stmt.body[0] if run.checks and len(stmt.body) == 1 else None
    if not isinstance(asks, ast.If) or asks.orelse:
        return None
    run.depends()
    around = len(run.guards)
    found = [
        next((one for one in event.guards[around:] if one.parts_ranks), None)
        for event in run.events[met:]
        if event.kind != "asks"
    ]
    return found[0] if found and None not in found else None


def reached(run: Run, stmt: ast.Try) -> list[ast.ExceptHandler]:
    """The handlers that several processes can come to: what a launcher leaves in their environment is there, what they
    meet by is installed, and a process that is in a group can ask for its rank."""
    if run.checks and stmt.body and all(map(_is_installed, stmt.body)):
        return []
    calls = [one.func for part in stmt.body for one in ast.walk(part) if isinstance(one, ast.Call)]
    if run.checks and calls and {getattr(one, "attr", getattr(one, "id", "")) for one in calls} <= _ASKING:
        return []
    read = [
        one.slice
        for part in stmt.body
        for one in ast.walk(part)
        if isinstance(one, ast.Subscript) and ast.unparse(one.value).rpartition(".")[2] == "environ"
    ]
    if not (
        run.checks and read and all(getattr(one, "value", "") in WORLDS or _is_rank(one) for one in read)
    ):
        return stmt.handlers
    return [one for one in stmt.handlers if getattr(one.type, "id", "") != "KeyError"]


def _is_installed(stmt: ast.stmt) -> bool:
    """Whether a statement imports what a script needs that runs in several processes."""
    if isinstance(stmt, ast.ImportFrom):
        return not stmt.level and f"{stmt.module}.".startswith(_NEEDED)
    return isinstance(stmt, ast.Import) and all(
        one.name == "torch" or f"{one.name}.".startswith(_NEEDED) for one in stmt.names
    )


def _is_rank(key: ast.expr) -> bool:
    return isinstance(key, ast.Constant) and is_of_launcher(constant(key.value))


def parting(run: Run, handler: ast.ExceptHandler, met: int) -> Guard | None:
    """What a handler stands under that some ranks may come to and others not.

    Args:
        run: the run.
        handler: of a `try` whose body was gone through.
        met: how many events there were before it.
    """
    run.depends()
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    apart = [_raised_apart(run, one, met) for one in caught]
    alike = all(
        raised is False or (isinstance(one, ast.Name) and one.id in _ALIKE)
        for one, raised in zip(caught, apart, strict=True)
    )
    # Around all of the training, a process that gets over an error of its own is at its end.
    parts = any(loop.shared or loop.parted for loop in run.loops) or any(
        (bool(run.loops) or True in apart)
        and (_is_of_batch(event) or (event.kind == "draw" and not _draws_anew(handler)))
        for event in run.events[met:]
    )
    if alike or not parts:
        return None
    return Guard("divergent", run.reason(handler, FAILS), ROUND)


def _raised_apart(run: Run, caught: ast.expr | None, met: int) -> bool | None:
    """Whether some ranks alone raise an error of a class of the project; None where no statement of it raises one."""
    name = getattr(caught, "attr", getattr(caught, "id", ""))
    raised = [event for event in run.events[met:] if event.kind == "raise" and name in _classes(event)]
    around = len(run.guards)
    return any(guard.parts_ranks for event in raised for guard in event.guards[around:]) if raised else None


def _classes(event: Event) -> set[str]:
    """The names of the project's classes that what is raised is of."""
    refs = [ref for value in event.shown for ref in value.refs]
    made = [ref.cls if isinstance(ref, Instance) else ref for ref in refs]
    lines = [cls.line_up() for cls in made if isinstance(cls, Class)]
    return {base.name for line in lines for base in line if isinstance(base, Class)}


def _draws_anew(handler: ast.ExceptHandler) -> bool:
    """Whether it takes the end of a loader for what was caught, and begins with it again."""
    calls = [one.func for one in ast.walk(handler) if isinstance(one, ast.Call)]
    return any(getattr(one, "id", "") in ("iter", "next", "enumerate") for one in calls)


def _is_of_batch(event: Event) -> bool:
    """Whether it is the backward pass of a batch that no other process has."""
    return event.kind == "backward" and any(not array_of(value).is_uniform for value in event.shown)


def suppressing(engine: Interpreter, stmt: ast.With | ast.AsyncWith, scope: Ref) -> ast.stmt | None:
    """`with suppress(Error): ...` as the `try` that it is; None for other managers."""
    for number, item in enumerate(stmt.items if engine.run.checks else ()):
        if isinstance(item.context_expr, ast.Call):
            called = engine.evaluate(item.context_expr.func, scope)
            if any(ref.name == "contextlib.suppress" for ref in called.of(Library)):
                return _as_try(stmt, number)
    return None


@lru_cache(maxsize=64)
def _as_try(stmt: ast.With | ast.AsyncWith, number: int) -> ast.stmt:
    """A statement whose manager of a number is a `try` within those before it and around those after it."""
    item, body = stmt.items[number].context_expr, stmt.body
    if within := stmt.items[number + 1 :]:
        body = [ast.copy_location(type(stmt)(within, body), stmt)]
    caught = ast.copy_location(ast.Tuple(item.args if isinstance(item, ast.Call) else [], ast.Load()), item)
    passed = ast.copy_location(ast.Pass(), item)
    handler = ast.copy_location(ast.ExceptHandler(caught, None, [passed]), item)
    tried = ast.copy_location(ast.Try(body, [handler], [], []), stmt)
    around = stmt.items[:number]
    return ast.copy_location(type(stmt)(around, [tried]), stmt) if around else tried


def left_within(
    way: Flow, rest: Guard | None, around: Guard | None, *, is_only_one: bool = False
) -> Guard | None:
    """What comes after a way on which some of those who went it have left, and which others did not go.

    Args:
        way: how it ends.
        rest: what comes after it stands under for those who went it.
        around: what parts those from the others, None where all went it.
        is_only_one: whether all other ways end before.
    """
    if around is not None and rest is not None and rest.kind == around.kind in ("main", "others"):
        return None  # who has left is none of those who went it
    if around is None and not is_only_one and rest is not None and rest.kind == "others":
        # Only where all go this way has the main process left.
        return Guard("left", rest.why)
    if not way.reached or around is None or (rest is not None and rest.parts_ranks):
        return rest
    return Guard("divergent", around.why)


def _goes_on(handler: ast.ExceptHandler) -> bool:
    """Whether a handler catches what files raise, and does not end the run."""
    caught = (
        {getattr(one, "id", "") for one in ast.walk(handler.type)} if handler.type is not None else _RAISED
    )
    return bool(_RAISED & caught) and not _ends(handler)


def _ends(handler: ast.ExceptHandler) -> bool:
    """Whether it ends the run, or raises further, on all its ways."""
    if any(isinstance(one, ast.Continue | ast.Break | ast.Return) for one in ast.walk(handler)):
        return False
    last = handler.body[-1]
    call = last.value if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) else None
    return isinstance(last, ast.Raise) or (call is not None and "exit" in ast.unparse(call.func))


def ends_well(call: ast.expr) -> bool:
    """Whether a call that ends the process says that nothing went wrong: `sys.exit()`, `exit(0)`."""
    return isinstance(call, ast.Call) and all(getattr(one, "value", 1) in (0, None) for one in call.args)


def leaving(stmt: ast.stmt, way: str) -> str:
    """The statement by which a block may be left, with its line."""
    found = (one for one in ast.walk(stmt) if type(one).__name__.lower() == way)
    line = next((one.lineno for one in found if isinstance(one, ast.stmt)), stmt.lineno)
    return f"`{way}` (line {line})" if line > stmt.lineno + _NEAR else ""
