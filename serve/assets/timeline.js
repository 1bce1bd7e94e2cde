// The charts over time: history from the server, new figures from the stream, marks for decisions and events.

import { get } from "./api.js";
import { TimeChart } from "./chart.js";
import { byId, element, setText, table } from "./dom.js";
import { byKey, moment, span } from "./format.js";
import { withGaps } from "./gaps.js";

/** Points of a chart at most. The server bounds its answer to as many. */
export const POINTS = 1000;
const LISTED = 100;
const TABLE_ROWS = 30;
/** History is asked for again after this time, so that averages replace what the stream said. */
const RELOAD_MILLISECONDS = 60_000;

const COLUMNS = [
  "time", "saved_bytes", "profit_bytes", "exposure_bytes", "headroom_bytes", "ksmd_cpu_percent", "host_memory_bytes", "host_available_bytes",
];
const HEADINGS = ["Time", "Saved", "Profit", "Exposure", "Headroom", "ksmd's CPU", "Host's memory", "Available"];
/** A part of the asked time at the beginning without figures that is cut off, and the least time that is shown. */
const EMPTY_PART = 0.02;
const LEAST_SECONDS = 60;
/** Events that explain a change of the curves. Guests that come and go are not among them: there are too many. */
const EVENTS = {
  daemon_started: "daemon started",
  daemon_stopped: "daemon stopped",
  setting_changed_by_others: "setting changed by others",
  clock_set: "clock set",
  gap: "moments lost",
  alarm: "alarm",
  problem: "problem",
};

let view = { seconds: 7200, since: null, until: null };
let columns = emptyColumns();
let marks = [];
let chosen = null;
let clockOffset = 0;
let loading = 0;
let lastDecision = null;
let isDrawn = true;
let onRange = () => {};

function emptyColumns() {
  return Object.fromEntries(COLUMNS.map((key) => [key, []]));
}

/** The server's time now, in seconds since 1970. */
export function now() {
  return Date.now() / 1000 + clockOffset;
}

/** The times at both ends of the charts: the time that was asked for, without a beginning of which there are no figures. */
export function shownWindow() {
  if (view.since !== null) return [view.since, view.until];
  const until = now();
  const [since, first] = [until - view.seconds, columns.time[0] ?? -Infinity];
  return [first - since > EMPTY_PART * view.seconds ? Math.min(first, until - LEAST_SECONDS) : since, until];
}

/** What to ask the history for. */
export function historyQuery() {
  const ends = view.since === null ? `since=${view.seconds}s` : `since=${view.since.toFixed(3)}&until=${view.until.toFixed(3)}`;
  return `history?${ends}&points=${POINTS}`;
}

const common = {
  window: shownWindow,
  onZoom: (since, until) => zoom(since, until),
  onBack: () => back(),
  group: "time",
};

const memory = new TimeChart(byId("memory"), byId("memory-reading"), {
  ...common,
  series: [
    { key: "unmerged_bytes", label: "without merging", scale: "bytes", color: "--saved", dash: [6, 3] },
    { key: "used_bytes", label: "used", scale: "bytes", color: "--memory", fill: true },
    { key: "host_memory_bytes", label: "the host's memory", scale: "bytes", color: "--text" },
  ],
  between: { keys: ["unmerged_bytes", "used_bytes"], color: "--saved" },
});

const spent = new TimeChart(byId("spent"), byId("spent-reading"), {
  ...common,
  series: [
    { key: "saved_bytes", label: "saved", scale: "bytes", color: "--saved", fill: true },
    { key: "profit_bytes", label: "profit", scale: "bytes", color: "--profit", dash: [6, 3] },
    { key: "ksmd_cpu_percent", label: "ksmd's CPU", scale: "percent", color: "--cost" },
  ],
  onMark: (mark) => explain(mark ?? chosen),
});

const covered = new TimeChart(byId("cover"), byId("cover-reading"), {
  ...common,
  series: [
    { key: "headroom_bytes", label: "headroom", scale: "bytes", color: "--headroom", fill: true },
    { key: "exposure_bytes", label: "exposure", scale: "bytes", color: "--exposure" },
  ],
});

const charts = [memory, spent, covered];

/** Asks for the history of the time that is shown. */
export async function load() {
  loading += 1;
  const mine = loading;
  let history;
  try {
    history = await get(historyQuery());
  } catch (error) {
    if (mine === loading) setText(byId("range-note"), `History: ${error.message}`);
    return;
  }
  if (mine !== loading) return;
  if (view.since === null) clockOffset = history.until - Date.now() / 1000;
  const at = Object.fromEntries(history.columns.map((key, index) => [key, index]));
  columns = emptyColumns();
  for (const key of COLUMNS) columns[key] = history.rows.map((row) => (at[key] === undefined ? null : row[at[key]]));
  columns = withGaps(columns);
  showMarks(history);
  draw();
  describe(history);
}

function describe(history) {
  setText(byId("spent-text"), `${spent.inWords()} ${marks.length} decisions and events.`);
  setText(byId("memory-text"), memory.inWords());
  setText(byId("cover-text"), covered.inWords());
  const [since, until] = shownWindow();
  const isCut = until - since < (1 - EMPTY_PART) * view.seconds;
  const last = isCut ? `the last ${span(Math.round((until - since) / 60) * 60)}, before which nothing is recorded in this time` : `the last ${span(view.seconds)}`;
  const ends = view.since === null ? last : `${moment(since)} to ${moment(until)}`;
  setText(byId("range-note"), `${ends}: ${history.rows.length} points; drag in a chart to zoom, double click to go back`);
  fillTable();
}

function showMarks({ decisions, events }) {
  const asMark = ({ time, policy, state, reason, reason_detail: detail, settings }) =>
    ({ time, kind: "decision", title: `${policy}: ${state}`, text: reason, detail, settings });
  const found = (decisions ?? []).map(asMark);
  for (const { time, kind, text } of events ?? []) {
    if (EVENTS[kind] !== undefined) found.push({ time, kind: "event", title: EVENTS[kind], text, settings: null });
  }
  marks = found.sort((one, other) => one.time - other.time);
  chosen = marks.find((mark) => chosen !== null && mark.time === chosen.time && mark.title === chosen.title) ?? null;
  charts.forEach((chart) => chart.choose(chosen));
  charts.forEach((chart) => chart.showMarks(marks));
  listMarks();
}

function listMarks() {
  const list = byId("decisions");
  const key = (mark) => `${mark.time} ${mark.title}`;
  const newest = marks.slice(-LISTED).reverse();
  const shown = newest.map(key).join("\n");
  setText(byId("decisions-note"), marks.length > LISTED ? `The newest ${LISTED} of ${marks.length}; zoom in for others.` : marks.length === 0 ? "None in this time." : "");
  if (list.dataset.shown !== shown) {
    list.dataset.shown = shown;
    const focused = list.contains(document.activeElement) ? document.activeElement.dataset.key : null;
    list.replaceChildren(...newest.map(listed));
    if (focused !== null) [...list.querySelectorAll("button")].find((button) => button.dataset.key === focused)?.focus();
  }
  explain(chosen);
}

function listed(mark) {
  const choose = () => {
    chosen = mark;
    charts.forEach((chart) => chart.choose(mark));
    explain(mark);
  };
  const button = element("button", { type: "button", class: `mark ${mark.kind}`, "data-key": `${mark.time} ${mark.title}`, onfocus: choose, onclick: choose },
    element("time", { datetime: new Date(mark.time * 1000).toISOString() }, moment(mark.time)), " ", element("strong", {}, mark.title), " ",
    element("span", { title: mark.detail }, mark.text ?? ""));
  return element("li", {}, button);
}

/** Explains one mark beside the chart, or says how to have one explained. */
function explain(mark) {
  const place = byId("decision");
  const key = mark === null ? "" : `${mark.time} ${mark.title}`;
  for (const button of byId("decisions").querySelectorAll("button")) {
    button.toggleAttribute("aria-current", button.dataset.key === key);
  }
  if (mark === null) {
    place.replaceChildren("No decision is chosen.");
    return;
  }
  const around = () => zoom(mark.time - 450, Math.min(mark.time + 450, now()));
  place.replaceChildren(
    element("strong", {}, mark.title), ` at ${moment(mark.time)}: `,
    element("span", { title: mark.detail }, mark.text ?? "no reason was recorded"),
    mark.settings ? element("span", { class: "settings" }, mark.settings) : "",
    element("button", { type: "button", onclick: around }, "Zoom to it"));
}

function zoom(since, until) {
  view = { ...view, since, until };
  rangeChanged();
}

/** Goes back to the present. */
export function back() {
  if (view.since === null) return;
  const hadFocus = document.activeElement === byId("back");
  view = { ...view, since: null, until: null };
  rangeChanged();
  if (hadFocus) document.querySelector("[data-range][aria-pressed=true]")?.focus();
}

function rangeChanged() {
  byId("back").hidden = view.since === null;
  for (const button of document.querySelectorAll("[data-range]")) {
    button.setAttribute("aria-pressed", String(view.since === null && Number(button.dataset.range) === view.seconds));
  }
  draw();
  load();
  onRange();
}

/** Memory that is used, and that would be used if nothing were merged. The part between them is saved. */
function withUsed(shown) {
  const isKnown = (value) => value !== null && value !== undefined;
  const used = shown.time.map((_, index) => {
    const [all, available] = [shown.host_memory_bytes[index], shown.host_available_bytes[index]];
    return isKnown(all) && isKnown(available) ? all - available : null;
  });
  const unmerged = used.map((bytes, index) => (bytes !== null && isKnown(shown.saved_bytes[index]) ? bytes + shown.saved_bytes[index] : null));
  return { ...shown, used_bytes: used, unmerged_bytes: unmerged };
}

function draw() {
  const shown = withUsed(columns);
  charts.forEach((chart) => {
    chart.show(shown);
    chart.readLatest();
  });
}

/** Adds the figures of the stream to the charts. */
export function showStatus(status) {
  const decision = status.daemon ? `${status.daemon.policy} ${status.daemon.state} ${status.daemon.reason}` : null;
  const isNew = lastDecision !== null && decision !== lastDecision;
  lastDecision = decision;
  if (view.since !== null) return;
  append(status);
  if (isNew) reload();
  if (isDrawn) {
    isDrawn = false;
    requestAnimationFrame(() => {
      isDrawn = true;
      draw();
    });
  }
}

function append(status) {
  const time = now();
  const times = columns.time;
  if (times.length > 0 && time <= times.at(-1)) return;
  const isClose = times.length >= 2 && time - times.at(-2) < view.seconds / POINTS;
  for (const key of COLUMNS) {
    if (isClose) columns[key].pop();
    columns[key].push(key === "time" ? time : (status[key] ?? null));
  }
  const old = times.findIndex((each) => each >= time - view.seconds);
  if (old > 0) for (const key of COLUMNS) columns[key].splice(0, old);
}

let reloadTimer = null;

/** Asks for history soon: a decision is recorded a moment after the stream tells of it. */
function reload() {
  clearTimeout(reloadTimer);
  reloadTimer = setTimeout(load, 1000);
}

function fillTable() {
  const details = byId("as-table");
  if (!details.open) return;
  const total = columns.time.length;
  const step = Math.max(1, Math.ceil(total / TABLE_ROWS));
  const rows = [];
  for (let index = 0; index < total; index += step) {
    rows.push(COLUMNS.map((key) => (key === "time" ? moment(columns.time[index]) : byKey(key, columns[key][index]))));
  }
  details.querySelector("div").replaceChildren(table("Figures of the charts, at most thirty moments", HEADINGS, rows, [1, 2, 3, 4, 5, 6, 7]));
}

/** Begins: buttons, first history, and `onRangeChange` whenever another time is shown. */
export function start(onRangeChange) {
  onRange = onRangeChange;
  for (const button of document.querySelectorAll("[data-range]")) {
    button.onclick = () => {
      view = { seconds: Number(button.dataset.range), since: null, until: null };
      rangeChanged();
    };
  }
  byId("back").onclick = back;
  byId("as-table").addEventListener("toggle", fillTable);
  setInterval(() => {
    if (view.since === null && !document.hidden) load();
  }, RELOAD_MILLISECONDS);
  return load();
}
