// The raters' page: joins, checks headphones, goes from trial to trial. The server says what comes next; see link.js for the rest.
import { el, sayWith } from "./dom.js";
import { headphoneCheck } from "./headphones.js";
import { leaderboard } from "./leaderboard.js";
import { Link } from "./link.js";
import { showTrial } from "./trial.js";

const token = location.pathname.split("/").filter(Boolean).pop();
const base = new URL(`${token}/`, location.href.split(/[?#]/)[0]);
const main = document.querySelector("main");
const part = (name) => document.querySelector(`[data-part=${name}]`);
const stored = (name, value) => {
  try {
    if (value === undefined) return JSON.parse(localStorage.getItem(`rate ${token} ${name}`));
    if (value === null) localStorage.removeItem(`rate ${token} ${name}`);
    else localStorage.setItem(`rate ${token} ${name}`, JSON.stringify(value));
  } catch { /* private windows may have no storage; the server keeps everything anyway */ }
  return null;
};
const browserLanguage = () => ((navigator.language || "en").toLowerCase().startsWith("zh") ? "zh" : "en");
let language = stored("language") ?? browserLanguage();
let say = sayWith({});
let context = null;
let leaveTrial = () => {};

const link = new Link(base, () => language, (lost) => {
  part("connection").hidden = !lost;
  part("connection").textContent = lost ? say("rate.lost") : "";
});

// The context must begin in a touch or key press, which every browser asks for.
const audio = () => {
  context ??= new AudioContext({ latencyHint: "interactive" });
  if (context.state !== "running") context.resume();
  return context;
};

async function speakLanguage(wanted) {
  language = wanted;
  document.documentElement.lang = wanted;
  for (const button of document.querySelectorAll("[data-language]")) button.setAttribute("aria-pressed", button.dataset.language === wanted);
  say = sayWith(await (await fetch(new URL(`../web/messages/${wanted}.json`, location.href))).json());
  document.title = say("rate.title");
}

function place(phase, ...content) {
  leaveTrial();
  leaveTrial = () => {};
  document.body.dataset.phase = phase;
  main.replaceChildren(...content.flat().filter(Boolean));
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

const told = (text) => text.split(/\n{2,}/).filter(Boolean).map((lines) => el("p", {}, lines));
const refused = (error) => { part("refused")?.remove(); main.append(el("p", { role: "alert", className: "refused", data: { part: "refused" } }, error.message)); };

async function step(work) {
  try {
    show(await work());
  } catch (error) {
    refused(error);
  }
}

function showJoin(view) {
  const agree = el("input", { type: "checkbox", id: "agree" });
  const begin = el("button", { type: "submit", className: "primary", data: { part: "begin" } }, say("rate.begin"));
  let joining = false;
  const form = el("form", { on: { submit: async (event) => {
    event.preventDefault();
    audio();
    if (joining) return; // a second press would show the first step anew, and forget what was done in it
    joining = true;
    await step(() => link.json("join", { consent: agree.checked }));
    joining = false;
  } } },
    view.consent && el("p", { className: "check" }, agree, el("label", { htmlFor: "agree" }, say("rate.agree"))), begin);
  place("join", el("h1", {}, view.name ? say("rate.welcome_name", { name: view.name }) : say("rate.welcome")),
    told(view.instructions), told(view.consent), el("p", {}, say("rate.prepare")), form);
}

function showText(view) {
  const text = el("textarea", { id: "own-text", rows: 3, maxLength: 300, data: { part: "own-text" } });
  const send = el("button", { type: "submit", className: "primary", data: { part: "send" } }, say("rate.make_pair"));
  const wait = el("p", { role: "status" });
  const form = el("form", { on: { submit: async (event) => {
    event.preventDefault();
    audio();
    send.disabled = true;
    wait.textContent = say("rate.making");
    try {
      show(await link.json("text", { text: text.value }));
    } catch (error) {
      const now = error.status === 409 ? await link.json("state").catch(() => null) : null;
      if (now && now.phase !== "text") show(now); // another page has a pair, or the arena is closed
      refused(error);
    }
    send.disabled = false;
    wait.textContent = "";
  } } }, el("label", { htmlFor: "own-text" }, say("rate.own_text")), text, send, wait);
  place("text", el("h1", {}, say("rate.arena")), view.voted > 0 && el("p", { data: { part: "voted" } }, say("rate.voted", { count: view.voted })),
    told(view.instructions), form, view.leaderboard && board());
}

function board() {
  const node = el("section", { className: "board", data: { part: "leaderboard" } });
  leaderboard({ link, say }).then((content) => node.replaceChildren(...content), () => {}); // it is looked at in passing
  return node;
}

function showFinished(view) {
  const text = el("textarea", { id: "last-words", rows: 3, maxLength: 1000, value: view.comment });
  const kept = el("p", { role: "status", data: { part: "kept" } });
  const form = el("form", { on: { submit: async (event) => {
    event.preventDefault();
    await link.json("comment", { comment: text.value }).then(() => { kept.textContent = say("rate.comment_kept"); }, refused);
  } } }, el("label", { htmlFor: "last-words" }, say("rate.last_words")), text,
    el("button", { type: "submit" }, say("rate.send_comment")), kept);
  place("finished", el("h1", {}, say("rate.thanks")), el("p", {}, say("rate.all_kept")), form);
}

const PHASES = {
  join: showJoin,
  text: showText,
  finished: showFinished,
  closed: () => place("closed", el("h1", {}, say("listening.closed"))),
  no_headphones: () => place("no_headphones", el("h1", {}, say("rate.headphones")), el("p", {}, say("rate.headphones_needed")),
    el("button", { type: "button", className: "primary", data: { part: "again" }, on: { click: () => step(() => link.json("headphones/again", {})) } }, say("rate.again"))),
  headphones: (view) => {
    const check = headphoneCheck({ link, say, audio, view, done: show, lost: () => step(() => link.json("state")) });
    place("headphones", check.node);
    leaveTrial = check.leave;
  },
};

function show(view) {
  part("progress").textContent = view.trial && !view.arena ? say("rate.progress", { number: view.trial.number, total: view.trial.total }) : "";
  if (view.phase !== "trial") {
    PHASES[view.phase](view);
    return;
  }
  place("trial");
  leaveTrial = showTrial({ main, view, link, say, audio, send, reload: () => step(() => link.json("state")) });
}

// An answer stays in the browser until the server has confirmed it.
async function send(answer) {
  stored("answer", answer);
  link.forgetDraft();
  try {
    const view = await link.json("answer", answer);
    stored("answer", null);
    show(view);
  } catch (error) {
    stored("answer", null);
    refused(error);
    throw error;
  }
}

for (const button of document.querySelectorAll("[data-language]")) {
  button.addEventListener("click", async () => {
    stored("language", button.dataset.language);
    await speakLanguage(button.dataset.language);
    await step(() => link.json("state"));
  });
}

// What was sent off goes first: the browser may have been closed before it arrived.
async function resumed() {
  const pending = stored("answer");
  const view = pending && await link.json("answer", pending).catch(() => null);
  stored("answer", null);
  return view ?? link.json("state");
}

// A page that "back" brings out of the browser's memory may be behind what another one did.
addEventListener("pageshow", (event) => { if (event.persisted) step(() => link.json("state")); });

await speakLanguage(language);
try {
  show(await resumed());
} catch (error) {
  place("refused", el("h1", {}, say("rate.no_entry")), el("p", { role: "alert" }, error.message));
}
