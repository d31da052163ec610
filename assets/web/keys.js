// The player by keyboard, wherever the focus is inside of it: space, arrows, Home, End, Escape.
const STEP_S = 2;

export function listenToKeys(root, player) {
  const wave = root.querySelector("[data-part=wave]");
  root.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const onWave = event.target === wave;
    const act = {
      Escape: () => player.stop(),
      k: () => player.toggle(),
      ...(onWave && {
        " ": () => player.toggle(), ArrowLeft: () => player.seek(-STEP_S), ArrowRight: () => player.seek(STEP_S),
        ArrowDown: () => player.seek(-STEP_S), ArrowUp: () => player.seek(STEP_S),
        Home: () => player.seek(-Infinity), End: () => player.seek(Infinity),
      }),
    }[event.key];
    if (!act) return;
    event.preventDefault();
    act();
  });
  wave.addEventListener("click", (event) => player.seekTo(event.offsetX / wave.clientWidth));
}
