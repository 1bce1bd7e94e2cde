// What the assets may hold: the page's policy of content permits nothing inline, and no text of guests is ever parsed.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ASSETS = fileURLToPath(new URL("../../assets/", import.meta.url));
const read = (name) => readFileSync(ASSETS + name, "utf8");
const own = readdirSync(ASSETS).filter((name) => !name.startsWith("uPlot."));

/** The files of uPlot 1.6.32, as `make vendor-uplot` puts them there. */
const VENDORED = {
  "uPlot.LICENSE.txt": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
  "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
  "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
};

test("no script of the page parses text as markup or as a program", () => {
  const refused = /innerHTML|outerHTML|insertAdjacentHTML|document\.write|DOMParser|createContextualFragment|\beval\b|new Function|srcdoc/;
  for (const name of own.filter((each) => each.endsWith(".js"))) {
    const found = read(name).split("\n").findIndex((line) => refused.test(line));
    assert.equal(found, -1, `${name}:${found + 1}`);
  }
});

test("the document has nothing inline, and names no other place", () => {
  const html = read("index.html");
  assert.doesNotMatch(html, /<style|\sstyle=|\son\w+=/);
  for (const [tag, body] of [...html.matchAll(/<script([^>]*)>(.*?)<\/script>/gs)].map((found) => found.slice(1))) {
    assert.match(tag, /src="\/assets\//);
    assert.equal(body, "");
  }
  for (const name of own) {
    const addresses = read(name).match(/(?:https?:)?\/\/[\w.-]+\.\w+/g) ?? [];
    assert.deepEqual(addresses.filter((address) => address !== "http://www.w3.org"), [], name);
  }
});

test("every asset that the document and the scripts name is there", () => {
  const named = own.flatMap((name) => [...read(name).matchAll(/(?:\/assets\/|from "\.\/)([\w.-]+)/g)].map((found) => found[1]));
  const present = readdirSync(ASSETS);
  assert.deepEqual(named.filter((name) => !present.includes(name)), []);
});

test("a time of which nothing was recorded is left open", async () => {
  // The assets have no package.json that would tell an older Node of modules.
  const { withGaps } = await import(`data:text/javascript,${encodeURIComponent(read("gaps.js"))}`);
  const time = [0, 1, 2, 3, 500, 501];
  const { time: times, saved } = withGaps({ time, saved: time });
  assert.deepEqual(times, [0, 1, 2, 3, 251.5, 500, 501]);
  assert.deepEqual(saved, [0, 1, 2, 3, null, 500, 501]);
  // Hours of which each has a row are whole.
  const hours = [0, 3600, 7200, 14400];
  assert.deepEqual(withGaps({ time: hours }).time, hours);
  assert.deepEqual(withGaps({ time: [] }).time, []);
});

test("the charting library is the release that is pinned", () => {
  for (const [name, sum] of Object.entries(VENDORED)) {
    assert.equal(createHash("sha256").update(readFileSync(ASSETS + name)).digest("hex"), sum, name);
  }
});
