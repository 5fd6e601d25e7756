"use strict";
// The filter of the review queue: its form, and the address that names it.

const filters = document.getElementById("filters");
const columnName = document.getElementById("column-name");
const columnValue = document.getElementById("column-value");

function condition(name, value) {
  // The first "=" ends the name, so one within the name is written in another way.
  return `${name.replaceAll("%", "%25").replaceAll("=", "%3D")}=${value}`;
}

function query() {
  const wanted = new URLSearchParams();
  for (const [name, value] of new FormData(filters)) {
    if (value !== "") wanted.append(name, value);
  }
  if (columnName.selectedIndex > 0) wanted.append("column", condition(columnName.value, columnValue.value));
  return wanted;
}

function address(pair) {
  // A decision that is left open is named too: without it, the page shows undecided pairs.
  const wanted = query();
  if (!wanted.has("decision")) wanted.append("decision", "");
  if (pair !== undefined) wanted.set("pair", pair);
  return `?${wanted}`;
}

function isSample() {
  return filters.elements.sample.value !== "";
}

function passes(item) {
  const wanted = query();
  const decision = wanted.get("decision");
  const reason = wanted.get("reason");
  return (!decision || decision === (item.decision || "undecided")) && (!reason || reason === item.reason);
}

function addColumn(name) {
  // The value is set here: in the text of an option, white space would be lost.
  columnName.append(new Option(name, name));
}

function setColumn(text) {
  // A link chooses a group of duplicates. Its column is not a column of the source.
  const place = text.indexOf("=");
  if (place < 0) return;
  const name = text.slice(0, place).replace(/%3D|%25/gi, (code) => (code === "%25" ? "%" : "="));
  const known = [...columnName.options].slice(1).map((option) => option.value);
  if (!known.includes(name)) addColumn(name);
  columnName.selectedIndex = 1 + (known.includes(name) ? known.indexOf(name) : known.length);
  for (const field of [columnName, columnValue]) field.closest("label").hidden = false;
  columnValue.value = text.slice(place + 1);
}

if (matchMedia("(max-width: 760px)").matches) document.getElementById("filter-box").open = false;
JSON.parse(columnName.dataset.names).forEach(addColumn);
for (const [name, value] of new URLSearchParams(location.search)) {
  const field = filters.elements[name];
  if (field?.options && ![...field.options].some((option) => option.value === value)) {
    field.append(new Option(value)); // the server says what it thinks of it
  }
  if (field) field.value = value;
  if (name === "column") setColumn(value);
}
document.getElementById("sample-note").hidden = !isSample();
if (isSample()) {
  for (const [name, value] of Object.entries({ verdict: "", low: "0", high: "1", order: "random" })) {
    const field = filters.elements[name];
    field.value = value;
    field.closest("label").hidden = true;
  }
}
