// Elements in one line each; text is always text, never markup.
export function el(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, handler] of Object.entries(value)) made.addEventListener(event, handler);
    else if (name === "data") Object.assign(made.dataset, value);
    else if (name in made && !name.startsWith("aria")) made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return made;
}

// A sentence of the catalogue with its fields filled in.
export const sayWith = (sentences) => (key, values = {}) =>
  (sentences[key] ?? key).replace(/{(\w+)[^}]*}/g, (_, name) => values[name] ?? "");
