"""What a thousand million images would cost: the tables of docs/scale.md, made from benchmarks/results/.

    python benchmarks/scale.py [--check]       write the tables into docs/scale.md, or say whether they are in step
    python benchmarks/scale.py --measure       measure what no other benchmark does, into benchmarks/results/scale.json

A table stands between the two comments ``<!-- table: NAME -->`` and ``<!-- end of table -->``.
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

from scaling import pages, rates
from scaling.measure import measure
from simnet import tables

PAGE = Path(__file__).parents[1] / "docs" / "scale.md"
BLOCK = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def all_tables() -> dict[str, str]:
    """Markdown by name."""
    return {**tables.of_hosts(rates.result("hosts")), **pages.of_costs(rates.result("scale"))}


def renewed(text: str, content: dict[str, str]) -> str:
    """The page with what stands between the markers replaced."""
    return BLOCK.sub(lambda block: f"{block[1]}{content[block[2]]}\n{block[3]}", text)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--measure", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if options.measure:
        found = {"command": "python benchmarks/scale.py --measure", **measure(options.rounds)}
        (rates.RESULTS / "scale.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(json.dumps(found))
        return 0
    text = PAGE.read_text(encoding="utf-8")
    new = renewed(text, all_tables())
    if options.check:
        print("in step" if new == text else f"{PAGE.name} is not in step: run python benchmarks/scale.py")
        return int(new != text)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
