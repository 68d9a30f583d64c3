"""What is known of a script that was brought back to one device first (`accelify.lowering`)."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from accelify.analysis.syntax import Node, Tree

# Placeholder for the Accelerator where a script called torch.distributed; replaced by its name at that place.
PLACEHOLDER = "__accelerator__"


class MainTest(NamedTuple):
    """A test that distinguishes the main process from the others, by its place: `rank == 0`.

    `attribute` is the Accelerator's name of it; where it is `negated`, only the others pass: `rank != 0`.
    """

    start: int
    end: int
    attribute: str
    negated: bool = False


@dataclass
class Lowered:
    """What a script's plain form does not contain any more. Places are byte offsets in the plain form.

    `distributed`: it was distributed by hand, so that its batch sizes and schedules are those of one process.
    `sharded`: where the loaders are made that had a DistributedSampler.
    `reduces`: the script reduces its metrics over processes itself.
    `line_of`: the line of the script for a line of its plain form.
    `wrapped`: names of models that were wrapped for several processes.
    `arguments`: what the Accelerator is made with, as source; `names` are those that the arguments read.
    """

    distributed: bool = False
    sharded: frozenset[int] = frozenset()
    mains: list[MainTest] = field(default_factory=list)
    reduces: bool = False
    arguments: dict[str, str] = field(default_factory=dict)
    names: frozenset[str] = frozenset()
    wrapped: frozenset[str] = frozenset()
    line_of: Callable[[int], int] = lambda line: line

    def is_sharded(self, tree: Tree, loader: ast.Call) -> bool:
        """Whether a loader had a DistributedSampler."""
        return tree.start(loader) in self.sharded

    def main_tests(self, tree: Tree) -> list[tuple[ast.expr, MainTest]]:
        """The expressions that distinguish the main process from the others."""
        wanted = {(m.start, m.end): m for m in self.mains}
        found = []
        for node in tree.nodes(ast.Compare, ast.UnaryOp, ast.Name, ast.Attribute, ast.Call) if wanted else ():
            test = wanted.get((tree.start(node), tree.end(node)))
            if test is not None:
                found.append((node, test))
        return found

    def main_only(self, tree: Tree) -> set[Node]:
        """The statements and expressions that only the main process runs."""
        found: set[Node] = set()
        for node, test in self.main_tests(tree):
            child: Node = node
            negated = test.negated
            for ancestor in tree.ancestors(node):
                if isinstance(ancestor, ast.UnaryOp) and isinstance(ancestor.op, ast.Not):
                    negated = not negated
                elif isinstance(ancestor, ast.If) and child is ancestor.test:
                    found.update(_beside(tree, ancestor) if negated else ancestor.body)
                elif isinstance(ancestor, ast.IfExp) and child is ancestor.test:
                    found.add(ancestor.orelse if negated else ancestor.body)
                elif isinstance(ancestor, ast.BoolOp) and isinstance(ancestor.op, ast.And) and not negated:
                    found.update(ancestor.values[ancestor.values.index(child) + 1 :])  # type: ignore[arg-type]
                elif not isinstance(ancestor, ast.BoolOp):
                    break
                child = ancestor
        return found


def _beside(tree: Tree, branch: ast.If) -> list[ast.stmt]:
    """What runs where `if not main:` is not taken: its `else`, and all that follows when it leaves."""
    found = list(branch.orelse)
    if isinstance(branch.body[-1], (ast.Return, ast.Continue, ast.Break)):
        block = tree.block_of(branch)[2]
        found += block[block.index(branch) + 1 :]
    return found
