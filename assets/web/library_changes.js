// Whoever changes the library says so here; whoever shows it hears of it: on this page, in other tabs of this browser at
// once, and from everybody else when the page is looked at again.
const channel = new BroadcastChannel("voices");
const listeners = new Set();

export function onLibraryChange(listener) { listeners.add(listener); }

export function libraryChanged() {
  channel.postMessage("changed");
  hear();
}

// Opens the Studio tab with a voice picked.
export function useInStudio(id) {
  window.studioChosen = id;
  hear();
  document.querySelector("#tab-studio-button")?.click();
}

function hear() {
  for (const listener of listeners) listener();
  document.querySelector("#voices-refresh")?.click();   // the Studio tab's list is Gradio's
}

channel.onmessage = hear;
document.addEventListener("visibilitychange", () => { if (!document.hidden) for (const listener of listeners) listener(); });
