"""Settings as frozen dataclasses, checked when they are built.

These classes are the single source of the command-line flags, of the configuration saved with a run and of what the
trainer reads. A wrong value is a ``ValueError`` that names the field and the value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, get_args

from .checks import MOST, check
from .stage import Stage

SearchName = Literal["evolution", "guided", "relaxed"]
PictureKind = Literal["glyph", "gray", "object", "scene"]
KindOption = Literal["auto", "glyph", "gray", "object", "scene"]
MAX_OUTPUTS = 4096
"""Largest number of outputs of a head, also of one that has grown."""
Precision = Literal["auto", "float32", "tf32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Views:
    """How an image becomes two views that share no pixel (paper 3.1, appendix B)."""

    fill_masked: bool = False
    """Fill each masked pixel with the mean of its visible neighbors, which belong to the same view."""
    upsample: int = 1
    """Enlarge each view by this factor after masking and restore its brightness (USPS in the paper: 2)."""
    background: Literal["keep", "remove"] = "keep"
    """remove: subtract each view's background, the median of its outermost pixels; values then lie in [-1, 1]. Has an
    effect only with fill_masked."""
    edges: bool = False
    """Give the network the edges of each view instead of its brightness and color, bright on black, in proportion to
    the edges around them: light and color cast then do not count. Needs fill_masked."""
    stored: bool = False
    """The images are stored feature vectors of their views, made once by a pre-trained backbone (set by --backbone and
    --input embeddings)."""

    @property
    def signed(self) -> bool:
        """Whether values are differences from the background instead of brightness."""
        return self.fill_masked and self.background == "remove"

    def channels(self, channels: int) -> int:
        """Channels of the views of images with so many channels."""
        return 1 if self.edges else channels

    def __post_init__(self) -> None:
        fits = not self.edges or (self.fill_masked and self.background == "keep")
        check(fits, "views.edges", self.edges, "false without views.fill_masked, and with views.background remove")
        check(1 <= self.upsample <= 8, "views.upsample", self.upsample, "a whole number from 1 to 8")


@dataclass(frozen=True)
class Augmentation:
    """Random changes to one view (paper 4.1, table 4). Sizes are pixels of the view that enters the network."""

    rotation: float = 0.0
    """Largest angle in degrees; drawn uniformly from [-rotation, rotation]."""
    rotation_prob: float = 1.0
    """Probability of a rotation."""
    crop: int = 0
    """The crop's edge is drawn from {side - crop, ..., side}."""
    crop_area: float = 1.0
    """The crop keeps a fraction of the area drawn from [crop_area, 1], whatever the size of the view; 1: all of it."""
    crop_aspect: float = 1.0
    """Greatest factor by which a crop by area is wider or higher than the view."""
    crop_prob: float = 1.0
    """Probability of a crop."""
    zoom_out: tuple[int, int] = (0, 0)
    """Least and greatest number of padding pixels added to a random axis (black, or background if that is removed)."""
    zoom_out_prob: float = 0.0
    """Probability of such padding."""
    flip_prob: float = 0.0
    """Probability of a left-right mirror image."""
    brightness: float = 0.0
    """Pixel values are multiplied by a factor from [1 - brightness, 1 + brightness]."""
    contrast: float = 0.0
    """The same for differences from the view's mean."""
    saturation: float = 0.0
    """The same for differences from gray. Color images only."""
    hue: float = 0.0
    """Colors are turned by a fraction of the color circle drawn from [-hue, hue]; their brightness stays. Color images
    only."""
    gray_prob: float = 0.0
    """Probability that the color is removed. Color images only."""
    blur: float = 0.0
    """Largest standard deviation of a Gaussian blur in pixels; drawn uniformly from [0, blur]."""
    blur_prob: float = 1.0
    """Probability of a blur."""
    sampling: Literal["nearest", "bilinear"] = "nearest"
    """How pixels are interpolated in a rotated, cropped or padded view."""
    fill: Literal["black", "image", "background"] = "black"
    """What fills the area outside the crop. black: black. image: the rest of the image, and black beyond it.
    background: the rest of the image, and its background color beyond it."""

    def __post_init__(self) -> None:
        check(0 <= self.rotation <= 180, "augmentation.rotation", self.rotation, "from 0 to 180 degrees")
        for name in ("rotation_prob", "crop_prob", "zoom_out_prob", "flip_prob", "gray_prob", "blur_prob"):
            value = getattr(self, name)
            check(0 <= value <= 1, f"augmentation.{name}", value, "a probability from 0 to 1")
        for name in ("brightness", "contrast", "saturation"):
            value = getattr(self, name)
            check(0 <= value < 1, f"augmentation.{name}", value, "at least 0 and below 1")
        check(self.crop >= 0, "augmentation.crop", self.crop, "0 or more pixels")
        check(0.01 <= self.crop_area <= 1, "augmentation.crop_area", self.crop_area, "from 0.01 to 1")
        check(1 <= self.crop_aspect <= 4, "augmentation.crop_aspect", self.crop_aspect, "from 1 to 4")
        check(0 <= self.hue <= 0.5, "augmentation.hue", self.hue, "from 0 to 0.5")
        check(0 <= self.blur <= 16, "augmentation.blur", self.blur, "from 0 to 16 pixels")
        low, high = zoom_out = self.zoom_out
        check(0 <= low <= high <= MOST, "augmentation.zoom_out", zoom_out, "two numbers of pixels, the smaller first")


@dataclass(frozen=True)
class Network:
    """ResNet-9 (paper 4.1), a hidden layer on the pixels of small images, or heads on stored features."""

    width: int = 8
    """Channels of the first convolution; the other layers have multiples of it."""
    space_to_depth: bool = False
    """Rearrange each 2x2 block of pixels into channels and start at half the resolution: a third less time."""
    padding: Literal["black", "background"] = "black"
    """How the first convolution pads the image: with black, or with the image's background color."""
    min_active_outputs: int = 10
    """Evolution only: draw the random network again until this many outputs win at least one view."""
    inputs: int = 0
    """Stored features per view (set by --backbone and --input embeddings); 0: the network takes pixels."""
    hidden: int = 0
    """Units of a hidden layer between stored features or pixels and heads; 0: heads are linear in the features."""
    pixels: int = 0
    """Values of a view that a hidden layer takes in place of ResNet-9 (set by the fast preset for evolution on small
    images); 0: ResNet-9."""

    @property
    def convolutional(self) -> bool:
        """Whether it is ResNet-9."""
        return not (self.inputs or self.pixels)

    def __post_init__(self) -> None:
        check(1 <= self.width <= 512, "network.width", self.width, "from 1 to 512")
        check(self.min_active_outputs >= 1, "network.min_active_outputs", self.min_active_outputs, "at least 1")
        check(0 <= self.inputs <= 65_536, "network.inputs", self.inputs, "from 0 to 65536")
        check(0 <= self.hidden <= 65_536, "network.hidden", self.hidden, "from 0 to 65536")
        check(0 <= self.pixels <= 65_536, "network.pixels", self.pixels, "from 0 to 65536")
        check(not self.pixels or self.hidden > 0, "network.hidden", self.hidden, "at least 1 with network.pixels")


@dataclass(frozen=True)
class Evolution:
    """The evolution strategy (paper 3.3, eq. 8)."""

    population: int = 32
    """Members per update (m), in mirrored pairs."""
    sigma: float = 0.02
    """Standard deviation of the noise that makes a member."""
    learning_rate: float = 0.005
    """Step size of an update (η)."""
    weight_decay: float = 0.005
    """Fraction of the perturbed parameters, times the learning rate, that an update removes (λ)."""
    batch_size: int = 3000
    """Images per update (N). An epoch is split into nearly equal batches of at most this many."""
    ramp_start: float = 0.01
    """Fraction of the parameters perturbed in the first epoch."""
    ramp_epochs: int = 100
    """Epochs over which that fraction grows linearly to 1."""
    score: str = "surprise"
    """Score to maximize: surprise or orderliness (from Python: any function of two label sequences)."""
    neighbor_prob: float = 0.0
    """Probability that view j comes from a neighbor of the image; above 0 only for embeddings with a single view."""
    chunk_size: int = 0
    """Views that pass through the first layer at once; affects speed and memory only. 0: what fits the CPU's cache or
    half of the GPU's memory."""

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
        check(self.batch_size >= 2, "evolution.batch_size", self.batch_size, "at least 2 images")
        check(0 < self.ramp_start <= 1, "evolution.ramp_start", self.ramp_start, "above 0 and at most 1")
        check(self.ramp_epochs >= 1, "evolution.ramp_epochs", self.ramp_epochs, "at least 1")
        check(bool(self.score), "evolution.score", self.score, "the name of a score")
        check(0 <= self.neighbor_prob <= 1, "evolution.neighbor_prob", self.neighbor_prob, "a probability from 0 to 1")
        check(self.chunk_size >= 0, "evolution.chunk_size", self.chunk_size, "at least 1 view, or 0 for automatic")


@dataclass(frozen=True)
class Guided:
    """Guided evolution: the noise of the evolution strategy lies partly in the span of recent gradients of the relaxed
    surprise and of past updates. Everything else is as set for evolution."""

    share: float = 0.5
    """Fraction of the noise's variance that lies in the subspace; 0: plain evolution."""
    gradients: int = 4
    """Recent gradients that span the subspace."""
    updates: int = 4
    """Past updates that span the subspace."""
    temperature: float = 0.1
    """Softmax temperature of the relaxed surprise."""
    batch_size: int = 250
    """Images of each update's batch on which the gradient is computed."""

    def __post_init__(self) -> None:
        check(0 <= self.share < 1, "guided.share", self.share, "at least 0 and below 1")
        check(0 <= self.gradients <= 256, "guided.gradients", self.gradients, "from 0 to 256")
        check(0 <= self.updates <= 256, "guided.updates", self.updates, "from 0 to 256")
        check(0 < self.temperature < math.inf, "guided.temperature", self.temperature, "above 0")
        check(self.batch_size >= 2, "guided.batch_size", self.batch_size, "at least 2 images")


@dataclass(frozen=True)
class Relaxed:
    """Gradient ascent on the surprise score with a softmax in place of the argmax."""

    temperature: float = 0.025
    """Softmax temperature during the search: lower values find finer clusters."""
    refine_temperature: float = 0.025
    """Softmax temperature after merging. At a higher temperature images far from a boundary still receive gradient."""
    heads: int = 8
    """Independent linear heads on one shared backbone."""
    random_heads: int = 0
    """Further heads that start from random directions and maximize the surprise from the first step, beside heads that
    start from the neighbor graph. Where neighbors mislead, they do better; the kind of heads with more evidence is
    selected."""
    calibrate: bool = True
    """Initialize the heads as random directions of the whitened features, so that many outputs are active."""
    batch_size: int = 250
    """Images per step."""
    learning_rate: float = 2e-3
    """Learning rate of Adam during the search."""
    refine_learning_rate: float = 1e-3
    """Learning rate after merging."""
    neighbors: int = 5
    """View j may come from one of this many nearest neighbors of the image: those with similar edges, or after merging
    with similar learned features."""
    neighbor_prob: float = 0.5
    """Probability that view j comes from a neighbor."""
    graph_neighbors: int = 15
    """Links of each image in the neighbor graph whose clusterings the heads imitate in a graph stage."""
    resolutions: tuple[float, float] = (0.5, 8.0)
    """Resolution of the clustering of the neighbor graph from which the first and the last head start; the others lie
    between them in equal ratios. A higher resolution gives more clusters."""
    grow: bool = False
    """Add outputs if the finest of these clusterings has more clusters than max_clusters."""
    diversity: float = 1.0
    """Weight of the penalty on heads with too few clusters. Heads that start from the neighbor graph have none; those
    in random_heads must have as many as the graph, until its last clustering."""
    diversity_floor: tuple[float, float] = (10.0, 24.0)
    """Effective number of clusters (exp of the entropy) below which a head is penalized: of the first and of the last
    head."""
    diversity_until: float = 0.3
    """Fraction of the search after which the penalty ends."""

    def __post_init__(self) -> None:
        check(0 < self.temperature < math.inf, "relaxed.temperature", self.temperature, "above 0")
        check(0 < (warm := self.refine_temperature) < math.inf, "relaxed.refine_temperature", warm, "above 0")
        check(1 <= self.heads <= 256, "relaxed.heads", self.heads, "from 1 to 256")
        check(0 <= self.random_heads <= 256, "relaxed.random_heads", self.random_heads, "from 0 to 256")
        check(self.batch_size >= 2, "relaxed.batch_size", self.batch_size, "at least 2 images")
        check(0 < self.learning_rate < math.inf, "relaxed.learning_rate", self.learning_rate, "above 0")
        check(0 < (rate := self.refine_learning_rate) < math.inf, "relaxed.refine_learning_rate", rate, "above 0")
        check(self.neighbors >= 1, "relaxed.neighbors", self.neighbors, "at least 1")
        check(0 <= self.neighbor_prob <= 1, "relaxed.neighbor_prob", self.neighbor_prob, "a probability from 0 to 1")
        check(self.graph_neighbors >= 1, "relaxed.graph_neighbors", self.graph_neighbors, "at least 1")
        low, high = spread = self.resolutions
        check(0 < low <= high < math.inf, "relaxed.resolutions", spread, "two numbers above 0, the smaller first")
        check(0 <= self.diversity < math.inf, "relaxed.diversity", self.diversity, "at least 0")
        low, high = floor = self.diversity_floor
        check(1 <= low <= high < math.inf, "relaxed.diversity_floor", floor, "two numbers from 1, the smaller first")
        check(0 < self.diversity_until <= 1, "relaxed.diversity_until", self.diversity_until, "above 0 and at most 1")


@dataclass(frozen=True)
class Merge:
    """Which boundaries between clusters hold: how clusters are merged, how their number is read from the data, and the
    stronger augmentation that tests sub-clusters."""

    rotation: float = 15.0
    """Degrees of rotation added to the training augmentation."""
    crop: float = 1 / 7
    """Fraction of the side added to the training crop."""
    number_by: Literal["splits", "agreement", "either"] = "splits"
    """How the number of clusters is read from the data. splits: the finest clustering whose splits hold.
    agreement: the clustering on which heads agree most and that tells most apart; for stored features, whose neighbors
    are too often of another kind to test a split. either: agreement if not even two clusters hold; for scenes."""
    min_cluster_fraction: float = 0.005
    """Clusters with a smaller fraction of the images are dissolved."""

    def __post_init__(self) -> None:
        check(0 <= self.rotation <= 180, "merge.rotation", self.rotation, "from 0 to 180 degrees")
        check(0 <= self.crop < 1, "merge.crop", self.crop, "at least 0 and below 1")
        least = self.min_cluster_fraction
        check(0 <= least < 1, "merge.min_cluster_fraction", least, "at least 0 and below 1")


@dataclass(frozen=True)
class Consolidation:
    """Gradient training on the surprising clusters as labels (paper 3.3, algorithm 1)."""

    tau: float = 0.005
    """A cluster is surprising when it over-matches and its D_k is at least this."""
    learning_rate: float = 1e-3
    """Learning rate of Adam."""
    batch_size: int = 128
    """Images per step."""
    logit_scale: float = 1.0
    """Factor on the l2-normalized logits before the cross-entropy."""

    def __post_init__(self) -> None:
        check(0 <= self.tau < math.inf, "consolidation.tau", self.tau, "at least 0")
        check(0 < self.learning_rate < math.inf, "consolidation.learning_rate", self.learning_rate, "above 0")
        check(self.batch_size >= 2, "consolidation.batch_size", self.batch_size, "at least 2 images")
        check(0 < self.logit_scale < math.inf, "consolidation.logit_scale", self.logit_scale, "above 0")


@dataclass(frozen=True)
class Config:
    """Everything that determines a run, given the images."""

    seed: int = 0
    """Seed of the random numbers. Results repeat with the same seed, version, device, precision and threads."""
    kind: KindOption = "auto"
    """What the pictures are, which decides the defaults of views, augmentation and search in the fast preset. glyph:
    gray objects on a plain background. gray: other gray pictures. object: colored objects on an uncluttered
    background. scene: photographs full of detail. auto: chosen from the pictures."""
    n_init: int = 1
    """Number of initializations; the one whose views tell most about each other is selected. On a CPU they share the
    threads and run side by side."""
    max_clusters: int = 64
    """Outputs per head: the upper bound K on the number of clusters."""
    n_clusters: int | None = None
    """Cut the merge tree at this many clusters; by default the number is read from the data."""
    rounds: int | Literal["auto"] = 0
    """Rounds of searching for sub-clusters within the clusters; auto: until a round finds nothing further."""
    threads: int = 0
    """CPU threads; 0: one for each CPU that the process may use. The same seed gives other clusters with another
    number of threads."""
    processes: int = 1
    """Processes on this machine that share the work and the threads."""
    device: str = "auto"
    """Device to compute on: cuda, cuda:1, mps or cpu; auto: the first of cuda, mps and cpu that is available."""
    precision: Precision = "float32"
    """Number format in training: float32; tf32 or float16 (CUDA), bfloat16 (CUDA, CPU); auto: bfloat16 on a CPU that
    computes with it, float32 elsewhere. Inference is always in float32."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints in seconds; 0: one after every step."""
    schedule: tuple[Stage, ...] = (Stage("explore", "evolution", 1),)
    """Stages, each name=kind:epochs or name=kind:epochs:passes@every; with ? at the end a stage of graph or relaxed
    is optional."""
    views: Views = field(default_factory=Views)
    augmentation: Augmentation = field(default_factory=Augmentation)
    network: Network = field(default_factory=Network)
    evolution: Evolution = field(default_factory=Evolution)
    guided: Guided = field(default_factory=Guided)
    relaxed: Relaxed = field(default_factory=Relaxed)
    merge: Merge = field(default_factory=Merge)
    consolidation: Consolidation = field(default_factory=Consolidation)

    @property
    def heads(self) -> int:
        """Heads of the network during the relaxed search."""
        graph = any(stage.kind == "graph" for stage in self.schedule)
        return self.relaxed.heads + (self.relaxed.random_heads if graph else 0)

    def __post_init__(self) -> None:
        check(0 <= self.seed < 2**63, "seed", self.seed, "a whole number from 0 to 2**63 - 1", most=2**63)
        check(0 <= self.threads <= 1024, "threads", self.threads, "from 0 to 1024")
        check(1 <= self.processes <= 1024, "processes", self.processes, "from 1 to 1024")
        check(1 <= self.n_init <= 1000, "n_init", self.n_init, "from 1 to 1000")
        check(2 <= self.max_clusters <= MAX_OUTPUTS, "max_clusters", self.max_clusters, f"from 2 to {MAX_OUTPUTS}")
        wanted = self.n_clusters
        check(wanted is None or wanted >= 1, "n_clusters", wanted, "at least 1, or absent to read it from the data")
        most = self.max_clusters
        check(wanted is None or wanted <= most, "n_clusters", wanted, f"at most max_clusters, which is {most}")
        rounds = self.rounds
        fine = rounds == "auto" or (isinstance(rounds, int) and 0 <= rounds <= 64)
        check(fine, "rounds", rounds, "a whole number from 0 to 64, or auto")
        kinds = get_args(KindOption)
        check(self.kind in kinds, "kind", self.kind, "one of " + ", ".join(kinds))
        known = get_args(Precision)
        check(self.precision in known, "precision", self.precision, "one of " + ", ".join(known))
        check(0 <= self.checkpoint_seconds < math.inf, "checkpoint_seconds", self.checkpoint_seconds, "at least 0")
        check(len(self.schedule) >= 1, "schedule", self.schedule, "at least one stage")


def check_n_clusters(config: Config, images: int) -> None:
    """Refuse a number of clusters that a run of so many images cannot give."""
    wanted = config.n_clusters
    if wanted is None:
        return
    check(wanted <= images, "n_clusters", wanted, f"at most the number of images, which is {images:,}")
    merged = any(stage.kind == "merge" for stage in config.schedule)
    without = "left out: the schedule has no merge stage, so there is no merge tree to cut"
    check(merged, "n_clusters", wanted, without)
