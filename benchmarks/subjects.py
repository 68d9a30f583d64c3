"""What `step_overhead.py` compares: training steps of plain PyTorch, accelify, Hugging Face Accelerate and Lightning
Fabric, and the models that they train.

A subject is `set_up(options)`, which starts what it needs in this process, and gives `prepare(workload)`: an endless
iterator that makes one training step for every `next`.
"""

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass

DTYPES = {"no": None, "bf16": "bfloat16", "fp16": "float16"}


@dataclass(frozen=True)
class Options:
    """Where and how all subjects train.

    Args:
        device: "cpu" or "cuda".
        precision: "no", "bf16" or "fp16".
        compile: models by torch.compile.
    """

    device: str = "cpu"
    precision: str = "no"
    compile: bool = False


@dataclass(frozen=True)
class Workload:
    """A model with its data.

    Args:
        words: what it is, in words.
        make: gives the model and its samples.
        batch: samples of a batch.
        loss: of the model's output for a batch, and the batch.
        round: steps that are measured together.
    """

    words: str
    make: Callable
    batch: int
    loss: Callable
    round: int


def _square(output, x):
    return (output - x).square().mean()


def _next_token(output, x):
    from torch.nn import functional

    return functional.cross_entropy(output.flatten(0, 1), x.roll(-1, 1).flatten())


def _small(samples):
    import torch
    from torch import nn

    layers = [layer for _ in range(5) for layer in (nn.Linear(128, 128), nn.ReLU())]
    return nn.Sequential(*layers), torch.randn(samples, 128)


def _encoder():
    import torch
    from torch import nn

    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, dropout=0.0)
    return nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), torch.randn(64, 64, 256)


def _language_model():
    import torch
    from torch import nn

    class LanguageModel(nn.Module):
        def __init__(self, words=32768, width=768, depth=12):
            super().__init__()
            layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, dropout=0.0)
            self.words = nn.Embedding(words, width)
            self.layers = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
            self.head = nn.Linear(width, words)

        def forward(self, x):
            return self.head(self.layers(self.words(x)))

    return LanguageModel(), torch.randint(0, 32768, (128, 512))


WORKLOADS = {
    "cpu": {
        "small": Workload("5 layers of width 128", lambda: _small(400 * 32), 32, _square, 100),
        "real": Workload("transformer, 5 million weights", _encoder, 4, _square, 4),
    },
    "cuda": {
        "small": Workload("5 layers of width 128", lambda: _small(400 * 32), 32, _square, 50),
        "real": Workload("transformer, 135 million weights", _language_model, 8, _next_token, 4),
    },
}


def ranks_here():
    return int(os.environ.get("WORLD_SIZE", "1"))


def make(workload, options):
    """Model, optimizer and loader of a plain script: its batch is what every rank takes, as all subjects have it."""
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    torch.manual_seed(0)
    model, data = workload.make()
    data = data.repeat(ranks_here(), *[1] * (data.ndim - 1))
    loader = DataLoader(
        TensorDataset(data),
        batch_size=workload.batch,
        shuffle=True,
        drop_last=True,
        pin_memory=options.device == "cuda",
    )
    return model, torch.optim.SGD(model.parameters(), lr=1e-3), loader


def train(workload, model, optimizer, loader, backward, region=contextlib.nullcontext, place=None, step=None):
    """Epoch after epoch, a step for every `next`."""
    step = optimizer.step if step is None else step
    while True:
        for (x,) in loader:
            x = x if place is None else place(x)
            optimizer.zero_grad()
            with region():
                loss = workload.loss(model(x), x)
            backward(loss)
            step()
            yield


def torch_by_hand(options):
    """A plain script: DDP on several processes, torch.amp in mixed precision."""
    import torch
    from torch.nn.parallel import DistributedDataParallel
    from torch.utils.data import DataLoader, DistributedSampler

    if ranks_here() > 1:
        torch.distributed.init_process_group("gloo")
    device, dtype = options.device, DTYPES[options.precision]

    def region():
        return torch.autocast(device, dtype=getattr(torch, dtype))

    def prepare(workload):
        model, optimizer, loader = make(workload, options)
        model = model.to(device)
        if options.compile:
            model = torch.compile(model)
        if ranks_here() > 1:
            model = DistributedDataParallel(model)
            sampler = DistributedSampler(loader.dataset)
            loader = DataLoader(loader.dataset, loader.batch_size, sampler=sampler, drop_last=True)
        further = {"region": region} if dtype else {}
        if device != "cpu":
            further["place"] = lambda x: x.to(device, non_blocking=True)
        if options.precision != "fp16":
            return train(workload, model, optimizer, loader, lambda loss: loss.backward(), **further)
        scaler = torch.amp.GradScaler(device)

        def step():
            scaler.step(optimizer)
            scaler.update()

        return train(
            workload,
            model,
            optimizer,
            loader,
            lambda loss: scaler.scale(loss).backward(),
            step=step,
            **further,
        )

    return prepare


def _with_accelerator(accelerator, options, region=contextlib.nullcontext):
    def prepare(workload):
        prepared = accelerator.prepare(*make(workload, options))
        return train(workload, *prepared, accelerator.backward, region)

    return prepare


def _accelify(options):
    from accelify.runtime import Accelerator

    return Accelerator(
        cpu=options.device == "cpu",
        mixed_precision=options.precision,
        dynamo_backend="inductor" if options.compile else None,
    )


def accelify(options):
    """Mixed precision as the Accelerator has it: of the model alone."""
    return _with_accelerator(_accelify(options), options)


def converted(options):
    """Mixed precision as `accelify convert` leaves it: where the plain script had it, the loss included."""
    if options.precision == "no":
        raise ImportError("without mixed precision it is accelify itself")
    accelerator = _accelify(options)
    return _with_accelerator(accelerator, options, accelerator.autocast)


def accelerate(options):
    """Accelerate, set to copy without waiting as the others do."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    accelerator = Accelerator(
        cpu=options.device == "cpu",
        mixed_precision=options.precision,
        dynamo_backend="inductor" if options.compile else None,
        dataloader_config=DataLoaderConfiguration(non_blocking=options.device != "cpu"),
    )
    if accelerator.num_processes != ranks_here():
        raise ImportError("accelerate did not form the group")
    return _with_accelerator(accelerator, options)


def fabric_class():
    """Lightning's Fabric, from whichever of its packages is here."""
    try:
        from lightning_fabric import Fabric
    except ImportError:
        from lightning.fabric import Fabric
    return Fabric


def fabric(options):
    """Lightning Fabric."""
    import torch

    ranks = ranks_here()
    own = fabric_class()(
        accelerator=options.device,
        devices=ranks,
        strategy="ddp" if ranks > 1 else "auto",
        precision={"no": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}[options.precision],
    )
    if ranks > 1:
        own.launch()
    assert own.world_size == ranks

    def prepare(workload):
        model, optimizer, loader = make(workload, options)
        model = torch.compile(model) if options.compile else model
        model, optimizer = own.setup(model, optimizer)
        return train(workload, model, optimizer, own.setup_dataloaders(loader), own.backward)

    return prepare


SUBJECTS = {
    "torch": torch_by_hand,
    "torch again": torch_by_hand,
    "accelify": accelify,
    "converted": converted,
    "accelerate": accelerate,
    "fabric": fabric,
}
