"""Where tensors and models lie: what chooses a device, what moves there, and what stays on the host."""
