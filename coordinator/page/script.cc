#include "coordinator/page/frame.h"

namespace kiln::page {

// The page works without it. With it, a view is asked for again when the coordinator says that
// something changed, and acts are asked about first.
std::string_view script() {
  return R"js("use strict";
const live = () => document.getElementById("live");
let asking = false, missed = false;
async function refresh() {
  const isUsed = () => live().contains(document.activeElement) || live().querySelector("button:hover");
  if (asking || document.hidden || isUsed()) { missed = true; return; }
  asking = true;
  missed = false;
  try {
    const answer = await fetch(location.href, { headers: { Accept: "text/html" } });
    if (answer.ok) {
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const next = page.getElementById("live");
      const scrolled = [...live().querySelectorAll(".scroll")].map((each) => each.scrollLeft);
      const heading = (each) => each.querySelector("summary > [id]")?.id;
      const folds = new Map([...live().querySelectorAll("details")].map((each) => [heading(each), each.open]));
      if (next && !isUsed()) live().replaceWith(next);
      live().querySelectorAll(".scroll").forEach((each, i) => { each.scrollLeft = scrolled[i] || 0; });
      for (const each of live().querySelectorAll("details")) each.open = folds.get(heading(each)) ?? each.open;
    }
  } catch { /* the coordinator is away: the next event comes when it is back */ }
  asking = false;
}
if (live() && document.querySelector("header nav")) {
  new EventSource("/events").addEventListener("change", refresh);
  document.addEventListener("visibilitychange", () => { if (missed) refresh(); });
  for (const event of ["focusout", "mouseout"])
    document.addEventListener(event, () => { if (missed) setTimeout(refresh, 0); });
}
document.addEventListener("submit", (event) => {
  const question = event.target.dataset.ask;
  if (question && !window.confirm(question)) event.preventDefault();
});
)js";
}

}  // namespace kiln::page
