"""A run on disk: its folder, lock, history, checkpoints and results."""
