"""Where tensors and models are: what chooses a device, what moves there, and what stays on the host."""
