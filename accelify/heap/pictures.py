"""What is drawn: it goes into the current picture, and others see it where that is saved or shown.

The figures and axes of a library are taken for one picture, which a new figure begins anew: `plt.plot(x)` and
`ax.plot(x)` draw into what `plt.savefig` and `fig.savefig` write.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from accelify.domains.placement import function
from accelify.heap.builtin_calls import container_method
from accelify.heap.containers import array_of, put
from accelify.heap.values import Container, Value
from accelify.knowledge import Row

if TYPE_CHECKING:
    from accelify.heap.interpreter import Interpreter

_DRAWING = "matplotlib."


class Pictures:
    """The current picture."""

    def __init__(self, engine: Interpreter) -> None:
        self.engine = engine
        self.drawn = Container("list", engine.run.store)

    def shown(self, row: Row, receiver: Value | None) -> list[Value]:
        """What a call shows or saves of it.

        Args:
            row: the function.
            receiver: the object of which it is a method, None of a function.
        """
        of_object = receiver is not None and receiver.type.startswith(_DRAWING)
        is_shown = row.name.startswith(_DRAWING) and any(one.receiver for one in row.content)
        if is_shown or (of_object and row.effect in ("file.write", "figure.show")):
            return [Value(refs=(self.drawn,), type="list")]
        return []

    def note(
        self,
        row: Row,
        receiver: Value | None,
        args: Sequence[Value],
        keywords: Mapping[str, Value],
        node: ast.AST,
    ) -> None:
        """Note what a call draws, or that it begins a new one.

        Args:
            row: the function.
            receiver: the object of which it is a method, None of a function.
            args, keywords: what it is given.
            node: the call.
        """
        of_object = receiver is not None and receiver.type.startswith(_DRAWING)
        if not (of_object or row.name.startswith(_DRAWING)):
            return
        run = self.engine.run
        if any(one.receiver for one in row.overwrites):
            container_method(self.engine, Value(refs=(self.drawn,)), self.drawn, "clear", [], {}, node)
        elif any(one.receiver for one in row.mutates):
            given = [*args, *keywords.values()]
            place = function((array_of(value) for value in given), rowwise=True)
            if not place.is_same:
                put(run, self.drawn, Value(place, run.reason(node, f"`{run.segment(node)}`", *given)))
