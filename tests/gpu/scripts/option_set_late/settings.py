import torch


class Settings:
    use_gpu = True
    lr = 0.1

    def parse(self, given):
        for name, value in given.items():
            setattr(self, name, value)
        opt.device = torch.device("cuda") if opt.use_gpu else torch.device("cpu")


opt = Settings()
