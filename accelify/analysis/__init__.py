"""The semantic model of training scripts: what each name is, and where the training loop stands."""
