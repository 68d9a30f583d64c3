"""What the converter knows of torch and its neighbours, as tables of qualified names."""

from __future__ import annotations

import ast
import functools
import re

LOADER_CLASSES = frozenset(
    {
        "torch.utils.data.DataLoader",
        "torch.utils.data.dataloader.DataLoader",
        "torch_geometric.loader.DataLoader",
        "torch_geometric.data.DataLoader",
        "monai.data.DataLoader",
    }
)
# Their functions take a device as torch's do.
TORCH_LIBRARIES = frozenset(
    {"torch", "torchvision", "torchaudio", "torchtext", "torch_geometric", "monai", "kornia"}
)
DEVICE_CALLS = frozenset({"torch.device", "torch.accelerator.current_accelerator"})
AVAILABILITY_CALLS = frozenset(
    {
        "torch.cuda.is_available",
        "torch.accelerator.is_available",
        "torch.backends.mps.is_available",
        "torch.mps.is_available",
        "torch.xpu.is_available",
        "torch.cuda.device_count",
    }
)
SCALER_CLASSES = frozenset(
    {
        "torch.cuda.amp.GradScaler",
        "torch.amp.GradScaler",
        "torch.GradScaler",
        "torch.cuda.amp.grad_scaler.GradScaler",
    }
)
AUTOCAST_CLASSES = frozenset(
    {
        "torch.cuda.amp.autocast",
        "torch.amp.autocast",
        "torch.autocast",
        "torch.cuda.amp.autocast_mode.autocast",
    }
)
TENSORBOARD = "torch.utils.tensorboard.SummaryWriter"
WRITER_CLASSES = frozenset(
    {
        TENSORBOARD,
        "torch.utils.tensorboard.writer.SummaryWriter",
        "tensorboardX.SummaryWriter",
        "tensorboardX.writer.SummaryWriter",
        "tensorboard.SummaryWriter",
        "tensorboard.FileWriter",
        "tensorboardX.FileWriter",
        "tensorboardX.writer.FileWriter",
        "visdom.Visdom",
        "tensorboard_logger.Logger",
        "tensorflow.summary.FileWriter",
        "tensorflow.compat.v1.summary.FileWriter",
        "tensorflow.train.SummaryWriter",
    }
)
PROGRESS_CALLS = frozenset(
    {
        "tqdm.tqdm",
        "tqdm.auto.tqdm",
        "tqdm.notebook.tqdm",
        "tqdm.std.tqdm",
        "tqdm.autonotebook.tqdm",
        "tqdm.tqdm_notebook",
        "tqdm.notebook.tqdm_notebook",
        "tqdm.trange",
        "tqdm.auto.trange",
        "tqdm.notebook.trange",
        "tqdm.tnrange",
        "rich.progress.track",
    }
)
_PROGRESS_NAMES = frozenset({"tqdm", "trange", "tqdm_notebook", "tnrange"})


def is_range(qualname: str | None) -> bool:
    """Whether a qualified name is that of tqdm's bar over numbers, which gives no data: `trange(epochs)`."""
    return bool(qualname) and str(qualname).rsplit(".", 1)[-1] in ("trange", "tnrange")


def is_progress(qualname: str | None) -> bool:
    """Whether a qualified name is tqdm, from wherever it was imported."""
    return bool(qualname) and (
        qualname in PROGRESS_CALLS or str(qualname).rsplit(".", 1)[-1] in _PROGRESS_NAMES
    )


def can_bring(library: str, name: str) -> bool:
    """Whether `from library import *` can bring a name: tqdm's brings its bars, and no other library's does."""
    return (library.partition(".")[0] == "tqdm") == (name in _PROGRESS_NAMES)


PARALLEL_WRAPPERS = frozenset(
    {
        "torch.nn.DataParallel",
        "torch.nn.parallel.DataParallel",
        "torch.nn.parallel.data_parallel.DataParallel",
    }
)
# Libraries whose wrappers of that name take batches of another form than the model does.
_OWN_BATCHES = ("torch.", "torch_geometric.")
# Libraries whose loaders give batches that `to` moves where they are.
MOVED_IN_PLACE = ("torch_geometric.",)


def is_unread_wrapper(name: str, call: ast.Call) -> bool:
    """Whether a class that is not read passes for a DataParallel: `ParallelWithHooks(model, device_ids=ids)`."""
    last = name.rpartition(".")[2]
    if "Parallel" not in last or name.startswith(_OWN_BATCHES) or "Distributed" in last or "Shard" in last:
        return False
    named = {kw.arg for kw in call.keywords}
    if "device_ids" in named:
        return bool(call.args) or "module" in named
    if last == "DataParallel" and len(call.args) == 2 and not call.keywords:
        return True  # torch's takes its GPUs so
    return "DataParallel" in last and len(call.args) == 1 and not call.keywords


# What runs a model on parts of a batch, each on another GPU, in one call.
SPLIT_RUNS = frozenset({"torch.nn.parallel.data_parallel", "torch.nn.parallel.data_parallel.data_parallel"})
# The same in steps that the script does by itself.
COPIED_RUNS = frozenset(
    {
        "torch.nn.parallel.replicate",
        "torch.nn.parallel.replicate.replicate",
        "torch.nn.parallel.parallel_apply",
        "torch.nn.parallel.parallel_apply.parallel_apply",
    }
)
# torch's and apex's wrappers, which `--replace-ddp` takes out.
DDP_WRAPPERS = frozenset(
    {
        "torch.nn.parallel.DistributedDataParallel",
        "torch.nn.parallel.distributed.DistributedDataParallel",
        "apex.parallel.DistributedDataParallel",
    }
)
DISTRIBUTED_SAMPLERS = frozenset(
    {"torch.utils.data.distributed.DistributedSampler", "torch.utils.data.DistributedSampler"}
)
CLIPPING = {
    "torch.nn.utils.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_norm": "clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm_": "clip_grad_norm_",
    "torch.nn.utils.clip_grad.clip_grad_norm": "clip_grad_norm_",
    "torch.nn.utils.clip_grad_value_": "clip_grad_value_",
    "torch.nn.utils.clip_grad.clip_grad_value_": "clip_grad_value_",
}
VARIABLE = frozenset({"torch.autograd.Variable", "torch.autograd.variable.Variable"})
NO_GRAD = frozenset({"torch.no_grad", "torch.inference_mode", "torch.autograd.no_grad"})

# Libraries that already distribute a script, by what an import of them starts with. The text completes "it uses ...".
DISTRIBUTED_LIBRARIES = {
    "accelerate": "Hugging Face Accelerate",
    "pytorch_lightning": "PyTorch Lightning",
    "lightning": "Lightning",
    "lightning_fabric": "Lightning Fabric",
    "deepspeed": "DeepSpeed",
    "ignite": "PyTorch Ignite",
    "horovod": "Horovod",
    "catalyst": "Catalyst",
    "composer": "Composer",
    "colossalai": "Colossal-AI",
    "torch_xla": "torch_xla",
    "fastai": "fastai",
    "keras": "Keras",
    "skorch": "skorch",
    "poptorch": "PopTorch",
    "torchelastic": "torchelastic",
    "fairscale": "FairScale",
    "torchtnt": "torchtnt",
    "apex": "NVIDIA apex",
}
DISTRIBUTED_NAMES = {
    "torch.nn.parallel.DistributedDataParallel": "DistributedDataParallel",
    "torch.nn.parallel.distributed.DistributedDataParallel": "DistributedDataParallel",
    "torch.distributed.init_process_group": "torch.distributed",
    "torch.distributed.fsdp.FullyShardedDataParallel": "FSDP",
    "torch.distributed.fsdp.fully_shard": "FSDP2",
    "transformers.Trainer": "the Hugging Face Trainer",
    "transformers.Seq2SeqTrainer": "the Hugging Face Seq2SeqTrainer",
    "apex.parallel.DistributedDataParallel": "apex's DistributedDataParallel",
    "torch.multiprocessing.spawn": "torch.multiprocessing to start processes of its own",
    "torch.multiprocessing.Process": "torch.multiprocessing to start processes of its own",
    "torch.utils.data.distributed.DistributedSampler": "DistributedSampler",
    "torch.utils.data.DistributedSampler": "DistributedSampler",
}

# What `--replace-ddp` may take out, among these names.
REPLACEABLE = frozenset(
    {
        *DDP_WRAPPERS,
        *DISTRIBUTED_SAMPLERS,
        "torch.distributed.init_process_group",
        "torch.multiprocessing.spawn",
    }
)
# The process group's functions, which work unchanged in the group that the Accelerator makes.
PLAIN_DISTRIBUTED = tuple(
    f"torch.distributed.{name}"
    for name in (
        "is_ all_ reduce gather broadcast barrier get_ init_process destroy_process new_group scatter send recv "
        "ReduceOp group monitored_barrier default_pg"
    ).split()
)
SYNC_BATCH_NORM = frozenset(
    {"torch.nn.SyncBatchNorm.convert_sync_batchnorm", "apex.parallel.convert_syncbn_model"}
)

# Methods of a module that return the module itself.
SELF_RETURNING = frozenset(
    "to cuda cpu half float double bfloat16 train eval apply requires_grad_ share_memory xpu type "
    "to_empty contiguous".split()
)
# Attributes of nn.Module itself: they mean the same on a wrapped model.
MODULE_API = frozenset(
    "to cuda cpu half float double bfloat16 train eval requires_grad_ share_memory parameters named_parameters "
    "zero_grad training buffers named_buffers forward "
    "register_forward_hook register_forward_pre_hook register_full_backward_hook register_backward_hook "
    "__call__ type xpu".split()
)
# Methods of a tensor that keep it the same tensor as far as roles go.
TENSOR_SELF = frozenset(
    "to cuda cpu detach float double half long int type contiguous clone squeeze unsqueeze view reshape requires_grad_ "
    "pin_memory bool byte transpose permute numpy data flatten cuda_ type_as".split()
)

LOADER_NAME = re.compile(r"load|iterator|_iter$|_dl$|^dl$|batches|^dl_|dataset_iter", re.I)
MODEL_NAME = re.compile(
    r"model|^net|net$|^net[A-Z_]|generator|discriminator|encoder|decoder|critic|actor|policy", re.I
)
# What takes the parameters of a model to average them.
AVERAGE_NAME = re.compile(r"EMA$|\bEMA|MovingAverage|ModelAverag")
OPTIMIZER_NAME = re.compile(r"optim|^opt$|^opt_|_opt$|solver|trainer$", re.I)
SCHEDULER_NAME = re.compile(r"sched|lr_decay|lr_policy", re.I)
CRITERION_NAME = re.compile(r"criterion|loss_?f|loss_func|objective|^loss$", re.I)
DEVICE_NAME = re.compile(r"^(device|dev|DEVICE|_device|args_device)$|_device$")
FLAG_NAME = re.compile(
    r"^(uses?_?)?_?(cuda|gpu|gpus|accel)(_available|_flag|_is_available|_mode|_enabled)?$"
    r"|^(is|has|with|enable|on|train_on|run_on|to)_?(cuda|gpu)$",
    re.I,
)
# Methods of a dict, EasyDict, CfgNode, DictConfig or ConfigDict that set entries.
WRITING_METHODS = frozenset(
    "update setdefault pop popitem clear merge_from_file merge_from_list merge_from_other_cfg merge_from_dict "
    "merge_with merge_with_cli merge_with_dotlist update_from_flattened_dict __setitem__ __setattr__".split()
)
NO_FLAG_NAME = re.compile(r"^(no|disable)_?(cuda|gpu|accel)$|^(use_)?cpu(_only)?$", re.I)
FLAG, DEVICE = "flag", "device"


@functools.lru_cache(maxsize=4096)
def option_named(name: str) -> str | None:
    """What an option is by its name: `FLAG`, `DEVICE`, or None for another. Answers are cached, for all scripts."""
    if FLAG_NAME.search(name) or NO_FLAG_NAME.search(name):
        return FLAG
    return DEVICE if DEVICE_NAME.search(name) else None


# Options for the number of GPUs, or for one of them: none, where it is 0 or -1.
GPU_NUMBER_NAME = re.compile(
    r"^(n|nr|num|nb|number)?_?(of_)?gpus?(_?(nr?|num|no|number|count|ids?|idx|index|list))?$|^cuda(_?(id|num|index))?$",
    re.I,
)
GPU_LIST_NAME = re.compile(r"^(gpu|device)_?(ids?|list)$|^gpus$", re.I)
BATCH_SIZE_NAME = re.compile(r"batch_?size$|^bsz?$", re.I)
DEVICE_TEXT = re.compile(r"^(cuda|gpu|cpu|mps|xpu)(:\d+)?$")


def is_optimizer_class(qualname: str) -> bool:
    """Whether a qualified name is an optimizer of torch or of a library of optimizers."""
    head, _, last = qualname.rpartition(".")
    if not last[:1].isupper() or "lr_scheduler" in qualname or head == "torch.optim.swa_utils":
        return False
    return head.startswith(
        ("torch.optim", "torch_optimizer", "transformers.optimization", "apex.optimizers")
    ) or (
        qualname
        in {"transformers.AdamW", "transformers.Adafactor", "bitsandbytes.optim.Adam8bit", "timm.optim.AdamW"}
    )


def is_scheduler_class(qualname: str) -> bool:
    """Whether a qualified name makes a learning rate scheduler."""
    head, _, last = qualname.rpartition(".")
    if head.startswith("torch.optim.lr_scheduler") and last.lstrip("_")[:1].isupper():
        return True
    if qualname == "torch.optim.swa_utils.SWALR":
        return True
    return head.startswith("transformers") and last.startswith("get_") and "schedule" in last


def is_loss_class(qualname: str) -> bool:
    """Whether a qualified name is a loss module of torch.nn, `NLLLoss2d` of the first releases among them."""
    return qualname.startswith("torch.nn") and qualname.endswith(("Loss", "Loss2d"))


def is_module_class(qualname: str) -> bool:
    """Whether a qualified name makes an nn.Module."""
    head, _, last = qualname.rpartition(".")
    if head in {"torch.nn", "torch.nn.modules"} or head.startswith("torch.nn.modules."):
        return (
            last[:1].isupper() and not is_loss_class(qualname) and last not in {"Parameter", "DataParallel"}
        )
    if head.startswith("torchvision.models"):
        return last[:1].islower() or last[:1].isupper()
    if (
        last in {"from_pretrained", "from_config"}
        and "okenizer" not in head
        and "onfig" not in head.rsplit(".", 1)[-1]
    ):
        return "odel" in head or "For" in head.rsplit(".", 1)[-1]
    return qualname in {
        "timm.create_model",
        "torch.hub.load",
        "torch.jit.load",
        "torch.jit.ScriptModule",
        "segmentation_models_pytorch.Unet",
        "torch_geometric.nn.GCN",
    }


def is_loss_function(qualname: str) -> bool:
    """Whether a qualified name is a functional loss."""
    head, _, last = qualname.rpartition(".")
    return head in {"torch.nn.functional", "torch"} and (
        last.endswith("_loss")
        or "cross_entropy" in last
        or last in {"kl_div", "triplet_margin_with_distance_loss"}
    )
