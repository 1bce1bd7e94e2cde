"""Metrics of a fleet in Prometheus' text format, for the node exporter's text file collector."""

from ksmith_fleet.model import Fleet
from ksmith_fleet.overlap import Overlap
from ksmith_fleet.plan_file import Plan


def _label(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def metrics(fleet: Fleet, found: Overlap, plan: Plan | None) -> str:
    """Writes all metrics. Labels are hosts alone, so that their number stays bounded."""
    page = fleet.page_size
    lines: list[str] = []

    def family(name: str, text: str, rows: list[tuple[str, float]]) -> None:
        lines.extend([f"# HELP ksmith_fleet_{name} {text}", f"# TYPE ksmith_fleet_{name} gauge"])
        lines.extend(f"ksmith_fleet_{name}{labels} {value:.0f}" for labels, value in rows)

    def by_host(values: list[tuple[str, float]]) -> list[tuple[str, float]]:
        return [(f'{{host="{_label(host)}"}}', value) for host, value in values]

    family("hosts", "Hosts with a sketch that is used.", [("", len(fleet.hosts))])
    family("guests", "Guests with a sketch that is used.", [("", len(fleet.guests))])
    family("left_out", "Files, hosts and guests that are left out.", [("", len(fleet.left_out))])
    family("sketch_time_seconds", "Time of the oldest sketch.", [("", min(host.time_ms for host in fleet.hosts) / 1000)])
    saved = [(fleet.hosts[h.host].name, h.saved.expected * page) for h in found.hosts]
    family("expected_saved_bytes", "Bytes that KSM saves if all guests merge, without zero pages.", by_host(saved))
    family("unmerged_across_hosts_bytes", "Bytes that equal contents on different hosts take.", [("", found.across_hosts.expected * page)])
    if plan is not None:
        family("plan_gain_bytes", "Bytes that the plan saves more than now.", [("", plan.gain_bytes)])
        family("plan_moves", "Live migrations of the plan.", [("", len(plan.steps))])
        family("plan_promised_bytes", "Bytes saved after the plan.", by_host([(h.host, h.saved_after.expected) for h in plan.hosts]))
    return "\n".join(lines) + "\n"
