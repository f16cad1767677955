// While a run goes on: head line and curves every two seconds, clusters whenever there is a new checkpoint.

const EVERY = 2_000;
const LATER = 10_000;

async function fetchJson(path) {
  const answer = await fetch(path, { cache: "no-store", credentials: "omit" });
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

function say(words) {
  const element = find("live");
  show(element, true);
  element.textContent = words;
}

function isBusy() {
  return find("gallery").open || find("editor").open;
}

async function follow() {
  let wait = EVERY;
  try {
    const progress = await fetchJson("progress.json");
    const more = progress.newest !== state.content.newest;
    if (more && !isBusy()) {
      load(await fetchJson("content.json"));
    } else {
      Object.assign(state.content, progress, { newest: state.content.newest });
      renderHead();
      extendCurves();
    }
    say(progress.finished ? "Finished." : "Live: the run goes on.");
    if (progress.finished && !isBusy()) return;
  } catch {
    say("The run no longer answers. When it is finished, its report is in the run folder.");
    wait = LATER;
  }
  setTimeout(follow, wait);
}
