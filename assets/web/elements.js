// Makes elements without ever reading text as HTML. Properties that an element has are set, "on..." listens, the rest are attributes.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "class") made.className = value;
    else if (name in made && !name.startsWith("aria")) made[name] = value;
    else made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

export const button = (text, onclick, more = {}) => element("button", { type: "button", onclick, ...more }, text);

export const clock = (seconds) => `${Math.floor(seconds / 60)}:${String(Math.floor(seconds % 60)).padStart(2, "0")}`;

// Calls `look` when an element comes into view: a tab that is opened is looked at afresh.
export function whenSeen(root, look) {
  new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) look(); }).observe(root);
}

// A table of texts and elements; heads are the columns' names, which each cell has too, for screens without room for columns.
export function table(heads, rows) {
  const head = element("tr", {}, ...heads.map((name) => element("th", { scope: "col" }, name)));
  const line = (row) => element("tr", {}, ...row.map((cell, at) => element("td", { "data-head": heads[at] }, cell ?? "")));
  return element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.map(line)));
}
