"""`ksmith-fleet overlap` says which guests could share memory."""

import argparse
from dataclasses import asdict
from typing import Any

from ksmith_fleet.cli import common
from ksmith_fleet.cli.numbers import count
from ksmith_fleet.key_change import key_change
from ksmith_fleet.model import Fleet
from ksmith_fleet.overlap import Overlap, overlap

HELP = "say which guests could share memory, within and across hosts"


MOST_NAMES = 10
"""The guests of an image that are named."""


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    common.add_source(parser)
    common.add_json(parser)
    parser.add_argument("--top", type=count, default=20, help="pairs to list (20)")


def run(options: argparse.Namespace) -> int:
    """Prints the overlap."""
    with common.opened(options) as (fleet, _, engine):
        found = overlap(fleet, engine, engine.settings)
    names = [f"{guest.host}/{guest.name}" for guest in fleet.guests]
    if options.json:
        common.print_json(_json(fleet, found, names))
    else:
        _show(fleet, found, names, options)
    return 0


def _json(fleet: Fleet, found: Overlap, names: list[str]) -> dict[str, Any]:
    page, change = fleet.page_size, key_change(fleet.hosts)
    return {
        "rate": fleet.rate,
        "saved_bytes": asdict(found.saved.times(page)),
        "hosts": [
            {
                "host": fleet.hosts[h.host].name,
                "guests": h.guests,
                "saved_bytes": asdict(h.saved.times(page)),
                "across_bytes": asdict(h.across.times(page)),
                "zero_bytes": h.zero_pages * page,
                "changing_bytes": h.changing * page,
            }
            for h in found.hosts
        ],
        "pairs": [{"a": names[p.a], "b": names[p.b], "bytes": asdict(p.pages.times(page)), "same_host": p.same_host} for p in found.pairs],
        "images": [{"guests": [names[g] for g in image.guests], "common_bytes": asdict(image.common.times(page))} for image in found.images],
        "popular_bytes": asdict(found.popular_pages.times(page)),
        "across_hosts_bytes": asdict(found.across_hosts.times(page)),
        "next_key": asdict(change) if change else None,
        "left_out": [str(left) for left in fleet.left_out],
    }


def _show(fleet: Fleet, found: Overlap, names: list[str], options: argparse.Namespace) -> None:
    page = fleet.page_size
    zeros, changing = (sum(getattr(host, name) for host in found.hosts) * page for name in ("zero_pages", "changing"))
    print(f"{len(fleet.hosts)} hosts with {len(fleet.guests)} guests, sampled at {fleet.rate:g}; intervals of 95 %")
    print(f"KSM saves on the hosts as they are, if all guests merge: {common.mib_interval(found.saved.times(page))}")
    print(f"  besides, zero pages, which any host saves: {common.mib(zeros)}; pages that change and may merge or not: {common.mib(changing)}")
    print(f"equal on different hosts, and so not merged: {common.mib_interval(found.across_hosts.times(page))}")
    if found.popular:
        print(f"  contents that more than {options.popular_above} guests hold: {common.mib_interval(found.popular_pages.times(page))}")
    if change := key_change(fleet.hosts):
        unready = f"; not yet: {', '.join(change.unready)}" if change.unready else ""
        print(f"{len(change.ready)} of {len(fleet.hosts)} hosts are ready for the next key ({change.key_id[:8]}){unready}")
    for host in found.hosts:
        across = f"; across guests {common.mib_interval(host.across.times(page))}" if host.across.expected else ""
        guests = "1 guest" if host.guests == 1 else f"{host.guests} guests"
        print(f"{fleet.hosts[host.host].name}: {guests}; saves {common.mib_interval(host.saved.times(page))}{across}")
    for number, image in enumerate(found.images, 1):
        if len(image.guests) > 1:
            shown = ", ".join(names[g] for g in image.guests[:MOST_NAMES])
            more = f" and {len(image.guests) - MOST_NAMES} more" if len(image.guests) > MOST_NAMES else ""
            size = common.mib_interval(image.common.times(page))
            print(f"image {number}: {len(image.guests)} guests, of which two have {size} in common: {shown}{more}")
    for pair in found.pairs[: options.top]:
        where = "one host" if pair.same_host else "two hosts"
        print(f"{names[pair.a]} and {names[pair.b]} ({where}): {common.mib_interval(pair.pages.times(page))}")
