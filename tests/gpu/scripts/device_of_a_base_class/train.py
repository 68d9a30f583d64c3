import torch
from base import BaseAgent


class Agent(BaseAgent):
    def __init__(self, config):
        BaseAgent.__init__(self, config)
        self.policy = self.create(4, 2)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=0.1)

    def step(self):
        state = torch.rand(4).unsqueeze(0).to(self.device)
        loss = self.policy(state).pow(2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()


agent = Agent({"seed": 1, "use_gpu": torch.cuda.is_available()})
for episode in range(3):
    agent.step()
