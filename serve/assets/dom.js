// Elements. Text of guests only ever becomes text: nothing here, and nothing in this page, parses markup.

/** The element with this id. */
export function byId(id) {
  return document.getElementById(id);
}

/** Makes an element with attributes, properties of functions (`onclick`) and children, which are nodes or text. */
export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (typeof value === "function") made[key] = value;
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets the text of an element where it differs, so that unchanged figures cost nothing and are not read aloud anew. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Sets an attribute where it differs. */
export function setAttribute(node, name, value) {
  if (node.getAttribute(name) !== value) node.setAttribute(name, value);
}

/** Replaces what stands in a place where its text differs. What has the keyboard's focus is left as it is. */
export function replace(place, children) {
  const text = children.map((child) => child.textContent).join("");
  if (text === place.textContent || (place.contains(document.activeElement) && place !== document.activeElement)) return;
  place.replaceChildren(...children);
}

/**
 * Makes a table with a caption. The first cell of each row is its heading; `numeric` has the columns of numbers. On a narrow
 * screen each row is a block of lines, each with its heading; roles keep it a table for those who hear it.
 */
export function table(caption, headings, rows, numeric = []) {
  const align = (index) => (numeric.includes(index) ? "number" : null);
  const head = element("tr", { role: "row" },
    ...headings.map((text, index) => element("th", { scope: "col", role: "columnheader", class: align(index) }, text)));
  const cell = (content, index) => (index === 0
    ? element("th", { scope: "row", role: "rowheader" }, content)
    : element("td", { role: "cell", class: align(index), "data-label": headings[index] }, content));
  const body = rows.map((cells) => element("tr", { role: "row" }, ...cells.map(cell)));
  return element("table", { class: "stacked", role: "table" }, element("caption", {}, caption),
    element("thead", { role: "rowgroup" }, head), element("tbody", { role: "rowgroup" }, ...body));
}
