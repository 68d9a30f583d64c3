"""Loaders with a state: torchdata's StatefulDataLoader, and `state_dict` of prepared loaders."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

from accelify.runtime import DataLoaderConfiguration, gather_object
from tests.distributed.processes import fresh_accelerator, run_ranks

pytestmark = pytest.mark.distributed


class _Stream(IterableDataset):
    def __iter__(self):
        return iter(torch.arange(24.0))


def _made(kind, source, workers):
    made = DataLoader
    if kind == "torchdata":
        from torchdata.stateful_dataloader import StatefulDataLoader

        made = StatefulDataLoader
    if source == "stream":
        return made(_Stream(), batch_size=2, num_workers=workers)
    return made(torch.arange(24.0), batch_size=2, shuffle=True, num_workers=workers)


def _interrupted(path, kind, source, workers, phase, by_checkpoint):
    """Samples of all ranks in the batches that were read, in order."""
    torch.manual_seed(0)
    config = DataLoaderConfiguration(use_stateful_dataloader=True)
    accelerator = fresh_accelerator(dataloader_config=config)
    model, loader = accelerator.prepare(nn.Linear(1, 1), _made(kind, source, workers))
    file = f"{path}/{accelerator.process_index}"
    if phase == "resume" and by_checkpoint:
        accelerator.load_state(f"{path}/checkpoint")
    elif phase == "resume":
        loader.load_state_dict(torch.load(file, weights_only=False))
    seen = []
    for step, x in enumerate(loader):
        accelerator.backward(model(x.view(-1, 1)).mean())
        seen.append(gather_object([int(v) for v in x]))
        if phase == "save" and step == 1:
            if by_checkpoint:
                accelerator.save_state(f"{path}/checkpoint")
            else:
                torch.save(loader.state_dict(), file)
            break
    return seen


CASES = [
    ("torchdata", "shuffled", 0, 1),
    ("torchdata", "shuffled", 0, 2),
    ("torchdata", "shuffled", 1, 2),
    ("torchdata", "stream", 0, 1),
    ("torchdata", "stream", 0, 2),
    ("torch", "shuffled", 0, 1),
    ("torch", "shuffled", 0, 2),
]


@pytest.mark.parametrize("by_checkpoint", [False, True])
@pytest.mark.parametrize(("kind", "source", "workers", "ranks"), CASES)
def test_the_rest_of_a_pass(kind, source, workers, ranks, by_checkpoint, tmp_path):
    if kind == "torchdata":
        pytest.importorskip("torchdata.stateful_dataloader")
    arguments = (str(tmp_path), kind, source, workers)
    whole = run_ranks(ranks, _interrupted, *arguments, "whole", by_checkpoint)[0]
    assert sorted(n for batch in whole for n in batch) == list(range(24))
    first = run_ranks(ranks, _interrupted, *arguments, "save", by_checkpoint)[0]
    rest = run_ranks(ranks, _interrupted, *arguments, "resume", by_checkpoint)[0]
    assert first + rest == whole


def _of_another_kind():
    accelerator = fresh_accelerator()
    loader = accelerator.prepare(DataLoader(torch.arange(4.0)))
    with pytest.raises(ValueError, match="state of another kind of loader"):
        loader.load_state_dict({"_num_yielded": 1})


def test_a_state_of_another_kind_is_refused():
    run_ranks(2, _of_another_kind)
