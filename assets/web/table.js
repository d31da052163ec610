// A table of texts and elements; heads are the columns' names.
export function table(heads, rows) {
  const made = document.createElement("table");
  const head = made.createTHead().insertRow();
  for (const text of heads) { const cell = document.createElement("th"); cell.scope = "col"; cell.append(text); head.append(cell); }
  const body = made.createTBody();
  for (const row of rows) { const line = body.insertRow(); for (const value of row) line.insertCell().append(value ?? ""); }
  return made;
}
