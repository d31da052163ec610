// The page while the checkpoint is being fetched: how far that is; loads itself again when the studio has come.
import { watchEngine } from "./status.js";

const base = new URL("./", location.href);
const language = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
document.documentElement.lang = language;
const sentences = await (await fetch(new URL(`web/messages/${language}.json`, base))).json();
const say = (key, values = {}) => (sentences[key] ?? key).replace(/{(\w+)[^}]*}/g, (_, name) => values[name] ?? "");
for (const place of document.querySelectorAll("[data-say]")) place.textContent = say(place.dataset.say);
const told = document.getElementById("told");
watchEngine(document.getElementById("arrival"), base, say, (state) => {
  const checkpoint = state.workers.find((worker) => worker.name === "checkpoint");
  if (!checkpoint) return location.reload();
  document.getElementById("why").hidden = state.status === "failed";
  // Screen readers hear each tenth and a failure, not every change of a figure.
  const heard = state.status === "failed" ? checkpoint.reason : `${Math.floor(checkpoint.fraction * 10) * 10} %`;
  if (told.textContent !== heard) told.textContent = heard;
});
