"""The report of a fleet: what is saved, what could be, and the plan."""

from html import escape

import numpy as np

from ksmith_fleet.model import Fleet
from ksmith_fleet.overlap import Overlap
from ksmith_fleet.plan_file import Plan
from ksmith_fleet.report.plots import bars, heat_map

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}"
    "td,th{border:1px solid #ccc;padding:.2rem .5rem;text-align:left}svg{max-width:100%;height:auto}"
)
MOST_IN_MAP = 60


def report(fleet: Fleet, found: Overlap, plan: Plan | None) -> str:
    """Writes the whole page. All names are escaped, since guests choose some of them."""
    page = fleet.page_size / 2**20
    names = [f"{guest.host}/{guest.name}" for guest in fleet.guests]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>ksmith fleet</title><style>{STYLE}</style><h1>Fleet of {len(fleet.hosts)} hosts and {len(fleet.guests)} guests</h1>",
        f"<p>Sampled at {fleet.rate:g}. Lines in the bars are intervals of 95 %.</p><h2>Saved on each host, all guests merging</h2>",
        bars([(fleet.hosts[h.host].name, h.saved.expected * page, h.saved.low * page, h.saved.high * page) for h in found.hosts], "MiB"),
    ]
    across = found.across_hosts.times(page)
    parts.append(
        f"<p>On different hosts, and so not merged: {across.expected:,.1f} MiB ({across.low:,.1f} to {across.high:,.1f}). "
        f"Contents that very many guests hold: {found.popular_pages.expected * page:,.1f} MiB.</p>"
    )
    order = [guest for image in found.images for guest in image][:MOST_IN_MAP]
    if order:
        common = found.incidence.subset(np.array(order, dtype=np.int64)).common() * found.incidence.weight
        sizes = np.maximum(1.0, np.minimum.outer(found.alone.contents[order], found.alone.contents[order]))
        note = f" (the first {MOST_IN_MAP})" if len(names) > MOST_IN_MAP else ""
        parts.append(f"<h2>Common contents of guests{note}</h2>" + heat_map([names[g] for g in order], (common / sizes).tolist()))
    parts.append("<h2>Images</h2><ul>")
    parts += [f"<li>{escape(', '.join(names[g] for g in image))}</li>" for image in found.images if len(image) > 1]
    parts.append("</ul>")
    if plan is not None:
        parts.append(_plan(plan))
    left = [str(one) for one in fleet.left_out]
    if left:
        parts.append("<h2>Left out</h2><ul>" + "".join(f"<li>{escape(one)}</li>" for one in left) + "</ul>")
    return "\n".join(parts) + "\n</html>\n"


def _plan(plan: Plan) -> str:
    rows = "".join(
        f"<tr><td>{step.number}<td>{escape(step.guest)}<td>{escape(step.source)}<td>{escape(step.target)}"
        f"<td>{step.bytes / 2**20:,.0f}<td>{step.gain_bytes / 2**20:,.1f}</tr>"
        for step in plan.steps
    )
    promises = bars([(h.host, h.saved_after.expected / 2**20, h.saved_after.low / 2**20, h.saved_after.high / 2**20) for h in plan.hosts], "MiB")
    return (
        f"<h2>Plan</h2><p>Gains {plan.gain_bytes / 2**20:,.1f} MiB; {plan.distance:.1%} from the bound.</p>"
        f"<table><tr><th>Move<th>Guest<th>From<th>To<th>MiB moved<th>MiB gained</tr>{rows}</table><h3>Saved after the plan</h3>{promises}"
    )
