import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils.data import DataLoader

texts = [(torch.randint(1, 20, (n % 7 + 1,)), n % 2) for n in range(24)]


def collate(samples):
    words = pad_sequence([s[0] for s in samples], batch_first=True)
    return {
        "words": words,
        "length": torch.tensor([len(s[0]) for s in samples]),
        "label": torch.tensor([s[1] for s in samples]),
    }


class Reader(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(20, 8)
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.head = nn.Linear(8, 2)

    def forward(self, words, length):
        packed = pack_padded_sequence(self.embedding(words), length, batch_first=True, enforce_sorted=False)
        return self.head(self.lstm(packed)[1][0][-1])


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(texts, batch_size=8, collate_fn=collate)
model = Reader().to(device)
optimizer = torch.optim.Adam(model.parameters())
for batch in loader:
    words = batch["words"].to(device)
    length = batch["length"]
    loss = nn.functional.cross_entropy(model(words, length), batch["label"].to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(model(torch.tensor([[1, 2, 3]]).to(device), torch.LongTensor([3])).shape)
