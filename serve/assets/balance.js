// Balance: the pool, the memory that each guest has of what it was started with, and the plan.

import { get } from "./api.js";
import { byId, element, replace, setText, table } from "./dom.js";
import { bytes, percent, span } from "./format.js";

const RECENT = 10;

let wasEmpty = null;

/** Asks for balance and shows it, or says why there is none. */
export async function load() {
  try {
    const report = await get("balance");
    replace(byId("balance"), parts(report));
    fold(report.guests.length === 0 && report.recent.length === 0, `${report.policy}: ${report.state}`);
  } catch (error) {
    setText(byId("balance-note"), `not known: ${error.message}`);
  }
}

/** Folds the section away when it becomes empty, and opens it when it fills. Between these the operator decides. */
function fold(isEmpty, note) {
  setText(byId("balance-note"), note);
  if (isEmpty === wasEmpty) return;
  wasEmpty = isEmpty;
  byId("balance-fold").open = !isEmpty;
}

function parts(report) {
  const { pool } = report;
  const made = [element("p", {}, element("strong", {}, `${report.policy}: ${report.state}`), ` ${report.reason}`)];
  if (!report.is_enabled) made.push(element("p", { class: "note" }, "Plans are shown and not carried out: balance is off in the configuration."));
  if (report.exposed) made.push(element("p", { class: "warning" }, report.exposed));
  const sums = `Pool ${report.pool_name}: ${bytes(pool.available_bytes)} of ${bytes(pool.size_bytes)} available`;
  const bounds = `memory is taken below ${bytes(report.low_bytes)} and given back above ${bytes(report.high_bytes)}`;
  made.push(element("p", {}, `${sums}; ${bounds}; memory pressure ${percent(pool.psi_some_percent)}.`));
  if (report.guests.length > 0) made.push(scrolling("Guests in balance", guests(report.guests)));
  if (report.recent.length > 0) made.push(scrolling("Resizes of lately", recent(report.recent)));
  return made;
}

function scrolling(label, content) {
  return element("div", { class: "scroll", role: "region", "aria-label": label, tabindex: "0" }, content);
}

function guests(rows) {
  const given = ({ given_bytes: now, whole_bytes: whole }) => {
    const bar = element("span", { class: "bar small", "aria-hidden": "true" }, element("span", {}));
    bar.firstChild.style.width = `${whole > 0 ? Math.min(100, Math.round((now / whole) * 100)) : 0}%`;
    return element("span", { class: "given" }, bar, `${bytes(now)} of ${bytes(whole)}`);
  };
  const plan = (row) => (row.to_bytes === null ? "stays" : `to ${bytes(row.to_bytes)}`);
  const why = (row) => [row.reason, row.held ? "held by the operator" : null, row.trouble, row.why_not].filter((text) => text).join("; ");
  const lines = rows.map((row) => [row.name, row.class?.name ?? "", given(row), plan(row), why(row)]);
  return table("Guests: memory given of the whole, and the plan", ["Guest", "Class", "Given", "Plan", "Why"], lines);
}

function recent(rows) {
  const outcome = (row) => row.error ?? (row.got_bytes === null ? "under way" : `has ${bytes(row.got_bytes)}`);
  const lines = rows.slice(0, RECENT).map((row) => [
    row.name, `${span(row.seconds_ago)} ago`, `${bytes(row.from_bytes)} to ${bytes(row.to_bytes)}`, outcome(row), row.reason,
  ]);
  return table("Resizes of lately", ["Guest", "When", "Resize", "Outcome", "Why"], lines);
}
