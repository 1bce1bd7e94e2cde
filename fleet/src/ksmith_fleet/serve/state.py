"""What the service answers from: the fleet as it was last read, and the newest plan."""

import argparse
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ksmith_fleet.cli import common
from ksmith_fleet.cli.admission import admission
from ksmith_fleet.cli.messages import LOG
from ksmith_fleet.overlap import Overlap, overlap
from ksmith_fleet.plan_file import BadPlanError, Plan, read_plan
from ksmith_fleet.report.metrics import metrics
from ksmith_fleet.rules import Rules, read_rules


class NotReadyError(Exception):
    """No sketches have been read yet; the text says why."""


@dataclass(frozen=True)
class Snapshot:
    """A fleet with what answers need, as it was read at a time."""

    read: common.Read
    found: Overlap
    rules: Rules
    time_s: float
    """Seconds since 1970."""


@dataclass
class FleetState:
    """The newest snapshot, which a thread replaces as a whole, and plans in a directory."""

    options: argparse.Namespace
    plans: Path | None
    clock: Callable[[], float] = time.time
    snapshot: Snapshot | None = None
    fault: str | None = "the sketches are being read"
    """Why the newest read has failed. Answers then come from the snapshot before it."""
    plan_fault: str | None = None
    """Why the newest plan has failed."""
    stopped: threading.Event = field(default_factory=threading.Event)

    def refresh(self) -> None:
        """Reads rules and sketches anew. Any fault leaves the snapshot as it is."""
        try:
            rules = read_rules(self.options.rules)
            with common.opened(self.options) as (fleet, _, engine):
                found = overlap(fleet, engine, engine.settings)
                read = common.read_opened(self.options, fleet, engine)
        except Exception as error:
            # The service goes on, whatever a file has done to a library.
            self.fault = str(error) or type(error).__name__
            LOG.error("the sketches cannot be read: %s", self.fault)
            return
        self.snapshot, self.fault = Snapshot(read, found, rules, self.clock()), None

    def refresh_always(self, every_s: float) -> None:
        """Reads again and again until the service stops."""
        while True:
            self.refresh()
            if self.stopped.wait(every_s):
                return

    def admit(self, like: str) -> dict[str, Any]:
        """Gives the hosts for one more guest like another. Raises `BadRulesError` if no guest or two have that name."""
        snapshot = self._ready()
        return admission(snapshot.read, snapshot.rules, like)

    def newest_plan(self) -> Plan | None:
        """Gives the newest plan that can be read."""
        for path in sorted(self.plans.glob("plan-*.json") if self.plans else (), reverse=True):
            try:
                return read_plan(str(path))
            except BadPlanError as error:
                LOG.warning("%s", error)
        return None

    def metrics(self) -> str:
        """Writes the metrics of the fleet, of its newest plan, and of the service itself."""
        snapshot = self._ready()
        fleet, plan = snapshot.read.fleet, self.newest_plan()
        if plan is not None and plan.key_id != fleet.hosts[0].key_id:
            plan = None
        own = {
            "read_time_seconds": ("Time of the last read of all sketches.", snapshot.time_s),
            "read_failed": ("1 if the newest read has failed.", self.fault is not None),
            "plan_failed": ("1 if the newest plan of the night has failed.", self.plan_fault is not None),
        }
        lines = [
            f"# HELP ksmith_fleet_{name} {text}\n# TYPE ksmith_fleet_{name} gauge\nksmith_fleet_{name} {value:.0f}\n"
            for name, (text, value) in own.items()
        ]
        return metrics(fleet, snapshot.found, plan) + "".join(lines)

    def _ready(self) -> Snapshot:
        if self.snapshot is None:
            raise NotReadyError(self.fault)
        return self.snapshot
