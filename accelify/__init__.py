"""accelify: make a training script written for one device run on any number of them, with the same losses."""

__version__ = "0.1.0"
