// The Takes tab: a person's history, to search, star, hear, compare, voice again, restore and download.
import { ask, base, loaded, say, sayIn } from "./page.js";
import { button, clock, element, whenSeen } from "./elements.js";
import { Comparison, nameOf } from "./compare.js";
import { restore, restoreFile } from "./restore.js";

const MOST_COMPARED = 4;
const FILES = ["wav", "flac", "mp3", "opus"];

export async function mountTakes(root) {
  await loaded;
  sayIn(root);
  new Takes(root);
}

class Takes {
  constructor(root) {
    this.root = root;
    this.part = (name) => root.querySelector(`[data-part=${name}]`);
    this.compared = [];
    this.comparison = new Comparison(this.part("compare"), (error) => this.fail(error));
    this.audio = new Audio();
    this.audio.addEventListener("ended", () => this.stop());
    this.part("search").addEventListener("input", () => this.load());
    this.part("starred").addEventListener("change", () => this.load());
    this.part("more").addEventListener("click", () => this.load(this.last));
    this.part("file").addEventListener("change", ({ target }) => { restoreFile(target.files[0]); target.value = ""; });
    whenSeen(root, () => this.load());
  }

  async load(before = null) {
    const query = new URLSearchParams({ q: this.part("search").value, starred: this.part("starred").checked });
    if (before !== null) query.set("before", before);
    const asked = (this.asked = {});
    try {
      const { data, usage } = await (await ask(`v1/audio/takes?${query}`)).json();
      if (asked !== this.asked) return; // a later search was quicker
      if (before === null) this.part("list").replaceChildren();
      this.part("list").append(...data.map((take) => this.row(take)));
      this.last = data.at(-1)?.created_at;
      this.part("more").hidden = data.length < 50;
      this.showUsage(usage);
      this.root.dataset.state = usage.takes ? "ready" : "empty";
      if (usage.takes) this.tell(data.length || before ? "" : say("takes.none_found"));
    } catch (error) { this.fail(error); }
  }

  showUsage({ takes, own_bytes, own_kept_bytes, own_kept_limit_bytes, all_bytes, limit_bytes }) {
    const mb = (bytes) => (bytes / 1e6).toFixed(bytes < 1e8 ? 1 : 0);
    const used = { takes, own: mb(own_bytes), kept: mb(own_kept_bytes), most: mb(own_kept_limit_bytes), all: mb(all_bytes), limit: mb(limit_bytes) };
    this.part("usage").textContent = limit_bytes ? say("takes.usage", used) : say("takes.off");
  }

  tell(text) { this.part("said").textContent = text; }

  fail(error) { this.tell(error.told ?? say("status.lost")); }

  row(take) {
    take.title = take.kind === "conversion" ? say("takes.converted") : take.text;
    take.who = take.voice.name || say("takes.clip_voice");
    const made = new Date(take.created_at * 1000).toLocaleString(document.documentElement.lang || undefined, { dateStyle: "medium", timeStyle: "short" });
    const about = [made, take.who, say("takes.seconds", { seconds: take.seconds.toFixed(1) }), say("player.seed", { seed: take.seed })];
    const item = element("li", { class: "take" },
      element("p", { class: "take-about" }, about.join(" · ")), element("p", { class: "take-text", dir: "auto" }, take.title));
    item.dataset.take = take.id;
    const named = (key) => ({ "aria-label": `${say(key)}: ${take.title.slice(0, 60)}` });
    const play = button(say("takes.play"), () => this.toggle(take, play), { class: "take-play", ...named("takes.play") });
    const sign = () => (take.starred ? "★" : "☆");
    const star = button(sign(), async () => {
      try {
        take.starred = (await (await ask(`v1/audio/takes/${take.id}/star`, { method: "POST", body: { starred: !take.starred } })).json()).starred;
        star.setAttribute("aria-pressed", String(take.starred));
        star.textContent = sign();
        this.showUsage((await (await ask("v1/audio/takes")).json()).usage);
      } catch (error) { this.fail(error); }
    }, { class: "take-star", "aria-pressed": String(take.starred), ...named("takes.star"), title: say("takes.star") });
    const compare = element("input", { type: "checkbox", checked: this.compared.some((one) => one.id === take.id), onchange: () => this.compare(take, compare) });
    item.append(element("div", { class: "take-buttons" },
      play, star, element("label", {}, compare, element("span", {}, say("takes.compare"))),
      button(say("takes.use"), () => this.use(take), { class: "take-use", ...named("takes.use") }),
      button(say("takes.replay"), () => this.replay(take, item), { class: "take-replay", title: say("takes.replay_why"), ...named("takes.replay") }),
      this.downloads(take), button(say("takes.delete"), () => this.delete(take, item), { class: "take-delete", ...named("takes.delete") })));
    return item;
  }

  downloads(take) {
    const link = (text, path) => element("a", { href: new URL(`v1/audio/takes/${take.id}/${path}`, base), download: "" }, text);
    return element("details", { class: "take-files" }, element("summary", {}, say("takes.download")),
      element("span", {}, ...FILES.map((form) => link(form, `audio?format=${form}`)), link("json", "settings")));
  }

  toggle(take, play) {
    const again = this.playing === play;
    this.stop();
    if (!again) this.hear(new URL(`v1/audio/takes/${take.id}/audio`, base), play);
  }

  hear(source, play) {
    this.comparison.pause();
    this.playing = play;
    this.audio.src = source;
    this.audio.play().catch(() => { if (this.playing === play) { this.stop(); this.tell(say("status.lost")); } });
    if (play) play.textContent = say("takes.stop");
  }

  stop() {
    this.audio.pause();
    if (this.playing) this.playing.textContent = say("takes.play");
    this.playing = null;
  }

  compare(take, box) {
    const without = this.compared.filter((one) => one.id !== take.id);
    if (box.checked && without.length === MOST_COMPARED) {
      box.checked = false;
      return this.tell(say("takes.compare_most", { most: MOST_COMPARED }));
    }
    this.compared = box.checked ? [...without, take] : without;
    this.stop();
    this.comparison.show(this.compared);
    this.tell(this.compared.length === 1 ? say("takes.compare_more") : this.compared.map((one, n) => `${nameOf(n)}: ${one.title.slice(0, 40)}`).join(" · "));
  }

  async use(take) {
    try { restore(await (await ask(`v1/audio/takes/${take.id}/card`)).json()); } catch (error) { this.fail(error); }
  }

  async replay(take, item) {
    this.tell(say("takes.replaying"));
    try {
      const reply = await ask(`v1/audio/takes/${take.id}/replay`, { method: "POST" });
      const difference = Number(reply.headers.get("X-Replay-Difference"));
      this.stop();
      this.hear(URL.createObjectURL(await reply.blob()), item.querySelector(".take-play"));
      this.tell(difference ? say("takes.replayed", { difference }) : say("takes.replayed_same"));
      item.dataset.difference = difference;
    } catch (error) { this.fail(error); }
  }

  async delete(take, item) {
    if (!confirm(say("takes.delete_sure"))) return;
    try {
      await ask(`v1/audio/takes/${take.id}`, { method: "DELETE" });
      const next = (item.nextElementSibling ?? item.previousElementSibling)?.querySelector(".take-play");
      item.remove();
      this.compared = this.compared.filter((one) => one.id !== take.id);
      this.comparison.show(this.compared);
      (next ?? this.part("search")).focus();
      this.load();
    } catch (error) { this.fail(error); }
  }
}
