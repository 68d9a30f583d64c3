"""What each started process runs first: the script as `__main__`, its failure noted for the launcher.

Run by path, not as a module of the package, so that it imports nothing more and leaves `sys.path` to the script.
"""

from __future__ import annotations

import os
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

_RUNTIME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def main() -> None:
    """Run `[-m] SCRIPT ARGS...` of the command line as Python itself would."""
    die_with_the_launcher()
    ignore_warnings_of_the_queue()
    note_process()
    name_restart()
    arguments = sys.argv[1:]
    as_module = arguments[:1] == ["-m"]
    sys.argv = arguments[1:] if as_module else arguments
    try:
        if as_module:
            import runpy

            sys.path[0] = os.getcwd()
            after_imports(draws_alike=False)
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            run_script(sys.argv[0])
    except KeyboardInterrupt as stop:
        if not os.environ.get("ACCELIFY_ERROR_DIR"):
            raise
        # Ctrl-C reaches every process at once: one line of one of them says more than the tracebacks of all.
        if os.environ.get("RANK", "0") == "0":
            from accelify.runtime.launch.saying import say

            say(f"interrupted{place_of(stop)}.")
        sys.exit(130)
    except Exception as error:
        own_frames(error)
        # Where the failure is noted the launcher prints it: the first one, once, instead of all at the same time.
        silent = note_failure(error)
        shown = sys.excepthook

        def report(kind: type[BaseException], error: BaseException, _: types.TracebackType | None) -> None:
            if not silent:
                own_frames(error)
                shown(kind, error, error.__traceback__)

        sys.excepthook = report
        raise


def run_script(path: str) -> None:
    """Run the file as the module `__main__`, which pickling and spawned workers look up by that name."""
    import importlib.machinery
    import io

    full = os.path.abspath(path)
    folder = os.path.isdir(full)
    source = os.path.join(full, "__main__.py") if folder else full
    sys.path[0] = full if folder else os.path.dirname(os.path.realpath(full))
    with io.open_code(source) as file:
        text = file.read()
    code = compile(text, source, "exec", dont_inherit=True)
    after_imports(b"accelify" in text)
    module = types.ModuleType("__main__")
    namespace: dict[str, Any] = module.__dict__
    namespace.update(
        __file__=source,
        __builtins__=__builtins__,
        __loader__=importlib.machinery.SourceFileLoader("__main__", source),
        __cached__=None,
    )
    # The old module stays referenced: this function's globals are in it.
    namespace["__accelify_worker__"] = sys.modules["__main__"]
    sys.modules["__main__"] = module
    exec(code, namespace)


def after_imports(draws_alike: bool) -> None:
    """Begin with the random numbers of the launcher's other processes, where a script sets no seed, and leave what
    argparse says of a wrong command line to one of them.

    The Accelerator makes generators agree from then on; a script can split its data before, or while it imports.
    """
    todo: dict[str, Callable[[Any], object]] = {}
    if draws_alike and (seed := int(os.environ.get("ACCELIFY_SEED") or 0)):
        import random

        random.seed(seed)
        todo["numpy"] = lambda numpy: numpy.random.seed(seed % 2**32)
        todo["torch"] = lambda torch: torch.manual_seed(seed)
    if os.environ.get("LOCAL_RANK", "0") != "0":
        todo["argparse"] = lambda argparse: setattr(
            argparse.ArgumentParser, "_print_message", lambda *_: None
        )
    sys.meta_path.insert(0, AfterImport(todo))


class AfterImport:
    """Finds modules as they are found anyway, and does something with each once it is imported.

    Importing them for the script would be too early: it may set variables of the environment that they read.
    """

    def __init__(self, todo: dict[str, Callable[[Any], object]]) -> None:
        self.todo = todo

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        """The spec of a module with which something is to be done, None for all others."""
        do = self.todo.pop(name, None)
        if do is None:
            return None
        import importlib.util

        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def run_and_do(module: types.ModuleType) -> None:
                run(module)
                do(module)

            spec.loader.exec_module = run_and_do  # type: ignore[method-assign]
        return spec


def place_of(error: BaseException) -> str:
    """`; rank 0 was at train.py:12`: the innermost line outside of installed packages; empty where there is none."""
    place = ""
    for trace in _frames(error.__traceback__):
        file = trace.tb_frame.f_code.co_filename
        if os.path.isfile(file) and _is_of_the_script(file):
            place = f"; rank 0 was at {os.path.relpath(file)}:{trace.tb_lineno}"
    return place


def own_frames(error: BaseException) -> None:
    """Leave the script's frames in the traceback: those of this file are cut off, and where the runtime raises an error
    for what the script did, its inside too."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename in (__file__, "<frozen runpy>"):
        trace = trace.tb_next
    error.__traceback__ = trace
    if trace is None:
        return  # as of a script that is no Python: the error names its line by itself
    frames = [*_frames(trace)]
    in_script = [one for one in frames if _is_of_the_script(one.tb_frame.f_code.co_filename)]
    if in_script and _raises_for_the_script(frames[-1]) and not os.environ.get("ACCELIFY_TRACEBACK"):
        in_script[-1].tb_next = None
        before = error.__cause__ or error.__context__
        inner = _frames(before.__traceback__) if before is not None else ()
        if not any(_is_of_the_script(one.tb_frame.f_code.co_filename) for one in inner):
            error.__cause__ = error.__context__ = None


def _frames(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_of_the_script(file: str) -> bool:
    """Whether a file is none of accelify's, nor an installed one."""
    return not file.startswith(_RUNTIME) and "site-packages" not in file and "lib/python" not in file


def _raises_for_the_script(trace: types.TracebackType) -> bool:
    """Whether an error is raised by a `raise` of the runtime; any other one there is a mistake of its own."""
    import dis

    code = trace.tb_frame.f_code
    return (
        code.co_filename.startswith(_RUNTIME) and dis.opname[code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
    )


def note_process() -> None:
    """Leave this process's number where the launcher looks when it has to end it."""
    if folder := os.environ.get("ACCELIFY_ERROR_DIR"):
        open(os.path.join(folder, f"{os.getpid()}.pid"), "w").close()


def ignore_warnings_of_the_queue() -> None:
    """Let a queue's SIGUSR1, which the launcher passes on, end no script that does not watch for it."""
    import signal

    if hasattr(signal, "SIGUSR1") and os.environ.get("ACCELIFY_ERROR_DIR"):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def note_failure(error: BaseException) -> bool:
    """Write time, rank and traceback where the launcher looks; False when it does not ask for them."""
    folder = os.environ.get("ACCELIFY_ERROR_DIR")
    if not folder:
        return False
    import json
    import time
    import traceback

    rank = os.environ.get("RANK", "0")
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    record = {
        "rank": int(rank),
        "time": time.time(),
        "restarts": int(attempt),
        "traceback": "".join(traceback.format_exception(error)),
    }
    try:
        with open(os.path.join(folder, f"rank{rank}-{attempt}.json"), "w", encoding="utf-8") as file:
            json.dump(record, file)
    except OSError:
        return False
    return True


def name_restart() -> None:
    """Where the launcher starts the job again, say what failed before; one process of a machine does."""
    folder, attempt = (
        os.environ.get("ACCELIFY_ERROR_DIR"),
        int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")),
    )
    if not folder or not attempt or os.environ.get("LOCAL_RANK", "0") != "0":
        return
    import glob
    import json

    notes = []
    for path in glob.glob(os.path.join(glob.escape(folder), f"rank*-{attempt - 1}.json")):
        with open(path, encoding="utf-8") as file:
            notes.append(json.load(file))
    first = min(notes, key=lambda note: note["time"], default=None)
    failed = f"rank {first['rank']} failed first" if first else "the job failed"
    most = os.environ.get("TORCHELASTIC_MAX_RESTARTS", attempt)
    from accelify.runtime.launch.saying import say

    print(first["traceback"] if first else "", end="", file=sys.stderr)
    say(f"{failed}: starting again ({attempt} of {most}).")


def die_with_the_launcher() -> None:
    """Have the kernel end this process when the launcher is killed outright (Linux only)."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes
    import signal

    parent = os.getppid()
    set_parent_death_signal = 1
    try:
        ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)
    except (OSError, AttributeError):
        return
    if os.getppid() != parent:
        sys.exit(128 + signal.SIGTERM)


if __name__ == "__main__":
    main()
