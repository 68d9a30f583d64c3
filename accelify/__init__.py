"""accelify: make a training script written for one device run on any number of them."""

__version__ = "0.2.0"
