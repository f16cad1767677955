"""Settings as frozen dataclasses, checked when they are built.

These classes are the one source of the command-line flags, of the configuration saved with a run and of what the
trainer reads. A wrong value is a ``ValueError`` that names the field and the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from .checks import MOST, check
from .stage import Stage

SearchName = Literal["evolution", "relaxed"]
Precision = Literal["float32", "tf32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Views:
    """How an image becomes two views that share no pixel (paper 3.1, appendix B)."""

    fill: bool = False
    """Fill each hidden pixel with the mean of its visible neighbors, which belong to the same view."""
    upsample: int = 1
    """Enlarge each view this many times after masking and restore its brightness (USPS in the paper: 2)."""
    background: Literal["kept", "removed"] = "kept"
    """removed: a view is what differs from its own background (the median of its rim), from -1 to 1. Only views that are
    filled have one."""

    @property
    def signed(self) -> bool:
        """Whether values are differences from the background and not brightnesses."""
        return self.fill and self.background == "removed"

    def __post_init__(self) -> None:
        check(1 <= self.upsample <= 8, "views.upsample", self.upsample, "a whole number from 1 to 8")


@dataclass(frozen=True)
class Augmentation:
    """Random changes to one view (paper 4.1, table 4). Sizes are pixels of the view that enters the network."""

    rotation: float = 0.0
    """Largest angle in degrees; drawn uniformly from [-rotation, rotation]."""
    rotation_prob: float = 1.0
    crop: int = 0
    """The crop's edge is drawn from {side - crop, ..., side}."""
    crop_prob: float = 1.0
    zoom_out: tuple[int, int] = (0, 0)
    """Smallest and largest number of black pixels (where the background is removed: of background) added to a random axis."""
    zoom_out_prob: float = 0.0
    flip_prob: float = 0.0
    """Probability of a left-right mirror image."""
    brightness: float = 0.0
    """Pixel values are multiplied by a factor from [1 - brightness, 1 + brightness]."""
    contrast: float = 0.0
    """The same for differences from the view's mean."""
    saturation: float = 0.0
    """Color images only."""
    sampling: Literal["nearest", "bilinear"] = "nearest"
    outside: Literal["black", "image", "background"] = "black"
    """What shows beyond the crop: black, as in two steps, or the image, and beyond it black or the image's background."""

    def __post_init__(self) -> None:
        check(0 <= self.rotation <= 180, "augmentation.rotation", self.rotation, "from 0 to 180 degrees")
        for name in ("rotation_prob", "crop_prob", "zoom_out_prob", "flip_prob"):
            value = getattr(self, name)
            check(0 <= value <= 1, f"augmentation.{name}", value, "a probability from 0 to 1")
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            check(0 <= value < 1, f"augmentation.{name}", value, "at least 0 and below 1")
        check(self.crop >= 0, "augmentation.crop", self.crop, "0 or more pixels")
        low, high = zoom_out = self.zoom_out
        check(0 <= low <= high <= MOST, "augmentation.zoom_out", zoom_out, "two numbers of pixels, the smaller first")


@dataclass(frozen=True)
class Network:
    """ResNet-9 (paper 4.1)."""

    clusters: int = 64
    """Outputs per head: the upper bound K on the number of clusters."""
    width: int = 8
    """Channels of the first convolution; the others are multiples of it."""
    folded: bool = False
    """Fold each 2x2 block of pixels into the channels and begin at half the size: a third less time."""
    boundary: Literal["black", "background"] = "black"
    """What the first convolution sees beyond the image: black, or the image's own background (median of its rim)."""
    alive: int = 10
    """A random start is drawn again until this many outputs win some view (evolution only)."""

    def __post_init__(self) -> None:
        check(2 <= self.clusters <= 4096, "network.clusters", self.clusters, "from 2 to 4096")
        check(1 <= self.width <= 512, "network.width", self.width, "from 1 to 512")
        check(self.alive >= 1, "network.alive", self.alive, "at least 1")


@dataclass(frozen=True)
class Evolution:
    """The evolution strategy (paper 3.3, eq. 8)."""

    population: int = 32
    sigma: float = 0.02
    learning_rate: float = 0.005
    weight_decay: float = 0.005
    batch: int = 3000
    """Images per update (N). An epoch is cut into near-equal batches of at most this many."""
    ramp_start: float = 0.01
    """Fraction of the parameters perturbed in the first epoch."""
    ramp_epochs: int = 100
    """Epochs over which that fraction grows linearly to 1."""
    score: str = "surprise"
    """What is maximized: surprise or orderliness (from Python: any function of two label sequences)."""
    chunk: int = 0
    """Views that pass through the first layer together, more in later ones: a matter of speed and memory only; 0 takes
    what a CPU's cache or a GPU's free memory holds."""

    def __post_init__(self) -> None:
        check(
            self.population >= 2 and self.population % 2 == 0,
            "evolution.population",
            self.population,
            "an even number of at least 2, because members come in mirrored pairs",
        )
        check(0 < self.sigma < math.inf, "evolution.sigma", self.sigma, "above 0")
        check(0 <= self.learning_rate < math.inf, "evolution.learning_rate", self.learning_rate, "at least 0")
        check(0 <= self.weight_decay < math.inf, "evolution.weight_decay", self.weight_decay, "at least 0")
        check(self.batch >= 2, "evolution.batch", self.batch, "at least 2 images")
        check(0 < self.ramp_start <= 1, "evolution.ramp_start", self.ramp_start, "above 0 and at most 1")
        check(self.ramp_epochs >= 1, "evolution.ramp_epochs", self.ramp_epochs, "at least 1")
        check(bool(self.score), "evolution.score", self.score, "the name of a score")
        check(self.chunk >= 0, "evolution.chunk", self.chunk, "at least 1 view, or 0 for what suits the device")


@dataclass(frozen=True)
class Relaxed:
    """Gradient ascent on the surprise score with a softmax in place of the argmax."""

    temperature: float = 0.025
    """The resolution knob: lower finds finer clusters."""
    refine_temperature: float = 0.025
    """The same once clusters are merged. No more are to be found then, and with a higher one images deep inside a
    cluster go on teaching where its boundaries are."""
    heads: int = 8
    """Independent linear heads on one backbone."""
    calibrate: bool = True
    """Start the heads as random directions of the whitened features, so that many outputs win somewhere."""
    batch: int = 250
    learning_rate: float = 2e-3
    refine_learning_rate: float = 1e-3
    """The same, once clusters are merged."""
    neighbors: int = 5
    """View j may come from one of this many images that look most alike."""
    neighbor_share: float = 0.5
    """Share of the pairs in which it does."""
    diversity: float = 1.0
    """Weight of the pull towards more clusters while it lasts."""
    diversity_floor: tuple[float, float] = (10.0, 24.0)
    """Effective number of clusters (exp of the entropy) below which a head is pulled apart, of the first and of the
    last head."""
    diversity_until: float = 0.3
    """Fraction of the search after which the pull is gone."""

    def __post_init__(self) -> None:
        check(0 < self.temperature < math.inf, "relaxed.temperature", self.temperature, "above 0")
        check(0 < (warm := self.refine_temperature) < math.inf, "relaxed.refine_temperature", warm, "above 0")
        check(1 <= self.heads <= 256, "relaxed.heads", self.heads, "from 1 to 256")
        check(self.batch >= 2, "relaxed.batch", self.batch, "at least 2 images")
        check(0 < self.learning_rate < math.inf, "relaxed.learning_rate", self.learning_rate, "above 0")
        check(0 < (rate := self.refine_learning_rate) < math.inf, "relaxed.refine_learning_rate", rate, "above 0")
        check(self.neighbors >= 1, "relaxed.neighbors", self.neighbors, "at least 1")
        check(0 <= self.neighbor_share <= 1, "relaxed.neighbor_share", self.neighbor_share, "from 0 to 1")
        check(0 <= self.diversity < math.inf, "relaxed.diversity", self.diversity, "at least 0")
        low, high = floor = self.diversity_floor
        check(1 <= low <= high < math.inf, "relaxed.diversity_floor", floor, "two numbers from 1, the smaller first")
        check(0 < self.diversity_until <= 1, "relaxed.diversity_until", self.diversity_until, "above 0 and at most 1")


@dataclass(frozen=True)
class Merge:
    """Which boundaries between clusters survive a wider augmentation than the training one."""

    rotation: float = 15.0
    """Degrees by which the wider augmentation rotates further, always."""
    crop: float = 1 / 7
    """Share of the side by which it crops further."""
    augmented_pairs: int = 4_000
    """Pairs of such views of one image that try the boundaries."""
    neighbor_pairs: int = 32_000
    """Pairs of views of two images that look alike that try the boundaries."""
    drop: float = 0.075
    """The trees are cut where the phi coefficient of the weakest boundary falls by this much."""
    clusters: int = 0
    """Cut at this many clusters instead; 0 lets the boundaries say. More than there are means no merging."""
    smallest: float = 0.005
    """Clusters with a smaller share of the views are dissolved."""

    def __post_init__(self) -> None:
        check(0 <= self.rotation <= 180, "merge.rotation", self.rotation, "from 0 to 180 degrees")
        check(0 <= self.crop < 1, "merge.crop", self.crop, "at least 0 and below 1")
        check(self.augmented_pairs >= 0, "merge.augmented_pairs", self.augmented_pairs, "at least 0")
        check(self.neighbor_pairs >= 1, "merge.neighbor_pairs", self.neighbor_pairs, "at least 1")
        check(0 <= self.drop <= 1, "merge.drop", self.drop, "from 0 to 1")
        check(self.clusters >= 0, "merge.clusters", self.clusters, "at least 0")
        check(0 <= self.smallest < 1, "merge.smallest", self.smallest, "at least 0 and below 1")


@dataclass(frozen=True)
class Consolidation:
    """Gradient training on the surprising clusters as labels (paper 3.3, algorithm 1)."""

    tau: float = 0.005
    """A cluster is surprising when it over-matches and its D_k is at least this."""
    learning_rate: float = 1e-3
    batch: int = 128
    logit_scale: float = 1.0
    """Factor on the l2-normalized logits before the cross-entropy."""

    def __post_init__(self) -> None:
        check(0 <= self.tau < math.inf, "consolidation.tau", self.tau, "at least 0")
        check(0 < self.learning_rate < math.inf, "consolidation.learning_rate", self.learning_rate, "above 0")
        check(self.batch >= 2, "consolidation.batch", self.batch, "at least 2 images")
        check(0 < self.logit_scale < math.inf, "consolidation.logit_scale", self.logit_scale, "above 0")


@dataclass(frozen=True)
class Config:
    """Everything that determines a run, given the images."""

    seed: int = 0
    threads: int = 0
    """CPU threads; 0 takes what the machine offers."""
    processes: int = 1
    """Processes on this machine that share the work and the threads."""
    device: str = "auto"
    """Where to compute: cuda, cuda:1, mps, cpu; auto takes the first of cuda, mps and cpu that is there."""
    starts: int = 1
    """Random starts, one after another; of what comes of them the best balanced clusters are taken."""
    precision: Precision = "float32"
    """Numbers in training: float32; tf32 or float16 (on CUDA) and bfloat16 (on CUDA or the CPU) are faster where
    the hardware has them. Images are always labeled in float32."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints; 0 writes one after every step."""
    schedule: tuple[Stage, ...] = (Stage("explore", "evolution", 1),)
    """Stages, each name=kind:epochs or name=kind:epochs:passes@every."""
    views: Views = field(default_factory=Views)
    augmentation: Augmentation = field(default_factory=Augmentation)
    network: Network = field(default_factory=Network)
    evolution: Evolution = field(default_factory=Evolution)
    relaxed: Relaxed = field(default_factory=Relaxed)
    merge: Merge = field(default_factory=Merge)
    consolidation: Consolidation = field(default_factory=Consolidation)

    def __post_init__(self) -> None:
        check(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2**63 - 1", most=2**63)
        check(0 <= self.threads <= 1024, "threads", self.threads, "from 0 to 1024")
        check(1 <= self.processes <= 1024, "processes", self.processes, "from 1 to 1024")
        check(1 <= self.starts <= 1000, "starts", self.starts, "from 1 to 1000")
        known = get_args(Precision)
        check(self.precision in known, "precision", self.precision, "one of " + ", ".join(known))
        check(0 <= self.checkpoint_seconds < math.inf, "checkpoint_seconds", self.checkpoint_seconds, "at least 0")
        check(len(self.schedule) >= 1, "schedule", self.schedule, "at least one stage")
