"""Open a model of the hub from its config.json and safetensors, through the model classes of transformers.

Only plain data reaches transformers: settings that the model's own configuration class knows, and tensors. It is given
no path and no name, so it reads no other file, no code and nothing from the network.
"""

from __future__ import annotations

import contextlib
import importlib.util
import warnings
from collections.abc import Iterator, Mapping
from logging import CRITICAL
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ...config.text import one_line, parse_json
from .backbone_files import check_expected, checksum, link_root, read_file
from .frozen import Features, PretrainedBackbone
from .hub import CONFIG
from .identity import Identity, PreprocessFlags
from .pooling import pool, pooling_of
from .preprocessing import complete, from_flags, from_folder

KINDS = frozenset({
    "beit", "convnext", "convnextv2", "data2vec-vision", "deit", "dinov2", "dinov2_with_registers", "dinov3_convnext",
    "dinov3_vit", "ijepa", "mobilenet_v1", "mobilenet_v2", "regnet", "resnet", "swin", "swinv2", "vit", "vit_msn",
})  # fmt: skip
"""Kinds of image models that are loaded (``model_type``)."""
TOWERS = {"clip": "CLIPVisionModelWithProjection", "siglip": "SiglipVisionModel"}
"""Models of images and text, and the class of their image part."""
IMAGE_PART = ("vision_model.", "visual_projection.")
NOT_TAKEN = frozenset({"_name_or_path", "dtype", "torch_dtype", "transformers_version", "architectures"})
LARGEST_NUMBER, MOST_LAYERS = 1 << 20, 256
UNUSED = ("pooler.", "mask_token", "embeddings.mask_token")
"""Weights that may be missing: without a trained pooler the tokens are averaged; mask tokens are for training."""


class TransformersFeatures(Features):
    """Features by a torch module of transformers, on the device of the images."""

    def __init__(self, model: nn.Module, pooled: bool) -> None:
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.pooled = pooled
        """Whether the model's own pooling is used."""

    def __call__(self, images: Tensor) -> Tensor:
        self.model.to(images.device)
        found = self.model(pixel_values=images)
        names = ("image_embeds", *(["pooler_output"] if self.pooled else []), "last_hidden_state")
        output = next((value for name in names if (value := getattr(found, name, None)) is not None), None)
        pooling = None if output is None else pooling_of(tuple(output.shape))
        if output is None or pooling is None or len(output) != len(images):
            raise ValueError("it gives no vectors")
        return torch.from_numpy(pool(output.float().cpu().numpy(), pooling))


def open_transformers(
    folder: Path, weights: tuple[str, ...], source: str, flags: PreprocessFlags | None, expected_sha256: str | None
) -> PretrainedBackbone:
    """Open a folder with config.json and safetensors."""
    if importlib.util.find_spec("transformers") is None:
        raise ValueError(f"{folder}: safetensors need transformers: pip install 'converge-to-surprise[photos]'")
    for name in (*weights, CONFIG):
        if not (folder / name).resolve().is_relative_to(link_root(folder)):
            raise ValueError(f"{folder / name}: it is a link to a file outside of its folder, which is refused")
    contents = {name: read_file(folder / name) for name in (*weights, CONFIG)}
    found = checksum(contents)
    check_expected(source, found, expected_sha256)
    try:
        described = parse_json(contents.pop(CONFIG))
        kind, settings = _settings(described)
        parts = {"size": settings.get("image_size")} if type(settings.get("image_size")) is int else {}
        preprocess = complete(parts | from_folder(folder) | from_flags(flags))
        features = _load(kind, settings, contents)
        trial = features(torch.full((2, 3, preprocess.size, preprocess.size), 0.5))
    except MemoryError:
        raise
    except Exception as error:  # whatever the settings of a file make a model class do
        raise ValueError(f"{folder}: {one_line(error, longest=300)}") from error
    return PretrainedBackbone(Identity(source, found, preprocess, trial.shape[1]), features)


def _settings(described: Any) -> tuple[str, dict[str, Any]]:
    """The kind of a model and the settings of its image part, out of its config.json."""
    if not isinstance(described, Mapping):
        raise ValueError("its config.json must be a JSON object")
    kind = described.get("model_type")
    if not isinstance(kind, str) or kind not in {*KINDS, *TOWERS}:
        known = ", ".join(sorted({*KINDS, *TOWERS}))
        raise ValueError(f"its model_type is {kind!r}; give an ONNX file, or a model of one of these: {known}")
    if "quantization_config" in described:
        raise ValueError("its weights are quantized, which is not supported; give an ONNX file")
    if kind not in TOWERS:
        return kind, dict(described)
    vision = described.get("vision_config")
    shared = {"projection_dim": described["projection_dim"]} if "projection_dim" in described else {}
    return kind, {**(vision if isinstance(vision, Mapping) else {}), **shared}


def _load(kind: str, settings: Mapping[str, Any], contents: Mapping[str, bytes]) -> TransformersFeatures:
    """Build a model and fill it; weights that it needs and the files lack are an error."""
    import transformers
    from safetensors.torch import load

    family: Any = getattr(transformers, TOWERS[kind]) if kind in TOWERS else None
    configuration: Any = family.config_class if family else type(transformers.AutoConfig.for_model(kind))
    known = configuration().to_dict().keys() - NOT_TAKEN
    config = configuration(**{name: value for name, value in settings.items() if name in known})
    _check_numbers(config.to_dict())
    family = family or transformers.AutoModel._model_mapping[type(config)]
    tensors = {name: value for content in contents.values() for name, value in load(content).items()}
    if kind in TOWERS:
        tensors = {name: value for name, value in tensors.items() if name.startswith(IMAGE_PART)}
    with _quiet():
        with torch.device("meta"):
            planned = sum(one.numel() for one in family(config).parameters())
        held = sum(map(len, contents.values()))
        if planned > 2 * held:
            raise ValueError(
                f"its config.json describes {planned:,} weights, more than its files of {held:,} bytes hold"
            )
        model, report = family.from_pretrained(
            None, config=config, state_dict=tensors, output_loading_info=True, dtype=torch.float32,
            attn_implementation="eager", ignore_mismatched_sizes=True, trust_remote_code=False, local_files_only=True,
        )  # fmt: skip
    missing = set(report["missing_keys"])
    wrong = [name for name in missing if not name.startswith(UNUSED)] + [one[0] for one in report["mismatched_keys"]]
    if wrong:
        raise ValueError(f"its safetensors do not fit its config.json: {', '.join(sorted(wrong)[:3])}")
    return TransformersFeatures(model, pooled=not any(name.startswith("pooler.") for name in missing))


def _check_numbers(settings: Any, name: str = "") -> None:
    """Refuse numbers that would build a network without end before its weights are looked at."""
    if isinstance(settings, Mapping):
        for key, value in settings.items():
            _check_numbers(value, str(key))
    elif isinstance(settings, list | tuple):
        for value in settings:
            _check_numbers(value, name)
    elif isinstance(settings, int | float) and not isinstance(settings, bool):
        layers = any(word in name for word in ("layer", "depth", "block", "stage")) and isinstance(settings, int)
        if not abs(settings) <= (MOST_LAYERS if layers else LARGEST_NUMBER):
            raise ValueError(f"{name} is {settings!r} in its config.json, which is too large")


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Within the block, transformers prints no progress bar and no report; what is missing is checked here."""
    from transformers.utils import logging

    before = logging.get_verbosity()
    bars = logging.is_progress_bar_enabled()
    logging.set_verbosity(CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.set_verbosity(before)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
