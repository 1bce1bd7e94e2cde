"""Plots what `bench/scale.py` printed, without a library: python bench/scale_plot.py OUT.svg < LINES."""

import json
import sys
from math import log10
from pathlib import Path

WIDTH, HEIGHT, LEFT, TOP, GAP = 380, 260, 60, 30, 90
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00")
rows = [json.loads(line) for line in sys.stdin]
commands = list(dict.fromkeys(row["command"] for row in rows))


def panel(left: int, field: str, title: str, low: float, high: float) -> list[str]:
    """Draws one figure against millions of rows, both as powers of ten."""

    def at(millions: float, value: float) -> str:
        x = left + log10(millions) / 2 * WIDTH
        return f"{x:.1f},{TOP + HEIGHT * (1 - (log10(value) - low) / (high - low)):.1f}"

    drawn = [f'<text x="{left}" y="{TOP - 12}">{title}</text>']
    for power in range(int(low), int(high) + 1):
        x, y = at(1, 10**power).split(",")
        drawn += [
            f'<path d="M{x},{y}h{WIDTH}" stroke="#ddd"/>',
            f'<text x="{left - 6}" y="{float(y) + 4:.1f}" text-anchor="end">{10**power:,}</text>',
        ]
    for millions in sorted({row["millions"] for row in rows}):
        x = at(millions, 10**low).split(",")[0]
        drawn.append(f'<text x="{x}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{millions:g}</text>')
    drawn.append(f'<text x="{left + WIDTH / 2}" y="{TOP + HEIGHT + 36}" text-anchor="middle">million rows</text>')
    for command, colour in zip(commands, COLOURS, strict=False):
        points = [at(row["millions"], row[field]) for row in rows if row["command"] == command]
        drawn.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        drawn += ['<circle cx="{}" cy="{}" r="3" fill="{}"/>'.format(*point.split(","), colour) for point in points]
    return drawn


right = 2 * LEFT + WIDTH + GAP - 60
drawn = panel(LEFT, "cpu_seconds", "CPU seconds", 0, 3) + panel(right, "peak_mib", "peak of memory, MiB", 2, 4)
for number, (command, colour) in enumerate(zip(commands, COLOURS, strict=False)):
    y = TOP + 14 + number * 18
    drawn += [f'<rect x="{LEFT + 8}" y="{y - 9}" width="10" height="10" fill="{colour}"/>', f'<text x="{LEFT + 24}" y="{y}">{command}</text>']
size = f'width="{right + WIDTH + 20}" height="{TOP + HEIGHT + 50}"'
head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="sans-serif" font-size="12"><rect {size} fill="white"/>'
Path(sys.argv[1]).write_text(head + "\n".join(drawn) + "</svg>\n", encoding="utf-8")
