// The page in a real Chromium, over a mock of the server. `npm test` runs these; `make page-test` installs what they need.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { AxeBuilder } from "@axe-core/playwright";

import { chromiumPath, launch, open } from "./browser.js";
import { Mock } from "./mock.js";

const HOSTILE = `<img src=x onerror="alert(1)"><script>alert(2)</script>`;
const skip = chromiumPath() === null ? "SKIPPED, nothing was tested: there is no Chromium here" : false;

let browser;
before(async () => {
  if (!skip) browser = await launch();
});
after(() => browser?.close());

/** Runs a test over a mock with its own clock, which starts at the present. */
function tested(name, settings, body) {
  test(name, { skip, timeout: 120_000 }, async (context) => {
    let ahead = 0;
    const mock = new Mock({ guests: 12, clock: () => Date.now() / 1000 + ahead, ...settings });
    const url = await mock.listen();
    const step = (seconds) => {
      ahead += seconds;
      mock.push();
    };
    try {
      await body({ mock, url, step, context });
    } finally {
      await Promise.all(browser.contexts().map((each) => each.close()));
      await mock.close();
    }
  });
}

const text = (page, selector) => page.textContent(selector);
const says = (page, selector, part) => page.waitForFunction(
  ([where, what]) => document.querySelector(where).textContent.includes(what), [selector, part]);
const picture = (page) => page.evaluate(() => document.querySelector("#spent canvas").toDataURL());

// Time decides only where it is measured: PAGE_BENCH=1 make page-test.
const mostPaint = process.env.PAGE_BENCH ? 300 : Infinity;

tested("the page paints, and where that is measured within 300 ms on loopback", {}, async ({ url, context }) => {
  const times = [];
  for (let load = 0; load < 5; load++) {
    const { page } = await open(browser, url);
    times.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0].startTime));
    await page.context().close();
  }
  context.diagnostic(`first contentful paint in ms: ${times.map(Math.round).join(", ")}`);
  times.sort((a, b) => a - b);
  assert.ok(times[0] > 0 && times[2] < mostPaint, `the median load did not paint within 300 ms: ${times}`);
});

tested("the verdict stands first, in its colour and in words, as the server gives it", {}, async ({ url, mock }) => {
  const { page, errors } = await open(browser, url);
  const colour = () => page.evaluate(() => getComputedStyle(document.querySelector("#verdict")).backgroundColor);
  const seen = [await colour()];
  assert.equal(await text(page, "#verdict-level"), "Fine");
  assert.equal(await page.evaluate(() => document.querySelector("main").firstElementChild.id), "verdict");
  for (const [level, word] of [["look", "Look"], ["act", "Act"]]) {
    mock.host.verdict = { level, sentence: `${HOSTILE} asks to ${level}` };
    mock.push();
    await says(page, "#verdict-text", `${HOSTILE} asks to ${level}`);
    assert.equal(await text(page, "#verdict-level"), word);
    seen.push(await colour());
  }
  assert.equal(new Set(seen).size, 3, seen.join(" "));
  assert.deepEqual(errors, []);
});

tested("charts and figures move with the events of the stream", {}, async ({ url, step, mock }) => {
  const { page, errors } = await open(browser, url);
  await says(page, "#connection", "Live");
  // The history does not answer from now on: what moves, moves by the stream alone.
  await page.route("**/api/v1/history?*", () => {});
  const before = await picture(page);
  for (let times = 0; times < 2; times += 1) {
    const saved = await text(page, "[data-figure=saved]");
    step(mock.host.secondsToChange());
    await page.waitForFunction((old) => document.querySelector("[data-figure=saved]").textContent !== old, saved);
    await says(page, "#spent-reading", `saved ${await text(page, "[data-figure=saved]")}`);
  }
  assert.notEqual(await picture(page), before);
  assert.deepEqual(errors, []);
});

tested("a new decision appears in the list by itself", {}, async ({ url, step, mock }) => {
  const { page } = await open(browser, url);
  const first = () => document.querySelector("#decisions button").dataset.key;
  const old = await page.evaluate(first);
  step(0);
  step(300);
  await page.waitForFunction((key) => document.querySelector("#decisions button").dataset.key !== key, old);
  assert.ok(mock.host.decisionAt(mock.host.now()).time > Number(old.split(" ")[0]));
});

tested("the page says that the daemon does not answer, and is live again by itself", {}, async ({ url, mock, step }) => {
  const { page, errors } = await open(browser, url);
  await says(page, "#connection", "Live");
  mock.host.isUp = false;
  mock.push();
  await says(page, "#connection", "The daemon does not answer");
  await says(page, "#connection", "These figures are of");
  assert.equal(await page.evaluate(() => document.documentElement.classList.contains("stale")), true);
  mock.host.isUp = true;
  mock.host.restart();
  step(60);
  await says(page, "#connection", "Live");
  assert.equal(await page.evaluate(() => document.documentElement.classList.contains("stale")), false);
  await says(page, "[data-figure=cpu-note]", "up for 1 min");
  assert.deepEqual(errors.filter((error) => !error.includes("503")), []);
});

tested("splits of huge pages stand beside what they save and what they cost", {}, async ({ url, mock }) => {
  const { page } = await open(browser, url);
  await says(page, "#connection", "Live");
  assert.doesNotMatch(await text(page, "[data-figure=saved-note]"), /huge/);
  Object.assign(mock.host, { hugeBytes: 3 * 2 ** 30, splitBytes: 2 ** 29, splitCost: 0.25 });
  mock.push();
  await says(page, "[data-figure=saved-note]", "3.0 GiB in huge pages, 512.0 MiB split by merging");
  await says(page, "[data-figure=cpu-note]", "up to 0.25 CPU");
});

tested("the page survives a restart of its own server", {}, async ({ url, mock, step }) => {
  const { page } = await open(browser, url);
  await says(page, "#connection", "Live");
  const { port } = mock;
  await mock.close();
  await says(page, "#connection", "The server of this page does not answer");
  await mock.listen(port);
  await says(page, "#connection", "Live");
  const saved = await text(page, "[data-figure=saved]");
  step(mock.host.secondsToChange());
  await page.waitForFunction((old) => document.querySelector("[data-figure=saved]").textContent !== old, saved);
});

tested("a page that is opened while the daemon is down says so, and then comes alive", {}, async ({ url, mock }) => {
  mock.host.isUp = false;
  const page = await (await browser.newContext()).newPage();
  await page.goto(url);
  await says(page, "#connection", "The daemon does not answer");
  await says(page, "#range-note", "points");
  assert.equal(await text(page, "[data-figure=pressure]"), "–", "the history's last record is not now");
  mock.host.isUp = true;
  mock.push();
  await says(page, "#connection", "Live");
  await page.waitForSelector("#guests tbody tr");
});

tested("a day of history is asked for with a bound, and drawn", {}, async ({ url, mock, context }) => {
  const { page, errors } = await open(browser, url);
  mock.requests.length = 0;
  const before = await picture(page);
  await page.click("[data-range='86400']");
  await says(page, "#range-note", "the last 1 d: 1000 points");
  assert.ok(mock.requests.some((request) => request.includes("history?since=86400s&points=1000")), mock.requests.join(" "));
  assert.notEqual(await picture(page), before);
  assert.equal(await page.getAttribute("[data-range='86400']", "aria-pressed"), "true");

  // A server that sends five times as many, and one that sends every second of the day.
  for (const points of [5000, 86400]) {
    const now = mock.host.now();
    const body = JSON.stringify(mock.host.history(now - 86400, now, points, null));
    await page.route("**/api/v1/history?*", (route) => route.fulfill({ contentType: "application/json", body }));
    const started = Date.now();
    await page.click("[data-range='2592000']");
    await page.click("[data-range='86400']");
    await page.waitForFunction(() => /last 1 d: \d{4,5} points/.test(document.querySelector("#range-note").textContent));
    const shown = JSON.parse(body).rows.length;
    await says(page, "#range-note", `${shown} points`);
    context.diagnostic(`${shown} rows of a day: ${Date.now() - started} ms until drawn`);
    await page.unroute("**/api/v1/history?*");
  }
  assert.deepEqual(errors, []);
});

tested("the window fits what is recorded, and the charts have their times below each other", {}, async ({ url, mock }) => {
  mock.host.recordedSince = mock.host.now() - 360;
  for (const width of [1280, 365]) {
    const { page, errors } = await open(browser, url, { viewport: { width, height: 900 } });
    await says(page, "#range-note", "the last 6 min, before which nothing is recorded in this time");
    const boxes = await page.$$eval("#memory .u-over, #spent .u-over, #cover .u-over", (plots) => plots.map((plot) => {
      const { left, right } = plot.getBoundingClientRect();
      return [left, right];
    }));
    assert.equal(boxes.length, 3);
    for (const box of boxes) assert.deepEqual(box, boxes[0], `at ${width}`);
    await says(page, "#memory-text", "used: first");
    await page.click("[data-range='900']");
    await says(page, "#range-note", "the last 6 min");
    assert.deepEqual(errors, []);
  }
});

tested("saved is drawn as a part of the host's memory", {}, async ({ url, mock }) => {
  const { page } = await open(browser, url);
  await says(page, "#memory-reading", "the host's memory 32.0 GiB");
  const figures = mock.host.figures(mock.host.now());
  const used = figures.host_memory_bytes - figures.host_available_bytes;
  const shown = await text(page, "#memory-reading");
  const [, unmerged] = /without merging ([\d.]+) GiB/.exec(shown);
  const [, of] = /used ([\d.]+) GiB/.exec(shown);
  assert.ok(Math.abs(Number(of) * 2 ** 30 - used) < 2 ** 30, shown);
  assert.ok(Math.abs((Number(unmerged) - Number(of)) * 2 ** 30 - figures.saved_bytes) < 2 ** 30, shown);
});

tested("dragging zooms into history, and a double click goes back", {}, async ({ url, mock }) => {
  const { page, errors } = await open(browser, url);
  await page.locator("#spent .u-over").scrollIntoViewIfNeeded();
  const box = await page.locator("#spent .u-over").boundingBox();
  mock.requests.length = 0;
  const [x, y] = [box.x + box.width * 0.25, box.y + box.height / 2];
  await page.mouse.move(x, y);
  await page.mouse.down();
  await page.mouse.move(x + box.width / 4, y, { steps: 4 });
  await page.mouse.up();
  await page.waitForSelector("#back:not([hidden])");
  await page.waitForFunction(() => !document.querySelector("#range-note").textContent.startsWith("the last"));
  const asked = mock.requests.map((request) => /since=([\d.]+)&until=([\d.]+)/.exec(request)).find((found) => found);
  const seconds = Number(asked[2]) - Number(asked[1]);
  assert.ok(Math.abs(seconds - 1800) < 60, `${seconds} s were asked for`);
  await page.mouse.dblclick(x, y);
  await page.waitForSelector("#back", { state: "hidden" });
  await says(page, "#range-note", "the last 2 h");
  assert.deepEqual(errors, []);
});

tested("a decision is explained where the pointer is at its mark", {}, async ({ url, mock }) => {
  const { page } = await open(browser, url);
  await page.locator("#spent .u-over").scrollIntoViewIfNeeded();
  const box = await page.locator("#spent .u-over").boundingBox();
  const now = mock.host.now();
  const decision = mock.host.decisionAt(now - 3600);
  await page.mouse.move(box.x + ((decision.time - (now - 7200)) / 7200) * box.width, box.y + 60);
  await says(page, "#decision", decision.reason);
  await says(page, "#decision", decision.settings);
  assert.equal(await page.getAttribute("#decision span", "title"), decision.reason_detail);
  assert.equal(await page.getAttribute("[data-figure=policy-note]", "title"), mock.host.decisionAt(now).reason_detail);
});

tested("a start of the daemon is a mark, and a guest that appears is none", {}, async ({ url, mock }) => {
  mock.host.startedAt = mock.host.now() - 600;
  const { page } = await open(browser, url);
  assert.equal(await page.locator("#decisions button.event").count(), 1);
  await page.focus("#decisions button.event");
  await says(page, "#decision", "daemon started");
});

tested("what guests save is drawn by the values of a label, which is chosen", { labels: { role: ["web", HOSTILE], tier: ["gold"] } }, async ({ url, mock, step }) => {
  const { page, errors } = await open(browser, url);
  await says(page, "#label-reading", "web ");
  await says(page, "#label-reading", HOSTILE);
  assert.match(await text(page, "#label-text"), /web: first .* GiB/);
  assert.equal(await page.evaluate(() => document.querySelector("#label-chart canvas") !== null), true);
  await page.selectOption("#label", "tier");
  await says(page, "#label-reading", "gold ");
  assert.ok(!(await text(page, "#label-reading")).includes("web "));
  assert.ok(mock.requests.some((request) => request.includes("by=tier") && request.includes("points=240")));
  mock.host.labels = {};
  step(1);
  await page.waitForFunction(() => document.querySelector("#by-label").hidden);
  assert.deepEqual(errors, []);
});

tested("a history that records nothing is told", {}, async ({ url, mock }) => {
  const status = mock.host.status();
  mock.host.status = () => ({ ...status, history: { path: "/var/lib/ksmith/history.db", problem: "the disk is full" } });
  const { page } = await open(browser, url);
  await says(page, "#notes", "Nothing is recorded: the disk is full");
});

tested("every part is reached by keyboard", {}, async ({ url }) => {
  const { page, errors } = await open(browser, url);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent);
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "Skip to the figures");
  await page.keyboard.press("Tab");
  assert.equal(await focused(), "theme");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await says(page, "#range-note", "the last 15 min");

  const before = await picture(page);
  while (!(await page.evaluate(() => document.activeElement.closest("#decisions") !== null))) await page.keyboard.press("Tab");
  const reason = await page.evaluate(() => document.activeElement.querySelector("span").textContent);
  await says(page, "#decision", reason);
  assert.notEqual(await picture(page), before, "the mark does not stand out");

  while ((await focused()) !== "filter") await page.keyboard.press("Tab");
  await page.keyboard.type("web-03");
  await says(page, "#guests-note", "1 of 12 guests");
  await page.keyboard.press("Control+a");
  await page.keyboard.press("Delete");
  await says(page, "#guests-note", "12 guests");

  while ((await focused()) !== "Guest") await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  assert.equal(await page.getAttribute("#guests [data-key=name]", "aria-sort"), "ascending");
  const names = () => page.$$eval("#guests tbody th a", (links) => links.map((link) => link.textContent));
  assert.deepEqual(await names(), [...(await names())].sort());
  await page.keyboard.press("Enter");
  assert.equal(await page.getAttribute("#guests [data-key=name]", "aria-sort"), "descending");

  while ((await focused()) !== "web-12") await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  await says(page, "#guest-title", "web-12");
  await page.waitForFunction(() => document.querySelector("#guest-text").textContent.includes("resident: first"));
  assert.equal(await focused(), "guest-close");
  await page.keyboard.press("Escape");
  await page.waitForSelector("#guest", { state: "hidden" });
  assert.equal(await focused(), "web-12");
  assert.deepEqual(errors, []);
});

tested("a guest's name is text, whatever it holds", { hostileName: HOSTILE }, async ({ url, mock, step }) => {
  const { page, errors } = await open(browser, url, {}, `#guest=${new Mock().host.pidOf(0)}`);
  await says(page, "#guest-title", HOSTILE);
  await page.keyboard.press("Escape");
  mock.host.hosts = () => [0, 1].map(() => ({ name: HOSTILE, url: "javascript:alert(3)", ok: false, error: HOSTILE, status: null }));
  mock.host.decisionAt = (time) => ({ time, policy: HOSTILE, state: HOSTILE, reason: HOSTILE, settings: HOSTILE });
  step(1);
  await says(page, "[data-figure=policy]", HOSTILE);
  await page.reload();
  await says(page, "#hosts", HOSTILE);
  await says(page, "#decisions", HOSTILE);
  assert.equal(await page.locator("img[src=x], main script, dialog script, a[href^='javascript']").count(), 0);
  assert.deepEqual(errors, []);
});

tested("the last row has the sums of the guests that are found, and each guest its part of what is saved", {}, async ({ url, mock }) => {
  // The figures stand still: the sums are those of the rows beside them.
  const report = mock.host.guests();
  mock.host.guests = () => report;
  const { page, errors } = await open(browser, url);
  const cells = (row) => page.$$eval(`#guests ${row} > *`, (found) => found.map((cell) => cell.textContent));
  const bytes = (key) => `${(report.guests.reduce((sum, guest) => sum + guest[key], 0) / 2 ** 30).toFixed(1)} GiB`;
  await page.waitForFunction((sum) => document.querySelector("#guests tfoot").textContent.includes(sum), bytes("saved_bytes"));
  const [name, , , , rss, merged, saved, part, profit] = await cells("tfoot tr");
  assert.deepEqual([name, rss, merged, saved, profit], ["Sum of 12 guests", ...["rss_bytes", "merged_bytes", "saved_bytes", "profit_bytes"].map(bytes)]);
  const whole = report.guests.reduce((sum, guest) => sum + guest.saved_bytes, 0);
  assert.equal(part, `${((whole / report.saved_bytes) * 100).toFixed(1)} %`);
  const [, , , , , , , first] = await cells("tbody tr:first-child");
  assert.equal(first, `${((report.guests[0].saved_bytes / report.saved_bytes) * 100).toFixed(1)} %`);
  await page.fill("#filter", "web-03");
  await page.waitForFunction(() => document.querySelector("#guests tfoot th").textContent === "Sum of 1 guest");
  assert.deepEqual(errors, []);
});

tested("a sparkline is seen from the first event on, from 0 to its own greatest value", {}, async ({ url, step }) => {
  const { page, errors } = await open(browser, url);
  // Rows that are out of sight are not drawn.
  await page.locator("#guests tbody tr").first().scrollIntoViewIfNeeded();
  step(3);
  await page.waitForFunction(() => document.querySelector("#guests tbody .spark .line").getAttribute("d"));
  const line = () => page.evaluate(() => {
    const path = document.querySelector("#guests tbody .spark .line");
    const { width, height } = path.closest("svg").getBoundingClientRect();
    const [stroke, back] = [getComputedStyle(path).stroke, getComputedStyle(path.closest("section")).backgroundColor];
    return { points: path.getAttribute("d").slice(1).split("L").map((point) => point.split(" ").map(Number)), width, height, stroke, back };
  });
  const { points, width, height, stroke, back } = await line();
  assert.deepEqual([points[0][0], points.at(-1)[0]], [0, 120], "the line is as wide as its place");
  assert.equal(Math.min(...points.map(([, y]) => y)), 2, "the greatest value stands at the top");
  assert.ok(width >= 72 && height >= 28, `${width} by ${height}`);
  assert.notEqual(stroke, back);
  assert.deepEqual(errors, []);
});

tested("without a guest there is no empty table", { guests: 0 }, async ({ url }) => {
  const page = await (await browser.newContext()).newPage();
  await page.goto(url);
  await says(page, "#guests-note", "No guest has mergeable memory.");
  assert.equal(await page.isVisible("#guests-table"), false);
  assert.equal(await page.isVisible("#filter"), false);
});

tested("a thousand guests stay few rows until all are asked for", { guests: 1000 }, async ({ url, step, mock, context }) => {
  const { page, errors } = await open(browser, url);
  const rows = () => page.locator("#guests tbody tr").count();
  assert.equal(await rows(), 50);
  await says(page, "#more", "Show all 1000 guests");
  const update = async () => {
    const shown = await text(page, "[data-figure=saved]");
    await page.evaluate(() => {
      globalThis.made = 0;
      globalThis.watcher = new MutationObserver((changes) => {
        for (const change of changes) globalThis.made += [...change.addedNodes].filter((node) => node.nodeName === "TR").length;
      });
      globalThis.watcher.observe(document.querySelector("#guests tbody"), { childList: true });
    });
    const started = Date.now();
    step(mock.host.secondsToChange());
    await page.waitForFunction((old) => document.querySelector("[data-figure=saved]").textContent !== old, shown);
    await page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve))));
    return Date.now() - started;
  };
  context.diagnostic(`update of 1000 guests, 50 shown: ${await update()} ms until drawn`);
  await page.click("#more");
  assert.equal(await rows(), 1000);
  context.diagnostic(`update of 1000 guests, all shown: ${await update()} ms until drawn`);
  assert.equal(await rows(), 1000);
  const report = mock.host.guests();
  mock.host.guests = () => report;
  await update();
  await page.evaluate(() => {
    const own = Object.getOwnPropertyDescriptor(Node.prototype, "textContent");
    globalThis.reads = 0;
    const get = function get() {
      if (this.parentElement?.closest("#guests tbody")) globalThis.reads += 1;
      return own.get.call(this);
    };
    Object.defineProperty(Node.prototype, "textContent", { ...own, get });
  });
  await update();
  const reads = await page.evaluate(() => globalThis.reads);
  assert.ok(reads < 1000, `rows that show the same figures as before are not read: ${reads} texts`);
  // A row far below the screen is written to once it comes near, and every row for a printer.
  const resident = (name) => page.evaluate((wanted) => {
    const row = [...document.querySelectorAll("#guests tbody tr")].find((each) => each.cells[0].textContent.includes(wanted));
    return row.cells[4].textContent;
  }, name);
  const shown = await page.evaluate(() => [...document.querySelectorAll("#guests tbody th a")].map((link) => link.textContent));
  const [last, other] = [shown.at(-1), shown.at(-300)];
  mock.host.guests = () => ({ ...report, guests: report.guests.map((guest) => ({ ...guest, rss_bytes: 77 * 2 ** 30 })) });
  await update();
  assert.ok(!(await resident(last)).startsWith("77"), "a row off the screen is left alone");
  await page.locator("#guests tbody tr").last().scrollIntoViewIfNeeded();
  await page.waitForFunction(() => document.querySelector("#guests tbody tr:last-child").cells[4].textContent.startsWith("77"));
  assert.ok(!(await resident(other)).startsWith("77"));
  await page.evaluate(() => dispatchEvent(new Event("beforeprint")));
  assert.ok((await resident(other)).startsWith("77"));
  // Among so many, rows keep their places for a while, and are sorted at once when that is asked for.
  const first = () => page.textContent("#guests tbody tr:first-child th a");
  const sortTwice = async () => {
    for (const _ of [1, 2]) await page.click("#guests thead th[data-key=saved_bytes] button");
  };
  const stopClock = (later) => page.evaluate((ms) => {
    const at = performance.now() + ms;
    performance.now = () => at;
  }, later);
  await stopClock(0);
  await sortTwice();
  const before = await first();
  mock.host.guests = () => ({ ...report, guests: report.guests.map((guest, index) => ({ ...guest, saved_bytes: index * 2 ** 20 })) });
  await update();
  assert.equal(await first(), before);
  await stopClock(10_000);
  await update();
  assert.equal(await first(), report.guests.at(-1).name, "after a while they are sorted");
  mock.host.guests = () => ({ ...report, guests: report.guests.map((guest, index) => ({ ...guest, saved_bytes: (1000 - index) * 2 ** 20 })) });
  await update();
  assert.equal(await first(), report.guests.at(-1).name);
  await sortTwice();
  assert.equal(await first(), report.guests[0].name);
  await page.fill("#filter", "web-0999");
  assert.equal(await rows(), 1);
  assert.deepEqual(errors, []);
});

for (const [name, settings] of [
  ["light", { colorScheme: "light" }],
  ["dark", { colorScheme: "dark" }],
  ["phone", { viewport: { width: 360, height: 740 }, hasTouch: true }],
  ["phone in the dark", { viewport: { width: 360, height: 740 }, colorScheme: "dark" }],
]) {
  const peers = [{ name: "vmhost-2", url: "http://10.0.0.2:9180/", ok: false, error: "connection refused", status: null }];
  tested(`axe-core finds no fault: ${name}`, { peers, guests: 60, labels: { role: ["web", "db"] } }, async ({ url, mock, context }) => {
    const { page, errors } = await open(browser, url, settings);
    mock.host.blindSource = "/proc/meminfo";
    mock.push();
    await page.waitForSelector("#notes li");
    await page.locator("#as-table summary").click();
    await page.waitForSelector("#as-table table");
    await page.waitForSelector("#hosts table");
    await page.waitForSelector("#balance table");
    await page.waitForSelector("#label-chart canvas");
    const check = async (what) => {
      const { violations, passes } = await new AxeBuilder({ page }).analyze();
      const said = violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html, failureSummary }) => `${html} ${failureSummary}`).join("\n")}`);
      assert.deepEqual(said, [], `${what}, ${name}`);
      context.diagnostic(`${what}: ${passes.length} rules passed`);
    };
    await check("the page");
    await page.evaluate(() => document.querySelector("#decisions button").focus());
    mock.host.isUp = false;
    mock.push();
    await says(page, "#connection", "does not answer");
    await check("the page without a daemon");
    mock.host.isUp = true;
    mock.push();
    await says(page, "#connection", "Live");
    await page.evaluate(() => { location.hash = "#guest=4003"; });
    await says(page, "#guest-text", "resident");
    await check("a guest's page");
    assert.deepEqual(errors.filter((error) => !error.includes("503")), []);
  });
}

tested("the consequence of shared domains is a warning while guests may share across them", {}, async ({ url, mock }) => {
  const { page, errors } = await open(browser, url);
  await says(page, "#domains", "Trust domains: guests of acme may merge");
  const back = () => page.evaluate(() => getComputedStyle(document.querySelector("#domains")).backgroundColor);
  const before = await back();
  assert.equal(await page.getAttribute("#domains", "class"), "note");
  mock.host.mayShareAcross = true;
  mock.push();
  await page.waitForFunction(() => document.querySelector("#domains").className === "warning");
  assert.notEqual(await back(), before);
  await says(page, "#domains", "Warning: side channel:");
  assert.deepEqual(errors, []);
});

tested("balance is read whole on a phone, and is folded where there is nothing to balance", {}, async ({ url, mock }) => {
  const { page, errors } = await open(browser, url, { viewport: { width: 365, height: 740 } });
  await page.waitForSelector("#balance table");
  const cut = await page.$$eval("#balance td, #balance th", (cells) => cells
    .filter((cell) => cell.offsetParent !== null && !cell.closest("thead"))
    .filter((cell) => cell.getBoundingClientRect().right > innerWidth || cell.scrollWidth > cell.clientWidth + 1)
    .map((cell) => cell.textContent));
  assert.deepEqual(cut, []);
  assert.ok(await page.$$eval("#balance .scroll", (places) => places.every((place) => place.scrollWidth <= place.clientWidth)));
  const balance = mock.host.balance();
  mock.host.balance = () => ({ ...balance, guests: [], recent: [] });
  const { page: other } = await open(browser, url);
  await says(other, "#balance-note", "reclaim: holding");
  assert.equal(await other.getAttribute("#balance-fold", "open"), null);
  await other.click("#balance-title");
  await other.waitForSelector("#balance p:visible");
  assert.deepEqual(errors, []);
});

tested("nothing scrolls sideways at the width of a phone", { guests: 60, hostileName: HOSTILE + "x".repeat(300) }, async ({ url }) => {
  for (const width of [360, 320]) {
    const { page, errors } = await open(browser, url, { viewport: { width, height: 740 } });
    const widths = () => page.evaluate(() => [document.documentElement.scrollWidth, document.querySelector("#guests").parentElement.scrollWidth, innerWidth]);
    const [whole, guests, inner] = await widths();
    assert.ok(whole <= inner, `the page is ${whole} wide at ${inner}`);
    assert.ok(guests <= inner, `the guests are ${guests} wide at ${inner}`);
    await page.evaluate(() => { location.hash = "#guest=4000"; });
    await says(page, "#guest-text", "resident");
    assert.ok(await page.evaluate(() => document.querySelector("#guest").scrollWidth <= innerWidth));
    assert.deepEqual(errors, []);
  }
});

tested("the theme is that of the system until another is chosen, and is remembered", {}, async ({ url }) => {
  const { page, errors } = await open(browser, url, { colorScheme: "light" });
  const back = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await back();
  await page.emulateMedia({ colorScheme: "dark" });
  const dark = await back();
  assert.notEqual(dark, light);
  await page.click("#theme");
  assert.equal(await text(page, "#theme"), "Theme: light");
  assert.equal(await back(), light);
  await page.reload();
  assert.equal(await text(page, "#theme"), "Theme: light");
  assert.equal(await back(), light);
  await page.click("#theme");
  assert.equal(await back(), dark);
  assert.deepEqual(errors, []);
});

tested("nothing moves by itself where the system asks for reduced motion", {}, async ({ url }) => {
  const { page } = await open(browser, url, { reducedMotion: "reduce" });
  const moving = () => page.evaluate(() => getComputedStyle(document.querySelector("#exposure-bar > *")).transitionDuration);
  assert.equal(await moving(), "0s");
  await page.emulateMedia({ reducedMotion: "no-preference" });
  assert.equal(await moving(), "0.4s");
});

tested("an exposure over the headroom is said in words and by the meter", {}, async ({ url, mock }) => {
  const { page } = await open(browser, url);
  mock.host.headroomBytes = 2 ** 30;
  mock.push();
  await says(page, "#exposure-note", "would be missing");
  assert.equal(await page.getAttribute("#exposure-bar", "aria-valuenow"), "100");
  assert.match(await page.getAttribute("#exposure-bar", "aria-valuetext"), /would be missing/);
});
