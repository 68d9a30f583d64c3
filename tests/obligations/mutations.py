"""Faults for converted scripts: what a converter, or a person, gets wrong, at every place where it can be got wrong.

Each mutator goes through one file of a golden and gives the file's text with one fault in it. None knows a script. A
change that is no fault at a place says so by a rule (`equivalent`), with the reason.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tests.obligations.scripts import (
    FUNCTIONS,
    GATHERS,
    MEETINGS,
    Edit,
    Golden,
    Mutant,
    Script,
    stored,
    word,
    words,
)

Found = Iterator[Mutant | None]
Mutator = Callable[[Script], Found]
LOOPS = (ast.For, ast.While)
NOT_SHARED = "the loader is not prepared, so that its length is the original's"
OTHER_LOSS = "every process has all rows: the mean over the processes is the original's"
ALL_BATCH = "every process trains with the whole batch: the gradients are the original's"
PLAIN_NAMES = "accelify's prepared models have the names and the attributes of the plain ones"
NO_READER = "nothing that another process wrote is read afterwards"
GRADIENTS = "in accelify's runtime gradients are put together when backward is over"
AT_MODEL = "Accelerate puts gradients together at the prepared model"
ONE_OF_TWO = "accelify's runtime trains the parameters of a prepared model or optimizer alike"
TWICE_MEAN = "the mean of what is the same on all processes is itself"
ONE_BATCH = "the figure is of one batch of each process, which the summary line says"
GUARDED_TWICE = "the Accelerator's method and the guard each see to it that it is done once"
QUOTIENT = "only the quotient of both sums is used, which the same factor in both does not change"
IN_TRAINING = (
    "shown in the training loop, of which the summary line says that it is of the main process's share"
)
OWN_RATE = "a script that distributes itself chooses its rate by its processes"
OWN_BATCH = "the processes share the batch: the length of a loader is the original's"


def _taken_out(script: Script, call: ast.Call) -> list[Edit]:
    """A call that gives its argument, left out."""
    stmt = script.statement(call)
    whole = isinstance(stmt, ast.Assign) and stmt.value is call
    if whole and ast.dump(stmt.targets[0]).replace("Store", "Load") == ast.dump(call.args[0]):  # type: ignore[attr-defined]
        return [script.delete(stmt)]
    return [script.replace(call, script.segment(call.args[0]))]


# Figures


def reduce_left_out(script: Script) -> Found:
    for call in script.calls("reduce"):
        why = _of_one_batch(script, call)
        yield script.mutant(
            "reduce left out", call, _taken_out(script, call), *words(call.args[0]), equivalent=why
        )


def reduce_of_one_left_out(script: Script) -> Found:
    """Of several values that are reduced at once, all but one."""
    yield from _of_one(script, "reduce of one left out", "reduce")


def gather_of_one_left_out(script: Script) -> Found:
    """Of several values that are gathered at once, all but one."""
    yield from _of_one(script, "gather of one left out", *GATHERS)


def _of_one(script: Script, kind: str, *methods: str) -> Found:
    for call in script.calls(*methods):
        stmt = script.statement(call)
        if not (
            isinstance(stmt, ast.Assign) and stmt.value is call and isinstance(stmt.targets[0], ast.Tuple)
        ):
            continue
        if not isinstance(call.args[0], ast.Tuple):
            continue
        targets = stmt.targets[0].elts
        rest = "".join(
            f", {script.segment(k.value) if k.arg is None else f'{k.arg}={script.segment(k.value)}'}"
            for k in call.keywords
        )
        for number, (target, one) in enumerate(zip(targets, call.args[0].elts, strict=True)):
            values = [
                script.segment(e)
                if i == number
                else f"{script.segment(call.func)}({script.segment(e)}{rest})"
                for i, e in enumerate(call.args[0].elts)
            ]
            yield script.mutant(
                kind, call, [script.replace(call, f"({', '.join(values)})")], *words(target), *words(one)
            )


def gather_left_out(script: Script) -> Found:
    for call in script.calls(*GATHERS):
        yield script.mutant("gather left out", call, _taken_out(script, call), *words(call.args[0]))


def sum_and_mean_swapped(script: Script) -> Found:
    for call in script.calls("reduce"):
        for keyword in call.keywords:
            if keyword.arg == "reduction" and isinstance(keyword.value, ast.Constant):
                other = "sum" if keyword.value.value == "mean" else "mean"
                kind = f"reduced by {other} in place of {keyword.value.value}"
                names = stored(script.statement(call))
                edit = script.replace(keyword.value, repr(other))
                why = _of_one_batch(script, call) or _quotient(script, call)
                yield script.mutant(kind, call, [edit], *names, equivalent=why)


def reduced_twice(script: Script) -> Found:
    for call in script.calls("reduce"):
        text = script.segment(call)
        mean = "mean" in text
        edit = script.replace(call.args[0], text)
        why = TWICE_MEAN if mean else _of_one_batch(script, call) or _quotient(script, call)
        yield script.mutant("reduced twice", call, [edit], *stored(script.statement(call)), equivalent=why)


def gathered_twice(script: Script) -> Found:
    for call in script.calls(*GATHERS):
        edit = script.replace(call.args[0], script.segment(call))
        yield script.mutant("gathered twice", call, [edit], *stored(script.statement(call)))


def reduced_in_each_round(script: Script) -> Found:
    """A total that is put together again after every batch."""
    for call in script.calls("reduce"):
        stmt = script.statement(call)
        block = script.block(stmt)
        loops = [one for one in block[: block.index(stmt)] if isinstance(one, LOOPS)]
        if loops and isinstance(stmt, ast.Assign) and stmt.value is call:
            equivalent = TWICE_MEAN if "mean" in script.segment(call) else ""
            inner = script.after(loops[-1].body[-1], script.segment(stmt))
            yield script.mutant(
                "reduced in each round",
                call,
                [script.delete(stmt), inner],
                *stored(stmt),
                equivalent=equivalent,
            )


def divided_by_another_count(script: Script) -> Found:
    """Batches for samples and samples for batches."""
    for node in script.of(ast.Call):
        if word(node.func) != "len" or not node.args or not _divides(script, node):
            continue
        arg = node.args[0]
        if isinstance(arg, ast.Attribute) and arg.attr == "dataset":
            loader, text = arg.value, f"len({script.segment(arg.value)})"
        elif script.is_prepared(arg):
            loader, text = arg, f"len({script.segment(arg)}.dataset)"
        else:
            continue
        shared = script.is_prepared(loader)
        why = "" if shared and not script.golden.total else OWN_BATCH if shared else NOT_SHARED
        loop = script.around(node, *LOOPS)
        if (
            loop is not None
            and any(call in ast.walk(loop) for call in script.calls("backward"))
            and script.around(node, ast.Expr)
        ):
            why = why or IN_TRAINING
        yield script.mutant("divided by another count", node, [script.replace(node, text)], equivalent=why)


def _divides(script: Script, node: ast.AST) -> bool:
    parent = script.parents[node]
    if isinstance(parent, ast.AugAssign):
        return isinstance(parent.op, ast.Div)
    return isinstance(parent, ast.BinOp) and isinstance(parent.op, ast.Div) and parent.right is node


def weight_left_out(script: Script) -> Found:
    """`loss * len(batch)` without the factor, where rows were gathered: the mean of means is divided by samples."""
    for node in script.of(ast.BinOp):
        counts = isinstance(node.right, ast.Call) and (word(node.right.func) in ("len", "size"))
        loop = script.around(node, *LOOPS)
        if (
            not isinstance(node.op, ast.Mult)
            or not counts
            or loop is None
            or not isinstance(script.statement(node), ast.AugAssign)
        ):
            continue
        gathered = any(script.around(call, *LOOPS) is loop for call in script.calls(*GATHERS))
        why = (
            "" if gathered is not script.golden.total else "mean and sum lead to what one process shows alike"
        )
        yield script.mutant(
            "weight of a mean left out",
            node,
            [script.replace(node, script.segment(node.left))],
            *stored(script.statement(node)),
            equivalent=why,
        )


def reset_left_out(script: Script) -> Found:
    """A total that is set to zero before the epochs only, and summed over the processes after each."""
    for call in script.calls("reduce"):
        stmt = script.statement(call)
        loop = script.around(stmt, *LOOPS)
        if loop is None or not isinstance(stmt, ast.Assign):
            continue
        for first in script.block(stmt):
            if (
                isinstance(first, ast.Assign)
                and isinstance(first.value, ast.Constant)
                and set(stored(first)) & set(stored(stmt))
            ):
                equivalent = TWICE_MEAN if "mean" in script.segment(call) else ""
                edits = [script.delete(first), script.before(loop, script.segment(first))]
                yield script.mutant(
                    "reset of a total left out", first, edits, *stored(first), equivalent=equivalent
                )


def factor_left_out(script: Script) -> Found:
    """The number of processes as a factor or divisor."""
    for node in script.of(ast.BinOp):
        if isinstance(node.op, ast.Mult | ast.Div) and word(node.right) in ("num_processes", "world_size"):
            names = stored(script.statement(node))
            rate = isinstance(script.parents[node], ast.keyword) and script.golden.distributed
            edit = script.replace(node, script.segment(node.left))
            why = (
                OWN_RATE
                if rate
                else _of_one_batch(script, node)
                if "reduce" in _function_text(script, node)
                else ""
            )
            yield script.mutant("number of processes left out", node, [edit], *names, equivalent=why)


def _of_one_batch(script: Script, node: ast.AST) -> str:
    """Whether a figure is one that is not added up anywhere: the last batch's, as the summary line says."""
    names = set(words(script.statement(node)))
    grown = [stored(stmt) for stmt in script.of(ast.AugAssign)]
    filled = [
        [word(getattr(call.func, "value", None))]
        for call in script.of(ast.Call)
        if word(call.func) in ("append", "extend")
    ]
    return "" if names & {name for found in [*grown, *filled] for name in found} else ONE_BATCH


def _quotient(script: Script, call: ast.Call) -> str:
    """Whether it is one of two sums over the processes of which nothing but the quotient is used."""
    function, together = script.around(call, *FUNCTIONS), list(script.calls("reduce", *GATHERS))
    if function is None:
        return ""
    made = [script.statement(other) for other in together if script.around(other, *FUNCTIONS) is function]
    names = {name for stmt in made for name in stored(stmt)}
    used = [
        node
        for node in ast.walk(function)
        if isinstance(node, ast.Name)
        and isinstance(node.ctx, ast.Load)
        and node.id in names
        and node.lineno > made[-1].lineno
    ]
    divided = [script.parents[node] for node in used]
    right = (
        len(names) == 2
        and used
        and all(isinstance(one, ast.BinOp) and isinstance(one.op, ast.Div) for one in divided)
    )
    return QUOTIENT if right else ""


def _function_text(script: Script, node: ast.AST) -> str:
    function = script.around(node, *FUNCTIONS)
    return script.segment(function) if function is not None else ""


# Backward


def backward_reduction_swapped(script: Script) -> Found:
    for call in script.calls("backward"):
        if script.golden.accelerate:
            continue
        text, loss = script.segment(call.func), script.segment(call.args[0])
        summed = any(k.arg == "reduction" for k in call.keywords)
        new, kind = (
            (f"{text}({loss})", "mean for sum")
            if summed
            else (f'{text}({loss}, reduction="sum")', "sum for mean")
        )
        yield script.mutant(f"gradients by {kind}", call, [script.replace(call, new)])


def plain_backward(script: Script) -> Found:
    for call in script.calls("backward"):
        yield script.mutant(
            "plain backward",
            call,
            [script.replace(call, f"{script.segment(call.args[0])}.backward()")],
            equivalent=_same_everywhere(script, call),
        )


def _same_everywhere(script: Script, call: ast.Call) -> str:
    """Whether no loader is prepared and no batch is cut: the gradients are the same on all ranks."""
    trees = [ast.parse(text) for text in script.golden.files.values()]
    names = {word(node.func) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return "" if names & {"DataLoader", "shard_batch", "get_loaders"} else ALL_BATCH


def accumulate_left_out(script: Script) -> Found:
    for call in script.calls("accumulate"):
        made = [other for other in script.of(ast.Call) if word(other.func) == "Accelerator"]
        edits = [script.replace(call, "contextlib.nullcontext()"), _import(script, "contextlib")]
        yield script.mutant("accumulation left out", call, edits, reach=made)


def _import(script: Script, name: str) -> Edit:
    first = next(
        stmt
        for stmt in script.tree.body
        if isinstance(stmt, ast.Import) or (isinstance(stmt, ast.ImportFrom) and stmt.module != "__future__")
    )
    return script.before(first, f"import {name}")


def shard_left_out(script: Script) -> Found:
    for call in script.calls("shard_batch"):
        yield script.mutant(
            "shard_batch left out", call, [script.delete(script.statement(call))], equivalent=ALL_BATCH
        )


# Once


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
    return (
        ("is_main_process" in test or "is_local_main" in test)
        and "Or()" not in test
        or _is_guarded(script, guard)
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


# Some ranks only


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
            equivalent=_same_everywhere(script, call),
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
                equivalent=_same_everywhere(script, call),
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
        same = _same_everywhere(script, call)
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


# Preparation


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
                _same_everywhere(script, call) if "model" in kind else ""
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
        and all(_quotient(script, call) for call in reduced)
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


# What the mutators ask


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


MUTATORS: tuple[Mutator, ...] = (
    reduce_left_out, reduce_of_one_left_out, gather_left_out, gather_of_one_left_out, sum_and_mean_swapped, reduced_twice,
    gathered_twice, reduced_in_each_round, divided_by_another_count, weight_left_out, reset_left_out, factor_left_out,
    backward_reduction_swapped, plain_backward, accumulate_left_out, shard_left_out, print_by_all, save_by_all,
    guard_left_out, guard_turned_round, unwrap_left_out, wait_left_out, meeting_under_guard, step_under_guard, call_under_guard,
    meeting_by_a_batch, left_early, prepare_left_out, schedule_made_after_prepare, seed_by_rank,
)  # fmt: skip


def mutants_of(golden: Golden) -> Iterator[Mutant]:
    """All mutants of all files of a golden."""
    for file in golden.files:
        script = Script(golden, file)
        for mutator in MUTATORS:
            yield from (mutant for mutant in mutator(script) if mutant is not None)
