"""How many steps of Hugging Face Accelerate's test scripts pass on accelify's runtime.

    python benchmarks/accelerate_scripts.py [--only test_sync] [--as-accelerate] [--accelerate]

The scripts are those of Accelerate's wheel (accelerate.test_utils.scripts). A step is one of their functions with one
set of arguments, or a main program, on one process and on two, each in fresh processes. Under Accelerate's names they
get the runtime's objects; what only asks what is installed, or makes data, is Accelerate's. With `--as-accelerate`
every Accelerator has `GradientAccumulationPlugin(scale_last_window=False, schedule_by_processes=True)`: an epoch's
last, shorter window is divided by the full window, and a scheduler counts as Accelerate's does. With `--accelerate` the
scripts run as they are. `external_deps` needs datasets, transformers, evaluate and scikit-learn; nothing is downloaded.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import importlib.util
import inspect
import multiprocessing
import os
import re
import shutil
import sys
import tempfile
import types
import unittest
from pathlib import Path
from typing import Any

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

from accelerate_steps import LEFT_OUT, SCRIPTS, label, make_stand_ins, objects, steps  # noqa: E402

# Questions about what is installed, and decorators of tests.
_HELPERS = re.compile(
    r"^(is_.*_available|is_.*_version|require_.*|patch_environment|str_to_bool|compare_versions)$"
)
_MODULES = (
    "accelerate",
    "accelerate.accelerator",
    "accelerate.commands.merge",
    "accelerate.data_loader",
    "accelerate.inference",
    "accelerate.parallelism_config",
    "accelerate.state",
    "accelerate.utils",
    "accelerate.utils.dataclasses",
    "accelerate.utils.deepspeed",
    "accelerate.utils.operations",
    "accelerate.utils.random",
)
# Libraries that work with Accelerate itself.
_OTHERS = ("accelerate", "transformers", "datasets", "evaluate", "deepspeed", "importlib", "peft")

_REAL: dict[str, Any] = {}
# Names that the scripts get in place of the runtime's.
_CHANGED: dict[str, Any] = {}


class _Ours(types.ModuleType):
    """A module of Accelerate's whose names are the runtime's, for the script alone."""

    def __init__(self, name: str, real: Any) -> None:
        super().__init__(name)
        self.__path__ = getattr(real, "__path__", [])
        self.__spec__ = real.__spec__
        self._real = real

    def __getattr__(self, name: str) -> Any:
        importer = str(sys._getframe(1).f_globals.get("__name__", ""))
        if importer.split(".")[0] in _OTHERS:
            return getattr(self._real, name)
        if name.startswith("__"):
            raise AttributeError(name)
        runtime = importlib.import_module("accelify.runtime")
        if name in runtime.__all__:
            return _CHANGED.get(name, getattr(runtime, name))
        if f"{self.__name__}.{name}" in sys.modules:
            return sys.modules[f"{self.__name__}.{name}"]
        if _HELPERS.match(name):
            return getattr(self._real, name)
        raise ImportError(f"accelify.runtime has no {name}")


def _path(name: str) -> Path:
    spec = importlib.util.find_spec("accelerate.test_utils")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "scripts" / (name.replace(".", "/") + ".py")


def _script(name: str, accelerate: bool, run_as: str | None = None) -> Any:
    importlib.import_module("accelerate.test_utils.testing")
    path = _path(name)
    if not accelerate:
        _REAL.update({module: importlib.import_module(module) for module in _MODULES})
        sys.modules.update({module: _Ours(module, _REAL[module]) for module in _MODULES})
    loaded = importlib.util.spec_from_file_location(run_as or path.stem, path)
    assert loaded is not None
    assert loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    sys.modules[module.__name__] = module
    loaded.loader.exec_module(module)
    return module


def _count_as_accelerate() -> None:
    """Give the scripts an Accelerator that divides short windows and steps schedulers as Accelerate does."""
    from accelify.runtime import Accelerator, GradientAccumulationPlugin

    class AsAccelerate(Accelerator):
        def __init__(
            self,
            *arguments: Any,
            gradient_accumulation_steps: int = 1,
            gradient_accumulation_plugin: GradientAccumulationPlugin | None = None,
            **options: Any,
        ) -> None:
            plugin = gradient_accumulation_plugin or GradientAccumulationPlugin(gradient_accumulation_steps)
            plugin = dataclasses.replace(plugin, scale_last_window=False, schedule_by_processes=True)
            super().__init__(*arguments, gradient_accumulation_plugin=plugin, **options)

    _CHANGED["Accelerator"] = AsAccelerate


def listed(name: str) -> list[tuple[str, dict[str, Any]]]:
    """Steps of a script, asked in a process for that alone: importing a script may start what a fork cannot share."""
    return steps(name, _script(name, accelerate=True))


def run(
    name: str,
    step: str,
    arguments: dict[str, Any],
    accelerate: bool,
    as_accelerate: bool,
    ranks: int,
    folder: str,
) -> str | None:
    """Run one step on this rank: "passed", or why it was left out."""
    os.chdir(folder)
    if as_accelerate:
        _count_as_accelerate()
    # As under a launcher; processes of a fork server would have the workers of loaders come from another.
    multiprocessing.set_start_method("fork", force=True)
    os.environ["ACCELERATE_USE_CPU"] = "true"
    if name == "test_notebook":
        # Its functions make processes, which must find nothing made.
        for key in list(os.environ):
            if key.startswith(("MASTER_", "RANK", "WORLD", "LOCAL_", "TORCHELASTIC")):
                del os.environ[key]
        os.environ["ACCELERATE_NUM_PROCESSES"] = str(ranks)
    if "ds_" in name or "zero3" in name:
        os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    if step == "main":
        os.makedirs(f"out{ranks}", exist_ok=True)
        sys.argv = [name, *(text.format(out=f"out{ranks}") for text in arguments["argv"])]
    module = _script(name, accelerate)
    arguments = {key: value for key, value in arguments.items() if key != "argv"}
    if not accelerate and name == "test_script":
        # Its helpers ask Accelerate's state.
        _REAL["accelerate.accelerator"].Accelerator(cpu=True)
    if step == "main":
        if hasattr(module, "main"):
            module.main()
        else:
            _script(name, True, "__main__")
        return "passed"
    function = getattr(module, step)
    needed = {p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty}
    # As their main programs hand over.
    if "accelerator" in needed:
        make = getattr(module, "create_accelerator", module.Accelerator)
        arguments["accelerator"] = make()
        if step == "test_join_raises_warning_for_non_ddp_distributed":
            arguments["accelerator"].state.distributed_type = module.DistributedType.FSDP
    if "datasets_Dataset" in needed:
        arguments["datasets_Dataset"] = importlib.import_module("datasets").Dataset
    if "state" in needed:
        arguments["state"] = module.PartialState()
    if step.endswith("_model_training"):
        arguments["config"] = {"lr": 2e-5, "num_epochs": 3, "seed": 42, "batch_size": 8}
        arguments["args"] = argparse.Namespace(model_name_or_path="bert-base-cased")
    elif name == "test_script":
        module.Accelerator()
    try:
        function(**objects(module, arguments, arguments.get("accelerator")))
    except unittest.SkipTest as skipped:
        return f"left out: {skipped}"
    return "passed"


def _one(
    name: str,
    step: str,
    arguments: dict[str, Any],
    accelerate: bool,
    as_accelerate: bool,
    ranks: int,
    folder: str,
) -> str:
    from tests.distributed.processes import try_ranks

    try:
        started = 1 if name == "test_notebook" else ranks
        outcomes = try_ranks(
            started, run, name, step, arguments, accelerate, as_accelerate, ranks, folder, timeout=150
        )
    except AssertionError as hung:
        return f"FAILED: {str(hung).splitlines()[0]}"
    bad = next((o for o in outcomes if not o.ok), None)
    if bad is not None:
        return f"FAILED: {(bad.error or f'exit code {bad.exit_code}').strip().splitlines()[-1][:200]}"
    return str(outcomes[0].value)


def main() -> None:
    from tests.distributed.processes import _CONTEXT, run_ranks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", help="scripts, or steps, by a part of their name")
    parser.add_argument("--accelerate", action="store_true", help="run Accelerate itself")
    parser.add_argument(
        "--as-accelerate",
        action="store_true",
        help="divide short windows and step schedulers as Accelerate does",
    )
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="accelify-scripts-")
    os.environ.update(
        {"HF_HOME": f"{folder}/cache", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    )
    imported = ["torch", "torch._dynamo", "accelerate", "accelify.runtime.accelerator"]
    if importlib.util.find_spec("transformers") is not None:
        imported += ["transformers", "transformers.modeling_utils"]
        make_stand_ins(Path(folder))
    _CONTEXT.set_forkserver_preload(imported)
    passed = total = 0
    try:
        for name in SCRIPTS:
            if name in LEFT_OUT:
                print(f"{name}: left out: {LEFT_OUT[name]}", flush=True)
                continue
            try:
                found = run_ranks(1, listed, name)[0]
            except AssertionError as error:
                print(f"{name}: cannot be imported here: {str(error).splitlines()[-1]}", flush=True)
                continue
            for step, values in found:
                for ranks in arguments.ranks:
                    text = f"{name}.{label(step, values)}[{ranks}]"
                    if arguments.only and not any(part in text for part in arguments.only):
                        continue
                    result = _one(
                        name, step, values, arguments.accelerate, arguments.as_accelerate, ranks, folder
                    )
                    if not result.startswith("left out"):
                        total += 1
                        passed += result == "passed"
                    print(f"{text}: {result}", flush=True)
        print(f"{passed} of {total} steps pass")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
