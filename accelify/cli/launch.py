"""`accelify launch`: run a script on the devices that are there."""

from __future__ import annotations

from typing import Annotated

import typer

# Whatever stands behind the script belongs to the script.
CONTEXT_SETTINGS = {"allow_interspersed_args": False}


def launch(
    script: Annotated[str, typer.Argument(metavar="SCRIPT", help="The script; with -m, a module's name.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(metavar="ARGS...", help="Handed to the script as they are.")
    ] = None,
    num_processes: Annotated[
        int | None,
        typer.Option(
            "--num_processes", "--num-processes", "-n",
            help="Processes to start, on all machines together. Default: one per visible CUDA device, else one.",
        ),
    ] = None,
    cpu: Annotated[bool | None, typer.Option("--cpu", help="Use the CPU even where there are devices.")] = None,
    module: Annotated[bool, typer.Option("-m", "--module", help="SCRIPT is a module's name.")] = False,
    mixed_precision: Annotated[
        str | None, typer.Option("--mixed_precision", "--mixed-precision", help="no, fp16, bf16 or fp8.")
    ] = None,
    gradient_accumulation_steps: Annotated[
        int | None,
        typer.Option(
            "--gradient_accumulation_steps", "--gradient-accumulation-steps",
            help="Batches whose gradients make one update.",
        ),
    ] = None,
    num_machines: Annotated[
        int | None, typer.Option("--num_machines", "--num-machines", help="Machines that take part.")
    ] = None,
    machine_rank: Annotated[
        int | None, typer.Option("--machine_rank", "--machine-rank", help="Number of this machine, from 0.")
    ] = None,
    main_process_ip: Annotated[
        str | None, typer.Option("--main_process_ip", "--main-process-ip", help="Address of machine 0.")
    ] = None,
    main_process_port: Annotated[
        int | None, typer.Option("--main_process_port", "--main-process-port", help="Free port of machine 0.")
    ] = None,
    rdzv_backend: Annotated[
        str | None,
        typer.Option(
            "--rdzv_backend", "--rdzv-backend",
            help="How several machines meet: static, or c10d (lets a machine come back).",
        ),
    ] = None,
    max_restarts: Annotated[
        int | None,
        typer.Option("--max_restarts", "--max-restarts", help="How often a failed job is started again."),
    ] = None,
    config_file: Annotated[
        str | None,
        typer.Option("--config_file", "--config-file", help="Configuration file to read instead of the default one."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the command and start nothing.")] = False,
    explain: Annotated[
        bool, typer.Option("--explain", help="Print each value and where it came from, and start nothing.")
    ] = False,
) -> None:  # fmt: skip
    """Run SCRIPT in one process or several, over torch's own launcher.

    The script's exit status comes through, and with several processes the traceback of the rank that failed first.
    """
    from accelify.cli.terminal import fail

    try:
        from accelify.runtime.launch import command
        from accelify.runtime.launch.config_file import read_config
        from accelify.runtime.launch.settings import LaunchError, resolve
    except ImportError as error:
        fail(f"{error}.")

    flags = {
        "num_processes": num_processes,
        "cpu": cpu,
        "mixed_precision": mixed_precision,
        "gradient_accumulation_steps": gradient_accumulation_steps,
        "num_machines": num_machines,
        "machine_rank": machine_rank,
        "main_process_ip": main_process_ip,
        "main_process_port": main_process_port,
        "rdzv_backend": rdzv_backend,
        "max_restarts": max_restarts,
    }
    try:
        file_name, file_values = read_config(config_file)
        settings = resolve(flags, file_values=file_values, file_name=file_name)
        plan = command.make_plan(settings, script, arguments or [], module=module)
        if explain:
            rows = settings.explain()
            widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
            for name, value, source in rows:
                print(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}")
        if dry_run:
            print(plan.line())
        if explain or dry_run:
            return
        code = command.run(plan)
    except LaunchError as error:
        fail(str(error))
    raise typer.Exit(code)
