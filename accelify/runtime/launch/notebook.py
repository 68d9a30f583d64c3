"""Training functions started in several processes from inside Python: a notebook's cell, or a test."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from accelify.runtime.launch.port import refusal, reserved_port
from accelify.runtime.launch.settings import PRECISIONS, count_devices


class _InProcess:
    """What runs in each process. A plain class, so that any start method can pass it on."""

    def __init__(self, function: Callable[..., Any], environment: dict[str, str], first_rank: int) -> None:
        self.function = function
        self.environment = environment
        self.first_rank = first_rank

    def __call__(self, local_rank: int, *args: Any) -> None:
        rank = self.first_rank + local_rank
        os.environ.update(self.environment, RANK=str(rank), LOCAL_RANK=str(local_rank))
        self.function(*args)


def notebook_launcher(
    function: Callable[..., Any],
    args: Iterable[Any] = (),
    num_processes: int | None = None,
    mixed_precision: str = "no",
    use_port: str | int | None = None,
    master_addr: str = "127.0.0.1",
    node_rank: int = 0,
    num_nodes: int = 1,
    rdzv_backend: str = "static",
    rdzv_endpoint: str = "",
    rdzv_conf: dict[str, Any] | None = None,
    rdzv_id: str = "none",
    max_restarts: int = 0,
    monitor_interval: float | None = None,
    log_line_prefix_template: str | None = None,
) -> None:
    """Run a training function of a notebook in several processes of this machine.

    Args:
        function: defined in the notebook; everything it needs is made inside it, the Accelerator first of all.
        args: its arguments.
        num_processes: on this machine; default one per visible CUDA device, else one.
        mixed_precision: no, fp16 or bf16; for an Accelerator that does not set it.
        use_port: of the first process; default a free one (with several machines 29500).
        master_addr, node_rank, num_nodes: where several machines run the same notebook.
        rdzv_backend, rdzv_endpoint, rdzv_conf, rdzv_id: how torch's elastic agent lets the processes meet: "static", or
            "c10d" with an address and port, which lets a machine come back.
        max_restarts: how often processes are started again when one has failed.
        monitor_interval: seconds between two looks at the processes; default 0.1.
        log_line_prefix_template: in front of what each process prints.

    The last ones have torch's agent start the processes. With one process the function simply runs here.

    Raises:
        ValueError: a number or precision out of range, or a port that is in use.
        RuntimeError: an Accelerator, or CUDA, is in use in this process already; or the function failed in one
            of the processes, whose traceback is part of the message.
        ChildFailedError: it failed where torch's agent started them, more often than `max_restarts`.
    """
    count = max(count_devices(), 1) if num_processes is None else num_processes
    if count < 1 or num_nodes < 1 or not 0 <= node_rank < num_nodes:
        raise ValueError(
            f"num_processes={count}, num_nodes={num_nodes} and node_rank={node_rank} do not fit together"
        )
    if str(mixed_precision) not in PRECISIONS:
        raise ValueError(f"mixed_precision must be one of {', '.join(PRECISIONS)}, not {mixed_precision!r}")
    precision = {"ACCELIFY_MIXED_PRECISION": mixed_precision, "ACCELERATE_MIXED_PRECISION": mixed_precision}
    if count * num_nodes == 1:
        with _environment(precision):
            function(*args)
        return
    if (
        rdzv_backend != "static"
        or rdzv_endpoint
        or max_restarts
        or monitor_interval
        or log_line_prefix_template
    ):
        agent = {
            "rdzv_backend": rdzv_backend, "rdzv_configs": dict(rdzv_conf or {}), "run_id": rdzv_id,
            "max_restarts": max_restarts, "monitor_interval": monitor_interval or 0.1,
            "log_line_prefix_template": log_line_prefix_template,
        }  # fmt: skip
        with reserved_port() as free, _environment(precision):
            endpoint = rdzv_endpoint or f"{master_addr}:{_port(use_port, free, node_rank, num_nodes)}"
            _start_by_agent(function, tuple(args), count, num_nodes, node_rank, endpoint, agent)
        return
    with reserved_port() as free:
        port = _port(use_port, free, node_rank, num_nodes)
        places = {"MASTER_ADDR": master_addr, "MASTER_PORT": str(port), "NODE_RANK": str(node_rank)}
        _start(function, tuple(args), count, {**precision, **places}, node_rank * count, count * num_nodes)


def _port(asked: str | int | None, free: int, node: int, nodes: int) -> int:
    """Where the first process listens: as was asked for, or at a free port, which only one machine knows of."""
    if not asked and nodes == 1:
        return free
    text = str(asked or 29500)
    port = int(text) if text.isdecimal() else 0
    if not 0 < port < 2**16:
        raise ValueError(f"use_port must be a number from 1 to 65535, not {asked!r}")
    why = refusal(port) if node == 0 else None
    if why is not None:
        raise ValueError(f"port {port} of this machine is {why}: give another with use_port")
    return port


def debug_launcher(function: Callable[..., Any], args: Iterable[Any] = (), num_processes: int = 2) -> None:
    """Run a training function in several processes on the CPU, to try what it does there.

    Args:
        function, args: as for `notebook_launcher`.
        num_processes: how many.

    Raises:
        RuntimeError: as for `notebook_launcher`.
    """
    on_cpu = {"ACCELIFY_USE_CPU": "true", "ACCELERATE_USE_CPU": "true"}
    with reserved_port() as port:
        places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        _start(function, tuple(args), num_processes, {**places, **on_cpu}, 0, num_processes)


def _start(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    count: int,
    environment: dict[str, str],
    first_rank: int,
    world: int,
) -> None:
    import torch
    from torch.multiprocessing.spawn import ProcessExitedException, ProcessRaisedException, start_processes

    start: Any = start_processes
    _check_untouched()
    environment |= {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(count)}
    # Forked processes know the notebook's functions as they are; the others would have to import them by name.
    method = "fork" if "fork" in torch.multiprocessing.get_all_start_methods() else "spawn"
    run = _InProcess(function, environment, first_rank)
    context: Any = start(run, args, nprocs=count, join=False, start_method=method)
    try:
        while not context.join():
            pass
    except ProcessRaisedException as error:
        stated = str(error).partition("\n\n")[2].strip() or str(error)
        raise RuntimeError(
            f"the function failed on rank {first_rank + error.error_index}:\n\n{stated}"
        ) from None
    except ProcessExitedException as error:
        raise RuntimeError(
            f"the process of rank {first_rank + error.error_index} ended with {error.exit_code} and no traceback"
        ) from None
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
            process.join()


def _start_by_agent(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    count: int,
    nodes: int,
    node: int,
    endpoint: str,
    options: dict[str, Any],
) -> None:
    import torch
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    _check_untouched()
    if options["rdzv_backend"] == "static":
        options["rdzv_configs"].setdefault("rank", node)
    method = "fork" if "fork" in torch.multiprocessing.get_all_start_methods() else "spawn"
    config = LaunchConfig(
        min_nodes=nodes,
        max_nodes=nodes,
        nproc_per_node=count,
        rdzv_endpoint=endpoint,
        start_method=method,
        local_addr="127.0.0.1" if nodes == 1 else None,
        **options,
    )
    launched: Any = elastic_launch(config=config, entrypoint=function)
    launched(*args)


def _check_untouched() -> None:
    import torch

    state = sys.modules.get("accelify.runtime.state")
    if state is not None and state.PartialState._shared_state:
        raise RuntimeError(
            "an Accelerator was made in this process already, outside of the function: make it inside the function "
            "only, and restart the notebook's kernel"
        )
    cuda: Any = torch.cuda
    if cuda.is_initialized():
        raise RuntimeError(
            "CUDA is in use in this process already, and processes cannot be forked from it: restart the notebook's "
            "kernel and touch no CUDA device before notebook_launcher"
        )


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
