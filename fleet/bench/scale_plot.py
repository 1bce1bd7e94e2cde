"""Draws what `bench/scale.py` measured: python bench/scale_plot.py SCALE.jsonl OUT.svg. Seconds and memory over rows, both logarithmic."""

import json
import math
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

WIDTH, HEIGHT, MARGIN, GAP = 380, 260, 60, 40
COLOURS = {"duckdb": "#c47f00", "spark": "#2f6db5"}
NAMES = {"duckdb": "DuckDB", "spark": "Spark, two workers"}

Series = dict[str, dict[float, float]]


def read(path: Path) -> tuple[Series, Series]:
    """Gives for each engine and size the seconds of all questions, and the peak memory in MiB of all processes."""
    seconds: Series = {}
    memory: Series = {}
    for line in map(json.loads, path.read_text().splitlines()):
        engine, size = line.get("engine"), line["millions"]
        if "question" in line:
            at = seconds.setdefault(engine, {})
            at[size] = at.get(size, 0.0) + line["seconds"]
        elif "peak_mib" in line:
            memory.setdefault(engine, {})[size] = line["peak_mib"] + line.get("cluster_peak_mib", 0)
    return seconds, memory


def axis(values: list[float]) -> Callable[[float], float]:
    """Maps values to parts of an axis that ends at powers of ten."""
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return lambda value: (math.log10(value) - low) / max(1, high - low)


def powers(values: list[float]) -> list[float]:
    """Gives the powers of ten from below the least value to above the largest."""
    return [10.0**at for at in range(math.floor(math.log10(min(values))), math.ceil(math.log10(max(values))) + 1)]


def panel(series: Series, left: int, title: str, unit: str) -> list[str]:
    """Draws one plot with its axes."""
    sizes = sorted({size for points in series.values() for size in points})
    values = [value for points in series.values() for value in points.values()]
    across, up = axis(sizes), axis(values)

    def x(size: float) -> float:
        return left + across(size) * WIDTH

    def y(value: float) -> float:
        return MARGIN + (1 - up(value)) * HEIGHT

    parts = [f'<text x="{left}" y="{MARGIN - 22}" font-size="15" font-weight="bold">{escape(title)}</text>']
    for value in powers(values):
        parts.append(f'<line x1="{left}" x2="{left + WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}" stroke="#ddd"/>')
        parts.append(f'<text x="{left - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:,.0f}</text>')
    for size in sizes:
        parts.append(f'<line x1="{x(size):.1f}" x2="{x(size):.1f}" y1="{MARGIN}" y2="{MARGIN + HEIGHT}" stroke="#eee"/>')
        parts.append(f'<text x="{x(size):.1f}" y="{MARGIN + HEIGHT + 18}" text-anchor="middle">{size:g}</text>')
    parts.append(f'<text x="{left + WIDTH / 2}" y="{MARGIN + HEIGHT + 38}" text-anchor="middle">million rows</text>')
    for engine, points in sorted(series.items()):
        at = sorted(points.items())
        line = " ".join(f"{x(size):.1f},{y(value):.1f}" for size, value in at)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{COLOURS[engine]}" stroke-width="2"/>')
        for size, value in at:
            dot = f'<circle cx="{x(size):.1f}" cy="{y(value):.1f}" r="4" fill="{COLOURS[engine]}">'
            parts.append(f"{dot}<title>{NAMES[engine]}, {size:g} million rows: {value:,.0f} {unit}</title></circle>")
        size, value = at[0]
        parts.append(f'<text x="{x(size) + 8:.1f}" y="{y(value) + 18:.1f}" fill="{COLOURS[engine]}">{NAMES[engine]}</text>')
    return parts


def main() -> None:
    """Draws both plots side by side."""
    seconds, memory = read(Path(sys.argv[1]))
    whole = 2 * (WIDTH + MARGIN) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {whole} {HEIGHT + 2 * MARGIN}" width="{whole}" role="img"'
    parts = [
        f'{head} aria-label="seconds and memory of DuckDB and Spark over rows" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        *panel(seconds, MARGIN, "Seconds for the three questions", "s"),
        *panel(memory, 2 * MARGIN + WIDTH + GAP // 2, "Peak memory of all processes, MiB", "MiB"),
        "</svg>",
    ]
    Path(sys.argv[2]).write_text("\n".join(parts) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
