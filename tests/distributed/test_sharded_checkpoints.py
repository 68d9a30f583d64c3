"""Checkpoints and weights of sharded models: on other numbers of ranks, in plain PyTorch, in the middle of a window."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from accelify.runtime import FullyShardedDataParallelPlugin, load_weights
from accelify.runtime.launch.merge import merge
from tests.distributed.processes import run_ranks
from tests.distributed.test_fsdp import Normed, prepared, steps
from tests.runtime.training import make_data

pytestmark = pytest.mark.distributed


def _begin(kind, directory):
    plugin = FullyShardedDataParallelPlugin(state_dict_type=kind)
    acc, model, optimizer = prepared(net=Normed, fsdp_plugin=plugin)
    steps(acc, model, optimizer)
    acc.save_state(f"{directory}/c")
    acc.save_model(model, f"{directory}/weights")
    acc.save(
        {"o": optimizer.state_dict(), "m": acc.unwrap_model(model).state_dict()}, f"{directory}/by_hand.pt"
    )
    return steps(acc, model, optimizer)


def _go_on(kind, directory, sharded=True):
    plugin = FullyShardedDataParallelPlugin(state_dict_type=kind) if sharded else None
    acc, model, optimizer = prepared(net=Normed, fsdp_plugin=plugin, seed=5)
    acc.load_state(f"{directory}/c")
    return steps(acc, model, optimizer)


@pytest.mark.parametrize("kind", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_checkpoints_go_to_other_numbers_of_ranks(kind, tmp_path):
    expected = run_ranks(2, _begin, kind, str(tmp_path))[0]
    for ranks in (2, 4):
        for losses in run_ranks(ranks, _go_on, kind, str(tmp_path)):
            assert losses == pytest.approx(expected, rel=1e-5)
    assert _go_on(kind, tmp_path) == pytest.approx(expected, rel=1e-5)
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []
    if kind == "FULL_STATE_DICT":
        assert _go_on(kind, tmp_path, sharded=False) == pytest.approx(expected, rel=1e-5)
    else:
        with pytest.raises(ValueError, match="holds each rank's part of the weights"):
            _go_on(kind, tmp_path, sharded=False)
    # Plain PyTorch goes on with what the script saved itself.
    saved = torch.load(tmp_path / "by_hand.pt", weights_only=True)
    model = Normed()
    load_weights(model, tmp_path / "weights")
    assert all(saved["m"][n].equal(t) for n, t in model.state_dict().items())
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.5)
    optimizer.load_state_dict(saved["o"])
    x = torch.randn(8, 6, generator=torch.Generator().manual_seed(1))
    for loss in expected:
        found = model(x).square().mean() + model.penalty(x)
        assert found.item() == pytest.approx(loss, rel=1e-5)
        optimizer.zero_grad()
        found.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()


def test_a_sharded_checkpoint_is_merged(tmp_path):
    run_ranks(2, _begin, "SHARDED_STATE_DICT", str(tmp_path))
    merge(tmp_path / "c", tmp_path / "merged")
    model, same = Normed(), Normed()
    load_weights(model, tmp_path / "weights")
    load_weights(same, tmp_path / "merged")
    assert all(t.equal(same.state_dict()[n]) for n, t in model.state_dict().items())


def _resumed(kind, directory):
    """A run that stops in the middle of an accumulation window, and one that goes on there."""
    found = []
    for load in (False, True):
        acc, model, optimizer = prepared(
            net=Normed,
            seed=9 if load else 0,
            fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type=kind),
            gradient_accumulation_steps=3,
        )
        loader = acc.prepare(DataLoader(make_data(43), batch_size=8, shuffle=True))
        if load:
            acc.load_state(f"{directory}/r")
        losses = []
        for _ in range(1 if load else 2):
            for x, y in loader:
                with acc.accumulate(model):
                    loss = nn.functional.mse_loss(model(x), y)
                    acc.backward(loss)
                    optimizer.step()
                    optimizer.zero_grad()
                losses.append(loss.item())
                if len(losses) == 8 and not load:
                    acc.save_state(f"{directory}/r")
        found.append(losses)
    return found


@pytest.mark.parametrize("kind", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_resumed_in_the_middle_of_a_window(kind, tmp_path):
    for whole, rest in run_ranks(2, _resumed, kind, str(tmp_path)):
        assert rest == whole[8:]
