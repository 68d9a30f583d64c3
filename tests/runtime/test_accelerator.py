import subprocess
import sys
import warnings
import weakref
from unittest.mock import Mock

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import accelify.runtime
from accelify.runtime import (
    AcceleratedOptimizer,
    AcceleratedScheduler,
    Accelerator,
    AcceleratorState,
    DataLoaderShard,
    DistributedDataParallelKwargs,
    DistributedType,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    PartialState,
    add_backward_observer,
    prepare_data_loader,
    remove_backward_observer,
)
from accelify.runtime.optimizer import follow_parameters


def parts():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(10, 3)), batch_size=4)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    return model, optimizer, loader, scheduler


def test_all_names_are_there():
    for name in accelify.runtime.__all__:
        assert getattr(accelify.runtime, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        accelify.runtime.nothing  # noqa: B018


def test_without_torch_one_sentence_names_the_extra():
    code = (
        "import importlib.util as u; real = u.find_spec\n"
        "u.find_spec = lambda n, *a: None if n == 'torch' else real(n, *a)\n"
        "import accelify.runtime; accelify.runtime.Accelerator"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "ImportError: accelify.runtime needs PyTorch, which is not installed: `pip install " in done.stderr
    assert done.stderr.rstrip().endswith("[runtime]'`")


def test_a_scheduler_is_still_of_its_own_class():
    accelerator = Accelerator(cpu=True)
    _, optimizer, _, _ = parts()
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
    optimizer, prepared = accelerator.prepare(optimizer, plateau)
    assert isinstance(prepared, torch.optim.lr_scheduler.ReduceLROnPlateau)
    assert isinstance(prepared, AcceleratedScheduler)
    assert not isinstance(prepared, torch.optim.lr_scheduler.StepLR)
    assert accelerator.prepare(prepared) is prepared


def test_an_optimizer_can_be_made_again_by_its_class():
    accelerator = Accelerator(cpu=True)
    model, optimizer, _, _ = parts()
    model, optimizer = accelerator.prepare(model, optimizer)
    again = optimizer.__class__(model.parameters(), lr=0.5)
    assert type(again) is torch.optim.SGD
    assert isinstance(optimizer, torch.optim.SGD)
    assert isinstance(optimizer, AcceleratedOptimizer)
    assert not isinstance(optimizer, torch.optim.Adam)
    assert accelerator.prepare(again) is not optimizer
    assert accelerator.prepare(optimizer) is optimizer


def test_a_file_of_whole_objects_loads_without_this_package(tmp_path):
    accelerator = Accelerator(cpu=True)
    model, optimizer, _, scheduler = parts()
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    model(torch.randn(2, 3)).sum().backward()
    optimizer.step()
    scheduler.step()
    torch.save([accelerator.unwrap_model(model), optimizer, scheduler], tmp_path / "all.pt")

    assert b"accelify" not in (tmp_path / "all.pt").read_bytes()
    model, optimizer, scheduler = torch.load(tmp_path / "all.pt", weights_only=False)
    assert type(optimizer) is torch.optim.SGD
    assert type(scheduler) is torch.optim.lr_scheduler.StepLR
    assert scheduler.optimizer.param_groups[0]["params"][0] is model.weight
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.01)
    assert scheduler.last_epoch == 1


def test_a_loader_that_nobody_has_any_more_goes_with_its_data():
    accelerator = Accelerator(cpu=True)
    kept = DataLoader(list(range(4)))
    prepared = accelerator.prepare(kept)
    for _ in range(3):
        data = TensorDataset(torch.zeros(4))
        gone = weakref.ref(data)
        for _ in accelerator.prepare(DataLoader(data)):
            pass
        del data
        assert gone() is None
    assert accelerator._dataloaders == [prepared]
    assert accelerator.prepare(kept) is prepared


class Opened(DataLoader):
    closed = False

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.closed = True


def test_an_optimizer_made_anew_in_every_epoch_keeps_none_of_those_before(tmp_path):
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(nn.Linear(2, 1))
    before = []
    for _ in range(3):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
        optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
        assert accelerator.prepare(optimizer.optimizer, scheduler.scheduler) == (optimizer, scheduler)
        accelerator.backward(model(torch.ones(1, 2)).sum())
        optimizer.step()
        scheduler.step()
        before.append(weakref.ref(optimizer.optimizer))
    accelerator.save_state(str(tmp_path / "state"))
    assert [ref() is None for ref in before] == [True, True, False]
    del optimizer, scheduler  # the last is the Accelerator's to save, whoever has let go of it
    accelerator.save_state(str(tmp_path / "state"))
    assert sorted(path.name for path in (tmp_path / "state").glob("optimizer*")) == ["optimizer.bin"]
    assert sorted(path.name for path in (tmp_path / "state").glob("scheduler*")) == ["scheduler.bin"]


def test_a_loader_that_is_opened_by_with():
    original = Opened(list(range(4)))
    with Accelerator(cpu=True).prepare(original) as loader:
        assert isinstance(loader, DataLoaderShard)
        assert len(list(loader)) == 4
    assert original.closed


def test_prepare_returns_in_the_order_given():
    accelerator = Accelerator(cpu=True)
    model, optimizer, loader, scheduler = parts()
    note = object()
    s, l, n, o, m = accelerator.prepare(scheduler, loader, note, optimizer, model)  # noqa: E741
    assert m is model
    assert n is note
    assert isinstance(s, AcceleratedScheduler)
    assert s.optimizers == [o]
    assert isinstance(o, AcceleratedOptimizer)
    assert isinstance(l, DataLoaderShard)
    assert accelerator.prepare(model, o, loader) == (m, o, l)
    assert accelerator.prepare(s) is s
    assert accelerator.prepare() == ()
    assert accelerator.free_memory(m, o) == [None, None]
    assert not accelerator._models


def test_an_optimizer_of_another_model_is_an_error():
    class Net(nn.Linear):
        pass

    accelerator = Accelerator(cpu=True)
    stale = torch.optim.Adam(nn.Linear(3, 1).parameters())
    with pytest.raises(
        ValueError, match=r"the optimizer Adam holds none of the parameters of the prepared model Net"
    ):
        accelerator.prepare(Net(3, 1), stale)


def test_an_optimizer_of_nothing_is_an_error():
    model = nn.Linear(3, 1)
    empty = torch.optim.SGD(
        [{"params": [p for n, p in model.named_parameters() if n == "module.bias"]}], lr=0.1
    )
    with pytest.raises(ValueError, match=r"the optimizer SGD holds no parameters at all"):
        Accelerator(cpu=True).prepare(model, empty)


def test_beside_another_an_optimizer_may_have_nothing_to_do():
    model = nn.Linear(3, 1)
    one, other = torch.optim.Adam(model.parameters()), torch.optim.SGD([{"params": []}], lr=0.1)
    accelerator = Accelerator(cpu=True)
    accelerator.prepare(model, one, other)
    assert len(list(accelerator._optimizers)) == 2


def test_a_number_that_is_learned_beside_the_model_has_its_own_optimizer():
    accelerator = Accelerator(cpu=True)
    model, heat = nn.Linear(3, 1), torch.zeros(1, requires_grad=True)
    assert heat.shape == model.bias.shape
    model, own = accelerator.prepare(model, torch.optim.Adam([heat], lr=0.1))
    accelerator.backward((model(torch.ones(2, 3)).mean() - heat).pow(2).sum())
    own.step()
    assert heat.item() != 0.0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"fp16": True}, 'is written Accelerator\\(mixed_precision="fp16"\\)'),
        ({"mixed_precision": "int3"}, "must be one of no, bf16, fp16, not 'int3'"),
        ({"mixed_precision": "fp8"}, "needs hardware"),
        ({"gradient_accumulation_steps": 0}, "at least 1"),
        (
            {"gradient_accumulation_steps": 2, "gradient_accumulation_plugin": GradientAccumulationPlugin()},
            "not both",
        ),
        ({"kwargs_handlers": [GradScalerKwargs(), GradScalerKwargs()]}, "has two GradScalerKwargs"),
        ({"log_with": "paper"}, "log_with must be one of"),
    ],
)
def test_wrong_arguments_get_a_sentence(arguments, words):
    with pytest.raises(ValueError, match=words):
        Accelerator(cpu=True, **arguments)


def test_unknown_argument():
    with pytest.raises(TypeError, match="no argument 'devices'"):
        Accelerator(devices=3)


def test_state_is_shared():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    assert AcceleratorState().mixed_precision == "bf16"
    assert PartialState().distributed_type == accelerator.distributed_type == DistributedType.NO
    assert "Num processes: 1" in repr(accelerator.state)
    with pytest.raises(ValueError, match="already has an Accelerator with mixed_precision='bf16'"):
        Accelerator(mixed_precision="fp16")
    assert Accelerator().mixed_precision == "bf16"


def test_wrong_environment(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "two")
    with pytest.raises(ValueError, match="WORLD_SIZE must be a whole number, not 'two'"):
        PartialState()


def test_optimizer_passes_for_torchs():
    accelerator = Accelerator(cpu=True)
    model, optimizer, _, _ = parts()
    prepared = accelerator.prepare(optimizer)
    assert isinstance(prepared, torch.optim.Optimizer)
    # A scheduler may be made from the prepared one.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scheduler = torch.optim.lr_scheduler.StepLR(prepared, 1, gamma=0.5)
        scheduler = accelerator.prepare(scheduler)
        accelerator.backward(model(torch.ones(1, 3)).mean())
        prepared.step()
        scheduler.step()
    assert prepared.param_groups[0]["lr"] == optimizer.param_groups[0]["lr"] == 0.05
    assert prepared.state_dict() == optimizer.state_dict()


def test_a_switch_of_an_optimizer_of_ones_own_reaches_it():
    class Counting(torch.optim.SGD):
        def __init__(self, parameters, lr):
            super().__init__(parameters, lr)
            self.counts, self.seen = False, 0

        def step(self, closure=None):
            self.seen += self.counts
            return super().step(closure)

    model = nn.Linear(3, 1)
    accelerator = Accelerator(cpu=True)
    model, optimizer = accelerator.prepare(model, Counting(model.parameters(), 0.1))
    optimizer.counts = True
    accelerator.backward(model(torch.ones(2, 3)).sum())
    optimizer.step()
    assert optimizer.seen == 1


def test_plateau_gets_its_metric():
    accelerator = Accelerator(cpu=True)
    _, optimizer, _, _ = parts()
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.1)
    optimizer, scheduler = accelerator.prepare(optimizer, scheduler)
    for _ in range(3):
        scheduler.step(1.0)
    assert scheduler.get_last_lr()[0] < 0.1


def test_skipped_steps_are_seen():
    accelerator = Accelerator(
        cpu=True, mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=4.0)]
    )
    model, optimizer, _, scheduler = parts()
    model, optimizer, scheduler = accelerator.prepare(model, optimizer, scheduler)
    before = model.weight.clone()
    accelerator.backward(model(torch.full((1, 3), 1e30)).mean() * 1e30)
    optimizer.step()
    scheduler.step()
    assert accelerator.optimizer_step_was_skipped
    assert torch.equal(before, model.weight)
    assert scheduler.scheduler.last_epoch == 0
    assert accelerator.scaler.get_scale() == 2.0
    optimizer.zero_grad()
    accelerator.backward(model(torch.ones(1, 3)).mean())
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    scheduler.step()
    assert not accelerator.optimizer_step_was_skipped
    assert scheduler.scheduler.last_epoch == 1


def test_prepared_models_run_in_mixed_precision_with_float32_outputs():
    accelerator = Accelerator(cpu=True, mixed_precision="bf16")
    model = accelerator.prepare(nn.Linear(3, 1))
    x = torch.randn(2, 3)
    assert model(x).dtype == torch.float32
    assert torch.equal(
        model(x), nn.functional.linear(x.bfloat16(), model.weight.bfloat16(), model.bias.bfloat16()).float()
    )
    with accelerator.autocast():
        assert model(x).dtype == torch.bfloat16
    plain = accelerator.unwrap_model(model, keep_fp32_wrapper=False)
    assert plain is model
    assert "forward" not in model.__dict__


def test_compiled_models_unwrap():
    accelerator = Accelerator(cpu=True, dynamo_backend="eager")
    model = nn.Linear(3, 1)
    prepared = accelerator.prepare(model)
    assert prepared is not model
    assert accelerator.unwrap_model(prepared) is model
    assert accelerator.unwrap_model(prepared, keep_torch_compile=True) is prepared
    assert list(accelerator.get_state_dict(prepared)) == ["weight", "bias"]


def test_observers_see_every_backward():
    seen = []
    observer = add_backward_observer(
        lambda loss, scale, acc: seen.append((loss.item(), scale, loss.requires_grad))
    )
    try:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4)
        accelerator.backward(torch.tensor(2.0, requires_grad=True))
    finally:
        remove_backward_observer(observer)
    assert seen == [(2.0, 0.25, False)]


def test_observers_see_a_weighed_loss_as_the_scripts_with_its_weight():
    seen = []
    observer = add_backward_observer(
        lambda loss, scale, acc: seen.append((loss.item(), scale, acc.gradient_state.loss_weight))
    )
    try:
        accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
        for _ in range(2):
            with accelerator.accumulate():
                accelerator.backward(torch.tensor(2.0, requires_grad=True), weight=30)
        accelerator.backward(torch.tensor(4.0, requires_grad=True))
    finally:
        remove_backward_observer(observer)
    assert seen == [(2.0, 0.5, 30.0), (2.0, 0.5, 30.0), (4.0, 0.5, None)]


def test_backward_takes_torchs_arguments():
    accelerator = Accelerator(cpu=True)
    x = torch.ones(2, requires_grad=True)
    y = torch.ones(2, requires_grad=True)
    accelerator.backward(x * y, gradient=torch.tensor([1.0, 2.0]), inputs=[x], retain_graph=True)
    assert x.grad.tolist() == [1.0, 2.0]
    assert y.grad is None
    with pytest.raises(ValueError, match='reduction must be "mean" or "sum"'):
        accelerator.backward(x.sum(), reduction="max")


def test_handlers_know_what_differs():
    assert DistributedDataParallelKwargs(find_unused_parameters=True).to_kwargs() == {
        "find_unused_parameters": True
    }


def test_accumulation_does_not_clip_or_step_in_between():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model, optimizer, loader, _ = parts()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    changed = []
    for (x,) in loader:
        before = nn.utils.parameters_to_vector(model.parameters())
        with accelerator.accumulate(model):
            accelerator.backward(model(x).square().mean() * 100)
            norm = accelerator.clip_grad_norm_(model.parameters(), 0.01)
            assert norm > 0.01
            optimizer.step()
            optimizer.zero_grad()
        changed.append((nn.utils.parameters_to_vector(model.parameters()) - before).norm().item())
    assert changed[0] == 0
    assert changed[1] == pytest.approx(0.001, rel=1e-3)
    assert changed[2] == pytest.approx(0.001, rel=1e-3)


@pytest.mark.parametrize(
    ("steps_of", "window", "asks", "scale", "warning"),
    [
        ("launch", 1, False, 1.0, "2 by the launcher or its configuration, and has no effect"),
        ("launch", 2, True, 0.5, None),  # the script steps by what it asks the Accelerator for
        ("script", 1, False, 0.5, "divides each loss by its 2 gradient_accumulation_steps"),
        ("script", 2, False, 0.5, None),
    ],
)
def test_steps_outside_of_accumulate_are_not_scaled_in_silence(
    monkeypatch, steps_of, window, asks, scale, warning
):
    steps = 2 if steps_of == "script" else 1
    monkeypatch.setenv("ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "2")
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=steps)
    model, optimizer, loader, _ = parts()
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    if asks:
        assert accelerator.gradient_accumulation_steps == 2
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for i, (x,) in enumerate(loader):
            loss = model(x).square().mean()
            (expected,) = torch.autograd.grad(loss, model.weight, retain_graph=True)
            before = 0 if model.weight.grad is None else model.weight.grad.clone()
            accelerator.backward(loss)
            # Against what was there: a small difference of two gradients is all rounding.
            assert torch.allclose(model.weight.grad, before + expected * scale, rtol=1e-4, atol=1e-6)
            if (i + 1) % window == 0:
                optimizer.step()
                optimizer.zero_grad()
    found = [str(one.message) for one in caught if "gradient_accumulation_steps" in str(one.message)]
    assert [warning in one for one in found] == ([True] if warning else [])


@pytest.mark.parametrize(
    ("argument", "asked", "of_script", "said"),
    [
        ("mixed_precision", "bf16", "no", "mixed_precision bf16, which has no effect"),
        ("mixed_precision", "bf16", "bf16", None),
        ("mixed_precision", "bf16", None, None),
        ("mixed_precision", "no", "bf16", None),  # as the configuration's file says where nobody asked
        ("gradient_accumulation_steps", "8", 4, "gradient_accumulation_steps 8, which has no effect"),
        ("gradient_accumulation_steps", "8", None, None),
    ],
)
def test_a_setting_of_the_launch_that_the_script_overrules_is_named(
    monkeypatch, argument, asked, of_script, said
):
    monkeypatch.setenv(f"ACCELERATE_{argument.upper()}", asked)
    monkeypatch.delenv("ACCELIFY_ASKED_FOR", raising=False)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Accelerator(cpu=True, **({argument: of_script} if of_script is not None else {}))
    found = [str(one.message) for one in caught if "the launch asks" in str(one.message)]
    assert [said in one for one in found] == ([True] if said else [])


def test_no_mixed_precision_on_the_command_line_is_named_where_the_script_has_it(monkeypatch):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    monkeypatch.setenv("ACCELIFY_ASKED_FOR", "MIXED_PRECISION")
    with pytest.warns(UserWarning, match="the launch asks for mixed_precision no, which has no effect"):
        Accelerator(cpu=True, mixed_precision="bf16")


def test_a_loaded_state_follows_its_parameters():
    model = nn.Linear(2, 1)
    optimizer = torch.optim.Adam(model.parameters())
    loaded, step = Mock(spec=torch.Tensor), Mock(spec=torch.Tensor)
    loaded.device = step.device = torch.device("meta")
    optimizer.state[model.weight] = {"step": step, "exp_avg": loaded}
    follow_parameters(optimizer)
    assert optimizer.state[model.weight]["step"] is step
    loaded.to.assert_called_once_with(model.weight.device)


def test_a_state_that_is_loaded_between_optimizer_and_model_follows_its_parameters():
    accelerator = Accelerator(cpu=True)
    model = nn.Linear(2, 1)
    optimizer = accelerator.prepare(torch.optim.Adam(model.parameters()))
    loaded = Mock(spec=torch.Tensor)
    loaded.device = torch.device("meta")
    optimizer.state[model.weight] = {"exp_avg": loaded}
    accelerator.prepare(model)
    loaded.to.assert_called_once_with(model.weight.device)


class Sample:
    """Notes how it is moved, and that it is pinned."""

    moves: list[bool] = []

    def pin_memory(self):
        return self

    def to(self, device, non_blocking=False):
        self.moves.append(non_blocking)
        return self


@pytest.mark.parametrize(
    ("pinned", "asked", "device", "waits"),
    [
        (False, False, "cuda", True),
        (True, False, "cuda", False),
        (False, True, "cuda", False),
        (True, False, "mps", True),
    ],
)
@pytest.mark.filterwarnings("ignore:'pin_memory' argument")
def test_copies_from_pinned_memory_to_a_gpu_are_not_waited_for(pinned, asked, device, waits):
    Sample.moves = []
    loader = DataLoader([Sample()], batch_size=None, pin_memory=pinned)
    list(prepare_data_loader(loader, torch.device(device), put_on_device=True, non_blocking=asked))
    assert Sample.moves == [not waits]
