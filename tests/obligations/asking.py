"""What mutators ask of a script, and the rules by which a change is no fault."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

from tests.obligations.scripts import FUNCTIONS, GATHERS, Mutant, Script, stored, word

Found = Iterator[Mutant | None]
Mutator = Callable[[Script], Found]
LOOPS = (ast.For, ast.While)

# Why a change is no fault.
NOT_SHARED = "the loader is not prepared, so that its length is the original's"
ALL_BATCH = "every process trains with the whole batch: the gradients are the original's"
PLAIN_NAMES = "accelify's prepared models have the names and the attributes of the plain ones"
NO_READER = "nothing that another process wrote is read afterwards"
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


def quotient(script: Script, call: ast.Call) -> str:
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


def same_everywhere(script: Script, call: ast.Call) -> str:
    """Whether no loader is prepared and no batch is cut: the gradients are the same on all ranks."""
    trees = [ast.parse(text) for text in script.golden.files.values()]
    names = {word(node.func) for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Call)}
    return "" if names & {"DataLoader", "shard_batch", "get_loaders"} else ALL_BATCH
