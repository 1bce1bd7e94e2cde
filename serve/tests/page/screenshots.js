// Draws the pictures of docs/internals/web-page.md: `node screenshots.js DIRECTORY`, over the mock.

import { launch, open } from "./browser.js";
import { Mock } from "./mock.js";

const PICTURES = [
  ["web-desktop", { viewport: { width: 1280, height: 900 }, colorScheme: "light" }, ""],
  ["web-dark", { viewport: { width: 1280, height: 900 }, colorScheme: "dark" }, ""],
  ["web-phone", { viewport: { width: 360, height: 740 }, colorScheme: "light" }, ""],
  ["web-guest", { viewport: { width: 1280, height: 900 }, colorScheme: "light" }, "#guest=4003"],
];

const [directory] = process.argv.slice(2);
const browser = await launch();
for (const [name, settings, hash] of PICTURES) {
  let ahead = 0;
  const mock = new Mock({ guests: 24, clock: () => Date.now() / 1000 + ahead });
  const { page } = await open(browser, await mock.listen(), settings, hash);
  await page.waitForFunction(() => document.querySelector("#connection").textContent === "Live");
  // Sparklines have as many points as there were events.
  for (let event = 0; event < 80; event += 1) {
    ahead += 3;
    mock.push();
  }
  if (hash !== "") await page.waitForFunction(() => document.querySelector("#guest-text").textContent.startsWith("From"));
  if (name === "web-desktop") await page.focus("#decisions li:nth-child(4) button");
  if (name === "web-dark") await page.evaluate(() => document.querySelector("#guests-title").scrollIntoView());
  await page.waitForTimeout(500);
  await page.screenshot({ path: `${directory}/${name}.png` });
  await page.context().close();
  await mock.close();
}
await browser.close();
