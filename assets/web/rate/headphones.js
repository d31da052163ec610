// Six rounds of three tones; the choices go to the server, which alone knows the right ones.
import { el } from "./dom.js";
import { Switcher, bufferOf } from "./switcher.js";

export function headphoneCheck({ link, say, audio, rounds, done }) {
  const chosen = [];
  let player = null;
  const title = el("h2", { role: "status" });
  const play = el("button", { type: "button", className: "primary", data: { part: "tones" } }, say("rate.play_tones"));
  const choices = [0, 1, 2].map((place) =>
    el("button", { type: "button", disabled: true, data: { part: `tone-${place + 1}` }, on: { click: () => choose(place) } }, say("rate.tone", { number: place + 1 })));

  const begin = () => {
    title.textContent = say("rate.round", { number: chosen.length + 1, total: rounds });
    for (const button of choices) button.disabled = true;
    play.disabled = false;
    player = null;
  };
  const choose = (place) => {
    player?.stop();
    chosen.push(place);
    if (chosen.length === rounds) done(chosen);
    else begin();
  };
  play.addEventListener("click", async () => {
    const context = audio();
    play.disabled = true;
    const bytes = await link.bytes(`headphones/${chosen.length + 1}`);
    player = new Switcher(context, [bufferOf(context, bytes)], { onChange: (active) => {
      if (active !== null) return;
      for (const button of choices) button.disabled = false;
      play.disabled = false;
    } });
    player.play(0);
  });
  begin();
  return el("section", { className: "headphones" }, el("h1", {}, say("rate.headphones")), el("p", {}, say("rate.headphones_how")), title, play,
    el("div", { role: "group", className: "row", "aria-label": say("rate.softest") }, el("p", {}, say("rate.softest")), choices));
}
