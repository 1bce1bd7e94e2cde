"""Packs full-rate sketches of guests into patterns, for test data: python bench/patterns.py SKETCHES TRUTH.jsonl OUT.json.

SKETCHES has one file a guest, at rate 1. A pattern says with how many copies, and how many steady ones, each guest holds a content; OUT has each
pattern with the number of contents that have it. Fingerprints are random numbers, so this is all that a sketch at any rate and
under any key says, and `draw` makes such sketches again. TRUTH goes into OUT too: what KSM merged of which guests.
"""

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from ksmith_fleet.files import read_sketch


def main() -> None:
    """Packs a directory."""
    from pyarrow import parquet

    paths = sorted(Path(sys.argv[1]).glob("*.parquet"))
    contents: dict[int, list[tuple[int, int, int]]] = {}
    guests = []
    for at, path in enumerate(paths):
        [guest] = read_sketch(str(path)).guests
        guests.append({"name": path.stem, "pages": guest.pages, "zero_pages": guest.zero_pages})
        table = parquet.read_table(path, columns=["fingerprint", "copies", "steady"])
        table = table.filter(table["fingerprint"].is_valid())
        rows = zip(*(table[name].to_numpy().tolist() for name in table.column_names), strict=True)
        for fingerprint, copies, steady in rows:
            contents.setdefault(fingerprint, []).append((at, copies, steady))
    patterns = Counter(tuple(held) for held in contents.values())
    truths = [json.loads(line) for line in Path(sys.argv[2]).read_text().splitlines()]
    merged = [{"guests": truth["guests"], "sharing": truth["sharing"]} for truth in truths if not truth["foreign"]]
    ordered = sorted(patterns.items(), key=lambda entry: (-entry[1], entry[0]))
    said = {"guests": guests, "truths": merged, "patterns": [[count, *np.ravel(held).tolist()] for held, count in ordered]}
    Path(sys.argv[3]).write_text(json.dumps(said, separators=(",", ":")).replace("],[", "],\n[") + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
