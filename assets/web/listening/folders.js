// Which files lie in which folder, of a folder that was chosen or of a zip; no sound is read here, the server judges.
const DIRECTORY_END = 0x06054b50, ENTRY = 0x02014b50, END_BYTES = 22, ENTRY_BYTES = 46, MOST_COMMENT = 65535;
const notes = /(^|\/)(__MACOSX\/|\.|Thumbs\.db$|desktop\.ini$)/;

// Folder name to the names of what lies in it, with [name, file] pairs to send.
export async function readFolders(files) {
  const sent = [...files].map((file) => [file.webkitRelativePath || file.name, file]).filter(([path]) => !notes.test(path));
  const paths = (await Promise.all(sent.map(async ([path, file]) => (path.endsWith(".zip") ? namesInZip(file) : [path])))).flat();
  const folders = new Map();
  for (const path of paths.filter((one) => !one.endsWith("/") && !notes.test(one))) {
    const folder = path.split("/").at(-2) ?? "";
    folders.set(folder, [...(folders.get(folder) ?? []), path]);
  }
  folders.delete(""); // what lies in no folder, the server names
  return { folders, sent };
}

// Names in a zip's directory, which stands at its end; none for what is no zip.
async function namesInZip(file) {
  const tail = new DataView(await file.slice(Math.max(0, file.size - END_BYTES - MOST_COMMENT)).arrayBuffer());
  let at = tail.byteLength - END_BYTES;
  while (at >= 0 && tail.getUint32(at, true) !== DIRECTORY_END) at -= 1;
  if (at < 0) return [];
  const size = tail.getUint32(at + 12, true), start = tail.getUint32(at + 16, true);
  const directory = new DataView(await file.slice(start, start + size).arrayBuffer());
  const names = [];
  for (let place = 0; place + ENTRY_BYTES <= directory.byteLength && directory.getUint32(place, true) === ENTRY;) {
    const [name, extra, comment] = [28, 30, 32].map((offset) => directory.getUint16(place + offset, true));
    names.push(new TextDecoder().decode(new Uint8Array(directory.buffer, place + ENTRY_BYTES, Math.min(name, directory.byteLength - place - ENTRY_BYTES))));
    place += ENTRY_BYTES + name + extra + comment;
  }
  return names;
}
