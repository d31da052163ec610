// What every module of the page needs: where the server is, the sentences of the page's language, and its JSON routes.
export const base = new URL(`${window.gradio_config.root}/`, location.href);
export const language = () =>
  (document.documentElement.lang || navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en";
const accepted = () => ({ "Accept-Language": document.documentElement.lang || "en" });
let sentences = {};
export const loaded = fetch(new URL(`web/messages/${language()}.json`, base)).then((r) => r.json()).then((s) => { sentences = s; });

// A sentence of the catalogue, its {fields} filled; formats such as {seconds:.1f} are up to the caller.
export const say = (key, values = {}) => (sentences[key] ?? key).replace(/{(\w+)[^}]*}/g, (_, name) => values[name] ?? "");

// Fills what a template leaves to the page's language: texts, placeholders and labels for readers of screens.
export function sayIn(root) {
  for (const place of root.querySelectorAll("[data-say]")) place.textContent = say(place.dataset.say);
  for (const place of root.querySelectorAll("[data-say-placeholder]")) place.placeholder = say(place.dataset.sayPlaceholder);
  for (const place of root.querySelectorAll("[data-say-label]")) place.setAttribute("aria-label", say(place.dataset.sayLabel));
}

// fetch on our routes; body: FormData, or anything else for JSON. Throws what errorOf gives for a refusal.
export async function ask(path, { method = "GET", body, signal } = {}) {
  const isForm = body instanceof FormData;
  const headers = { ...accepted(), ...(body && !isForm ? { "Content-Type": "application/json" } : {}) };
  const sent = body && !isForm ? JSON.stringify(body) : body;
  const reply = await fetch(new URL(path, base), { method, body: sent, signal, headers, credentials: "same-origin" });
  if (!reply.ok) throw await errorOf(reply);
  return reply;
}

export const askJson = async (path, how) => (await ask(path, how)).json();

// An Error with the server's sentence in `told` and the field in `param`.
export async function errorOf(reply) {
  const error = new Error(`HTTP ${reply.status}`);
  error.status = reply.status;
  error.retryAfterS = Number(reply.headers.get("Retry-After")) || null;
  try {
    const body = await reply.json();
    error.told = body.error.message;
    error.param = body.error.param;
    error.code = body.error.code;
  } catch { /* a proxy's page, not ours */ }
  return error;
}

// An element with its attributes, properties (a function on "onclick") and children; words become text, never markup.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}
