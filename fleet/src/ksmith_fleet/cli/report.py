"""`ksmith-fleet report` writes a page and metrics."""

import argparse
from pathlib import Path

from ksmith_fleet.cli import common
from ksmith_fleet.overlap import overlap
from ksmith_fleet.plan_file import read_plan
from ksmith_fleet.report.html import report
from ksmith_fleet.report.metrics import metrics
from ksmith_fleet.write import check_directory, replace_file

HELP = "write an HTML report with plots, and metrics for Prometheus"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    common.add_source(parser)
    common.add_json(parser)
    parser.add_argument("--plan", help="plan to show too")
    parser.add_argument("--html", type=Path, help="write the report to this file")
    parser.add_argument("--metrics", type=Path, help="write metrics to this file, such as one of the text file collector")


def run(options: argparse.Namespace) -> int:
    """Writes the files."""
    if not options.html and not options.metrics:
        raise ValueError("name a file with --html or --metrics")
    for path in (options.html, options.metrics):
        if path:
            check_directory(path)
    plan = read_plan(options.plan) if options.plan else None
    with common.opened(options) as (fleet, _, engine):
        if plan is not None and plan.key_id != fleet.hosts[0].key_id:
            raise ValueError("the sketches have another key than the plan")
        found = overlap(fleet, engine, engine.settings)
    for path, text in ((options.html, report), (options.metrics, metrics)):
        if path:
            replace_file(path, text(fleet, found, plan))
    if options.json:
        written = [str(path) for path in (options.html, options.metrics) if path]
        common.print_json({"written": written, "left_out": [str(left) for left in fleet.left_out]})
    return 0
