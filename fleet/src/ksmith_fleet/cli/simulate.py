"""`ksmith-fleet simulate` compares policies on made-up fleets."""

import argparse
import json
from dataclasses import asdict
from importlib import resources
from pathlib import Path

import numpy as np

from ksmith_fleet.cli.messages import name_left_out
from ksmith_fleet.cli.numbers import amount, count, part, some
from ksmith_fleet.consistency import Rules
from ksmith_fleet.dataset import engine_over, read_fleet
from ksmith_fleet.engine import Settings
from ksmith_fleet.estimate import alone
from ksmith_fleet.incidence import from_answer
from ksmith_fleet.simulate.churn import churn
from ksmith_fleet.simulate.fill import fill, fill_planned, limit
from ksmith_fleet.simulate.fit import Model, fit, load, save
from ksmith_fleet.simulate.generator import Diversity, make, problem_of
from ksmith_fleet.simulate.known import draw_counts, make_known, sketch_hosts
from ksmith_fleet.simulate.policies import POLICIES
from ksmith_fleet.simulate.write import write_sketch

RATE_BITS = 6
"""The rate of sketches that are written, 2 to the minus this."""
HELP = "compare policies on fleets from a generator that is fitted to real guests"


def add(parser: argparse.ArgumentParser) -> None:
    """Adds the options."""
    parser.add_argument(
        "what", choices=("fill", "churn", "sketches", "fit"), help="fill hosts, play arrivals and departures, write sketches, or fit a model"
    )
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
    parser.add_argument("--out", type=Path, help="fit: write the model to this file; sketches: write them to this directory")


def run(options: argparse.Namespace) -> int:
    """Runs the simulation. Each line on standard output is JSON."""
    if options.what == "fit":
        return _fit(options)
    if options.what == "sketches":
        return _write(options)
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


def _write(options: argparse.Namespace) -> int:
    """Writes the sketches of a made-up fleet, at the rate 1/64."""
    if not options.out:
        raise ValueError("sketches needs --out")
    random = np.random.default_rng(options.seed)
    fleet = make_known(options.hosts, random, most_guests=max(2, int(options.guests_per_host)))
    hosts = sketch_hosts(fleet, draw_counts(fleet, RATE_BITS, random), RATE_BITS, random)
    for host in hosts:
        write_sketch(host, options.out / f"{host.name}.parquet")
    print(
        json.dumps(
            {
                "hosts": len(hosts),
                "guests": len(fleet.host),
                "try": [f"ksmith-fleet overlap {options.out}", f"ksmith-fleet plan new {options.out} --goal empty"],
            }
        )
    )
    return 0


def _fit(options: argparse.Namespace) -> int:
    if not options.sketches or not options.out:
        raise ValueError("fit needs --sketches and --out")
    fleet, sketches = read_fleet(options.sketches, Rules(max_apart_s=1e9))
    name_left_out(fleet, options.strict)
    with engine_over(sketches, Settings()) as engine:
        incidence = from_answer(engine.ask("incidence"), len(fleet.guests), fleet.rate)
        inside = alone(fleet.guests, engine.ask("alone"), fleet.rate, incidence, engine.settings.max_sharing).saved
    model = fit(fleet.guests, sketches, inside)
    save(model, options.out)
    contents = sum(count for _, count in model.atoms)
    print(json.dumps({"guests": len(model.seen), "contents": contents, "sets": len(model.atoms), "out": str(options.out)}))
    return 0
