// The list of pronunciations: add, hear, delete.
import { ask, loaded, say, sayIn } from "./page.js";

const AT = "v1/audio/pronunciations";
let root = null;
const part = (name) => root.querySelector(`[data-part=${name}]`);
const field = (name) => root.querySelector(`[name=${name}]`);

export async function mountWords(place) {
  await loaded;
  root = place;
  sayIn(root);
  part("form").addEventListener("submit", (event) => { event.preventDefault(); guarded(add); });
  part("try").addEventListener("click", () => guarded(() => hear(field("said").value)));
  await guarded(show);
  root.dataset.state = "ready";
}

const voice = () => window.studioVoice ?? "";

// Just the respelling, in the voice that is picked.
async function hear(said) {
  if (!said.trim()) { field("said").focus(); return; }
  await window.studio.hearWord(said);
}

async function add() {
  const scope = field("scope").value ? voice() : "";
  await ask(AT, { method: "POST", body: { word: field("word").value, said: field("said").value, voice: scope } });
  part("form").reset();
  field("word").focus();
  await changed();
}

async function changed() {
  await show();
  window.studio.previewAgain();
}

async function show() {
  const { data } = await (await ask(AT)).json();
  part("empty").hidden = data.length > 0;
  part("list").replaceChildren(...data.map(itemOf));
}

function itemOf(entry) {
  const item = document.createElement("li");
  const scope = entry.voice ? say("words.only", { voice: entry.voice.name ?? entry.voice.id }) : say("words.all");
  const text = document.createElement("span");
  text.textContent = say("words.entry", { word: entry.word, said: entry.said, scope });
  const listen = buttonOf("words.try", entry.word, () => hear(entry.said));
  const drop = buttonOf("words.delete", entry.word, async () => { await ask(`${AT}/${entry.id}`, { method: "DELETE" }); await changed(); });
  item.append(text, listen, drop);
  return item;
}

function buttonOf(key, word, act) {
  const button = document.createElement("button");
  button.type = "button";
  button.textContent = say(key);
  button.setAttribute("aria-label", `${say(key)}: ${word}`);
  button.addEventListener("click", () => guarded(act));
  return button;
}

// What is wrong is said under the form, at the field that it is about.
async function guarded(act) {
  const place = part("error");
  place.hidden = true;
  for (const input of root.querySelectorAll("input")) input.removeAttribute("aria-invalid");
  try {
    await act();
  } catch (error) {
    place.textContent = error.told ?? say("status.lost");
    place.hidden = false;
    const input = ["word", "said"].includes(error.param) ? field(error.param) : null;
    input?.setAttribute("aria-invalid", "true");
    input?.focus();
  }
}
