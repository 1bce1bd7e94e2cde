// The chart of what guests save by a label that the operator gave them.

import { get } from "./api.js";
import { TimeChart } from "./chart.js";
import { byId, element, setText } from "./dom.js";
import { historyQuery, shownWindow } from "./timeline.js";

/** Colours of the lines. No more values are drawn: those that save most. */
const COLORS = ["--saved", "--cost", "--profit", "--mark", "--event"];
/** Moments of the chart at most. */
const POINTS = 240;
const RELOAD_MILLISECONDS = 60_000;

let chart = null;
let asked = 0;

/** Keeps the choice of labels as the guests have them. Without any the part is hidden. */
export function showGuests(report) {
  const names = [...new Set((report.guests ?? []).flatMap(({ labels }) => Object.keys(labels ?? {})))].sort();
  const part = byId("by-label");
  const choice = byId("label");
  const shown = names.join("\n");
  if (choice.dataset.shown === shown) return;
  choice.dataset.shown = shown;
  const chosen = choice.value;
  choice.replaceChildren(...names.map((name) => element("option", { value: name }, name)));
  if (names.includes(chosen)) choice.value = chosen;
  part.hidden = names.length === 0;
  load();
}

/** Asks for the history of the chosen label over the time that the page's charts show. */
export async function load() {
  if (byId("by-label").hidden) return;
  asked += 1;
  const mine = asked;
  const label = byId("label").value;
  try {
    const history = await get(`${historyQuery().replace(/points=\d+/, `points=${POINTS}`)}&by=${encodeURIComponent(label)}`);
    if (mine !== asked) return;
    draw(history);
    setText(byId("label-note"), "");
  } catch (error) {
    if (mine === asked) setText(byId("label-note"), `History: ${error.message}`);
  }
}

function draw(history) {
  const [time, ...values] = history.columns.map((_, index) => history.rows.map((row) => row[index]));
  const sum = (index) => values[index].reduce((total, bytes) => total + bytes, 0);
  const most = values.map((_, index) => index).sort((one, other) => sum(other) - sum(one)).slice(0, COLORS.length);
  const series = most.map((index, each) => ({ key: String(index), label: history.columns[index + 1], scale: "bytes", color: COLORS[each] }));
  if (chart === null) {
    chart = new TimeChart(byId("label-chart"), byId("label-reading"), { series, window: shownWindow, stepped: true });
  } else if (chart.series.map(({ label }) => label).join("\n") !== series.map(({ label }) => label).join("\n")) {
    chart.setSeries(series);
  } else {
    chart.series = series;
  }
  chart.show({ time, ...Object.fromEntries(most.map((index) => [String(index), values[index]])) });
  chart.readLatest();
  setText(byId("label-text"), chart.inWords());
}

/** Begins: another label asks anew, and so does the time. */
export function start() {
  byId("label").onchange = load;
  setInterval(() => {
    if (!document.hidden) load();
  }, RELOAD_MILLISECONDS);
}
