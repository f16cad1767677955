"""Models of the hub from safetensors: features equal those of transformers itself; only plain data reaches it."""

from __future__ import annotations

import copy
import hashlib
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from support import hub

from converge_to_surprise.model.pretrained import PreprocessFlags, open_backbone
from converge_to_surprise.model.pretrained.identity import Preprocess
from converge_to_surprise.model.pretrained.transformers_backbone import KINDS

STAGES = {"hidden_sizes": [8, 16], "depths": [1, 1], "embedding_size": 8}
FOUR = {"hidden_sizes": [8, 8, 16, 16], "depths": [1, 1, 1, 1]}
WINDOWS = {"embed_dim": 8, "depths": [1, 1], "num_heads": [1, 2], "image_size": 32, "patch_size": 4, "window_size": 4}
NARROW = {"depth_multiplier": 0.25}
SETTINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(KINDS, hub.SMALL),
    **dict.fromkeys(("convnext", "convnextv2", "dinov3_convnext"), FOUR),
    **dict.fromkeys(("swin", "swinv2"), WINDOWS),
    **dict.fromkeys(("mobilenet_v1", "mobilenet_v2"), NARROW),
    "resnet": STAGES,
    "regnet": {**STAGES, "groups_width": 8},
}
IMAGES = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def normalized(images: torch.Tensor) -> torch.Tensor:
    mean, std = (torch.tensor(hub.PREPROCESSOR[f"image_{name}"]).view(1, 3, 1, 1) for name in ("mean", "std"))
    return (images - mean) / std


@pytest.fixture(scope="module")
def vit() -> Any:
    return hub.build("vit", **hub.SMALL)


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_gives_the_features_of_its_own_class(kind: str, tmp_path: Path) -> None:
    model = hub.build(kind, **SETTINGS[kind])
    folder = hub.save(model, tmp_path / "model")
    backbone = open_backbone(str(folder))
    with torch.no_grad():
        found = model(pixel_values=normalized(IMAGES))
    pooled = getattr(found, "pooler_output", None)
    if pooled is None:
        tokens = found.last_hidden_state
        pooled = tokens[:, -16:].mean(1)  # the grid of 4 x 4 patches
    torch.testing.assert_close(backbone(IMAGES), pooled.flatten(1), rtol=1e-4, atol=1e-5)
    assert backbone.identity.preprocess == Preprocess(32, (0.5, 0.5, 0.5), (0.5, 0.25, 0.5), "bicubic")
    assert not list(backbone.parameters())


def test_the_checksum_is_that_of_both_files(vit: Any, tmp_path: Path) -> None:
    folder = hub.save(vit, tmp_path)
    names = ["config.json", "model.safetensors"]
    sums = subprocess.run(["sha256sum", *names], cwd=folder, capture_output=True, check=True).stdout
    found = open_backbone(str(folder)).identity.sha256
    assert found == hashlib.sha256(sums).hexdigest()
    assert open_backbone(str(folder), expected_sha256=found).identity.sha256 == found
    with pytest.raises(ValueError, match="fitted with a backbone that has the sha256 ababab"):
        open_backbone(str(folder), expected_sha256="ab" * 32)


def test_without_a_trained_pooler_the_patches_are_averaged(vit: Any, tmp_path: Path) -> None:
    """As in checkpoints of classifiers, whose weights have a prefix and no pooler."""
    backbone = open_backbone(str(hub.save(vit, tmp_path, prefix="vit.", without=("pooler",))))
    with torch.no_grad():
        tokens = vit(pixel_values=normalized(IMAGES)).last_hidden_state
    torch.testing.assert_close(backbone(IMAGES), tokens[:, 1:].mean(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_of_images_and_text_only_the_images_are_used(kind: str, tmp_path: Path) -> None:
    text = {**hub.SMALL, "vocab_size": 50, "max_position_embeddings": 8}
    shared = {"projection_dim": 12} if kind == "clip" else {}
    model: Any = hub.build(kind, text_config=text, vision_config={**hub.SMALL, **shared}, **shared)
    backbone = open_backbone(str(hub.save(model, tmp_path)))
    with torch.no_grad():
        found = model.get_image_features(pixel_values=normalized(IMAGES))
    wanted = found if isinstance(found, torch.Tensor) else found.pooler_output
    torch.testing.assert_close(backbone(IMAGES), wanted, rtol=1e-4, atol=1e-5)


def test_half_precision_is_widened(vit: Any, tmp_path: Path) -> None:
    folder = hub.save(vit, tmp_path)
    save_file({name: value.half() for name, value in vit.state_dict().items()}, folder / "model.safetensors")
    found = open_backbone(str(folder))(IMAGES)
    rounded = copy.deepcopy(vit).half().float()
    with torch.no_grad():
        wanted = rounded(pixel_values=normalized(IMAGES)).pooler_output
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


def test_shards_are_joined(vit: Any, tmp_path: Path) -> None:
    whole = open_backbone(str(hub.save(vit, tmp_path / "whole")))
    folder = hub.save(vit, tmp_path / "parts")
    (folder / "model.safetensors").unlink()
    tensors = list(vit.state_dict().items())
    for part, some in enumerate((tensors[:9], tensors[9:]), start=1):
        save_file(dict(some), folder / f"model-0000{part}-of-00002.safetensors")
    (folder / "model.safetensors.index.json").write_text("{}")
    assert torch.equal(open_backbone(str(folder))(IMAGES), whole(IMAGES))


def test_other_sizes_are_resized_where_the_model_needs_it(vit: Any, tmp_path: Path) -> None:
    backbone = open_backbone(str(hub.save(vit, tmp_path)))
    small = torch.rand(2, 3, 16, 16)
    wanted = torch.nn.functional.interpolate(small, (32, 32), mode="bicubic", antialias=True).clamp(0, 1)
    assert torch.equal(backbone(small), backbone(wanted))
    flags = PreprocessFlags(mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    plain = open_backbone(str(tmp_path), flags)
    torch.testing.assert_close(plain(normalized(IMAGES)), backbone(IMAGES))


# Hostile and damaged files


def refused(folder: Path) -> str:
    with pytest.raises(ValueError, match=str(folder)) as caught:
        open_backbone(str(folder))
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "gpt2"}, "its model_type is 'gpt2'"),
        ({"model_type": ["vit"]}, "model_type"),
        ({"quantization_config": {"quant_method": "bitsandbytes"}}, "quantized"),
        ({"num_hidden_layers": 10**9}, "num_hidden_layers is 1000000000"),
        ({"hidden_size": 10**9}, "hidden_size is 1000000000"),
        ({"hidden_size": 2**19}, "config.json"),
        ({"hidden_size": 64}, "config.json"),
        ({"num_hidden_layers": 3}, "do not fit its config.json"),
        ({"hidden_act": "os.system"}, "os.system"),
        ({"patch_size": 0}, ""),
        ({"image_size": [[[[]]]]}, ""),
        ({"num_channels": 1}, ""),
    ],
)
def test_wrong_configurations_are_refused(vit: Any, tmp_path: Path, change: dict[str, Any], message: str) -> None:
    folder = hub.save(vit, tmp_path)
    held = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(held | change))
    assert message in refused(folder)


def test_code_and_other_files_are_ignored(vit: Any, tmp_path: Path) -> None:
    folder = hub.save(vit, tmp_path)
    wanted = open_backbone(str(folder))(IMAGES)
    held = json.loads((folder / "config.json").read_text())
    held |= {
        "auto_map": {"AutoModel": "evil.Model", "AutoConfig": "evil.Config"},
        "_attn_implementation": "evil/kernel", "attn_implementation": "evil/kernel", "_name_or_path": "/etc",
        "transformers_weights": "../evil.safetensors", "torch_dtype": "float16", "dtype": "float16",
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(held))
    (folder / "evil.py").write_text("raise SystemExit('it ran')\n")
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle")
    (folder / "adapter_config.json").write_text('{"base_model_name_or_path": "evil/base", "peft_type": "LORA"}')
    assert torch.equal(open_backbone(str(folder))(IMAGES), wanted)


def test_pickles_alone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "vit"}')
    (tmp_path / "pytorch_model.bin").write_bytes(b"\x80\x04.")
    assert "neither an ONNX file nor a config.json with safetensors" in refused(tmp_path)


def test_damaged_weights_are_refused(vit: Any, tmp_path: Path) -> None:
    folder = hub.save(vit, tmp_path)
    content = (folder / "model.safetensors").read_bytes()
    for damaged in (b"", content[:100], content[:-1], b"\xff" * 8 + content[8:], content[:8] + b"{" * 500):
        (folder / "model.safetensors").write_bytes(damaged)
        refused(folder)


def test_links_to_elsewhere_are_refused(vit: Any, tmp_path: Path) -> None:
    folder = hub.save(vit, tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "elsewhere")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    assert "outside of its folder" in refused(folder)


def test_what_is_missing_is_named(vit: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hub.save(vit, tmp_path)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "need transformers: pip install 'converge-to-surprise[photos]'" in refused(tmp_path)
