// Listens to what the page sends to the loudspeaker: window.tap.peak() is the loudest of the last 0.1 s, 0 for silence.
// Also notes when a reply's body broke off and when the page told so.
(() => {
  const connect = AudioNode.prototype.connect;
  const tap = (window.tap = { analysers: new Map(), brokeAt: null, toldAt: null });
  AudioNode.prototype.connect = function (target, ...rest) {
    if (target instanceof AudioDestinationNode) {
      if (!tap.analysers.has(this.context)) {
        tap.analysers.set(this.context, new AnalyserNode(this.context, { fftSize: 4096 }));
      }
      connect.call(this, tap.analysers.get(this.context));
    }
    return connect.call(this, target, ...rest);
  };
  tap.peak = () => {
    let peak = 0;
    for (const analyser of tap.analysers.values()) {
      const samples = new Float32Array(analyser.fftSize);
      analyser.getFloatTimeDomainData(samples);
      for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    }
    return peak;
  };
  const read = ReadableStreamDefaultReader.prototype.read;
  ReadableStreamDefaultReader.prototype.read = function (...given) {
    const reading = read.apply(this, given);
    reading.catch(() => { tap.brokeAt = performance.now(); });
    return reading;
  };
  document.addEventListener("DOMContentLoaded", () => {
    new MutationObserver(() => {
      if (document.querySelector("#player .player")?.dataset.state === "failed") tap.toldAt ??= performance.now();
    }).observe(document.body, { subtree: true, attributes: true, attributeFilter: ["data-state"] });
  });
})();
