// Takes the pictures of pages for `make screens`: `node screenshots.js DIRECTORY NAME=URL…`. The page of `ksmith serve` is a web-….

import { launch, open } from "./browser.js";

const DESK = { viewport: { width: 1280, height: 900 }, colorScheme: "light" };

/** The settings of each picture, by its name. */
const PICTURES = {
  "web-desktop": DESK,
  "web-dark": { ...DESK, colorScheme: "dark" },
  "web-phone": { viewport: { width: 390, height: 844 }, colorScheme: "light" },
  "web-guest": DESK,
  report: { ...DESK, viewport: { width: 1280, height: 1100 } },
  lab: { ...DESK, viewport: { width: 1280, height: 930 } },
};

/** Seconds for which the page is open before it is taken, so that its lines of two minutes have something to show. */
const SECONDS_OPEN = 45;

async function openServed(browser, settings, address) {
  const { origin, hash } = new URL(address);
  const { page, errors } = await open(browser, origin, settings);
  await page.waitForFunction(() => document.querySelector("#connection").textContent === "Live");
  const quarter = page.locator("[data-range='900']");
  if ((await quarter.count()) > 0) await quarter.click();
  if (hash !== "") {
    await page.evaluate((guest) => { location.hash = guest; }, hash);
    await page.waitForFunction(() => document.querySelector("#guest-text").textContent.startsWith("From"));
  }
  await page.evaluate(() => scrollTo(0, 0));
  return { page, errors };
}

async function openFile(browser, settings, url) {
  const page = await (await browser.newContext(settings)).newPage();
  await page.goto(url);
  return { page, errors: [] };
}

const [directory, ...pairs] = process.argv.slice(2);
const browser = await launch();
const opened = [];
for (const pair of pairs) {
  const at = pair.indexOf("=");
  const [name, url] = [pair.slice(0, at), pair.slice(at + 1)];
  const settings = PICTURES[name];
  if (settings === undefined) throw new Error(`no picture is named ${name}: ${Object.keys(PICTURES).join(", ")}`);
  const isServed = name.startsWith("web-");
  opened.push({ name, isServed, ...(await (isServed ? openServed : openFile)(browser, settings, url)) });
}
if (opened.some(({ isServed }) => isServed)) await new Promise((resolve) => setTimeout(resolve, SECONDS_OPEN * 1000));
for (const { name, page, errors } of opened) {
  // The first of the list is often the end of the last pass; the second has the policy's reason.
  if (name === "web-desktop") await page.locator("#decisions li button").nth(1).focus({ timeout: 1000 }).catch(() => {});
  if (name === "web-dark") await page.evaluate(() => document.querySelector("#guests-title").scrollIntoView());
  await page.waitForTimeout(500);
  await page.screenshot({ path: `${directory}/${name}.png` });
  if (errors.length > 0) throw new Error(`${name}: the page has errors: ${errors.join("; ")}`);
}
await browser.close();
