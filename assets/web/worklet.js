// The sample queue of the player, run by the browser's audio thread. Messages in: {pcm: ArrayBuffer of int16} in order,
// {end: true} after the last, {stop: true}. Messages out: {first: seconds}, {played: samples}, {underruns}, {done: true}.
const REPORT_EVERY = 2400;      // samples between position reports: 0.1 s
const MAX_REBUFFER = 24000;     // after gaps, wait for at most this many samples before going on

class SampleQueue extends AudioWorkletProcessor {
  constructor(options) {
    super();
    this.chunks = [];
    this.offset = 0;
    this.held = 0;
    this.needed = options.processorOptions.prebufferSamples | 0;
    this.waiting = true;
    this.started = false;
    this.ended = false;
    this.stopped = false;
    this.gapOpen = false;
    this.underruns = 0;
    this.played = 0;
    this.reported = 0;
    this.port.onmessage = ({ data }) => this.receive(data);
  }

  receive(message) {
    if (message.pcm) {
      const samples = new Int16Array(message.pcm);
      this.chunks.push(samples);
      this.held += samples.length;
      // A gap counts once sound follows it; running dry at the very end is no underrun.
      if (this.gapOpen && samples.length) {
        this.gapOpen = false;
        this.underruns += 1;
        this.port.postMessage({ underruns: this.underruns });
      }
    }
    if (message.end) this.ended = true;
    if (message.stop) this.stopped = true;
  }

  finish() {
    this.stopped = true;
    this.port.postMessage({ played: this.played, underruns: this.underruns, done: true });
    return false;
  }

  process(_inputs, [[out]]) {
    if (this.stopped) return false;
    if (this.waiting) {
      if (!this.held && this.ended) return this.finish();
      if (!this.ended && this.held < Math.max(this.needed, 1)) return true;
      this.waiting = false;
      if (!this.started) {
        this.started = true;
        this.port.postMessage({ first: currentTime });
      }
    }
    let at = 0;
    while (at < out.length && this.chunks.length) {
      const chunk = this.chunks[0];
      const count = Math.min(out.length - at, chunk.length - this.offset);
      for (let i = 0; i < count; i++) out[at + i] = chunk[this.offset + i] / 32768;
      at += count;
      this.offset += count;
      this.held -= count;
      this.played += count;
      if (this.offset === chunk.length) {
        this.chunks.shift();
        this.offset = 0;
      }
    }
    if (at < out.length) {
      if (this.ended) return this.finish();
      this.gapOpen = true;
      this.waiting = true;
      this.needed = Math.min(Math.max(this.needed * 2, 4800), MAX_REBUFFER);
    }
    if (this.played - this.reported >= REPORT_EVERY) {
      this.reported = this.played;
      this.port.postMessage({ played: this.played });
    }
    return true;
  }
}

registerProcessor("sample-queue", SampleQueue);
