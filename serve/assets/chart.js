// A chart over time, with marks on the time axis. The drawing is uPlot's.

import { element, setText } from "./dom.js";
import { bytes, moment, percent } from "./format.js";

/** How near to a mark, in pixels, the pointer must be for the mark to be explained. */
const NEAR = 8;
/** A narrower chart has less room for its values, and is lower. */
const NARROW = 480;
const HEIGHT = 220;
const NARROW_HEIGHT = 180;
const FONT = "12px system-ui, sans-serif";

/** Distances of bytes at which an axis may have its lines: powers of two. */
const BYTE_STEPS = Array.from({ length: 60 }, (_, power) => 2 ** power);

/** Room for the values at the left and at the right, and for a time, in pixels. A chart without values at the right has that room too: times stand below each other. */
const ROOM = { left: 84, right: 52, time: 70 };
const NARROW_ROOM = { left: 66, right: 48, time: 50 };

const AXES = {
  bytes: { scale: "bytes", incrs: BYTE_STEPS, values: (_, values) => values.map(bytes) },
  percent: { scale: "percent", side: 1, grid: { show: false }, values: (_, values) => values.map((value) => `${value} %`) },
};

const WORDS = { bytes, percent };

/** Times of the axis by their distance: in 24 hours, days as in ISO 8601. */
const DAY = "\n{YYYY}-{MM}-{DD}";
const TIMES = [
  [86400 * 365, "{YYYY}", null, null, null, null, null, null, 1],
  [86400 * 28, "{YYYY}-{MM}", null, null, null, null, null, null, 1],
  [86400, "{MM}-{DD}", "\n{YYYY}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", DAY, null, DAY, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", DAY, null, DAY, null, null, null, 1],
];

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A chart of some series of one table of figures. */
export class TimeChart {
  /**
   * `series` has the key, label, scale (`bytes` or `percent`) and colour of each line. `window` gives the times at both
   * ends. `onZoom` gets the times at both ends of what was dragged over, `onBack` a double click, `onMark` the mark at
   * the pointer or null. `stepped` holds each value until the next one. `between` has a colour and the keys of two lines,
   * the upper one first, between which it is filled.
   */
  constructor(place, reading, { series, window, onZoom = null, onBack = null, onMark = null, group = null, stepped = false, between = null }) {
    Object.assign(this, { place, reading, window, onZoom, onBack, onMark, group, stepped, between });
    this.time = element("span", {});
    this.setSeries(series);
    this.marks = [];
    this.chosen = null;
    this.near = null;
    this.observer = new ResizeObserver(() => this.resize());
    this.observer.observe(place);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.build());
    document.addEventListener("ksmith-theme", () => this.build());
  }

  /** Takes other lines. Their figures follow by `show`. */
  setSeries(series) {
    this.series = series;
    this.data = [[], ...series.map(() => [])];
    this.words = series.map(({ label }) => element("span", {}, label));
    const swatch = ({ color }) => element("span", { class: `swatch ${color.slice(2)}` });
    this.reading.replaceChildren(...this.words.map((words, each) => element("span", { class: "entry" }, swatch(series[each]), words)), this.time);
    this.plot?.destroy();
    this.plot = undefined;
  }

  /** Takes new figures: an object of columns, each an array. */
  show(columns) {
    this.data = [columns.time, ...this.series.map(({ key }) => columns[key] ?? columns.time.map(() => null))];
    if (this.plot === undefined) this.build();
    else this.plot.setData(this.data);
  }

  /** Takes the marks: each with a `time` and a `kind`. */
  showMarks(marks) {
    this.marks = marks;
    this.plot?.redraw(false);
  }

  /** Emphasises one mark, or none. */
  choose(mark) {
    this.chosen = mark;
    this.plot?.redraw(false);
  }

  /** The size that the place has room for. */
  size() {
    const width = Math.max(120, Math.floor(this.place.clientWidth));
    return { width, height: width < NARROW ? NARROW_HEIGHT : HEIGHT };
  }

  resize() {
    const { width, height } = this.size();
    if (this.plot === undefined || (this.plot.width === width && this.plot.height === height)) return;
    if ((this.plot.width < NARROW) === (width < NARROW)) this.plot.setSize({ width, height });
    else this.build();
  }

  build() {
    if (globalThis.uPlot === undefined) {
      setText(this.time, "The charting library did not load; the table below has the figures.");
      return;
    }
    this.plot?.destroy();
    const line = colour("--line");
    const text = colour("--muted");
    const base = { stroke: text, font: FONT, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 } };
    const scales = [...new Set(this.series.map(({ scale }) => scale))];
    const room = this.size().width < NARROW ? NARROW_ROOM : ROOM;
    const axis = (scale) => ({
      ...base, ...AXES[scale], size: scale === "percent" ? room.right : room.left, grid: { ...base.grid, ...AXES[scale].grid },
    });
    const indexOf = (key) => this.series.findIndex((each) => each.key === key) + 1;
    const bands = this.between === null ? [] : [{ series: this.between.keys.map(indexOf), fill: `${colour(this.between.color)}66` }];
    const series = this.series.map(({ label, scale, color, fill, dash }) => ({
      label, scale, stroke: colour(color), fill: fill ? `${colour(color)}22` : undefined, width: 1.5, dash, points: { show: false },
      paths: this.stepped ? globalThis.uPlot.paths.stepped({ align: 1 }) : undefined,
    }));
    this.plot = new globalThis.uPlot({
      ...this.size(),
      legend: { show: false },
      padding: [null, scales.includes("percent") ? 0 : room.right, null, 0],
      bands,
      scales: {
        x: { range: () => this.window() },
        bytes: { range: (_, low, high) => padded(Math.min(0, low ?? 0), high, 2 ** 20) },
        percent: { range: (_, low, high) => padded(Math.min(0, low ?? 0), high, 1) },
      },
      axes: [{ ...base, space: room.time, values: TIMES }, ...scales.map(axis)],
      series: [{}, ...series],
      cursor: {
        y: false,
        drag: { x: true, y: false, setScale: false },
        bind: { dblclick: () => () => { this.onBack?.(); return null; } },
        sync: this.group === null ? undefined : { key: this.group },
      },
      hooks: {
        draw: [(plot) => this.drawMarks(plot)],
        setCursor: [(plot) => this.atCursor(plot)],
        setSelect: [(plot) => this.selected(plot)],
      },
    }, this.data, this.place);
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    const [low, high] = this.window();
    const ratio = devicePixelRatio || 1;
    ctx.save();
    for (const mark of this.marks) {
      if (mark.time < low || mark.time > high) continue;
      const isChosen = mark === this.chosen || mark === this.near;
      const x = Math.round(plot.valToPos(mark.time, "x", true));
      ctx.strokeStyle = ctx.fillStyle = colour(isChosen ? "--accent" : mark.kind === "event" ? "--event" : "--mark");
      ctx.lineWidth = (isChosen ? 2 : 1) * ratio;
      ctx.setLineDash(isChosen ? [] : [2 * ratio, 4 * ratio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const half = (isChosen ? 7 : 4) * ratio;
      ctx.beginPath();
      ctx.moveTo(x - half, bbox.top);
      ctx.lineTo(x + half, bbox.top);
      ctx.lineTo(x, bbox.top + 1.5 * half);
      ctx.fill();
    }
    ctx.restore();
  }

  /** Says what the lines show at the pointer, and which mark is there. */
  atCursor(plot) {
    const { idx, left } = plot.cursor;
    if (idx === null || idx === undefined || left < 0) {
      this.say(this.data[0].length - 1);
      this.approach(null);
      return;
    }
    this.say(idx);
    const distance = (mark) => Math.abs(plot.valToPos(mark.time, "x") - left);
    const nearest = this.marks.reduce((best, mark) => (best === null || distance(mark) < distance(best) ? mark : best), null);
    this.approach(nearest !== null && distance(nearest) <= NEAR ? nearest : null);
  }

  approach(mark) {
    if (mark === this.near) return;
    this.near = mark;
    this.plot.redraw(false);
    this.onMark?.(mark);
  }

  /** Says the figures of one row, which serves as the legend too. */
  say(index) {
    const [times, ...lines] = this.data;
    this.series.forEach(({ label, scale }, each) => setText(this.words[each], `${label} ${WORDS[scale](lines[each][index])}`));
    setText(this.time, times.length === 0 ? "There are no figures of this time." : `at ${moment(times[index])}`);
  }

  /** Says the newest figures unless the pointer asks for others. */
  readLatest() {
    if (this.plot === undefined || (this.plot.cursor.left ?? -1) < 0) this.say(this.data[0].length - 1);
  }

  selected(plot) {
    const { left, width } = plot.select;
    if (width < 4) return;
    const [since, until] = [plot.posToVal(left, "x"), plot.posToVal(left + width, "x")];
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.onZoom?.(since, until);
  }

  /** What the lines did over this time, in sentences: the text beside the drawing. */
  inWords() {
    const times = this.data[0];
    if (times.length === 0) return "There are no figures of this time.";
    const sentences = this.series.map(({ label, scale }, each) => {
      const known = this.data[each + 1].filter((value) => value !== null && value !== undefined);
      if (known.length === 0) return `${label} is not known.`;
      const say = WORDS[scale];
      const [low, high] = known.reduce(([least, most], value) => [Math.min(least, value), Math.max(most, value)], [Infinity, -Infinity]);
      return `${label}: first ${say(known[0])}, last ${say(known.at(-1))}, least ${say(low)}, most ${say(high)}.`;
    });
    return `From ${moment(times[0])} to ${moment(times.at(-1))}. ${sentences.join(" ")}`;
  }
}

/** A range with some room around it; never empty. */
function padded(low, high, least) {
  const [from, to] = [low ?? 0, high ?? least];
  const room = Math.max((to - from) * 0.08, least * 0.05);
  return [from >= 0 ? Math.max(0, from - room) : from - room, to + room];
}
