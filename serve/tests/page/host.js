// A made-up host: each figure is a function of the time, so that two looks at one moment agree.

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;
const PAGE = 4096;

const KINDS = ["qemu", "qemu", "qemu", "uml", "service", "container", "process"];
const STATES = [
  ["probe", "a pass over new memory tells whether merging pays", "pages_to_scan 100 -> 1000"],
  ["burst", "1.2 GiB of new memory came; passes are paid for by what they save", "pages_to_scan 1000 -> 4000"],
  ["steady", "the last pass saved 38.1 MiB for each second of CPU", "pages_to_scan 4000 -> 800"],
  ["park", "another pass would save less than it costs", "run 1 -> 0"],
];
const DECISION_SECONDS = 300;

/** A wave between 0 and 1 of this period in seconds. */
function wave(time, period, phase = 0) {
  return 0.5 + 0.5 * Math.sin(((time + phase) / period) * 2 * Math.PI);
}

/** A made-up host with as many guests as asked for. */
export class Host {
  constructor({ name = "vmhost-1", guests = 12, hostileName = null, labels = {}, peers = [], clock = () => Date.now() / 1000 } = {}) {
    this.name = name;
    this.count = guests;
    this.hostileName = hostileName;
    // Each label with the values that the guests have in turn.
    this.labels = labels;
    this.peers = peers;
    this.clock = clock;
    this.startedAt = clock() - 3 * 3600;
    this.pid = 812;
    this.isUp = true;
    this.downReason = "the daemon does not answer at /run/ksmith/view.sock: connection refused; is ksmith.service running?";
    // What the tests of the alerts change.
    this.headroomBytes = null;
    this.cpuPercent = null;
    this.profitBytes = null;
    this.blindSource = null;
    this.mayShareAcross = false;
    this.staysMergeable = false;
    this.unbalanced = false;
    // What the tests of the page change.
    this.verdict = null;
    this.recordedSince = null;
  }

  now() {
    return this.clock();
  }

  /** As if the daemon had been started anew. */
  restart() {
    this.startedAt = this.now();
    this.pid += 1;
  }

  decisionAt(time) {
    const index = Math.floor(time / DECISION_SECONDS);
    const [state, reason, settings] = STATES[index % STATES.length];
    return { time: index * DECISION_SECONDS, policy: "profit", state, reason, reason_detail: `decision ${index}`, settings };
  }

  saved(time) {
    return Math.round((6 + 2 * wave(time, 3600) + 0.4 * wave(time, 97)) * GIB / PAGE) * PAGE;
  }

  /** Seconds until what is saved has changed so much that every text of it differs. */
  secondsToChange() {
    const now = this.now();
    let seconds = 60;
    while (Math.abs(this.saved(now + seconds) - this.saved(now)) < GIB / 2) seconds += 60;
    return seconds;
  }

  figures(time) {
    const saved = this.saved(time);
    const overhead = Math.round(saved * 0.035);
    const { state } = this.decisionAt(time);
    const busy = { probe: 4, burst: 14, steady: 6, park: 0 }[state];
    return {
      saved_bytes: saved,
      overhead_bytes: overhead,
      profit_bytes: this.profitBytes ?? saved - overhead,
      exposure_bytes: saved,
      headroom_bytes: this.headroomBytes ?? Math.round((11 + wave(time, 5000)) * GIB),
      ksmd_cpu_percent: this.cpuPercent ?? busy * (0.8 + 0.4 * wave(time, 61)),
      host_memory_bytes: 32 * GIB,
      host_available_bytes: Math.round((9 + wave(time, 5000)) * GIB),
      memory_pressure_percent: 2 * wave(time, 700) ** 8,
      daemon_cpu_percent: 0.4 + 0.1 * wave(time, 31),
    };
  }

  status() {
    const time = this.now();
    const figures = this.figures(time);
    const decision = this.decisionAt(time);
    const sharing = Math.round(figures.saved_bytes / PAGE);
    return {
      run: decision.state === "park" ? 0 : 1,
      pages_to_scan: 800,
      sleep_millisecs: 20,
      full_scans: Math.floor(time / 60) % 100000,
      pages_shared: Math.round(sharing / 9),
      pages_sharing: sharing,
      pages_unshared: sharing * 2,
      pages_volatile: Math.round(sharing / 20),
      page_size: PAGE,
      saved_bytes: figures.saved_bytes,
      overhead_bytes: figures.overhead_bytes,
      profit_bytes: figures.profit_bytes,
      exposure_bytes: figures.exposure_bytes,
      headroom_bytes: figures.headroom_bytes,
      ksmd_cpu_percent: figures.ksmd_cpu_percent,
      memory_pressure_percent: figures.memory_pressure_percent,
      host_memory_bytes: figures.host_memory_bytes,
      host_available_bytes: figures.host_available_bytes,
      huge_bytes: this.hugeBytes ?? 0,
      split_bytes: this.splitBytes ?? 0,
      split_cost_cpus: this.splitCost ?? 0,
      verdict: this.verdict ?? { level: "fine", sentence: "merging saves 7.00 GiB, and the host has 11.0 GiB if guests write to all of it" },
      processes: [],
      daemon: {
        policy: decision.policy,
        state: decision.state,
        reason: decision.reason,
        reason_detail: decision.reason_detail,
        pid: this.pid,
        cpu_seconds: (time - this.startedAt) * 0.004,
        rss_bytes: 14 * MIB,
        uptime_seconds: time - this.startedAt,
      },
      domains: {
        mode: "one",
        domains: ["acme", "lab"].map((domain) => ({
          domain,
          guests: Math.ceil(this.count / 2),
          mergeable_guests: Math.ceil(this.count / 2),
          merged_bytes: figures.saved_bytes / 2,
          saved_bytes: figures.saved_bytes / 2,
        })),
        may_share_across: this.mayShareAcross,
        meaning: "guests of acme may merge with each other, and with no other domain",
      },
      balance: this.balanceStatus(),
      errors: this.blindSource === null ? [] : [`${this.blindSource}: permission denied; run as root`],
    };
  }

  balanceStatus() {
    return { policy: "reclaim", state: "holding", reason: "3.1 GiB are available, which is enough", taken_bytes: GIB, exposed: null };
  }

  guestName(index) {
    if (index === 0 && this.hostileName !== null) return this.hostileName;
    return `web-${String(index + 1).padStart(this.count > 99 ? 4 : 2, "0")}`;
  }

  guestAt(index, time) {
    const weight = 1 / (1 + (index % 17));
    const merged = Math.round(weight * GIB * (0.8 + 0.2 * wave(time, 240, index * 20)) / PAGE) * PAGE;
    const costs = index % 11 === 10;
    const saved = costs ? MIB : Math.round(merged * 0.8);
    const metadata = costs ? 9 * MIB : Math.round(merged * 0.03);
    return { rss_bytes: 2 * GIB, merged_bytes: merged, saved_bytes: saved, profit_bytes: saved - metadata, metadata_bytes: metadata };
  }

  labelsOf(index) {
    return Object.fromEntries(Object.entries(this.labels).map(([name, values]) => [name, values[index % values.length]]));
  }

  /** What the guests with each value of a label saved, as the server answers `by=`. */
  historyBy(since, until, points, label) {
    const values = this.labels[label];
    const times = Array.from({ length: points }, (_, index) => since + ((until - since) * index) / (points - 1));
    const indices = Array.from({ length: this.count }, (_, index) => index);
    const saved = (value, time) => indices.filter((index) => this.labelsOf(index)[label] === value).reduce((sum, index) => sum + this.guestAt(index, time).saved_bytes, 0);
    const rows = times.map((time) => [time, ...values.map((value) => saved(value, time))]);
    return { since, until, label, columns: ["time", ...values], rows, decisions: [], events: [], guests: [] };
  }

  pidOf(index) {
    return 4000 + index;
  }

  guests() {
    const time = this.now();
    const host = this.figures(time);
    const guests = Array.from({ length: this.count }, (_, index) => {
      const figures = this.guestAt(index, time);
      const kind = KINDS[index % KINDS.length];
      return {
        name: this.guestName(index),
        uuid: kind === "qemu" ? `00000000-0000-4000-8000-${String(index).padStart(12, "0")}` : null,
        is_verified: kind === "qemu",
        kind,
        program: kind === "qemu" ? "qemu-system-x86_64" : kind,
        user: kind === "qemu" ? "libvirt-qemu" : "root",
        cgroup: `machine.slice/machine-qemu-${index}.scope`,
        domain: ["acme", "lab", null][index % 3],
        labels: this.labelsOf(index),
        obstacle: index % 13 === 12 ? "hugepages" : null,
        mergeable: index % 13 !== 12,
        has_remaining_mergeable: this.staysMergeable && index === 0,
        memory_bytes: kind === "qemu" ? 4 * GIB : null,
        rss_bytes: figures.rss_bytes,
        pss_bytes: index % 5 === 4 ? null : Math.round(figures.rss_bytes - figures.saved_bytes / 2),
        private_bytes: null,
        shared_bytes: null,
        merged_bytes: figures.merged_bytes,
        zero_bytes: Math.round(figures.merged_bytes / 10),
        saved_bytes: figures.saved_bytes,
        metadata_bytes: figures.metadata_bytes,
        profit_bytes: figures.profit_bytes,
        pids: [this.pidOf(index)],
        errors: index === 3 ? ["its monitor does not answer"] : [],
      };
    });
    guests.sort((a, b) => b.saved_bytes - a.saved_bytes);
    return {
      saved_bytes: host.saved_bytes,
      profit_bytes: host.profit_bytes,
      unattributed_bytes: 0,
      efficiency: { sharing_per_shared: 9, unshared_per_sharing: 2, volatile_part: 0.02 },
      cow_ksm: 81234,
      cow_ksm_per_second: 12.5,
      errors: [],
      guests,
    };
  }

  balance() {
    const time = this.now();
    const host = this.figures(time);
    const guests = Array.from({ length: Math.min(this.count, 6) }, (_, index) => {
      const given = (index === 0 ? 3 : 4) * GIB;
      const to = index === 0 && this.unbalanced ? 2 * GIB : null;
      return {
        key: `${this.pidOf(index)}:${1000 + index}`,
        name: this.guestName(index),
        class: { name: index === 0 ? "batch" : "normal", weight: index === 0 ? 10 : 100 },
        given_bytes: given,
        whole_bytes: 4 * GIB,
        resident_bytes: 2 * GIB,
        inside: { available_bytes: index === 4 ? null : GIB, free_bytes: GIB / 2, psi_some_percent: 0.1 },
        floor_bytes: GIB,
        ceiling_bytes: 4 * GIB,
        step_bytes: MIB,
        can_take: true,
        can_give: true,
        held: index === 5,
        merged_bytes: GIB / 2,
        giving_seconds: to === null ? null : 1200,
        trouble: index === 3 ? "it ignored its balloon" : null,
        way: "virtio-balloon",
        why_not: null,
        least_bytes: 1.5 * GIB,
        to_bytes: to,
        reason: to === null ? null : "the pool runs short, and batch gives first",
      };
    });
    return {
      is_enabled: true,
      ...this.balanceStatus(),
      taken_bytes: undefined,
      pool_name: "host",
      pool: {
        size_bytes: 32 * GIB,
        available_bytes: Math.round((3 + wave(time, 900)) * GIB),
        swap_out_bytes_per_second: 0,
        psi_some_percent: host.memory_pressure_percent,
        cow_bytes_per_second: 12.5 * PAGE,
        exposure_bytes: host.exposure_bytes,
        headroom_bytes: host.headroom_bytes,
      },
      low_bytes: 2 * GIB,
      high_bytes: 4 * GIB,
      guests,
      merging: [],
      recent: [
        {
          key: "4000:1000", name: this.guestName(0), seconds_ago: 340, from_bytes: 4 * GIB, to_bytes: 3 * GIB, got_bytes: 3 * GIB,
          error: null, reason: "the pool ran short, and batch gives first",
        },
      ],
    };
  }

  hosts() {
    const own = { name: this.name, url: "/", ok: this.isUp, error: this.isUp ? null : this.downReason, status: this.isUp ? this.status() : null };
    return [own, ...this.peers];
  }

  /** The guest of a history's id: by PID and start, by PID, or by name. */
  indexOf(guest) {
    const all = Array.from({ length: this.count }, (_, index) => index);
    return all.find((index) => [`${this.pidOf(index)}.${1000 + index}`, String(this.pidOf(index)), this.guestName(index)].includes(guest));
  }

  history(since, until, points, guest) {
    const seconds = Math.max(until - since, 1);
    const resolution = seconds <= 86400 ? 1 : seconds <= 30 * 86400 ? 60 : 3600;
    const step = Math.max(resolution, seconds / points);
    const columns = guest === null
      ? ["time", "saved_bytes", "profit_bytes", "exposure_bytes", "headroom_bytes", "ksmd_cpu_percent", "daemon_cpu_percent", "memory_pressure_percent",
        "host_memory_bytes", "host_available_bytes"]
      : ["time", "rss_bytes", "merged_bytes", "saved_bytes", "profit_bytes"];
    const index = guest === null ? null : this.indexOf(guest);
    const rows = [];
    for (let time = Math.ceil(since / step) * step; time <= until && rows.length < points; time += step) {
      if (this.recordedSince !== null && time < this.recordedSince) continue;
      const figures = guest === null ? this.figures(time) : index === undefined ? null : this.guestAt(index, time);
      if (figures !== null) rows.push(columns.map((column) => (column === "time" ? time : figures[column])));
    }
    const decisions = [];
    const first = Math.ceil(since / DECISION_SECONDS) * DECISION_SECONDS;
    for (let time = Math.max(first, until - 500 * DECISION_SECONDS); time <= until; time += DECISION_SECONDS) decisions.push(this.decisionAt(time));
    const guests = Array.from({ length: this.count }, (_, each) => ({
      id: `${this.pidOf(each)}.${1000 + each}`, name: this.guestName(each), uuid: null, kind: "qemu", domain: null, user: "libvirt-qemu",
      first: this.startedAt, last: null,
    }));
    const events = [
      { time: this.startedAt, kind: "daemon_started", text: "the daemon started" },
      { time: this.startedAt + 1, kind: "guest_appeared", text: "web-01 appeared" },
    ]
      .filter((event) => event.time >= since && event.time <= until);
    return { since, until, resolution_seconds: resolution, columns, rows, decisions, events, guests };
  }
}
