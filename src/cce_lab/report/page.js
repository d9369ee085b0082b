"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const views = [];  // of charts: where they are, what they show, and what draws them
const state = recall();

// -- what is remembered while the page loads itself again ----------------------------------------------------------

function recall() {
  try { return JSON.parse(sessionStorage.getItem("cce-report")) || {}; } catch { return {}; }
}

function remember(change) {
  Object.assign(state, change);
  try { sessionStorage.setItem("cce-report", JSON.stringify(state)); } catch { /* a page may be denied a memory */ }
}

// -- rows ----------------------------------------------------------------------------------------------------------

function unpack({ count, columns }) {
  const rows = Array.from({ length: count }, () => ({}));
  for (const [name, column] of Object.entries(columns)) {
    rows.forEach((row, index) => {
      const value = column.words ? column.words[column.at[index]] : column[index];
      if (value !== null) row[name] = value;
    });
  }
  return rows;
}

// -- theme ---------------------------------------------------------------------------------------------------------

function isDark() {
  return root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function chartTheme() {
  const style = getComputedStyle(root);
  const of = (name) => style.getPropertyValue(name).trim();
  const words = { labelColor: of("--quiet"), titleColor: of("--ink"), labelFontSize: 11, titleFontSize: 12 };
  return {
    background: "transparent", font: "system-ui, sans-serif", view: { stroke: null },
    axis: { ...words, titleFontWeight: 500, gridColor: of("--line"), domainColor: of("--line"), tickColor: of("--line") },
    legend: words, title: { color: of("--ink") }, text: { color: of("--ink") },
  };
}

function setTheme(theme) {
  if (theme) root.dataset.theme = theme;
  drawAll();
}

// -- charts --------------------------------------------------------------------------------------------------------

async function draw(chart) {
  if (chart.result) chart.result.finalize();
  chart.result = chart.view = null;
  chart.figure.hidden = !isShown(chart);
  if (chart.figure.hidden) return;  // without a width there is nothing to fit to: it is drawn when it is shown
  const spec = structuredClone(chart.plot.spec);
  spec.data = { values: chart.rows };
  spec.encoding.color.legend = null;  // the section has one for all its charts
  const options = { actions: false, renderer: "svg", config: chartTheme(), tooltip: { theme: "custom" } };
  chart.result = await window.vegaEmbed(chart.element, spec, options);
  chart.view = chart.result.view;
  signal(chart);
}

function isShown(chart) {
  const choice = chosen(chart.section);
  if (chart.metric && choice.metric !== null && chart.metric !== choice.metric) return false;
  if (chart.size && choice.size !== null && chart.size !== choice.size) return false;
  const has = (row) => row.budget === choice.budget || row.budget === "full";
  return !chart.plot.budgets || choice.budget === null || chart.rows.some(has);
}

function signal(chart) {
  const choice = chosen(chart.section);
  chart.view.signal("highlight", choice.series);
  if (chart.plot.budgets && choice.budget !== null) chart.view.signal("budget", choice.budget);
  chart.view.runAsync();
}

async function drawAll() {
  for (const chart of views) await draw(chart);
  root.dataset.drawn = String(views.length);
}

function chosen(section) {
  const value = (list) => section.querySelector(list)?.value ?? null;
  const pressed = section.querySelectorAll(".legend [aria-pressed=true]");
  const series = [...pressed].map((button) => button.dataset.series);
  return { series, budget: value("select.budget"), metric: value("select.metric"), size: value("select.size") };
}

function refresh(section) {
  for (const chart of views.filter((each) => each.section === section)) {
    chart.figure.hidden = !isShown(chart);
    if (chart.figure.hidden) continue;
    if (chart.view) signal(chart);
    else draw(chart);
  }
}

// -- tables --------------------------------------------------------------------------------------------------------

function key(cell) {
  const text = cell.dataset.value ?? cell.textContent;
  if (text === "" || text === "–") return null;
  const number = Number(text);
  return Number.isNaN(number) ? text : number;
}

function compare(first, last) {
  if (typeof first === "number" && typeof last === "number") return first - last;
  return String(first).localeCompare(String(last), undefined, { numeric: true });
}

function sort(table, column, direction) {
  const body = table.tBodies[0];
  const rows = [...body.rows].map((row) => [key(row.cells[column]), row]);
  rows.sort(([first], [last]) => {
    if (first === null || last === null) return (first === null) - (last === null);  // nothing comes last
    return direction === "ascending" ? compare(first, last) : compare(last, first);
  });
  rows.forEach(([, row]) => body.append(row));
  [...table.tHead.rows[0].cells].forEach((cell, index) => {
    cell.setAttribute("aria-sort", index === column ? direction : "none");
  });
}

function wireTable(table) {
  [...table.tHead.rows[0].cells].forEach((cell, column) => {
    cell.addEventListener("click", () => {
      const direction = cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
      sort(table, column, direction);
      remember({ sorted: { ...state.sorted, [table.dataset.name]: [column, direction] } });
    });
  });
  const before = state.sorted?.[table.dataset.name];
  if (before && before[0] < table.tHead.rows[0].cells.length) sort(table, ...before);
}

// -- the ledger ----------------------------------------------------------------------------------------------------

const count = (value) => value.toLocaleString("en-US");

function size(value) {
  let unit = 0;
  for (; value >= 999.95 && unit < 4; unit += 1) value /= 1000;
  return `${value.toFixed(unit ? 1 : 0)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
}

const ratio = (value) => `${value.toLocaleString("en-US", { maximumFractionDigits: value < 99.95 ? 1 : 0 })}×`;

const number = (value, write) => (Number.isFinite(value) ? [value, write(value)] : ["", "–"]);

const LEDGER = [ // a heading, and the cell of a table below it
  ["table", (table) => [table.name ?? ""]],
  ["method", (table) => [table.method ?? ""]],
  ["ids", (table) => number(table.num_embeddings, count)],
  ["params", (table) => number(table.num_params, count)],
  ["codebook", (table) => number(table.codebook_nbytes, size)],
  ["pointers", (table) => number(table.pointer_nbytes, size)],
  ["gradients", (table) => number(table.gradient_nbytes, size)],
  ["optimizer", (table) => number(table.optimizer_nbytes, size)],
  ["codes", (table) => number(table.codes_nbytes, size)],
  ["clustering", (table) => number(table.clustering_nbytes, size)],
  ["fewer bytes", (table) => number(table.full_nbytes / (table.codebook_nbytes + table.pointer_nbytes), ratio)],
  ["fewer params", (table) => number(table.full_params / table.num_params, ratio)],
];

function total(rows) {
  const sum = { name: "all tables", method: "" };
  for (const row of rows) {
    for (const [name, value] of Object.entries(row)) {
      if (typeof value === "number") sum[name] = (sum[name] ?? 0) + value;
    }
  }
  return sum;
}

function showLedger(box, ledger) {
  const rows = unpack(ledger.rows).sort((first, last) => (last.full_params ?? 0) - (first.full_params ?? 0));
  const table = document.createElement("table");
  table.className = "sortable";
  table.dataset.name = "ledger";
  const head = table.createTHead().insertRow();
  LEDGER.forEach(([name], index) => {
    const cell = document.createElement("th");
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = name;
    cell.scope = "col";
    cell.setAttribute("aria-sort", "none");
    if (index < 2) cell.className = "text";
    cell.append(button);
    head.append(cell);
  });
  const body = table.createTBody();
  for (const row of [total(rows), ...rows]) {
    const line = body.insertRow();
    LEDGER.forEach(([, cellOf], index) => {
      const [value, text] = cellOf(row);
      const cell = line.insertCell();
      cell.textContent = text ?? value;
      if (text !== undefined) cell.dataset.value = value;
      if (index < 2) cell.className = "text";
    });
  }
  const wide = document.createElement("div");
  wide.className = "wide";
  wide.tabIndex = 0;
  wide.append(table);
  box.replaceChildren(wide);
  wireTable(table);
}

// -- wiring --------------------------------------------------------------------------------------------------------

function wireList(section, list, name, show) {
  const slot = `${section.id} ${name}`;
  const before = state.chosen?.[slot];
  if (before !== undefined && [...list.options].some((option) => option.value === before)) list.value = before;
  list.addEventListener("change", () => {
    remember({ chosen: { ...state.chosen, [slot]: list.value } });
    show();
  });
}

function wireLegend(section) {
  for (const button of section.querySelectorAll(".legend button")) {
    const slot = `${section.id} ${button.dataset.series}`;
    if (state.pressed?.[slot]) button.setAttribute("aria-pressed", "true");
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") !== "true";
      button.setAttribute("aria-pressed", String(pressed));
      remember({ pressed: { ...state.pressed, [slot]: pressed } });
      refresh(section);
    });
  }
}

function wireSection(content) {
  const section = document.getElementById(content.id);
  const rows = content.rows.map(unpack);
  for (const figure of section.querySelectorAll(".plot")) {
    const plot = content.plots[figure.dataset.plot];
    const element = figure.querySelector(".canvas");
    const { metric, size: measure } = figure.dataset;
    views.push({ section, figure, plot, rows: rows[plot.rows], metric, size: measure, element });
  }
  wireLegend(section);
  const budgets = section.querySelector("select.budget");
  if (budgets) wireList(section, budgets, "budget", () => refresh(section));
  for (const name of ["metric", "size"]) {
    const list = section.querySelector(`select.${name}`);
    if (list) wireList(section, list, name, () => refresh(section));
  }
  const runs = section.querySelector("select.run");
  if (!runs) return;
  content.ledger.forEach((ledger, index) => runs.append(new Option(ledger.label, String(index))));
  const show = () => showLedger(section.querySelector(".ledger"), content.ledger[Number(runs.value)]);
  wireList(section, runs, "run", show);
  if (content.ledger.length) show();
}

function reloadLater(seconds) {
  setTimeout(() => {
    remember({ scroll: scrollY, theme: root.dataset.theme });
    location.reload();
  }, seconds * 1000);
}

if (state.theme) root.dataset.theme = state.theme;
document.querySelectorAll("table.sortable").forEach(wireTable);
data.sections.forEach(wireSection);
document.getElementById("theme").addEventListener("click", () => {
  setTheme(isDark() ? "light" : "dark");
  remember({ theme: root.dataset.theme });
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme());
await drawAll();
if (data.reload) {
  if (state.scroll) scrollTo(0, state.scroll);
  reloadLater(data.reload);
}
