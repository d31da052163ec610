// Which voices lie around a design: more of each of its parts, higher, lower, faster, slower. No sound, no page.
import { inWords } from "./form.js";
import { say } from "./page.js";

const MORE = 0.3;
const SEMITONES = 1.5;
const PACE = 0.12;
const MOST = 8;

// wanted: the body of a design; nameOf(id). Gives [{title, blend, wanted}], the design itself first, at most eight.
export function variantsOf(wanted, nameOf) {
  const total = wanted.voices.reduce((sum, { weight }) => sum + weight, 0);
  const plain = total ? { ...wanted, voices: wanted.voices.map((v) => ({ ...v, weight: (100 * v.weight) / total })) } : wanted;
  const changes = [["design.as_set", plain]];
  if (plain.voices.length > 1 && total) {
    for (const { voice } of plain.voices) changes.push(["design.more_of", withMore(plain, voice), { name: nameOf(voice) }]);
  }
  for (const [key, by] of [["design.higher", SEMITONES], ["design.lower", -SEMITONES]]) changes.push([key, moved(plain, "pitch", by, -6, 6)]);
  for (const [key, by] of [["design.faster", PACE], ["design.slower", -PACE]]) changes.push([key, moved(plain, "speed", by, 0.5, 2)]);
  return changes.filter(([, one], n) => !n || JSON.stringify(one) !== JSON.stringify(plain)).slice(0, MOST)
    .map(([key, one, values]) => ({ title: say(key, values), blend: blendOf(one, nameOf), wanted: one }));
}

function withMore(wanted, voice) {
  const voices = wanted.voices.map((v) => ({ ...v, weight: v.weight * (1 - MORE) + (v.voice === voice ? 100 * MORE : 0) }));
  return { ...wanted, voices };
}

function moved(wanted, field, by, low, high) {
  const value = Math.min(high, Math.max(low, Math.round((wanted.defaults[field] + by) * 100) / 100));
  return { ...wanted, defaults: { ...wanted.defaults, [field]: value } };
}

function blendOf({ voices }, nameOf) {
  return voices.length < 2 ? "" : voices.map(({ voice, weight }) => `${nameOf(voice)} ${inWords("weight", weight)}`).join(", ");
}
