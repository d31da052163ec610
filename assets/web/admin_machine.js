// What the Admin tab shows of the machine: GPUs by part of the studio, and the ladder of overload.
import { say } from "./page.js";
import { element, table } from "./elements.js";

const RUNGS = ["refused", "smaller_batch", "forget_voices", "recompute", "smaller_hop", "restart"];
const mb = (value) => `${value.toFixed(0)} MB`;
const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(0)} %`);

export function showGpus(part, { gpus, reason }) {
  if (!gpus.length) {
    part.replaceChildren(element("p", {}, reason ? say("admin.page.gpu_unreadable", { reason }) : say("admin.page.no_gpu")));
    return;
  }
  part.replaceChildren(...gpus.flatMap((gpu) => [
    element("p", {}, `${gpu.name}: ${mb(gpu.used_mb)} / ${mb(gpu.memory_mb)}, ${percent(gpu.use_ratio)}`),
    strip(gpu),
    element("div", { class: "admin-scroll" }, table(
      ["gpu_part", "gpu_memory", "gpu_use"].map((name) => say(`admin.page.${name}`)),
      gpu.parts.map((one) => [say(`admin.part.${one.name}`), mb(one.memory_mb), percent(one.use_ratio)]),
    )),
  ]));
}

function strip({ parts, memory_mb: whole, used_mb: used }) {
  const shares = parts.map((one, at) => [one.name, one.memory_mb, String(at % 4)]);
  const bars = [...shares, ["free", whole - used, "free"]].map(([name, held, shade]) => {
    const bar = element("span", { title: `${say(`admin.part.${name}`)}: ${mb(held)}` });
    bar.style.flexGrow = Math.max(0, held);
    bar.dataset.shade = shade;
    return bar;
  });
  return element("div", { class: "admin-pages", role: "img", "aria-label": say("admin.page.gpus") }, ...bars);
}

// Each rung with how often it was taken; those that were are marked.
export function showLadder(part, taken, places) {
  part.replaceChildren(...RUNGS.map((rung) => {
    const count = taken[rung] ?? 0;
    const item = element("li", {}, element("span", {}, say(`admin.rung.${rung}`)), element("output", {}, String(count)));
    item.dataset.rung = rung;
    item.dataset.taken = String(count > 0);
    return item;
  }), element("li", { class: "admin-places" }, say("admin.page.places", { places })));
}
