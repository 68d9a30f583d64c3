"""How many steps of Hugging Face Accelerate's own test scripts pass on accelify's runtime.

    python benchmarks/peer_scripts.py [--only test_sync] [--peer]

The scripts are those of Accelerate's wheel (accelerate.test_utils.scripts). A step is one of their functions, on one
process and on two, each in processes of its own. Under names of Accelerate's they get the runtime's objects; what only
asks what is installed, or makes data, is Accelerate's. `--peer` runs the scripts as they are.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import inspect
import re
import sys
import types
import unittest
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

SCRIPTS = (
    "test_script",
    "test_sync",
    "test_ops",
    "test_distributed_data_loop",
    "test_ddp_comm_hook",
    "test_notebook",
    "external_deps.test_metrics",
    "external_deps.test_checkpointing",
    "external_deps.test_performance",
)
_STEP = re.compile(r"^(test_|check_|init_state_check|process_execution_check|.*_check$|mock_)")
# Questions about what is installed, and decorators of tests.
_HELPERS = re.compile(
    r"^(is_.*_available|is_.*_version|require_.*|patch_environment|merge_.*|str_to_bool|compare_versions)$"
)
_MODULES = (
    "accelerate",
    "accelerate.accelerator",
    "accelerate.data_loader",
    "accelerate.state",
    "accelerate.utils",
    "accelerate.utils.dataclasses",
    "accelerate.utils.operations",
    "accelerate.utils.random",
)

_REAL: dict[str, Any] = {}


class _Ours(types.ModuleType):
    """A module of Accelerate's whose names are the runtime's."""

    def __init__(self, name: str, real: Any) -> None:
        super().__init__(name)
        self.__path__ = getattr(real, "__path__", [])
        self._real = real

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        runtime = importlib.import_module("accelify.runtime")
        if name in runtime.__all__:
            return getattr(runtime, name)
        if f"{self.__name__}.{name}" in sys.modules:
            return sys.modules[f"{self.__name__}.{name}"]
        if _HELPERS.match(name):
            return getattr(self._real, name)
        raise ImportError(f"accelify.runtime has no {name}")


def _script(name: str, peer: bool) -> Any:
    importlib.import_module("accelerate.test_utils.testing")
    if not peer:
        # What the scripts themselves import; the helpers of Accelerate's keep what they have.
        _REAL.update({module: importlib.import_module(module) for module in _MODULES})
        sys.modules.update({module: _Ours(module, _REAL[module]) for module in _MODULES})
    spec = importlib.util.find_spec("accelerate.test_utils")
    assert spec is not None
    assert spec.origin is not None
    path = Path(spec.origin).parent / "scripts" / (name.replace(".", "/") + ".py")
    loaded = importlib.util.spec_from_file_location(path.stem, path)
    assert loaded is not None
    assert loaded.loader is not None
    module = importlib.util.module_from_spec(loaded)
    sys.modules[path.stem] = module
    loaded.loader.exec_module(module)
    return module


def steps(name: str) -> list[str]:
    """Functions of a script that its main program can call without arguments, in its order."""
    module = _script(name, peer=True)
    found = []
    for key, value in vars(module).items():
        if inspect.isfunction(value) and value.__module__ == module.__name__ and _STEP.match(key):
            found.append(key)
    return found


def run(name: str, step: str, peer: bool, ranks: int) -> str:
    import os

    os.environ["ACCELERATE_USE_CPU"] = "true"
    module = _script(name, peer)
    if name == "test_notebook":
        for key in [
            k for k in os.environ if k.startswith(("MASTER_", "RANK", "WORLD", "LOCAL_", "TORCHELASTIC"))
        ]:
            del os.environ[key]
        module.NUM_PROCESSES = ranks
    function = getattr(module, step)
    needed = {p.name: p for p in inspect.signature(function).parameters.values() if p.default is p.empty}
    # As their main programs hand over.
    given: dict[str, Any] = {}
    if "accelerator" in needed:
        given["accelerator"] = (
            module.create_accelerator() if hasattr(module, "create_accelerator") else module.Accelerator()
        )
    if "datasets_Dataset" in needed:
        given["datasets_Dataset"] = importlib.import_module("datasets").Dataset
    if "state" in needed:
        given["state"] = module.PartialState()
    if name == "test_notebook":
        pass  # its functions make processes of their own, which must find nothing made
    elif not peer and "state" not in needed:
        importlib.import_module("accelify.runtime").AcceleratorState()
    elif "state" not in needed and "accelerator" not in needed and name == "test_script":
        module.Accelerator()
    if not peer and name == "test_script":
        # Its helpers ask Accelerate's own state.
        _REAL["accelerate.accelerator"].Accelerator(cpu=True)
    missing = set(needed) - set(given)
    if missing:
        return f"left out: needs {', '.join(sorted(missing))}"
    try:
        function(**given)
    except unittest.SkipTest as skipped:
        return f"left out: {skipped}"
    return "passed"


def main() -> None:
    from tests.distributed.processes import _CONTEXT, try_ranks

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", help="scripts, or steps, by a part of their name")
    parser.add_argument("--peer", action="store_true", help="run Accelerate itself")
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    arguments = parser.parse_args()
    _CONTEXT.set_forkserver_preload(["torch", "torch._dynamo", "accelerate", "accelify.runtime.accelerator"])
    passed = total = 0
    for name in SCRIPTS:
        try:
            found = steps(name)
        except ImportError as error:
            print(f"{name}: cannot be imported here: {error}", flush=True)
            continue
        for step in found:
            for ranks in arguments.ranks:
                label = f"{name}.{step}[{ranks}]"
                if arguments.only and not any(part in label for part in arguments.only):
                    continue
                alone = name == "test_notebook"
                try:
                    outcomes = try_ranks(
                        1 if alone else ranks, run, name, step, arguments.peer, ranks, timeout=90
                    )
                except AssertionError as hung:
                    result = f"FAILED: {str(hung).splitlines()[0]}"
                else:
                    bad = next((o for o in outcomes if not o.ok), None)
                    result = str(outcomes[0].value)
                    if bad is not None:
                        result = f"FAILED: {(bad.error or f'exit code {bad.exit_code}').strip().splitlines()[-1][:200]}"
                if not result.startswith("left out"):
                    total += 1
                    passed += result == "passed"
                print(f"{label}: {result}", flush=True)
    print(f"{passed} of {total} steps pass")


if __name__ == "__main__":
    main()
