"""The settings of a run under DeepSpeed: the engine's options, and stand-ins for what its file describes."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from ..sections import as_bool, as_choice, as_int, without_prefix

AUTO = "auto"
_DEVICES = ("none", "cpu", "nvme")
# Keys of a configuration file's section that only the launcher reads.
_OF_THE_LAUNCHER = (
    "deepspeed_hostfile",
    "deepspeed_multinode_launcher",
    "deepspeed_inclusion_filter",
    "deepspeed_exclusion_filter",
)
_KEYS = (
    "deepspeed_config_file",
    "zero_stage",
    "gradient_accumulation_steps",
    "gradient_clipping",
    "offload_optimizer_device",
    "offload_param_device",
    "offload_optimizer_nvme_path",
    "offload_param_nvme_path",
    "zero3_init_flag",
    "zero3_save_16bit_model",
    "deepspeed_moe_layer_cls_names",
    *_OF_THE_LAUNCHER,
)
# Field of the plugin: where its value is in DeepSpeed's configuration.
_PLACES = {
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "zero_stage": "zero_optimization.stage",
    "offload_optimizer_device": "zero_optimization.offload_optimizer.device",
    "offload_param_device": "zero_optimization.offload_param.device",
    "offload_optimizer_nvme_path": "zero_optimization.offload_optimizer.nvme_path",
    "offload_param_nvme_path": "zero_optimization.offload_param.nvme_path",
}


@dataclass
class DeepSpeedPlugin:
    """Train with DeepSpeed's ZeRO. Names are those of Hugging Face Accelerate's plugin.

    Args:
        hf_ds_config: DeepSpeed's configuration, as path of a JSON file or as a dict. Values "auto" in it are filled
            in from the script's objects. Its values must not be set differently elsewhere.
        gradient_accumulation_steps: batches per optimizer step; default: as set on the Accelerator.
        gradient_clipping: largest norm of the gradients in every step, without a call of `clip_grad_norm_`.
        zero_stage: 0 (each rank holds everything), 1 (optimizer states divided between ranks), 2 (gradients too) or 3
            (weights too); default 2.
        is_train_batch_min: of several prepared loaders, the smallest batch is the training's; False: the largest.
        offload_optimizer_device, offload_param_device: "none", "cpu" or "nvme", from stage 2 and stage 3 on.
        offload_optimizer_nvme_path, offload_param_nvme_path: directories for "nvme".
        zero3_init_flag: `zero3_init_context_manager` divides weights of stage 3 as they are made.
        zero3_save_16bit_model: weights are saved in 16 bits, as the model computes with them; default: in float32.
        transformer_moe_cls_names: names of classes, with commas between, whose modules stage 3 gathers as one.
        enable_msamp: not offered, must be False.
        msamp_opt_level: for exchange with Accelerate.

    Raises:
        ValueError: a value that cannot be, or that the JSON file has differently.
    """

    hf_ds_config: str | Path | Mapping[str, Any] | None = None
    gradient_accumulation_steps: int | str | None = None
    gradient_clipping: float | str | None = None
    zero_stage: int | None = None
    is_train_batch_min: bool = True
    offload_optimizer_device: str | None = None
    offload_param_device: str | None = None
    offload_optimizer_nvme_path: str | None = None
    offload_param_nvme_path: str | None = None
    zero3_init_flag: bool | None = None
    zero3_save_16bit_model: bool | None = None
    transformer_moe_cls_names: str | None = None
    enable_msamp: bool = False
    msamp_opt_level: str | None = None
    config: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        if self.enable_msamp:
            raise ValueError("enable_msamp: accelify does not offer MS-AMP; leave it out")
        self._check_fields()
        self.config = _read(self.hf_ds_config)
        if self.zero_stage is None and lookup(self.config, "zero_optimization.stage") in (None, AUTO):
            self.zero_stage = 2
        for name, place in _PLACES.items():
            value = getattr(self, name)
            if value in (None, AUTO) or (value == "none" and lookup(self.config, place) is None):
                continue
            known = lookup(self.config, place)
            if known not in (None, AUTO, value):
                raise ValueError(
                    f"{place} is {known!r} in the DeepSpeed configuration and {name} is {value!r}: "
                    "leave one of them out"
                )
            put(self.config, place, value)
        self.zero_stage = as_int(lookup(self.config, "zero_optimization.stage"), "zero_optimization.stage")
        if self.zero_stage > 3:
            raise ValueError(f"zero_optimization.stage must be 0, 1, 2 or 3, not {self.zero_stage}")
        self._check_offload()

    @property
    def deepspeed_config(self) -> dict[str, Any]:
        """DeepSpeed's configuration, with the number of batches per step once the Accelerator is made."""
        return self.config

    def _check_fields(self) -> None:
        if self.zero_stage is not None and as_int(self.zero_stage, "zero_stage") > 3:
            raise ValueError(f"zero_stage must be 0, 1, 2 or 3, not {self.zero_stage!r}")
        if self.gradient_accumulation_steps not in (None, AUTO):
            self.gradient_accumulation_steps = as_int(
                self.gradient_accumulation_steps, "gradient_accumulation_steps", 1
            )
        if self.gradient_clipping is not None and self.gradient_clipping != AUTO:
            try:
                self.gradient_clipping = float(self.gradient_clipping)
            except (TypeError, ValueError):
                raise ValueError(
                    f"gradient_clipping must be a number, not {self.gradient_clipping!r}"
                ) from None
        for name in ("offload_optimizer_device", "offload_param_device"):
            if getattr(self, name) is not None:
                setattr(self, name, as_choice(getattr(self, name), name, _DEVICES))

    def _check_offload(self) -> None:
        for part, least in (("optimizer", 1), ("param", 3)):
            section = lookup(self.config, f"zero_optimization.offload_{part}") or {}
            device = section.get("device", "none")
            if device == "none":
                continue
            if int(self.zero_stage or 0) < least:
                raise ValueError(
                    f"zero_optimization.offload_{part} needs zero_stage {least} or above, not {self.zero_stage}"
                )
            if device == "nvme" and not section.get("nvme_path"):
                raise ValueError(
                    f'zero_optimization.offload_{part}.device is "nvme": give offload_{part}_nvme_path, a directory'
                )

    @classmethod
    def from_config(cls, section: Mapping[str, Any]) -> DeepSpeedPlugin:
        """The plugin for a `deepspeed_config` section of a configuration file.

        Args:
            section: as it is in the file.

        Raises:
            ValueError: an unknown key, or a value that cannot be.
        """
        values = {
            k: v
            for k, v in without_prefix(section, "", _KEYS, "deepspeed_config").items()
            if v != AUTO and k not in _OF_THE_LAUNCHER and not (k.endswith("_nvme_path") and v == "none")
        }
        found: dict[str, Any] = {}
        for key, value in values.items():
            if key == "deepspeed_config_file":
                found["hf_ds_config"] = str(value)
            elif key == "deepspeed_moe_layer_cls_names":
                found["transformer_moe_cls_names"] = str(value)
            elif key in ("zero3_init_flag", "zero3_save_16bit_model"):
                found[key] = as_bool(value, key)
            elif key == "zero_stage":
                found[key] = as_int(value, key)
            else:
                found[key] = value
        return cls(**found)

    @property
    def mixed_precision(self) -> str | None:
        """The precision that the user's file asks for, None where it leaves that to the script."""
        for name in ("bf16", "fp16"):
            if lookup(self.config, f"{name}.enabled") is True:
                return name
        return None

    def check_precision(self, name: str) -> None:
        """ValueError where the file and the script disagree about `mixed_precision`."""
        for key in ("bf16", "fp16"):
            stated = lookup(self.config, f"{key}.enabled")
            if isinstance(stated, bool) and stated != (name == key):
                raise ValueError(
                    f"{key}.enabled is {str(stated).lower()} in the DeepSpeed configuration and the script runs with "
                    f'mixed_precision="{name}": write "auto" there, or the same in both'
                )

    def accumulation(self, steps: int) -> int:
        """Batches per optimizer step, which the configuration has from then on.

        Args:
            steps: what the script sets; 1 means that it sets nothing.

        Raises:
            ValueError: the file has another value.
        """
        stated = lookup(self.config, "gradient_accumulation_steps")
        if stated in (None, AUTO):
            self.config["gradient_accumulation_steps"] = steps
            return steps
        stated = as_int(stated, "gradient_accumulation_steps", 1)
        if steps not in (1, stated):
            raise ValueError(
                f"gradient_accumulation_steps is {stated} in the DeepSpeed configuration and {steps} in the script: "
                'write "auto" there, or the same in both'
            )
        return stated

    def zero3_init_context_manager(self, enable: bool | None = None) -> AbstractContextManager[Any]:
        """A region in which the weights of new modules are divided between ranks as they are made (`zero.Init`).

        Args:
            enable: default: `zero3_init_flag`. Without it, or below stage 3, the region does nothing.
        """
        from contextlib import nullcontext

        if not (self.zero3_init_flag if enable is None else enable) or self.zero_stage != 3:
            return nullcontext()
        import deepspeed

        dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16}
        from ..state import AcceleratorState

        precision = AcceleratorState().mixed_precision
        return deepspeed.zero.Init(dtype=dtypes.get(precision, torch.float32))  # type: ignore[no-any-return]


def _read(source: Any) -> dict[str, Any]:
    """DeepSpeed's configuration from a dict or a file; ValueError where it is none."""
    if source is None:
        return {}
    if isinstance(source, Mapping):
        return deepcopy(dict(source))
    try:
        found = json.loads(Path(source).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ValueError(f"there is no DeepSpeed configuration {source}") from None
    except (OSError, ValueError) as error:
        raise ValueError(f"the DeepSpeed configuration {source} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"the DeepSpeed configuration {source} is no JSON object")
    return found


def lookup(config: Mapping[str, Any], place: str) -> Any:
    """The value at a place such as "zero_optimization.stage", None where there is none."""
    value: Any = config
    for key in place.split("."):
        if not isinstance(value, Mapping) or key not in value:
            return None
        value = value[key]
    return value


def put(config: dict[str, Any], place: str, value: Any) -> None:
    """Set the value at a place, with the sections around it."""
    *outer, last = place.split(".")
    for key in outer:
        config = config.setdefault(key, {})
    config[last] = value


class DummyOptim(torch.optim.Optimizer):
    """Stands for the optimizer that DeepSpeed's configuration describes; `prepare` makes that one from it.

    Args:
        params: parameters, or groups of them.
        lr, weight_decay: for "auto" in the configuration.
        **kwargs: further values for "auto", such as betas and eps.
    """

    def __init__(
        self, params: Iterable[Any], lr: float = 0.001, weight_decay: float = 0.0, **kwargs: Any
    ) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, **kwargs})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Not before `prepare`, which gives it the real one's groups and state."""
        raise RuntimeError("DummyOptim steps after accelerator.prepare, with the DeepSpeed engine only")


class DummyScheduler:
    """Stands for the learning rate scheduler that DeepSpeed's configuration describes, or makes one late.

    Args:
        optimizer: the script's optimizer or its DummyOptim.
        total_num_steps, warmup_num_steps: for "auto" in the configuration.
        lr_scheduler_callable: makes a scheduler of the real optimizer, where the configuration describes none.
        **kwargs: further values for "auto".
    """

    def __init__(
        self,
        optimizer: Any,
        total_num_steps: int | None = None,
        warmup_num_steps: int = 0,
        lr_scheduler_callable: Callable[[Any], Any] | None = None,
        **kwargs: Any,
    ) -> None:
        self.optimizer = optimizer
        self.total_num_steps = total_num_steps
        self.warmup_num_steps = warmup_num_steps
        self.lr_scheduler_callable = lr_scheduler_callable
        self.kwargs = kwargs
        self.scheduler: Any = None
        inner = getattr(optimizer, "optimizer", optimizer)
        _of_optimizer[inner] = self
        made = _late.get(inner)
        if made is not None:
            made(self)

    def _real(self) -> Any:
        if self.scheduler is None:
            raise RuntimeError(
                "DummyScheduler works after accelerator.prepare, with the DeepSpeed engine and a scheduler in its "
                "configuration (or lr_scheduler_callable)"
            )
        return self.scheduler

    def step(self, *args: Any, **kwargs: Any) -> None:
        """The real one's."""
        self._real().step(*args, **kwargs)

    def state_dict(self) -> dict[str, Any]:
        """The real one's."""
        return self._real().state_dict()  # type: ignore[no-any-return]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """The real one's."""
        self._real().load_state_dict(state)

    def get_last_lr(self) -> Any:
        """The real one's."""
        return self._real().get_last_lr()

    def get_lr(self) -> Any:
        """The real one's."""
        return self._real().get_lr()


# Shared on purpose, as scripts make schedulers with nothing but their optimizer in hand: the stand-in for an
# optimizer's scheduler, and what gives one that comes after `prepare` its scheduler.
_of_optimizer: weakref.WeakKeyDictionary[Any, DummyScheduler] = weakref.WeakKeyDictionary()
_late: weakref.WeakKeyDictionary[Any, Callable[[DummyScheduler], None]] = weakref.WeakKeyDictionary()


def scheduler_of(optimizer: Any) -> DummyScheduler | None:
    """The stand-in that was made for an optimizer."""
    return _of_optimizer.get(optimizer)


def when_scheduler_comes(optimizer: Any, give: Callable[[DummyScheduler], None]) -> None:
    """Call `give` with a stand-in that is made for this optimizer later."""
    _late[optimizer] = give
