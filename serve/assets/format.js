// Figures in words: bytes, parts, times. What is not known is an en dash, never 0.

export const UNKNOWN = "–";

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** Bytes with a unit, such as `1.2 GiB`. */
export function bytes(value) {
  if (value === null || value === undefined) return UNKNOWN;
  let [size, unit] = [Math.abs(value), 0];
  while (size >= 1023.95 && unit < UNITS.length - 1) {
    size /= 1024;
    unit += 1;
  }
  const digits = unit === 0 ? 0 : 1;
  return `${value < 0 ? "-" : ""}${size.toFixed(digits)} ${UNITS[unit]}`;
}

/** Per cent with one digit. */
export function percent(value) {
  return value === null || value === undefined ? UNKNOWN : `${value.toFixed(1)} %`;
}

/** A number with its thousands divided. */
export function count(value) {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString("en-GB", { maximumFractionDigits: 3 });
}

/** A time of seconds in its two largest units, such as `2 h 5 min`. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return UNKNOWN;
  const parts = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  let rest = Math.max(0, Math.round(seconds));
  const words = [];
  for (const [name, size] of parts) {
    if (rest >= size && words.length < 2) {
      words.push(`${Math.floor(rest / size)} ${name}`);
      rest %= size;
    }
  }
  return words.length === 0 ? "0 s" : words.join(" ");
}

/** A moment as this browser's user writes it: the time, and the day too where it is not today. */
export function moment(seconds) {
  const date = new Date(seconds * 1000);
  const time = date.toLocaleTimeString("en-GB");
  return date.toDateString() === new Date().toDateString() ? time : `${date.toLocaleDateString("en-CA")} ${time}`;
}

/** The value of a figure by the unit that its key ends with. */
export function byKey(key, value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value !== "number") return String(value);
  if (key.endsWith("_bytes")) return bytes(value);
  if (key.endsWith("_percent")) return percent(value);
  if (key.endsWith("_seconds")) return span(value);
  return count(value);
}
