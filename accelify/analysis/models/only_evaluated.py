"""A second model of the same kind that is left unprepared: loaded, put into evaluation mode, and run, or thrown away.

tested = build().cuda()                          for x, y in loader:
tested.load_state_dict(model.state_dict())           tried = build().cuda()
tested.eval()                                        tried.load_state_dict(model.state_dict())
evaluate(tested, test_loader)

Or one that is only counted: `probe = build()` in a function that adds up the sizes of `probe.parameters()`.
Or one that is made to be written: `scripted = torch.jit.script(model)`, `scripted.save(path)`.
"""

from __future__ import annotations

import ast

from accelify.analysis import values as v
from accelify.analysis.holders import Holder
from accelify.analysis.scopes import Scope
from accelify.analysis.script import ScriptModel
from accelify.analysis.statements.local_objects import LOOKS
from accelify.analysis.syntax import walk

# What asks for weights in order to change them, or turns evaluation back into training.
_TRAINING = frozenset(
    "parameters named_parameters train zero_grad requires_grad_ apply children modules".split()
)
# Methods of a model that is compiled to be written into a file.
_WRITTEN = frozenset({"save", "eval", "cpu"})
# What shows a model, or asks what it is.
_SHOWING = frozenset(
    "builtins.print builtins.str builtins.repr builtins.len builtins.type builtins.isinstance".split()
)


def is_only_counted(script: ScriptModel, holder: Holder, scope: Scope, creations: list[ast.stmt]) -> bool:
    """Whether a function makes a model only to look at its weights, and neither runs it nor passes it on.

    Args:
        script: its model.
        holder: a name of a factory's model, besides the one that is trained.
        scope: the function.
        creations: the statements that make it there; those that give the trained model a second name make none.
    """
    made = bool(creations) and all(isinstance(getattr(s, "value", None), ast.Call) for s in creations)
    if not made or holder.cls is not None or scope.kind != "function":
        return False
    reads = script.reads(holder.name, scope)
    return bool(reads) and all(_is_looked_at(script, name) for name in reads)


def _is_looked_at(script: ScriptModel, name: ast.Name) -> bool:
    parent = script.tree.parent(name)
    if isinstance(parent, ast.Call) and parent.func is not name:
        return (script.qualname(parent.func) or "") in _SHOWING
    if not isinstance(parent, ast.Attribute) or parent.attr not in LOOKS:
        return False
    for ancestor in script.tree.ancestors(parent):
        if isinstance(ancestor, (ast.Return, ast.Yield, ast.YieldFrom)) and parent.attr == "state_dict":
            return False
        if isinstance(ancestor, ast.stmt):
            break
        if isinstance(ancestor, ast.Call) and script.is_a(ancestor, v.OPTIMIZER):
            return False
    return True


def is_only_evaluated(script: ScriptModel, holder: Holder, scope: Scope) -> bool:
    """Whether a variable's model is loaded and evaluated, or saved, so that prepare would average it for nothing.

    Args:
        script: its model.
        holder: a name of a factory's model, besides the one that is trained.
        scope: where it is assigned.
    """
    if holder.cls is not None:
        return False
    asked: set[str] = set()
    handed = False
    for name in script.reads(holder.name, scope):
        parent = script.tree.parent(name)
        if isinstance(parent, ast.Attribute):
            asked.add(parent.attr)
        elif isinstance(parent, ast.Call) and script.trains(parent):
            return False
        elif not isinstance(parent, (ast.Call, ast.keyword)):
            return False  # assigned to another name, in a list, in an object
        else:
            handed = True
    if "save" in asked and asked <= _WRITTEN and not handed:
        return True
    return {"eval", "load_state_dict"} <= asked and not asked & _TRAINING


def is_made_for_batches(script: ScriptModel, creations: list[ast.stmt]) -> bool:
    """Whether a model is made again for each batch that another one of its making trains on, without an optimizer.

    Weights that are tried out and thrown away: prepare would keep every one of them.
    """
    loops = [script.enclosing_loops(s)[:1] for s in creations]
    around = {loop for one in loops for loop in one}
    training = {loop for loop, _ in script.loader_loops if any(map(script.trains, loop.body))}
    if not creations or not all(loops) or not around <= training:
        return False
    made = (s.value for loop in around for s in walk(loop) if isinstance(s, ast.Assign))
    return not any(isinstance(value, ast.Call) and script.is_a(value, v.OPTIMIZER) for value in made)
