"""Scripts that have nothing to say: seen from their words, so that nothing else of accelify is imported for them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from accelify.project import Imports
from accelify.source import Source, is_installed, may_be_started

# What a script writes, or the modules that it imports, that is distributed already.
DISTRIBUTED = ("accelerat", "accelify", "distributed", "Distributed")


def may_train(text: str) -> bool:
    """Whether a script can have a training loop: one with neither a backward nor an optimizer has none."""
    if "torch" in text:
        # A trainer that is imported by its name is looked for, or missed, by name.
        return "backward" in text or "optim" in text or "import_module(" in text
    # torch can be imported through helpers of the project, and a loop over an argument needs no name of torch.
    return ".backward(" in text


def is_made_by_configuration(text: str) -> bool:
    """Whether a script has the words of those that make what their configuration names."""
    return "hydra" in text and "instantiate(" in text


def may_be_distributed(text: str) -> bool:
    """Whether a script can be one that is written for several processes."""
    return any(word in text for word in DISTRIBUTED)


_TESTS = re.compile(r"^[ \t]*(?:import|from)[ \t]+(?:unittest|pytest|torch\.testing)\b", re.MULTILINE)


def has_nothing_to_say(source: Source, imports: Imports, named: bool = True) -> bool:
    """Whether nothing can be wrong with a script, so that it need not be looked at further.

    Args:
        source: the script.
        imports: what the files of its project import.
        named: the user named it; what was found in a folder has to train, too, or to lead to what does.

    Raises:
        SourceError: it is not Python.
    """
    text = source.text
    if "accelify:" in text or "TODO(accelify " in text:  # a comment that may silence nothing, or a place left
        return False
    if not named:
        if _TESTS.search(text):
            return True  # it trains to be checked
        if not _trains(source.tree) and not (
            may_be_started(text.encode())
            and (source.path is None or not is_installed(source.path))
            and (
                is_made_by_configuration(text)
                or "import_module(" in text
                or _leads_to_training(source, imports)
            )
        ):
            return True
    if may_train(text) or may_be_distributed(text) or is_made_by_configuration(text):
        words = "\n".join(_words(source.tree))
        if any(word in words for word in (*_TRAINING, *DISTRIBUTED)):
            return False
    return not _leads_to_training(source, imports)


def _leads_to_training(source: Source, imports: Imports) -> bool:
    return source.path is not None and imports.leads_to_training(Path(source.path))


def _trains(tree: ast.Module) -> bool:
    """Whether a module has a backward with a step, or goes on with gradients in a loop with one.

    What only defines a backward, or passes it on, trains nothing.
    """
    backward = looped = step = gradient = False
    left: list[tuple[ast.AST, bool]] = [(tree, False)]
    while left:
        node, within = left.pop()
        if isinstance(node, ast.Attribute):
            backward = backward or node.attr == "backward"
            looped = looped or (within and node.attr == "backward")
            gradient = gradient or (within and node.attr == "grad")
            step = step or node.attr in _STEPS
        elif isinstance(node, ast.Constant):
            backward = backward or node.value == "backward"
        within = within or isinstance(node, (ast.For, ast.AsyncFor, ast.While))
        left += ((one, within) for one in ast.iter_child_nodes(node))
    return (backward and step) or (looped and gradient)


_STEPS = frozenset({"step", "zero_grad", "minimize", "manual_backward"})
# Of names and texts, where comments and docstrings are left out: also what is put together from texts.
_TRAINING = ("backward", "optim", "import_module", "instantiate")


def _words(tree: ast.AST) -> Iterator[str]:
    """The names and texts of a script, without its docstrings."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue
        for _, value in ast.iter_fields(node):
            if isinstance(value, ast.AST):
                left.append(value)
            elif isinstance(value, str):
                yield value
            elif isinstance(value, list):
                left += (one for one in value if isinstance(one, ast.AST))
                yield from (one for one in value if isinstance(one, str))
