"""What the README and the notebook show runs as it stands there; only the search is cut short."""

from __future__ import annotations

import re
from pathlib import Path

import nbclient
import nbformat
import pytest

from converge_to_surprise.config import presets

ROOT = Path(__file__).parent.parent
SHORT = {"RELAXED_STEPS": 16, "RELAXED_EPOCHS": 1, "STARTS": 1}


def test_the_quickstart_of_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    (quickstart,) = [block for block in blocks if "SurpriseClustering" in block]
    assert len(quickstart.splitlines()) <= 10
    monkeypatch.chdir(tmp_path)
    for name, value in SHORT.items():
        monkeypatch.setattr(presets, name, value)
    exec(compile(quickstart, "README.md", "exec"), {})
    assert (tmp_path / "model.safetensors").is_file()
    assert "(5, 64)" in capsys.readouterr().out


def test_the_notebook(tmp_path: Path) -> None:
    notebook = nbformat.read(  # type: ignore[no-untyped-call]
        ROOT / "examples" / "quickstart.ipynb", as_version=4
    )
    assert any(cell.cell_type == "code" and cell.outputs for cell in notebook.cells), "it shows what came out"
    shorter = "\n".join(f"presets.{name} = {value}" for name, value in SHORT.items())
    source = f"from converge_to_surprise import presets\n{shorter}"
    cell = nbformat.v4.new_code_cell(source)  # type: ignore[no-untyped-call]
    notebook.cells.insert(0, cell)
    nbclient.NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    ).execute()
    assert (tmp_path / "digits.safetensors").is_file()
