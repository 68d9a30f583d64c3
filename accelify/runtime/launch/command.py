"""From settings to running processes: plain Python for one process, torch's elastic agent for several."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from accelify.runtime.launch.settings import LaunchError, Settings

WORKER = Path(__file__).with_name("worker.py")
NO_TORCH = "torch is not installed, and nothing can be launched without it: pip install 'accelify[runtime]'."


@dataclass(frozen=True)
class Plan:
    """What would be started: environment to add, the command, and how many processes it makes on this machine."""

    environment: dict[str, str]
    command: tuple[str, ...]
    local_processes: int
    elastic: tuple[str, ...] = ()
    """Arguments for torch.distributed.run; empty for a single process."""

    def line(self) -> str:
        """The plan as one line for a shell."""
        set_up = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        return " ".join([*set_up, *(shlex.quote(word) for word in self.command)])


def make_plan(settings: Settings, script: str, arguments: list[str], *, module: bool = False) -> Plan:
    """The plan for one script.

    Args:
        settings: from `settings.resolve`.
        script: a path, or a module's name with `module=True`.
        arguments: handed to the script as they are.

    Raises:
        LaunchError: the script or module is not there.
    """
    _check_target(script, module)
    target = (["-m"] if module else []) + [script, *arguments]
    machines: int = settings["num_machines"]
    local: int = settings["num_processes"] // machines
    environment = _environment(settings)
    if local == 1 and machines == 1 and not settings["max_restarts"]:
        return Plan(environment, (sys.executable, *target), 1)
    if "OMP_NUM_THREADS" not in os.environ:
        environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // local))
    elastic = (*_rendezvous(settings, local), str(WORKER), *target)
    return Plan(environment, (sys.executable, "-m", "torch.distributed.run", *elastic), local, elastic)


def run(plan: Plan) -> int:
    """Start the plan, wait for it, and return the exit status for this process.

    A process that ended by a signal gives 128 plus the signal's number. Nothing that was started is left running.

    Raises:
        LaunchError: torch is missing, or its launcher refuses the rendezvous.
    """
    if importlib.util.find_spec("torch") is None:
        raise LaunchError(NO_TORCH)
    if plan.elastic:
        return _run_elastic(plan)
    return _run_single(plan)


def _check_target(script: str, module: bool) -> None:
    if module:
        top = script.partition(".")[0]
        with _folder_on_path():
            try:
                found = importlib.util.find_spec(top)
            except (ImportError, ValueError):
                found = None
        if found is None:
            raise LaunchError(f"No module named {top!r} from here: give -m a module that Python finds.")
        return
    path = Path(script)
    if path.is_dir() and not (path / "__main__.py").is_file():
        raise LaunchError(f"{script} is a directory without a __main__.py: name the training script itself.")
    if not path.exists():
        hint = "; a module's name needs -m before it" if not script.endswith(".py") else ""
        raise LaunchError(f"There is no file {script}{hint}.")
    if path.is_file() and not os.access(path, os.R_OK):
        raise LaunchError(f"{script} cannot be read: change its permissions.")


@contextlib.contextmanager
def _folder_on_path() -> Iterator[None]:
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _environment(settings: Settings) -> dict[str, str]:
    """What the script's processes are told; under the peer's names too, for scripts that use the peer."""
    told = {"USE_CPU": "true"} if settings["cpu"] else {}
    for name in ("mixed_precision", "gradient_accumulation_steps"):
        if settings[name] is not None:
            told[name.upper()] = str(settings[name])
    return {
        f"{prefix}_{name}": value for name, value in told.items() for prefix in ("ACCELIFY", "ACCELERATE")
    }


def _rendezvous(settings: Settings, local: int) -> list[str]:
    words = ["--nproc-per-node", str(local), "--max-restarts", str(settings["max_restarts"])]
    if settings["num_machines"] == 1:
        return [*words, "--standalone"]
    words += ["--nnodes", str(settings["num_machines"])]
    address, port = settings["main_process_ip"], settings["main_process_port"] or 29500
    if settings["rdzv_backend"] == "static":
        return [
            *words, "--node-rank", str(settings["machine_rank"]),
            "--master-addr", address, "--master-port", str(port),
        ]  # fmt: skip
    return [*words, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{address}:{port}", "--rdzv-id", "accelify"]


def _run_single(plan: Plan) -> int:
    process = subprocess.Popen(list(plan.command), env={**os.environ, **plan.environment})

    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    # Ctrl-C in a terminal reaches the script by itself; sending it on as well covers a signal sent to us alone, and
    # a second KeyboardInterrupt in the script's clean-up is avoided by a look at who leads the terminal.
    handlers = {number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP)}
    interrupted = 0
    try:
        while True:
            try:
                code = process.wait()
                break
            except KeyboardInterrupt:
                interrupted += 1
                if interrupted > 1 or not _in_foreground():
                    process.send_signal(signal.SIGINT if interrupted == 1 else signal.SIGKILL)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        if process.poll() is None:
            process.kill()
            process.wait()
    return code if code >= 0 else 128 - code


def _in_foreground() -> bool:
    try:
        with open("/dev/tty") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False


def _run_elastic(plan: Plan) -> int:
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    launcher: Any = importlib.import_module("torch.distributed.run")
    if "LOGLEVEL" not in os.environ:
        # The agent's own account of a failure repeats, less well, what is printed below.
        logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="accelify-launch-") as errors:
        os.environ.update(plan.environment, ACCELIFY_ERROR_DIR=errors)
        try:
            launcher.run(launcher.parse_args(list(plan.elastic)))
        except ChildFailedError as error:
            return _report(error, Path(errors))
        except SignalException as stop:
            return 128 + stop.sigval
        except KeyboardInterrupt:
            return 128 + signal.SIGINT
        except (ConnectionError, TimeoutError, OSError) as error:
            raise LaunchError(f"The processes could not find each other: {error}.") from error
        except RuntimeError as error:
            if "rendezvous" not in f"{type(error).__name__} {error}".lower():
                raise
            raise LaunchError(f"The processes could not find each other: {error}.") from error
    return 0


def _report(error: Any, folder: Path) -> int:
    """Print the first failing rank's traceback and give its exit status."""
    rank, failure = error.get_first_failure()
    notes = _notes(folder)
    if notes:
        rank = notes[0]["rank"]
        failure = error.failures.get(rank, failure)
    code: int = failure.exitcode
    how = f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    # The agent ends the ranks that were still running by SIGTERM: those did not fail.
    others = sorted(r for r, f in error.failures.items() if r != rank and f.exitcode != -signal.SIGTERM)
    also = "; after it also " + ", ".join(f"rank {other}" for other in others) if others else ""
    print(f"accelify launch: rank {rank} failed first ({how}){also}.", file=sys.stderr)
    if notes:
        print(notes[0]["traceback"], end="", file=sys.stderr)
    return code if code >= 0 else 128 - code


def _notes(folder: Path) -> list[dict[str, Any]]:
    """The failures of the last attempt, first one first."""
    notes = []
    for path in folder.glob("rank*.json"):
        with contextlib.suppress(OSError, ValueError):
            notes.append(json.loads(path.read_text(encoding="utf-8")))
    last = max((note["restarts"] for note in notes), default=0)
    return sorted((note for note in notes if note["restarts"] == last), key=lambda note: note["time"])
