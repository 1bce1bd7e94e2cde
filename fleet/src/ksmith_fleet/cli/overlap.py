"""`ksmith-fleet overlap` says which guests could share memory."""

import argparse
import json
from dataclasses import asdict

from ksmith_fleet.cli import common
from ksmith_fleet.cli.numbers import count
from ksmith_fleet.overlap import overlap

HELP = "say which guests could share memory, within and across hosts"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    common.add_source(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--top", type=count, default=20, help="pairs to list (20)")


def run(options: argparse.Namespace) -> int:
    """Prints the overlap."""
    with common.opened(options) as (fleet, _, engine):
        found = overlap(fleet, engine, common.settings(options, fleet))
    page = fleet.page_size
    names = [f"{guest.host}/{guest.name}" for guest in fleet.guests]
    if options.json:
        print(
            json.dumps(
                {
                    "rate": fleet.rate,
                    "hosts": [
                        {
                            "host": fleet.hosts[h.host].name,
                            "saved_bytes": asdict(h.saved.times(page)),
                            "across_bytes": asdict(h.across.times(page)),
                        }
                        for h in found.hosts
                    ],
                    "pairs": [
                        {
                            "a": names[p.a],
                            "b": names[p.b],
                            "bytes": asdict(p.pages.times(page)),
                            "same_host": p.same_host,
                        }
                        for p in found.pairs
                    ],
                    "images": [[names[g] for g in image] for image in found.images],
                    "popular_bytes": asdict(found.popular_pages.times(page)),
                    "across_hosts_bytes": asdict(found.across_hosts.times(page)),
                    "left_out": [str(left) for left in fleet.left_out],
                },
                indent=1,
            )
        )
        return 0
    for host in found.hosts:
        saved = host.saved.times(page)
        print(
            f"{fleet.hosts[host.host].name}: KSM saves {common.mib(saved.expected)} ({common.mib(saved.low)} to {common.mib(saved.high)}), "
            f"{common.mib(host.across.expected * page)} of it across guests"
        )
    across = found.across_hosts.times(page)
    print(f"on different hosts, and so not merged: {common.mib(across.expected)} ({common.mib(across.low)} to {common.mib(across.high)})")
    print(f"held by more than {options.popular_above} guests: {common.mib(found.popular_pages.expected * page)}")
    for number, image in enumerate(found.images, 1):
        if len(image) > 1:
            print(f"image {number}: {', '.join(names[g] for g in image)}")
    for pair in found.pairs[: options.top]:
        size = pair.pages.times(page)
        where = "one host" if pair.same_host else "two hosts"
        print(f"{names[pair.a]} and {names[pair.b]} ({where}): {common.mib(size.expected)} ({common.mib(size.low)} to {common.mib(size.high)})")
    return 0
