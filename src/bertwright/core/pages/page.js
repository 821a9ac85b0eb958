"use strict";

// Functions that the pages share. Texts become text nodes, never markup.
const byId = (id) => document.getElementById(id);

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes))
    if (name === "class") node.className = value;
    else if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const formatNumber = (value) =>
  Math.abs(value) >= 0.0005 || value === 0 ? value.toFixed(3) : value.toExponential(1);

const numberHead = (name) => element("th", { scope: "col", class: "number" }, name);
const numberCell = (text) => element("td", { class: "number" }, text);

// A table; numbers are aligned, and nodes that are cells are used as they are.
function table(caption, head, rows) {
  const isCell = (cell) => cell instanceof HTMLTableCellElement;
  const cells = (tag, row, attributes) => row.map((cell) => {
    if (isCell(cell)) return cell;
    return typeof cell === "number" ? numberCell(formatNumber(cell)) : element(tag, attributes, cell);
  });
  return element("div", { class: "scroll" }, element("table", {},
    ...(caption ? [element("caption", {}, caption)] : []),
    element("thead", {}, element("tr", {}, ...cells("th", head, { scope: "col" }))),
    element("tbody", {}, ...rows.map((row) => element("tr", {}, ...cells("td", row, {}))))));
}

// Makes tabs of the buttons of a list: the arrow keys move between them, and `select` is called with
// the value of the new one. Returns a function that marks a tab as selected.
function tabs(list, select) {
  const buttons = () => [...list.querySelectorAll("[role=tab]")];
  function mark(value) {
    for (const button of buttons()) {
      button.setAttribute("aria-selected", String(button.value === value));
      button.tabIndex = button.value === value ? 0 : -1;
    }
  }
  list.addEventListener("click", ({ target }) => {
    const button = target.closest("[role=tab]");
    if (button) select(button.value);
  });
  list.addEventListener("keydown", (event) => {
    const all = buttons();
    const index = all.indexOf(event.target);
    const to = { ArrowLeft: index - 1, ArrowRight: index + 1, Home: 0, End: -1 }[event.key];
    if (index < 0 || to === undefined) return;
    event.preventDefault();
    event.stopPropagation();
    const button = all.at(to % all.length);
    button.focus();
    select(button.value);
  });
  return mark;
}

// The theme follows the system until one is chosen. A page in a frame follows the page around it.
function showTheme(theme) {
  if (["light", "dark"].includes(theme)) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  document.dispatchEvent(new Event("theme"));
}

function storedTheme() {
  try { return localStorage.getItem("theme") ?? "system"; } catch { return "system"; }
}

for (const choice of document.querySelectorAll(".theme select")) {
  choice.value = storedTheme();
  choice.addEventListener("change", () => {
    try { localStorage.setItem("theme", choice.value); } catch { /* only until the page is closed */ }
    showTheme(choice.value);
  });
  choice.closest(".theme").hidden = window !== window.parent;
}
showTheme(storedTheme());
if (window !== window.parent)
  addEventListener("message", ({ source, data }) => {
    if (source === window.parent && data && data.theme) showTheme(data.theme);
  });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
  document.dispatchEvent(new Event("theme")));
