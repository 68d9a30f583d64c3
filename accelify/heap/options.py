"""Options of a command line: what they are by default, where that differs between processes, is a number or a path.

An option with such a default may be a name by the clock, or the number of a GPU. All others are the same everywhere.
By its default path an option names the file that the script writes under a path of its own:
`os.path.join(args.root, "best.pth")` after `torch.save(state, "./kept/best.pth")`.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence

from accelify.heap.containers import array_of
from accelify.heap.fields import OTHERS
from accelify.heap.run import Run
from accelify.heap.values import Instance, Value, constant

# The type of an option that is a number where nobody gives it.
NUMBER = "#number of an option"
# A default that is a path, and no word by which a script chooses a module, a key or an attribute.
_PATH = re.compile(r"^(?!\w+://)[^*%{}\x01]*(/|\w\.[a-z]\w{1,4}$)[^*%{}\x01]*$")
# A default that is one device for all processes.
_DEVICE = re.compile(r"(?:cuda|xpu|npu):\d+")
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
    if type(default.const) is int and default.const >= 0 and not run.checks:
        value = Value(type=NUMBER)
    elif not array_of(default).is_same:
        value = default.plain()
    elif isinstance(default.const, str) and (
        _PATH.match(default.const) or (run.checks and _DEVICE.fullmatch(default.const))
    ):
        value = Value(text=default.const)
    else:
        return
    for ref in parser.of(Instance):
        known = run.read(ref, _NAMES)
        names = known.const if known is not None and isinstance(known.const, tuple) else ()
        run.store.set(ref, _NAMES, constant((*names, name)))
        run.store.set(ref, name, value)


def parsed(run: Run, parser: Value, node: ast.AST) -> Value:
    """The options that a parser reads: what is written to them is read again."""
    options = run.allocate((node, "parse_args"), lambda: Instance(None, "argparse.Namespace"))
    run.store.set(options, OTHERS, Value())
    for ref in parser.of(Instance):
        known = run.read(ref, _NAMES)
        for name in known.const if known is not None and isinstance(known.const, tuple) else ():
            run.store.set(options, name, run.read(ref, name))
    return Value(refs=(options,))
