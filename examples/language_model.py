"""Train a small language model of characters on one device: accumulation, warm-up, clipping, checkpoints, a sample."""

import math
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

TEXT = "the quick brown fox jumps over the lazy dog. " * 60
BLOCK, WIDTH, WINDOW, EPOCHS = 32, 64, 2, 2


class Characters(Dataset):
    """Blocks of the text, and the same moved on by one character."""

    def __init__(self, text: str) -> None:
        self.letters = sorted(set(text))
        numbers = {letter: number for number, letter in enumerate(self.letters)}
        self.data = torch.tensor([numbers[letter] for letter in text])

    def __len__(self) -> int:
        return (len(self.data) - 1) // BLOCK

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        start = index * BLOCK
        return self.data[start : start + BLOCK], self.data[start + 1 : start + BLOCK + 1]


class LanguageModel(nn.Module):
    def __init__(self, letters: int) -> None:
        super().__init__()
        self.letter = nn.Embedding(letters, WIDTH)
        self.place = nn.Embedding(BLOCK, WIDTH)
        layer = nn.TransformerEncoderLayer(
            WIDTH, 4, 2 * WIDTH, dropout=0.0, batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, letters)

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        length = text.size(1)
        hidden = self.letter(text) + self.place(torch.arange(length, device=text.device))
        mask = nn.Transformer.generate_square_subsequent_mask(length, device=text.device)
        return self.head(self.blocks(hidden, mask=mask, is_causal=True))


def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = Characters(TEXT)
    loader = DataLoader(data, batch_size=8, shuffle=True, drop_last=True)
    model = LanguageModel(len(data.letters)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    steps = EPOCHS * (len(loader) // WINDOW)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, (step + 1) / 4) * 0.5 * (1 + math.cos(math.pi * step / steps))
    )
    for epoch in range(EPOCHS):
        total = 0.0
        for number, (text, following) in enumerate(loader):
            text, following = text.to(device), following.to(device)
            loss = F.cross_entropy(model(text).flatten(0, 1), following.flatten())
            (loss / WINDOW).backward()
            total += loss.item()
            if (number + 1) % WINDOW == 0:
                nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                optimizer.zero_grad()
                schedule.step()
        print(f"epoch {epoch}: loss {total / len(loader):.4f}")
        folder = Path("checkpoints")
        folder.mkdir(exist_ok=True)
        torch.save({"model": model.state_dict(), "epoch": epoch}, folder / "last.pt")


if __name__ == "__main__":
    main()
