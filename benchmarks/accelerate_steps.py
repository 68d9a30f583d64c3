"""The steps of the test scripts in Accelerate's wheel, and local stand-ins for what the scripts would download."""

from __future__ import annotations

import inspect
import itertools
import json
import random
import re
from pathlib import Path
from typing import Any

SCRIPTS = (
    "test_script",
    "test_sync",
    "test_ops",
    "test_distributed_data_loop",
    "test_ddp_comm_hook",
    "test_notebook",
    "test_merge_weights",
    "test_cli",
    "external_deps.test_metrics",
    "external_deps.test_checkpointing",
    "external_deps.test_performance",
    "external_deps.test_ds_multiple_model",
    "external_deps.test_pippy",
    "external_deps.test_peak_memory_usage",
    "external_deps.test_zero3_integration",
    "external_deps.test_ds_alst_ulysses_sp",
)
# Why a script is not run.
LEFT_OUT = {
    "external_deps.test_peak_memory_usage": "measures the memory of a GPU and has no figure without one",
    "external_deps.test_zero3_integration": "makes an NCCL group, which needs a GPU",
    "external_deps.test_ds_alst_ulysses_sp": "sequence parallelism of DeepSpeed needs GPUs",
}
# Functions that are parts of a step.
_PARTS = ("check_model_parameters", "check_weights", "check_safetensors_weights", "check_pytorch_weights")
_STEP = re.compile(r"^(test_|check_|.*_check$|.*_model_training$)")


def _choices(**values: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(values, chosen, strict=True)) for chosen in itertools.product(*values.values())]


_YES_NO = [False, True]
# What the main programs hand over, as text where it is one of the script's objects.
_ARGUMENTS: dict[str, list[dict[str, Any]]] = {
    "test_sync.test_gradient_accumulation": _choices(
        split_batches=_YES_NO, dispatch_batches=_YES_NO, sync_each_batch=_YES_NO
    ),
    "test_sync.test_gradient_accumulation_with_opt_and_scheduler": _choices(
        split_batches=_YES_NO, dispatch_batches=_YES_NO, sync_each_batch=_YES_NO
    ),
    "test_script.training_check": _choices(use_seedable_sampler=_YES_NO),
    "test_distributed_data_loop.test_data_loader": _choices(
        data_loader=["in order", "shuffled", "batch_sampler", "sampler of batches"]
    ),
    "test_ddp_comm_hook.test_ddp_comm_hook": [
        {"comm_hook": hook, "comm_wrapper": wrapper, "comm_state_option": option}
        for hook, wrapper, option in (
            ("NO", "NO", {}),
            ("FP16", "NO", {}),
            ("BF16", "NO", {}),
            ("POWER_SGD", "NO", {}),
            ("POWER_SGD", "FP16", {}),
            ("POWER_SGD", "BF16", {}),
            ("POWER_SGD", "NO", {"matrix_approximation_rank": 2}),
            ("BATCHED_POWER_SGD", "NO", {}),
            ("BATCHED_POWER_SGD", "FP16", {}),
            ("BATCHED_POWER_SGD", "BF16", {}),
        )
    ],
    "external_deps.test_metrics.test_mrpc": _choices(dispatch_batches=_YES_NO, split_batches=_YES_NO),
    "external_deps.test_metrics.test_torch_metrics": [
        *({"num_samples": 99, **more} for more in _choices(dispatch_batches=_YES_NO, split_batches=_YES_NO)),
        {"num_samples": 512},
    ],
}
# Command lines of main programs, one step each; {out} is a folder that they share.
_COMMANDS: dict[str, list[list[str]]] = {
    "external_deps.test_checkpointing": [
        ["--partial_train_epoch=1", "--output_dir={out}"],
        ["--resume_from_checkpoint={out}/epoch_0", "--output_dir={out}"],
    ],
    "external_deps.test_performance": [["--output_dir={out}"]],
    "external_deps.test_ds_multiple_model": [],
}


def steps(name: str, module: Any) -> list[tuple[str, dict[str, Any]]]:
    """Functions of a script with the arguments that its main program hands over, and main programs ("main")."""
    found: list[tuple[str, dict[str, Any]]] = []
    for key, value in vars(module).items():
        ours = inspect.isfunction(value) and value.__module__ == module.__name__
        # What merges weights needs what its main program makes.
        if ours and _STEP.match(key) and key not in _PARTS and name != "test_merge_weights":
            found += [(key, arguments) for arguments in _ARGUMENTS.get(f"{name}.{key}", [{}])]
    return found + [("main", {"argv": argv}) for argv in _COMMANDS.get(name, [[]])]


def label(step: str, arguments: dict[str, Any]) -> str:
    """The step's name, with its arguments where it has several sets."""
    parts = [f"{key}={value}" for key, value in arguments.items() if key != "argv"]
    parts += [text.partition("=")[0] for text in arguments.get("argv", [])[:1]]
    return f"{step}({', '.join(parts)})" if parts else step


def objects(module: Any, arguments: dict[str, Any], accelerator: Any) -> dict[str, Any]:
    """Arguments with the script's objects in place of their names."""
    from torch.utils.data import BatchSampler, DataLoader, RandomSampler, default_collate

    made = dict(arguments)
    for key in ("comm_hook", "comm_wrapper"):
        if key in made:
            made[key] = getattr(module.DDPCommunicationHookType, made[key])
    if "data_loader" in made:
        dataset, size, workers = module.DummyDataset(), module.BATCH_SIZE, module.NUM_WORKERS
        batches = BatchSampler(RandomSampler(dataset), batch_size=size, drop_last=False)
        options: dict[str, dict[str, Any]] = {
            "in order": {"shuffle": False, "batch_size": size},
            "shuffled": {"shuffle": True, "batch_size": size},
            "batch_sampler": {"batch_sampler": batches},
            "sampler of batches": {"sampler": batches, "batch_size": None, "collate_fn": default_collate},
        }
        made["data_loader"] = DataLoader(dataset, num_workers=workers, **options[made["data_loader"]])
    if hasattr(module, "ds_config_file"):
        module.ds_config_file = {stage: f"{stage}.json" for stage in ("zero2", "zero3")}
    return made


_METRIC = '''"""Accuracy and F1, as GLUE's MRPC has them."""
import datasets
import evaluate
from sklearn.metrics import f1_score


class Glue(evaluate.Metric):
    def _info(self):
        features = datasets.Features({"predictions": datasets.Value("int64"), "references": datasets.Value("int64")})
        return evaluate.MetricInfo(description="", citation="", inputs_description="", features=features)

    def _compute(self, predictions, references):
        same = sum(int(p == r) for p, r in zip(predictions, references)) / len(predictions)
        return {"accuracy": same, "f1": float(f1_score(references, predictions))}
'''


def make_stand_ins(folder: Path) -> None:
    """A tiny BERT, sentence pairs and a metric under the names that the scripts ask for, found from the folder."""
    from transformers import BertConfig, BertForSequenceClassification, BertTokenizerFast

    words = [f"w{i}" for i in range(200)]
    vocabulary = folder / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]))
    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(words) + 5,
            hidden_size=32,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=64,
        )
    )
    for name in ("bert-base-cased", "hf-internal-testing/mrpc-bert-base-cased"):
        model.save_pretrained(folder / name)
        BertTokenizerFast(vocab=str(vocabulary)).save_pretrained(folder / name)
    data = folder / "nyu-mll" / "glue"
    data.mkdir(parents=True)
    chance = random.Random(0)
    for split, count in (("train", 96), ("validation", 50)):
        rows = []
        for index in range(count):
            first = chance.choices(words, k=chance.randint(4, 12))
            label = chance.randint(0, 1)
            second = first if label else chance.choices(words, k=8)
            row = {"sentence1": " ".join(first), "sentence2": " ".join(second), "label": label, "idx": index}
            rows.append(json.dumps(row))
        (data / f"{split}.jsonl").write_text("\n".join(rows))
    (data / "README.md").write_text(
        "---\nconfigs:\n- config_name: mrpc\n  data_files:\n"
        "  - split: train\n    path: train.jsonl\n  - split: validation\n    path: validation.jsonl\n---\n"
    )
    (folder / "glue").mkdir()
    (folder / "glue" / "glue.py").write_text(_METRIC)
    for stage in (2, 3):
        config = {
            "bf16": {"enabled": True},
            "zero_optimization": {"stage": stage},
            "zero_allow_untested_optimizer": True,
            "zero_force_ds_cpu_optimizer": False,
            "gradient_accumulation_steps": 1,
            "gradient_clipping": "auto",
            "train_batch_size": "auto",
            "train_micro_batch_size_per_gpu": "auto",
        }
        (folder / f"zero{stage}.json").write_text(json.dumps(config))
