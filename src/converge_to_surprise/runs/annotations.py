"""Names, merges, noise marks and the cut that a person gave to a run's clusters: RUN/clusters.json, with earlier ones.

The report page saves such a file, ``cts relabel`` checks it and copies it into the run folder, and everything that uses
the run's model reads it there. The clusters themselves are never changed, so every annotation can be undone.
"""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Any, NamedTuple

from ..config.storage import read_json, write_json
from ..model.carried_names import Annotations, no_annotations
from ..model.hierarchy import Path as TreePath
from ..model.hierarchy import parse_path, path_text
from .folder import RunFolder

FORMAT = "converge-to-surprise clusters"
VERSION = 1
LONGEST_NAME = 100
FORBIDDEN = frozenset({"Cc", "Cs", "Zl", "Zp"})
"""Unicode categories that have no place in a name: control characters, lone surrogates, line and paragraph ends."""
DIRECTION_MARKS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They can make a name look like another one."""
FIELDS = frozenset({"cluster", "name", "into", "noise"})
CONTENT = ("clusters", "n_clusters", "leaves", "splits")
"""What a version of the file holds: clusters, the cut, names of sub-clusters, splits by hand."""


def read_annotations(path: Path, clusters: int, identity: str) -> Annotations:
    """Read and check a file for the run with this identity and number of clusters."""
    return _names(_read(path, identity)["clusters"], clusters, path)


def saved_annotations(run: RunFolder, clusters: int) -> Annotations:
    """Those of a finished run, or none."""
    if not _in_effect(run):
        return no_annotations(clusters)
    return read_annotations(run.annotations, clusters, run.description().identity)


def saved_cut(run: RunFolder, levels: int) -> int | None:
    """The number of clusters at which the merge tree of a finished run was cut by hand, at most ``levels``, or None."""
    data = _saved(run)
    return None if data is None else _cut(data, run.annotations, levels)


def apply_annotations(run: RunFolder, path: Path, clusters: int, levels: int = 0) -> Annotations:
    """Check a file and copy it into the run folder; the previous one is kept for ``undo_annotations``.

    The names are those of the run's own clusters, whatever the cut is. ``levels``: see ``saved_cut``.
    """
    data = _read(path, run.description().identity)
    names, cut = _names(data["clusters"], clusters, path), _cut(data, path, levels)
    given = {"clusters": data["clusters"], "n_clusters": cut, "leaves": _leaf_names(data, path)}
    with run.locked():
        # The page knows no splits by hand; those that are in effect stay.
        _append(run, given | {"splits": [path_text(path) for path in saved_tree_marks(run).splits]})
    return names


class TreeMarks(NamedTuple):
    """What a person did to the tree of sub-clusters."""

    names: dict[str, str]
    """Names of sub-clusters by path."""
    splits: list[TreePath]
    """Nodes that were split by hand."""


def saved_tree_marks(run: RunFolder) -> TreeMarks:
    """Those of a finished run, or none."""
    if (data := _saved(run)) is None:
        return TreeMarks({}, [])
    found = data.get("splits") or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f'{run.annotations} is damaged: "splits" is not a list of paths')
    return TreeMarks(_leaf_names(data, run.annotations), [parse_path(one) for one in found])


def add_split(run: RunFolder, path: TreePath) -> None:
    """Put a split by hand into effect; ``undo_annotations`` undoes it."""
    with run.locked():
        before = read_json(run.annotations) if run.annotations.is_file() else {}
        splits = [*(path_text(one) for one in saved_tree_marks(run).splits), path_text(path)]
        kept = {name: before.get(name) for name in ("n_clusters", "leaves")}
        _append(run, {"clusters": before.get("clusters", []), **kept, "splits": splits})


def undo_split(run: RunFolder, path: TreePath) -> None:
    """Take a split by hand, and those below it, out of effect. This too is a change that can be undone."""
    with run.locked():
        kept = [path_text(one) for one in without_split(run, path).splits]
        before = read_json(run.annotations)
        _append(run, {name: before.get(name) for name in CONTENT} | {"splits": kept})


def without_split(run: RunFolder, path: TreePath) -> TreeMarks:
    """The marks as they would be without a split by hand and those below it."""
    marks = saved_tree_marks(run)
    if path not in marks.splits:
        raise ValueError(f"cluster {path_text(path)} was not split by hand: there is nothing to undo")
    return marks._replace(splits=[one for one in marks.splits if one[: len(path)] != path])


def _append(run: RunFolder, content: dict[str, Any]) -> None:
    """Write a new version; the one before it is kept."""
    identity, earlier = run.description().identity, list[Any]()
    if run.annotations.is_file():
        before = _read(run.annotations, identity)
        earlier = [*_earlier(before, run.annotations), {name: before.get(name) for name in CONTENT}]
    _write(run, identity, content, earlier)


def _leaf_names(data: Any, path: Path) -> dict[str, str]:
    """The names of sub-clusters in a file, checked."""
    found = data.get("leaves") or {}
    if not isinstance(found, dict):
        raise ValueError(f'"leaves" in {path} is {found!r}; it must be a table of names by path')
    return {
        path_text(parse_path(text)): _checked_name(name, f"sub-cluster {text} in {path}")
        for text, name in found.items()
    }


def undo_annotations(run: RunFolder) -> bool:
    """Undo the last file that was applied. Returns whether an earlier one is in effect now."""
    with run.locked():
        if not run.annotations.is_file():
            raise ValueError(f"{run.path} was not relabeled: there is nothing to undo")
        *earlier, last = [None, *_earlier(read_json(run.annotations), run.annotations)]
        if last is None:
            run.annotations.unlink()
            return False
        content = {name: last.get(name) for name in CONTENT}
        _write(run, run.description().identity, content, earlier[1:])
        return True


def _write(run: RunFolder, identity: str, content: dict[str, Any], earlier: list[Any]) -> None:
    write_json(run.annotations, {"format": FORMAT, "version": VERSION, "run": identity, **content, "earlier": earlier})


def _cut(data: dict[str, Any], path: Path, levels: int) -> int | None:
    if (wanted := data.get("n_clusters")) is None:
        return None
    if isinstance(wanted, bool) or not isinstance(wanted, int) or not 1 <= wanted <= levels:
        raise ValueError(f'"n_clusters" in {path} is {wanted!r}; the merge tree of the run can be cut at 1 to {levels}')
    return wanted


def _saved(run: RunFolder) -> dict[str, Any] | None:
    """What is in effect for a finished run; None if nothing is."""
    return _read(run.annotations, run.description().identity) if _in_effect(run) else None


def _in_effect(run: RunFolder) -> bool:
    return run.annotations.is_file() and run.result.is_file()


def _read(path: Path, identity: str) -> dict[str, Any]:
    """The content of a file that lists clusters and belongs to the run with this identity."""
    data = read_json(path)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f'{path} is not a file of cluster names: its "format" is not {FORMAT!r}')
    if data.get("version") != VERSION:
        raise ValueError(f"{path} has version {data.get('version')!r}; this program reads version {VERSION}")
    if data.get("run") != identity:
        raise ValueError(f"{path} was saved from the report of another run; save it again from this run's report")
    entries = data.get("clusters")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise ValueError(f'{path} is damaged: "clusters" is not a list of clusters')
    return data


def _earlier(data: Any, path: Path) -> list[Any]:
    earlier = data.get("earlier", []) if isinstance(data, dict) else None
    if not isinstance(earlier, list) or not all(isinstance(one, dict) and "clusters" in one for one in earlier):
        raise ValueError(f'{path} is damaged: "earlier" is not a list of earlier versions')
    return earlier


def _names(entries: list[dict[str, Any]], clusters: int, path: Path) -> Annotations:
    names, into, noise = no_annotations(clusters)
    seen: set[int] = set()
    for entry in entries:
        number = _number(entry.get("cluster"), clusters, path, '"cluster"')
        where = f"cluster {number} in {path}"
        if unknown := sorted(entry.keys() - FIELDS):
            raise ValueError(f"{where} has the unknown field {unknown[0]!r}; the fields are {sorted(FIELDS)}")
        if number in seen:
            raise ValueError(f"{where} appears twice; leave one of the two")
        seen.add(number)
        if (name := entry.get("name")) is not None:
            names[number] = _checked_name(name, where)
        if (target := entry.get("into")) is not None:
            into[number] = _number(target, clusters, path, f'"into" of cluster {number}')
        if not isinstance(mark := entry.get("noise", False), bool):
            raise ValueError(f'"noise" of {where} is {mark!r}; it must be true or false')
        noise[number] = mark
        if mark and into[number] != number:
            raise ValueError(f"{where} is both noise and merged into cluster {into[number]}; it can be only one")
    roots = [_root(number, into, path) for number in range(clusters)]
    return Annotations(names, roots, [noise[root] for root in roots])


def _number(value: Any, clusters: int, path: Path, what: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < clusters:
        raise ValueError(f"{what} in {path} is {value!r}; the run has the clusters 0 to {clusters - 1}")
    return value


def _checked_name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"the name of {where} is {name!r}; it must be a text that is not empty")
    if len(name) > LONGEST_NAME:
        raise ValueError(f"the name of {where} has {len(name)} characters; at most {LONGEST_NAME} are allowed")
    for character in name:
        if unicodedata.category(character) in FORBIDDEN or character in DIRECTION_MARKS:
            raise ValueError(f"the name of {where} holds the control character U+{ord(character):04X}; remove it")
    return name.strip()


def _root(number: int, into: list[int], path: Path) -> int:
    """Where a chain of merges ends."""
    passed, last = {number: 0}, number  # in order, and quickly found again: chains can be long
    while (target := into[last]) != last:
        if target in passed:
            circle = " into ".join(map(str, [*list(passed)[passed[target] :], target]))
            raise ValueError(f"the merges in {path} go in a circle: {circle}")
        passed[target], last = len(passed), target
    return last
