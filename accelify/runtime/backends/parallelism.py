"""How the processes of a run are laid out: replicas, shards of the model, and parts of its layers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..sections import as_int, without_prefix

_KEYS = ("tp_size", "dp_shard_size", "dp_replicate_size")
# What Accelerate's sections can hold besides; one that changes nothing is no error.
_ELSEWHERE = (
    "cp_size",
    "cp_backend",
    "cp_comm_strategy",
    "sp_size",
    "sp_backend",
    "sp_seq_length",
    "sp_seq_length_is_variable",
    "sp_attn_implementation",
)


@dataclass
class ParallelismConfig:
    """Sizes of the mesh of processes. Their product is the number of processes.

    Ranks that follow each other work on the same batches with parts of each layer (`tp_size`), then come the parts of
    the sharded model, then replicas. Names are those of Hugging Face Accelerate's.

    Args:
        tp_size: ranks that share a layer (tensor parallel); default 1.
        dp_shard_size: ranks over which a model's weights are sharded (FSDP2); default: what is left.
        dp_replicate_size: copies of the sharded model (hybrid sharding); default 1.
        tp_plan: how layers are divided: a dict from names of modules, with * for any part of a name between dots, to
            "colwise", "rowwise", "sequence_parallel", one of torch's ParallelStyle classes or an object of one;
            default: the model's `tp_plan` or `_tp_plan`.

    Raises:
        ValueError: a size that is no whole number of at least 1.
    """

    tp_size: int = 1
    dp_shard_size: int | None = None
    dp_replicate_size: int = 1
    tp_plan: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        self.tp_size = 1 if self.tp_size is None else as_int(self.tp_size, "tp_size", 1)
        replicas = self.dp_replicate_size
        self.dp_replicate_size = 1 if replicas is None else as_int(replicas, "dp_replicate_size", 1)
        if self.dp_shard_size == -1:
            self.dp_shard_size = None
        if self.dp_shard_size is not None:
            self.dp_shard_size = as_int(self.dp_shard_size, "dp_shard_size", 1)

    @classmethod
    def from_config(cls, section: Mapping[str, Any]) -> ParallelismConfig:
        """The configuration for a `parallelism_config` section of a configuration file.

        Args:
            section: keys with or without "parallelism_config_" in front.

        Raises:
            ValueError: an unknown key, a value that cannot be, or a kind of parallelism that is not offered.
        """
        values = without_prefix(section, "parallelism_config_", (*_KEYS, *_ELSEWHERE), "parallelism_config")
        for key in ("cp_size", "sp_size"):
            if as_int(values.pop(key, 1), f"parallelism_config_{key}", 1) > 1:
                raise ValueError(
                    f"parallelism_config_{key} above 1: accelify does not divide sequences between ranks; use "
                    "tp_size or dp_shard_size"
                )
        sizes: dict[str, Any] = {
            k: as_int(v, f"parallelism_config_{k}", -1 if k == "dp_shard_size" else 1)
            for k, v in values.items()
            if k in _KEYS
        }
        return cls(**sizes)

    def sizes(self, processes: int) -> tuple[int, int, int]:
        """(replicas, shards, parts of a layer), their product being the number of processes.

        Raises:
            ValueError: it cannot be.
        """
        fixed = self.tp_size * self.dp_replicate_size
        shards = self.dp_shard_size
        if shards is None and processes % fixed == 0:
            shards = processes // fixed
        if shards is None or shards * fixed != processes:
            stated = f"tp_size {self.tp_size}, dp_replicate_size {self.dp_replicate_size}"
            stated += "" if self.dp_shard_size is None else f", dp_shard_size {self.dp_shard_size}"
            needed = fixed * (self.dp_shard_size or 1)
            raise ValueError(
                f"ParallelismConfig with {stated} needs {needed} processes"
                f"{' or a multiple' if self.dp_shard_size is None else ''}, and this run has {processes}: "
                f"start so many, or change the sizes"
            )
        return self.dp_replicate_size, shards, self.tp_size


@dataclass
class TorchTensorParallelPlugin(ParallelismConfig):
    """Tensor parallel alone: `Accelerator(torch_tp_plugin=TorchTensorParallelPlugin(tp_size=2))`.

    Args:
        tp_size, tp_plan: see `ParallelismConfig`.
    """
