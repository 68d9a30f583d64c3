"""`accelify launch`: run a script in one process or several."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from accelify.cli.terminal import complain, fail, print_rows
from accelify.runtime.launch.fields import FIELDS, SECTION_FIELDS, SECTIONS, Field
from accelify.runtime.launch.settings import NO_DEVICE, LaunchError, Settings, count_devices


def _either_spelling(word: str) -> str:
    return word.replace("-", "_").removeprefix("parallelism_config_")


# Everything after the script belongs to the script; --num-processes is --num_processes.
CONTEXT_SETTINGS = {"allow_interspersed_args": False, "token_normalize_func": _either_spelling}

UNKNOWN_OPTION = "The script's own options go after its name, as in `accelify launch SCRIPT --lr 0.1`."
_SLURM = "Slurm"
# Flags that stand for a distributed type.
_SHORTCUTS = {
    "use_fsdp": ("FSDP", "Shard weights, gradients and optimizer over the processes (FSDP2)."),
    "use_deepspeed": ("DEEPSPEED", "Train with DeepSpeed."),
    "tpu": ("XLA", "Train on TPU, or with --cpu on XLA's CPU devices."),
    "multi_gpu": ("MULTI_GPU", "One process a CUDA device."),
}


def launch(script: str, arguments: list[str] | None, **given: Any) -> None:
    """Run SCRIPT in one process or several, by torch's launcher.

    Every value can also stand in the configuration file (`accelify config`) or in an environment variable: ACCELIFY_
    and the name in capitals, such as ACCELIFY_NUM_PROCESSES. --explain shows where each one comes from. The script's
    exit status comes through, and with several processes the traceback of the rank that failed first.
    """
    from accelify.runtime.launch import command
    from accelify.runtime.launch.config_file import read_config
    from accelify.runtime.launch.settings import resolve

    try:
        flags = {field.name: given[field.name] for field in (*FIELDS, *SECTION_FIELDS)}
        words = _settle_shortcuts(flags, given)
        config = read_config(given["config_file"])
        # A job for Slurm is written where its devices are not, and finds out who its first machine is.
        devices = sys.maxsize if given["slurm"] else None
        if given["slurm"]:
            flags["main_process_ip"] = flags["main_process_ip"] or "found out by the job"
        settings = resolve(
            flags,
            file_values=config.values,
            file_name=config.name,
            lines=config.lines,
            devices=devices,
            words=words,
        )
        if given["slurm"]:
            _write_job(settings, script, arguments or [], given)
            return
        plan = command.make_plan(settings, script, arguments or [], module=given["module"])
        if given["explain"]:
            print_rows(settings.explain())
        if given["dry_run"]:
            print(plan.line())
        if given["explain"] or given["dry_run"]:
            return
        command.need_torch()
        chosen = settings["gpu_ids"] not in (None, "all") and not settings["cpu"]
        if chosen and not count_devices():
            raise LaunchError(
                f"--gpu_ids {settings['gpu_ids']} asks for CUDA devices, and there are none here: leave it out."
            )
        if note := _to_know(settings):
            complain(note)
        code = command.run(plan)
    except LaunchError as error:
        fail(str(error))
    raise typer.Exit(code)


def _to_know(settings: Settings) -> str:
    """What a launch does that was not asked for; empty where there is nothing."""
    if settings["num_processes"] > 1:
        return ""
    if settings["distributed_type"] == "FSDP":
        return "FSDP has nothing to divide: the script runs in one process. -n N starts more."
    if settings.source("num_processes") == NO_DEVICE:
        return (
            "no GPU is visible here: the script runs on the CPU, in one process. -n N starts more processes; with "
            "--cpu this note is not printed."
        )
    return ""


def _settle_shortcuts(flags: dict[str, Any], given: dict[str, Any]) -> dict[str, str]:
    """Set what shortcuts stand for; the shortcuts by the flags that they set."""
    asked = [name for name in _SHORTCUTS if given[name]]
    if len(asked) > 1:
        raise LaunchError(
            f"{' and '.join(f'--{name}' for name in asked)} ask for different things: leave one out."
        )
    for name in asked:
        kind = _SHORTCUTS[name][0]
        if flags["distributed_type"] not in (None, kind):
            raise LaunchError(
                f"--{name} and --distributed_type {flags['distributed_type']} ask for different things."
            )
        flags["distributed_type"] = kind
    return {"distributed_type": f"--{asked[0]}"} if asked else {}


def _write_job(settings: Any, script: str, arguments: list[str], given: dict[str, Any]) -> None:
    from accelify.runtime.launch import command, slurm

    command.make_plan(settings, script, arguments, module=given["module"])
    options = {name: given[name] for name in ("partition", "time", "job_name", "slurm_options")}
    text = slurm.batch_file(settings, script, arguments, module=given["module"], **options)
    if given["slurm_file"] == "-":
        print(text, end="")
        return
    path = Path(given["slurm_file"] or f"{options['job_name'] or slurm.default_name(script)}.sbatch")
    if path.exists() and not given["force"]:
        raise LaunchError(f"{path} is there already: name another with --slurm_file, or add --force.")
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LaunchError(f"{path} cannot be written: {error.strerror}.") from None
    print(f"{path} is written; start it with: sbatch {path}")


def _parameters() -> list[inspect.Parameter]:
    """The command line, made from the table of values, so that no value can be without its flag."""
    positional = [
        _parameter(
            "script", str, typer.Argument(metavar="SCRIPT", help="The script; with -m, a module's name.")
        ),
        _parameter(
            "arguments",
            list[str] | None,
            typer.Argument(metavar="ARGS...", help="Passed to the script as they are."),
            None,
        ),
    ]
    own = [
        _switch("module", "Take SCRIPT as a module's name.", "-m", "--module"),
        _text("config_file", "Configuration file to read instead of the default one."),
        _switch("explain", "Print each value and where it came from, and start nothing."),
        _switch("dry_run", "Print the command and start nothing."),
    ]
    shortcuts = [_switch(name, text) for name, (_, text) in _SHORTCUTS.items()]
    slurm = [
        _switch("slurm", "Write a batch file for sbatch, and start nothing.", panel=_SLURM),
        _text(
            "slurm_file",
            "Name of the batch file; - prints it. Default: the script's name with .sbatch.",
            _SLURM,
        ),
        _switch("force", "Replace the batch file that is there.", panel=_SLURM),
        _text("partition", "Partition to run in.", _SLURM),
        _text("time", "Longest time, such as 12:00:00.", _SLURM),
        _text("job_name", "Name of the job. Default: the script's.", _SLURM),
        _text("slurm_options", "More options for sbatch, such as '--account=a --qos=b'.", _SLURM),
    ]
    values = [_field(item, None) for item in FIELDS]
    sections = [_field(item, SECTIONS[item.section][2]) for item in SECTION_FIELDS]
    return [*positional, *values, *own, *shortcuts, *sections, *slurm]


def _parameter(name: str, kind: Any, info: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    keyword = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, keyword, default=default, annotation=Annotated[kind, info])


def _switch(name: str, text: str, *words: str, panel: str | None = None) -> inspect.Parameter:
    return _parameter(
        name, bool, typer.Option(*(words or (f"--{name}",)), help=text, rich_help_panel=panel), False
    )


def _text(name: str, text: str, panel: str | None = None) -> inspect.Parameter:
    return _parameter(name, str | None, typer.Option(f"--{name}", help=text, rich_help_panel=panel), None)


def _field(item: Field, panel: str | None) -> inspect.Parameter:
    words, kind, metavar = f"--{item.name}", item.kind, "|".join(item.choices) or None
    if item.switch:
        words += f"/--no_{item.name}"
    elif item.kind in (bool, object):
        kind, metavar = str, "true|false"
    info = typer.Option(
        words, *item.words, help=item.help, metavar=metavar, rich_help_panel=panel, hidden=not item.help
    )
    return _parameter(item.name, kind | None, info, None)


setattr(launch, "__signature__", inspect.Signature(_parameters()))  # noqa: B010
