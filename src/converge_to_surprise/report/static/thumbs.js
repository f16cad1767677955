// Thumbnails: a window onto a sheet of many. A sheet is unpacked when its first thumbnail is needed.

function sheetUrl(sheet) {
  const { urls, sheets } = state.images;
  if (!urls[sheet]) {
    const bytes = Uint8Array.from(atob(sheets[sheet]), (character) => character.charCodeAt(0));
    urls[sheet] = URL.createObjectURL(new Blob([bytes], { type: "image/webp" }));
  }
  return urls[sheet];
}

/** How many times a thumbnail is enlarged to be about so many pixels large: whole numbers keep pixels square. */
function enlargement(size) {
  const longest = Math.max(state.images.width, state.images.height);
  return longest >= size ? size / longest : Math.max(1, Math.round(size / longest));
}

/** The picture of one image, about ``size`` pixels large. */
function thumb(position, size, words = "") {
  const { width, height, columns, perSheet, shown } = state.images;
  const scale = enlargement(size);
  const sheet = Math.floor(position / perSheet);
  const place = position % perSheet;
  const onSheet = Math.min(perSheet, shown - sheet * perSheet);
  const across = Math.min(columns, onSheet);
  const down = Math.ceil(onSheet / columns);
  const element = make("span", { class: "thumb", role: "img", "aria-label": `${imageName(position)}${words}` });
  const style = element.style;
  style.width = `${width * scale}px`;
  style.height = `${height * scale}px`;
  style.backgroundImage = `url("${sheetUrl(sheet)}")`;
  style.backgroundSize = `${across * width * scale}px ${down * height * scale}px`;
  style.backgroundPosition = `-${(place % columns) * width * scale}px -${Math.floor(place / columns) * height * scale}px`;
  if (scale > 1) element.classList.add("pixels");
  return element;
}

const confidenceOf = (position) => state.images.confidence[position] / 10_000;

/** The novelty of an image in words; nothing while a run is not finished. */
const noveltyOf = (position) => (state.images.novelty ? `novelty ${percent(state.images.novelty[position] / 10_000, 1)}` : null);

/** The same few images every time, spread over the group. */
function someOf(members, many) {
  const picked = [];
  let seed = 2_654_435_769 ^ members.length;
  const pool = [...members];
  while (picked.length < many && pool.length) {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    picked.push(pool.splice(seed % pool.length, 1)[0]);
  }
  return picked;
}
