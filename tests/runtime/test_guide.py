"""The guide for people who come from Hugging Face Accelerate says what is there."""

import inspect
import re
from pathlib import Path

import pytest

import accelify.runtime as runtime

GUIDE = Path(__file__).parents[2] / "docs" / "coming-from-accelerate.md"
ROWS = re.findall(r"^\| `([^`]+)` \| (\w+) \|", GUIDE.read_text(), re.M)


def _is_there(name):
    argument = re.fullmatch(r"Accelerator\((\w+)\)", name)
    if argument:
        return argument[1] in inspect.signature(runtime.Accelerator).parameters
    first, _, attribute = name.partition(".")
    if first not in runtime.__all__:
        return False
    return not attribute or hasattr(getattr(runtime, first), attribute)


@pytest.mark.parametrize(("name", "state"), ROWS)
def test_every_row_holds(name, state):
    assert state in ("same", "better", "missing")
    if state == "missing" and name.startswith("Accelerator("):
        # Such an argument is there, to be refused with a sentence.
        with pytest.raises(ValueError, match="takes no|no Megatron-LM engine"):
            runtime.Accelerator(**{name[12:-1]: object()})
    else:
        assert _is_there(name) == (state != "missing")


def test_every_public_name_is_in_the_guide():
    text = GUIDE.read_text()
    told = {name for name, _ in ROWS} | set(
        re.findall(r"`([\w.]+)`", text[text.index("Names that only exist here") :])
    )
    assert set(runtime.__all__) <= told
    methods = {f"Accelerator.{n}" for n in dir(runtime.Accelerator) if not n.startswith("_")}
    quiet = {"Accelerator.flag_tensor", "Accelerator.scaler"}
    assert methods - quiet <= told


def test_every_name_of_accelerate_is_in_the_guide():
    accelerate = pytest.importorskip("accelerate")
    told = {name for name, _ in ROWS}
    assert {f"Accelerator.{n}" for n in dir(accelerate.Accelerator) if not n.startswith("_")} <= told
    parameters = list(inspect.signature(accelerate.Accelerator).parameters)
    assert {f"Accelerator({n})" for n in parameters} <= told
    own = list(inspect.signature(runtime.Accelerator).parameters)
    assert own[: len(parameters)] == parameters
