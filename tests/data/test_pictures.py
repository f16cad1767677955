"""Many pictures: the working size and color, parallel decoding in order, a bounded number at a time."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Set
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.pictures import encoded, photo, write

from converge_to_surprise.config.images import ImageOptions
from converge_to_surprise.data import pictures
from converge_to_surprise.data import working_size as reading
from converge_to_surprise.data.decode import BadPicture, Probe
from converge_to_surprise.data.listing import Listing, list_folder, list_paths
from converge_to_surprise.data.pictures import AHEAD, BLOCK, CHUNK, Chunk, stream
from converge_to_surprise.data.working_size import working_shape, working_size


class TestReading:
    @pytest.mark.parametrize(
        ("wrong", "message"),
        [
            ({"image_size": 7}, "image_size is 7; it must be a whole number from 8 to 1024"),
            ({"image_size": 4000}, "image_size is 4000"),
            ({"color": "sepia"}, "color is 'sepia'; it must be one of auto, gray, rgb"),
            ({"labels": "guess"}, "labels is 'guess'; it must be one of none, from-folders"),
            ({"threads": -1}, "threads is -1"),
        ],
    )
    def test_wrong_wishes(self, wrong: dict[str, Any], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            ImageOptions(**wrong)


class TestWorkingSize:
    @pytest.mark.parametrize(
        ("sizes", "image_size", "expected"),
        [
            ([(28, 28)] * 5, None, (28, 28)),  # one small size is kept
            ([(48, 48)] * 5, None, (48, 48)),
            ([(40, 8)] * 5, None, (8, 40)),  # also one of an extreme aspect
            ([(40, 8)] * 5, 40, (8, 40)),
            ([(40, 8)] * 5, 20, (10, 20)),
            ([(64, 64)] * 5, None, (48, 48)),
            ([(64, 64)] * 5, 64, (64, 64)),
            ([(4000, 3000)] * 5, None, (36, 48)),
            ([(3000, 4000)] * 5, None, (48, 36)),
            ([(4000, 3000), (3000, 4000)], None, (48, 48)),
            ([(4000, 1000)] * 3, None, (24, 48)),  # no narrower than 1 to 2
            ([(1000, 4000)] * 3, None, (48, 24)),
            ([(20, 20), (30, 30), (40, 40)], None, (30, 30)),  # never larger than most pictures
            ([(20, 20), (30, 30), (40, 40)], 100, (100, 100)),
            ([(1, 1)] * 3, None, (2, 2)),
            ([(1, 30)] * 3, None, (30, 2)),
            ([(3000, 2000)] * 3, 2, (2, 2)),
        ],
    )
    def test_sizes(self, sizes: list[tuple[int, int]], image_size: int | None, expected: tuple[int, int]) -> None:
        assert working_size(sizes, image_size) == expected

    @given(st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=1), st.none() | st.integers(2, 200))
    def test_laws(self, sizes: list[tuple[int, int]], image_size: int | None) -> None:
        height, width = working_size(sizes, image_size)
        assert height >= 2
        assert width >= 2
        assert max(height, width) == (image_size or max(height, width))
        assert max(height, width) <= (image_size or 48)
        # Turning all pictures turns the working size.
        assert working_size([size[::-1] for size in sizes], image_size) == (width, height)


class TestWorkingShape:
    def fill(self, folder: Path, gray: int, colored: int) -> Listing:
        for number in range(gray):
            write(folder / f"g{number}.png", photo(12, 16, number, channels=1))
        for number in range(colored):
            write(folder / f"c{number}.png", photo(12, 16, number))
        return list_folder(folder)

    def test_color_of_more_than_one_in_a_hundred(self, tmp_path: Path) -> None:
        assert working_shape(self.fill(tmp_path / "a", 100, 0), ImageOptions()) == (1, 12, 16)
        assert working_shape(self.fill(tmp_path / "b", 99, 1), ImageOptions()) == (1, 12, 16)
        assert working_shape(self.fill(tmp_path / "c", 98, 2), ImageOptions()) == (3, 12, 16)

    def test_wishes_win(self, tmp_path: Path) -> None:
        gray, colored = self.fill(tmp_path / "a", 3, 0), self.fill(tmp_path / "b", 0, 3)
        assert working_shape(gray, ImageOptions(color="rgb")) == (3, 12, 16)
        assert working_shape(colored, ImageOptions(color="gray", image_size=8)) == (1, 6, 8)

    def test_bad_files_do_not_count(self, tmp_path: Path) -> None:
        self.fill(tmp_path, 3, 0)
        (tmp_path / "bad.png").write_bytes(b"")
        assert working_shape(list_folder(tmp_path), ImageOptions()) == (1, 12, 16)

    def test_nothing_but_bad_files(self, tmp_path: Path) -> None:
        for number in range(5):
            (tmp_path / f"{number}.png").touch()
        with pytest.raises(ValueError, match=r"none of the 5 files of .* can be read: '0.png' and 4 more: the file is"):
            working_shape(list_folder(tmp_path), ImageOptions())

    def test_one_good_file_among_many_bad_ones(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(reading, "PROBED", 4)
        for number in range(20):
            (tmp_path / f"{number:02}.png").touch()
        write(tmp_path / "13.png", photo(9, 9))
        assert working_shape(list_folder(tmp_path), ImageOptions()) == (3, 9, 9)

    def test_no_more_than_500_are_opened(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        opened: list[str] = []

        def counted(path: str) -> Probe:
            opened.append(path)
            return Probe(8, 8, False)

        monkeypatch.setattr(reading, "probe", counted)
        paths = [f"{number}.png" for number in range(7_777)]
        working_shape(list_paths(paths), ImageOptions())
        assert 400 <= len(opened) <= 500
        numbers = sorted(int(Path(path).stem) for path in opened)
        assert numbers[-1] > 7_700  # spread over all
        assert len(set(np.diff(numbers))) == 1


def numbered(folder: Path, count: int, bad: Set[int] = frozenset()) -> Listing:
    """Pictures whose pixels say which they are; of very different sizes, so that threads finish out of order."""
    folder.mkdir(exist_ok=True)
    for number in range(count):
        side = 4 if number % 7 else 150
        pixels = np.full((side, side), number % 256, np.uint8)
        (folder / f"{number:05}.png").write_bytes(b"broken" if number in bad else encoded(pixels, "png"))
    return list_folder(folder)


BAD = frozenset({0, 17, 255, 256, 599, *range(320, 340)})


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Listing:
    return numbered(tmp_path_factory.mktemp("numbered"), 600, BAD)


class TestStream:
    @pytest.mark.parametrize("threads", [1, 2, 16, 0])
    @pytest.mark.parametrize("start", [0, 1, 300, 599, 600])
    def test_order_is_kept(self, shared: Listing, threads: int, start: int) -> None:
        chunks = list(stream(shared, (1, 4, 4), threads, start))
        positions = np.concatenate([np.empty(0, int), *(chunk.positions for chunk in chunks)])
        expected = [number for number in range(start, 600) if number not in BAD]
        assert positions.tolist() == expected
        for chunk in chunks:
            assert chunk.pixels.shape == (len(chunk.positions), 1, 4, 4)
            assert (chunk.pixels == (chunk.positions % 256)[:, None, None, None]).all()
        bad = [item.name for chunk in chunks for item in chunk.quarantined]
        assert bad == [f"{number:05}.png" for number in sorted(BAD) if number >= start]

    def test_chunks_cover_the_listing(self, shared: Listing) -> None:
        chunks = list(stream(shared, (1, 4, 4), 2, 10))
        assert chunks[0].start == 10
        assert chunks[-1].stop == 600
        assert all(before.stop == after.start for before, after in itertools.pairwise(chunks))
        assert all(chunk.stop - chunk.start <= CHUNK for chunk in chunks)

    def test_a_chunk_of_nothing_but_bad_files(self, tmp_path: Path) -> None:
        (chunk,) = stream(numbered(tmp_path, 3, {0, 1, 2}), (3, 4, 4))
        assert chunk.pixels.shape == (0, 3, 4, 4)
        assert chunk.positions.shape == (0,)
        assert len(chunk.quarantined) == 3
        assert list(stream(Listing("none", [], []), (1, 4, 4))) == []

    def test_look_ahead_is_bounded_and_ends_with_the_iterator(self, monkeypatch: pytest.MonkeyPatch) -> None:
        decoded = 0
        guard = threading.Lock()

        def counted(path: str, shape: tuple[int, int, int]) -> npt.NDArray[np.uint8]:
            nonlocal decoded
            with guard:
                decoded += 1
            if path.endswith("7.png"):
                raise BadPicture("seven")
            return np.zeros(shape, np.uint8)

        monkeypatch.setattr(pictures, "decode", counted)
        files = 100_000
        chunks = stream(list_paths([f"{number}.png" for number in range(files)]), (1, 4, 4), 4)
        taken = 0
        for chunk in (next(chunks) for _ in range(5)):
            taken = chunk.stop
            time.sleep(0.05)  # a slow reader: decoding must wait for it
            assert decoded <= taken + AHEAD * BLOCK
        chunks.close()
        after = decoded
        assert not [thread for thread in threading.enumerate() if thread.name.startswith("decode")]
        time.sleep(0.05)
        assert decoded == after < files / 10

    def test_memory_is_bounded_for_large_pictures(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(pictures, "decode", lambda path, shape: np.zeros(shape, np.uint8))
        shape = (3, 1024, 1024)
        chunks: list[Chunk] = []
        for chunk in stream(list_paths([f"{number}.png" for number in range(40)]), shape, 2):
            assert chunk.pixels.nbytes <= 64 * 2**20
            chunks.append(Chunk(chunk.start, chunk.stop, chunk.positions, chunk.pixels[:0], []))
        assert chunks[-1].stop == 40
