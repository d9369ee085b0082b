"use strict";
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const views = [];  // of charts: where they are, what they show, and what draws them

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
  const spec = structuredClone(chart.spec);
  spec.encoding.color.legend = null;  // the section has one for all its charts
  const actions = { export: true, source: false, compiled: false, editor: false };  // a menu: save as SVG or PNG
  const options = { actions, renderer: "svg", config: chartTheme(), tooltip: { theme: "custom" } };
  chart.result = await window.vegaEmbed(chart.element, spec, options);
  chart.view = chart.result.view;
  signal(chart);
}

function isShown(chart) {
  const choice = chosen(chart.section);
  if (chart.metric && choice.metric !== null && chart.metric !== choice.metric) return false;
  return !(chart.size && choice.size !== null && chart.size !== choice.size);
}

function signal(chart) {
  chart.view.signal("highlight", chosen(chart.section).series);
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
  return { series, metric: value("select.metric"), size: value("select.size") };
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
      sort(table, column, cell.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending");
    });
  });
}

// -- wiring --------------------------------------------------------------------------------------------------------

function wireSection(content) {
  const section = document.getElementById(content.id);
  for (const figure of section.querySelectorAll(".plot")) {
    const spec = content.plots[figure.dataset.plot];
    const element = figure.querySelector(".canvas");
    const { metric, size } = figure.dataset;
    views.push({ section, figure, spec, metric, size, element });
  }
  for (const button of section.querySelectorAll(".legend button")) {
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      refresh(section);
    });
  }
  for (const list of section.querySelectorAll("select")) list.addEventListener("change", () => refresh(section));
}

document.querySelectorAll("table.sortable").forEach(wireTable);
data.forEach(wireSection);
document.getElementById("theme").addEventListener("click", () => setTheme(isDark() ? "light" : "dark"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => setTheme());
await drawAll();
