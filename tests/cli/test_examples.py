"""What the README and the notebook show runs as it stands there; the search is shorter, the README has fewer images."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbclient
import nbformat
import pytest
import sklearn.datasets
from sklearn.datasets import load_digits
from sklearn.utils import Bunch

from converge_to_surprise.config import presets

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "quickstart.ipynb"
SHORT = {"ROUNDS": ((40, 6),), "MORE_ROUNDS": (), "REFINE_STEPS": 4, "REFINE_EPOCHS": 1}
"""Constants of the presets that make a search short."""


def read_notebook() -> Any:
    return nbformat.read(NOTEBOOK, as_version=4)  # type: ignore[no-untyped-call]


@pytest.mark.slow
def test_the_quickstart_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    (quickstart,) = [block for block in blocks if "SurpriseClustering" in block]
    assert len(quickstart.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    for name, value in SHORT.items():
        assert hasattr(presets, name)
        monkeypatch.setattr(presets, name, value)
    fewer = Bunch(images=load_digits().images[:600])
    monkeypatch.setattr(sklearn.datasets, "load_digits", lambda: fewer)
    exec(compile(quickstart, "README.md", "exec"), {})
    assert (tmp_path / "model.safetensors").is_file()
    assert "(5, 64)" in capsys.readouterr().out


def test_the_notebook_shows_its_outputs() -> None:
    """Every code cell was executed, in order and without an error."""
    cells = [cell for cell in read_notebook().cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert all(cell.outputs for cell in cells)
    assert not [output for cell in cells for output in cell.outputs if output.output_type == "error"]


@pytest.mark.slow
@pytest.mark.subprocess
def test_the_notebook(tmp_path: Path) -> None:
    notebook = read_notebook()
    shorter = "\n".join(f"presets.{name} = {value}" for name, value in SHORT.items())
    source = f"from converge_to_surprise.config import presets\n{shorter}"
    cell = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, cell)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert (tmp_path / "digits.safetensors").is_file()
