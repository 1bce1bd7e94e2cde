"""Fits the generator to real guests, and says how well it foretells guests that it has not seen."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated

import numpy as np
import numpy.typing as npt
from pydantic import BeforeValidator, TypeAdapter
from scipy.optimize import minimize
from scipy.special import expit

from ksmith_fleet.declared import CLOSED, parse_json
from ksmith_fleet.files import Sketch
from ksmith_fleet.model import Guest

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def _from_hexadecimal(value: object) -> object:
    return int(value, 16) if isinstance(value, str) else value


GuestSet = Annotated[int, BeforeValidator(_from_hexadecimal)]
"""A set of guests as bits, which a file has as a hexadecimal number."""


@dataclass(frozen=True)
class Seen:
    """A real guest as the model keeps it. Pages are those of `ksmith sketch`."""

    name: str
    release: str
    role: str
    pages: int
    zero_pages: int
    inside: float
    """Pages that KSM saves if the guest is alone, without zero pages."""
    contents: int
    """Sampled contents."""


@dataclass(frozen=True)
class Model:
    """The real guests, the sets of guests that hold the same contents, and the chance that one more guest holds a content.

    `chance = logistic(weights . features)`, where the features are the parts of the guests of the same image, release, role
    and of all others that hold the content.
    """

    __pydantic_config__ = CLOSED

    rate: float
    page_size: int
    seen: list[Seen]
    atoms: list[tuple[GuestSet, int]]
    """Sets of guests, as bits, and the number of sampled contents that exactly these guests hold."""
    weights: list[float] = field(default_factory=list)

    def matrix(self) -> Bools:
        """Gives a row for each atom and a column for each guest."""
        return np.array([[mask >> g & 1 for g in range(len(self.seen))] for mask, _ in self.atoms], dtype=bool)

    def counts(self) -> Floats:
        """Gives the number of contents of each atom."""
        return np.array([count for _, count in self.atoms], dtype=np.float64)


_MODEL_FORMAT = TypeAdapter(Model)


def kind_of(name: str) -> tuple[str, str]:
    """Splits a guest's name, such as `trixie-web2`, into release and role."""
    release, _, role = name.partition("-")
    return release, re.sub(r"\d+$", "", role)


def features(model: Model, release: str, role: str, without: Sequence[int] = ()) -> Floats:
    """Gives for each atom how many of the like guests hold it, in parts, if the guests `without` are not known."""
    held = model.matrix()
    columns = []
    known = [g for g in range(len(model.seen)) if g not in without]
    groups: list[list[int]] = [[], [], [], []]
    for g in known:
        same_release, same_role = model.seen[g].release == release, model.seen[g].role == role
        groups[0 if same_release and same_role else 1 if same_release else 2 if same_role else 3].append(g)
    for group in groups:
        columns.append(held[:, group].mean(axis=1) if group else np.zeros(len(held)))
    one, two, three, four = columns
    constant = np.ones(len(held))
    return np.stack([constant, one, two, three, four, one * two, one * three, one * four, (one > 0).astype(float), (two > 0).astype(float)], axis=1)


def chances(model: Model, release: str, role: str, without: Sequence[int] = ()) -> Floats:
    """Gives for each atom the chance that one more guest of this image holds a content of it."""
    x = features(model, release, role, without)
    found: Floats = expit(x @ np.array(model.weights))
    # What no known guest holds, no chance can be given for: such contents are the new guest's own.
    known = [g for g in range(len(model.seen)) if g not in without]
    return np.where(model.matrix()[:, known].any(axis=1), found, 0.0)


def _learn(model: Model, guests: Sequence[int]) -> list[float]:
    """Fits the weights by foretelling each of the guests from all others."""
    x, y, n = [], [], []
    held, counts = model.matrix(), model.counts()
    for g in guests:
        rest = [other for other in range(len(model.seen)) if other != g]
        known = held[:, rest].any(axis=1)
        x.append(features(model, model.seen[g].release, model.seen[g].role, [g])[known])
        y.append(held[known, g])
        n.append(counts[known])
    all_x, all_y, all_n = np.concatenate(x), np.concatenate(y).astype(np.float64), np.concatenate(n)

    def loss(weights: Floats) -> tuple[float, Floats]:
        logit = all_x @ weights
        value = float((all_n * (np.logaddexp(0, logit) - all_y * logit)).sum()) + 0.5 * float(weights @ weights)
        return value, all_x.T @ (all_n * (expit(logit) - all_y)) + weights

    answer = minimize(loss, np.zeros(all_x.shape[1]), jac=True, method="L-BFGS-B", options={"maxiter": 500})
    return [float(weight) for weight in answer.x]


def _twins(model: Model) -> list[int]:
    """Gives the guests that have another of the same image: only from these can be learned what an image's guests share."""
    kinds = [(seen.release, seen.role) for seen in model.seen]
    return [g for g, kind in enumerate(kinds) if kinds.count(kind) > 1]


def fit(guests: Sequence[Guest], sketches: Sequence[Sketch], inside: Floats) -> Model:
    """Fits a model to the guests of these sketches, at their rate."""
    number: dict[int, int] = {}
    first = 0
    contents = np.zeros(len(guests), dtype=np.int64)
    for sketch in sketches:
        for at, fingerprint, copies in zip(sketch.guest_of_row, sketch.fingerprints, sketch.copies, strict=True):
            if copies > 0:
                number[int(fingerprint)] = number.get(int(fingerprint), 0) | 1 << (first + int(at))
                contents[first + int(at)] += 1
        first += len(sketch.guests)
    masks: dict[int, int] = {}
    for mask in number.values():
        masks[mask] = masks.get(mask, 0) + 1
    seen = [Seen(g.name, *kind_of(g.name), g.pages, g.zero_pages, float(inside[at]), int(contents[at])) for at, g in enumerate(guests)]
    model = Model(2.0 ** -sketches[0].host.rate_bits, sketches[0].host.page_size, seen, sorted(masks.items()))
    model.weights.extend(_learn(model, _twins(model)))
    return model


@dataclass(frozen=True)
class Foretold:
    """One pair of guests: what they share, and what the model foretold without having seen the first or its image's twins."""

    guest: str
    other: str
    relation: str
    actual: float
    foretold: float


def hold_out(model: Model) -> list[Foretold]:
    """Foretells each guest that has a twin: weights are learned from other images, and the guest itself is not known."""
    held, counts = model.matrix(), model.counts()
    result = []
    twins = _twins(model)
    for g in twins:
        one = model.seen[g]
        others = [t for t in twins if (model.seen[t].release, model.seen[t].role) != (one.release, one.role)]
        learned = Model(model.rate, model.page_size, model.seen, model.atoms, _learn(model, others))
        chance = chances(learned, one.release, one.role, [g])
        for h, two in enumerate(model.seen):
            if h != g:
                same = (one.release == two.release, one.role == two.role)
                relation = {(True, True): "image", (True, False): "release", (False, True): "role", (False, False): "none"}[same]
                actual = float(counts[held[:, g] & held[:, h]].sum())
                result.append(Foretold(one.name, two.name, relation, actual, float((counts * chance)[held[:, h]].sum())))
    return result


def save(model: Model, path: Path) -> None:
    """Writes a model as JSON."""
    said = asdict(model) | {"atoms": [[format(mask, "x"), count] for mask, count in model.atoms]}
    path.write_text(json.dumps(said, separators=(",", ":")) + "\n", encoding="utf-8")


def load(path: Path) -> Model:
    """Reads a model."""
    try:
        return parse_json(_MODEL_FORMAT, path.read_bytes())
    except ValueError as error:
        raise ValueError(f"{path} is no model: {error}") from error
