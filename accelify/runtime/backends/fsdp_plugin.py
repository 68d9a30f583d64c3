"""How models are sharded: the options of the FSDP2 engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..sections import as_bool, as_choice, as_int, without_prefix

WRAP_POLICIES = ("transformer_based_wrap", "size_based_wrap", "no_wrap")
STATE_DICT_TYPES = ("FULL_STATE_DICT", "SHARDED_STATE_DICT")
_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}
# What FSDP's first version called its ways, as `reshard_after_forward`.
_STRATEGIES = {"FULL_SHARD": True, "SHARD_GRAD_OP": False}
# Options of the first version that FSDP2 has no choice in: it always works on the script's parameters,
# fetches ahead by itself and begins with equal weights.
_OF_VERSION_1 = ("backward_prefetch", "forward_prefetch", "use_orig_params")
_KEYS = (
    "version",
    "reshard_after_forward",
    "sharding_strategy",
    "auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "min_num_params",
    "state_dict_type",
    "offload_params",
    "cpu_ram_efficient_loading",
    "activation_checkpointing",
    "sync_module_states",
    *_OF_VERSION_1,
)


@dataclass
class FullyShardedDataParallelPlugin:
    """Shard models with torch's `fully_shard` (FSDP2). Names are those of Hugging Face Accelerate's plugin.

    Args:
        fsdp_version: 2, the one there is.
        reshard_after_forward: free a unit's whole weights after its forward and gather them again in backward; None:
            torch's default (all units but the outermost); a number: reshard to groups of so many ranks.
        auto_wrap_policy: "transformer_based_wrap" (blocks by class), "size_based_wrap" (modules from a number of
            parameters on), "no_wrap" (the model as one unit), a function of a module that says whether it is a unit, or
            None: by the options below, else the blocks that the model repeats.
        transformer_cls_names_to_wrap: names of the block classes; default: the model's `_no_split_modules`.
        min_num_params: parameters from which on a module is a separate unit.
        mixed_precision_policy: torch's MixedPrecisionPolicy, a dict of its arguments, or "bf16", "fp16", "fp32";
            default: from the Accelerator's `mixed_precision`, gradients averaged in float32.
        cpu_offload: weights, gradients and optimizer states wait on the host; not where the CPU is the device.
        state_dict_type: what checkpoints of `save_state` hold: "FULL_STATE_DICT" (whole weights, written by the main
            process) or "SHARDED_STATE_DICT" (every rank its part, through torch.distributed.checkpoint); None: whole up
            to 4 GiB of weights and optimizer states, and parts above that where all ranks share a file system.
        cpu_ram_efficient_loading: only the main process has weights at the start; the others may have built their
            model on the meta device.
        activation_checkpointing: units compute their activations again in backward.
        sync_module_states: begin with rank 0's weights on every rank; False: they are equal already.
        ignored_modules: modules that stay whole on every rank and are averaged like in DDP: not offered, must be None.

    Raises:
        ValueError: a value that cannot be.
    """

    fsdp_version: int = 2
    reshard_after_forward: bool | int | None = None
    auto_wrap_policy: str | Callable[[torch.nn.Module], bool] | None = None
    transformer_cls_names_to_wrap: list[str] | str | None = None
    min_num_params: int | None = None
    mixed_precision_policy: Any = None
    cpu_offload: Any = False
    state_dict_type: str | None = None
    cpu_ram_efficient_loading: bool = False
    activation_checkpointing: bool = False
    sync_module_states: bool = True
    ignored_modules: Any = None

    def __post_init__(self) -> None:
        if self.fsdp_version != 2:
            raise ValueError(
                f"fsdp_version must be 2: torch's first FSDP is not offered, not {self.fsdp_version!r}"
            )
        if isinstance(self.auto_wrap_policy, str):
            self.auto_wrap_policy = as_choice(self.auto_wrap_policy, "auto_wrap_policy", WRAP_POLICIES)
        elif self.auto_wrap_policy is not None and not callable(self.auto_wrap_policy):
            raise ValueError(
                f"auto_wrap_policy must be a function of a module or one of {', '.join(WRAP_POLICIES)}, "
                f"not {self.auto_wrap_policy!r}"
            )
        names = self.transformer_cls_names_to_wrap
        if isinstance(names, str):
            self.transformer_cls_names_to_wrap = [n.strip() for n in names.split(",") if n.strip()]
        if self.min_num_params is not None:
            self.min_num_params = as_int(self.min_num_params, "min_num_params", 1)
        if self.auto_wrap_policy == "size_based_wrap" and self.min_num_params is None:
            raise ValueError("auto_wrap_policy size_based_wrap needs min_num_params, such as 1000000")
        if self.state_dict_type is not None:
            kind = getattr(self.state_dict_type, "name", self.state_dict_type)
            self.state_dict_type = as_choice(kind, "state_dict_type", STATE_DICT_TYPES)
        if self.ignored_modules:
            raise ValueError("ignored_modules: accelify shards all modules of a model; leave it out")
        reshard = self.reshard_after_forward
        if reshard is not None and not isinstance(reshard, bool):
            self.reshard_after_forward = as_int(reshard, "reshard_after_forward", 2)

    @classmethod
    def from_config(cls, section: Mapping[str, Any]) -> FullyShardedDataParallelPlugin:
        """The plugin for an `fsdp_config` section of a configuration file.

        A section for FSDP's first version has the same options under other names, and is read as FSDP2's.

        Args:
            section: keys with or without "fsdp_" in front.

        Raises:
            ValueError: an unknown key, or a value that cannot be.
        """
        values = without_prefix(section, "fsdp_", _KEYS, "fsdp_config")
        as_int(values.pop("version", 2), "fsdp_version", 1)
        for key in _OF_VERSION_1:
            values.pop(key, None)
        strategy = values.pop("sharding_strategy", None)
        if strategy is not None:
            values.setdefault("reshard_after_forward", strategy)
        found: dict[str, Any] = {}
        if "reshard_after_forward" in values:
            found["reshard_after_forward"] = _reshard(values["reshard_after_forward"])
        for key, name in (
            ("auto_wrap_policy", "auto_wrap_policy"),
            ("transformer_layer_cls_to_wrap", "transformer_cls_names_to_wrap"),
            ("state_dict_type", "state_dict_type"),
        ):
            if key in values:
                found[name] = values[key]
        if "auto_wrap_policy" in found:
            found["auto_wrap_policy"] = as_choice(
                found["auto_wrap_policy"], "fsdp_auto_wrap_policy", WRAP_POLICIES
            )
        if "state_dict_type" in found:
            found["state_dict_type"] = as_choice(
                found["state_dict_type"], "fsdp_state_dict_type", STATE_DICT_TYPES
            )
        if "min_num_params" in values:
            found["min_num_params"] = as_int(values["min_num_params"], "fsdp_min_num_params", 1)
        for key, name in (
            ("offload_params", "cpu_offload"),
            ("cpu_ram_efficient_loading", "cpu_ram_efficient_loading"),
            ("activation_checkpointing", "activation_checkpointing"),
            ("sync_module_states", "sync_module_states"),
        ):
            if key in values:
                found[name] = as_bool(values[key], f"fsdp_{key}")
        # A setting for size that comes with another policy says nothing in Accelerate's files.
        if found.get("auto_wrap_policy") not in (None, "size_based_wrap"):
            found.pop("min_num_params", None)
        return cls(**found)

    def precision_policy(self, dtype: torch.dtype | None) -> Any:
        """torch's MixedPrecisionPolicy.

        Args:
            dtype: of the Accelerator's `mixed_precision`, None in full precision.

        Raises:
            ValueError: `mixed_precision_policy` is none.
        """
        from torch.distributed.fsdp import MixedPrecisionPolicy

        stated = self.mixed_precision_policy
        if isinstance(stated, MixedPrecisionPolicy):
            return stated
        if isinstance(stated, Mapping):
            try:
                return MixedPrecisionPolicy(**{k: _dtype(v) for k, v in stated.items()})
            except TypeError:
                known = "param_dtype, reduce_dtype, output_dtype, cast_forward_inputs"
                raise ValueError(
                    f"mixed_precision_policy has the keys {known}, not {', '.join(stated)}"
                ) from None
        if stated is not None:
            dtype = _dtype(as_choice(stated, "mixed_precision_policy", _DTYPES))
        if dtype is None or dtype == torch.float32:
            return MixedPrecisionPolicy()
        return MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)


def _dtype(value: Any) -> Any:
    return _DTYPES.get(value, value) if isinstance(value, str) else value


def _reshard(value: Any) -> bool | int:
    text = str(value).upper()
    if text == "NO_SHARD":
        raise ValueError(
            "fsdp_sharding_strategy NO_SHARD is what plain data parallel does: leave the fsdp_config section out"
        )
    if text.startswith("HYBRID_SHARD"):
        raise ValueError(
            f"fsdp_sharding_strategy {text}: write parallelism_config_dp_replicate_size, the number of machines, in "
            "the section parallelism_config instead"
        )
    if text in _STRATEGIES:
        return _STRATEGIES[text]
    if text.isdigit() and int(text) > 1:
        return int(text)
    try:
        return as_bool(value, "fsdp_reshard_after_forward")
    except ValueError:
        raise ValueError(
            f"fsdp_reshard_after_forward must be true, false or a number of ranks, not {value!r}"
        ) from None
