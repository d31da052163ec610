// Elements of the raters' page: handlers and data attributes by name, children that are false or absent left out.
import { element } from "../elements.js";

export function el(tag, { on = {}, data = {}, ...properties } = {}, ...children) {
  const made = element(tag, properties, ...children.flat().filter((child) => child !== false && child !== null && child !== undefined));
  for (const [event, handler] of Object.entries(on)) made.addEventListener(event, handler);
  Object.assign(made.dataset, data);
  return made;
}

// A sentence of the catalogue with its fields filled in.
export const sayWith = (sentences) => (key, values = {}) =>
  (sentences[key] ?? key).replace(/{(\w+)[^}]*}/g, (_, name) => values[name] ?? "");
