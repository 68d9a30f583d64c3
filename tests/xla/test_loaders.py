"""Batches reach the devices ahead of the loop, and where the loop stands stays right; padding counts for nothing."""

import threading

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from accelify.runtime.backends.xla_plugin import XLAPlugin
from tests.runtime.training import Stream, make_data
from tests.xla.devices import NEEDS_XLA, accelerator, error_on_devices, on_devices

pytestmark = NEEDS_XLA


def _numbers(samples=20):
    return TensorDataset(torch.arange(samples))


class Slow(TensorDataset):
    """Fails where it is told to."""

    def __init__(self, samples, fails_at=None):
        super().__init__(torch.arange(samples))
        self.fails_at = fails_at

    def __getitem__(self, i):
        if i == self.fails_at:
            raise KeyError(f"sample {i} is broken")
        return super().__getitem__(i)


def _feeding():
    return [t.name for t in threading.enumerate() if t.name == "accelify-feed"]


def _passes(workers, ahead):
    """What a loop sees of every batch, over a pass, half a pass and a pass again."""
    torch.manual_seed(6)
    acc = accelerator(xla_plugin=XLAPlugin(prefetch_batches=ahead))
    loader = acc.prepare(
        DataLoader(
            _numbers(), batch_size=3, shuffle=True, num_workers=workers, persistent_workers=workers > 0
        )
    )
    seen, threads = [], set()
    for stop in (None, 3, None):
        for number, (x,) in enumerate(loader):
            assert x.device.type == "xla"
            threads.update(_feeding())
            seen.append((x.tolist(), loader.end_of_dataloader, acc.gradient_state.end_of_dataloader))
            if number == stop:
                break
        assert not _feeding()
    return seen, sorted(threads)


def test_a_thread_feeds_what_the_loop_would_read():
    plain = []
    torch.manual_seed(6)
    loader = DataLoader(_numbers(), batch_size=3, shuffle=True, num_workers=2, persistent_workers=True)
    for stop in (None, 3, None):
        for number, (x,) in enumerate(loader):
            plain.append((x.tolist(), number == 6, number == 6))
            if number == stop:
                break
    fed, threads = on_devices(1, _passes, 2, 2)
    assert fed == plain
    assert threads == ["accelify-feed"]
    assert on_devices(1, _passes, 2, 0) == (plain, [])
    # Without workers the loop itself reads, or draws of the dataset and of the script would change places.
    assert on_devices(1, _passes, 0, 2)[1] == []


def _read_ahead():
    """How many batches lie on the device while the loop is at its first."""
    import time

    acc = accelerator(xla_plugin=XLAPlugin(prefetch_batches=3))
    loader = acc.prepare(DataLoader(_numbers(40), batch_size=2, num_workers=1))
    placed = []
    engine = acc.backend
    inner = engine.place_batch
    engine.place_batch = lambda batch, loader: (
        placed.append(threading.current_thread().name) or inner(batch, loader)
    )
    for _ in loader:
        until = time.monotonic() + 30
        while len(placed) < 4 and time.monotonic() < until:
            time.sleep(0.01)
        break
    return placed[:4]


def test_batches_are_on_the_device_before_they_are_asked_for():
    assert on_devices(1, _read_ahead) == ["accelify-feed"] * 4


def _fail():
    acc = accelerator()
    for _ in acc.prepare(DataLoader(Slow(20, fails_at=9), batch_size=2, num_workers=1)):
        pass


def test_errors_of_the_thread_are_the_loops():
    assert "sample 9 is broken" in error_on_devices(1, _fail)


def _streamed(workers):
    acc = accelerator()
    loader = acc.prepare(DataLoader(Stream(make_data(10)), batch_size=4, num_workers=workers))
    return [(len(x), acc.gradient_state.end_of_dataloader) for x, _ in loader]


def test_streams():
    # Two workers hold five samples each: batches of 4, 4, 1, 1.
    assert on_devices(1, _streamed, 2) == [(4, False), (4, False), (1, False), (1, True)]


def _odd_batches():
    acc = accelerator()
    data = [{"x": torch.ones(2), "name": str(i)} for i in range(6)]
    (batch, *_) = list(acc.prepare(DataLoader(data, batch_size=4)))
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    (packed_batch,) = list(acc.prepare(DataLoader([0], collate_fn=lambda _: packed)))
    whole = list(acc.prepare(DataLoader([0, 1], collate_fn=lambda n: n[0])))
    left = list(acc.prepare_data_loader(DataLoader(_numbers(2)), device_placement=False))
    return (
        batch["x"].device.type,
        batch["name"],
        packed_batch.data.device.type,
        packed_batch.batch_sizes.device.type,
        whole,
        left[0][0].device.type,
    )


def test_batches_of_any_form():
    assert on_devices(1, _odd_batches) == ("xla", ["0", "1", "2", "3"], "xla", "cpu", [0, 1], "cpu")


def _layouts():
    import torch_xla

    acc = accelerator()
    found = []
    for x, y in acc.prepare(DataLoader(TensorDataset(torch.randn(23, 4), torch.zeros(23)), batch_size=10)):
        found.append((torch_xla._XLAC._get_xla_sharding_spec(x), torch_xla._XLAC._get_xla_sharding_spec(y)))
        assert x.shape[1:] == (4,)
        assert float(x.sum()) == pytest.approx(float(x.cpu().sum()), rel=1e-4)
    return found


def test_batches_are_spread_over_the_devices():
    spread, whole = ("{devices=[4,1]0,1,2,3}", "{devices=[4]0,1,2,3}"), ("{replicated}", "{replicated}")
    # 10 on 4 devices is spread although it does not divide; 3 are fewer than the devices.
    assert on_devices(4, _layouts) == [spread, spread, whole]


# Padding

LENGTHS = (5, 3, 6, 2, 7, 4, 3)


def _texts():
    generator = torch.Generator().manual_seed(8)
    return [torch.randint(1, 12, (n,), generator=generator) for n in LENGTHS]


def _collate(texts):
    ids = nn.utils.rnn.pad_sequence(texts, batch_first=True)
    mask = nn.utils.rnn.pad_sequence([torch.ones_like(t) for t in texts], batch_first=True)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "labels": ids.masked_fill(mask == 0, -100),
        "weight": 2.0,
    }


class Pooled(nn.Module):
    """Sees all of a text through its mask."""

    def __init__(self):
        super().__init__()
        self.enter = nn.Embedding(12, 8)
        self.leave = nn.Linear(8, 12)

    def forward(self, input_ids, attention_mask):
        x = self.enter(input_ids) * attention_mask[..., None]
        return self.leave(x + x.sum(1, keepdim=True) / attention_mask.sum(1)[:, None, None])


def _train(model, optimizer, loader, backward, gather):
    losses, shapes, metrics = [], set(), []
    for _ in range(3):
        for batch in loader:
            output = model(batch["input_ids"], batch["attention_mask"])
            loss = nn.functional.cross_entropy(output.flatten(0, 1), batch["labels"].flatten())
            backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
            shapes.add(tuple(batch["input_ids"].shape))
            metrics.append(gather(batch["input_ids"]).cpu()[:, 0].tolist())
    return losses, sorted(shapes), metrics


def _train_padded(plugin):
    torch.manual_seed(1)
    acc = accelerator(xla_plugin=plugin)
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = DataLoader(_texts(), batch_size=3, shuffle=True, collate_fn=_collate)
    model, optimizer, loader = acc.prepare(model, optimizer, loader)
    return _train(model, optimizer, loader, acc.backward, acc.gather_for_metrics)


@pytest.mark.parametrize("devices", [1, 2])
def test_what_is_padded_counts_for_nothing(devices):
    plugin = XLAPlugin(pad_to_fixed_shape=True, pad_lengths=[8])
    losses, shapes, metrics = on_devices(devices, _train_padded, plugin)
    torch.manual_seed(1)
    model = Pooled()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.3)
    loader = DataLoader(_texts(), batch_size=3, shuffle=True, collate_fn=_collate)
    expected, plain_shapes, plain_metrics = _train(
        model, optimizer, loader, lambda x: x.backward(), lambda x: x
    )
    assert losses == pytest.approx(expected, rel=2e-5)
    assert metrics == plain_metrics
    assert shapes == [(3, 8)]
    assert len(plain_shapes) > 2


def _one_batch(plugin, loader, model=None):
    acc = accelerator(xla_plugin=plugin)
    if model is not None:
        acc.prepare(model)
    return list(acc.prepare(loader))


@pytest.mark.parametrize(
    ("plugin", "loader", "model", "sentence"),
    [
        (
            XLAPlugin(pad_to_fixed_shape=True),
            DataLoader(make_data(5), batch_size=2),
            None,
            "no entry that tells",
        ),
        (
            XLAPlugin(pad_lengths=[4]),
            DataLoader(make_data(4), batch_size=2),
            None,
            "neither an attention_mask",
        ),
        (
            XLAPlugin(pad_lengths=[4]),
            DataLoader(_texts(), batch_size=3, collate_fn=_collate),
            None,
            "a batch of length 6 does not fit",
        ),
        (
            XLAPlugin(pad_to_fixed_shape=True),
            DataLoader(_numbers(4), batch_size=2),
            nn.BatchNorm1d(2),
            "batch statistics",
        ),
    ],
)
def test_padding_that_would_count_is_refused(plugin, loader, model, sentence):
    told = error_on_devices(1, _one_batch, plugin, loader, model)
    assert told.startswith("ValueError: ")
    assert sentence in told
