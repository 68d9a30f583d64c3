"""The distributed runtime: everything a training script needs, importable from here.

Names and arguments are those of Hugging Face Accelerate's training API wherever it has one. Nothing is loaded
before it is asked for, so importing this package costs next to nothing on top of torch.
"""

from importlib import import_module
from importlib.util import find_spec
from os import environ
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .accelerator import Accelerator as Accelerator
    from .backends.deepspeed_json import HfDeepSpeedConfig as HfDeepSpeedConfig
    from .backends.deepspeed_plugin import DeepSpeedPlugin as DeepSpeedPlugin
    from .backends.deepspeed_plugin import DummyOptim as DummyOptim
    from .backends.deepspeed_plugin import DummyScheduler as DummyScheduler
    from .backends.fsdp_plugin import FullyShardedDataParallelPlugin as FullyShardedDataParallelPlugin
    from .backends.parallelism import ParallelismConfig as ParallelismConfig
    from .backends.parallelism import TorchTensorParallelPlugin as TorchTensorParallelPlugin
    from .backends.xla_plugin import XLAPlugin as XLAPlugin
    from .collectives import broadcast as broadcast
    from .collectives import broadcast_object_list as broadcast_object_list
    from .collectives import copy_tensor_to_devices as copy_tensor_to_devices
    from .collectives import gather as gather
    from .collectives import gather_object as gather_object
    from .collectives import pad_across_processes as pad_across_processes
    from .collectives import reduce as reduce
    from .data.dispatch import DataLoaderDispatcher as DataLoaderDispatcher
    from .data.index_streams import SeedableRandomSampler as SeedableRandomSampler
    from .data.iterable import IterableDatasetShard as IterableDatasetShard
    from .data.loaders import DataLoaderShard as DataLoaderShard
    from .data.preparing import prepare_data_loader as prepare_data_loader
    from .data.random_state import set_seed as set_seed
    from .data.random_state import synchronize_rng_state as synchronize_rng_state
    from .data.random_state import synchronize_rng_states as synchronize_rng_states
    from .data.sharding import BatchSamplerShard as BatchSamplerShard
    from .data.skipping import SkipBatchSampler as SkipBatchSampler
    from .data.skipping import skip_first_batches as skip_first_batches
    from .files import SAFE_WEIGHTS_INDEX_NAME as SAFE_WEIGHTS_INDEX_NAME
    from .files import SAFE_WEIGHTS_NAME as SAFE_WEIGHTS_NAME
    from .files import WEIGHTS_INDEX_NAME as WEIGHTS_INDEX_NAME
    from .files import WEIGHTS_NAME as WEIGHTS_NAME
    from .files import release_memory as release_memory
    from .guard import DistributedOperationException as DistributedOperationException
    from .guard import RanksDisagreeError as RanksDisagreeError
    from .helpers import LocalSGD as LocalSGD
    from .helpers import find_executable_batch_size as find_executable_batch_size
    from .helpers import pad_input_tensors as pad_input_tensors
    from .launch.notebook import debug_launcher as debug_launcher
    from .launch.notebook import notebook_launcher as notebook_launcher
    from .logging import get_logger as get_logger
    from .nested import concatenate as concatenate
    from .nested import convert_outputs_to_fp32 as convert_outputs_to_fp32
    from .nested import convert_to_fp32 as convert_to_fp32
    from .nested import find_batch_size as find_batch_size
    from .nested import honor_type as honor_type
    from .nested import recursively_apply as recursively_apply
    from .nested import send_to_device as send_to_device
    from .nested import slice_tensors as slice_tensors
    from .observers import add_backward_observer as add_backward_observer
    from .observers import remove_backward_observer as remove_backward_observer
    from .optimizer import AcceleratedOptimizer as AcceleratedOptimizer
    from .plugins import AutocastKwargs as AutocastKwargs
    from .plugins import DataLoaderConfiguration as DataLoaderConfiguration
    from .plugins import DDPCommunicationHookType as DDPCommunicationHookType
    from .plugins import DistributedDataParallelKwargs as DistributedDataParallelKwargs
    from .plugins import GradientAccumulationPlugin as GradientAccumulationPlugin
    from .plugins import GradScalerKwargs as GradScalerKwargs
    from .plugins import InitProcessGroupKwargs as InitProcessGroupKwargs
    from .plugins import KwargsHandler as KwargsHandler
    from .plugins import LoggerType as LoggerType
    from .plugins import PrecisionType as PrecisionType
    from .plugins import ProfileKwargs as ProfileKwargs
    from .plugins import ProjectConfiguration as ProjectConfiguration
    from .plugins import RNGType as RNGType
    from .plugins import TorchDynamoPlugin as TorchDynamoPlugin
    from .scheduler import AcceleratedScheduler as AcceleratedScheduler
    from .state import AcceleratorState as AcceleratorState
    from .state import DistributedType as DistributedType
    from .state import GradientState as GradientState
    from .state import PartialState as PartialState
    from .tracking import GeneralTracker as GeneralTracker
    from .tracking import MLflowTracker as MLflowTracker
    from .tracking import TensorBoardTracker as TensorBoardTracker
    from .tracking import WandBTracker as WandBTracker
    from .weights import load_weights as load_weights

_HOMES: dict[str, tuple[str, ...]] = {
    "accelerator": ("Accelerator",),
    "backends.fsdp_plugin": ("FullyShardedDataParallelPlugin",),
    "backends.parallelism": ("ParallelismConfig", "TorchTensorParallelPlugin"),
    "backends.xla_plugin": ("XLAPlugin",),
    "backends.deepspeed_json": ("HfDeepSpeedConfig",),
    "backends.deepspeed_plugin": ("DeepSpeedPlugin", "DummyOptim", "DummyScheduler"),
    "weights": ("load_weights",),
    "collectives": (
        "broadcast",
        "broadcast_object_list",
        "copy_tensor_to_devices",
        "gather",
        "gather_object",
        "pad_across_processes",
        "reduce",
    ),
    "data.dispatch": ("DataLoaderDispatcher",),
    "data.iterable": ("IterableDatasetShard",),
    "data.loaders": ("DataLoaderShard",),
    "data.preparing": ("prepare_data_loader",),
    "data.random_state": ("set_seed", "synchronize_rng_state", "synchronize_rng_states"),
    "data.skipping": ("SkipBatchSampler", "skip_first_batches"),
    "data.index_streams": ("SeedableRandomSampler",),
    "data.sharding": ("BatchSamplerShard",),
    "guard": ("DistributedOperationException", "RanksDisagreeError"),
    "files": (
        "SAFE_WEIGHTS_INDEX_NAME",
        "SAFE_WEIGHTS_NAME",
        "WEIGHTS_INDEX_NAME",
        "WEIGHTS_NAME",
        "release_memory",
    ),
    "launch.notebook": ("debug_launcher", "notebook_launcher"),
    "helpers": ("LocalSGD", "find_executable_batch_size", "pad_input_tensors"),
    "logging": ("get_logger",),
    "nested": (
        "concatenate",
        "convert_outputs_to_fp32",
        "convert_to_fp32",
        "find_batch_size",
        "honor_type",
        "recursively_apply",
        "send_to_device",
        "slice_tensors",
    ),
    "observers": ("add_backward_observer", "remove_backward_observer"),
    "optimizer": ("AcceleratedOptimizer",),
    "plugins": (
        "AutocastKwargs",
        "RNGType",
        "PrecisionType",
        "LoggerType",
        "DDPCommunicationHookType",
        "DataLoaderConfiguration",
        "DistributedDataParallelKwargs",
        "GradScalerKwargs",
        "GradientAccumulationPlugin",
        "InitProcessGroupKwargs",
        "KwargsHandler",
        "ProfileKwargs",
        "ProjectConfiguration",
        "TorchDynamoPlugin",
    ),
    "scheduler": ("AcceleratedScheduler",),
    "tracking": ("GeneralTracker", "MLflowTracker", "TensorBoardTracker", "WandBTracker"),
    "state": ("AcceleratorState", "DistributedType", "GradientState", "PartialState"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME_OF)


if "CROSS_SIZE" in environ:
    # Started by DeepSpeed's launcher, whose argument the script may not know.
    from .backends.deepspeed_launcher import hide_local_rank

    hide_local_rank()


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if find_spec("torch") is None:
        # Asked only here: help pages and settings of launches are in this package too, and need no torch.
        from accelify.installing import install_command

        raise ImportError(f"{__name__} needs PyTorch, which is not installed: {install_command('runtime')}")
    value = getattr(import_module(f".{home}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
