"""Train a small generative adversarial network on points of a ring: two models, two optimizers, a picture's numbers."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NOISE, EPOCHS = 8, 2


def ring(count: int) -> TensorDataset:
    angle = 6.283 * torch.rand(count, generator=torch.Generator().manual_seed(1))
    return TensorDataset(torch.stack([angle.cos(), angle.sin()], dim=1))


def network(inputs: int, outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(inputs, 32), nn.LeakyReLU(0.2), nn.Linear(32, outputs))


def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = DataLoader(ring(512), batch_size=32, shuffle=True, drop_last=True)
    generator, critic = network(NOISE, 2).to(device), network(2, 1).to(device)
    generator_optimizer = torch.optim.Adam(generator.parameters(), lr=2e-3, betas=(0.5, 0.99))
    critic_optimizer = torch.optim.Adam(critic.parameters(), lr=2e-3, betas=(0.5, 0.99))
    for epoch in range(EPOCHS):
        for (real,) in loader:
            real = real.to(device)
            noise = torch.randn(real.size(0), NOISE, device=device)
            fake = generator(noise)
            critic_loss = F.softplus(-critic(real)).mean() + F.softplus(critic(fake.detach())).mean()
            critic_optimizer.zero_grad()
            critic_loss.backward()
            critic_optimizer.step()

            generator_loss = F.softplus(-critic(fake)).mean()
            generator_optimizer.zero_grad()
            generator_loss.backward()
            generator_optimizer.step()
        print(f"epoch {epoch} is done")
    torch.save({"generator": generator.state_dict(), "critic": critic.state_dict()}, "gan.pt")


if __name__ == "__main__":
    main()
