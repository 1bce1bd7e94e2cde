// Gaps: times of which nothing was recorded are left open in a chart, and not bridged by a line.

/** A shorter time without a row is no gap: the daemon's turns are seconds apart while little happens. */
const LEAST_SECONDS = 60;
/** So many times the usual distance of two rows is a gap. */
const USUAL = 5;

/** The columns with an empty row in each gap. */
export function withGaps(columns) {
  const { time } = columns;
  const distances = time.slice(1).map((at, index) => at - time[index]).sort((one, other) => one - other);
  const limit = Math.max(LEAST_SECONDS, USUAL * (distances[Math.floor(distances.length / 2)] ?? 0));
  const made = Object.fromEntries(Object.keys(columns).map((key) => [key, []]));
  time.forEach((at, index) => {
    if (index > 0 && at - time[index - 1] > limit) {
      for (const key of Object.keys(made)) made[key].push(key === "time" ? (at + time[index - 1]) / 2 : null);
    }
    for (const key of Object.keys(made)) made[key].push(columns[key][index]);
  });
  return made;
}
