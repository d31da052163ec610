// The links of a take: a wav of what is here at once, and files with the settings inside once the server keeps the take.
import { ask, base } from "./page.js";
import { RATE } from "./sink.js";
import { wavBlob } from "./wav.js";

export class Downloads {
  constructor(root) {
    this.root = root;
    this.links = [...root.querySelectorAll("a")];
  }

  clear() {
    this.root.hidden = true;
    for (const link of this.links) {
      if (link.href.startsWith("blob:")) URL.revokeObjectURL(link.href);
      link.removeAttribute("href");
      link.hidden = link.dataset.format !== "wav";
    }
  }

  offer(samples, total) {
    this.links[0].href = URL.createObjectURL(wavBlob(samples, total, RATE));
    this.root.hidden = false;
  }

  // Only speech that was heard to its end is kept, and only where a history is kept at all.
  async offerTake(id) {
    try {
      await ask(`v1/audio/takes/${id}`);
    } catch { return; }
    const wav = this.links[0];
    if (!wav.href) return; // another take has begun
    URL.revokeObjectURL(wav.href);
    for (const link of this.links) {
      link.href = new URL(`v1/audio/takes/${id}/audio?format=${link.dataset.format}`, base);
      link.hidden = false;
    }
  }
}
