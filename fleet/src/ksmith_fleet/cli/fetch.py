"""`ksmith-fleet fetch` collects the sketches of hosts."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from pathlib import Path
from urllib.parse import urlsplit

from ksmith_fleet.cli.common import add_json, print_json
from ksmith_fleet.cli.messages import LOG, ExitCode, StrictError
from ksmith_fleet.cli.serve import read_bearer_tokens
from ksmith_fleet.fetch import Target, fetch_all, read_targets

HELP = "fetch the sketches of hosts from `ksmith serve --sketch`"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("hosts", nargs="*", metavar="URL", help="servers of hosts: http://HOST:9797")
    parser.add_argument("--targets", metavar="FILE", help="JSON of Prometheus' file discovery; the label __token_file__ goes before --token-file")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="directory of the sketches: HOST.parquet")
    parser.add_argument("--token-file", metavar="FILE", help="file with the token of the servers in its first line")
    parser.add_argument("--ca", metavar="FILE", help="certificates that sign those of https servers, instead of the system's")
    add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Fetches all sketches. The exit code is 1 if there is none."""
    targets = [Target(url, options.token_file) for url in options.hosts]
    targets += read_targets(options.targets, options.token_file) if options.targets else []
    if not targets:
        raise ValueError("name servers of hosts, or give --targets")
    urls = [target.url for target in targets]
    if wrong := [url for url in urls if urlsplit(url).scheme not in ("http", "https") or urlsplit(url).username]:
        raise ValueError(f"{wrong[0]} is no server of a host: give http://HOST:9797")
    if not options.out.is_dir():
        raise ValueError(f"{options.out} is not a directory")
    found = list(fetch_all(urls, _read_tokens(targets), options.out, options.ca))
    failed = [one for one in found if one.why is not None]
    for one in failed:
        LOG.warning("%s: %s", one.url, one.why)
    if options.json:
        print_json({"hosts": [asdict(one) for one in found]})
    else:
        print(f"{len(found) - len(failed)} of {len(found)} sketches fetched")
    if failed and options.strict:
        raise StrictError(f"{len(failed)} hosts gave no sketch, and --strict allows none")
    return ExitCode.DONE if len(failed) < len(found) else ExitCode.FAULT


def _read_tokens(targets: Sequence[Target]) -> list[str]:
    """Reads the token of each server. Raises `ValueError` if one has none."""
    read, tokens = cache(read_bearer_tokens), []
    for target in targets:
        if target.token_file is None:
            raise ValueError(f"{target.url} has no token: give --token-file, or the label __token_file__ of its target")
        tokens.append(read(target.token_file)[0])
    return tokens
