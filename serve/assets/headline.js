// The verdict and the figures at the top: what is saved, at what cost, and whether memory would be enough if all of it diverged.

import { byId, element, setAttribute, setText } from "./dom.js";
import { bytes, count, percent, span, UNKNOWN } from "./format.js";

const PLACES = new Map([...document.querySelectorAll("[data-figure]")].map((node) => [node.dataset.figure, node]));

function show(name, text) {
  setText(PLACES.get(name), text);
}

/** Part of the headroom that the exposure takes, in per cent, and what that means, in a sentence. */
export function cover(exposure, headroom) {
  if (exposure === null || exposure === undefined || headroom === null || headroom === undefined) {
    return { part: null, meaning: "The exposure or the headroom is not known." };
  }
  const part = headroom > 0 ? (exposure / headroom) * 100 : exposure > 0 ? Infinity : 0;
  const sums = `${bytes(exposure)} of ${bytes(headroom)}`;
  if (part > 100) {
    return { part, meaning: `${sums}: if every merged page were written to, ${bytes(exposure - headroom)} would be missing.` };
  }
  return { part, meaning: `${sums}: enough if every merged page were written to.` };
}

/** Levels of the verdict, each with its word on the page. The server decides which one holds. */
const LEVELS = { fine: "Fine", look: "Look", act: "Act" };

/** Shows the verdict. Its level is read aloud when it changes; its figures, which change each second, are not. */
function showVerdict(verdict) {
  const level = LEVELS[verdict?.level] === undefined ? "unknown" : verdict.level;
  const place = byId("verdict");
  if (place.className !== `verdict ${level}`) place.className = `verdict ${level}`;
  setText(byId("verdict-level"), LEVELS[level] ?? "Not known");
  setText(byId("verdict-text"), verdict?.sentence ?? "");
}

/** Shows a status. */
export function showStatus(status) {
  showVerdict(status.verdict);
  show("saved", bytes(status.saved_bytes));
  show("profit", bytes(status.profit_bytes));
  PLACES.get("profit").classList.toggle("bad", status.profit_bytes < 0);
  show("profit-note", status.profit_bytes < 0 ? "KSM costs more memory than it saves" : `saved, less ${bytes(status.overhead_bytes)} of metadata`);
  show("cpu", percent(status.ksmd_cpu_percent));
  showPolicy(status.daemon);
  show("saved-note", savedNote(status));
  const splits = status.split_cost_cpus >= 0.005 ? `; splits of huge pages cost guests up to ${count(status.split_cost_cpus)} CPU` : "";
  show("cpu-note", `${cpuNote(status.daemon)}${splits}`);
  showCover(status);
  showDomains(status.domains);
  const lost = status.history?.problem ? `Nothing is recorded: ${status.history.problem}` : null;
  const sentences = [lost, status.balance?.exposed, ...(status.errors ?? [])];
  showNotes(sentences.filter((sentence) => sentence));
  show("pressure", percent(status.memory_pressure_percent));
}

/** How much of the guests' memory is in huge pages, and how much merging has split: that is what the savings took. */
function savedNote({ huge_bytes: huge, split_bytes: split }) {
  const spares = "memory that merging spares";
  return split > 0 ? `${spares}; ${bytes(huge ?? 0)} in huge pages, ${bytes(split)} split by merging` : spares;
}

/** Shows the consequence of the side channels of merging: a warning while guests of different domains may share pages. */
function showDomains(domains) {
  const place = byId("domains");
  const mayShare = domains?.may_share_across === true;
  setAttribute(place, "class", mayShare ? "warning" : "note");
  setText(place, domains?.meaning ? `${mayShare ? "Warning: side channel" : "Trust domains"}: ${domains.meaning}.` : "");
}

function showPolicy(daemon) {
  show("policy", daemon ? `${daemon.policy}: ${daemon.state}` : "no daemon");
  show("policy-note", daemon ? daemon.reason : "no daemon of ksmith controls KSM on this host");
  setAttribute(PLACES.get("policy-note"), "title", daemon?.reason_detail ?? "");
}

function cpuNote(daemon) {
  return daemon ? `of one CPU; the daemon is up for ${span(daemon.uptime_seconds)}` : "of one CPU";
}

function showCover({ exposure_bytes: exposure, headroom_bytes: headroom }) {
  const { part, meaning } = cover(exposure, headroom);
  const bar = byId("exposure-bar");
  const shown = part === null ? 0 : Math.min(100, Math.round(part));
  setAttribute(bar, "aria-valuenow", String(shown));
  setAttribute(bar, "aria-valuetext", part === null ? "unknown" : meaning);
  bar.classList.toggle("over", part !== null && part > 100);
  bar.classList.toggle("near", part !== null && part > 80 && part <= 100);
  bar.firstElementChild.style.width = `${shown}%`;
  setText(byId("exposure-note"), meaning);
}

function showNotes(sentences) {
  const list = byId("notes");
  const shown = sentences.join("\n");
  if (list.dataset.shown === shown) return;
  list.dataset.shown = shown;
  list.hidden = sentences.length === 0;
  list.replaceChildren(...sentences.map((sentence) => element("li", {}, sentence)));
}

/** Marks all figures as old, while the daemon or the server does not answer. */
export function setStale(isStale) {
  document.documentElement.classList.toggle("stale", isStale);
  if (isStale && PLACES.get("saved").textContent === UNKNOWN) show("policy", "unknown");
}
