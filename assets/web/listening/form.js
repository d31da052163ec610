// One form for every kind of test; the server judges, and its sentence is shown at the field that it is about.
import { say } from "../page.js";
import { button, element } from "../elements.js";
import { conditionRow } from "./condition.js";
import { readFolders } from "./folders.js";

const KINDS = ["mos", "cmos", "ab", "abx", "mushra", "mushra_nmr", "similarity", "intelligibility"];
const NUMBERS = { raters: 12, min_results: 0, training: 0, traps: 0, gold: 0, repeats: 0, rounds: 1, timeout_s: 0, leaderboard_votes: 20 };
const MOST_FILES = 1000;
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

// known: what conditions are made of; keep: gets the design and the [name, file] pairs of folders that were chosen.
export function designForm({ known, design, keep, cancel }) {
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
  let files = [];

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
    for (const row of list.children) row.arena(arena);
  };
  const add = (condition) => {
    const row = conditionRow(known, condition, changed, (one) => { one.remove(); changed(); });
    list.append(row);
    return row;
  };
  for (const condition of design?.conditions ?? [null, null]) add(condition);

  const read = () => {
    const made = {
      kind: kind.value, title: title.value, conditions: rows(), texts: texts.closest("p").hidden ? [] : texts.value.split("\n").map((one) => one.trim()).filter(Boolean),
      reference: ["mushra", "similarity"].includes(kind.value) ? reference.value : "", headphones: headphones.value, leaderboard: board.closest("p").hidden ? "voted" : board.value, language: language.value,
      consent: consent.value, instructions: instructions.value,
    };
    for (const [name, input] of Object.entries(numbers)) made[name] = input.closest("p").hidden ? NUMBERS[name] : Number(input.value);
    for (const [name, label] of Object.entries(ticks)) made[name] = !label.hidden && label.querySelector("input").checked;
    if (!coverage.closest("p").hidden) made.coverage = coverage.value;
    if (seed.value.trim() && !seed.closest("p").hidden) made.seed = Number(seed.value);
    return made;
  };
  const takeFolders = async ({ target }) => {
    send.disabled = true; // what is sent must be what is shown
    const { folders, sent } = await readFolders(target.files).finally(() => { send.disabled = false; });
    target.value = "";
    if (sent.length > MOST_FILES || !folders.size) {
      mark({ told: say(folders.size ? "listen.folders_many" : "listen.folders_none", { most: MOST_FILES }), param: "files" });
      return;
    }
    files = sent;
    form.querySelector("[data-error=files]").hidden = true;
    for (const row of [...list.children]) if (row.isBlank() || (row.dataset.folder && !folders.has(row.dataset.folder))) row.remove();
    for (const [folder, clips] of [...folders].sort()) {
      const count = clips.filter((name) => !name.toLowerCase().endsWith(".txt")).length;
      ([...list.children].find((row) => row.dataset.folder === folder) ?? add(null)).take(folder, count);
    }
    changed();
  };
  const chooser = (part, more) => element("label", { class: "file" }, element("span", {}, say(`listen.${part}`)), element("input", { type: "file", "data-part": part, onchange: (event) => takeFolders(event).catch(mark), ...more }));
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
    try { await keep(read(), files); } catch (refusal) { mark(refusal); } finally { send.disabled = false; }
  };
  const send = element("button", { type: "submit", class: "primary", "data-part": "keep" }, say(design ? "listen.keep" : "listen.create"));
  const form = element("form", { class: "design", onsubmit: submit, noValidate: true },
    element("h2", {}, say(design ? "listen.edit" : "listen.new")),
    field("title", title), field("kind", kind), about,
    element("fieldset", {}, element("legend", {}, say("listen.field.conditions")), element("p", { class: "about" }, say("listen.conditions_how")), list,
      element("div", { class: "tools" }, button(say("listen.add"), () => { add(null); changed(); }, { "data-part": "add" }), chooser("folder", { webkitdirectory: true }), chooser("zip", { accept: ".zip" })),
      element("small", {}, say("listen.folders_how")),
      element("span", { class: "field-error", role: "alert", "data-error": "files", hidden: true }), element("span", { class: "field-error", role: "alert", "data-error": "conditions", hidden: true }),
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
