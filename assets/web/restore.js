// Brings the settings of a take back into the form: from the history, or from a file that is dropped anywhere on the page.
import { base, errorOf, loaded, say } from "./page.js";

const HEAD_BYTES = 262144; // the server reads no more: settings stand in front of the sound
const OWN_PLACES = "#clip, input[type=file], [data-own-drop]"; // what takes files for another purpose
let place = null;
let send = null;

export async function mountRestore(root, trigger) {
  await loaded;
  place = root;
  send = trigger;
  document.addEventListener("dragover", (event) => {
    if (isOurs(event)) { event.preventDefault(); root.dataset.over = "true"; }
  });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) delete root.dataset.over; });
  document.addEventListener("drop", (event) => {
    delete root.dataset.over;
    if (!isOurs(event)) return;
    event.preventDefault();
    restoreFile(event.dataTransfer.files[0]);
  });
  root.dataset.ready = "true";
}

const isOurs = (event) => event.dataTransfer?.types.includes("Files") && !event.target.closest?.(OWN_PLACES);

function tell(text, failed = false) {
  place.textContent = text;
  place.setAttribute("role", failed ? "alert" : "status");
  place.dataset.state = failed ? "failed" : "told";
}

// A card: what a file of ours holds, with the voice as far as this studio has it.
export function restore(card) {
  if (card.request.mode === "conversion") return tell(say("takes.restored_conversion"), true);
  send(card); // to the fields that Gradio knows
  window.studio?.fill?.(card.request, card.model); // and to those of assets/web/options.js
  tell(card.voice_here === null ? say("takes.restored_no_voice", { voice: card.voice?.name }) : say("takes.restored"));
}

export async function restoreFile(file) {
  if (!file) return;
  try {
    const reply = await fetch(new URL("v1/audio/takes/read", base), {
      method: "POST", body: file.slice(0, HEAD_BYTES), credentials: "same-origin",
      headers: { "Content-Type": "application/octet-stream", "Accept-Language": document.documentElement.lang || "en" },
    });
    if (!reply.ok) throw await errorOf(reply);
    restore(await reply.json());
  } catch (error) {
    tell(error.told ?? say("status.lost"), true);
  }
}
