"""Compares what a plan promised with what hosts save by newer sketches."""

from dataclasses import dataclass
from enum import StrEnum
from statistics import NormalDist

from ksmith_fleet.estimate import zero_saved
from ksmith_fleet.interval import Z95, Estimate
from ksmith_fleet.model import Fleet, Guest, Host
from ksmith_fleet.plan_file import HostPromise, Plan

FALSE_ALARMS = 0.04
"""The part of all plans that came true of which a host or the whole may be said not to keep its promise.

Half of it is the whole's, which alone finds what all hosts lack in part. The hosts share the other half (Bonferroni)."""


WITHIN = 0.05
"""The part of a promise that guests may have changed since the plan, if nothing else is said."""
Z95_ONE_SIDED = 1.644854
"""The normal quantile of a one-sided interval of 95 %."""


class Verdict(StrEnum):
    """What can be said of a promise."""

    KEPT = "kept"
    """As much is saved as was promised, or what is saved fits to the promise and not to a plan that gained nothing."""
    NOT_KEPT = "not kept"
    """Less is saved than any error of sampling explains, or a guest is not where the plan has it."""
    CANNOT_TELL = "can't tell"
    """What is saved fits to the promise and to no gain, or is not known."""


@dataclass(frozen=True)
class Kept:
    """One host, or all of them: what was promised, and what KSM saves there now."""

    host: str
    promised: Estimate
    saved: int | None
    """What KSM saves of its guests, without zero pages. `None` if it is not known, as `why` says."""
    why: str
    strangers: list[str]
    """Guests that are there and that the plan has elsewhere or does not know."""
    missing: list[str]
    """Guests that the plan has there and that are not."""
    verdict: Verdict
    unverified: int = 0
    """The part of `saved` that no page tables confirm."""

    @property
    def distance(self) -> float | None:
        """Gives how far the saving is from the promise, in parts of the promise."""
        if self.saved is None or not self.promised.expected:
            return None
        return self.saved / self.promised.expected - 1.0


@dataclass(frozen=True)
class Checked:
    """All hosts and the whole. What they save together tells more than each of them: their errors even out."""

    hosts: list[Kept]
    whole: Kept

    @property
    def verdict(self) -> Verdict:
        """Says whether the plan came true."""
        if any(kept.verdict is Verdict.NOT_KEPT for kept in (*self.hosts, self.whole)):
            return Verdict.NOT_KEPT
        return self.whole.verdict


def check(plan: Plan, fleet: Fleet, within: float = WITHIN) -> Checked:
    """Compares host by host. Savings are the sum of the hosts' accounts of their guests.

    `within` is the part of a promise that guests may have changed since the plan.
    """
    names = {guest.id: guest.name for guest in fleet.guests}
    hosts = {host.name: host for host in fleet.hosts}
    planned = {promise.host: promise.time_ms for promise in plan.hosts}
    newer = {host.name for host in fleet.hosts if host.time_ms > planned.get(host.name, plan.time_ms)}
    where = {guest.id: guest.host for guest in fleet.guests if guest.host in newer}
    # Each promise may fail by chance, but those that no sampling is in.
    uncertain = sum(promise.saved_after.low < promise.saved_after.high for promise in plan.hosts)
    z = _quantile(max(1, uncertain))
    guests_of: dict[str, list[Guest]] = {}
    for guest in fleet.guests:
        guests_of.setdefault(guest.host, []).append(guest)
    names_of_moved = {step.guest_id: step.guest for step in plan.steps}
    wanted_on: dict[str, set[str]] = {}
    for identity, host in plan.placement.items():
        wanted_on.setdefault(host, set()).add(identity)
    result = []
    for promise in plan.hosts:
        guests, wanted = guests_of.get(promise.host, []), wanted_on.get(promise.host, set())
        saved, why = _saved(promise, hosts.get(promise.host), guests)
        # Another host's older sketch may claim it as well.
        skipped = hosts[promise.host].skipped if promise.host in newer else ()
        disputed = {identity for identity in wanted if identity not in where and names_of_moved.get(identity) in skipped}
        if disputed:
            saved, why = None, "no sketch says what all of its guests save: take new ones of all hosts"
            wanted = wanted - disputed
        # Where no newer sketch is, a guest is missing only if it is elsewhere by one.
        missing = sorted(names.get(i, i) for i in wanted if where.get(i, "" if promise.host in newer else promise.host) != promise.host)
        slack = promise.changing_bytes + within * promise.saved_after.expected
        unverified = 0 if saved is None else min(saved, hosts[promise.host].unverified_bytes)
        verdict = judge_bounds(promise.saved_before, promise.saved_after, saved, unverified, slack, z)
        result.append(
            Kept(
                host=promise.host,
                promised=promise.saved_after,
                saved=saved,
                why=why,
                strangers=sorted(guest.name for guest in guests if promise.host in newer and guest.id not in wanted),
                missing=missing,
                verdict=Verdict.NOT_KEPT if missing else verdict,
                unverified=unverified,
            )
        )
    return Checked(result, _whole(plan, result, within))


def _quantile(promises: int) -> float:
    """Gives the one-sided normal quantile for each of so many promises that have half of the false alarms together."""
    return NormalDist().inv_cdf(1.0 - FALSE_ALARMS / 2 / promises)


def _whole(plan: Plan, hosts: list[Kept], within: float) -> Kept:
    """Judges the sum of all hosts, if all are known."""
    known = [kept.saved for kept in hosts if kept.saved is not None]
    saved = sum(known) if len(known) == len(hosts) else None
    before, after = plan.saved_before, plan.saved_after
    slack = sum(promise.changing_bytes for promise in plan.hosts) + within * after.expected
    why = "" if saved is not None else "not all hosts are known"
    missing = any(kept.missing for kept in hosts)
    unverified = sum(kept.unverified for kept in hosts)
    verdict = judge_bounds(before, after, saved, unverified, slack, _quantile(1), plan.gain_high_bytes > 0)
    return Kept("all hosts", after, saved, why, [], [], Verdict.NOT_KEPT if missing else verdict, unverified)


def judge_bounds(
    before: Estimate, after: Estimate, saved: int | None, unverified: int, slack: float, z: float, may_gain: bool | None = None
) -> Verdict:
    """Judges what is saved as `judge` does. A promise is kept only if it is also kept without what is unverified."""
    verdict = judge(before, after, saved, slack, z, may_gain)
    if saved is None or verdict is not Verdict.KEPT:
        return verdict
    return verdict if judge(before, after, saved - unverified, slack, z, may_gain) is verdict else Verdict.CANNOT_TELL


def judge(before: Estimate, after: Estimate, saved: int | None, slack: float, z: float, may_gain: bool | None = None) -> Verdict:
    """Judges what is saved by the promise and by what was saved before, which a plan that gains nothing would leave.

    `may_gain` says whether the plan may have gained something. Without it that is so if it promises a gain.
    """
    if saved is None:
        return Verdict.CANNOT_TELL
    # The lower side of an interval says how little may be saved, unless it ends at 0.
    error = (after.expected - after.low if after.low > 0 else after.high - after.expected) / Z95
    if saved < after.expected - z * error - slack:
        return Verdict.NOT_KEPT
    no_gain = before.expected + (before.high - before.expected) * Z95_ONE_SIDED / Z95
    if may_gain is None:
        may_gain = before.expected < after.expected
    if may_gain and saved < after.expected and saved <= no_gain:
        return Verdict.CANNOT_TELL
    return Verdict.KEPT


def _saved(promise: HostPromise, host: Host | None, guests: list[Guest]) -> tuple[int | None, str]:
    """Gives what KSM saves of the guests without zero pages, which are in no promise."""
    if host is None:
        return None, "it has no sketch that can be used"
    if host.time_ms <= promise.time_ms:
        return None, "its sketch is no newer than the plan's: take one after `apply`"
    if any(guest.saved_bytes is None for guest in guests):
        return None, "its sketch lacks what KSM saves"
    zero = sum(guest.zero_saved_bytes or 0 for guest in guests)
    if any(guest.zero_saved_bytes is None for guest in guests):
        zero = host.zero_bytes
    if not host.use_zero_pages:
        # KSM merges zero pages like any other content here, and its account does not tell them apart.
        zero += round(zero_saved(sum(guest.zero_pages for guest in guests), False, host.max_page_sharing) * host.page_size)
    return max(0, sum(guest.saved_bytes or 0 for guest in guests) - zero), ""
