"""DistributedSampler: the loader draws by itself again, and prepare shares its batches out."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.syntax import call_argument, call_keyword, dotted, is_constant, walk
from accelify.lowering.work import Work
from accelify.transforms.base import Rule
from accelify.writer import edits as verbs

_ORDERED = frozenset({"torch.utils.data.SequentialSampler", "torch.utils.data.sampler.SequentialSampler"})
_SHUFFLED = frozenset({"torch.utils.data.RandomSampler", "torch.utils.data.sampler.RandomSampler"})


class Samplers:
    """Takes the distributed samplers of one script out."""

    def __init__(self, work: Work, rule: Rule) -> None:
        self.work = work
        self.rule = rule
        self.script = work.script
        self.tree = work.tree
        self.sites = {
            c
            for c in self.script.calls()
            if any(
                isinstance(w, v.Imported) and w.name in k.DISTRIBUTED_SAMPLERS
                for w in self.script.values(c.func)
            )
        }

    def lower(self) -> None:
        """Rewrite the loaders, take out set_epoch, then the samplers themselves."""
        for call in self.script.calls():
            if (self.script.qualname(call.func) or "") in k.LOADER_CLASSES or self._makes_loader(call):
                self._loader(call)
        for call in self.script.calls():
            if isinstance(call.func, ast.Attribute) and call.func.attr == "set_epoch":
                stmt = self.tree.parent(call)
                if isinstance(stmt, ast.Expr) and self._is_sampler(call.func.value):
                    self.work.delete(stmt)
                    self.work.found(self.rule, call, "the loader shuffles anew in every epoch by itself")
        self._rest()

    def _makes_loader(self, call: ast.Call) -> bool:
        return call_keyword(call, "sampler") is not None and self.script.is_a(call, v.LOADER)

    def _sampler_sites(self, node: ast.expr) -> set[ast.Call]:
        return {t.site for t in self.script.entities(node) if t.site in self.sites}

    def _is_sampler(self, node: ast.expr) -> bool:
        if self._sampler_sites(node):
            return True
        return isinstance(node, ast.Attribute) and node.attr == "sampler"

    def _loader(self, call: ast.Call) -> None:
        work, _tree = self.work, self.tree
        given = call_argument(call, 3, "sampler")
        inner = call_keyword(call, "batch_sampler")
        if inner is not None and any(self._sampler_sites(a) for a in walk(inner) if isinstance(a, ast.expr)):
            work.problem(call, f"line {call.lineno} gives a loader batches of a DistributedSampler")
            return
        if any(kw.arg is None for kw in call.keywords) and given is None:
            return
        sites = self._sampler_sites(given) if given is not None else set()
        if not sites:
            return
        texts = {self._shuffle(site) for site in sites}
        if any(self.script.scope_of(s) is not self.script.scope_of(call) for s in sites):
            texts = {t if t in ("True", "False") else None for t in texts}
        text = next(iter(texts))
        if len(texts) != 1 or text is None:
            work.problem(
                call, f"line {call.lineno} has a sampler of which it cannot be seen whether it shuffles"
            )
            return
        if not any(kw.arg == "sampler" for kw in call.keywords):
            work.problem(call, f"line {call.lineno} gives a loader its sampler by place, not by name")
            return
        sampler = next(kw for kw in call.keywords if kw.arg == "sampler")
        shuffle = next((kw for kw in call.keywords if kw.arg == "shuffle"), None)
        placed = call.args[2] if len(call.args) > 2 else None
        dropped: list[ast.expr | ast.keyword] = [sampler]
        if text != "False" and shuffle is None and placed is None:
            work.edits.append(verbs.replace(sampler, f"shuffle={text}"))
            dropped = []
        elif shuffle is not None and text == "False":
            dropped.append(shuffle)
        elif shuffle is not None:
            work.edits.append(verbs.replace(shuffle, f"shuffle={text}"))
        elif placed is not None:
            work.replace(placed, text)
        if dropped:
            work.drop_arguments(call, dropped)
        work.sharded.append(call)
        work.found(self.rule, call, "prepare shares the batches out over the processes")

    def _shuffle(self, site: ast.Call) -> str | None:
        value = call_argument(site, 3, "shuffle")
        if any(kw.arg is None for kw in site.keywords):
            return None
        if value is None:
            return "True"
        if isinstance(value, ast.Constant):
            return str(value.value)
        uniform = self.script.is_uniform(value) and not any(isinstance(n, ast.Call) for n in walk(value))
        return self.tree.segment(value) if uniform else None

    # -- the samplers themselves

    def _rest(self) -> None:
        """Remove a sampler that nobody reads any more; replace one that is only passed on by None."""
        names = self._holders()
        for site in self.sites:
            if not any(site in self._sampler_sites(a) for c in self.work.sharded for a in _given(c)):
                self.work.problem(
                    site, f"the DistributedSampler of line {site.lineno} reaches no loader that can be seen"
                )
                return
        reads = [
            n
            for n in [*self.tree.nodes(ast.Name), *self.tree.nodes(ast.Attribute)]
            if isinstance(n.ctx, ast.Load) and self._sampler_sites(n) & self.sites
        ]
        left = self.work.left(reads)
        for node in left:
            if not self._is_harmless(node):
                line = getattr(node, "lineno", 0)
                self.work.problem(
                    node, f"line {line} uses a DistributedSampler for something else than a loader"
                )
                return
        retained = {site for n in left if isinstance(n, ast.expr) for site in self._sampler_sites(n)}
        for site in self.sites:
            stmt = self.tree.parent(site)
            self.work.found(self.rule, site, "the loader draws by itself, and prepare shares its batches out")
            if site in retained or not isinstance(stmt, ast.Assign):
                self.work.replace(site, "None")
        if retained:
            return
        for stmt in self.tree.nodes(ast.Assign):
            contained = [dotted(t) for t in stmt.targets]
            if len(contained) == 1 and contained[0] in names and self._only_sampler(stmt.value):
                self.work.delete(stmt)

    def _holders(self) -> set[str]:
        return {
            str(dotted(t))
            for stmt in self.tree.nodes(ast.Assign)
            if self._sampler_sites(stmt.value)
            for t in stmt.targets
            if dotted(t) is not None
        }

    def _only_sampler(self, value: ast.expr) -> bool:
        """What may be assigned beside the distributed sampler: None, or a sampler that draws in the same way."""
        if value in self.sites or is_constant(value, None):
            return True
        if isinstance(value, ast.IfExp):
            return self._only_sampler(value.body) and self._only_sampler(value.orelse)
        return (
            isinstance(value, ast.Call) and (self.script.qualname(value.func) or "") in _ORDERED | _SHUFFLED
        )

    def _is_harmless(self, node: ast.AST) -> bool:
        """Whether a sampler is only passed on or compared with None here."""
        parent = self.tree.parent(node)
        if isinstance(parent, ast.Compare):
            return all(is_constant(c, None) for c in parent.comparators)
        if isinstance(parent, ast.If):
            return True
        if isinstance(parent, (ast.Return, ast.Tuple, ast.Assign)):
            return True
        if isinstance(parent, ast.keyword):
            parent = self.tree.parent(parent)
        return isinstance(parent, ast.Call) and bool(self.script.callees(parent))


def _given(call: ast.Call) -> list[ast.expr]:
    return [*call.args, *[kw.value for kw in call.keywords]]
