"""`ksmith-fleet simulate` compares policies on made-up fleets."""

import argparse
import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path

from ksmith_fleet.cli.numbers import amount, count, part, some
from ksmith_fleet.consistency import Rules
from ksmith_fleet.dataset import EngineChoice, engine_over, read_fleet
from ksmith_fleet.engines import Settings
from ksmith_fleet.estimate import alone
from ksmith_fleet.simulate.churn import churn
from ksmith_fleet.simulate.fill import fill, fill_planned, limit
from ksmith_fleet.simulate.fit import Model, fit, load, save
from ksmith_fleet.simulate.generator import Diversity, make, problem_of
from ksmith_fleet.simulate.policies import POLICIES

HELP = "compare policies on fleets from a generator that is fitted to real guests"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument("what", choices=("fill", "churn", "fit"), help="fill hosts, play arrivals and departures, or fit a model")
    parser.add_argument("--hosts", type=some, default=100, help="number of hosts (100)")
    parser.add_argument("--guests-per-host", type=amount, default=10.0, help="memory of a host, in guests of mean size (10)")
    parser.add_argument("--policies", nargs="+", choices=[*POLICIES, "ksmith"], default=[*POLICIES, "ksmith"])
    parser.add_argument("--seed", type=count, default=1)
    parser.add_argument("--releases", type=some, default=4, help="variants of each real release (4)")
    parser.add_argument("--roles", type=some, default=2, help="variants of each real role (2)")
    parser.add_argument("--private", type=amount, default=1.0, help="factor on the pages that no other guest has (1)")
    parser.add_argument("--divergence", type=part, default=0.2, help="part of the savings that hosts must be able to lose (0.2)")
    parser.add_argument("--contents", type=some, default=300, help="sampled contents of a guest (300)")
    parser.add_argument("--seconds", type=amount, default=20.0, help="fill: time for each search (20)")
    parser.add_argument("--events", type=count, default=2000, help="churn: arrivals and departures (2000)")
    parser.add_argument("--moves", type=count, default=1, help="churn: guests that ksmith may move after each event (1)")
    parser.add_argument("--model", type=Path, help="model that `fit` wrote (default: the one of 30 Debian guests)")
    parser.add_argument("--sketches", help="fit: sketches of guests named RELEASE-ROLE")
    parser.add_argument("--out", type=Path, help="fit: write the model to this file")


def run(options: argparse.Namespace) -> int:
    """Runs the simulation. Each line is JSON."""
    if options.what == "fit":
        return _fit(options)
    model = _model(options.model)
    diversity = Diversity(options.releases, options.roles, options.private)
    guests = int(options.hosts * options.guests_per_host * 4)
    crowd = make(model, guests, options.seed, diversity, options.contents)
    capacity = float(crowd.pages.mean() * options.guests_per_host)
    problem = problem_of(crowd, options.hosts, capacity, options.divergence)
    if options.what == "churn":
        for policy in options.policies:
            played = churn(problem, policy, options.events, int(options.hosts * options.guests_per_host * 2), options.seed, options.moves)
            print(json.dumps(asdict(played)), flush=True)
        return 0
    counts = {}
    for policy in options.policies:
        if policy != "ksmith":
            filled = fill(problem, policy, options.seed)
            counts[policy] = filled.guests
            print(json.dumps(asdict(filled)), flush=True)
    most = limit(problem)
    if "ksmith" in options.policies:
        filled = fill_planned(problem, max(1, int(options.hosts * options.guests_per_host)), most, options.seconds)
        gains = {f"over_{policy}": round(filled.guests / count - 1, 4) for policy, count in counts.items() if count}
        print(json.dumps(asdict(filled) | gains | {"of_bound": round(filled.guests / most, 4)}), flush=True)
    print(json.dumps({"bound": most, "hosts": options.hosts, "images": int(crowd.image.max()) + 1}), flush=True)
    return 0


def _model(path: Path | None) -> Model:
    if path is not None:
        return load(path)
    with resources.as_file(resources.files("ksmith_fleet").joinpath("simulate", "debian.json")) as kept:
        return load(kept)


def _fit(options: argparse.Namespace) -> int:
    if not options.sketches or not options.out:
        raise ValueError("fit needs --sketches and --out")
    fleet, sketches = read_fleet(options.sketches, Rules(max_apart_s=1e9))
    with engine_over(sketches, EngineChoice(), Settings()) as engine:
        inside = alone(fleet.guests, engine.ask("alone"), fleet.rate).saved
    model = fit(fleet.guests, sketches, inside)
    save(model, options.out)
    print(f"{len(model.seen)} guests, {sum(count for _, count in model.atoms)} contents in {len(model.atoms)} sets")
    return 0
