import numpy as np
import torch
from torch import nn
from torch.distributions import Categorical


class Environment:
    def __init__(self, seed):
        self.draw = np.random.default_rng(seed)

    def reset(self):
        return self.draw.standard_normal(4)

    def step(self, action):
        return self.draw.standard_normal(4), float(action), self.draw.random() < 0.1, {}


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine = nn.Linear(4, 8)
        self.action = nn.Linear(8, 2)
        self.value = nn.Linear(8, 1)
        self.saved, self.rewards = [], []

    def forward(self, x):
        x = torch.relu(self.affine(x))
        return torch.softmax(self.action(x), dim=-1), self.value(x)


environment, policy = Environment(1), Policy()
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-2)


def choose(state):
    probabilities, value = policy(torch.from_numpy(state).float())
    chosen = Categorical(probabilities)
    action = chosen.sample()
    policy.saved.append((chosen.log_prob(action), value))
    return action.item()


def finish():
    returns, total = [], 0
    for reward in policy.rewards[::-1]:
        total = reward + 0.9 * total
        returns.insert(0, total)
    returns = torch.tensor(returns)
    parts = [-p * (r - v.item()) + (v - torch.tensor([r])).pow(2) for (p, v), r in zip(policy.saved, returns)]
    optimizer.zero_grad()
    torch.stack(parts).sum().backward()
    optimizer.step()
    policy.saved.clear()
    policy.rewards.clear()


for episode in range(3):
    state = environment.reset()
    for t in range(20):
        state, reward, done, _ = environment.step(choose(state))
        policy.rewards.append(reward)
        if done:
            break
    finish()
