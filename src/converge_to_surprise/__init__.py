"""Sort unlabelled images into clusters without being told how many there are."""

__version__ = "0.1.0"
