// Sparklines: what each guest saved in the last minutes, from the stream of events since the page was opened.

const KEPT = 120;
const WIDTH = 120;
const HEIGHT = 28;
/** Room above and below the line, so that its whole stroke is seen. */
const MARGIN = 2;
const SVG = "http://www.w3.org/2000/svg";
/** A change by less than this part of the whole is called steady. */
const STEADY = 0.02;

const histories = new Map();

/** Remembers a figure of each guest: pairs of key and value. Forgets guests that are gone. */
export function remember(figures) {
  const present = new Set();
  for (const [key, value] of figures) {
    present.add(key);
    const values = histories.get(key) ?? [];
    values.push(value ?? 0);
    if (values.length > KEPT) values.shift();
    histories.set(key, values);
  }
  for (const key of histories.keys()) if (!present.has(key)) histories.delete(key);
}

/** Makes an empty sparkline: a line, and the area below it. */
export function sparkline() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  for (const part of ["area", "line"]) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("class", part);
    svg.append(path);
  }
  return svg;
}

/** Draws what is remembered of a guest, from 0 up to its own greatest value and over the whole width. */
export function drawSparkline(svg, key) {
  const values = histories.get(key) ?? [];
  const most = Math.max(...values, 1);
  const step = WIDTH / Math.max(values.length - 1, 1);
  const height = (value) => (HEIGHT - MARGIN - (Math.max(value, 0) / most) * (HEIGHT - 2 * MARGIN)).toFixed(1);
  // One value is a level line.
  const drawn = values.length === 1 ? [values[0], values[0]] : values;
  const points = drawn.map((value, index) => `${(index * step).toFixed(1)} ${height(value)}`);
  const [area, line] = svg.children;
  line.setAttribute("d", points.length > 0 ? `M${points.join("L")}` : "");
  area.setAttribute("d", points.length > 0 ? `M0 ${HEIGHT}L${points.join("L")}L${WIDTH} ${HEIGHT}Z` : "");
}

/** What a sparkline shows, in a word. */
export function trend(key) {
  const values = histories.get(key) ?? [];
  if (values.length < 2) return "";
  const change = values.at(-1) - values[0];
  if (Math.abs(change) <= STEADY * Math.max(values[0], values.at(-1), 1)) return "steady";
  return change > 0 ? "rising" : "falling";
}
