// Rounds of three tones. The server keeps each choice and says which round is due; it alone knows the right ones.
import { el } from "./dom.js";
import { Switcher, bufferOf } from "./switcher.js";

// view: { rounds, number }, the number counting on over all tries. done(view): what comes next. lost(): this round is over elsewhere.
export function headphoneCheck({ link, say, audio, view, done, lost }) {
  let { number } = view;
  let player = null;
  const title = el("h2", { "aria-live": "polite" });
  const play = el("button", { type: "button", className: "primary", data: { part: "tones" }, on: { click: () => hear().catch(lost) } }, say("rate.play_tones"));
  const choices = [0, 1, 2].map((place) =>
    el("button", { type: "button", disabled: true, data: { part: `tone-${place + 1}` }, on: { click: () => choose(place).catch(lost) } }, say("rate.tone", { number: place + 1 })));
  const offer = (yes) => { for (const button of choices) button.disabled = !yes; };

  function begin() {
    title.textContent = say("rate.round", { number: ((number - 1) % view.rounds) + 1, total: view.rounds });
    offer(false);
    play.disabled = false;
    player = null;
  }
  async function hear() {
    const context = audio();
    play.disabled = true;
    const bytes = await link.bytes(`headphones/${number}`);
    player = new Switcher(context, [bufferOf(context, bytes)], { onChange: (active) => {
      if (active !== null) return;
      offer(true);
      play.disabled = false;
    } });
    player.play(0);
  }
  async function choose(place) {
    player?.stop();
    offer(false);
    play.disabled = true;
    const next = await link.json("headphones", { number, chosen: place });
    if (next.phase !== "headphones") {
      done(next);
      return;
    }
    number = next.number;
    begin();
    play.focus();
  }
  begin();
  const node = el("section", { className: "headphones" }, el("h1", {}, say("rate.headphones")), el("p", {}, say("rate.headphones_how")), title, play,
    el("div", { role: "group", className: "row", "aria-label": say("rate.softest") }, el("p", {}, say("rate.softest")), choices));
  return { node, leave: () => player?.stop() };
}
