// How it is spoken: speed, pitch, quality, seed, sampling, and what the loaded model honours beside; nothing else is offered.
import { showOutputs } from "./form.js";
import { ask, loaded, say, sayIn } from "./page.js";
import { offerSounds } from "./preview.js";

const SAMPLING = ["temperature", "top_p", "top_k", "repetition_window"];
const SLIDERS = { speed: { plain: 1, step: 0.05 }, pitch: { plain: 0, step: 0.5 } };
const PLAIN_SPEED = [0.8, 1.25]; // beyond, it is heard that speech was made faster or slower
let root = null;
let onChange = () => {};
const field = (name) => root.querySelector(`[name=${name}]`);
const seedField = () => document.querySelector("#seed :is(input, textarea)");
const seedLock = () => root.querySelector("#seed-lock");
let lastSeed = null;

export async function mountOptions(place) {
  await loaded;
  root = place;
  sayIn(root);
  for (const name in SLIDERS) field(name).addEventListener("input", () => moved(name));
  // Locking keeps the take that was heard last; unlocking draws a new one each time.
  seedLock().addEventListener("change", ({ target }) => setSeed(target.checked ? seedField().value || lastSeed : ""));
  field("mode").addEventListener("change", showInstructions);
  showSliders();
  offer((await (await ask("v1/models")).json()).data[0]);
  root.dataset.state = "ready";
}

export const onOptions = (act) => { onChange = act; };

function offer({ sampling, modes, sound_tags: tags }) {
  for (const name of SAMPLING) field(name).placeholder = sampling[name];
  offerSounds(tags);
  const spoken = modes.filter((mode) => mode !== "conversion");
  field("mode").append(...spoken.map((mode) => new Option(say(`mode.${mode}`), mode)));
  root.querySelector("#mode").hidden = spoken.length < 2;
  root.querySelector("#instructions").dataset.honoured = spoken.includes("instruct");
  showInstructions();
}

function showInstructions() {
  const honoured = root.querySelector("#instructions").dataset.honoured === "true";
  root.querySelector("#instructions").hidden = !honoured || !["", "instruct"].includes(field("mode").value);
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

function setSeed(seed) {
  const input = seedField();
  if (!input) return;
  input.value = seed ?? "";
  input.dispatchEvent(new Event("input", { bubbles: true })); // Gradio's component reads it from its event
}

export const speed = () => (root ? Number(field("speed").value) : 1);
export const transport = () => root?.querySelector("[name=transport]").value ?? "http";

// What of a request to speak is said here; what is left empty is the voice's or the model's own.
export function readOptions() {
  if (!root) return {};
  const body = { quality: field("quality").value };
  for (const name in SLIDERS) if (field(name).dataset.named) body[name] = Number(field(name).value);
  for (const name of SAMPLING) if (field(name).value !== "") body[name] = Number(field(name).value);
  if (field("mode").value) body.mode = field("mode").value;
  const instructions = root.querySelector("#instructions");
  if (!instructions.hidden && field("instructions").value.trim()) body.instructions = field("instructions").value;
  return body;
}

// The options of an earlier request, as a take keeps it.
export function fillOptions(request) {
  if (!root) return;
  for (const name in SLIDERS) setSlider(name, Number.isFinite(request[name]) ? request[name] : SLIDERS[name].plain);
  field("quality").value = request.quality ?? "auto";
  const sampling = { ...request.sampling, repetition_window: request.sampling?.window };
  for (const name of SAMPLING) field(name).value = sampling[name] ?? "";
  field("mode").value = request.mode ?? "";
  if (!field("mode").value) field("mode").value = "";
  field("instructions").value = request.instructions ?? "";
  showSliders();
  showInstructions();
  if (sampling.seed !== undefined) { seedLock().checked = true; setSeed(sampling.seed); }
}

// Says what is wrong with one of these fields, and whether it is one; no sentence: nothing is wrong any more.
export function markOption(name, sentence = "") {
  const place = root?.querySelector("[data-part=error]");
  if (!place) return false;
  for (const input of root.querySelectorAll("[aria-invalid]")) input.removeAttribute("aria-invalid");
  const input = sentence && root.querySelector(`[name="${CSS.escape(name)}"]`);
  place.textContent = input ? sentence : "";
  place.hidden = !input;
  if (!input) return false;
  root.querySelector("#more-options").open = true;
  input.setAttribute("aria-invalid", "true");
  input.focus();
  return true;
}

// What the engine says of its seeds, under their field: whether they hold while others speak too.
export function showSeedHolds({ seed_holds: holds }) {
  const place = document.querySelector("#seed-holds p");
  if (!place || !holds) return;
  place.textContent = say(`seed.${holds}`);
  place.hidden = false;
  seedField()?.setAttribute("aria-describedby", place.id);
}

// The seed of the take that is heard now: it stays in its field only if it is locked.
export function usedSeed(seed) {
  lastSeed = seed;
  const input = seedField();
  if (!input || !root) return;
  if (seedLock().checked) { if (!input.value) setSeed(seed); return; }
  input.placeholder = say("field.seed_last", { seed });
}
