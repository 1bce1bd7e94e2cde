"""Plots as SVG text."""

from collections.abc import Sequence
from html import escape


def heat_map(names: Sequence[str], values: Sequence[Sequence[float]], size: int = 560) -> str:
    """Draws a square table of values from 0 to 1 as shades. Each cell has its value as a title."""
    count = max(1, len(names))
    cell = size / count
    margin = 150
    parts = [f'<svg viewBox="0 0 {size + margin} {size + margin}" width="{size + margin}" role="img" aria-label="heat map of overlap">']
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            shade = round(255 * (1 - min(1.0, max(0.0, value))))
            title = escape(f"{names[row]} and {names[column]}: {value:.0%}")
            parts.append(
                f'<rect x="{margin + column * cell:.1f}" y="{margin + row * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
                f'fill="rgb({shade},{shade},255)"><title>{title}</title></rect>'
            )
    font = max(4.0, min(11.0, cell))
    for at, name in enumerate(names):
        middle = margin + (at + 0.5) * cell
        text = escape(name)
        parts.append(f'<text x="{margin - 4}" y="{middle:.1f}" font-size="{font:.1f}" text-anchor="end" dominant-baseline="middle">{text}</text>')
        parts.append(
            f'<text transform="translate({middle:.1f},{margin - 4}) rotate(-90)" font-size="{font:.1f}" dominant-baseline="middle">{text}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def bars(rows: Sequence[tuple[str, float, float, float]], unit: str, width: int = 640) -> str:
    """Draws a bar with an interval for each row: name, value, low, high."""
    most = max([high for _, _, _, high in rows] + [1e-9])
    height = 22 * len(rows) + 10
    parts = [f'<svg viewBox="0 0 {width} {height}" width="{width}" role="img" aria-label="bars of {escape(unit)}">']
    scale = (width - 300) / most
    for at, (name, value, low, high) in enumerate(rows):
        y = 5 + 22 * at
        parts.append(f'<text x="145" y="{y + 12}" font-size="11" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="150" y="{y + 2}" width="{max(0.0, value) * scale:.1f}" height="14" fill="#4472c4"/>')
        parts.append(f'<line x1="{150 + low * scale:.1f}" x2="{150 + high * scale:.1f}" y1="{y + 9}" y2="{y + 9}" stroke="black"/>')
        parts.append(f'<text x="{156 + high * scale:.1f}" y="{y + 13}" font-size="11">{value:,.1f} {escape(unit)}</text>')
    return "\n".join([*parts, "</svg>"])
