// Sparklines: what each guest saved in the last minutes, from the stream of events since the page was opened.

const KEPT = 120;
const WIDTH = 90;
const HEIGHT = 20;
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

/** Makes an empty sparkline. */
export function sparkline() {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("viewBox", `0 0 ${WIDTH} ${HEIGHT}`);
  svg.setAttribute("class", "spark");
  svg.setAttribute("aria-hidden", "true");
  svg.append(document.createElementNS(SVG, "path"));
  return svg;
}

/** Draws what is remembered of a guest. */
export function drawSparkline(svg, key) {
  const values = histories.get(key) ?? [];
  const [most, least] = [Math.max(...values, 1), Math.min(...values)];
  // A change of less than a tenth is drawn as what it is: nearly none.
  const room = Math.max(0, most * 0.1 - (most - least)) / 2;
  const [high, low] = [most + room, least - room];
  const step = WIDTH / (KEPT - 1);
  const first = KEPT - values.length;
  const points = values.map((value, index) => {
    const y = HEIGHT - 2 - ((value - low) / (high - low || 1)) * (HEIGHT - 4);
    return `${((first + index) * step).toFixed(1)} ${y.toFixed(1)}`;
  });
  svg.firstElementChild.setAttribute("d", points.length > 1 ? `M${points.join("L")}` : "");
}

/** What a sparkline shows, in a word. */
export function trend(key) {
  const values = histories.get(key) ?? [];
  if (values.length < 2) return "";
  const change = values.at(-1) - values[0];
  if (Math.abs(change) <= STEADY * Math.max(values[0], values.at(-1), 1)) return "steady";
  return change > 0 ? "rising" : "falling";
}
