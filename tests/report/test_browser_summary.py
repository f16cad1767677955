"""Where there is no Chromium, the end of a test run says loudly that the browser tests did not run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent / "test_report_browser.py"


@pytest.mark.slow
@pytest.mark.subprocess
def test_browser_tests_that_do_not_run_are_announced(tmp_path: Path) -> None:
    words = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        f"--basetemp={tmp_path / 'base'}",
        str(TESTS),
    ]
    found = subprocess.run(
        words,
        env=os.environ | {"PATH": str(tmp_path)},
        cwd=TESTS.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    line = re.search(r"^(\d+) browser tests did NOT run: .*$", found.stdout, re.MULTILINE)
    assert line is not None, found.stdout
    assert int(line[1]) >= TESTS.read_text().count("\ndef test_")
    assert "apt install chromium" in line[0]
