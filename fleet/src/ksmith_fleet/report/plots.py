"""Plots as SVG text."""

from collections.abc import Sequence
from html import escape

from ksmith_fleet.interval import Estimate


def heat_map(names: Sequence[str], values: Sequence[Sequence[float]], size: int = 560) -> str:
    """Draws a square table of values from 0 to 1 as shades. Each cell has its value as a title."""
    count = max(1, len(names))
    cell = size / count
    font = max(4.0, min(11.0, cell))
    margin = round(8 + 0.62 * font * max((len(shortened(name)) for name in names), default=0))
    parts = [f'<svg viewBox="0 0 {size + margin} {size + margin}" width="{size + margin}" role="img" aria-label="heat map of overlap">']
    for row, line in enumerate(values):
        for column, value in enumerate(line):
            shade = round(255 * (1 - min(1.0, max(0.0, value))))
            title = escape(f"{names[row]} and {names[column]}: {value:.0%}")
            parts.append(
                f'<rect x="{margin + column * cell:.1f}" y="{margin + row * cell:.1f}" width="{cell:.1f}" height="{cell:.1f}" '
                f'fill="rgb({shade},{shade},255)"><title>{title}</title></rect>'
            )
    for at, name in enumerate(names):
        middle = margin + (at + 0.5) * cell
        text = f"{escape(shortened(name))}<title>{escape(name)}</title>"
        parts.append(f'<text x="{margin - 4}" y="{middle:.1f}" font-size="{font:.1f}" text-anchor="end" dominant-baseline="middle">{text}</text>')
        parts.append(
            f'<text transform="translate({middle:.1f},{margin - 4}) rotate(-90)" font-size="{font:.1f}" dominant-baseline="middle">{text}</text>'
        )
    return "\n".join([*parts, "</svg>"])


def bar_table(rows: Sequence[tuple[str, str, Estimate]], column: str, shown: int) -> str:
    """Writes a table with a bar for each row: name, the text of `column`, and an estimate in MiB. Beyond `shown` rows are folded away."""
    scale = 100 / max([value.high for _, _, value in rows] + [1e-9])
    lines = []
    for name, text, value in rows:
        bar = f"<i style='width:{value.expected * scale:.1f}%'></i>"
        line = f"<b style='left:{value.low * scale:.1f}%;width:{(value.high - value.low) * scale:.1f}%'></b>"
        lines.append(
            f"<tr><td>{escape(name)}<td>{escape(text)}<td class=n>{value.expected:,.1f}"
            f"<td class='n wide'>{value.low:,.1f} to {value.high:,.1f}"
            f"<td><div class=bar>{bar}{line}</div></tr>"
        )
    head = f"<table><tr><th>Host<th>{escape(column)}<th>MiB<th class=wide>Interval<th></tr>"
    table = head + "".join(lines[:shown]) + "</table>"
    if len(lines) > shown:
        table += f"<details><summary>{len(lines) - shown} more hosts</summary>{head}{''.join(lines[shown:])}</table></details>"
    return table


def shortened(name: str, length: int = 22) -> str:
    """Gives the end of a name that is too long for its place. The beginning is its host."""
    return name if len(name) <= length else "…" + name[1 - length :]
