"""The oracle: slow loops written straight from the paper, in plain Python numbers.

Nothing here imports the package. Every function of ``core`` and the arithmetic of evolution and consolidation is
compared with its twin in this file.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import permutations

Image = list[list[list[float]]]
"""image[channel][row][column]"""


# --- paper 3.1: complementary masking ---


def masked_view(image: Image, white: bool) -> Image:
    """Keep pixels with (h + w) mod 2 = 0 for the white view, the others for the black one; zero the rest."""
    wanted = 0 if white else 1
    return [
        [[value if (h + w) % 2 == wanted else 0.0 for w, value in enumerate(row)] for h, row in enumerate(channel)]
        for channel in image
    ]


def filled_view(image: Image, white: bool) -> Image:
    """The masked view with every masked pixel replaced by the mean of the visible pixels beside, above and below it."""
    height, width = len(image[0]), len(image[0][0])
    view = masked_view(image, white)
    wanted = 0 if white else 1
    for c, channel in enumerate(image):
        for h in range(height):
            for w in range(width):
                if (h + w) % 2 == wanted:
                    continue
                near = [
                    channel[y][x]
                    for y, x in ((h - 1, w), (h + 1, w), (h, w - 1), (h, w + 1))
                    if 0 <= y < height and 0 <= x < width
                ]
                view[c][h][w] = sum(near) / max(1, len(near))
    return view


def between(channel: list[list[float]], y: float, x: float) -> float:
    """The bilinear value of a channel at a position in pixels from the middle of its first, edges repeated."""
    last_y, last_x = len(channel) - 1, len(channel[0]) - 1
    y, x = min(max(y, 0.0), last_y), min(max(x, 0.0), last_x)
    y0, x0 = int(y), int(x)
    y1, x1, fy, fx = min(y0 + 1, last_y), min(x0 + 1, last_x), y - y0, x - x0
    top = channel[y0][x0] * (1 - fx) + channel[y0][x1] * fx
    bottom = channel[y1][x0] * (1 - fx) + channel[y1][x1] * fx
    return top * (1 - fy) + bottom * fy


def bilinear_double(channel: list[list[float]]) -> list[list[float]]:
    """A channel at twice the size, pixel centers aligned, edges repeated."""
    rows, columns = ([n / 2 - 0.25 for n in range(2 * size)] for size in (len(channel), len(channel[0])))
    return [[between(channel, y, x) for x in columns] for y in rows]


# --- paper 4.1, table 4: augmentation, one step after the other, nearest neighbor ---


def nearest(position: float) -> int:
    """The pixel whose square holds a position; pixel n reaches from n to n + 1."""
    return math.floor(position)


def crop_and_zoom_out(
    channel: list[list[float]], cut: int, top: int, left: int, pad: tuple[int, int], pad_first: tuple[int, int]
) -> list[list[float]]:
    """Cut a window out, put black rows and columns around it, resize it back to the original size."""
    height, width = len(channel), len(channel[0])
    window = [row[left : left + width - cut] for row in channel[top : top + height - cut]]
    canvas_height, canvas_width = height - cut + pad[0], width - cut + pad[1]
    canvas = [[0.0] * canvas_width for _ in range(canvas_height)]
    for y, row in enumerate(window):
        for x, value in enumerate(row):
            canvas[y + pad_first[0]][x + pad_first[1]] = value
    return [
        [
            canvas[nearest((r + 0.5) * canvas_height / height)][nearest((c + 0.5) * canvas_width / width)]
            for c in range(width)
        ]
        for r in range(height)
    ]


def mirror(channel: list[list[float]]) -> list[list[float]]:
    return [row[::-1] for row in channel]


def rotate(channel: list[list[float]], angle: float) -> list[list[float]]:
    """Read every pixel from where the rotation about the middle brings it from; black outside."""
    height, width = len(channel), len(channel[0])
    result = [[0.0] * width for _ in range(height)]
    for r in range(height):
        for c in range(width):
            y, x = r + 0.5 - height / 2, c + 0.5 - width / 2
            source_y = nearest(x * math.sin(angle) + y * math.cos(angle) + height / 2)
            source_x = nearest(x * math.cos(angle) - y * math.sin(angle) + width / 2)
            if 0 <= source_y < height and 0 <= source_x < width:
                result[r][c] = channel[source_y][source_x]
    return result


def background(channel: list[list[float]]) -> float:
    """The median of the pixels of the first and last row and of the first and last column."""
    rim = sorted([*channel[0], *channel[-1], *(row[0] for row in channel), *(row[-1] for row in channel)])
    return (rim[len(rim) // 2 - 1] + rim[len(rim) // 2]) / 2


def warp_on_background(
    channel: list[list[float]], window: tuple[int, int, int], pad: tuple[int, ...], flip: float, angle: float
) -> list[list[float]]:
    """Crop (cut, top, left), zoom-out (rows, columns, above, before), mirror, rotation; outside is the background."""
    (cut, top, left), height, width = window, len(channel), len(channel[0])
    plain, margin = background(channel), 2 * (height + width)
    beyond = [[plain] * (width + 2 * margin)] * margin
    canvas = [*beyond, *([plain] * margin + row + [plain] * margin for row in channel), *beyond]

    def read(r: int, c: int) -> float:
        y, x = r + 0.5 - height / 2, c + 0.5 - width / 2
        y, x = x * math.sin(angle) + y * math.cos(angle), flip * (x * math.cos(angle) - y * math.sin(angle))
        y = (y + height / 2) * (height - cut + pad[0]) / height - pad[2] + top
        x = (x + width / 2) * (width - cut + pad[1]) / width - pad[3] + left
        return between(canvas, y - 0.5 + margin, x - 0.5 + margin)

    return [[read(r, c) for c in range(width)] for r in range(height)]


def gray(picture: Image, h: int, w: int) -> float:
    """Perceived brightness of a pixel."""
    weights = (0.299, 0.587, 0.114) if len(picture) == 3 else (1 / len(picture),) * len(picture)
    return sum(weight * channel[h][w] for weight, channel in zip(weights, picture, strict=True))


def jitter(image: Image, brightness: float, contrast: float, saturation: float, low: float = 0.0) -> Image:
    """Brightness, then contrast about the mean gray, then (three channels) saturation about each pixel's gray."""

    def clip(value: float) -> float:
        return min(1.0, max(low, value))

    height, width = len(image[0]), len(image[0][0])
    image = [[[clip(value * brightness) for value in row] for row in channel] for channel in image]
    mean = sum(gray(image, h, w) for h in range(height) for w in range(width)) / (height * width)
    image = [[[clip(mean + (value - mean) * contrast) for value in row] for row in channel] for channel in image]
    if len(image) == 3:
        pale = [[gray(image, h, w) for w in range(width)] for h in range(height)]
        image = [
            [
                [clip(pale[h][w] + (channel[h][w] - pale[h][w]) * saturation) for w in range(width)]
                for h in range(height)
            ]
            for channel in image
        ]
    return image


# --- augmentation of photographs, and edges ---


def crop_by_area(channel: list[list[float]], top: float, left: float, tall: float, wide: float) -> list[list[float]]:
    """The part of a channel that begins at (top, left) and is ``tall`` x ``wide``, enlarged to the size of the channel.

    Nearest pixel; positions and sizes are fractions of the channel's.
    """
    height, width = len(channel), len(channel[0])

    def read(r: int, c: int) -> float:
        y = (top + (r + 0.5) / height * tall) * height
        x = (left + (c + 0.5) / width * wide) * width
        return channel[nearest(y)][nearest(x)]

    return [[read(r, c) for c in range(width)] for r in range(height)]


def turned_color(red: float, green: float, blue: float, circle: float) -> tuple[float, float, float]:
    """A color turned around the gray axis of NTSC's YIQ by a fraction of a full circle, not clipped."""
    y = 0.299 * red + 0.587 * green + 0.114 * blue
    i = 0.595716 * red - 0.274453 * green - 0.321263 * blue
    q = 0.211456 * red - 0.522591 * green + 0.311135 * blue
    angle = 2 * math.pi * circle
    i, q = i * math.cos(angle) - q * math.sin(angle), i * math.sin(angle) + q * math.cos(angle)
    # The standard's own inverse, rounded as it is published.
    return y + 0.9563 * i + 0.6210 * q, y - 0.2721 * i - 0.6474 * q, y - 1.1070 * i + 1.7046 * q


def blurred(channel: list[list[float]], sigma: float, reach: int) -> list[list[float]]:
    """Convolved with a square of Gaussian weights that reaches ``reach`` pixels; the outermost pixels are repeated."""
    height, width = len(channel), len(channel[0])
    around = range(-reach, reach + 1)
    weights = {(r, c): math.exp(-(r * r + c * c) / (2 * sigma * sigma)) for r in around for c in around}
    total = sum(weights.values())

    def read(r: int, c: int) -> float:
        return channel[min(height - 1, max(0, r))][min(width - 1, max(0, c))]

    return [
        [sum(weight * read(h + r, w + c) for (r, c), weight in weights.items()) / total for w in range(width)]
        for h in range(height)
    ]


def edge_strength(image: Image, faint: float) -> list[list[float]]:
    """Sobel's edges of a picture without the slope around them, squared, against the square of what is usual."""
    height, width = len(image[0]), len(image[0][0])

    def read(r: int, c: int) -> float:
        return gray(image, min(height - 1, max(0, r)), min(width - 1, max(0, c)))

    def around(values: list[list[float]], h: int, w: int, fraction: int) -> float:
        reach = max(2, min(height, width) // fraction)
        near = [
            values[r][c]
            for r in range(max(0, h - reach), min(height, h + reach + 1))
            for c in range(max(0, w - reach), min(width, w + reach + 1))
        ]
        return sum(near) / len(near)

    def every(value: Callable[[int, int], float]) -> list[list[float]]:
        return [[value(h, w) for w in range(width)] for h in range(height)]

    sobel = ((-1, 1), (0, 2), (1, 1))
    across = every(lambda h, w: sum(n * (read(h + k, w + 1) - read(h + k, w - 1)) for k, n in sobel) / 8)
    down = every(lambda h, w: sum(n * (read(h + 1, w + k) - read(h - 1, w + k)) for k, n in sobel) / 8)
    found = every(lambda h, w: math.hypot(across[h][w] - around(across, h, w, 12), down[h][w] - around(down, h, w, 12)))
    mean = sum(map(sum, found)) / (height * width)
    return every(lambda h, w: found[h][w] ** 2 / (found[h][w] ** 2 + (around(found, h, w, 6) + mean + faint) ** 2))


def edge_histogram(image: Image, directions: int, cell: int, faint: float) -> list[float]:
    """How strong the edges of each direction are in each cell of a picture, in the order (direction, row, column)."""
    height, width = len(image[0]), len(image[0][0])

    def sobel(channel: list[list[float]], h: int, w: int) -> tuple[float, float]:
        def read(r: int, c: int) -> float:
            return channel[min(height - 1, max(0, r))][min(width - 1, max(0, c))]

        weights = ((-1, 1), (0, 2), (1, 1))
        across = sum(n * (read(h + k, w + 1) - read(h + k, w - 1)) for k, n in weights) / 8
        return across, sum(n * (read(h + 1, w + k) - read(h - 1, w + k)) for k, n in weights) / 8

    rows, columns = range(0, height - 2 * cell + 1, cell), range(0, width - 2 * cell + 1, cell)
    cells = {(r, c): [0.0] * directions for r in range(len(rows)) for c in range(len(columns))}
    for r, top in enumerate(rows):
        for c, left in enumerate(columns):
            for h in range(top, top + 2 * cell):
                for w in range(left, left + 2 * cell):
                    across, down = max((sobel(channel, h, w) for channel in image), key=lambda pair: math.hypot(*pair))
                    place = math.atan2(down, across) / (2 * math.pi) * directions
                    below, share = math.floor(place), place - math.floor(place)
                    strength = math.hypot(across, down) / (2 * cell) ** 2
                    cells[r, c][below % directions] += (1 - share) * strength
                    cells[r, c][(below + 1) % directions] += share * strength
    power = {place: sum(value * value for value in found) for place, found in cells.items()}
    mean = sum(power.values()) / len(power)

    def weight(place: int, extent: int) -> float:
        return math.sqrt(math.sin(math.pi * (place + 1) / (extent + 1)))

    def value(direction: int, r: int, c: int) -> float:
        near = [power[p] for p in power if abs(p[0] - r) <= 1 and abs(p[1] - c) <= 1]
        usual = math.sqrt(sum(near) / len(near) + mean + faint * faint)
        return math.sqrt(cells[r, c][direction] / usual) * weight(r, len(rows)) * weight(c, len(columns))

    return [value(d, r, c) for d in range(directions) for r in range(len(rows)) for c in range(len(columns))]


# --- paper 3.2: the surprise score ---


def binary_kl(observed: float, null: float) -> float:
    """D(observed || null), eq. 6, with 0 log 0 = 0."""
    total = 0.0
    if observed > 0:
        total += observed * math.log(observed / null)
    if observed < 1:
        total += (1 - observed) * math.log((1 - observed) / (1 - null))
    return total


def cluster_surprises(seq_i: Sequence[int], seq_j: Sequence[int], clusters: int) -> list[float]:
    """D_k for the over-matching clusters and 0 for the others."""
    n = len(seq_i)
    result = []
    for k in range(clusters):
        n_i = sum(1 for label in seq_i if label == k)
        n_j = sum(1 for label in seq_j if label == k)
        t_k = sum(1 for a, b in zip(seq_i, seq_j, strict=True) if a == k and b == k)
        p_k = Fraction(n_i + n_j, 2 * n)
        over = Fraction(t_k, n) > p_k * p_k
        result.append(binary_kl(t_k / n, float(p_k) ** 2) if over else 0.0)
    return result


def surprise(seq_i: Sequence[int], seq_j: Sequence[int], clusters: int) -> float:
    """S(θ), eq. 8: the sum over the over-matching clusters."""
    return math.fsum(cluster_surprises(seq_i, seq_j, clusters))


def contributing(seq_i: Sequence[int], seq_j: Sequence[int], clusters: int, tau: float) -> list[int]:
    """Eq. 9, over-matching clusters only: positions where both views agree on a cluster with D_k >= tau."""
    scores = cluster_surprises(seq_i, seq_j, clusters)
    n = len(seq_i)
    chosen = []
    for position, (a, b) in enumerate(zip(seq_i, seq_j, strict=True)):
        views = list(seq_i).count(a) + list(seq_j).count(a)
        matches = sum(1 for x, y in zip(seq_i, seq_j, strict=True) if x == y == a)
        over = 4 * n * matches > views * views
        if a == b and over and scores[a] >= tau:
            chosen.append(position)
    return chosen


def tail_in_nats(matches: int, n: int, null: Fraction) -> float:
    """-log of the binomial tail of eq. 5, summed exactly in fractions."""
    tail = sum(
        (math.comb(n, s) * null**s * (1 - null) ** (n - s) for s in range(matches, n + 1)),
        start=Fraction(0),
    )
    return math.log(tail.denominator) - math.log(tail.numerator)


# --- appendix A.2: orderliness ---


def entropy(values: Sequence[object]) -> float:
    """Entropy of the empirical distribution of a sequence."""
    n = len(values)
    return -sum(values.count(v) / n * math.log(values.count(v) / n) for v in set(values))


def orderliness(seq_i: Sequence[int], seq_j: Sequence[int], smoothing: float) -> float:
    """Ω = (H* + λ) / (Ĥ + λ)."""
    observed = entropy(list(zip(seq_i, seq_j, strict=True)))
    shuffled = entropy(list(seq_i)) + entropy(list(seq_j))
    return (shuffled + smoothing) / (observed + smoothing)


# --- appendix A.1: the next null hypothesis ---


def conditional_surprise(seq_i: Sequence[int], seq_j: Sequence[int], nodes: Sequence[int], clusters: int) -> float:
    """S of the sub-labels within each node, weighted by the images of the node."""
    total = 0.0
    for node in set(nodes):
        inside = [n for n, other in enumerate(nodes) if other == node]
        total += len(inside) * surprise([seq_i[n] for n in inside], [seq_j[n] for n in inside], clusters)
    return total / len(nodes)


def conditional_orderliness(
    seq_i: Sequence[int], seq_j: Sequence[int], nodes: Sequence[int], smoothing: float
) -> float:
    """(H*(sub-labels | node) + λ) / (Ĥ(sub-labels | node) + λ), with H(x | node) = H(x, node) - H(node)."""
    given = entropy(list(nodes))
    observed = entropy(list(zip(seq_i, seq_j, nodes, strict=True))) - given
    shuffled = sum(entropy(list(zip(seq, nodes, strict=True))) - given for seq in (seq_i, seq_j))
    return (shuffled + smoothing) / (observed + smoothing)


def likelihood_ratio(seq_i: Sequence[int], seq_j: Sequence[int], nodes: Sequence[int]) -> float:
    """Log of how much likelier the pairs of sub-labels are if they depend on each other within their node than if not,
    image by image, every probability being a frequency within the node."""
    total = 0.0
    for a, b, node in zip(seq_i, seq_j, nodes, strict=True):
        inside = [(x, y) for x, y, other in zip(seq_i, seq_j, nodes, strict=True) if other == node]
        both = Fraction(inside.count((a, b)), len(inside))
        first = Fraction(sum(x == a for x, _ in inside), len(inside))
        second = Fraction(sum(y == b for _, y in inside), len(inside))
        total += math.log(both / (first * second))
    return total


def permutation_p_value(seq_i: Sequence[int], seq_j: Sequence[int], label: int) -> Fraction:
    """The share of all pairings of views i with views j that match on a label at least as often as the given one."""
    found = sum(a == b == label for a, b in zip(seq_i, seq_j, strict=True))
    orders = list(permutations(seq_j))
    as_many = [sum(a == b == label for a, b in zip(seq_i, order, strict=True)) >= found for order in orders]
    return Fraction(sum(as_many), len(orders))


# --- paper 3.3: evolution ---


def centered_ranks(scores: Sequence[float]) -> list[float]:
    """Rank by rank: how many are worse, plus half of how many are equal; NaN is worse than anything."""

    def worse(a: float, b: float) -> bool:
        if math.isnan(a):
            return not math.isnan(b)
        return a < b

    ranks = []
    for index, score in enumerate(scores):
        others = [other for position, other in enumerate(scores) if position != index]
        below = sum(1 for other in others if worse(other, score))
        equal = sum(1 for other in others if not worse(other, score) and not worse(score, other))
        ranks.append((below + equal / 2) / (len(scores) - 1) - 0.5)
    return ranks


def es_update(
    theta: Sequence[float],
    noises: Sequence[Sequence[float]],
    ranks: Sequence[float],
    eta: float,
    lam: float,
    sigma: float,
) -> list[float]:
    """Eq. 10 over all m members; ``noises`` holds the noise of every member, mirrored ones included."""
    m = len(noises)
    return [
        (1 - eta * lam) * value + eta / (m * sigma) * math.fsum(ranks[i] * noises[i][d] for i in range(m))
        for d, value in enumerate(theta)
    ]


def guided_noise(
    isotropic: Sequence[float], within: Sequence[float], basis: Sequence[Sequence[float]], share: float
) -> list[float]:
    """Noise of covariance (1 - s) I + s n/k U U^T (arXiv 1806.10230, eq. 1) from standard normal draws."""
    n, k = len(isotropic), len(within)
    return [
        math.sqrt(1 - share) * isotropic[d]
        + math.sqrt(share) * math.sqrt(n / k) * math.fsum(within[a] * basis[a][d] for a in range(k))
        for d in range(n)
    ]


def guided_covariance(basis: Sequence[Sequence[float]], share: float) -> list[list[float]]:
    """C = (1 - s) I + s n/k U U^T; ``basis`` holds the columns of U."""
    n, k = len(basis[0]), len(basis)
    return [
        [(1 - share) * (a == b) + share * n / k * math.fsum(u[a] * u[b] for u in basis) for b in range(n)]
        for a in range(n)
    ]


# --- paper 3.3: median balance ---


def balanced_sizes(labels: Sequence[int]) -> dict[int, int]:
    """min(n_k, M) images of each cluster, M the median cluster size (rounded down)."""
    sizes = {k: list(labels).count(k) for k in set(labels)}
    ordered = sorted(sizes.values())
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) // 2
    return {k: min(n, median) for k, n in sizes.items()}


# --- paper 4.1: accuracy ---


def accuracy(clusters: Sequence[int], classes: Sequence[int]) -> float:
    """The best one-to-one assignment, by trying them all."""
    side = max(*clusters, *classes) + 1
    best = max(
        sum(1 for a, b in zip(clusters, classes, strict=True) if matching[a] == b)
        for matching in permutations(range(side))
    )
    return best / len(clusters)


def purity(clusters: Sequence[int], classes: Sequence[int]) -> float:
    total = 0
    for k in set(clusters):
        inside = [b for a, b in zip(clusters, classes, strict=True) if a == k]
        total += max(inside.count(b) for b in set(inside))
    return total / len(clusters)


def balance(sizes: Sequence[int]) -> float:
    """(effective number of clusters - 1) / number of clusters, from the entropy of the sizes."""
    held = [size for size in sizes if size]
    entropy_of_sizes = -sum(size / sum(held) * math.log(size / sum(held)) for size in held)
    return (math.exp(entropy_of_sizes) - 1) / len(held)


# --- novelty: beyond the paper ---


def novelty(place: Sequence[float], points: Sequence[Sequence[float]], table: Sequence[float], top: float) -> float:
    """The level of an image's distance to its fifth nearest point, read from the quantiles of held-out distances.

    The quantiles belong to equally spaced levels from 0 to ``top``; beyond the last one the level nears 1.
    """
    distance = sorted(math.dist(place, point) for point in points)[min(5, len(points)) - 1]
    if distance >= table[-1]:
        beyond = (distance - table[-1]) / (table[-1] - table[len(table) // 2])
        return top + (1 - top) * (1 - math.exp(-beyond))
    if distance <= table[0]:
        return 0.0
    below = max(k for k, value in enumerate(table) if value <= distance)
    part = (distance - table[below]) / (table[below + 1] - table[below])
    return top * (below + part) / (len(table) - 1)


# --- not in the paper: near-duplicates ---


def small_points(image: Image) -> list[float]:
    """An image in at most 16 x 16 cells, normalized, and the brightness of its channels."""
    height, width = len(image[0]), len(image[0][0])
    rows, columns = min(16, height), min(16, width)
    channels = []
    for channel in image:
        cells = []
        for r in range(rows):
            for c in range(columns):
                across = range(c * width // columns, -(-(c + 1) * width // columns))
                down = range(r * height // rows, -(-(r + 1) * height // rows))
                inside = [channel[h][w] for h in down for w in across]
                cells.append(sum(inside) / len(inside))
        channels.append(cells)
    every = [value for cells in channels for value in cells]
    mean = sum(every) / len(every)
    spread = max(4.0, math.sqrt(sum((value - mean) ** 2 for value in every) / len(every)))
    brightness = [0.75 * sum(cells) / len(cells) / 255 / math.sqrt(len(channels)) for cells in channels]
    return [*((value - mean) / spread / math.sqrt(len(every)) for value in every), *brightness]


def near_duplicate_groups(images: Sequence[Image], radius: float) -> list[list[int]] | None:
    """An image and the later ones near it that no earlier one took; None if a distance is all but the radius."""
    points = [small_points(image) for image in images]
    groups: list[list[int]] = []
    taken: set[int] = set()
    for leader in range(len(points)):
        near = []
        for other in range(leader + 1, len(points)):
            distance = math.dist(points[leader], points[other])
            if abs(distance - radius) < 1e-5:
                return None
            if distance < radius and leader not in taken and other not in taken:
                near.append(other)
        if near:
            groups.append([leader, *near])
            taken |= {leader, *near}
    return groups


def step_shares(image: list[list[float]], sizes: list[float]) -> list[float]:
    """Log of the share of differences between adjacent pixels that exceed each size."""
    height, width = len(image), len(image[0])
    steps = [abs(image[y][x + 1] - image[y][x]) for y in range(height) for x in range(width - 1)]
    steps += [abs(image[y + 1][x] - image[y][x]) for y in range(height - 1) for x in range(width)]
    return [math.log(sum(step > size for step in steps) / len(steps) + 0.01) for size in sizes]


def co_assignments(labels: list[list[int]], neighbors: list[list[int]], clusters: int) -> list[list[float]]:
    """How often view i of an image is in one cluster and view j of a neighbor in another, both orders counted alike."""
    table = [[0.0] * clusters for _ in range(clusters)]
    for image, near in enumerate(neighbors):
        for other in near:
            a, b = labels[image][0], labels[other][1]
            table[a][b] += 0.5
            table[b][a] += 0.5
    return table
