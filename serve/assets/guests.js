// The table of guests: sorted by its headings, filtered, and as short as the operator wants it.

import { byId, element, setAttribute, setText } from "./dom.js";
import { byKey } from "./format.js";
import { drawSparkline, remember, sparkline, trend } from "./spark.js";

/** Rows that are shown before all are asked for. */
const SHORT = 50;
/** Milliseconds for which rows keep their places where more than these are shown: to move hundreds takes long, and nobody can read them. */
const HELD = 10_000;

const COLUMNS = [
  { key: "name", label: "Guest" },
  { key: "kind", label: "Kind", class: "minor" },
  { key: "domain", label: "Domain", class: "minor" },
  { key: "user", label: "User", class: "minor" },
  { key: "rss_bytes", label: "Resident", class: "number minor" },
  { key: "merged_bytes", label: "Merged", class: "number minor" },
  { key: "saved_bytes", label: "Saved", class: "number" },
  { key: "saved_percent", label: "Part", class: "number minor" },
  { key: "profit_bytes", label: "Profit", class: "number" },
];
/** The columns that are added up in the last row. */
const SUMMED = ["rss_bytes", "merged_bytes", "saved_bytes", "saved_percent", "profit_bytes"];

let guests = [];
let sort = { key: "saved_bytes", descending: true };
let words = [];
let isLong = false;
let onShown = () => {};
/** The place of each guest by its key, and the time of the sorting that gave it. */
let places = new Map();
let sortedAt = -Infinity;
/** By key of the guest: the guest, its row, the cells, and the values that they show. */
const rows = new Map();
/** Rows on the screen or near it. Only these are written to when figures change: the layout of a thousand rows takes long. */
const visible = new Set();
/** Made once: a comparison that makes its own takes a hundred times as long. */
const { compare: compareTexts } = new Intl.Collator("en", { numeric: true });

const observer = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    // It may still tell of a row that is gone.
    if (isIntersecting && rows.get(target.dataset.key)?.row === target) {
      visible.add(target);
      writeRow(target);
    } else {
      visible.delete(target);
    }
  }
}, { rootMargin: "100%" });

/** Key of a guest over its life, as far as the page needs it: the PID of its first process. */
export function keyOf(guest) {
  return String(guest.pids?.[0] ?? guest.name);
}

/** The name that is shown: a guest without one has its program's. */
export function nameOf(guest) {
  return guest.name || guest.program || `process ${keyOf(guest)}`;
}

/** The guest with this key among those that the server told of last. */
export function find(key) {
  return guests.find((guest) => keyOf(guest) === key) ?? null;
}

function compare(one, other) {
  const [a, b] = [one[sort.key], other[sort.key]];
  const isMissing = (value) => value === null || value === undefined || value === "";
  if (isMissing(a) || isMissing(b)) return Number(isMissing(a)) - Number(isMissing(b));
  const order = typeof a === "number" ? a - b : compareTexts(String(a), String(b));
  return (sort.descending ? -order : order) || compareTexts(keyOf(one), keyOf(other));
}

function matches(guest) {
  if (words.length === 0) return true;
  const text = [guest.name, guest.kind, guest.user, guest.domain, guest.program, guest.uuid, guest.cgroup, guest.obstacle, ...Object.values(guest.labels ?? {})].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

/** Takes the guests that the server tells of. */
export function showGuests(report) {
  const all = report.saved_bytes;
  const part = (bytes) => (all > 0 && bytes !== null && bytes !== undefined ? (bytes / all) * 100 : null);
  guests = (report.guests ?? []).map((guest) => ({ ...guest, saved_percent: part(guest.saved_bytes) }));
  remember(guests.map((guest) => [keyOf(guest), guest.saved_bytes]));
  draw();
}

/** The guests that match, in the order of the last sorting while that holds. */
function inOrder() {
  const found = guests.filter(matches);
  const place = (guest) => places.get(keyOf(guest));
  const isHeld = isLong && found.length > SHORT && performance.now() - sortedAt < HELD && found.every((guest) => place(guest) !== undefined);
  if (isHeld) return found.sort((one, other) => place(one) - place(other));
  found.sort(compare);
  places = new Map(found.map((guest, index) => [keyOf(guest), index]));
  sortedAt = performance.now();
  return found;
}

/** Draws anew what the operator has asked for. */
function redraw() {
  sortedAt = -Infinity;
  draw();
}

function draw() {
  const found = inOrder();
  const shown = isLong ? found : found.slice(0, SHORT);
  const body = byId("guests").tBodies[0];
  const present = new Set();
  let next = body.firstElementChild;
  shown.forEach((guest) => {
    const key = keyOf(guest);
    present.add(key);
    let shownRow = rows.get(key);
    if (shownRow === undefined) {
      const made = makeRow(key);
      shownRow = { row: made, cells: [...made.cells], values: {} };
      rows.set(key, shownRow);
      observer.observe(made);
      fillRow(shownRow, guest);
    }
    shownRow.guest = guest;
    if (shownRow.row === next) next = next.nextElementSibling;
    else body.insertBefore(shownRow.row, next);
  });
  for (const [key, { row }] of rows) if (!present.has(key)) forget(key, row);
  showSums(found);
  for (const row of visible) writeRow(row);
  const filtered = words.length > 0 ? ` of ${guests.length}` : "";
  setText(byId("guests-note"), guests.length === 0 ? "No guest has mergeable memory." : `${found.length}${filtered} guests`);
  byId("guests-table").hidden = guests.length === 0;
  for (const node of document.querySelectorAll("#filter, label[for=filter]")) node.hidden = guests.length === 0;
  const more = byId("more");
  more.hidden = found.length <= SHORT;
  setText(more, isLong ? `Show the first ${SHORT} only` : `Show all ${found.length} guests`);
  onShown();
}

/** Shows the sums of the guests that were found, whether or not all have a row. */
function showSums(found) {
  const [heading, ...cells] = byId("guests").tFoot.rows[0].cells;
  setText(heading, `Sum of ${found.length} ${found.length === 1 ? "guest" : "guests"}`);
  COLUMNS.slice(1).forEach(({ key }, index) => {
    const known = found.map((guest) => guest[key]).filter((value) => value !== null && value !== undefined);
    const isSum = SUMMED.includes(key) && known.length > 0;
    setText(cells[index], isSum ? byKey(key, known.reduce((sum, value) => sum + value, 0)) : "");
  });
}

function forget(key, row) {
  observer.unobserve(row);
  visible.delete(row);
  row.remove();
  rows.delete(key);
}

function makeRow(key) {
  const link = element("a", { href: `#guest=${encodeURIComponent(key)}` });
  const row = element("tr", {}, element("th", { scope: "row" }, link, element("span", { class: "tag", hidden: true })),
    ...COLUMNS.slice(1).map((column) => element("td", { class: column.class })),
    element("td", {}, sparkline(), element("span", { class: "hidden" })));
  row.dataset.key = key;
  return row;
}

/** Writes what has changed of a guest. Values that a row shows already cost no look at the document. */
function fillRow({ cells, values }, guest) {
  const isNew = (key, value) => {
    const differs = !(key in values) || values[key] !== value;
    values[key] = value;
    return differs;
  };
  const [heading] = cells;
  const name = nameOf(guest);
  if (isNew("name", name)) setText(heading.firstChild, name);
  const remark = guest.obstacle ? `can't merge: ${guest.obstacle}` : guest.errors?.length > 0 ? "has notes" : "";
  if (isNew("remark", remark)) {
    setText(heading.lastChild, remark);
    heading.lastChild.hidden = remark === "";
  }
  COLUMNS.forEach(({ key }, index) => {
    if (index > 0 && isNew(key, guest[key])) setText(cells[index], byKey(key, guest[key]));
  });
  cells[COLUMNS.length - 1].classList.toggle("bad", guest.profit_bytes < 0);
}

function writeRow(row) {
  const shownRow = rows.get(row.dataset.key);
  fillRow(shownRow, shownRow.guest);
  const cell = row.lastChild;
  drawSparkline(cell.firstChild, row.dataset.key);
  setText(cell.lastChild, trend(row.dataset.key));
}

function makeHeadings() {
  const head = byId("guests").tHead.rows[0];
  for (const { key, label, class: kind } of COLUMNS) {
    const button = element("button", { type: "button", onclick: () => sortBy(key) }, label);
    head.append(element("th", { scope: "col", class: kind, "data-key": key }, button));
  }
  head.append(element("th", { scope: "col" }, "Saved lately"));
  byId("guests").tFoot.rows[0].append(
    element("th", { scope: "row" }), ...COLUMNS.slice(1).map((column) => element("td", { class: column.class })), element("td", {}));
  showSort();
}

function sortBy(key) {
  const isSame = sort.key === key;
  sort = { key, descending: isSame ? !sort.descending : SUMMED.includes(key) };
  showSort();
  redraw();
}

function showSort() {
  for (const heading of byId("guests").tHead.querySelectorAll("[data-key]")) {
    const isSorted = heading.dataset.key === sort.key;
    if (isSorted) setAttribute(heading, "aria-sort", sort.descending ? "descending" : "ascending");
    else heading.removeAttribute("aria-sort");
  }
}

/** Begins: headings, filter and length. `shown` is called after each change of the table. */
export function start(shown) {
  onShown = shown;
  makeHeadings();
  addEventListener("beforeprint", () => {
    for (const { row } of rows.values()) writeRow(row);
  });
  byId("filter").oninput = (event) => {
    words = event.target.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
    redraw();
  };
  byId("more").onclick = () => {
    isLong = !isLong;
    redraw();
  };
}
