// One line of the Script tab: its fields, its takes, and what is wrong with it. What is being typed is never overwritten.
import { base, say } from "./page.js";
import { button, element } from "./elements.js";

export function fillVoices(select, voices, chosen) {
  select.replaceChildren(element("option", { value: "" }, say("script.no_voice")), ...voices.map((voice) => element("option", { value: voice.id }, voice.name)));
  select.value = chosen;
}

export class LineRow {
  constructor(tab, line) {
    Object.assign(this, { tab, line });
    const change = (name, value) => tab.send(`/lines/${this.line.id}`, "PATCH", { [name]: value });
    this.number = element("span", { class: "line-number" });
    this.speaker = element("input", { type: "text", maxLength: 64, placeholder: say("script.speaker"), onchange: () => change("speaker", this.speaker.value) });
    this.voice = element("select", { onchange: () => this.voice.value && change("voice", this.voice.value) });
    this.text = element("textarea", { rows: 2, dir: "auto", onchange: () => change("input", this.text.value) });
    this.pause = element("input", { type: "number", min: 0, max: 30, step: 0.1, onchange: () => this.pause.checkValidity() && change("pause_s", Number(this.pause.value)) });
    this.status = element("span", { class: "line-status" });
    this.takes = element("select", { onchange: () => change("take", this.takes.value) });
    this.play = button(say("takes.play"), () => this.hear());
    this.roll = button("", () => tab.send("/speak", "POST", { lines: [this.line.id] }));
    this.below = button(say("script.add_below"), () => this.addBelow());
    this.remove = button(say("takes.delete"), () => this.delete());
    this.error = element("p", { class: "field-error", role: "alert", hidden: true });
    this.root = element("li", { class: "script-line" },
      element("div", { class: "line-who" }, this.number, this.speaker, this.voice), this.text,
      element("div", { class: "line-take" }, this.status, this.takes, this.play, this.roll,
        element("label", {}, element("span", {}, say("script.pause")), this.pause, "s"), this.below, this.remove), this.error);
    this.root.dataset.line = line.id;
  }

  focus() { this.text.focus(); this.text.select(); }

  show(line) {
    const now = JSON.stringify([line, this.tab.voices.length]);
    if (now === this.now) return;
    this.now = now;
    this.line = line;
    this.root.dataset.status = line.status;
    this.number.textContent = line.number;
    this.name(line.number);
    const fill = (field, value) => { if (document.activeElement !== field && field.value !== value) field.value = value; };
    fill(this.speaker, line.speaker);
    fill(this.text, line.input);
    fill(this.pause, String(line.pause_s));
    if (document.activeElement !== this.voice) fillVoices(this.voice, this.tab.voices, line.voice?.id ?? "");
    const at = line.start_s === null ? "" : ` · ${line.start_s.toFixed(1)}–${line.end_s.toFixed(1)} s`;
    this.status.textContent = say(`script.status_${line.status}`) + at;
    this.showTakes();
    this.error.textContent = line.error?.message ?? "";
    this.error.hidden = !line.error;
  }

  showTakes() {
    const { takes, take, status } = this.line;
    this.takes.hidden = takes.length < 2;
    this.play.hidden = !take;
    this.roll.textContent = say(takes.length ? "script.again" : "script.speak_one");
    this.roll.disabled = status === "waiting" || status === "running";
    this.takes.replaceChildren(...takes.map((one, n) => element("option", { value: one.id }, say("script.take", { number: n + 1, seconds: one.seconds.toFixed(1) }))));
    this.takes.value = take ?? "";
  }

  // What readers of screens hear before each field: which line it is of.
  name(number) {
    const named = { speaker: "script.speaker", voice: "field.voice", text: "script.text", pause: "script.pause", takes: "script.takes", play: "takes.play", below: "script.add_below", remove: "takes.delete" };
    for (const [field, key] of Object.entries(named)) this[field].setAttribute("aria-label", `${say(key)}, ${say("script.line", { number })}`);
    this.roll.setAttribute("aria-describedby", this.number.id = `line-${this.line.id}`);
  }

  hear() {
    if (this.tab.playing === this.play) return this.tab.silence();
    this.tab.play(new URL(`v1/audio/takes/${this.line.take}/audio`, base), this.play);
  }

  async addBelow() {
    const { speaker, voice, number } = this.line;
    const added = await this.tab.send("/lines", "POST", { input: say("script.new_line"), speaker, voice: voice?.id ?? "", position: number });
    if (added) this.tab.rows.get(this.tab.script.lines[number].id)?.focus();
  }

  async delete() {
    const next = this.root.nextElementSibling ?? this.root.previousElementSibling;
    if (await this.tab.send(`/lines/${this.line.id}`, "DELETE")) (next?.querySelector("textarea") ?? this.tab.part("add")).focus();
  }
}
