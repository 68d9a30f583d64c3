import torch
from torch import nn


class BaseAgent:
    def __init__(self, config):
        self.config = config
        torch.manual_seed(config["seed"])
        self.device = "cuda:0" if config["use_gpu"] else "cpu"

    def create(self, inputs, outputs):
        return nn.Linear(inputs, outputs).to(self.device)
