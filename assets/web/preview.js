// What will be said, while it is typed: segments, what is said otherwise than typed, and how long it lasts.
import { ask, loaded, say, sayIn } from "./page.js";

const AFTER_MS = 300;
let root = null;
let timer = null;
let asking = null;
let sounds = []; // the model may tell before there is a place for them
const part = (name) => root.querySelector(`[data-part=${name}]`);

export async function mountTools(place) {
  await loaded;
  root = place;
  sayIn(root);
  for (const group of root.querySelectorAll("[data-say-label-of]")) group.label = say(group.dataset.sayLabelOf);
  part("insert").addEventListener("change", ({ target }) => { insert(target.value); target.value = ""; });
  showSounds();
  root.dataset.ready = "true";
}

// Only sounds that the loaded model honours are offered.
export function offerSounds(tags) {
  sounds = tags;
  if (root) showSounds();
}

function showSounds() {
  const group = part("sounds");
  group.hidden = !sounds.length;
  group.replaceChildren(...sounds.map((tag) => new Option(tag, tag)));
}

function insert(tag) {
  const field = document.querySelector("#text textarea");
  if (!tag || !field) return;
  const { selectionStart: start, selectionEnd: end, value } = field;
  const before = start && !/\s$/.test(value.slice(0, start)) ? " " : "";
  const after = /^\s|^$/.test(value.slice(end)) ? "" : " ";
  field.setRangeText(before + tag + after, start, end, "end");
  field.dispatchEvent(new Event("input", { bubbles: true }));
  field.focus();
}

// Called with each change of the text, its voice, speed, language (null: the voice's own, or by its script) or model.
export function preview(text, voice, speed, language, model) {
  clearTimeout(timer);
  timer = setTimeout(() => look(text, voice, speed, language, model), AFTER_MS);
}

async function look(text, voice, speed, language, model) {
  if (!root) return;
  asking?.abort();
  const mine = (asking = new AbortController());
  if (!text?.trim()) { show("empty", ""); return; }
  try {
    const body = { input: text, voice: voice ?? "", speed, language, model };
    const found = await (await ask("v1/audio/speech/preview", { method: "POST", body, signal: mine.signal })).json();
    part("segments").replaceChildren(...found.segments.map(itemOf));
    const count = found.segments.length;
    show("ready", say("tools.summary", { characters: found.characters, seconds: Math.max(1, Math.round(found.seconds)), count }));
  } catch (error) {
    if (error.name !== "AbortError") show("refused", error.told ?? "");
  }
}

function show(state, summary) {
  root.dataset.state = state;
  part("summary").textContent = summary;
  part("said").hidden = state !== "ready";
}

function itemOf({ spans, pause_s, pause_after_s }) {
  const item = document.createElement("li");
  if (pause_s) item.append(pauseOf(pause_s));
  for (const { said, typed } of spans) item.append(typed === null ? said : changeOf(said, typed));
  if (pause_after_s) item.append(pauseOf(pause_after_s));
  return item;
}

function pauseOf(seconds) {
  const pause = document.createElement("span");
  pause.className = "pause";
  pause.textContent = say("tools.pause", { seconds });
  return pause;
}

// What is said, marked, with what stands in the text struck through before it.
function changeOf(said, typed) {
  const change = document.createDocumentFragment();
  if (typed) {
    const gone = document.createElement("del");
    gone.textContent = typed;
    change.append(" ", gone, " ");
  }
  if (said) {
    const mark = document.createElement("mark");
    mark.textContent = said.trim();
    change.append(said.startsWith(" ") ? " " : "", mark, said.endsWith(" ") ? " " : "");
  }
  return change;
}
