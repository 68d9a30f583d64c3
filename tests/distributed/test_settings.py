"""Settings and methods that few scripts use, many checks in one group of processes."""

import random
from datetime import timedelta

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from accelify.runtime import (
    DataLoaderConfiguration,
    GradientAccumulationPlugin,
    GradScalerKwargs,
    InitProcessGroupKwargs,
    ProjectConfiguration,
)
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


def _same_everywhere(accelerator, value):
    value = torch.as_tensor(value).detach().reshape(1, -1).double()
    everyone = accelerator.gather(value)
    return bool((everyone == everyone[0]).all())


def check_local_main_process(directory):
    acc = fresh_accelerator()
    assert acc.on_local_main_process(lambda: 5)() == (5 if acc.is_main_process else None)
    path = directory / "local"
    with acc.local_main_process_first():
        if acc.is_local_main_process:
            path.touch()
        assert path.exists()


def check_model_for_evaluation(directory):
    acc = fresh_accelerator()
    torch.manual_seed(acc.process_index)
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3))
    prepared = acc.prepare_model(model, evaluation_mode=True)
    assert prepared is model
    assert _same_everywhere(acc, model[0].weight)
    model(torch.ones(2, 3)).sum().backward()
    optimizer = acc.prepare_optimizer(torch.optim.SGD(model.parameters(), lr=0.1))
    assert optimizer.optimizer.param_groups[0]["params"][0] is model[0].weight


def check_unscaled_gradients(directory):
    acc = fresh_accelerator(mixed_precision="fp16", kwargs_handlers=[GradScalerKwargs(init_scale=128.0)])
    torch.manual_seed(0)
    model = nn.Linear(4, 1)
    x = torch.arange(8.0).reshape(2, 4) / 8 + acc.process_index
    expected = torch.stack([torch.arange(8.0).reshape(2, 4) / 8 + r for r in range(acc.num_processes)])
    model, optimizer = acc.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
    acc.backward(model(x).mean())
    weight = acc.unwrap_model(model).weight
    expected = expected.mean(dim=(0, 1))[None]
    torch.testing.assert_close(weight.grad, expected * acc.scaler.get_scale(), rtol=1e-2, atol=0)
    acc.unscale_gradients()
    torch.testing.assert_close(weight.grad, expected, rtol=1e-2, atol=0)
    # Once is enough: clipping does not divide again.
    norm = acc.clip_grad_norm_(model.parameters(), 1e9)
    assert norm.item() == pytest.approx(torch.cat([expected[0], torch.ones(1)]).norm().item(), rel=1e-2)
    optimizer.step()
    assert not acc.optimizer_step_was_skipped


def check_generators_made_to_agree(directory):
    acc = fresh_accelerator(rng_types=["torch", "numpy", "python"])
    for seed in (torch.manual_seed, np.random.seed, random.seed):
        seed(acc.process_index)
    loader = acc.prepare(DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2))
    for _ in loader:
        assert _same_everywhere(acc, [torch.rand(()).item(), np.random.rand(), random.random()])
    acc = fresh_accelerator(rng_types=["generator"])
    generator = torch.Generator().manual_seed(acc.process_index)
    loader = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, generator=generator)
    for _ in acc.prepare(loader):
        assert _same_everywhere(acc, torch.rand(2, generator=generator))


def _scheduled(batches=5, **kwargs):
    """Steps of a prepared scheduler over an epoch of `batches`."""
    acc = fresh_accelerator(**{"split_batches": True, **kwargs})
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    loader = DataLoader(TensorDataset(torch.ones(batches * 6, 1)), batch_size=6)
    model, optimizer, loader, scheduler = acc.prepare(model, optimizer, loader, scheduler)
    for (x,) in loader:
        with acc.accumulate(model):
            acc.backward(model(x).mean())
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
    return scheduler.scheduler.last_epoch


def check_ways_of_stepping_schedulers(directory):
    assert _scheduled(gradient_accumulation_steps=2) == 3
    assert _scheduled(gradient_accumulation_steps=2, step_scheduler_with_optimizer=False) == 5
    plugin = GradientAccumulationPlugin(num_steps=2, adjust_scheduler=False)
    assert _scheduled(gradient_accumulation_plugin=plugin) == 5
    # As many steps as the batches that all processes have taken together.
    assert _scheduled(12, split_batches=False, gradient_accumulation_plugin=plugin) == 12


def check_gradients_averaged_in_every_batch(directory):
    found = []
    for each in (False, True):
        plugin = GradientAccumulationPlugin(num_steps=2, sync_each_batch=each)
        acc = fresh_accelerator(gradient_accumulation_plugin=plugin)
        model = acc.prepare(nn.Linear(1, 1, bias=False))
        weight = acc.unwrap_model(model).weight
        weight.data.fill_(1.0)
        loader = acc.prepare(DataLoader(TensorDataset(torch.arange(24.0)[:, None]), batch_size=2))
        same = []
        for number, (x,) in zip(range(2), loader, strict=False):
            with acc.accumulate(model):
                acc.backward(model(x).square().mean())
            same.append(_same_everywhere(acc, weight.grad))
            if number == 1:
                found.append(weight.grad.clone())
        assert same == [each, True]
    torch.testing.assert_close(*found)


def check_saving_on_each_node(directory):
    for each in (False, True):
        acc = fresh_accelerator(project_config=ProjectConfiguration(save_on_each_node=each))
        # As on machines with one process each.
        acc.process.local_process_index = 0
        path = directory / f"{each}-{acc.process_index}"
        acc.save({"a": 1}, path)
        assert path.exists() == (each or acc.is_main_process)


def check_slices_of_ones_own(directory):
    acc = fresh_accelerator(
        dataloader_config=DataLoaderConfiguration(split_batches=True, dispatch_batches=True)
    )
    loader = acc.prepare_data_loader(
        DataLoader(torch.arange(12), batch_size=6),
        slice_fn_for_dispatch=lambda batch, part, *_: batch[part] * 10,
    )
    seen = torch.cat([acc.gather_for_metrics(batch) for batch in loader])
    assert seen.tolist() == [10 * n for n in range(12)]


def check_loader_that_is_shared_out_already(directory):
    acc = fresh_accelerator()
    data = TensorDataset(torch.arange(24))
    sampler = DistributedSampler(data, shuffle=False)
    loader = acc.prepare(DataLoader(data, batch_size=2, sampler=sampler))
    own = torch.cat([x for (x,) in loader])
    assert own.tolist() == list(range(24))[acc.process_index :: acc.num_processes]


CHECKS = [function for name, function in sorted(globals().items()) if name.startswith("check_")]


def _run_all(directory):
    for check in CHECKS:
        try:
            check(directory)
        except BaseException as error:
            error.add_note(f"in {check.__name__}")
            raise


def test_all(tmp_path):
    run_ranks(2, _run_all, tmp_path)


def _timeout_of_the_group():
    fresh_accelerator(kwargs_handlers=[InitProcessGroupKwargs(timeout=timedelta(seconds=77))])
    group = torch.distributed.distributed_c10d._get_default_group()
    return group._get_backend(torch.device("cpu")).options._timeout


def test_arguments_of_the_process_group():
    assert run_ranks(2, _timeout_of_the_group) == [timedelta(seconds=77)] * 2
