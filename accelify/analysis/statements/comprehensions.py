"""The variables of comprehensions, which are local to them: `[x.train() for x in nets]` is about no other `x`."""

from __future__ import annotations

import ast
from collections import Counter

from accelify.analysis.syntax import Tree, walk

_KINDS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


def own_names(tree: Tree) -> dict[ast.Name, str]:
    """The names in comprehensions that are bound there and somewhere else too, each with a unique name."""
    comprehensions = list(tree.nodes(*_KINDS))
    bound = [
        {n.id for g in c.generators for n in walk(g.target) if isinstance(n, ast.Name)}
        for c in comprehensions
        if isinstance(c, _KINDS)
    ]
    if not any(bound):
        return {}
    wanted = set().union(*bound)
    stored = Counter(n.id for n in tree.nodes(ast.Name) if n.id in wanted and isinstance(n.ctx, ast.Store))
    found: dict[ast.Name, str] = {}
    # Those inside of others come later, and have the last word.
    for comprehension, names in sorted(
        zip(comprehensions, bound, strict=True), key=lambda p: tree.start(p[0])
    ):
        assert isinstance(comprehension, _KINDS)
        shared = {name for name in names if stored[name] > 1}
        if not shared:
            continue
        first, *others = comprehension.generators
        parts: list[ast.AST] = [first.target, *first.ifs, *others]
        if isinstance(comprehension, ast.DictComp):
            parts += [comprehension.key, comprehension.value]
        else:
            parts.append(comprehension.elt)
        for node in (n for part in parts for n in walk(part)):
            if isinstance(node, ast.Name) and node.id in shared:
                found[node] = f"{node.id} {comprehension.lineno}:{comprehension.col_offset}"
    return found
