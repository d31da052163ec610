// One form for every kind of test; the server judges, and its sentence is shown at the field that it is about.
import { say } from "../page.js";
import { button, element } from "../elements.js";

const KINDS = ["mos", "cmos", "ab", "abx", "mushra", "mushra_nmr", "similarity", "intelligibility"];
const NUMBERS = { raters: 12, min_results: 0, training: 0, traps: 0, gold: 0, repeats: 0, rounds: 1, timeout_s: 0, leaderboard_votes: 20 };
let fields = 0;

const field = (name, input, hint = null) => {
  input.id ||= `listen-${name}-${fields += 1}`;
  input.dataset.field = name;
  return element("p", { class: "field" }, element("label", { htmlFor: input.id }, say(`listen.field.${name}`)), input,
    hint && element("small", {}, hint), element("span", { class: "field-error", role: "alert", "data-error": name, hidden: true }));
};
const choose = (values, value, label) => element("select", {}, ...values.map((one) => element("option", { value: one, selected: one === value }, label(one))));
const area = (value, rows) => element("textarea", { rows, value: value ?? "" });
const tick = (name, checked) => {
  const box = element("input", { type: "checkbox", checked, "data-field": name });
  return element("label", { class: "tick" }, box, element("span", {}, say(`listen.field.${name}`)));
};

const wide = (node) => { node.classList.add("wide"); return node; };

// "a=1 b=two" to { a: 1, b: "two" }.
export function pairsOf(text) {
  const found = {};
  for (const pair of text.split(/[\s,]+/).filter(Boolean)) {
    const [name, value = ""] = pair.split(/=(.*)/s);
    found[name] = value === "" ? "" : /^(true|false)$/.test(value) ? value === "true" : Number.isNaN(Number(value)) ? value : Number(value);
  }
  return found;
}
const textOf = (pairs) => Object.entries(pairs ?? {}).map(([name, value]) => `${name}=${value}`).join(" ");

function conditionRow(voices, condition, changed, remove) {
  const source = condition?.source ?? { kind: "speech" };
  const name = element("input", { type: "text", maxLength: 60, value: condition?.name ?? "", "aria-label": say("listen.field.name"), placeholder: say("listen.field.name"), oninput: changed, "data-part": "name" });
  const kind = choose(["speech", "upload", "takes"], source.kind, (one) => say(`listen.source.${one}`));
  kind.setAttribute("aria-label", say("listen.field.source"));
  const voice = choose(voices.map((one) => one.id), source.voice, (id) => voices.find((one) => one.id === id).name);
  voice.setAttribute("aria-label", say("field.voice"));
  const line = (part, value) => element("input", { type: "text", value, "data-part": part, "aria-label": say(`listen.field.${part}`), placeholder: say(`listen.hint.${part}`) });
  const settings = line("settings", textOf(source.settings));
  const studio = line("studio", textOf(source.studio));
  const takes = line("takes", (source.takes ?? []).join(" "));
  const show = () => {
    for (const one of [voice, settings, studio]) one.hidden = kind.value !== "speech";
    takes.hidden = kind.value !== "takes";
  };
  kind.addEventListener("change", () => { show(); changed(); });
  show();
  const node = element("li", { class: "condition" }, name, kind, voice, settings, studio, takes,
    button("×", () => remove(node), { "aria-label": say("listen.remove"), class: "remove" }));
  node.read = () => ({
    name: name.value,
    source: { kind: kind.value, ...(kind.value === "speech" ? { voice: voice.value, settings: pairsOf(settings.value), studio: pairsOf(studio.value) } : {}),
      ...(kind.value === "takes" ? { takes: takes.value.split(/[\s,]+/).filter(Boolean) } : {}) },
  });
  return node;
}

export function designForm({ voices, design, keep, cancel }) {
  const kind = choose(KINDS, design?.kind ?? "mos", (one) => say(`listen.kind.${one}`));
  const title = element("input", { type: "text", maxLength: 200, value: design?.title ?? "" });
  const texts = area(design?.texts?.join("\n"), 5);
  const list = element("ul", { class: "conditions" });
  const reference = element("select", {});
  const numbers = Object.fromEntries(Object.entries(NUMBERS).map(([name, usual]) => [name, element("input", { type: "number", min: 0, value: design?.[name] ?? usual })]));
  const coverage = choose(["full", "latin"], design?.coverage ?? "full", (one) => say(`listen.coverage.${one}`));
  const board = choose(["voted", "always", "never"], design?.leaderboard ?? "voted", (one) => say(`listen.leaderboard.${one}`));
  const headphones = choose(["ask", "require", "off"], design?.headphones ?? "ask", (one) => say(`listen.headphones.${one}`));
  const language = choose(["en", "zh"], design?.language ?? document.documentElement.lang.slice(0, 2), (one) => ({ en: "English", zh: "中文" }[one]));
  const consent = area(design?.consent, 3);
  const instructions = area(design?.instructions, 2);
  const seed = element("input", { type: "text", inputMode: "numeric", value: design?.seed ?? "", placeholder: say("field.seed_hint") });
  const ticks = { anchors: tick("anchors", design?.anchors ?? true), comments: tick("comments", design?.comments ?? true), arena: tick("arena", design?.arena ?? false) };
  const about = element("p", { class: "about" });
  const referenceField = field("reference", reference);
  const error = element("p", { class: "field-error", role: "alert", "data-error": "form", hidden: true });
  const rows = () => [...list.children].map((row) => row.read());

  const changed = () => {
    const names = rows().map((row) => row.name.trim()).filter(Boolean);
    const before = reference.value || design?.conditions.find((one) => one.id === design.reference)?.name || design?.reference || "";
    const offered = kind.value === "similarity" ? ["voice", ...names] : names;
    reference.replaceChildren(...["", ...offered].map((one) => element("option", { value: one, selected: one === before }, one === "voice" ? say("listen.reference.voice") : one || "–")));
    referenceField.hidden = !["mushra", "similarity"].includes(kind.value);
    about.textContent = say(`listen.what.${kind.value}`);
    ticks.anchors.hidden = kind.value !== "mushra";
    ticks.arena.hidden = kind.value !== "ab";
    coverage.closest("p").hidden = !["mos", "similarity"].includes(kind.value);
    numbers.gold.closest("p").hidden = !["mos", "cmos", "ab", "abx"].includes(kind.value);
    numbers.rounds.closest("p").hidden = kind.value !== "abx";
    // Visitors of an arena bring the sentences, and its pairs are spoken as they come.
    const arena = kind.value === "ab" && ticks.arena.querySelector("input").checked;
    for (const input of [board, numbers.leaderboard_votes]) input.closest("p").hidden = !arena;
    for (const input of [texts, seed, ...["min_results", "training", "traps", "repeats", "gold"].map((name) => numbers[name])]) {
      input.closest("p").hidden = arena || (input === numbers.gold && input.closest("p").hidden);
    }
  };
  const add = (condition) => list.append(conditionRow(voices, condition, changed, (row) => { row.remove(); changed(); }));
  for (const condition of design?.conditions ?? [null, null]) add(condition);

  const read = () => {
    const made = {
      kind: kind.value, title: title.value, conditions: rows(), texts: texts.closest("p").hidden ? [] : texts.value.split("\n").map((one) => one.trim()).filter(Boolean),
      reference: ["mushra", "similarity"].includes(kind.value) ? reference.value : "", headphones: headphones.value, leaderboard: board.value, language: language.value,
      consent: consent.value, instructions: instructions.value,
    };
    for (const [name, input] of Object.entries(numbers)) made[name] = input.closest("p").hidden ? NUMBERS[name] : Number(input.value);
    for (const [name, label] of Object.entries(ticks)) made[name] = !label.hidden && label.querySelector("input").checked;
    if (!coverage.closest("p").hidden) made.coverage = coverage.value;
    if (seed.value.trim() && !seed.closest("p").hidden) made.seed = Number(seed.value);
    return made;
  };
  const mark = ({ told, param }) => {
    const at = form.querySelector(`[data-error="${CSS.escape((param ?? "").split(".")[0])}"]`) ?? error;
    at.textContent = told ?? say("status.lost");
    at.hidden = false;
    at.closest("details")?.setAttribute("open", "");
    at.scrollIntoView({ block: "nearest" });
    at.parentElement.querySelector("input, textarea, select")?.focus({ preventScroll: true });
  };
  const submit = async (event) => {
    event.preventDefault();
    for (const one of form.querySelectorAll("[data-error]")) one.hidden = true;
    send.disabled = true;
    try { await keep(read()); } catch (refusal) { mark(refusal); } finally { send.disabled = false; }
  };
  const send = element("button", { type: "submit", class: "primary", "data-part": "keep" }, say(design ? "listen.keep" : "listen.create"));
  const form = element("form", { class: "design", onsubmit: submit, noValidate: true },
    element("h2", {}, say(design ? "listen.edit" : "listen.new")),
    field("title", title), field("kind", kind), about,
    element("fieldset", {}, element("legend", {}, say("listen.field.conditions")), element("p", { class: "about" }, say("listen.conditions_how")), list,
      button(say("listen.add"), () => { add(null); changed(); }, { "data-part": "add" }), element("span", { class: "field-error", role: "alert", "data-error": "conditions", hidden: true }),
      element("span", { class: "field-error", role: "alert", "data-error": "voice", hidden: true })),
    referenceField, ticks.anchors, ticks.arena, field("leaderboard", board), field("leaderboard_votes", numbers.leaderboard_votes), field("texts", texts, say("listen.hint.texts")),
    element("details", { open: Boolean(design) }, element("summary", {}, say("listen.raters")), element("div", { class: "options" },
      field("raters", numbers.raters), field("min_results", numbers.min_results), field("coverage", coverage), field("training", numbers.training),
      field("traps", numbers.traps), field("gold", numbers.gold), field("repeats", numbers.repeats), field("rounds", numbers.rounds),
      field("timeout_s", numbers.timeout_s), field("headphones", headphones), field("language", language), field("seed", seed),
      wide(field("instructions", instructions)), wide(field("consent", consent)), ticks.comments)),
    error, element("div", { class: "tools" }, send, button(say("listen.cancel"), cancel)));
  for (const one of [kind, ticks.arena]) one.addEventListener("change", changed);
  changed();
  return form;
}
