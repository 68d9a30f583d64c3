"""Where `accelify` begins: what every command shares, and the one that needs no parser of command lines."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from typing import NoReturn


def main() -> NoReturn:
    """Run the command line of the process and exit with its code."""
    words = sys.argv[1:]
    if words[:1] == ["check"]:
        guarded(lambda: _check(words), ends_here=True)
    from accelify.cli.main import main as by_typer

    by_typer()


def _check(words: list[str]) -> int:
    from accelify.cli.quick import check_quickly

    check_quickly(words[1:])
    from accelify.cli.main import run

    return run(words)


def interrupted() -> int:
    """Say that Ctrl-C was taken; the code to exit with."""
    from accelify.runtime.launch.saying import fresh_line

    print(f"{fresh_line()}accelify: interrupted.", file=sys.stderr)
    return 130


def guarded(work: Callable[[], int], *, ends_here: bool) -> NoReturn:
    """Do what a command does and exit with its code, whatever happens.

    Args:
        work: gives the code, or exits with it.
        ends_here: the process ends with it, too.
    """
    # What start-up makes stays to the end: looking for garbage in it costs a fifth of a short command's time.
    gc.disable()
    try:
        code = work()
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BrokenPipeError:
        # The reader has gone (`accelify ... | head`): leave quietly, and keep the interpreter from flushing again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 141
    except KeyboardInterrupt:
        code = interrupted()
    except Exception as error:
        if os.environ.get("ACCELIFY_TRACEBACK"):
            raise
        reason = f"{type(error).__name__}: {error}".rstrip(": ")
        print(f"accelify: a bug in accelify itself ({reason}).", file=sys.stderr)
        print("Run again with ACCELIFY_TRACEBACK=1 and report what it prints.", file=sys.stderr)
        code = 2
    finally:
        if ends_here:
            # The process ends here and takes all objects with it: Python would look through them for garbage before,
            # which costs an eighth of a short command's time.
            gc.freeze()
        gc.enable()
    sys.exit(code)
