"""Tensor parallel, alone and with FSDP2: the same losses as plain PyTorch, the same batches within a group."""

import itertools
import json
import random

import pytest
import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.utils.data import DataLoader

from accelify.runtime import (
    DistributedType,
    FullyShardedDataParallelPlugin,
    ParallelismConfig,
    TorchTensorParallelPlugin,
    set_seed,
)
from tests.distributed.processes import fresh_accelerator, run_ranks
from tests.distributed.test_fsdp import check_equal
from tests.runtime.training import Setting, make_data, train_accelerated

pytestmark = pytest.mark.distributed

PLAN = {"0": "colwise", "2": "rowwise"}
SETTINGS = [
    Setting(samples=33, optimizer="adam"),
    Setting(loss="sum", sampler="batches"),
    Setting(accumulate=2, samples=75, schedule="batch"),
    Setting(clip=0.1, accumulate=3),
    Setting(schedule="epoch", samples=33, clip=0.1),
    Setting(sampler="stream", samples=33, schedule="batch"),
]
LAYOUTS = {
    "2 parts": (2, {"torch_tp_plugin": TorchTensorParallelPlugin(tp_size=2, tp_plan=PLAN)}),
    "2 parts of 2 shards": (4, {"parallelism_config": ParallelismConfig(tp_size=2, tp_plan=PLAN)}),
    "2 parts of 2 replicas": (
        4,
        {"parallelism_config": ParallelismConfig(tp_size=2, dp_replicate_size=2, tp_plan=PLAN)},
    ),
}


def _train_all(settings, arguments):
    return [train_accelerated(s, split_batches=True, **arguments) for s in settings]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_losses_follow_plain_pytorch(layout):
    ranks, arguments = LAYOUTS[layout]
    settings = SETTINGS if layout != "2 parts of 2 replicas" else SETTINGS[2:4]
    check_equal(run_ranks(ranks, _train_all, settings, arguments), settings)


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        # A bias of the key has no gradient but rounding, which Adam would blow up.
        self.query, self.key, self.value = (nn.Linear(8, 8, bias=i != 1) for i in range(3))
        self.back = nn.Linear(8, 8)

    def forward(self, x):
        # Heads of four numbers; with two ranks each has one of the two heads.
        query, key, value = (
            f(x).unflatten(-1, (-1, 4)).transpose(1, 2) for f in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(query, key, value)
        return self.back(mixed.transpose(1, 2).flatten(2))


class Transformer(nn.Module):
    """With a plan of its own, as models of libraries have."""

    tp_plan = {
        "blocks.*.attention.query": "colwise",
        "blocks.*.attention.key": "colwise",
        "blocks.*.attention.value": ColwiseParallel,
        "blocks.*.attention.back": RowwiseParallel(),
        "blocks.*.wide": "colwise",
        "blocks.*.narrow": "rowwise",
        "head": "colwise_rep",
    }

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(10, 8)
        self.blocks = nn.ModuleList(nn.Module() for _ in range(2))
        for block in self.blocks:
            block.norm, block.attention = nn.LayerNorm(8), Attention()
            block.wide, block.narrow = nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 10)

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = x + block.attention(block.norm(x))
            x = x + block.narrow(block.wide(x).relu())
        return self.head(x)


def _transformer(arguments, precision="no"):
    torch.manual_seed(0)
    acc = fresh_accelerator(split_batches=True, mixed_precision=precision, **arguments)
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    data = torch.randint(10, (12, 5), generator=torch.Generator().manual_seed(2))
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model, optimizer, loader = acc.prepare(model, optimizer, loader)
    losses, seen = [], []
    for _ in range(3):
        for tokens in loader:
            loss = nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.roll(1, 1).flatten())
            losses.append(acc.reduce(loss.detach() * acc._share_weight("mean"), "mean").item())
            acc.backward(loss)
            norm = acc.clip_grad_norm_(model.parameters(), 1.0)
            assert type(norm) is torch.Tensor
            optimizer.step()
            optimizer.zero_grad()
            seen.append((tokens.tolist(), acc.gather_for_metrics(tokens).tolist()))
    return losses, acc.get_state_dict(model), seen, torch.rand(()).item(), acc.distributed_type


def _transformers(arguments):
    return [_transformer(arguments, precision) for precision in ("no", "bf16")]


@pytest.mark.parametrize("ranks", [2, 4])
def test_a_model_with_a_plan_of_its_own(ranks):
    expected, state, batches, _, _ = _transformer({})
    sharded = {"fsdp_plugin": FullyShardedDataParallelPlugin(min_num_params=50)} if ranks == 4 else {}
    results = run_ranks(ranks, _transformers, {"parallelism_config": ParallelismConfig(tp_size=2), **sharded})
    for rank, ((losses, own, seen, drawn, kind), (low, *_)) in enumerate(results):
        assert losses == pytest.approx(expected, rel=1e-4)
        assert low == pytest.approx(expected, rel=0.05)
        Transformer().load_state_dict(own)
        torch.testing.assert_close(own, state, rtol=1e-3, atol=1e-4)
        # Each group of two has the same batches and draws the same numbers; groups differ.
        first = results[rank - rank % 2][0]
        assert (seen, drawn) == (first[2], first[3])
        # What is gathered is the original's batch, each sample once.
        assert [g for _, g in seen] == [g for _, g in batches]
        assert kind == (DistributedType.TP if ranks == 2 else DistributedType.FSDP)
    if ranks == 4:
        assert results[0][0][2] != results[2][0][2]


def _shared_out():
    plan = ParallelismConfig(tp_size=2, tp_plan=PLAN)
    acc = fresh_accelerator(parallelism_config=plan)
    random.seed(acc.process_index)

    class Own(torch.utils.data.Sampler):
        """An order that nothing knows of, and that differs from process to process."""

        def __iter__(self):
            return iter(random.sample(range(21), 21))

        def __len__(self):
            return 21

    loader = acc.prepare(DataLoader(range(21), batch_size=4, sampler=Own()))
    orders = [b.tolist() for b in loader]
    from accelify.runtime import DataLoaderConfiguration

    dispatching = fresh_accelerator(
        parallelism_config=plan, dataloader_config=DataLoaderConfiguration(dispatch_batches=True)
    )
    dispatched = [b.tolist() for b in dispatching.prepare(DataLoader(range(21), batch_size=4))]
    one = torch.tensor([float(acc.process.data_rank)])
    set_seed(3, device_specific=True)
    with acc.split_between_processes(list(range(6))) as own:
        return {
            "orders": orders,
            "dispatched": dispatched,
            "gather": acc.gather(one).tolist(),
            "sum": acc.reduce(one, "sum").item(),
            "numbers": acc.reduce({"n": 3}, "sum"),
            "objects": acc.gather_for_metrics([acc.process_index], use_gather_object=True),
            "split": own,
            "seeded": torch.rand(()).item(),
            "trigger": (acc.set_trigger() if acc.process_index == 3 else None, acc.check_trigger())[1],
        }


def test_what_is_shared_out_and_gathered():
    a, b, c, d = run_ranks(4, _shared_out)
    assert (a["orders"], a["dispatched"], a["split"], a["seeded"]) == (
        b["orders"],
        b["dispatched"],
        b["split"],
        b["seeded"],
    )
    assert (c["orders"], c["seeded"]) == (d["orders"], d["seeded"])
    assert a["seeded"] != c["seeded"]
    assert sorted(itertools.chain(*a["orders"], *c["orders"])) == list(range(21))
    assert sorted(itertools.chain(*a["dispatched"], *c["dispatched"])) == list(range(21))
    assert (a["split"], c["split"]) == ([0, 1, 2], [3, 4, 5])
    for found in (a, b, c, d):
        assert found["gather"] == [0.0, 1.0]
        assert (found["sum"], found["numbers"]) == (1.0, {"n": 6})
        assert len(found["objects"]) == 2
        assert found["trigger"]


def _checkpointed(kind, directory):
    found = []
    for load in (False, True):
        torch.manual_seed(9 if load else 0)
        acc = fresh_accelerator(
            split_batches=True,
            gradient_accumulation_steps=3,
            parallelism_config=ParallelismConfig(tp_size=2, tp_plan=PLAN),
            fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type=kind),
        )
        model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        loader = DataLoader(make_data(43), batch_size=8, shuffle=True)
        model, optimizer, loader = acc.prepare(model, optimizer, loader)
        if load:
            acc.load_state(f"{directory}/c")
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
                    acc.save_state(f"{directory}/c")
        found.append(losses)
    return found


def _weights_on_one(directory):
    acc = fresh_accelerator(fsdp_plugin=FullyShardedDataParallelPlugin(state_dict_type="SHARDED_STATE_DICT"))
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    model, optimizer = acc.prepare(model, optimizer)
    acc.load_state(directory)
    return acc.get_state_dict(model), optimizer.state_dict()["state"][0]["exp_avg"].shape


def test_checkpoints(tmp_path):
    for kind, ranks in (("SHARDED_STATE_DICT", 4), ("FULL_STATE_DICT", 2)):
        for whole, rest in run_ranks(ranks, _checkpointed, kind, str(tmp_path / kind)):
            assert rest == whole[8:]
    state, shape = _weights_on_one(tmp_path / "SHARDED_STATE_DICT" / "c")
    nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3)).load_state_dict(state)
    assert shape == (8, 6)


def _wrong_plans():
    model = nn.Sequential(nn.Linear(6, 7), nn.Tanh(), nn.Linear(7, 4))
    for plan, words in [
        (None, "tensor parallel needs a plan for Sequential"),
        ({"3": "colwise"}, "no module of Sequential is called '3'"),
        ({"0": "colwize"}, "cannot be 'colwize': did you mean colwise"),
        ({"0": "colwise"}, "the 7 outputs of 0 cannot be divided between 2 ranks"),
        ({"2": "rowwise"}, "the 7 inputs of 2 cannot be divided between 2 ranks"),
        ({"1": "colwise"}, "1 is a Tanh; ColwiseParallel divides layers with a weight"),
    ]:
        acc = fresh_accelerator(parallelism_config=ParallelismConfig(tp_size=2, tp_plan=plan))
        with pytest.raises(ValueError, match=words):
            acc.prepare(model)
    with pytest.raises(NotImplementedError, match="join_uneven_inputs does not work with tensor parallel"):
        acc.join_uneven_inputs([model]).__enter__()


def test_what_cannot_be_is_said():
    run_ranks(2, _wrong_plans)
    with pytest.raises(
        ValueError, match="with tp_size 2, dp_replicate_size 1 needs 2 processes or a multiple"
    ):
        fresh_accelerator(parallelism_config=ParallelismConfig(tp_size=2))


def test_sections_of_the_configuration_file():
    section = {
        "parallelism_config_tp_size": "2",
        "parallelism_config_dp_shard_size": 4,
        "dp_replicate_size": None,
    }
    plan = ParallelismConfig.from_config(section | {"parallelism_config_cp_size": 1})
    assert plan == ParallelismConfig(tp_size=2, dp_shard_size=4)
    assert plan.sizes(8) == (1, 4, 2)
    assert ParallelismConfig(tp_size=2, dp_replicate_size=2).sizes(8) == (2, 2, 2)
    for wrong, words in [
        ({"parallelism_config_tp_sise": 2}, "did you mean parallelism_config_tp_size"),
        ({"parallelism_config_tp_size": "two"}, "parallelism_config_tp_size must be a whole number"),
        ({"parallelism_config_cp_size": 2}, "does not divide sequences between ranks"),
    ]:
        with pytest.raises(ValueError, match=words):
            ParallelismConfig.from_config(wrong)
    fsdp = FullyShardedDataParallelPlugin.from_config
    assert fsdp(
        {
            "fsdp_version": 2,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_transformer_layer_cls_to_wrap": "Block, Other",
            "fsdp_reshard_after_forward": "true",
            "fsdp_state_dict_type": "sharded_state_dict",
            "fsdp_offload_params": False,
            "fsdp_activation_checkpointing": "yes",
            "fsdp_min_num_params": "",
        }
    ) == FullyShardedDataParallelPlugin(
        auto_wrap_policy="transformer_based_wrap",
        transformer_cls_names_to_wrap=["Block", "Other"],
        reshard_after_forward=True,
        state_dict_type="SHARDED_STATE_DICT",
        activation_checkpointing=True,
    )
    assert fsdp({"fsdp_version": 1, "fsdp_sharding_strategy": "SHARD_GRAD_OP"}).reshard_after_forward is False
    for wrong, words in [
        ({"fsdp_wrap_policy": "NO_WRAP"}, "did you mean fsdp_auto_wrap_policy"),
        ({"fsdp_auto_wrap_policy": "SIZE_WRAP"}, "did you mean size_based_wrap"),
        ({"fsdp_auto_wrap_policy": "SIZE_BASED_WRAP"}, "needs min_num_params"),
        ({"fsdp_sharding_strategy": "NO_SHARD"}, "leave the fsdp_config section out"),
        ({"fsdp_sharding_strategy": "HYBRID_SHARD"}, "write parallelism_config_dp_replicate_size"),
        ({"fsdp_reshard_after_forward": "maybe"}, "must be true, false or a number"),
        ({"fsdp_version": "x"}, "fsdp_version must be a whole number"),
    ]:
        with pytest.raises(ValueError, match=words):
            fsdp(wrong)


def _by_variable():
    acc = fresh_accelerator(split_batches=True)
    model = acc.prepare(Transformer())
    return type(acc.backend).__name__, tuple(model.head.weight.to_local().shape)


def test_a_script_that_names_no_engine():
    sections = {"fsdp": {}, "parallelism": {"parallelism_config_tp_size": 2}}
    found = run_ranks(2, _by_variable, env={"ACCELIFY_ENGINE": json.dumps(sections)})
    assert found == [("TensorParallelBackend", (5, 8))] * 2
