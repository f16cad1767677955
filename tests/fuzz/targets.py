"""What is fuzzed: every kind of file, with what spoils one and says how it is used."""

from __future__ import annotations

from collections.abc import Callable

from . import files, runs
from .place import Draw, Place, Use

TARGETS: dict[str, Callable[[Place, Draw], Use]] = {
    "checkpoint, damaged": runs.checkpoint_bytes,
    "checkpoint, forged data": runs.checkpoint_data,
    "checkpoint, forged tensors": runs.checkpoint_tensors,
    "safetensors": runs.safetensors_bytes,
    "config.json of a run": runs.run_description,
    "result.json and history.jsonl": runs.run_records,
    "configuration, JSON and TOML": files.configuration,
    "clusters.json": runs.cluster_names,
    "IDX": files.idx_file,
    "npy and npz": files.array_file,
    "CSV and Parquet": files.table,
    "embeddings": files.embedding_file,
    "picture": files.picture,
    "folder of pictures": files.picture_folder,
    "model file": runs.model_bytes,
    "outputs.safetensors": runs.saved_outputs,
    "training.safetensors": runs.training_outputs,
}
COSTLY = frozenset(name for name, target in TARGETS.items() if target.__module__ == runs.__name__)
"""Every example of these is a whole command or more."""
