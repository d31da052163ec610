// A clip said by the voice that is picked; there only where the model that is chosen honours it.
import { model, onModel } from "./options.js";
import { loaded, say, sayIn } from "./page.js";
import { finished } from "./try.js";

let root = null;
const part = (name) => root.querySelector(`[data-part=${name}]`);

export async function mountConvert(place) {
  await loaded;
  root = place;
  sayIn(root);
  root.querySelector("form").addEventListener("submit", (event) => { event.preventDefault(); convert(event.submitter); });
  onModel(({ modes }) => {
    const honoured = modes.includes("conversion");
    root.querySelector("details").hidden = !honoured;
    root.dataset.state = honoured ? "ready" : "absent";
  });
}

async function convert(button) {
  const [file] = root.querySelector("[name=audio_sample]").files;
  tell("");
  offer("");
  if (!file) return tell(say("clip.missing"));
  const form = new FormData();
  form.append("audio_sample", file);
  form.append("voice", window.studioVoice ?? "");
  form.append("model", model());
  form.append("response_format", "pcm");
  button.disabled = true;
  part("status").textContent = say("convert.busy");
  try {
    offer(await finished("v1/audio/conversions", form));
  } catch (error) {
    tell(error.told ?? say("status.lost"));
  } finally {
    button.disabled = false;
    part("status").textContent = "";
  }
}

function tell(sentence) {
  part("error").textContent = sentence;
  part("error").hidden = !sentence;
}

// The address of the sound, to hear and to keep; none: there is nothing any more.
function offer(address) {
  const audio = root.querySelector("audio"), link = part("download");
  if (audio.src) URL.revokeObjectURL(audio.src);
  if (address) audio.src = link.href = address;
  else { audio.removeAttribute("src"); link.removeAttribute("href"); }
  audio.hidden = link.hidden = !address;
}
