"""Options of a command line: what they are by default, where that differs between processes or is a number.

An option with such a default may be a name by the clock, or the number of a GPU. All others are the same everywhere.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence

from accelify.heap.containers import array_of
from accelify.heap.fields import OTHERS
from accelify.heap.run import Run
from accelify.heap.values import Instance, Value, constant

# The type of an option that is a number where nobody gives it.
NUMBER = "#number of an option"
# Of a parser: the names of such options.
_NAMES = "#options"


def added(run: Run, parser: Value, args: Sequence[Value], keywords: Mapping[str, Value]) -> None:
    """Note what an option is by default: `parser.add_argument("--name", default=time.strftime("%H"))`."""
    default, stated = keywords.get("default"), keywords.get("dest")
    flags = [one.const for one in args if isinstance(one.const, str) and one.const.startswith("-")]
    long = [flag for flag in flags if flag.startswith("--")] or flags
    name = stated.const if stated is not None else long[0].lstrip("-").replace("-", "_") if long else None
    if default is None or not isinstance(name, str):
        return
    # Where a launcher started the script, a number is one of each process.
    number = type(default.const) is int and default.const >= 0 and not run.checks
    if number or not array_of(default).is_same:
        for ref in parser.of(Instance):
            known = run.read(ref, _NAMES)
            names = known.const if known is not None and isinstance(known.const, tuple) else ()
            run.store.set(ref, _NAMES, constant((*names, name)))
            run.store.set(ref, name, Value(type=NUMBER) if number else default.plain())


def parsed(run: Run, parser: Value, node: ast.AST) -> Value:
    """The options that a parser reads: what is written to them is read again."""
    options = run.allocate((node, "parse_args"), lambda: Instance(None, "argparse.Namespace"))
    run.store.set(options, OTHERS, Value())
    for ref in parser.of(Instance):
        known = run.read(ref, _NAMES)
        for name in known.const if known is not None and isinstance(known.const, tuple) else ():
            run.store.set(options, name, run.read(ref, name))
    return Value(refs=(options,))
