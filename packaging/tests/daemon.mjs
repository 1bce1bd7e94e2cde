// Stands in for a daemon at its read-only socket: the answers of a real one, with the figures of a made-up host.
//
// `node daemon.mjs SOCKET NAME` answers until its standard input ends. There it takes commands, one a line: `set KEY JSON` sets a
// setting of the host, or with a path such as `status.sample.hidden_processes` as KEY a value in its answers; `restart` begins its
// uptime anew.

import { readFileSync, rmSync } from "node:fs";
import { createServer } from "node:net";
import { createInterface } from "node:readline";

import { Host } from "../../serve/tests/page/host.js";

const ANSWERS = JSON.parse(readFileSync(new URL("answers.json", import.meta.url), "utf8"));
const PAGE = 4096;
/** Bytes of KSM's metadata for each page that it tracks. */
const METADATA = 64;
const ABSENT = "absent";

const value = (it) => ({ value: it });

/** The status, as a daemon answers it. */
function status(host) {
  const [figures, shown] = [host.figures(host.now()), host.status()];
  const answer = structuredClone(ANSWERS.status);
  const sharing = figures.saved_bytes / PAGE;
  // A loss is made of pages that are tracked and not merged.
  const loss = figures.profit_bytes < 0 ? (figures.saved_bytes - figures.profit_bytes) / METADATA : sharing;
  Object.assign(answer.sample.ksm, {
    smart_scan: ABSENT, full_scans: value(shown.full_scans), general_profit: ABSENT, run: value(shown.run), pages_shared: value(shown.pages_shared),
    pages_sharing: value(sharing), pages_unshared: value(Math.ceil(loss)), pages_volatile: value(0), ksm_zero_pages: value(0),
  });
  answer.sample.host.memory = value({ ...answer.sample.host.memory.value, total: 2 ** 40, available: figures.headroom_bytes, swap_free: 0, swap_total: 0 });
  answer.sample.host.memory_pressure = value({ some: { avg10: figures.memory_pressure_percent, total_us: 0 } });
  answer.sample.hidden_processes = 0;
  if (host.blindSource !== null) answer.sample.host.vmstat = "denied";
  answer.ksmd_cpu_percent = figures.ksmd_cpu_percent;
  answer.daemon = { ...answer.daemon, ...shown.daemon };
  answer.domains = shown.domains;
  answer.balance = shown.balance;
  return answer;
}

/** The guests, as a daemon answers them. */
function guests(host) {
  const [first] = ANSWERS.guests.guests;
  const shown = host.guests();
  const made = shown.guests.map((guest) => {
    const of = (template) => Object.fromEntries(Object.entries(template).map(([key, old]) => [key, key in guest ? guest[key] : old]));
    return { ...of(first), figures: of(first.figures), processes: [{ pid: guest.pids[0], start_ticks: 1 }] };
  });
  return { ...ANSWERS.guests, saved_bytes: shown.saved_bytes, profit_bytes: shown.profit_bytes, guests: made };
}

/** The balance, as a daemon answers it. */
function balance(host) {
  const shown = host.balance();
  const rows = shown.guests.map(({ giving_seconds: seconds, ...guest }) => ({
    ...guest, inside: { ...ANSWERS.balance.guests[0].inside, ...guest.inside }, giving_for: seconds === null ? null : { secs: seconds, nanos: 0 },
  }));
  return { answer: "balance", ...shown, guests: rows };
}

const KINDS = { status, guests, balance };

/** An answer with the values that were set at paths within it. */
function overlaid(kind, host, overlay) {
  const answer = structuredClone(KINDS[kind](host));
  for (const [path, set] of overlay) {
    const [first, ...names] = path.split(".");
    if (first !== kind) continue;
    const last = names.pop();
    names.reduce((part, name) => part[name], answer)[last] = set;
  }
  return answer;
}

/** A daemon's read-only socket over a made-up host. */
export class StandIn {
  constructor(path, host) {
    Object.assign(this, { path, host, connections: new Set(), overlay: new Map() });
  }

  listen() {
    this.server = createServer((connection) => {
      this.connections.add(connection);
      connection.on("close", () => this.connections.delete(connection));
      connection.on("error", () => connection.destroy());
      createInterface({ input: connection }).on("line", (line) => {
        const kind = JSON.parse(line).request;
        const isKnown = Object.hasOwn(KINDS, kind);
        const answer = isKnown ? overlaid(kind, this.host, this.overlay) : { answer: "error", message: "a view answers no such request" };
        connection.write(`${JSON.stringify(answer)}\n`);
      });
    });
    return new Promise((resolve, reject) => {
      this.server.once("error", reject);
      this.server.listen(this.path, resolve);
    });
  }

  /** Ends, as a daemon does. */
  async close() {
    const closed = new Promise((resolve) => this.server.close(resolve));
    for (const connection of this.connections) connection.destroy();
    await closed;
    rmSync(this.path, { force: true });
  }
}

if (process.argv[1] === new URL(import.meta.url).pathname) {
  const [path, name] = process.argv.slice(2);
  const host = new Host({ name, guests: 12 });
  const daemon = new StandIn(path, host);
  await daemon.listen();
  console.log("ready");
  for await (const line of createInterface({ input: process.stdin })) {
    const [command, key, ...rest] = line.split(" ");
    if (command === "restart") host.restart();
    if (command === "set") {
      const wasUp = host.isUp;
      const set = JSON.parse(rest.join(" "));
      if (key.includes(".")) daemon.overlay.set(key, set);
      else host[key] = set;
      if (wasUp && !host.isUp) await daemon.close();
      if (!wasUp && host.isUp) await daemon.listen();
    }
    console.log("done");
  }
  if (host.isUp) await daemon.close();
}
