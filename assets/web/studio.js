// Joins the page's fields with the player: window.studio is what the buttons of the Studio tab call.
import { ask, base, loaded, say, sayIn } from "./page.js";
import { fillOptions, language, markOption, model, onOptions, readOptions, showSeedHolds, speed, transport, usedSeed } from "./options.js";
import { Player } from "./player.js";
import { preview } from "./preview.js";
import { watchEngine } from "./status.js";
import { jobs } from "./transport.js";

let player = null;
let lookAtEngine = null;
let filledIn = ""; // what the recogniser wrote into the transcript last
let warnedOf = null; // the transcript that was told once to be another than what is heard
let draft = { url: null, transcript: null, id: null };

export async function mountPlayer(root) {
  await loaded;
  sayIn(root);
  player = new Player(root, base, say);
  player.onJob = (job) => usedSeed(job.seed);
  player.onEnd = () => { if (player.state === "failed") lookAtEngine?.(); };
  findJob().catch(() => {}); // an engine that is not there has no jobs
  root.dataset.ready = "true";
}

export async function mountStatus(root) {
  await loaded;
  lookAtEngine = watchEngine(root, base, say, showSeedHolds);
}

export async function mountSample(root) {
  await loaded;
  sayIn(root);
  showSample(window.studioVoice);
}

// The clip of the picked voice, to listen to.
function showSample(id) {
  const root = document.querySelector("#voice-sample [data-state]");
  if (!root) return;
  const audio = root.querySelector("audio");
  if (id) audio.src = new URL(`v1/audio/voices/${id}/clip`, base);
  else audio.removeAttribute("src");
  root.dataset.state = id ? "ready" : "empty";
}

// A clip of the page becomes a voice that is not kept: uploaded once for each clip and transcript.
async function draftOf(clip, transcript, signal) {
  if (!clip?.url) throw mistake("clip.missing", "audio_sample");
  if (draft.url === clip.url && draft.transcript === transcript && draft.id) return draft.id;
  const form = new FormData();
  form.append("audio_sample", await (await fetch(clip.url, { signal })).blob(), "clip");
  form.append("ref_text", transcript ?? "");
  const reply = await ask("v1/audio/voices", { method: "POST", body: form, signal });
  draft = { url: clip.url, transcript, id: (await reply.json()).id };
  return draft.id;
}

// Names of the API's parameters, and the fields of the page that hold them.
const FIELDS = { input: "text", voice: "voice", audio_sample: "clip", ref_text: "transcript" };
const mistake = (key, param) => Object.assign(new Error(key), { told: say(key), param });

function markField(field, message) {
  const place = document.querySelector(`#error-${field} [data-part=error]`);
  if (!place) return false;
  place.textContent = message;
  place.hidden = !message;
  if (message && !place.offsetParent) { // on a tab that is not open
    place.hidden = true;
    return false;
  }
  const input = document.querySelector(`#${field} :is(textarea, input:not([type=file]))`);
  if (message) input?.setAttribute("aria-invalid", "true");
  else input?.removeAttribute("aria-invalid");
  // The verdict on a clip and the refusal of it are one sentence.
  if (field === "clip") document.querySelector("#verdict")?.classList.toggle("told-below", Boolean(message));
  if (message) {
    place.scrollIntoView({ block: "nearest" });
    if (input?.tagName === "TEXTAREA") input.focus({ preventScroll: true });
  }
  return true;
}

function refused(error) {
  if (error.param === "voice") draft = { url: null }; // the library may have forgotten it
  const field = FIELDS[error.param];
  if (!error.told) return false;
  return field ? markField(field, error.told) : markOption(error.param ?? "", error.told);
}

// What is wrong with a field is forgiven as soon as it is changed.
document.addEventListener("input", ({ target }) => {
  const field = Object.values(FIELDS).find((name) => target.closest?.(`#${name}`));
  if (field) markField(field, "");
});

let typed = "";
const previewAgain = () => preview(typed, window.studioVoice, speed(), language(), model());
onOptions(previewAgain);

// The job of a page that was loaded again: what is still being made, to be heard by whoever presses play.
async function findJob() {
  const job = (await jobs()).find(({ state }) => ["waiting", "speaking"].includes(state));
  if (job) player.found(job, transport());
}

window.studio = {
  async speak({ text, source, voice, clip, transcript }) {
    if (!player) return;
    for (const field of Object.values(FIELDS)) markField(field, "");
    markOption("");
    await player.play(async (signal) => {
      const body = { ...readOptions(), input: text ?? "" };
      if (!body.input.trim()) throw mistake("text.empty", "input"); // known here; the rest the server judges
      if (Number.isNaN(body.seed)) throw mistake("request.seed", "seed");
      // What was heard and taken over cannot differ, though the note of the text before it may still stand.
      const differs = transcript !== filledIn && document.querySelector("#agreement [data-state=differs]");
      if (source === "clip" && warnedOf !== transcript && differs) {
        warnedOf = transcript;
        throw mistake("transcript.differs", "ref_text");
      }
      body.voice = source === "clip" ? await draftOf(clip, transcript, signal) : voice ?? "";
      return body;
    }, refused, transport());
  },
  // A transcript that nobody typed is replaced by what is heard in the new clip.
  fillIn(typed, heard) {
    const ours = !typed?.trim() || typed === filledIn;
    filledIn = heard;
    return ours ? heard : typed;
  },
  stop() { player?.stop(); },
  hearWord: (word) => player.play(async () => ({ input: word, voice: window.studioVoice ?? "", model: model() }), () => false, transport()),
  preview(text) { typed = text; previewAgain(); },
  previewAgain,
  fill: fillOptions,
  takeId: () => player?.job?.id ?? null,
  marks(found) { player?.marks(found); },
  showSample,
  forgive(field) { markField(field, ""); },
};
