"""The engine that an Accelerator trains with: the wrappers of DeepSpeed and FSDP hand attributes on to the model, and
divide its state between the processes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence

from accelify.analysis.modules.launchers import engines_of
from accelify.heap.run import Run
from accelify.heap.values import ModuleRef, Value

# How models are: changed themselves, with no wrapper around them, or in the wrapper of such an engine.
ALTERED, ENGINE = "altered", "engine"
# What is said of a state that one process may save by itself.
SAVES_ALONE = "alone"
_NUMBERED = re.compile(r"\bautomatic_checkpoint_naming\s*=\s*(?!False\b)")
# Stages of DeepSpeed in which each process has all weights.
_WHOLE = re.compile(r"\b(?:zero_)?stage[\"']?\s*[=:]\s*[012]\b")
_SHARDING = frozenset({"DEEPSPEED", "FSDP"})
_PLUGINS = ("deepspeed_plugin", "deepspeed_plugins", "fsdp_plugin")
_IN_ENVIRONMENT = re.compile(r"\bACCELERATE_USE_(?:DEEPSPEED|FSDP)\b")


def is_sharding(run: Run, keywords: Mapping[str, Value]) -> bool:
    """Whether an Accelerator shards models: it gets a plugin for that whatever is asked, the script sets an option of
    one, or the project starts it in no other way.

    Args:
        run: the run.
        keywords: what the Accelerator gets.
    """
    given = [value for name, value in keywords.items() if name in _PLUGINS]
    if any(one.refs and not one.optional for one in given) or any(map(_is_set_up, run.modules)):
        return True
    if run.path is None or not run.checks:
        return False
    found = engines_of(run.path)
    return bool(found) and found <= _SHARDING


def saves_alone(run: Run) -> bool:
    """Whether one process can save the state without the others: no model is sharded, and no folder is numbered, in
    front of which all wait."""
    return run.at_model and not run.in_place and not any(_NUMBERED.search(one.text) for one in run.modules)


def puts_together(run: Run) -> bool:
    """Whether the processes put the weights of a model together where its state is asked for: each has a part."""
    return bool(run.in_place) and not any(_WHOLE.search(one.text) for one in run.modules)


def _is_set_up(module: ModuleRef) -> bool:
    """Whether a module sets an option of the plugin, or says in the environment that there is one."""
    if _IN_ENVIRONMENT.search(module.text):
        return True
    return ".deepspeed_config" in module.text and any(
        isinstance(target, ast.Subscript) and ast.unparse(target.value).endswith(".deepspeed_config")
        for stmt in _unconditional(module.tree.body if module.tree is not None else [])
        for target in (stmt.targets if isinstance(stmt, ast.Assign) else ())
    )


def _unconditional(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for stmt in body:
        yield stmt
        if isinstance(stmt, ast.FunctionDef | ast.ClassDef | ast.With):
            yield from _unconditional(stmt.body)
