// One trial: its sounds, its question, and when it may be sent off. Knows places (A, B ...), never what stands behind them.
import { el } from "./dom.js";
import { question } from "./questions.js";
import { Switcher, bufferOf } from "./switcher.js";

const NAMES = "ABCDEFGHIJKLMNOP";
const HEARD = 0.97;
const MAX_RELOADS = 3;
const SECONDS_MAX = 86400; // what the server takes; a page may stay open for longer
let reloads = 0;

export function showTrial({ main, view, link, say, audio, send, reload }) {
  const { trial } = view;
  const slots = trial.slots.length;
  const names = [...trial.slots.map((_, n) => NAMES[n])];
  if (trial.reference) names.push(say("rate.reference"));
  if (trial.x) names.push("X");
  const saved = trial.draft ?? {};
  const before = names.map((_, n) => saved.heard_s?.[n] ?? 0);
  let player = null;
  let last = null;
  let sent = false;
  let timer = null;
  // Since the trial was first shown: the server says how long that was before this page, by no clock but its own.
  const began = performance.now() - 1000 * trial.spent_s;
  const spent = () => (performance.now() - began) / 1000;

  const heard = () => before.map((seconds, n) => seconds + (player ? player.count()[n] : 0));
  const isHeard = (n) => heard()[n] >= HEARD * trial.hear_s;
  const changed = () => {
    link.keep({ number: trial.number, scores: ask.draft(), heard_s: heard(), typed: ask.typed(), comment: comment.value });
    judge();
  };
  const ask = question({ view, names: names.slice(0, slots), draft: saved, say, changed });
  const comment = el("textarea", { id: "comment", rows: 2, maxLength: 1000, value: saved.comment ?? "", on: { input: () => changed() } });
  const status = el("p", { role: "status", data: { part: "hint" } }, say("rate.loading"));
  const next = el("button", { type: "submit", className: "primary", disabled: true, data: { part: "next" } }, say("rate.next"));
  const buttons = names.map((name, n) => el("button", {
    type: "button", className: "sound", disabled: true, "aria-pressed": "false", data: { part: `play-${n}`, sound: n }, on: { click: () => press(n) },
  }, el("span", { "aria-hidden": "true", className: "icon" }), el("span", {}, names.length === 1 ? say("rate.play") : name)));
  const clock = el("p", { className: "clock", data: { part: "clock" } });

  function judge() {
    for (const [n, button] of buttons.entries()) button.dataset.heard = isHeard(n);
    const missing = names.filter((_, n) => !isHeard(n));
    if (player) {
      status.textContent = missing.length ? (names.length === 1 ? say("rate.hear_it") : say("rate.hear", { names: missing.join(", ") }))
        : ask.done() ? say("rate.ready") : say("rate.answer_now");
    }
    next.disabled = sent || !player || missing.length > 0 || !ask.done();
  }

  function press(n) {
    audio();
    last = n;
    if (!player) return;
    if (player.active === n) player.stop();
    else player.switchTo(n);
  }

  async function load() {
    const context = audio();
    try {
      const addresses = [...trial.slots, ...[trial.reference, trial.x].filter(Boolean)];
      const sounds = await Promise.all(addresses.map((address) => link.bytes(`clip/${address}`)));
      reloads = 0;
      player = new Switcher(context, sounds.map((bytes) => bufferOf(context, bytes)), {
        loop: view.kind.startsWith("mushra"),
        onChange: (active) => {
          for (const [n, button] of buttons.entries()) button.setAttribute("aria-pressed", n === active);
          changed();
        },
      });
      for (const button of buttons) button.disabled = false;
      judge();
    } catch (error) { // an address is good once: a server that was started again gives new ones
      reloads += 1;
      if (reloads <= MAX_RELOADS) reload();
      else status.textContent = error.message;
    }
  }

  async function submit(body) {
    sent = true;
    next.disabled = true;
    player?.stop();
    try {
      await send({ number: trial.number, ...body });
    } catch {
      sent = false;
      judge();
    }
  }
  const form = el("form", { on: { submit: (event) => {
    event.preventDefault();
    if (next.disabled) return;
    submit({ scores: ask.scores(), typed: ask.typed(), comment: comment.value, seconds: Math.min(spent(), SECONDS_MAX) });
  } } },
    ask.shape === "all" ? ask.node(buttons.slice(0, slots)) : null,
    ask.shape === "all" ? null : ask.node(),
    view.comments && el("details", { open: Boolean(saved.comment) }, el("summary", {}, say("rate.comment")), el("label", { htmlFor: "comment", className: "hidden" }, say("rate.comment")), comment),
    status, next);
  const row = el("div", { className: "row sounds", role: "group", "aria-label": say("rate.sounds") }, ask.shape === "all" ? buttons.slice(slots) : buttons);
  main.append(...[
    el("h1", {}, say(trial.training ? "rate.training" : `rate.question.${view.kind}`)),
    trial.training && el("p", {}, say(`rate.question.${view.kind}`)),
    view.instructions && el("p", { className: "instructions" }, view.instructions),
    row, trial.check !== null && el("p", { className: "check-told", role: "note", data: { part: "told" } }, ask.told(trial.check)),
    view.timeout_s > 0 && clock, form, el("p", { className: "keys" }, say("rate.keys"))].filter(Boolean));

  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || ["TEXTAREA"].includes(event.target.tagName) || (event.target.type === "text")) return;
    const key = event.key.toUpperCase();
    const place = key === "X" && trial.x ? names.length - 1 : key === "R" && trial.reference ? slots : NAMES.indexOf(key);
    if (event.key === " " && event.target.type !== "submit" && !event.target.closest?.("button, summary")) {
      event.preventDefault();
      press(last ?? 0);
    } else if (key.length === 1 && place >= 0 && place < names.length) {
      event.preventDefault();
      press(place);
      buttons[place].focus();
    } else if (/^[0-9]$/.test(event.key) && event.target.type !== "range") {
      if (ask.choose(Number(event.key))) event.preventDefault();
    } else if (event.key === "Enter" && !next.disabled && !event.target.closest?.("button, summary")) {
      event.preventDefault();
      form.requestSubmit();
    }
  };
  document.addEventListener("keydown", onKey);
  if (view.timeout_s) {
    timer = setInterval(() => {
      const left = Math.ceil(view.timeout_s - spent());
      clock.textContent = say("rate.time_left", { seconds: Math.max(0, left) });
      if (left <= -1 && !sent) submit({ timeout: true });
    }, 250);
  }
  const listen = setInterval(judge, 100); // what was heard grows while a sound plays
  load();
  return () => {
    clearInterval(timer);
    clearInterval(listen);
    document.removeEventListener("keydown", onKey);
    player?.stop();
  };
}
