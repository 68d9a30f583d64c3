import argparse
import json
import os

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset, random_split
from tqdm.auto import tqdm


def evaluate(accelerator, model, loader):
    model.eval()
    right, seen = 0, 0
    losses = []
    with torch.no_grad():
        for x, y in loader:
            out = model(x)
            out, y = accelerator.gather_for_metrics((out, y))
            right += (out.argmax(1) == y).sum().item()
            seen += y.shape[0]
            losses.append(F.cross_entropy(out, y, reduction="none"))
    model.train()
    return right / seen, torch.cat(losses).mean().item()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--out", default="out")
    args = parser.parse_args()
    accelerator = Accelerator(gradient_accumulation_steps=2, mixed_precision="fp16")
    set_seed(0)
    if accelerator.is_main_process:
        os.makedirs(args.out, exist_ok=True)
    accelerator.wait_for_everyone()
    data = TensorDataset(torch.randn(640, 4), torch.randint(0, 3, (640,)))
    parts = random_split(data, [512, 128], generator=torch.Generator().manual_seed(0))
    train = DataLoader(parts[0], batch_size=8, shuffle=True)
    val = DataLoader(parts[1], batch_size=8)
    model = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer, train, val = accelerator.prepare(model, optimizer, train, val)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=args.epochs)
    best = 0.0
    for epoch in range(args.epochs):
        bar = tqdm(train, disable=not accelerator.is_local_main_process)
        for x, y in bar:
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
        scheduler.step()
        accuracy, val_loss = evaluate(accelerator, model, val)
        accelerator.print(f"{epoch}: {accuracy:.3f} {val_loss:.4f}")
        if accuracy > best:
            best = accuracy
            accelerator.wait_for_everyone()
            if accelerator.is_main_process:
                weights = accelerator.unwrap_model(model).state_dict()
                torch.save(weights, os.path.join(args.out, "best.pt"))
        if val_loss < 0.01:
            break
    if accelerator.is_main_process:
        with open(os.path.join(args.out, "result.json"), "w") as file:
            json.dump({"best": best}, file)
    accelerator.end_training()


if __name__ == "__main__":
    main()
