// Where samples become sound: an AudioWorklet where the page may have one, else back-to-back buffer sources
// (a page on plain http from another machine has no AudioWorklet). Both have the same four calls.
export const RATE = 24000;
let context = null;
let workletReady = null;

export function audioContext() {
  context ??= new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
  return context;
}

// To be called inside the click, so that the browser lets sound out.
export async function openSink(base, prebufferMs, on) {
  const audio = audioContext();
  await audio.resume();
  const prebufferSamples = Math.round((prebufferMs / 1000) * RATE);
  if (!audio.audioWorklet) return new BufferSink(audio, prebufferSamples, on);
  workletReady ??= audio.audioWorklet.addModule(new URL("web/worklet.js", base));
  try {
    await workletReady;
  } catch (error) {
    workletReady = null;            // a network fault must not spoil every later play
    throw error;
  }
  return new WorkletSink(audio, prebufferSamples, on);
}

class WorkletSink {
  constructor(audio, prebufferSamples, on) {
    this.node = new AudioWorkletNode(audio, "sample-queue", {
      numberOfInputs: 0, outputChannelCount: [1], processorOptions: { prebufferSamples },
    });
    this.node.port.onmessage = ({ data }) => {
      if (data.first !== undefined) on.first();
      if (data.underruns !== undefined) on.underruns(data.underruns);
      if (data.played !== undefined) on.position(data.played);
      if (data.done) { this.node.disconnect(); on.done(); }
    };
    this.node.connect(audio.destination);
  }
  push(samples) { const copy = samples.slice(); this.node.port.postMessage({ pcm: copy.buffer }, [copy.buffer]); }
  end() { this.node.port.postMessage({ end: true }); }
  stop() { this.node.port.postMessage({ stop: true }); this.node.disconnect(); }
}

class BufferSink {
  constructor(audio, prebufferSamples, on) {
    Object.assign(this, { audio, needed: prebufferSamples, on, pending: [], held: 0, at: 0, sent: 0, gaps: 0, sources: new Set(), ended: false, stopped: false });
  }
  push(samples) {
    if (this.stopped) return;
    this.pending.push(samples.slice());
    this.held += samples.length;
    if (this.at || this.held >= this.needed) this.flush();
  }
  flush() {
    for (const samples of this.pending.splice(0)) {
      const now = this.audio.currentTime;
      if (!this.at) { this.at = now + 0.02; this.on.first(); }
      if (this.at < now) { this.gaps += 1; this.on.underruns(this.gaps); this.at = now + 0.05; }
      const buffer = this.audio.createBuffer(1, samples.length, RATE);
      const channel = buffer.getChannelData(0);
      for (let i = 0; i < samples.length; i++) channel[i] = samples[i] / 32768;
      const source = this.audio.createBufferSource();
      source.buffer = buffer;
      source.connect(this.audio.destination);
      source.onended = () => {
        this.sources.delete(source);
        this.sent += samples.length;
        this.on.position(this.sent);
        if (this.ended && !this.sources.size) this.on.done();
      };
      this.sources.add(source);
      source.start(this.at);
      this.at += samples.length / RATE;
    }
  }
  end() {
    if (this.stopped) return;
    this.ended = true;
    this.flush();
    if (!this.sources.size) this.on.done();
  }
  stop() { this.stopped = true; for (const source of this.sources) { source.onended = null; source.stop(); } this.sources.clear(); }
}
