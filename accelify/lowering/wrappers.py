"""DistributedDataParallel removed from around models, with its options stored for the Accelerator."""

from __future__ import annotations

import ast

from accelify.analysis import knowledge as k
from accelify.analysis import values as v
from accelify.analysis.syntax import call_argument, dotted, is_constant, names_in
from accelify.lowering.work import Work
from accelify.transforms.base import Rule

# Options of DistributedDataParallel: those that the Accelerator's wrapper keeps, and those that it settles itself.
_STORED = frozenset(
    "dim broadcast_buffers bucket_cap_mb find_unused_parameters check_reduction gradient_as_bucket_view "
    "static_graph".split()
)
_SETTLED = frozenset(
    "module device_ids output_device device_mesh delay_allreduce message_size allreduce_always_fp32 "
    "gradient_average gradient_predivide_factor retain_allreduce_buffers num_allreduce_streams shared_param "
    "init_sync".split()
)


class Wrappers:
    """The wrappers of one script.

    Args:
        work: the script.
        rule: of what is taken out.
    """

    def __init__(self, work: Work, rule: Rule) -> None:
        self.work = work
        self.rule = rule
        self.script = work.script
        self.tree = work.tree

    def lower(self, call: ast.Call) -> None:
        """Take DistributedDataParallel away from around a model."""
        work = self.work
        inner = call_argument(call, 0, "module")
        if inner is None:
            work.problem(call, f"line {call.lineno} wraps no model that can be seen")
            return
        for keyword in call.keywords:
            name = keyword.arg or "**"
            if name in _STORED:
                self._option(name, keyword.value)
            elif name not in _SETTLED:
                work.problem(
                    keyword,
                    f"line {call.lineno} gives DistributedDataParallel `{name}`, which is not understood",
                )
        self._unwrapped(call, inner)
        work.found(self.rule, call, "prepare wraps the model for several processes")

    def lower_data_parallel(self, call: ast.Call) -> None:
        """Take a DataParallel out that is next to it."""
        inner = call_argument(call, 0, "module")
        stmt = self.tree.parent(call)
        # What is next to DistributedDataParallel for the other case; the rest is the ordinary conversion's.
        if (
            inner is not None
            and isinstance(stmt, ast.Assign)
            and dotted(stmt.targets[0]) == dotted(inner) is not None
        ):
            self.work.delete(stmt)

    def _unwrapped(self, call: ast.Call, inner: ast.expr) -> None:
        stmt = self.tree.parent(call)
        if isinstance(stmt, ast.Assign) and len(stmt.targets) == 1:
            if dotted(stmt.targets[0]) == dotted(inner) is not None:
                self.work.delete(stmt)
                return
            name = (dotted(stmt.targets[0]) or "").rsplit(".", 1)[-1]
            self.work.known.wrapped |= {name}
        self.work.keep_argument(call, inner)

    def _option(self, name: str, value: ast.expr) -> None:
        known = self.work.known
        if is_constant(value, False) and name == "find_unused_parameters":
            return
        text = f"{name}={self.tree.segment(value)}"
        old = known.arguments.get("kwargs_handlers", "")
        inner = old.removeprefix("[DistributedDataParallelKwargs(").removesuffix(")]")
        options = [o for o in inner.split(", ") if o]
        if any(o.split("=")[0] == name and o != text for o in options):
            self.work.problem(
                value, f"line {value.lineno} gives DistributedDataParallel another `{name}` than before"
            )
            return
        if text not in options:
            options.append(text)
        known.arguments["kwargs_handlers"] = f"[DistributedDataParallelKwargs({', '.join(options)})]"
        known.names |= frozenset(names_in(value))

    def find_unread(self) -> None:
        """Report `class Wrapped(DDP)` and the class passed on as a value, which are not understood."""
        for node in [*self.tree.nodes(ast.Name), *self.tree.nodes(ast.Attribute)]:
            if isinstance(node, ast.Attribute) and node.attr == "require_backward_grad_sync":
                self.work.problem(node, f"line {node.lineno} switches the reduction of gradients by hand")
            if not isinstance(node.ctx, ast.Load):
                continue
            names = {w.name for w in self.script.values(node) if isinstance(w, v.Imported)}
            parent = self.tree.parent(node)
            if names & k.DDP_WRAPPERS and not (isinstance(parent, ast.Call) and parent.func is node):
                outer = parent if not isinstance(parent, ast.Tuple) else self.tree.parent(parent)
                if not (isinstance(outer, ast.Call) and dotted(outer.func) == "isinstance"):
                    self.work.problem(
                        node, f"line {node.lineno} uses DistributedDataParallel other than by calling it"
                    )
