"""``cts fit``: find the clusters in a set of images."""

from __future__ import annotations

import contextlib
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, get_args

import tyro
from rich.console import Console
from rich.markup import escape

from ..config import Config, SearchName
from ..config.describe import field_docs, leaf
from ..config.files import overlay, read
from ..config.images import Color, InputKind, LabelSource, check_copies
from ..config.kinds import describe_kind, for_kind
from ..config.presets import (
    KNOWN_SIZES,
    PresetName,
    canonical,
    keep_bound,
    on_features,
    resolve,
    with_backbone,
    with_embeddings,
)
from ..config.text import one_line
from .arguments import SourceName
from .output import say, warn
from .parser import parse

if TYPE_CHECKING:
    from ..config.settings import KindOption
    from ..data.datasets import Dataset
    from ..data.store import ImageStore
    from ..model.pretrained.frozen import PretrainedBackbone
    from ..runs.folder import RunFolder
    from ..search.restarts import Restarts
    from .resume import Command as Resume


@dataclass(frozen=True)
class Command:
    """Find the clusters in a set of images and keep the run in a folder."""

    source: SourceName
    """A folder of pictures, a .csv or .parquet file with their paths, an .npz, .npy or IDX file, or a data set (mnist,
    fashion-mnist, usps, digits). With --input embeddings: an .npy, .npz or .parquet file of vectors."""
    out: Path
    """Folder for the run; it must not hold one already."""
    preset: PresetName = "fast"
    """fast: minutes on a laptop. paper: the paper's method and hyper-parameters."""
    search: SearchName | None = None
    """evolution, guided or relaxed, instead of the preset's search."""
    data_dir: Path | None = None
    """Folder with local copies of the named data sets (also: the CTS_DATA variable)."""
    input: InputKind = "images"
    """embeddings: SOURCE holds feature vectors, (N, D), or (N, V, D) for V views of each item."""
    images: str | None = None
    """Pictures of the embeddings, for the page: a folder (in the order of the names), a table of paths, or the column
    of SOURCE with their paths."""
    backbone: str | None = None
    """Pre-trained network whose features are clustered instead of pixels: an ONNX file, hf:ORG/NAME, or a name that
    `cts backbones` lists. The way for photographs."""
    backbone_size: int | None = None
    """Side in pixels at which the backbone sees the pictures; by default what it was made for."""
    copies: int | None = None
    """Augmented copies of each view that the backbone sees; by default 4 to 15, fewer for many pictures."""
    image_size: int | None = None
    """Longer side of the images in pixels, from 8 to 1024; by default 48, or less if they are smaller."""
    color: Color = "auto"
    """Read pictures in color (rgb) or gray; auto: in color if more than one in a hundred is."""
    labels: LabelSource = "none"
    """from-folders: the folders directly below SOURCE are classes, for evaluation only."""
    config: Path | None = None
    """TOML or JSON file of settings that override the preset; flags override both."""
    force: bool = False
    """Overwrite the run in the folder."""
    report: bool = True
    """Write report.html into the run folder at the end."""
    serve: bool = False
    """Serve the report during training, on this machine only."""
    port: int = 0
    """Port of that page; 0: any free one."""
    tensorboard: bool = False
    """Write event files for TensorBoard into the run folder."""
    settings: Annotated[Config, tyro.conf.arg(name="")] = field(default_factory=Config)
    """Every other setting."""


class Request(NamedTuple):
    """The command, and its words, which are parsed again on top of the preset."""

    command: Command
    words: Sequence[str]


SHORT_HELP = (
    "source", "out", "backbone", "input", "images", "n_init", "n_clusters", "max_clusters", "rounds", "preset",
    "search", "seed", "image_size", "color", "kind", "labels", "augmentation.rotation", "augmentation.crop",
    "augmentation.flip_prob",
    "relaxed.temperature", "schedule", "device", "precision", "threads", "processes", "config", "data_dir", "report",
    "serve", "tensorboard", "force",
)  # fmt: skip
"""The options that ``cts fit --help`` shows; ``--help-all`` shows all."""
ADVICE = (
    "these are color pictures: for photographs a pre-trained network finds what they show, and is faster: give "
    "--backbone dinov2-small, or a file (`cts backbones` lists others)"
)


def execute(request: Request, console: Console) -> None:
    with console.status(one_line(f"reading {escape(request.command.source)}")):  # importing torch takes seconds
        from ..config.images import ImageOptions, check_image_size
        from ..data.store import check_clusterable
        from ..distributed import launch
        from ..runs import session
        from ..runs.features import prepared_features
        from ..runs.folder import RunFolder
        from .loading import load_images

    command = request.command
    # torchrun starts the same command again after a loss: the run it finds is then its own.
    again = launch.launched() and RunFolder(command.out).config.is_file()
    if command.force and launch.launched():
        raise ValueError("--force is refused under torchrun, because a restart would overwrite the run again")
    run = RunFolder.open(command.out) if again else RunFolder.claim(command.out, command.force)
    check_image_size(command.image_size, "--image-size")
    check_input(command)
    backbone = opened_backbone(command)
    side = None if backbone is None else backbone.identity.preprocess.size
    options = ImageOptions(
        command.image_size, command.color, command.labels, side, input=command.input, pictures=command.images
    )
    dataset = load_images(command.source, command.data_dir, options, console)
    check_clusterable(dataset.train, command.source)
    kind, seen = kind_of_pictures(command, dataset.train)
    config = effective_config(request, (len(dataset.train), *dataset.train.shape), kind, side)
    prepared = prepared_features(dataset.train, backbone, config, command.copies, console)
    if prepared is not None:
        config = on_features(config, prepared.items.shape[3])
    elif dataset.train.names is not None and dataset.train.shape[0] == 3:
        say(console, ADVICE)
    if again:
        search, problems = session.reattach(run, dataset, config)
        warn(problems)
        session.update_origin(run, None, command.data_dir)
    else:
        source = session.origin_of(command.source)
        pictures = command.images
        if pictures is not None and Path(pictures).exists():
            pictures = str(Path(pictures).resolve())
        origin = session.Origin(source, command.preset, command.data_dir, command.labels, pictures)
        search = session.begin(run, dataset, origin, config, prepared)
    if seen is not None:
        say(console, seen)
    train(run, search, dataset, command, console)
    if dataset.classes_offered:
        text = f"the {dataset.classes_offered} folders of {command.source} look like classes: compare with them by"
        say(console, f"{text} `cts evaluate {run.path} {command.source}`")


def parse_words(words: Sequence[str]) -> Request:
    return Request(parse("fit", Command, words), words)


def check_input(command: Command) -> None:
    """Refuse options that do not go with what SOURCE holds."""
    if command.input == "images":
        if command.images is not None:
            raise ValueError(f"--images is {command.images}, but without --input embeddings SOURCE holds the images")
        return
    for name, value in (("--backbone", command.backbone), ("--image-size", command.image_size)):
        if value is not None:
            raise ValueError(f"{name} is {value}, but with --input embeddings there are no images for it")


def opened_backbone(command: Command) -> PretrainedBackbone | None:
    """The backbone that the command names, if it names one."""
    if command.backbone is None:
        for name, value in (("--backbone-size", command.backbone_size), ("--copies", command.copies)):
            if value is not None:
                raise ValueError(f"{name} is {value}, but there is no --backbone")
        return None
    if command.image_size is not None:
        raise ValueError(f"--image-size is {command.image_size}; with --backbone give --backbone-size instead")
    check_copies(command.copies, "--copies")
    from ..model.pretrained import PreprocessFlags, open_backbone

    return open_backbone(command.backbone, PreprocessFlags(size=command.backbone_size))


def kind_of_pictures(command: Command, store: ImageStore) -> tuple[KindOption, str | None]:
    """What the pictures are, as the user says or as they look, and what to tell about it.

    Named data sets, embeddings and the paper need no kind.
    """
    from ..core.picture_kind import picture_kind

    asked = command.settings.kind
    if asked == "auto" and command.config is not None:
        asked = overlay(Config(), read(command.config)).kind
    known = command.preset == "paper" or command.input == "embeddings" or canonical(command.source) is not None
    if asked != "auto" or known:
        return asked, None
    found = picture_kind(store.images)
    return found, describe_kind(found, "--kind")


def effective_config(
    request: Request,
    images: tuple[int, int, int, int],
    kind: KindOption = "auto",
    backbone_side: int | None = None,
) -> Config:
    """Preset, then configuration file, then flags, which are parsed again on top of the first two.

    ``images``: their shape (N, C, H, W).
    """
    from ..search.threads import available_threads

    command = request.command
    name = canonical(command.source) or "auto"  # a folder can have the name of a data set
    base = resolve(command.preset, command.search, name, images[0], images[1:])
    if command.input == "embeddings":
        base = with_embeddings(base, images[0], images[1])
    if backbone_side is not None:
        base = with_backbone(replace(base, kind=kind), backbone_side, images[0])
    elif command.preset == "fast" and kind != "auto":
        base = for_kind(base, kind)
    if command.config is not None:
        base = overlay(base, read(command.config))
    parsed: Command = parse("fit", Command, request.words, replace(command, settings=base))
    config = keep_bound(parsed.settings, base)
    return replace(config, kind=kind, threads=config.threads or available_threads())


def train(run: RunFolder, search: Restarts, dataset: Dataset, command: Command | Resume, console: Console) -> None:
    """Work through the remaining schedule, show it as the command asks, and print what was found."""
    from ..data.near_duplicates import duplicates_line, read_duplicates
    from ..data.skipped import count_kinds, files_line
    from ..report.events import event_files
    from ..report.live import serve
    from ..runs import session
    from ..runs.deepening import wanted_rounds
    from ..runs.load import load_model
    from ..runs.progress import ProgressDisplay
    from ..runs.result import levels_text, selection_text
    from .deepen import deepen, write_page
    from .output import cluster_table, score_lines

    files = None  # arrays have none
    if dataset.train.names is not None and dataset.train.thumbnails is None:
        files = files_line(len(dataset.train.names), count_kinds(dataset.quarantine), run.quarantine)
        say(console, files)
    with contextlib.ExitStack() as stack:
        readers: list[session.Reader] = []
        if command.tensorboard:
            readers.append(stack.enter_context(event_files(run.path)))
        if command.serve:
            stack.enter_context(serve(run.path, command.port, console, dataset.train))
        readers.append(stack.enter_context(ProgressDisplay(console, search.total, search.step)))
        assessment, merge_result, verdict = session.train_with_workers(run, search, dataset, readers)
    console.print(cluster_table(assessment, class_names=dataset.train.class_names))
    say(console, score_lines(assessment))
    if merge_result is not None and (text := levels_text(merge_result.reachable_levels, merge_result.n_clusters)):
        say(console, f"{text}; `cts predict --n-clusters` and the page show the others")
    say(console, verdict.text)
    if (initializations := search.summary()) is not None:
        say(console, f"selected: {selection_text(initializations)}")
    if files and dataset.quarantine:  # again: the first time may have scrolled away
        say(console, files)
    if groups := read_duplicates(run.duplicates, dataset.train.names, len(dataset.train)):
        say(console, duplicates_line(groups, run.duplicates))
    if (rounds := wanted_rounds(search.config, load_model(run.path).hierarchy)) is not None:
        deepen(run, dataset, rounds, console)
    if command.report:
        write_page(run, dataset, console)
    config = search.config
    repeat = f"seed {config.seed} with {config.threads} thread{'s' * (config.threads != 1)} in {config.precision}"
    others = "another number of threads or another precision gives other clusters"
    say(console, f"{search.seconds:.0f} s, run in {run.path} ({repeat}; {others})")


def show_help(words: Sequence[str], console: Console) -> None:
    """The options that most people need, with the values that this run would use."""
    named = [(word, canonical(word)) for word in words if not word.startswith("-")]
    source = next((name for _, name in named if name is not None), None)
    preset: PresetName = "paper" if "paper" in words else "fast"
    images, shape = KNOWN_SIZES.get(source or "", (5000, (3, 48, 48)))
    search: SearchName | None = next((s for s in get_args(SearchName) if s in words), None)
    config = resolve(preset, search, source or "auto", images, shape)
    defaults = Command(source or "", Path(), preset=preset, search=search, settings=config)
    about = f"the data set {source}" if source else f"{images:,} color pictures; for a data set: cts fit NAME --help"
    console.print("usage: cts fit SOURCE --out FOLDER [options]\n", markup=False)
    console.print(f"Values in parentheses are those of the {preset} preset for {about}.\n", markup=False)
    for path in SHORT_HELP:
        flag, text, value = _option(path, defaults)
        shown = "" if value is None else f" ({value})"
        console.print(f"  [bold]{flag}[/]", highlight=False)
        lines = textwrap.wrap(text + shown, console.width - 6, break_on_hyphens=False)
        console.print(textwrap.indent("\n".join(lines), " " * 6), markup=False, highlight=False, soft_wrap=True)
    console.print("\n`cts fit --help-all` shows every setting.", markup=False, highlight=False)


def _option(path: str, defaults: Command) -> tuple[str, str, object]:
    """Flag, description and value of an option, which is a field of the command or of its settings."""
    own = field_docs(Command)
    if path == "source":
        return "SOURCE", own[path], None
    if path == "out":
        return "--out FOLDER", own[path], None
    flag = "--" + path.replace("_", "-")
    if path in own:
        value, text = getattr(defaults, path), own[path]
    else:
        value, text = leaf(defaults.settings, path)
    if isinstance(value, bool):
        return (f"{flag}, --no-{path}" if value else flag), text, None
    return flag, text, " ".join(map(str, value)) if isinstance(value, tuple) else value
