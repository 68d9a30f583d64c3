"""The table of a launch's values, with their names on the command line, in the environment and in the file.

From it come the options of `accelify launch`, the keys that a configuration file may have, the questions' checks and
the sections that the runtime gets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

PRECISIONS = ("no", "fp16", "bf16")
RENDEZVOUS = ("static", "c10d")
TYPES = ("NO", "MULTI_CPU", "MULTI_GPU", "FSDP", "DEEPSPEED", "XLA", "TPU")


@dataclass(frozen=True)
class Field:
    """One value of a launch: its name, which is the flag's too, its kind, and the names it has elsewhere."""

    name: str
    kind: type
    """`object` for what can be true, false, a number or a word."""
    default: Any = None
    help: str = ""
    """Empty for what only files of Accelerate have: the flag is there, but not on the help page."""
    key: str = ""
    """Key in the configuration file, where it is not the name; "-" where it has none."""
    section: str = ""
    """Section of the configuration file, for an engine's values."""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    variable: str = ""
    """Environment variable read when the flag is absent; default ACCELIFY_ and the name in capitals."""
    switch: bool = False
    """A flag without a value, and --no_NAME to turn it off."""
    words: tuple[str, ...] = ()
    """Further spellings of the flag."""
    unset: str = ""
    """What is taken where nothing is set, for `--explain`."""

    @property
    def file_key(self) -> str:
        return "" if self.key == "-" else self.key or self.name

    @property
    def environment_variable(self) -> str:
        return self.variable or f"ACCELIFY_{self.name.upper()}"


FIELDS = (
    Field("distributed_type", str, help="How the processes work together.", choices=TYPES),
    Field(
        "num_processes", int, least=1, words=("-n",),
        help="Processes to start, on all machines together. Default: one per visible CUDA device, else one.",
    ),
    Field(
        "cpu", bool, False, key="use_cpu", variable="ACCELIFY_USE_CPU", switch=True,
        help="Use the CPU even if there are GPUs.",
    ),
    Field("mixed_precision", str, choices=PRECISIONS, help="Precision of the forward pass."),
    Field("gradient_accumulation_steps", int, least=1, help="Batches whose gradients make one update."),
    Field("gpu_ids", str, help="CUDA devices to use: all, or numbers with commas between."),
    Field(
        "num_cpu_threads_per_process", int, least=1, unset="cores / processes",
        help="OMP_NUM_THREADS. Default: cores divided by processes.",
    ),
    Field("num_machines", int, 1, least=1, words=("--nodes",), help="Machines that take part."),
    Field("machine_rank", int, 0, least=0, help="Number of this machine, from 0."),
    Field("main_process_ip", str, help="Address of machine 0."),
    Field(
        "main_process_port", int, least=0, most=65535, unset="29500, or a free port on one machine",
        help="Free port of machine 0. Default 29500; on one machine any that is free.",
    ),
    Field(
        "rdzv_backend", str, "static", choices=RENDEZVOUS,
        help="How several machines meet: static, or c10d, which lets a machine come back.",
    ),
    Field("max_restarts", int, 0, least=0, help="How often a failed job is started again."),
    Field(
        "machine_timeout", int, 30, least=2,
        help="Seconds without a sign of life after which another machine counts as lost.",
    ),
    Field(
        "preemption_grace", int, 120, least=0,
        help="Seconds that the script has to save after SIGTERM, and that Slurm warns it before the end (--slurm).",
    ),
    Field("log_dir", str, help="Write what each process prints into a file of this folder."),
)  # fmt: skip

FSDP, DEEPSPEED, PARALLELISM = "fsdp_config", "deepspeed_config", "parallelism_config"
DYNAMO, XLA = "dynamo_config", "xla_config"

SECTION_FIELDS = (
    Field(
        "fsdp_version", int, section=FSDP, least=1, most=2,
        help="2 for torch's fully_shard; 1 is taken for 2.",
    ),
    Field(
        "fsdp_auto_wrap_policy", str, section=FSDP,
        help="Which modules become shards: TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP or NO_WRAP.",
    ),
    Field(
        "fsdp_transformer_layer_cls_to_wrap", str, section=FSDP,
        help="Names of the block classes, with commas between.",
    ),
    Field("fsdp_min_num_params", int, section=FSDP, least=1, help="Smallest size of a shard, in parameters."),
    Field(
        "fsdp_reshard_after_forward", object, section=FSDP,
        help="Free gathered weights after the forward pass (less memory) or keep them (less traffic).",
    ),
    Field("fsdp_state_dict_type", str, section=FSDP, help="FULL_STATE_DICT or SHARDED_STATE_DICT checkpoints."),
    Field("fsdp_offload_params", bool, section=FSDP, help="Keep weights and gradients on the CPU."),
    Field("fsdp_cpu_ram_efficient_loading", bool, section=FSDP, help="Only rank 0 loads the weights."),
    Field("fsdp_activation_checkpointing", bool, section=FSDP, help="Compute activations again in backward."),
    Field("fsdp_sharding_strategy", str, section=FSDP),
    Field("fsdp_backward_prefetch", str, section=FSDP),
    Field("fsdp_forward_prefetch", bool, section=FSDP),
    Field("fsdp_use_orig_params", bool, section=FSDP),
    Field("fsdp_sync_module_states", bool, section=FSDP),
    Field(
        "tp_size", int, section=PARALLELISM, key="parallelism_config_tp_size", least=1,
        help="Processes that share each layer.",
    ),
    Field(
        "dp_shard_size", int, section=PARALLELISM, key="parallelism_config_dp_shard_size",
        help="Processes that share the weights (FSDP); -1 for those that are left.",
    ),
    Field(
        "dp_replicate_size", int, section=PARALLELISM, key="parallelism_config_dp_replicate_size", least=1,
        help="Copies of the sharded model.",
    ),
    Field(
        "zero_stage", int, section=DEEPSPEED,
        help="What is sharded: 0 nothing, 1 optimizer, 2 also gradients, 3 also weights.",
    ),
    Field("deepspeed_config_file", str, section=DEEPSPEED, help="DeepSpeed's own JSON, which may have auto values."),
    Field("offload_optimizer_device", str, section=DEEPSPEED, help="none, cpu or nvme."),
    Field("offload_param_device", str, section=DEEPSPEED, help="none, cpu or nvme (stage 3)."),
    Field("offload_optimizer_nvme_path", str, section=DEEPSPEED, help="Folder on the nvme."),
    Field("offload_param_nvme_path", str, section=DEEPSPEED, help="Folder on the nvme."),
    Field("gradient_clipping", float, section=DEEPSPEED, help="Largest norm of the gradients."),
    Field("zero3_init_flag", bool, section=DEEPSPEED, help="Make the model's weights in shards from the start."),
    Field("zero3_save_16bit_model", bool, section=DEEPSPEED, help="Save stage 3's weights whole."),
    Field(
        "deepspeed_launcher", bool, section=DEEPSPEED, switch=True,
        help="Start with DeepSpeed's own launcher in place of torch's.",
    ),
    Field("deepspeed_hostfile", str, section=DEEPSPEED, help="For the deepspeed launcher."),
    Field("deepspeed_inclusion_filter", str, section=DEEPSPEED, help="For the deepspeed launcher."),
    Field("deepspeed_exclusion_filter", str, section=DEEPSPEED, help="For the deepspeed launcher."),
    Field("deepspeed_multinode_launcher", str, section=DEEPSPEED, help="pdsh, openmpi, ... or standard."),
    Field("deepspeed_moe_layer_cls_names", str, section=DEEPSPEED, help="Names of the expert classes."),
    Field("spmd", bool, section=XLA, help="One process drives all devices (true) or one process each (false)."),
    Field("num_devices", int, section=XLA, least=1, help="Devices to use; with --cpu, how many to simulate."),
    Field("dynamo_backend", str, section=DYNAMO, help="Use torch.compile with this backend; `no` switches it off."),
    Field("dynamo_mode", str, section=DYNAMO, help="default, reduce-overhead or max-autotune."),
    Field("dynamo_use_fullgraph", bool, section=DYNAMO, switch=True, help="One graph, or an error if that fails."),
    Field("dynamo_use_dynamic", bool, section=DYNAMO, switch=True, help="Compile for shapes that may change."),
)  # fmt: skip

# Section of the file: the key of ACCELIFY_ENGINE, the distributed type that it belongs to ("" for any), its name.
SECTIONS = {
    FSDP: ("fsdp", "FSDP", "FSDP"),
    PARALLELISM: ("parallelism", "", "Tensor parallel"),
    DEEPSPEED: ("deepspeed", "DEEPSPEED", "DeepSpeed"),
    XLA: ("xla", "XLA", "TPU (XLA)"),
    DYNAMO: ("dynamo", "", "torch.compile"),
}
BY_NAME = {field.name: field for field in (*FIELDS, *SECTION_FIELDS)}

# Keys of Accelerate's files that ask for nothing here: what they mean holds anyway, or is found out.
IDLE_KEYS = frozenset(
    "compute_environment debug downcast_bf16 enable_cpu_affinity main_training_function same_network tpu_env tpu_name "
    "tpu_use_cluster tpu_use_sudo tpu_vm tpu_zone fp8_config commands command_file".split()
)
# Keys of Accelerate's files for what accelify does not have; an empty value is no harm.
MISSING_KEYS = frozenset("megatron_lm_config mpirun_config ipex_config".split())


def section_keys(section: str) -> dict[str, Field]:
    """The fields of a section by their keys in the file."""
    return {field.file_key: field for field in SECTION_FIELDS if field.section == section}
