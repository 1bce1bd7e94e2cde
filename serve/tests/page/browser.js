// A real Chromium for the tests, and pages of it that remember every error of the console.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PLACES = [process.env.CHROMIUM, "/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Where Chromium is on this machine, or null. */
export function chromiumPath() {
  return PLACES.find((place) => place && existsSync(place)) ?? null;
}

/** Starts Chromium. Its own sandbox needs more rights than a test run by root in a container has. */
export function launch() {
  return chromium.launch({ executablePath: chromiumPath(), args: ["--no-sandbox"] });
}

/** Opens a page at `url`, waits for its first figures, and gives the page with the errors of its console. */
export async function open(browser, url, settings = {}, hash = "") {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...settings });
  const page = await context.newPage();
  const errors = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) errors.push(message.text());
  });
  page.on("pageerror", (error) => errors.push(String(error.stack)));
  page.on("dialog", (dialog) => {
    errors.push(`a dialog: ${dialog.message()}`);
    dialog.dismiss();
  });
  await page.goto(url + hash);
  await page.waitForSelector("#guests tbody tr");
  await page.waitForFunction(() => document.querySelector("#spent-text").textContent.startsWith("From"));
  return { page, errors };
}
