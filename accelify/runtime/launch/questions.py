"""The questions of `accelify config`: what to ask, in which order, and what this machine suggests as an answer."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from accelify.runtime.launch.fields import DEEPSPEED, DYNAMO, FSDP, PARALLELISM, PRECISIONS, XLA


class Asker(Protocol):
    """Asks a person. Every method comes back only with an answer that can be."""

    def choose(self, question: str, answers: Mapping[str, str], default: str) -> str:
        """A key of `answers`, which are shown by their values."""

    def number(self, question: str, default: int, least: int = 1) -> int: ...

    def yes(self, question: str, default: bool = False) -> bool: ...

    def text(self, question: str, default: str = "", needed: bool = False) -> str: ...


@dataclass(frozen=True)
class Machine:
    """What a look at the machine finds, without torch.

    Args:
        gpus: NVIDIA or AMD devices that a process would see.
        tpu: a TPU is here.
        cores: of the CPU that this process may use.
    """

    gpus: int = 0
    tpu: bool = False
    cores: int = 1

    @staticmethod
    def look(environment: Mapping[str, str] | None = None, root: Path = Path("/")) -> Machine:
        environment = os.environ if environment is None else environment
        gpus = len(_entries(root / "proc/driver/nvidia/gpus"))
        if not gpus and (root / "dev/kfd").exists():
            gpus = sum(entry.name.startswith("renderD") for entry in _entries(root / "dev/dri"))
        visible = environment.get("CUDA_VISIBLE_DEVICES")
        if visible is not None:
            chosen = [word for word in visible.split(",") if word.strip() not in ("", "-1")]
            gpus = min(gpus, len(chosen))
        tpu = environment.get("PJRT_DEVICE", "").upper() == "TPU" or (root / "dev/accel0").exists()
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return Machine(gpus, tpu, cores)

    def stated(self) -> str:
        """One line for a person."""
        gpus = f"{self.gpus} GPU{'s' if self.gpus != 1 else ''}" if self.gpus else "no GPU"
        return f"{gpus}, {'a TPU, ' if self.tpu else ''}{self.cores} CPU core{'s' if self.cores != 1 else ''}"


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def default_values(machine: Machine, mixed_precision: str = "no") -> dict[str, Any]:
    """A configuration for all devices of one machine."""
    if machine.tpu:
        kind, processes = "XLA", 1
    else:
        kind, processes = ("MULTI_GPU" if machine.gpus > 1 else "NO"), max(machine.gpus, 1)
    return {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "mixed_precision": mixed_precision,
        "num_machines": 1,
        "num_processes": processes,
        "machine_rank": 0,
        "use_cpu": not machine.gpus and not machine.tpu,
    }


def ask(asker: Asker, machine: Machine) -> dict[str, Any]:
    """Ask everything; the values of a configuration file."""
    suggested = "tpu" if machine.tpu else "gpu" if machine.gpus else "cpu"
    place = asker.choose(
        f"What is to compute? (found here: {machine.stated()})",
        {"gpu": "GPUs", "cpu": "CPU only", "tpu": "TPU"},
        suggested,
    )
    values = default_values(Machine(), "no") | {"use_cpu": place == "cpu"}
    machines = asker.number("On how many machines?", 1)
    if machines > 1:
        _ask_machines(asker, values, machines)
    if place == "tpu":
        values["distributed_type"] = "XLA"
        spmd = asker.yes("Should one process drive all devices of a machine (SPMD)?", True)
        values[XLA] = {"spmd": spmd}
        values["num_processes"] = machines
        if not spmd:
            del values["num_processes"]
    else:
        each = asker.number(
            "How many processes on each machine?" + (" (one a GPU)" if place == "gpu" else ""),
            max(machine.gpus, 1) if place == "gpu" else 1,
        )
        values["num_processes"] = each * machines
        values["distributed_type"] = _plain_type(values["num_processes"], place)
        if values["num_processes"] > 1 or place == "gpu":
            _ask_engine(asker, values)
    precisions = {name: name for name in PRECISIONS} | {"no": "float32"}
    values["mixed_precision"] = asker.choose("Which precision for the forward pass?", precisions, "no")
    if place != "tpu" and asker.yes("Compile the models with torch.compile?"):
        values[DYNAMO] = {"dynamo_backend": asker.text("With which backend?", "inductor").upper()}
    return values


def _plain_type(processes: int, place: str) -> str:
    if processes == 1:
        return "NO"
    return "MULTI_CPU" if place == "cpu" else "MULTI_GPU"


def _ask_machines(asker: Asker, values: dict[str, Any], machines: int) -> None:
    values["num_machines"] = machines
    values["machine_rank"] = asker.number("Which of them is this one, counted from 0?", 0, 0)
    values["main_process_ip"] = asker.text("Address of machine 0?", needed=True)
    values["main_process_port"] = asker.number("A free port of machine 0?", 29500)
    restarts = asker.number("How often should a failed job start again by itself?", 0, 0)
    values["max_restarts"] = restarts
    values["rdzv_backend"] = "c10d" if restarts else "static"


def _ask_engine(asker: Asker, values: dict[str, Any]) -> None:
    missing = "" if importlib.util.find_spec("deepspeed") else " (not installed here)"
    ways: dict[str, tuple[str, Callable[[Asker, dict[str, Any]], None]]] = {
        "ddp": ("each has the whole model (DistributedDataParallel)", _whole_models),
        "fsdp": ("they share weights, gradients and optimizer (FSDP2)", _shared_models),
        "tp": ("they share each layer (tensor parallel)", _shared_layers),
        "deepspeed": (f"DeepSpeed ZeRO{missing}", _zero),
    }
    stated = {name: words for name, (words, _) in ways.items()}
    engine = asker.choose("How should the processes share the work?", stated, "ddp")
    ways[engine][1](asker, values)


def _whole_models(asker: Asker, values: dict[str, Any]) -> None:
    """The plain types need no explanation."""


def _shared_models(asker: Asker, values: dict[str, Any]) -> None:
    values["distributed_type"] = "FSDP"
    values[FSDP] = _ask_fsdp(asker)
    copies = asker.number("How many copies of the sharded model (1: all processes share one)?", 1)
    if copies > 1:
        values[PARALLELISM] = {
            "parallelism_config_dp_replicate_size": copies,
            "parallelism_config_dp_shard_size": values["num_processes"] // copies,
        }


def _shared_layers(asker: Asker, values: dict[str, Any]) -> None:
    size = asker.number("How many processes share each layer?", values["num_processes"])
    values[PARALLELISM] = {"parallelism_config_tp_size": size}


def _zero(asker: Asker, values: dict[str, Any]) -> None:
    values["distributed_type"] = "DEEPSPEED"
    values[DEEPSPEED] = _ask_deepspeed(asker)


def _ask_fsdp(asker: Asker) -> dict[str, Any]:
    section: dict[str, Any] = {"fsdp_version": 2}
    policy = asker.choose(
        "What becomes a shard of its own?",
        {
            "TRANSFORMER_BASED_WRAP": "each block of a named class",
            "SIZE_BASED_WRAP": "each module of a certain size",
            "NO_WRAP": "the model as a whole",
        },
        "TRANSFORMER_BASED_WRAP",
    )
    section["fsdp_auto_wrap_policy"] = policy
    if policy == "TRANSFORMER_BASED_WRAP":
        names = asker.text("Names of the block classes, with commas between? (empty: the model says)")
        if names:
            section["fsdp_transformer_layer_cls_to_wrap"] = names
    elif policy == "SIZE_BASED_WRAP":
        section["fsdp_min_num_params"] = asker.number("From how many parameters on?", 100_000_000)
    section["fsdp_reshard_after_forward"] = asker.yes("Free gathered weights after the forward pass?", True)
    section["fsdp_activation_checkpointing"] = asker.yes(
        "Compute activations again in backward (less memory)?"
    )
    section["fsdp_state_dict_type"] = asker.choose(
        "How should save_state write the weights?",
        {"SHARDED_STATE_DICT": "each process its part", "FULL_STATE_DICT": "whole, by the main process"},
        "SHARDED_STATE_DICT",
    )
    return section


def _ask_deepspeed(asker: Asker) -> dict[str, Any]:
    if asker.yes("Do you have a DeepSpeed configuration in JSON?"):
        return {"deepspeed_config_file": asker.text("Its path?", needed=True)}
    stage = asker.choose(
        "What should be shared out (ZeRO stage)?",
        {"0": "nothing", "1": "the optimizer", "2": "and gradients", "3": "and weights"},
        "2",
    )
    section: dict[str, Any] = {"zero_stage": int(stage)}
    devices = {"none": "nowhere", "cpu": "the CPU", "nvme": "a disk"}
    if stage != "0":
        section["offload_optimizer_device"] = asker.choose("Where to offload the optimizer?", devices, "none")
    if stage == "3":
        section["offload_param_device"] = asker.choose("Where to offload the weights?", devices, "none")
        section["zero3_save_16bit_model"] = asker.yes("Save the weights whole?", True)
    for part in ("optimizer", "param"):
        if section.get(f"offload_{part}_device") == "nvme":
            path = asker.text(f"Folder on the disk for the {part}?", needed=True)
            section[f"offload_{part}_nvme_path"] = path
    section["gradient_accumulation_steps"] = asker.number("Batches whose gradients make one update?", 1)
    return section
