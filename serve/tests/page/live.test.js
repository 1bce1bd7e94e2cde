// The page over a real daemon that merges live guests and records its history. It writes to the host's one KSM, so it needs root
// and the lock that tests of the live kernel take: `make page-live-test`.

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath } from "node:url";
import { AxeBuilder } from "@axe-core/playwright";

import { chromiumPath, launch } from "./browser.js";

const KSMITH = process.env.KSMITH ?? fileURLToPath(new URL("../../../target/debug/ksmith", import.meta.url));
const KSM = "/sys/kernel/mm/ksm";
const MIB = 64;
const PATIENCE = 120_000;

/** A guest: memory of which each page has its like in each other guest, offered to merging. It says when it is there. */
const GUEST = `
import mmap, sys
memory = mmap.mmap(-1, ${MIB} << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_MERGEABLE)
for page in range(${MIB} << 8):
    memory[page << 12:(page << 12) + 8] = (page + 1).to_bytes(8, "little")
print("ready", flush=True)
sys.stdin.read()
`;

const knob = (name) => readFileSync(`${KSM}/${name}`, "utf8").trim();

/** Whether some process has merged pages. Counts of all KSM also keep what ended processes left, until it is unmerged. */
function isAnythingMerged() {
  return readdirSync("/proc").filter((name) => /^[0-9]+$/.test(name)).some((pid) => {
    try {
      return /^ksm_merging_pages [1-9]/m.test(readFileSync(`/proc/${pid}/ksm_stat`, "utf8"));
    } catch {
      return false; // It has ended.
    }
  });
}

function obstacle() {
  if (process.env.KSMITH_LIVE === undefined) return "SKIPPED, nothing was tested: make page-live-test runs it, with the lock of KSM";
  if (chromiumPath() === null) return "SKIPPED, nothing was tested: there is no Chromium here";
  if (process.getuid() !== 0 || !existsSync(`${KSM}/run`)) return "SKIPPED, nothing was tested: this needs root and KSM";
  // By run=2 KSM has unmerged everything and stopped.
  if (knob("run") === "1" || isAnythingMerged()) {
    return `SKIPPED, nothing was tested: KSM is in use here (run=${knob("run")}, pages_sharing=${knob("pages_sharing")})`;
  }
  return false;
}

function unmerge() {
  writeFileSync(`${KSM}/run`, "2");
  writeFileSync(`${KSM}/run`, "0");
}

const skip = obstacle();
const children = new Set();
let browser;
let directory;
let url;

function start(program, words, stdio = ["pipe", "pipe", "inherit"]) {
  const child = spawn(program, words, { stdio });
  children.add(child);
  child.once("exit", () => children.delete(child));
  return child;
}

/** Ends a child by SIGTERM and waits until it has ended. */
async function end(child) {
  if (!children.has(child)) return;
  const ended = new Promise((resolve) => child.once("exit", resolve));
  child.kill();
  await ended;
}

async function guest() {
  const child = start("python3", ["-c", GUEST]);
  await new Promise((resolve) => child.stdout.once("data", resolve));
  return child;
}

async function until(what, condition) {
  const deadline = Date.now() + PATIENCE;
  while (!(await condition())) {
    assert.ok(Date.now() < deadline, `${what}: not within ${PATIENCE / 1000} s`);
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}

function daemon() {
  return start(KSMITH, ["daemon", "--config", join(directory, "ksmith.toml")], ["ignore", "ignore", "inherit"]);
}

const answers = () => fetch(`${url}api/v1/status`).then((answer) => answer.ok, () => false);

before(async () => {
  if (skip) return;
  unmerge();
  browser = await launch();
  directory = mkdtempSync(join(tmpdir(), "ksmith-live-"));
  const at = (name) => JSON.stringify(join(directory, name));
  writeFileSync(join(directory, "ksmith.toml"), [
    "[daemon]", `control_socket = ${at("control")}`, "[optin]", `socket = ${at("user")}`, "[view]", `socket = ${at("view")}`,
    "[history]", `path = ${at("history.db")}`, "guest_seconds = 1", "[notify]", "journal = false",
  ].join("\n"));
  const port = 20_000 + (process.pid % 20_000);
  url = `http://127.0.0.1:${port}/`;
  start(KSMITH, ["serve", "--config", join(directory, "ksmith.toml"), "--listen", `127.0.0.1:${port}`], ["ignore", "ignore", "inherit"]);
});

after(async () => {
  if (skip) return;
  await browser.close();
  for (const child of [...children]) await end(child);
  unmerge();
  rmSync(directory, { recursive: true });
});

test("the page shows what a real daemon saves with live guests, and what it recorded", { skip, timeout: 10 * PATIENCE }, async (context) => {
  const first = await guest();
  let controller = daemon();
  await until("the daemon answers", answers);
  const page = await (await browser.newContext({ viewport: { width: 1280, height: 900 } })).newPage();
  const errors = [];
  page.on("console", (message) => {
    if (message.type() === "error") errors.push(`${message.text()} ${message.location().url}`);
  });
  page.on("pageerror", (error) => errors.push(String(error.stack)));
  await page.goto(url);
  const says = (selector, part) => page.waitForFunction(
    ([where, what]) => document.querySelector(where).textContent.includes(what), [selector, part], { timeout: PATIENCE });
  const savedMib = async () => {
    const [, number, unit] = /^([\d.]+) (\w+)$/.exec(await page.textContent("[data-figure=saved]")) ?? [];
    return number === undefined ? 0 : Number(number) * { B: 2 ** -20, KiB: 2 ** -10, MiB: 1, GiB: 1024 }[unit];
  };
  const drawn = () => page.evaluate(() => document.querySelector("#spent canvas")?.toDataURL());
  await says("#connection", "Live");
  await page.waitForSelector("#spent canvas");
  const before = await drawn();

  const second = await guest();
  await until("the second guest is merged with the first", async () => (await savedMib()) >= MIB * 0.9);
  assert.notEqual(await drawn(), before);
  const third = await guest();
  await until("the third guest is merged too", async () => (await savedMib()) >= 2 * MIB * 0.9);
  await until("all are in the table", async () => (await page.locator("#guests tbody tr").count()) >= 3);
  context.diagnostic(`saved with three guests of ${MIB} MiB: ${await page.textContent("[data-figure=saved]")}`);

  await end(third);
  await until("what the third saved is gone", async () => (await savedMib()) < 1.5 * MIB);
  assert.deepEqual(errors, []);

  await end(controller);
  await says("#connection", "does not answer");
  controller = daemon();
  await says("#connection", "Live");
  // The page asks for the history when it is live again: decisions and both starts are marks.
  await says("#decisions", "daemon stopped");
  await until("decisions are listed", async () => (await page.locator("#decisions button.decision").count()) > 0);
  const { violations } = await new AxeBuilder({ page }).analyze();
  assert.deepEqual(violations.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);

  await page.evaluate((pid) => { location.hash = `#guest=${pid}`; }, second.pid);
  await says("#guest-text", "saved: first");
  if (process.env.SCREENSHOT) {
    await page.keyboard.press("Escape");
    await page.screenshot({ path: process.env.SCREENSHOT });
  }
  // While the daemon was away its figures could not be had.
  assert.deepEqual(errors.filter((error) => !/50[0-9]/.test(error)), []);
  await end(controller);
  await end(second);
  await end(first);
  assert.equal(knob("run"), "0");
});
