// Which guests or domains share memory with which: a matrix, as far as it is known.

import { get } from "./api.js";
import { byId, element, table } from "./dom.js";
import { bytes } from "./format.js";

/** Rows of the matrix at most: those that share most. */
const SHOWN = 20;
/** The strongest colour of a cell, in per cent, at which its text is still read well. */
const STRONGEST = 30;

/** Asks for the matrix and shows it, or says why there is none. */
export async function load() {
  const place = byId("sharing");
  let sharing;
  try {
    sharing = await get("sharing");
  } catch (error) {
    sharing = { names: [], bytes: [], note: error.message };
  }
  const shown = JSON.stringify(sharing);
  if (place.dataset.shown === shown) return;
  place.dataset.shown = shown;
  const note = element("p", { class: "note" }, sharing.note || "");
  if (sharing.names.length === 0) place.replaceChildren(note);
  else place.replaceChildren(note, element("div", { class: "scroll", role: "region", "aria-label": "Matrix of sharing", tabindex: "0" }, matrix(sharing)));
}

function matrix({ names, bytes: cells }) {
  const sum = (index) => cells[index].reduce((total, value) => total + (value ?? 0), 0);
  const order = names.map((_, index) => index).sort((one, other) => sum(other) - sum(one)).slice(0, SHOWN);
  const name = (index) => names[index] ?? "no domain";
  const most = Math.max(1, ...order.flatMap((row) => order.map((column) => cells[row][column] ?? 0)));
  const rows = order.map((row) => [name(row), ...order.map((column) => (cells[row][column] === 0 ? "0" : bytes(cells[row][column])))]);
  const left = names.length > SHOWN ? `; the ${SHOWN} of ${names.length} that share most` : "";
  const made = table(`Memory that both share${left}`, ["Name", ...order.map(name)], rows, order.map((_, index) => index + 1));
  made.classList.add("matrix");
  [...made.tBodies[0].rows].forEach((line, row) => {
    order.forEach((column, index) => {
      const part = (cells[order[row]][column] ?? 0) / most;
      line.cells[index + 1].style.setProperty("--part", `${Math.round(part * STRONGEST)}%`);
    });
  });
  return made;
}
