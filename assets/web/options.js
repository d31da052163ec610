// How it is spoken: model, speed, pitch, quality, language, seed, sampling, and what the model honours beside; nothing else.
import { whenSeen } from "./elements.js";
import { showOutputs } from "./form.js";
import { languageOptions, nameOf } from "./languages.js";
import { askJson, loaded, say, sayIn } from "./page.js";
import { offerSounds } from "./preview.js";

const SAMPLING = ["temperature", "top_p", "top_k", "repetition_window"];
const SLIDERS = { speed: { plain: 1, step: 0.05 }, pitch: { plain: 0, step: 0.5 } };
const PLAIN_SPEED = [0.8, 1.25]; // beyond, it is heard that speech was made faster or slower
let root = null;
let onChange = () => {};
let models = []; // those that may be asked to speak, as the server lists them; the first is the usual one
const modelListeners = [];
let efforts = null; // what each quality stands for, as the server documents it, once it has
const field = (name) => root.querySelector(`[name=${name}]`);
const place = (id) => root.querySelector(`#${id}`);
let lastSeed = null;
let seedHolds = null; // the engine may tell before there is a place for it

export async function mountOptions(mounted) {
  await loaded;
  root = mounted;
  sayIn(root);
  for (const name in SLIDERS) field(name).addEventListener("input", () => moved(name));
  field("quality").addEventListener("change", showQuality);
  field("language").addEventListener("change", () => { showLanguage(); onChange(); });
  // Locking keeps the take that was heard last; unlocking draws a new one each time.
  place("seed-lock").addEventListener("change", ({ target }) => { field("seed").value = target.checked ? field("seed").value || lastSeed : ""; });
  field("mode").addEventListener("change", showInstructions);
  root.addEventListener("input", ({ target }) => { if (target.ariaInvalid) markOption(""); });
  showSliders();
  showSeedHolds({});
  field("model").addEventListener("change", () => { showModel(); onChange(); });
  await lookAtModels();
  root.dataset.state = "ready";
  whenSeen(root, () => lookAtModels().catch(() => {})); // they come and go in the Admin tab; a lost server is told elsewhere
}

async function lookAtModels() {
  models = (await askJson("v1/models")).data;
  const ids = models.map(({ id }) => id), select = field("model"), offered = [...select.options].map(({ value }) => value);
  if (ids.join() === offered.join()) return;
  const before = select.value;
  select.replaceChildren(...ids.map((id) => new Option(id, id)));
  select.value = ids.includes(before) ? before : ids[0];
  place("model").hidden = ids.length < 2;
  showModel();
}

function showModel() {
  const chosen = models.find(({ id }) => id === field("model").value);
  offer(chosen);
  for (const act of modelListeners) act(chosen);
}

// Called with the model that is chosen, now and whenever it is another one: what it honours.
export function onModel(act) {
  modelListeners.push(act);
  const chosen = root && models.find(({ id }) => id === field("model").value);
  if (chosen) act(chosen);
}

// The name to ask for; "" while there is only one.
export const model = () => (root && models.length > 1 ? field("model").value : "");

export const onOptions = (act) => { onChange = act; };

function offer({ sampling, modes, sound_tags: tags, languages, quality_settings: settings }) {
  for (const name of SAMPLING) field(name).placeholder = sampling[name];
  offerSounds(tags);
  const spoken = modes.filter((mode) => mode !== "conversion");
  refill(field("mode"), spoken.map((mode) => new Option(say(`mode.${mode}`), mode)));
  place("mode").hidden = spoken.length < 2;
  refill(field("language"), languageOptions(languages));
  place("language").hidden = languages.length < 2;
  place("instructions").dataset.honoured = spoken.includes("instruct");
  efforts = settings;
  showInstructions();
  showQuality();
  showLanguage();
}

// Options after the first, which leaves it open; what was chosen stays if it is still there.
function refill(select, options) {
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...options);
  select.value = chosen;
  if (!select.value) select.value = "";
}

function showInstructions() {
  const honoured = place("instructions").dataset.honoured === "true";
  place("instructions").hidden = !honoured || !["", "instruct"].includes(field("mode").value);
}

function showQuality() {
  if (!efforts) return;
  const quality = field("quality").value;
  const { first_chunk_tokens: tokens, retakes } = efforts[quality] ?? efforts.balanced;
  const values = { tokens, retakes, seconds: efforts.auto.best_up_to_s };
  place("quality-hint").textContent = say(`quality.${quality}_hint`, values);
}

function showLanguage() {
  const code = field("language").value;
  place("language-hint").hidden = !code;
  place("language-hint").textContent = code ? say("field.language_hint", { language: nameOf(code) }) : "";
}

function showSliders() {
  showOutputs(root);
  root.querySelector("[data-part=speed-hint]").hidden = speed() >= PLAIN_SPEED[0] && speed() <= PLAIN_SPEED[1];
}

// A slider that nobody has set leaves it to the voice.
function moved(name) {
  field(name).step = SLIDERS[name].step;
  field(name).dataset.named = "true";
  showSliders();
  onChange();
}

// A value that was asked for elsewhere may lie between the steps of a slider, or beyond its ends.
function setSlider(name, value) {
  const input = field(name);
  input.step = "any";
  input.min = Math.min(input.min, value);
  input.max = Math.max(input.max, value);
  input.value = value;
  input.dataset.named = "true";
}

export const speed = () => (root ? Number(field("speed").value) : 1);
export const language = () => root?.querySelector("[name=language]").value || null;
export const transport = () => root?.querySelector("[name=transport]").value ?? "http";

// What of a request to speak is said here; what is left empty is the voice's or the model's own. A seed that is no
// number is NaN.
export function readOptions() {
  if (!root) return {};
  const body = { quality: field("quality").value };
  for (const name in SLIDERS) if (field(name).dataset.named) body[name] = Number(field(name).value);
  for (const name of SAMPLING) if (field(name).value !== "") body[name] = Number(field(name).value);
  for (const name of ["mode", "language"]) if (field(name).value) body[name] = field(name).value;
  if (model()) body.model = model();
  if (!place("instructions").hidden && field("instructions").value.trim()) body.instructions = field("instructions").value;
  const seed = field("seed").value.trim();
  if (seed) body.seed = /^\d{1,10}$/.test(seed) ? Number(seed) : NaN;
  return body;
}

// The options of an earlier request, as a take keeps it, and the model that spoke, if it is there.
export function fillOptions(request, spokenBy) {
  if (!root) return;
  if (models.some(({ id }) => id === spokenBy)) { field("model").value = spokenBy; showModel(); }
  for (const name in SLIDERS) setSlider(name, Number.isFinite(request[name]) ? request[name] : SLIDERS[name].plain);
  field("quality").value = request.quality ?? "auto";
  const sampling = { ...request.sampling, repetition_window: request.sampling?.window };
  for (const name of SAMPLING) field(name).value = sampling[name] ?? "";
  for (const name of ["mode", "language"]) {
    field(name).value = request[name] ?? "";
    if (!field(name).value) field(name).value = ""; // what this model does not honour
  }
  field("instructions").value = request.instructions ?? "";
  for (const show of [showSliders, showQuality, showLanguage, showInstructions]) show();
  place("seed-lock").checked = Number.isInteger(sampling.seed);
  field("seed").value = Number.isInteger(sampling.seed) ? sampling.seed : "";
  onChange();
}

// Says what is wrong with one of these fields, under its row, and whether it is one; no sentence: nothing is wrong any more.
export function markOption(name, sentence = "") {
  const told = root?.querySelector("[data-part=error]");
  if (!told) return false;
  for (const input of root.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  const input = sentence && root.querySelector(`[name="${CSS.escape(name)}"]`);
  told.textContent = input ? sentence : "";
  told.hidden = !input;
  if (!input) return false;
  (input.closest(".fields") ?? input.parentElement).after(told);
  if (input.closest("details")) input.closest("details").open = true;
  input.setAttribute("aria-invalid", "true");
  input.focus();
  return true;
}

// What the engine says of its seeds, under their field: whether they hold while others speak too.
export function showSeedHolds({ seed_holds: holds }) {
  seedHolds = holds ?? seedHolds;
  if (!root || !seedHolds) return;
  place("seed-holds").textContent = say(`seed.${seedHolds}`);
  place("seed-holds").hidden = false;
}

// The seed of the take that is heard now: it stays in its field only if it is locked.
export function usedSeed(seed) {
  lastSeed = seed;
  if (!root) return;
  if (place("seed-lock").checked) field("seed").value ||= seed;
  else field("seed").placeholder = say("field.seed_last", { seed });
}
