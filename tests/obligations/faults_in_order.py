"""Faults in who does something, and when: effects, what all ranks do together, and what is prepared."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.obligations.asking import (
    AT_MODEL,
    GUARDED_TWICE,
    LOOPS,
    NO_READER,
    ONE_OF_TWO,
    OWN_BATCH,
    PLAIN_NAMES,
    QUOTIENT,
    Found,
    quotient,
    same_everywhere,
)
from tests.obligations.scripts import FUNCTIONS, GATHERS, MEETINGS, Golden, Script, stored, word, words


def print_by_all(script: Script) -> Found:
    for call in script.calls("print"):
        yield script.mutant("print by every process", call, [script.replace(call.func, "print")])


def save_by_all(script: Script) -> Found:
    for call in script.calls("save"):
        why = GUARDED_TWICE if _is_guarded(script, call) else ""
        yield script.mutant(
            "save by every process", call, [script.replace(call.func, "torch.save")], equivalent=why
        )


def guard_left_out(script: Script) -> Found:
    for node in script.of(ast.Attribute):
        if node.attr in ("is_main_process", "is_local_main_process"):
            stmt = script.statement(node)
            why = GUARDED_TWICE if _does_once(stmt) else ""
            yield script.mutant(
                "guard left out",
                node,
                [script.replace(node, "True")],
                *stored(stmt),
                reach=[stmt],
                equivalent=why,
            )


def _is_guarded(script: Script, node: ast.AST) -> bool:
    guard = script.around(node, ast.If)
    if guard is None:
        return False
    test = ast.dump(guard.test)
    return (("is_main_process" in test or "is_local_main" in test) and "Or()" not in test) or _is_guarded(
        script, guard
    )


def _does_once(stmt: ast.stmt) -> bool:
    """Whether what stands under a guard is done once without it."""
    done = (
        [part.value for part in ast.walk(stmt) if isinstance(part, ast.Expr)]
        if isinstance(stmt, ast.If)
        else []
    )
    return bool(done) and all(
        word(getattr(getattr(call, "func", None), "value", None)) == "accelerator" for call in done
    )


def guard_turned_round(script: Script) -> Found:
    for node in script.of(ast.Attribute):
        if node.attr in ("is_main_process", "is_local_main_process"):
            parent = script.parents[node]
            negated = isinstance(parent, ast.UnaryOp)
            edit = script.replace(
                parent if negated else node,
                script.segment(node) if negated else f"(not {script.segment(node)})",
            )
            stmt = script.statement(node)
            yield script.mutant("guard turned round", node, [edit], *stored(stmt), reach=[stmt])


def unwrap_left_out(script: Script) -> Found:
    for call in script.calls("unwrap_model"):
        attribute = isinstance(script.parents[call], ast.Attribute) and not script.golden.accelerate
        yield script.mutant(
            "unwrap left out",
            call,
            [script.replace(call, script.segment(call.args[0]))],
            equivalent=PLAIN_NAMES if attribute else "",
        )


def wait_left_out(script: Script) -> Found:
    for call in script.calls("wait_for_everyone"):
        reads = any(
            word(other.func) in ("load", "listdir", "exists")
            and other.lineno > call.lineno
            and script.around(other, *FUNCTIONS) is script.around(call, *FUNCTIONS)
            for other in script.of(ast.Call)
        )
        yield script.mutant(
            "wait left out",
            call,
            [script.delete(script.statement(call))],
            equivalent="" if reads else NO_READER,
        )


def meeting_under_guard(script: Script) -> Found:
    """What all ranks do together, on the main process alone."""
    for call in script.calls(*MEETINGS):
        stmt = script.statement(call)
        if isinstance(stmt, ast.Assign | ast.Expr | ast.AugAssign):
            header = f"if {_receiver(script, call)}.is_main_process:"
            yield script.mutant(f"{word(call.func)} on one process", call, script.wrapped(stmt, header))


def step_under_guard(script: Script) -> Found:
    for stmt, call in _steps(script):
        if _knows_accelerator(script, stmt):
            header = f"if {_accelerator(script, stmt)}.is_main_process:"
            kind = "schedule" if "sched" in word(call.func.value) else "optimizer"  # type: ignore[attr-defined]
            yield script.mutant(
                f"step of the {kind} on one process",
                stmt,
                script.wrapped(stmt, header),
                word(call.func.value),
            )  # type: ignore[attr-defined]


def call_under_guard(script: Script) -> Found:
    """A call of a function in which ranks meet, on the main process alone."""
    meeting = _meeting_functions(script.golden)
    for call in script.of(ast.Call):
        stmt = script.statement(call)
        value = getattr(stmt, "value", None)
        if (
            _function(call) in meeting
            and value is call
            and isinstance(stmt, ast.Assign | ast.Expr)
            and _knows_accelerator(script, stmt)
        ):
            header = f"if {_accelerator(script, stmt)}.is_main_process:"
            yield script.mutant(
                "a function that meets on one process",
                call,
                script.wrapped(stmt, header),
                word(call.func),
                *MEETINGS,
                "step",
            )


def meeting_by_a_batch(script: Script) -> Found:
    """What all ranks do together, where a rank's batch says so."""
    for call, loss in _backwards(script):
        stmt = script.statement(call)
        yield script.mutant(
            "backward where a batch says so",
            call,
            script.wrapped(stmt, f"if {loss}.item() < 1.0:"),
            equivalent=same_everywhere(script, call),
        )
    for stmt, call in _steps(script):
        losses = [
            loss
            for other, loss in _backwards(script)
            if script.block(script.statement(other)) is script.block(stmt) and other.lineno < stmt.lineno
        ]
        if losses:
            yield script.mutant(
                "step where a batch says so",
                stmt,
                script.wrapped(stmt, f"if {losses[-1]}.item() < 1.0:"),
                equivalent=same_everywhere(script, call),
            )
    for call in script.calls(*GATHERS):
        stmt, arg = script.statement(call), call.args[0]
        first = arg.elts[0] if isinstance(arg, ast.Tuple) else arg
        if (
            isinstance(first, ast.Name)
            and script.around(stmt, *LOOPS) is not None
            and isinstance(stmt, ast.Assign)
        ):
            yield script.mutant(
                "gather where a batch says so", call, script.wrapped(stmt, f"if {first.id}.sum().item() > 0:")
            )


def left_early(script: Script) -> Found:
    """A loop in which ranks meet, left by what one rank's batch says."""
    for call, loss in _backwards(script):
        stmt = script.statement(call)
        if script.around(stmt, *LOOPS, *FUNCTIONS) is None:
            continue
        same = same_everywhere(script, call)
        test = f"if {loss}.item() < 0.01:"
        loop = script.around(stmt, *LOOPS, *FUNCTIONS)
        names = words(loop.iter) if isinstance(loop, ast.For) else []
        if isinstance(loop, LOOPS):
            yield script.mutant(
                "break by a batch", stmt, [script.after(stmt, test, "    break")], *names, equivalent=same
            )
            yield script.mutant(
                "continue by a batch",
                stmt,
                [script.before(stmt, f"if {loss}.item() != {loss}.item():", "    continue")],
                *names,
                equivalent=same,
            )
            if script.around(stmt, *FUNCTIONS) is not None:
                yield script.mutant(
                    "return by a batch",
                    stmt,
                    [script.after(stmt, test, "    return None")],
                    *names,
                    equivalent=same,
                )
            yield script.mutant(
                "an exception passed over by one rank",
                stmt,
                script.wrapped(stmt, "try:", "except RuntimeError:", "    continue"),
                *names,
                equivalent=same,
            )


def prepare_left_out(script: Script) -> Found:
    """One of the objects that are prepared, or the model with its optimizer."""
    for call in script.calls("prepare"):
        stmt = script.statement(call)
        if not isinstance(stmt, ast.Assign) or stmt.value is not call or len(call.args) < 1:
            continue
        targets = stmt.targets[0].elts if isinstance(stmt.targets[0], ast.Tuple) else [stmt.targets[0]]
        kinds = [_kind_of(script, arg) for arg in call.args]
        groups = [[number] for number in range(len(kinds))] + [
            [n for n, kind in enumerate(kinds) if kind in ("model", "optimizer")]
        ]
        for group in groups:
            rest = [number for number in range(len(kinds)) if number not in group]
            left = ", ".join(script.segment(targets[number]) for number in rest)
            right = ", ".join(script.segment(call.args[number]) for number in rest)
            kind = " and ".join(sorted({kinds[number] for number in group}))
            if not group or (len(group) > 1 and kind != "model and optimizer"):
                continue
            edit = (
                script.replace(stmt, f"{left} = {script.segment(call.func)}({right})")
                if rest
                else script.delete(stmt)
            )
            names = [name for number in group for name in words(call.args[number])]
            names += [
                name
                for arg, one in zip(call.args, kinds, strict=True)
                for name in words(arg)
                if kind == "model" and one == "optimizer"
            ]
            equivalent = _as_prepared(script, kind, kinds, group[0]) or (
                same_everywhere(script, call) if "model" in kind else ""
            )
            yield script.mutant(f"{kind} not prepared", stmt, [edit], *names, equivalent=equivalent)


def _as_prepared(script: Script, kind: str, kinds: list[str], number: int) -> str:
    if kind == "scheduler" and script.golden.total:
        return OWN_BATCH
    reduced = list(script.calls("reduce", *GATHERS))
    if (
        kind == "loader"
        and number > kinds.index("loader")
        and reduced
        and all(quotient(script, call) for call in reduced)
    ):
        return QUOTIENT
    if kind in ("model", "optimizer") and not script.golden.accelerate:
        others = {"model": "optimizer", "optimizer": "model"}[kind]
        return ONE_OF_TWO if kinds.count(others) >= kinds.count(kind) else ""
    if kind == "optimizer" and script.golden.accelerate:
        return AT_MODEL
    return ""


def schedule_made_after_prepare(script: Script) -> Found:
    """A schedule whose length is counted in rounds of each process, and that takes N steps in each."""
    for call in script.calls("prepare"):
        stmt = script.statement(call)
        for arg in call.args:
            made = next(
                (
                    other
                    for other in script.block(stmt)
                    if isinstance(other, ast.Assign)
                    and word(other.targets[0]) == word(arg)
                    and _kind_of(script, arg) == "scheduler"
                    and "len(" in script.segment(other)
                ),
                None,
            )
            if made is not None and isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Tuple):
                rest = [a for a in call.args if a is not arg]
                text = ", ".join(map(script.segment, rest))
                one = script.segment(arg)
                edits = [
                    script.delete(made),
                    script.replace(stmt, f"{text} = {script.segment(call.func)}({text})"),
                    script.after(stmt, script.segment(made), f"{one} = {script.segment(call.func)}({one})"),
                ]
                yield script.mutant(
                    "a schedule's length in rounds of a process",
                    stmt,
                    edits,
                    one,
                    equivalent=OWN_BATCH if script.golden.total else "",
                )


def seed_by_rank(script: Script) -> Found:
    """Another seed on every process, where data are drawn afterwards."""
    for call in script.of(ast.Call):
        drawn = any(
            word(other.func) in ("randn", "rand", "randint")
            and other.lineno > call.lineno
            and script.around(other, *FUNCTIONS) is script.around(call, *FUNCTIONS)
            for other in script.of(ast.Call)
        )
        if (
            word(call.func) == "manual_seed"
            and len(call.args) == 1
            and drawn
            and _knows_accelerator(script, call)
        ):
            text = f"{script.segment(call.args[0])} + {_accelerator(script)}.process_index"
            yield script.mutant("another seed on every process", call, [script.replace(call.args[0], text)])


def _receiver(script: Script, call: ast.Call) -> str:
    return script.segment(call.func.value) if isinstance(call.func, ast.Attribute) else _accelerator(script)


def _accelerator(script: Script, node: ast.AST | None = None) -> str:
    function = script.around(node, *FUNCTIONS) if node is not None else None
    inside = (
        [
            part
            for part in ast.walk(function)
            if isinstance(part, ast.Attribute) and word(part.value) == "accelerator"
        ]
        if function
        else []
    )
    return script.segment(inside[0].value) if inside else "accelerator"


def _knows_accelerator(script: Script, node: ast.AST) -> bool:
    """Whether there is an Accelerator where a node stands: made above, or used in its function."""
    function = script.around(node, *FUNCTIONS)
    line = node.lineno  # type: ignore[attr-defined]
    for made in script.of(ast.Assign):
        where = script.around(made, *FUNCTIONS)
        if (
            isinstance(made.value, ast.Call)
            and word(made.value.func) == "Accelerator"
            and ((where is function and made.lineno < line) or (where is None and function is not None))
        ):
            return True
    return function is not None and (
        "accelerator" in [arg.arg for arg in function.args.args]
        or "self.accelerator" in script.segment(function)
    )


def _steps(script: Script) -> Iterator[tuple[ast.stmt, ast.Call]]:
    """Statements that step an optimizer or a schedule."""
    for call in script.of(ast.Call):
        receiver = word(call.func.value) if isinstance(call.func, ast.Attribute) else ""
        if (
            word(call.func) == "step"
            and ("optim" in receiver or "sched" in receiver)
            and isinstance(script.parents[call], ast.Expr)
        ):
            yield script.statement(call), call


def _backwards(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Backward passes of a loss that has a name."""
    for call in script.calls("backward"):
        if isinstance(call.args[0], ast.Name):
            yield call, call.args[0].id


def _function(call: ast.Call) -> str:
    """The name of a function of the script, or of a method of its own object, that is called."""
    func = call.func
    return word(func) if isinstance(func, ast.Name) or word(getattr(func, "value", None)) == "self" else ""


def _meeting_functions(golden: Golden) -> set[str]:
    found = set()
    for text in golden.files.values():
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, FUNCTIONS) and node.name != "main":
                inside = [part.func for part in ast.walk(node) if isinstance(part, ast.Call)]
                if any(
                    word(func) in MEETINGS and word(getattr(func, "value", None)) == "accelerator"
                    for func in inside
                ):
                    found.add(node.name)
    return found


def _kind_of(script: Script, node: ast.AST) -> str:
    """Whether an object is a loader, an optimizer, a scheduler or a model, by what it is made with or used as."""
    if isinstance(node, ast.Call):
        made = script.segment(node.func)
    else:
        made = next(
            (
                script.segment(other.value)
                for other in script.of(ast.Assign)
                if word(node)
                in [word(target) for part in other.targets for target in getattr(part, "elts", [part])]
                and word(getattr(other.value, "func", None)) != "prepare"
            ),
            word(node),
        )
    made = made.lower()
    if "scheduler" in made or "cyclelr" in made or "steplr" in made:
        return "scheduler"
    if "load" in made:
        return "loader"
    return "optimizer" if "lr=" in made or "optim" in word(node).lower() else "model"
