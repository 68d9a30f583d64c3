"""From settings to running processes: plain Python for one process, torch's elastic agent for several."""

from __future__ import annotations

import contextlib
import gc
import importlib
import importlib.util
import json
import logging
import os
import secrets
import shlex
import signal
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from accelify.installing import install_command
from accelify.runtime.launch.engines import engine_environment
from accelify.runtime.launch.fields import DEEPSPEED, XLA
from accelify.runtime.launch.folder import launch_folder
from accelify.runtime.launch.leaving import watched_signals
from accelify.runtime.launch.machines import (
    Watch,
    end_workers,
    interface_of,
    own_address,
    reachable,
    warn_workers,
)
from accelify.runtime.launch.port import refusal
from accelify.runtime.launch.saying import say
from accelify.runtime.launch.settings import LaunchError, Settings, count_devices
from accelify.runtime.launch.starting import Starting
from accelify.runtime.launch.target import check_target, joins_by_itself, works_alone

# For this many seconds a machine that was cut off looks for the others, as long as their rendezvous waits for it.
_COME_BACK = 600.0
WORKER = Path(__file__).with_name("worker.py")
REPLICAS = Path(__file__).with_name("replicas.py")
_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"


@dataclass(frozen=True)
class Machines:
    """The part of a plan about several machines."""

    host: str
    port: int
    machine: int
    count: int
    patience: int
    restarts: int


@dataclass(frozen=True)
class Plan:
    """What would be started: environment to add, the command, and how many processes it makes on this machine."""

    environment: dict[str, str]
    command: tuple[str, ...]
    local_processes: int
    elastic: tuple[str, ...] = ()
    """Arguments for torch.distributed.run; empty for a single process."""
    machines: Machines | None = None
    """Where there are several."""
    warning: str = ""
    """The message before the start; empty for none."""

    def line(self) -> str:
        """The plan as one line for a shell."""
        set_up = [f"{name}={shlex.quote(value)}" for name, value in sorted(self.environment.items())]
        return " ".join([*set_up, *(shlex.quote(word) for word in self.command)])


def make_plan(settings: Settings, script: str, arguments: list[str], *, module: bool = False) -> Plan:
    """The plan for one script.

    Args:
        settings: from `settings.resolve`.
        script: a path, or a module's name with `module=True`.
        arguments: passed to the script as they are.

    Raises:
        LaunchError: the script or module is not there, or an engine refuses its settings.
    """
    check_target(script, module)
    plan = _plan(settings, script, arguments, module)
    if settings["num_processes"] > 1 and plan.local_processes * settings["num_machines"] > 1:
        if works_alone(script, module):
            warning = (
                f"{script} does not use accelify: {settings['num_processes']} processes will each do all of its work, "
                "and none knows of the others; `accelify convert` changes that."
            )
            return replace(plan, warning=warning)
    return plan


def _plan(settings: Settings, script: str, arguments: list[str], module: bool) -> Plan:
    target = (["-m"] if module else []) + [script, *arguments]
    machines: int = settings["num_machines"]
    local: int = settings["num_processes"] // machines
    environment = _environment(settings)
    if XLA in settings.sections:
        # One process drives all devices, or torch_xla starts one process a device; it finds other machines by itself.
        if settings.section(XLA)["spmd"]:
            return Plan(environment, (sys.executable, *target), 1)
        return Plan(environment, (sys.executable, str(REPLICAS), *target), local)
    if settings.deepspeed_launcher:
        as_module = ["--module"] if module else []
        return Plan(environment, (*_deepspeed(settings, local), *as_module, script, *arguments), local)
    plain = local == 1 and machines == 1 and not settings["max_restarts"]
    if plain and not joins_by_itself(script, module):
        return Plan(environment, (sys.executable, *target), 1)
    if "PYTHONHASHSEED" not in os.environ:
        # A vocabulary that is numbered in the order of a set has to be the same for all processes.
        environment["PYTHONHASHSEED"] = "0"
    if machines == 1 and "ACCELIFY_SEED" not in os.environ:
        # What an unseeded script draws before its Accelerator is made; over several machines it has to wait for that.
        environment["ACCELIFY_SEED"] = str(secrets.randbits(63))
    # After so long torch's agent kills processes that a signal has not ended: its 30 s are too short to save in.
    environment.setdefault(_GRACE, str(settings["preemption_grace"]))
    _check_devices(settings, local)
    if "OMP_NUM_THREADS" not in {**os.environ, **environment}:
        environment["OMP_NUM_THREADS"] = str(max(1, (os.cpu_count() or 1) // local))
    several = _machines(settings) if machines > 1 else None
    if several and "GLOO_SOCKET_IFNAME" not in os.environ:
        # gloo would ask for the machine's name, which many a machine answers with 127.0.1.1.
        address = own_address(several.host, several.port)
        if address and (interface := interface_of(address)):
            environment["GLOO_SOCKET_IFNAME"] = interface
    if several and settings["rdzv_backend"] == "c10d":
        # A separate store for every attempt: in the agent's, a machine that comes back finds the addresses of those
        # that have gone.
        environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
    elastic = (*_rendezvous(settings, local), str(WORKER), *target)
    return Plan(
        environment, (sys.executable, "-m", "torch.distributed.run", *elastic), local, elastic, several
    )


def _machines(settings: Settings) -> Machines:
    return Machines(
        settings["main_process_ip"],
        settings["main_process_port"] or 29500,
        settings["machine_rank"],
        settings["num_machines"],
        settings["machine_timeout"],
        settings["max_restarts"],
    )


def need_torch() -> None:
    """LaunchError where torch is not installed."""
    if importlib.util.find_spec("torch") is None:
        raise LaunchError(
            f"torch is not installed, and nothing can be launched without it: {install_command('runtime')}."
        )


def run(plan: Plan) -> int:
    """Start the plan, wait for it, and return the exit status for this process.

    A process that ended by a signal counts as 128 plus the signal's number. Nothing that was started is left running.

    Raises:
        LaunchError: torch's launcher refuses the rendezvous.
    """
    if plan.warning:
        say(plan.warning)
    if plan.elastic:
        return _run_elastic(plan)
    return _run_single(plan)


def _environment(settings: Settings) -> dict[str, str]:
    """The environment of the script's processes; under Accelerate's names too, for scripts that use Accelerate."""
    stated = {"USE_CPU": "true"} if settings["cpu"] else {}
    for name in ("mixed_precision", "gradient_accumulation_steps"):
        if settings[name] is not None:
            stated[name.upper()] = str(settings[name])
    environment = {
        f"{prefix}_{name}": value for name, value in stated.items() for prefix in ("ACCELIFY", "ACCELERATE")
    }
    # Where the script overrules what a person asks for, its Accelerator warns; not so of what a file has by default.
    environment["ACCELIFY_ASKED_FOR"] = ",".join(
        name for name in stated if name != "USE_CPU" and settings.values[name.lower()].given
    )
    if settings["gpu_ids"] not in (None, "all"):
        environment["CUDA_VISIBLE_DEVICES"] = settings["gpu_ids"]
    if settings["num_cpu_threads_per_process"] is not None:
        environment["OMP_NUM_THREADS"] = str(settings["num_cpu_threads_per_process"])
    return environment | engine_environment(settings)


def _check_devices(settings: Settings, local: int) -> None:
    if settings["cpu"]:
        return
    chosen = settings["gpu_ids"] not in (None, "all")
    there = len(settings["gpu_ids"].split(",")) if chosen else count_devices()
    if there and local > there:
        raise LaunchError(
            f"{local} processes on this machine, and {there} CUDA device{'s' if there > 1 else ''}: "
            "give --num_processes no more than there are devices, or --cpu."
        )


def _deepspeed(settings: Settings, local: int) -> list[str]:
    """The deepspeed launcher's command, for one machine or, with a hostfile, for several."""
    section = settings.section(DEEPSPEED)
    words = [sys.executable, "-m", "deepspeed.launcher.runner", "--no_local_rank", "--num_gpus", str(local)]
    if settings["num_machines"] > 1:
        if not section.get("deepspeed_hostfile"):
            raise LaunchError("The deepspeed launcher needs --deepspeed_hostfile to reach several machines.")
        words += ["--num_nodes", str(settings["num_machines"])]
    if settings["main_process_ip"]:
        words += ["--master_addr", settings["main_process_ip"]]
    if settings["main_process_port"]:
        words += ["--master_port", str(settings["main_process_port"])]
    options = {
        "deepspeed_hostfile": "--hostfile", "deepspeed_inclusion_filter": "--include",
        "deepspeed_exclusion_filter": "--exclude", "deepspeed_multinode_launcher": "--launcher",
    }  # fmt: skip
    for key, option in options.items():
        if section.get(key) and (key, section[key]) != ("deepspeed_multinode_launcher", "standard"):
            words += [option, str(section[key])]
    return words


def _rendezvous(settings: Settings, local: int) -> list[str]:
    words = ["--nproc-per-node", str(local), "--max-restarts", str(settings["max_restarts"])]
    if settings["log_dir"]:
        words += ["--log-dir", settings["log_dir"], "--redirects", "3", "--tee", "3"]
    if settings["num_machines"] == 1:
        return [*words, "--standalone"]
    words += ["--nnodes", str(settings["num_machines"])]
    several = _machines(settings)
    if settings["rdzv_backend"] == "static":
        return [
            *words, "--node-rank", str(several.machine),
            "--master-addr", several.host, "--master-port", str(several.port),
        ]  # fmt: skip
    address = own_address(several.host, several.port)
    return [
        *words, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{several.host}:{several.port}", "--rdzv-id", "accelify",
        "--rdzv-conf", f"is_host={'false' if several.machine else 'true'}",
        *(["--local-addr", address] if address else []),
    ]  # fmt: skip


def _run_single(plan: Plan) -> int:
    # A warning of the queue's is for scripts that watch for it, and ends no other.
    before = signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    process = subprocess.Popen(list(plan.command), env={**os.environ, **plan.environment})

    def pass_on(number: int, _: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(number)

    # Ctrl-C in a terminal reaches the script by itself; sending it on as well covers a signal sent to us alone, and
    # a second KeyboardInterrupt in the script's clean-up is avoided by a look at who leads the terminal.
    handlers = {
        number: signal.signal(number, pass_on) for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1)
    }
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
        for number, handler in {**handlers, signal.SIGUSR1: before}.items():
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


def _tell_signal(number: int) -> int:
    # Of an interrupt rank 0 says where it was.
    if number != signal.SIGINT:
        name = signal.Signals(number).name
        say(f"ended by {name}, and the processes with it.")
    return 128 + number


def _run_elastic(plan: Plan) -> int:
    starting = Starting(plan.local_processes, shown=plan.machines is None)

    def end_early(number: int, _: FrameType | None) -> None:
        # torch's agent, which takes the signal later, is not there yet.
        starting.stop()
        raise SystemExit(_tell_signal(number))

    signal.signal(signal.SIGTERM, end_early)
    with starting:
        return _run_by_agent(plan, starting)


def _run_by_agent(plan: Plan, starting: Starting) -> int:
    # Read once, when torch is loaded: its words about a store that has gone are not for the script's processes.
    quiet = plan.machines is not None and "TORCH_CPP_LOG_LEVEL" not in os.environ
    if quiet:
        os.environ["TORCH_CPP_LOG_LEVEL"] = "ERROR"
    # Nothing of what an import makes is garbage; looking for some takes a fifth of the time, and again at the end.
    gc.disable()
    launcher: Any = importlib.import_module("torch.distributed.run")
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    gc.freeze()
    gc.enable()
    if quiet:
        del os.environ["TORCH_CPP_LOG_LEVEL"]
    if "LOGLEVEL" not in os.environ:
        # The agent's account of a failure repeats, less well, what is printed below.
        for name in [*logging.root.manager.loggerDict, "torch.distributed.elastic"]:
            if name.startswith("torch.distributed.elastic"):
                logging.getLogger(name).setLevel(logging.CRITICAL)
    if plan.machines is not None and plan.machines.machine == 0:
        _check_port(plan.machines)
    with (
        launch_folder() as folder,
        watched_signals(folder, int(plan.environment[_GRACE]), plan.machines is not None),
    ):
        errors = str(folder)
        os.environ.update(plan.environment, ACCELIFY_ERROR_DIR=errors)
        signal.signal(signal.SIGUSR1, lambda *_: warn_workers(folder))
        watch = _watch(plan.machines, folder) if plan.machines else None
        # Without a place for it torch leaves an empty folder.
        place = [] if "--log-dir" in plan.elastic else ["--log-dir", errors]
        arguments = [*place, *plan.elastic]
        starting.folder = folder
        try:
            while True:
                try:
                    try:
                        launcher.run(launcher.parse_args(arguments))
                    finally:
                        starting.stop()
                    return 0
                except ChildFailedError as error:
                    return _tell_loss(watch.lost) if watch and watch.lost else _report(error, Path(errors))
                except SignalException as stop:
                    return _tell_signal(stop.sigval)
                except KeyboardInterrupt:
                    return 128 + signal.SIGINT
                except (ConnectionError, TimeoutError, OSError, RuntimeError) as error:
                    if not isinstance(error, OSError) and not _is_about_meeting(error):
                        raise
                    if watch is None or not watch.lost:
                        raise LaunchError(f"The processes could not find each other: {error}.") from error
                    if not _may_try_again(plan.machines, arguments):
                        return _tell_loss(watch.lost)
        finally:
            if watch is not None:
                watch.stop()


def _check_port(machines: Machines) -> None:
    why = refusal(machines.port)
    if why is not None:
        raise LaunchError(
            f"Port {machines.port} of this machine, where the others look for it, is {why}: give another with "
            "--main_process_port, the same on every machine."
        )


def _watch(machines: Machines, folder: Path) -> Watch:
    def on_loss(sentence: str) -> None:
        # The agent sees its processes end and does what it does for any failure: start again, or end the job.
        if end_workers(folder) and machines.restarts:
            say(f"{sentence}; waiting for it to come back.")

    say(
        f"machine {machines.machine} of {machines.count} meets the others at {machines.host}:{machines.port}."
    )
    watch = Watch(machines.host, machines.port, machines.machine, machines.count, machines.patience, on_loss)
    watch.start()
    return watch


def _is_about_meeting(error: Exception) -> bool:
    return "rendezvous" in f"{type(error).__name__} {error}".lower() or "store" in str(error).lower()


def _tell_loss(sentence: str) -> int:
    say(f"the job was ended: {sentence}.")
    return 1


def _may_try_again(machines: Machines | None, arguments: list[str]) -> bool:
    """Whether restarts are left; then wait until the first machine answers again, and count one."""
    place = arguments.index("--max-restarts") + 1
    left = int(arguments[place])
    if machines is None or left < 1 or not reachable(machines.host, machines.port, _COME_BACK):
        return False
    arguments[place] = str(left - 1)
    return True


def _report(error: Any, folder: Path) -> int:
    """Print the first failing rank's traceback and return its exit status."""
    rank, failure = error.get_first_failure()
    notes = _notes(folder)
    if notes:
        rank = notes[0]["rank"]
        failure = error.failures.get(rank, failure)
    code: int = failure.exitcode
    if notes and code == -signal.SIGTERM:
        # It had raised, and was still ending when the launcher ended all: an exception's status is 1.
        code = 1
    how = f"exit status {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"
    # The agent ends the ranks that were still running by SIGTERM: those did not fail.
    others = sorted(r for r, f in error.failures.items() if r != rank and f.exitcode != -signal.SIGTERM)
    also = "; after it also " + ", ".join(f"rank {other}" for other in others) if others else ""
    say(f"rank {rank} failed first ({how}){also}.")
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
