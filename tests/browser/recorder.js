// Records what a rater's page sends to the loudspeaker, sample by sample, at the rate of the clips.
(() => {
  const Context = window.AudioContext;
  const WORKLET = `registerProcessor("recorder", class extends AudioWorkletProcessor {
    process([[mono]]) { this.port.postMessage(mono ? mono.slice() : new Float32Array(128)); return true; }
  });`;
  const recorder = (window.recorder = { chunks: [], count: 0, leads: [], context: null, ready: null, held: false });

  async function record(context, sink) {
    await context.audioWorklet.addModule(URL.createObjectURL(new Blob([WORKLET], { type: "text/javascript" })));
    const node = new AudioWorkletNode(context, "recorder", { channelCount: 1, channelCountMode: "explicit" });
    node.port.onmessage = ({ data }) => { recorder.chunks.push(data); recorder.count += data.length; };
    sink.connect(node).connect(context.realDestination);
  }

  window.AudioContext = class extends Context {
    constructor(options) {
      super({ ...options, sampleRate: 24000 });
      this.realDestination = super.destination;
      this.sink = new GainNode(this);
      recorder.context = this;
      recorder.ready = record(this, this.sink);
    }

    get destination() { return this.sink ?? super.destination; }

    resume() { return recorder.held ? Promise.resolve() : super.resume(); }
  };
  const ramp = AudioParam.prototype.linearRampToValueAtTime;
  AudioParam.prototype.linearRampToValueAtTime = function (value, end) {
    recorder.leads.push(end - recorder.context.currentTime);
    return ramp.call(this, value, end);
  };

  const until = async (reached) => { while (!reached()) await new Promise((resolve) => { setTimeout(resolve, 5); }); };

  // Presses sounds one after the other, each after so many samples; nothing is computed while the page reacts to a press.
  recorder.press = async (places, samples) => {
    await recorder.ready;
    const begun = recorder.count;
    for (const place of places) {
      await recorder.context.suspend();
      recorder.held = true;
      document.querySelector(`[data-part=play-${place}]`).click();
      recorder.held = false;
      await recorder.context.resume();
      const now = recorder.context.currentTime; // what was recorded may still be on its way here
      await until(() => recorder.context.currentTime >= now + samples / 24000);
    }
    const last = recorder.count;
    await until(() => recorder.count >= last + samples);
    const all = new Float32Array(recorder.count);
    let at = 0;
    for (const chunk of recorder.chunks) { all.set(chunk, at); at += chunk.length; }
    return Array.from(all.subarray(Math.max(0, begun - 256)));
  };
})();
