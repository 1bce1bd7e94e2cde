// The page of one guest: its figures, what keeps it from merging, and its history.

import { get } from "./api.js";
import { TimeChart } from "./chart.js";
import { byId, element, setText } from "./dom.js";
import { byKey } from "./format.js";
import { find, nameOf } from "./guests.js";
import { historyQuery, shownWindow } from "./timeline.js";

const LABELS = {
  uuid: "UUID", is_verified: "name is verified", kind: "kind", program: "program", user: "user", cgroup: "cgroup", domain: "trust domain",
  mergeable: "offers memory", memory_bytes: "memory it believes to have", rss_bytes: "resident", pss_bytes: "proportional (PSS)",
  private_bytes: "private", shared_bytes: "its part of shared pages", merged_bytes: "merged", zero_bytes: "merged zero pages",
  folded_bytes: "folded", huge_bytes: "in huge pages", split_bytes: "split by merging", split_cost_cpus: "cost of splits, CPUs at most", labels: "labels", saved_bytes: "saved", metadata_bytes: "KSM's metadata", profit_bytes: "profit", pids: "PIDs",
};

const HASH = /^#guest=(.+)$/;
const dialog = byId("guest");
/** History is asked for again after this time. */
const RELOAD_MILLISECONDS = 60_000;

let key = null;
let chart = null;
let asked = 0;

/** Why this guest saves little, as far as it is known, in sentences. */
function remarks(guest) {
  const said = [];
  if (guest.obstacle) said.push(`Its memory can't merge: ${guest.obstacle}.`);
  else if (guest.mergeable === false) said.push("It offers no memory to merging; `ksmith doctor` tells why.");
  if (guest.has_remaining_mergeable) said.push("Memory stays mergeable although its RAM is switched off.");
  if (guest.profit_bytes < 0) said.push("KSM's metadata for it takes more than merging saves.");
  return [...said, ...(guest.errors ?? [])];
}

/** Shows the newest figures of the guest that is looked at. */
export function refresh() {
  if (key === null) return;
  const guest = find(key);
  if (guest === null) {
    setText(byId("guest-why"), "This guest is gone, or is not known yet.");
    return;
  }
  setText(byId("guest-title"), nameOf(guest));
  setText(byId("guest-why"), remarks(guest).join(" "));
  const list = byId("guest-figures");
  const shown = Object.entries(LABELS).filter(([name]) => guest[name] !== null && guest[name] !== undefined);
  const texts = { pids: () => guest.pids.join(", "), labels: () => Object.entries(guest.labels).map((pair) => pair.join(" ")).join(", ") || "none" };
  const value = (name) => (texts[name] ?? (() => byKey(name, guest[name])))();
  const names = shown.map(([name]) => name).join(" ");
  if (list.dataset.shown !== names) {
    list.dataset.shown = names;
    list.replaceChildren(...shown.map(([, label]) => element("div", {}, element("dt", {}, label), element("dd", {}))));
  }
  shown.forEach(([name], index) => setText(list.children[index].lastChild, value(name)));
}

/** The id of the guest in the history: of those with this PID, the one that lives. */
function idIn(history) {
  const same = (history.guests ?? []).filter(({ id }) => String(id).split(/[.:]/)[0] === key);
  return (same.find(({ last }) => last === null) ?? same.at(-1))?.id ?? null;
}

/** Asks for the guest's history over the time that the page's charts show. */
export async function loadHistory() {
  if (key === null) return;
  asked += 1;
  const mine = asked;
  try {
    const id = idIn(await get(historyQuery().replace(/points=\d+/, "points=1"))) ?? key;
    const history = await get(`${historyQuery()}&guest=${encodeURIComponent(id)}`);
    if (mine !== asked || key === null) return;
    const columns = Object.fromEntries(history.columns.map((name, index) => [name, history.rows.map((row) => row[index])]));
    chart.show(columns);
    chart.readLatest();
    setText(byId("guest-history"), "");
    setText(byId("guest-text"), chart.inWords());
  } catch (error) {
    if (mine === asked) setText(byId("guest-history"), `History: ${error.message}`);
  }
}

function open(which) {
  key = which;
  if (!dialog.open) dialog.showModal();
  setText(byId("guest-title"), `Guest ${which}`);
  chart ??= new TimeChart(byId("guest-chart"), byId("guest-reading"), {
    window: shownWindow,
    stepped: true, // A guest is recorded where a figure has changed.
    series: [
      { key: "rss_bytes", label: "resident", scale: "bytes", color: "--mark" },
      { key: "merged_bytes", label: "merged", scale: "bytes", color: "--exposure" },
      { key: "saved_bytes", label: "saved", scale: "bytes", color: "--saved", fill: true },
      { key: "profit_bytes", label: "profit", scale: "bytes", color: "--profit", dash: [6, 3] },
    ],
  });
  chart.show({ time: [] });
  refresh();
  loadHistory();
}

function follow() {
  const found = HASH.exec(location.hash);
  if (found !== null) open(decodeURIComponent(found[1]));
  else if (dialog.open) dialog.close();
}

/** Begins: a guest's page opens by its address, `#guest=KEY`. */
export function start() {
  addEventListener("hashchange", follow);
  setInterval(loadHistory, RELOAD_MILLISECONDS);
  byId("guest-close").onclick = () => dialog.close();
  dialog.addEventListener("close", () => {
    const link = [...document.querySelectorAll("#guests a")].find((each) => each.hash === location.hash);
    key = null;
    if (HASH.test(location.hash)) history.replaceState(null, "", location.pathname);
    link?.focus();
  });
  follow();
}
