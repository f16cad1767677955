"""Short names of a few good backbones, each pinned to a commit of the Hugging Face hub and, where known, a checksum."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Speed = Literal["small", "medium", "large"]


@dataclass(frozen=True)
class CatalogEntry:
    """A backbone with a short name."""

    repository: str
    revision: str
    """Commit on the hub, which fixes the content of every file."""
    file: str
    """The weights, as they are named in the repository."""
    sha256: str | None
    """Of the file; None checks the commit alone."""
    megabytes: int
    """Of the download."""
    license: str
    """Of the weights."""
    speed: Speed
    """By the arithmetic for one image: small up to 2 GFLOP, medium up to 8, large above."""
    about: str


CATALOG: dict[str, CatalogEntry] = {
    "dinov2-small": CatalogEntry(
        "onnx-community/dinov2-small", "8b1f705a3a7f6f062f6bdd21986c1583d3ef105d", "onnx/model.onnx",
        "f22797eabf810a75e41de68d378541ebea372122b25c4ce3ef25ff618250c20a",
        89, "Apache-2.0", "medium", "DINOv2 ViT-S/14, learned without labels; a good first choice",
    ),
    "dinov2-base": CatalogEntry(
        "onnx-community/dinov2-base", "31ef06cac16d5d301c5930d147002a058c85a5e4", "onnx/model.onnx",
        "320d1012a6fc65b101fc85ca30ee7a47b2e4f6a2e8bd78fb9d7036def0e30cb0",
        347, "Apache-2.0", "large", "DINOv2 ViT-B/14, learned without labels",
    ),
    "siglip2-base": CatalogEntry(
        "onnx-community/siglip2-base-patch16-224-ONNX", "ba1f3b0843f24bc5417d38e19c37b287d719b2f4",
        "onnx/vision_model.onnx", "c0573e3f4140c3a7c4e9cc5912bd6b26a033b46a6a8e8af26cbea262b163bcad",
        372, "Apache-2.0", "large", "SigLIP 2 ViT-B/16, learned from images with captions",
    ),
    "clip-vit-b32": CatalogEntry(
        "Xenova/clip-vit-base-patch32", "d15189d7028b43f1d3e65039190477f6af591c2a", "onnx/vision_model.onnx",
        "fd6e1402a588279d1723c7534d4bcba5bc0b14b47dfab0e46f8c47b8270d7d40",
        352, "MIT", "medium", "CLIP ViT-B/32, learned from images with captions",
    ),
    "resnet-50": CatalogEntry(
        "microsoft/resnet-50", "34c2154c194f829b11125337b98c8f5f9965ff19", "model.safetensors", None,
        102, "Apache-2.0", "medium", "ResNet-50, learned from the classes of ImageNet",
    ),
}  # fmt: skip
