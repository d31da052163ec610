// Joins the page's fields with the player: window.studio is what the buttons of the Studio tab call.
import { Player, errorOf } from "./player.js";
import { watchEngine } from "./status.js";

const base = new URL(`${window.gradio_config.root}/`, location.href);
const language = () => ((document.documentElement.lang || navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en");
let sentences = {};
const loaded = fetch(new URL(`web/messages/${language()}.json`, base)).then((r) => r.json()).then((s) => { sentences = s; });
const say = (key, values = {}) => (sentences[key] ?? key).replace(/{(\w+)[^}]*}/g, (_, name) => values[name] ?? "");

let player = null;
let draft = { url: null, transcript: null, id: null };

export async function mountPlayer(root) {
  await loaded;
  for (const place of root.querySelectorAll("[data-say]")) place.textContent = say(place.dataset.say);
  player = new Player(root, base, say);
  root.dataset.ready = "true";
}

export async function mountStatus(root) {
  await loaded;
  watchEngine(root, base, say);
}

// A clip of the page becomes a voice that is not kept: uploaded once for each clip and transcript.
async function draftOf(clip, transcript, signal) {
  if (!clip?.url) throw Object.assign(new Error(), { told: say("clip.missing"), param: "audio_sample" });
  if (draft.url === clip.url && draft.transcript === transcript && draft.id) return draft.id;
  const form = new FormData();
  form.append("audio_sample", await (await fetch(clip.url, { signal })).blob(), "clip");
  form.append("ref_text", transcript ?? "");
  const reply = await fetch(new URL("v1/audio/voices", base), {
    method: "POST", body: form, signal, credentials: "same-origin", headers: { "Accept-Language": document.documentElement.lang || "en" },
  });
  if (!reply.ok) throw await errorOf(reply);
  draft = { url: clip.url, transcript, id: (await reply.json()).id };
  return draft.id;
}

const FIELDS = { input: "text", voice: "voice", audio_sample: "clip", ref_text: "transcript", seed: "seed" };

function markField(param, message) {
  for (const name of Object.values(FIELDS)) {
    const place = document.querySelector(`#error-${name} [data-part=error]`);
    if (place) { place.textContent = name === FIELDS[param] ? message : ""; place.hidden = name !== FIELDS[param]; }
  }
}

window.studio = {
  async speak(text, source, voice, clip, transcript, seed) {
    if (!player) return;
    markField(null, "");
    const body = { input: text ?? "" };
    if (seed !== null && seed !== undefined && seed !== "") body.seed = Number(seed);
    const own = source === "clip";
    if (!own) body.voice = voice ?? "";
    try {
      await player.play(body, own ? async (signal) => ({ voice: await draftOf(clip, transcript, signal) }) : null);
    } catch (error) {
      markField(error.param, error.told);
    }
  },
  stop() { player?.stop(); },
};
