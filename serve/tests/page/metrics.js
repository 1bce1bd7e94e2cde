// The page /metrics of the mock: the names of the contract, from the figures of the made-up host.

/** Quotes a label's value. */
function quoted(text) {
  return `"${String(text ?? "").replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
}

/** The page as OpenMetrics text. */
export function metrics(host) {
  const families = new Map();
  const add = (name, value, labels = {}, type = "gauge") => {
    if (value === null || value === undefined) return;
    if (!families.has(name)) families.set(name, { type, lines: [] });
    const pairs = Object.entries(labels).map(([label, text]) => `${label}=${quoted(text)}`);
    const suffix = { counter: "_total", info: "_info" }[type] ?? "";
    families.get(name).lines.push(`${name}${suffix}${pairs.length > 0 ? `{${pairs.join(",")}}` : ""} ${Number(value)}`);
  };
  add("ksmith_up", host.isUp);
  add("ksmith_build", 1, { version: "mock" }, "info");
  if (host.isUp) {
    const status = host.status();
    for (const key of ["saved_bytes", "profit_bytes", "exposure_bytes", "headroom_bytes", "overhead_bytes", "pages_sharing", "pages_shared"]) {
      add(`ksmith_${key}`, status[key]);
    }
    add("ksmith_full_scans", status.full_scans, {}, "counter");
    add("ksmith_ksmd_cpu_ratio", status.ksmd_cpu_percent / 100);
    add("ksmith_limit_cpu_ratio", 0.2);
    add("ksmith_policy", 1, { policy: status.daemon.policy, state: status.daemon.state }, "info");
    add("ksmith_controller_cpu_seconds", status.daemon.cpu_seconds, {}, "counter");
    add("ksmith_controller_rss_bytes", status.daemon.rss_bytes);
    add("ksmith_controller_uptime_seconds", status.daemon.uptime_seconds, {}, "counter");
    for (const source of ["/sys/kernel/mm/ksm", "/proc/meminfo", "/proc/vmstat", "/proc/pressure/memory"]) {
      add("ksmith_source_healthy", source !== host.blindSource, { source });
    }
    add("ksmith_domains_may_share_across", status.domains.may_share_across);
    for (const domain of status.domains.domains) {
      add("ksmith_domain_saved_bytes", domain.saved_bytes, { domain: domain.domain });
      add("ksmith_domain_mergeable_guests", domain.mergeable_guests, { domain: domain.domain });
    }
    const { guests } = host.guests();
    add("ksmith_guests", guests.length);
    add("ksmith_guests_not_shown", 0);
    for (const guest of guests) {
      const labels = { guest: guest.name, uuid: guest.uuid, kind: guest.kind, domain: guest.domain };
      for (const key of ["rss_bytes", "merged_bytes", "saved_bytes", "profit_bytes", "has_remaining_mergeable"]) add(`ksmith_guest_${key}`, guest[key], labels);
    }
    const balance = host.balance();
    add("ksmith_balance_taken_bytes", status.balance.taken_bytes);
    for (const key of ["size_bytes", "available_bytes", "exposure_bytes", "headroom_bytes"]) add(`ksmith_pool_${key}`, balance.pool[key]);
    for (const guest of balance.guests) {
      const labels = { guest: guest.name, class: guest.class.name };
      for (const key of ["given_bytes", "whole_bytes", "to_bytes", "giving_seconds"]) add(`ksmith_balanced_guest_${key}`, guest[key], labels);
    }
  }
  const text = [...families].map(([name, { type, lines }]) => [`# TYPE ${name} ${type}`, ...lines].join("\n"));
  return `${text.join("\n")}\n# EOF\n`;
}
