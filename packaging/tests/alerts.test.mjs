// The rules and the dashboard in a real Prometheus, which scrapes two servers in two network namespaces.
//
// Each alert of the rules fires and resolves there, with the expressions of the rules and their times divided. Each query of
// the dashboard returns data. The servers are `ksmith serve`, over stand-ins for daemons. Needs root, for the namespaces. `make
// alerts-test` runs this.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";

const HERE = fileURLToPath(new URL(".", import.meta.url));
const RULES = readFileSync(`${HERE}../prometheus/ksmith.rules.yml`, "utf8");
const DASHBOARD = JSON.parse(readFileSync(`${HERE}../grafana/ksmith.json`, "utf8"));
const RUNBOOKS = `${HERE}../../docs/how-to/runbooks/`;
const DAEMON = `${HERE}daemon.mjs`;
const PORT = 9797;
/** The longest time that anything is waited for. */
const PATIENCE = 120_000;
const ALERTS = [...RULES.matchAll(/- alert: (\w+)/g)].map((found) => found[1]);

/** What makes each alert fire on which host, as a setting of the stand-in, and what ends it. */
const FAULTS = JSON.parse(readFileSync(`${HERE}alert-faults.json`, "utf8"));

function programOf(name, variable) {
  if (process.env[variable]) return process.env[variable];
  return ["/usr/bin/", "/usr/local/bin/"].map((place) => place + name).find(existsSync) ?? null;
}

const PROMETHEUS = programOf("prometheus", "PROMETHEUS");
const KSMITH = process.env.KSMITH ?? `${HERE}../../target/debug/ksmith`;

function obstacle() {
  if (PROMETHEUS === null) return "SKIPPED, nothing was tested: there is no prometheus here";
  if (!existsSync(KSMITH)) return `SKIPPED, nothing was tested: there is no ${KSMITH}; cargo build -p ksmith makes it`;
  if (process.getuid() !== 0) return "SKIPPED, nothing was tested: network namespaces need root";
  return false;
}

const skip = obstacle();
const own = `ksm${process.pid}`;
const ip = (...words) => execFileSync("ip", words, { stdio: ["ignore", "pipe", "inherit"] });
const children = [];
const hosts = {};
let directory;

/** Starts a program in a namespace. It is ended by its number at the end. */
function start(namespace, words, stdio) {
  const child = spawn("ip", ["netns", "exec", namespace, ...words], { stdio });
  children.push(child);
  return child;
}

/** A host: a namespace with a server, and a stand-in for its daemon, which takes commands by its standard input. */
async function startHost(name, subnet) {
  const namespace = `${own}${name}`;
  ip("netns", "add", namespace);
  ip("link", "add", `v${name}${process.pid}`, "netns", `${own}p`, "type", "veth", "peer", "name", "eth0", "netns", namespace);
  ip("-n", `${own}p`, "address", "add", `10.91.${subnet}.1/24`, "dev", `v${name}${process.pid}`);
  ip("-n", `${own}p`, "link", "set", `v${name}${process.pid}`, "up");
  ip("-n", namespace, "address", "add", `10.91.${subnet}.2/24`, "dev", "eth0");
  ip("-n", namespace, "link", "set", "eth0", "up");
  const socket = join(directory, `${name}.sock`);
  const daemon = start(namespace, [process.execPath, DAEMON, socket, `vmhost-${name}`], ["pipe", "pipe", "inherit"]);
  const answers = createInterface({ input: daemon.stdout })[Symbol.asyncIterator]();
  await answers.next();
  const command = async (line) => {
    daemon.stdin.write(`${line}\n`);
    await answers.next();
  };
  const instance = `10.91.${subnet}.2:${PORT}`;
  const server = start(namespace, [KSMITH, "serve", "--view-socket", socket, "--listen", instance], ["ignore", "ignore", "inherit"]);
  hosts[name] = { server, instance, command };
}

/** The rules with each time divided by 600: no `for` under a second, and no range under five. */
function hastened(rules) {
  const seconds = (number, unit) => (Number(number) * { s: 1, m: 60, h: 3600 }[unit]) / 600;
  return rules
    .replaceAll(/for: (\d+)([smh])$/gm, (_, number, unit) => `for: ${Math.ceil(Math.max(1, seconds(number, unit)))}s`)
    .replaceAll(/\[(\d+)([smh])\]/g, (_, number, unit) => `[${Math.ceil(Math.max(5, seconds(number, unit)))}s]`);
}

/** Asks Prometheus, inside its namespace. */
function ask(path, parameters) {
  const url = `http://127.0.0.1:9090/api/v1/${path}?${new URLSearchParams(parameters)}`;
  const program = `fetch(process.argv[1]).then((r) => r.text()).then((t) => process.stdout.write(t), () => process.exit(1))`;
  try {
    const text = execFileSync("ip", ["netns", "exec", `${own}p`, process.execPath, "-e", program, url], { stdio: ["ignore", "pipe", "ignore"], maxBuffer: 1 << 26 });
    return JSON.parse(text);
  } catch {
    return null;
  }
}

/** The result of a query now, or nothing while Prometheus does not answer. */
function query(expression) {
  const answer = ask("query", { query: expression });
  assert.ok(answer === null || answer.status === "success", `${expression}: ${answer?.error}`);
  return answer?.data.result ?? [];
}

async function until(what, condition) {
  const end = Date.now() + PATIENCE;
  while (!condition()) {
    assert.ok(Date.now() < end, `${what}: not within ${PATIENCE / 1000} s; alerts: ${JSON.stringify(query("ALERTS"))}`);
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

const firing = (alert, host) => query(`ALERTS{alertname="${alert}",alertstate="firing",instance="${hosts[host].instance}"}`).length > 0;
const hasFired = (alert, host) =>
  query(`count_over_time(ALERTS{alertname="${alert}",alertstate="firing",instance="${hosts[host].instance}"}[1h])`).length > 0;
const set = (host, key, value) => hosts[host].command(`set ${key} ${JSON.stringify(value)}`);

before(async () => {
  if (skip) return;
  directory = mkdtempSync(join(tmpdir(), "ksmith-alerts-"));
  ip("netns", "add", `${own}p`);
  ip("-n", `${own}p`, "link", "set", "lo", "up");
  await startHost("a", 1);
  await startHost("b", 2);
  writeFileSync(join(directory, "rules.yml"), hastened(RULES));
  const targets = Object.values(hosts).map(({ instance }) => `"${instance}"`).join(", ");
  writeFileSync(join(directory, "prometheus.yml"), [
    "global: { scrape_interval: 500ms, scrape_timeout: 500ms, evaluation_interval: 500ms }",
    "rule_files: [rules.yml]",
    "scrape_configs:",
    "  - job_name: ksmith",
    `    static_configs: [{ targets: [${targets}] }]`,
  ].join("\n"));
  start(`${own}p`, [PROMETHEUS, `--config.file=${join(directory, "prometheus.yml")}`, `--storage.tsdb.path=${join(directory, "data")}`,
    "--web.listen-address=127.0.0.1:9090", "--log.level=warn"], ["ignore", "inherit", "inherit"]);
  await until("two hosts are scraped", () => query("up == 1").length === 2);
});

after(async () => {
  for (const child of children) {
    if (child.exitCode !== null || child.signalCode !== null) continue;
    const ended = new Promise((resolve) => child.once("exit", resolve));
    child.kill();
    await ended;
  }
  for (const name of ["p", "a", "b"]) {
    if (existsSync(`/run/netns/${own}${name}`)) ip("netns", "del", `${own}${name}`);
  }
  if (directory !== undefined) rmSync(directory, { recursive: true });
});

test("every alert names a runbook that tells what to do", () => {
  const named = [...RULES.matchAll(/runbook_url: \S+\/docs\/how-to\/runbooks\/(\w+)\.md/g)].map((found) => found[1]);
  assert.deepEqual(named, ALERTS);
  for (const alert of ALERTS) {
    const page = readFileSync(`${RUNBOOKS}${alert}.md`, "utf8");
    for (const part of [`# ${alert}\n`, "\n## Meaning\n", "\n## How to see it\n", "\n## What to do\n"]) assert.ok(page.includes(part), `${alert}: ${part}`);
  }
});

test("no alert fires on two hosts that are well", { skip }, async () => {
  await until("thirty samples of each host", () => query("count_over_time(ksmith_up[1h]) > 30").length === 2);
  assert.deepEqual(query(`count_over_time(ALERTS{alertstate="firing"}[1h])`), []);
});

test("every alert fires on the host with the fault, and resolves after it", { skip, timeout: 4 * PATIENCE }, async () => {
  const rest = ["KsmithDown", "KsmithControllerRestarted"];
  assert.deepEqual([...Object.keys(FAULTS), ...rest].sort(), [...ALERTS].sort(), "an alert is not tested");
  for (const [host, key, bad] of Object.values(FAULTS)) await set(host, key, bad);
  for (const [alert, [host]] of Object.entries(FAULTS)) await until(`${alert} fires`, () => firing(alert, host));
  for (const [alert, [host]] of Object.entries(FAULTS)) {
    const other = host === "a" ? "b" : "a";
    assert.ok(!hasFired(alert, other), `${alert} fired on the other host too`);
  }
  for (const [host, key, , good] of Object.values(FAULTS)) await set(host, key, good);
  for (const [alert, [host]] of Object.entries(FAULTS)) await until(`${alert} resolves`, () => !firing(alert, host));

  await hosts.a.command("restart");
  await until("KsmithControllerRestarted fires", () => hasFired("KsmithControllerRestarted", "a"));
  await until("KsmithControllerRestarted resolves", () => !firing("KsmithControllerRestarted", "a"));

  await set("b", "isUp", false);
  await until("KsmithDown fires for a daemon", () => firing("KsmithDown", "b"));
  await set("b", "isUp", true);
  await until("KsmithDown resolves", () => !firing("KsmithDown", "b"));
  assert.ok(!hasFired("KsmithDown", "a"));
});

test("every query of the dashboard returns data", { skip }, async (context) => {
  const panels = DASHBOARD.panels.flatMap((panel) => [panel, ...(panel.panels ?? [])]);
  const filled = (text) => text.replaceAll("$host", ".*").replaceAll("$guest", ".*").replaceAll("$__rate_interval", "5s");
  const queries = panels.flatMap((panel) => (panel.targets ?? []).map(({ expr }) => [panel.title, filled(expr)]));
  assert.ok(queries.length > 20, `${queries.length} queries`);
  await until("all metrics are there", () => query("ksmith_up == 1").length === 2);
  for (const [title, expression] of queries) await until(`${title}: ${expression}`, () => query(expression).length > 0);
  // A decision is a new series; the daemon's first state is one.
  const annotations = DASHBOARD.annotations.list.map(({ name, expr }) => [name, filled(expr).replaceAll("offset 1m", "offset 1h")]);
  assert.deepEqual(annotations.map(([name]) => name), ["Decisions"]);
  for (const [name, expression] of annotations) await until(`${name}: ${expression}`, () => query(expression).length > 0);
  const variables = DASHBOARD.templating.list.filter(({ type }) => type === "query").map((variable) => filled(variable.query));
  for (const variable of variables) {
    const [, series, label] = /^label_values\((.+), (\w+)\)$/.exec(variable);
    const values = ask(`label/${label}/values`, { "match[]": series }).data;
    assert.ok(values.length > 1, `${variable}: ${values}`);
  }
  context.diagnostic(`${queries.length} queries and ${variables.length} variables returned data`);
});

test("KsmithDown fires for a server that can't be scraped", { skip, timeout: 2 * PATIENCE }, async () => {
  const gone = new Promise((resolve) => hosts.b.server.once("exit", resolve));
  hosts.b.server.kill();
  await gone;
  await until("KsmithDown fires", () => firing("KsmithDown", "b"));
});
