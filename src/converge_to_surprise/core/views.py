"""The chessboard split: two views of an image that share no pixel (paper 3.1, appendix B)."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from ..config import Views


class Shard(NamedTuple):
    """The rows of a batch that one process takes when several processes split it.

    Random numbers are drawn for the whole batch, so an image gets the same views in whichever process they are made.
    """

    rows: range
    whole: int
    """Rows of the whole batch."""

    def of(self, drawn: Tensor) -> Tensor:
        """The rows of this shard, from values for one whole batch or for several concatenated ones."""
        batches = drawn.reshape(-1, self.whole, *drawn.shape[1:])
        return batches[:, self.rows.start : self.rows.stop].flatten(0, 1)


def to_float(images: Tensor) -> Tensor:
    """uint8 images as float32 in [0, 1]; stored features as float32."""
    values = images.contiguous().to(torch.float32)
    return values.div_(255) if images.dtype == torch.uint8 else values


def chessboard(height: int, width: int, device: torch.device | None = None) -> Tensor:
    """The white squares: true where (h + w) mod 2 = 0. (H, W)"""
    rows = torch.arange(height, device=device)[:, None]
    columns = torch.arange(width, device=device)[None, :]
    return (rows + columns) % 2 == 0


def split_masks(count: int, height: int, width: int, generator: torch.Generator | None) -> Tensor:
    """The mask of view i for each image, (B, 1, H, W), as booleans; view j has the complement.

    With a generator a fair coin per image decides which color view i gets; without one it always gets white.
    """
    white = chessboard(height, width).expand(count, 1, height, width)
    if generator is None:
        return white
    coin = torch.rand(count, 1, 1, 1, generator=generator) < 0.5
    return white ^ coin


def fill_masked(view: Tensor, mask: Tensor) -> Tensor:
    """Replace each masked pixel by the mean of its visible neighbors above, below, left and right.

    All four neighbors of a masked pixel have the other color, so they belong to the same view: the two filled views
    still depend on disjoint sets of pixels.
    """
    total = torch.zeros_like(view)
    visible = torch.zeros_like(mask)
    for target, source in (
        ((slice(1, None), slice(None)), (slice(None, -1), slice(None))),
        ((slice(None, -1), slice(None)), (slice(1, None), slice(None))),
        ((slice(None), slice(1, None)), (slice(None), slice(None, -1))),
        ((slice(None), slice(None, -1)), (slice(None), slice(1, None))),
    ):
        total[(..., *target)] += view[(..., *source)]
        visible[(..., *target)] += mask[(..., *source)]
    return torch.where(mask > 0, view, total / visible.clamp(min=1))


def upsample(view: Tensor, image: Tensor, factor: int, signed: bool = False) -> Tensor:
    """Enlarge a masked view bilinearly, then rescale it so that its 99th percentile is that of the image.

    Masking and interpolation darken a view; the rescaling restores its brightness. For signed values the percentile is
    that of the absolute values.
    """
    large = F.interpolate(view, scale_factor=float(factor), mode="bilinear", align_corners=False)
    wanted, found = (percentile99(values.abs() if signed else values) for values in (image, large))
    return (large * (wanted / found.clamp(min=1e-3))[:, None, None, None]).clamp_(-1 if signed else 0, 1)


def percentile99(images: Tensor) -> Tensor:
    """The 99th percentile (lower) of the values of each image. (B,)"""
    values = images.flatten(1)
    rank = max(1, int(0.99 * values.shape[1]))
    # topk instead of kthvalue: few values are needed, and ONNX has no kthvalue.
    return values.topk(values.shape[1] - rank + 1, dim=1).values[:, -1]


def background(images: Tensor) -> Tensor:
    """The background color of each image: the median of its outermost pixels. (B, C, 1, 1)

    A median, because an object that touches the edge must not count: with a mean of the middle half, clusters were
    split by position.
    """
    rim = torch.cat([images[:, :, 0], images[:, :, -1], images[..., 0], images[..., -1]], 2)
    return rim.topk(rim.shape[2] // 2 + 1, dim=2).values[..., -2:].mean(2)[..., None, None]


def draw_stored(items: Tensor, count: int, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """For each of ``count`` items (B, sides, copies, D): two different sides, and a copy of each. (count,) each

    Copy 0 is not augmented and is drawn only if there is no other.
    """
    sides, copies = items.shape[1:3]
    drawn = torch.rand(4, count, generator=generator)
    side_i = (drawn[0] * sides).long()
    side_j = (side_i + 1 + (drawn[1] * (sides - 1)).long()) % sides
    copy_i, copy_j = (min(1, copies - 1) + (drawn[2:] * max(1, copies - 1)).long()).unbind(0)
    return side_i, copy_i, side_j, copy_j


def pick_views(
    items: Tensor, generator: torch.Generator | None, partners: Tensor | None, shard: Shard | None
) -> tuple[Tensor, Tensor]:
    """Two views of items whose views are stored as features (B, sides, copies, D); see ``make_views``. (B, D) each

    Without a generator view i is the mean of every other side from the first on, view j that of the rest. An item with
    a single side has both views from it: only its neighbors make pairs that differ.
    """
    others = items if partners is None else partners
    if generator is None:
        return items[:, 0::2, 0].mean(1), others[:, min(1, items.shape[1] - 1) :: 2, 0].mean(1)
    drawn = draw_stored(items, len(items) if shard is None else shard.whole, generator)
    side_i, copy_i, side_j, copy_j = (values if shard is None else shard.of(values) for values in drawn)
    rows = torch.arange(len(items))
    return items[rows, side_i, copy_i], others[rows, side_j, copy_j]


def make_views(
    images: Tensor,
    settings: Views,
    generator: torch.Generator | None = None,
    partners: Tensor | None = None,
    shard: Shard | None = None,
) -> tuple[Tensor, Tensor]:
    """Both views of float images (B, C, H, W): split, and as configured filled, without background, enlarged.

    With a generator the colors are drawn (training); without one view i is white (evaluation). With ``partners``
    (B, C, H, W), view j is that of each image's partner. The images can be a ``shard`` of a larger batch. Views that
    are stored as features are picked instead of made.
    """
    if settings.stored:
        return pick_views(images, generator, partners, shard)
    count, _, height, width = images.shape
    masks = split_masks(count if shard is None else shard.whole, height, width, generator)
    mask_i = (masks if shard is None else shard.of(masks)).to(images.device, images.dtype)

    def one_view(source: Tensor, mask: Tensor) -> Tensor:
        view = source * mask
        if settings.fill_masked:
            view = fill_masked(view, mask)
        if settings.signed:  # computed from its own pixels: the views share none
            view = view - background(view)
            source = view
        return upsample(view, source, settings.upsample, settings.signed) if settings.upsample > 1 else view

    return one_view(images, mask_i), one_view(images if partners is None else partners, 1 - mask_i)
