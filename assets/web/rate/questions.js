// What is asked about the sounds of a trial: a choice, sliders or a line to type. Each gives a node and what was set.
import { el } from "./dom.js";

const CHOICES = {
  mos: [5, 4, 3, 2, 1],
  similarity: [1, 2, 3, 4],
  cmos: [-3, -2, -1, 0, 1, 2, 3],
  ab: [0, 0.5, 1],
  abx: [0, 1],
};
const word = (kind, value) => `rate.${kind}.${String(value).replace("-", "minus").replace("0.5", "none")}`;

export function question({ view, names, draft, say, changed }) {
  if (view.kind === "intelligibility") return typed({ draft, say, changed });
  if (view.kind.startsWith("mushra")) return sliders({ view, names, draft, say, changed });
  return choice({ kind: view.kind, draft, say, changed });
}

function choice({ kind, draft, say, changed }) {
  const values = CHOICES[kind];
  let chosen = draft.scores?.[0] ?? null;
  const radios = values.map((value) => el("input", {
    type: "radio", name: "score", id: `score-${value}`, value, checked: value === chosen, on: { change: () => { chosen = value; changed(); } },
  }));
  const node = () => el("fieldset", { className: `choice ${kind}` }, el("legend", {}, say(`rate.legend.${kind}`)),
    radios.map((radio, n) => el("label", { htmlFor: radio.id, data: { part: `score${values[n]}` } }, radio, el("span", {}, say(word(kind, values[n]))))));
  const pick = (value) => {
    const at = values.indexOf(value);
    if (at < 0) return false;
    radios[at].checked = true;
    radios[at].focus();
    chosen = value;
    changed();
    return true;
  };
  return {
    shape: "choice",
    node,
    // Digits: the score where it has one, else the place in the list from 1.
    choose: (digit) => (kind === "mos" || kind === "similarity" ? pick(digit) : digit > 0 && digit <= values.length && pick(values[digit - 1])),
    done: () => chosen !== null,
    scores: () => [chosen],
    draft: () => [chosen],
    typed: () => "",
    told: (value) => say("rate.told", { choice: say(word(kind, value)) }),
  };
}

function sliders({ view, names, draft, say, changed }) {
  const values = names.map((_, n) => draft.scores?.[n] ?? null);
  const outputs = names.map((_, n) => el("output", { htmlFor: `slider-${n}` }, values[n] === null ? "–" : String(values[n])));
  const ranges = names.map((name, n) => {
    const set = (event) => {
      values[n] = Number(event.target.value);
      outputs[n].textContent = event.target.value;
      event.target.dataset.set = "true";
      event.target.setAttribute("aria-valuetext", `${event.target.value}, ${say(`rate.band.${Math.min(4, Math.floor(values[n] / 20))}`)}`);
      changed();
    };
    return el("input", {
      type: "range", id: `slider-${n}`, min: 0, max: 100, step: 1, value: values[n] ?? 50, "aria-label": say("rate.slider", { name }), data: { set: values[n] !== null, part: `slider-${n}` },
      on: { input: set, pointerup: set, keydown: (event) => { if (event.key === "Enter") set(event); } },
    });
  });
  const bands = el("div", { className: "bands", "aria-hidden": "true" }, [0, 1, 2, 3, 4].map((band) => el("span", {}, say(`rate.band.${band}`))));
  return {
    shape: "all",
    node: (buttons) => el("fieldset", { className: "sliders" }, el("legend", {}, say(view.named_reference ? "rate.legend.mushra" : "rate.legend.mushra_nmr")), bands,
      names.map((_, n) => el("div", { className: "slider" }, buttons[n], ranges[n], outputs[n]))),
    choose: () => false,
    done: () => values.every((value) => value !== null),
    scores: () => values,
    draft: () => values,
    typed: () => "",
    told: (value) => say("rate.told_sliders", { value }),
  };
}

function typed({ draft, say, changed }) {
  const line = el("input", {
    type: "text", id: "typed", value: draft.typed ?? "", maxLength: 1000, autocomplete: "off", autocapitalize: "off", spellcheck: false, data: { part: "typed" }, on: { input: () => changed() },
  });
  return {
    shape: "line",
    node: () => el("p", { className: "typed" }, el("label", { htmlFor: "typed" }, say("rate.legend.intelligibility")), line),
    choose: () => false,
    done: () => line.value.trim() !== "",
    scores: () => [],
    draft: () => [],
    typed: () => line.value,
    told: (value) => say("rate.told_typed", { value }),
  };
}
