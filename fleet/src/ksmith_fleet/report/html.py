"""The report of a fleet: what is saved, what could be, and the plan. The summary comes first."""

from html import escape
from pathlib import Path

import numpy as np

from ksmith_fleet.interval import Estimate
from ksmith_fleet.model import Fleet
from ksmith_fleet.overlap import Overlap
from ksmith_fleet.plan_file import Plan
from ksmith_fleet.report.plots import bar_table, heat_map

STYLE = (
    Path(__file__).with_name("look.css").read_text("utf-8")
    + ".n{text-align:right;white-space:nowrap}.report .n{overflow-wrap:normal}"
    + ".bar{position:relative;height:.9rem;min-width:6rem}.bar i{position:absolute;top:0;bottom:0;left:0;background:var(--saved)}"
    + ".bar b{position:absolute;top:45%;height:2px;background:var(--text)}"
    + "@media print{details>*{display:revert}}@media(max-width:600px){.wide{display:none}.bar{min-width:4rem}}"
)
"""The look of all reports of ksmith, which is a link to `serve/assets/look.css`, and the bars of this one."""
GIB_FROM = 10 * 1024.0
"""MiB from which an amount is written in GiB."""
MOST_IN_MAP = 60
MOST_LISTED = 30
"""The rows of a table that are shown at once. The others are folded away."""


def report(fleet: Fleet, found: Overlap, plan: Plan | None) -> str:
    """Writes the whole page. All names are escaped, since guests choose some of them."""
    page = fleet.page_size / 2**20
    names = [f"{guest.host}/{guest.name}" for guest in fleet.guests]
    images = [image for image in found.images if len(image.guests) > 1]
    zeros, changing = (sum(getattr(host, name) for host in found.hosts) * page for name in ("zero_pages", "changing"))
    summary = [
        f"Saved by KSM on the hosts as they are, if all guests merge: <b>{_interval(found.saved.times(page))}</b>.",
        f"Equal on different hosts, and so not merged: <b>{_interval(found.across_hosts.times(page))}</b>.",
        f"Zero pages, which any host frees, and which no other figure has: {zeros:,.1f} MiB. "
        f"Pages that change and may merge or not: {changing:,.1f} MiB.",
    ]
    if plan is not None:
        moved = sum(step.bytes for step in plan.steps) / 2**20
        summary.append(
            f"The plan: {len(plan.steps)} moves of {moved:,.0f} MiB; saves {_interval(plan.saved_after.times(2**-20))} "
            f"instead of {_interval(plan.saved_before.times(2**-20))}."
        )
    if fleet.left_out:
        summary.append(f"{len(fleet.left_out)} files, hosts or guests are left out, as listed below.")
    hosts = sorted(found.hosts, key=lambda host: -host.saved.expected)
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>ksmith fleet</title><style>{STYLE}</style><body class=report>",
        f"<h1>Fleet of {len(fleet.hosts)} hosts and {len(fleet.guests)} guests</h1>",
        "<ul>" + "".join(f"<li>{line}</li>" for line in summary) + "</ul>",
        f"<p>Sampled at 1/{1 << fleet.rate_bits}. Intervals hold the truth in 95 of 100 cases.</p><h2>Saved on each host, all guests merging</h2>",
        bar_table([(fleet.hosts[h.host].name, f"{h.guests}", h.saved.times(page)) for h in hosts], "Guests", MOST_LISTED),
    ]
    order = [guest for image in found.images for guest in image.guests][:MOST_IN_MAP]
    if order:
        common = found.incidence.subset(np.array(order, dtype=np.int64)).common() * found.incidence.weight
        sizes = np.maximum(1.0, np.minimum.outer(found.alone.contents[order], found.alone.contents[order]))
        note = f" (the first {MOST_IN_MAP})" if len(names) > MOST_IN_MAP else ""
        parts.append(f"<h2>Common contents of guests{note}</h2>" + heat_map([names[g] for g in order], (common / sizes).tolist()))
    if images:
        lines = [f"<b>{len(image.guests)} guests</b>, of which two have {_interval(image.common.times(page))} in common: " for image in images]
        items = [f"<li>{line}{_names([names[g] for g in image.guests])}</li>" for line, image in zip(lines, images, strict=True)]
        parts.append(f"<h2>Images</h2><ul>{''.join(items[:MOST_LISTED])}</ul>")
        if len(items) > MOST_LISTED:
            parts.append(f"<details><summary>{len(items) - MOST_LISTED} more images</summary><ul>{''.join(items[MOST_LISTED:])}</ul></details>")
    if plan is not None:
        parts.append(_plan(plan))
    left = [str(one) for one in fleet.left_out]
    if left:
        parts.append("<h2>Left out</h2><ul>" + "".join(f"<li>{escape(one)}</li>" for one in left) + "</ul>")
    return "\n".join(parts) + "\n</html>\n"


def _interval(value: Estimate) -> str:
    unit, factor = ("GiB", 2**-10) if value.expected >= GIB_FROM else ("MiB", 1.0)
    return f"{value.expected * factor:,.1f} {unit} ({value.low * factor:,.1f} to {value.high * factor:,.1f})"


def _names(names: list[str]) -> str:
    """Writes the names, beyond some folded away."""
    text = escape(", ".join(names[:MOST_LISTED]))
    if len(names) > MOST_LISTED:
        text += f"<details><summary>{len(names) - MOST_LISTED} more</summary>{escape(', '.join(names[MOST_LISTED:]))}</details>"
    return text


def _plan(plan: Plan) -> str:
    rows = "".join(
        f"<tr><td>{step.number}<td>{escape(step.guest)}<td>{escape(step.source)}<td>{escape(step.target)}"
        f"<td class=n>{step.bytes / 2**20:,.0f}<td class=n>{step.gain_bytes / 2**20:,.1f}</tr>"
        for step in plan.steps
    )
    touched = {host for step in plan.steps for host in (step.source, step.target)}
    changed = [(h.host, f"{h.guests_before} to {h.guests_after}", h.saved_after.times(2**-20)) for h in plan.hosts if h.host in touched]
    return (
        f"<h2>Plan</h2><p>Gains {_interval(plan.gain.times(2**-20))}; {plan.distance:.1%} from the bound.</p>"
        f"<table><tr><th>Move<th>Guest<th>From<th>To<th>MiB moved<th>MiB gained</tr>{rows}</table>"
        "<h3>Saved after the plan, where guests come or go</h3>" + bar_table(changed, "Guests", MOST_LISTED)
    )
