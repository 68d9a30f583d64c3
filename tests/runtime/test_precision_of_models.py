"""A model that runs in mixed precision is in all else what it was: signature, files, copies, class."""

import copy
import inspect
import io
import subprocess
import sys
import types

import pytest
import torch
from torch import nn

from tests.distributed.processes import fresh_accelerator

PRECISIONS = ["bf16", "fp16"]


class Net(nn.Sequential):
    """A model of which libraries ask what it takes."""

    def forward(self, ids, mask=None, *, token_types=None, **more):
        """What comes out."""
        out = super().forward(ids)
        return {"out": out, "type": str(self[0](ids).dtype), "more": sorted(more)}


def _prepared(precision, model=None):
    return fresh_accelerator(mixed_precision=precision).prepare(
        Net(nn.Linear(2, 2)) if model is None else model
    )


@pytest.mark.parametrize("precision", PRECISIONS)
def test_signature_and_class(precision):
    plain, model = Net(nn.Linear(2, 2)), _prepared(precision)
    assert type(model) is Net
    assert inspect.signature(model.forward) == inspect.signature(plain.forward)
    assert inspect.getfullargspec(model.forward).kwonlyargs == ["token_types"]
    assert inspect.ismethod(model.forward)
    assert (model.forward.__name__, model.forward.__doc__) == ("forward", "What comes out.")
    # It runs in half precision within, by its call and by its method, and gives float32.
    for call in (model, model.forward):
        found = call(torch.ones(1, 2), token_types=1, extra=2)
        assert (found["out"].dtype, found["more"]) == (torch.float32, ["extra"])
        assert found["type"] == ("torch.bfloat16" if precision == "bf16" else "torch.float16")


@pytest.mark.parametrize("precision", PRECISIONS)
def test_a_file_loads_without_this_package(precision, tmp_path):
    file = tmp_path / "model.pt"
    torch.save(_prepared(precision, nn.Sequential(nn.Linear(2, 2), nn.ReLU())), file)
    script = (
        "import sys, torch; sys.modules['accelify'] = None; model = torch.load(sys.argv[1], weights_only=False); "
        "print(type(model).__name__, model(torch.ones(1, 2)).dtype, model[0](torch.ones(1, 2)).dtype)"
    )
    run = subprocess.run(
        [sys.executable, "-c", script, str(file)], capture_output=True, text=True, check=False
    )
    assert (run.stdout, run.returncode) == ("Sequential torch.float32 torch.float32\n", 0), run.stderr


def test_a_copy_in_memory_runs_as_it_did():
    model = _prepared("bf16")
    copied = copy.deepcopy(model)
    with torch.no_grad():
        copied[0].weight.zero_()
        copied[0].bias.zero_()
    found = copied(torch.ones(1, 2))
    assert found["type"] == "torch.bfloat16"
    assert found["out"].tolist() == [[0.0, 0.0]]
    assert model(torch.ones(1, 2))["out"].abs().sum() > 0


def test_a_forward_of_the_scripts_comes_back():
    model = Net(nn.Linear(2, 2))

    def other(self, ids):
        return str(self[0](ids).dtype)

    model.forward = types.MethodType(other, model)
    own = model.forward
    accelerator = fresh_accelerator(mixed_precision="bf16")
    model = accelerator.prepare(model)
    assert model(torch.ones(1, 2)) == "torch.bfloat16"
    assert list(inspect.signature(model.forward).parameters) == ["ids"]
    assert accelerator.unwrap_model(model, keep_fp32_wrapper=False).forward == own
    assert model(torch.ones(1, 2)) == "torch.float32"


def test_generate_takes_what_it_took():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(n_layer=1, n_head=2, n_embd=16, vocab_size=50)
    model = _prepared("bf16", transformers.GPT2LMHeadModel(config))
    ids = torch.randint(1, 50, (1, 4))
    found = model.generate(ids, max_new_tokens=2, token_type_ids=torch.zeros(1, 4, dtype=torch.long))
    assert found.shape == (1, 6)
    file = io.BytesIO()
    torch.save(model, file)
    assert b"accelify" not in file.getvalue()
