// The Design tab: voices blended by sliders, and a grid of variants around them, made in parallel, to pick from.
import { clearErrors, inWords, markError, showOutputs } from "./form.js";
import { libraryChanged, onLibraryChange, useInStudio } from "./library_changes.js";
import { askJson, element, loaded, say, sayIn } from "./page.js";
import { trial } from "./try.js";
import { variantsOf } from "./variants.js";

const MAX_VOICES = 4;

export async function mountDesign(root) {
  await loaded;
  sayIn(root);
  const design = new Design(root);
  await design.look();
  design.startFrom(window.designFrom);
  window.addEventListener("design-from", () => design.startFrom(window.designFrom));
  root.dataset.state = "ready";
}

class Design {
  constructor(root) {
    Object.assign(this, { voices: [], shares: [], prompt: null, abort: null });
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.form = this.part("form");
    this.field = (name) => this.form.elements[name];
    this.form.addEventListener("submit", (event) => { event.preventDefault(); this.make(); });
    this.form.addEventListener("input", () => this.showOutputs());
    this.part("add").addEventListener("click", () => this.add());
    this.part("stop").addEventListener("click", () => this.abort?.abort());
    this.field("sentence").value = say("example.1");
    this.part("empty").textContent = say("design.empty");
    onLibraryChange(() => this.look());
    askJson("v1/models").then(({ data }) => { this.part("instructions").hidden = !data[0].modes?.includes("instruct"); });
  }

  async look() {
    this.voices = (await askJson("v1/audio/voices")).data.filter((v) => v.clip_seconds > 0);
    this.shares = this.shares.filter(({ id }) => this.voices.some((v) => v.id === id));
    this.showRows();
  }

  // A voice of the library, with its own pitch and pace; of none given, the first two, so that there is something to move.
  startFrom(id) {
    const first = this.voices.find((v) => v.id === id);
    this.shares = (first ? [first] : this.voices.slice(0, 2)).map((v) => ({ id: v.id, weight: 50 }));
    this.prompt = this.shares[0]?.id ?? null;
    this.setDefaults(first?.defaults ?? {});
    if (first?.audition) this.field("sentence").value = first.audition;
    this.showRows();
  }

  setDefaults(defaults) {
    this.field("pitch").value = defaults.pitch ?? 0;
    this.field("speed").value = defaults.speed ?? 1;
    this.field("instructions").value = defaults.instructions ?? "";
    this.showOutputs();
  }

  add() {
    const free = this.voices.find((v) => !this.shares.some(({ id }) => id === v.id));
    if (!free || this.shares.length >= MAX_VOICES) return;
    this.shares.push({ id: free.id, weight: 50 });
    this.showRows();
    this.part("rows").lastChild.querySelector("select").focus();
  }

  showRows() {
    if (!this.shares.some(({ id }) => id === this.prompt)) this.prompt = this.shares[0]?.id ?? null;
    this.part("rows").replaceChildren(...this.shares.map((share) => this.row(share)));
    this.part("add").hidden = this.shares.length >= MAX_VOICES || this.shares.length >= this.voices.length;
    this.showOutputs();
  }

  // Of a blend the shares are told as they will be mixed, whatever the sliders add up to.
  showOutputs() {
    showOutputs(this.form);
    const total = this.shares.reduce((sum, { weight }) => sum + weight, 0);
    this.part("rows").querySelectorAll("output").forEach((output, n) => {
      output.textContent = inWords("weight", total ? (100 * this.shares[n].weight) / total : 0);
      output.parentElement.querySelector("input").setAttribute("aria-valuetext", output.textContent);
    });
  }

  row(share) {
    const taken = this.shares.filter((other) => other !== share).map(({ id }) => id);
    const choices = this.voices.filter(({ id }) => !taken.includes(id));
    const pick = element("select", { "aria-label": say("field.voice"), onchange: () => { if (this.prompt === share.id) this.prompt = pick.value; share.id = pick.value; this.showRows(); } },
      ...choices.map((v) => element("option", { value: v.id, selected: v.id === share.id }, v.label)));
    const weight = element("input", { type: "range", min: 0, max: 100, step: 5, value: share.weight, "aria-label": say("design.share"), oninput: () => { share.weight = Number(weight.value); } });
    const prompt = element("input", { type: "radio", name: "prompt", checked: share.id === this.prompt, onchange: () => { this.prompt = share.id; } });
    const remove = element("button", { type: "button", "aria-label": say("design.remove"), onclick: () => { this.shares = this.shares.filter((other) => other !== share); this.showRows(); this.part("add").focus(); } }, "✕");
    remove.hidden = this.shares.length < 2;
    const blends = this.shares.length > 1;
    return element("li", {}, element("div", { class: "design-row" }, pick, remove),
      blends ? element("label", {}, weight, element("output", { "data-of": "weight" })) : null,
      blends ? element("label", { class: "check" }, prompt, " ", say("design.prompt_of")) : null);
  }

  // Its name as the list shows it, without what follows of it.
  calledOf(id) {
    return this.voices.find((v) => v.id === id)?.label.split(" · ")[0];
  }

  // What the fields say, as the server reads it.
  wanted() {
    const defaults = { pitch: Number(this.field("pitch").value), speed: Number(this.field("speed").value), instructions: this.field("instructions").value.trim() || null };
    return { voices: this.shares.map(({ id, weight }) => ({ voice: id, weight })), prompt: this.prompt, defaults };
  }

  async make() {
    clearErrors(this.form);
    const sentence = this.field("sentence").value.trim();
    if (!sentence) { markError(this.form, { told: say("text.empty"), param: "input" }); return; }
    this.abort?.abort();
    const abort = this.abort = new AbortController();
    const seed = Math.floor(Math.random() * 2 ** 32);   // one for all, so that what differs is the voice
    const cards = variantsOf(this.wanted(), (id) => this.calledOf(id)).map((variant) => new Card(variant, this));
    this.part("grid").replaceChildren(...cards.map((card) => card.root));
    this.part("empty").hidden = true;
    this.part("stop").hidden = false;
    this.part("told").textContent = say("design.making", { count: cards.length });
    const made = await Promise.all(cards.map((card) => card.make(sentence, seed, abort.signal)));
    if (abort !== this.abort) return;
    this.part("stop").hidden = true;
    this.part("told").textContent = say("design.made", { count: made.filter(Boolean).length, of: cards.length });
  }

  // Go on from a variant: its values become those of the sliders.
  refine({ voices, prompt, defaults }) {
    this.shares = voices.map(({ voice, weight }) => ({ id: voice, weight: Math.round(weight) }));
    this.prompt = prompt;
    this.setDefaults(defaults);
    this.showRows();
    this.part("told").textContent = say("design.refined");
    this.part("make").focus();
  }
}

// A variant: what it is, its sound or why there is none, and what to do with it.
class Card {
  constructor(variant, design) {
    Object.assign(this, { variant, design, draft: null });
    this.status = element("p", { class: "facts", role: "status" }, say("design.waiting"));
    this.audio = element("audio", { controls: true, hidden: true, "aria-label": variant.title });
    this.actions = element("p", { class: "buttons", hidden: true },
      element("button", { type: "button", onclick: () => design.refine(variant.wanted) }, say("design.refine")),
      element("button", { type: "button", onclick: () => this.showKeeping() }, say("button.keep")));
    this.root = element("article", { "data-state": "making" }, element("h2", {}, variant.title), element("p", { class: "facts" }, this.facts()), this.audio, this.status, this.actions);
  }

  facts() {
    const { defaults } = this.variant.wanted;
    return [this.variant.blend, defaults.pitch && inWords("pitch", defaults.pitch), defaults.speed !== 1 && inWords("speed", defaults.speed)].filter(Boolean).join(" · ");
  }

  // Gives whether there is a sound; a failure is told here and leaves the other cards alone.
  async make(sentence, seed, signal) {
    this.root.dataset.state = "making";
    this.status.textContent = say("design.waiting");
    try {
      this.draft = await askJson("v1/audio/voice-designs", { method: "POST", signal, body: this.variant.wanted });
      this.audio.src = await trial({ voice: this.draft.id, input: sentence, seed }, signal);
      this.audio.hidden = this.actions.hidden = false;
      this.status.textContent = "";
      this.root.dataset.state = "made";
      return true;
    } catch (error) {
      const stopped = error.name === "AbortError";
      this.root.dataset.state = stopped ? "stopped" : "failed";
      this.status.replaceChildren(stopped ? say("player.stopped") : error.told ?? say("status.lost"), " ",
        element("button", { type: "button", onclick: () => this.make(sentence, seed) }, say("design.again")));
      if (!stopped) markError(this.design.form, error);
      return false;
    }
  }

  showKeeping() {
    this.root.querySelector("form")?.remove();
    const name = element("input", { name: "name", maxlength: 64, autocomplete: "off" });
    const consent = element("input", { type: "checkbox", name: "consent" });
    const form = element("form", { class: "voices-form", novalidate: true, onsubmit: (event) => { event.preventDefault(); this.keep(form, name.value, consent.checked); } },
      element("label", {}, say("voices.name"), name), element("p", { class: "field-error", "data-error": "name", role: "alert", hidden: true }),
      element("label", { class: "check" }, consent, " ", say("design.consent")), element("p", { class: "field-error", "data-error": "consent", role: "alert", hidden: true }),
      element("button", { class: "primary" }, say("button.keep")));
    this.root.append(form);
    name.focus();
  }

  async keep(form, name, agreed) {
    clearErrors(form);
    const body = new FormData();
    body.append("name", name);
    body.append("consent", agreed ? say("design.consent") : "");
    try {
      const kept = await askJson(`v1/audio/voices/${this.draft.id}/name`, { method: "POST", body });
      this.actions.hidden = true;
      form.remove();
      this.status.replaceChildren(say("page.kept", { name: kept.name }), " ", element("button", { type: "button", onclick: () => useInStudio(kept.id) }, say("voices.use")));
      this.root.dataset.state = "kept";
      libraryChanged();
    } catch (error) {
      const shown = error.param === "consent" ? { told: say("page.consent_missing"), param: "consent" } : error;
      if (!markError(form, shown)) this.status.textContent = shown.told ?? say("status.lost");
    }
  }
}
