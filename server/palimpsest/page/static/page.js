// What htmx does not do: a key for the search, days of the time line, and changes as they happen.
"use strict";

document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea, select");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
    const search = document.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    } else {
      window.location.assign("/");
    }
  }
});

// A month of the strip below the search sets the day that is searched as of.
document.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-as-of]");
  if (!button) return;
  event.preventDefault();
  const day = document.querySelector("input[name=as_of]");
  day.value = button.dataset.asOf;
  day.dispatchEvent(new Event("input", { bubbles: true }));
});

// One question is one entry of the history, however many answers it gets while it is typed. It ends when somebody
// leaves its field or sends it. A filter that is chosen makes another question of it.
const SEARCHES = "form[role=search]";
const TYPED = "[type=search], [type=text], :not([type]):not(select)";
let question = 0;
let isEnded = true;
let entered = -1; // the last question that has its entry

const asked = (url) => [...new URL(url, window.location.href).searchParams].filter(([, value]) => value).join("&");

document.addEventListener("input", (event) => {
  if (!event.target.closest(SEARCHES)) return;
  if (isEnded || !event.target.matches(TYPED)) question += 1;
  isEnded = !event.target.matches(TYPED);
});
document.addEventListener("change", () => { isEnded = true; });
document.addEventListener("submit", () => { isEnded = true; }, true);
document.addEventListener("htmx:configRequest", (event) => { event.detail.question = question; });
document.addEventListener("htmx:beforeHistoryUpdate", (event) => {
  const { history: entry, requestConfig } = event.detail;
  if (!requestConfig.elt.matches(SEARCHES)) return;
  const isAt = asked(entry.path) === asked(window.location.href);
  if (isAt || entered === requestConfig.question) entry.type = "replace";
  entered = requestConfig.question;
});

// What is under a button or a link must not be replaced while it is being clicked: the click would be lost.
let pressed = null;
let afterClick = null;

document.addEventListener("pointerdown", (event) => { pressed = event.target; }, true);
for (const name of ["pointerup", "pointercancel"]) {
  document.addEventListener(name, () => {
    pressed = null;
    if (afterClick !== null) setTimeout(afterClick); // the click comes right after the pointer is up
    afterClick = null;
  }, true);
}
document.addEventListener("htmx:beforeSwap", (event) => {
  const { target, requestConfig } = event.detail;
  if (pressed === null || !target.contains(pressed)) return;
  if (requestConfig.elt.matches(SEARCHES)) {
    event.detail.shouldSwap = false;
    afterClick = () => htmx.trigger(requestConfig.elt, "changed");
  } else if (target.matches("[data-shows-changes]")) {
    event.detail.shouldSwap = false;
    afterClick = showChanges;
  }
});

// A page that is looked at shows changes by itself, unless that would take away what somebody is doing.
const isBusy = (part) => part.querySelector(".done, input:checked, details[open] form") !== null
  || (part.contains(document.activeElement) && document.activeElement.matches("input, textarea, select, button"));

function showChanges() {
  const search = document.querySelector("#search");
  const part = document.querySelector(search ? "#hits" : "[data-shows-changes]");
  if (part && !isBusy(part)) {
    if (search) htmx.trigger(search, "changed");
    else htmx.ajax("GET", window.location.href, { target: part, select: "[data-shows-changes]", swap: "outerHTML" });
  } else {
    document.querySelector("#news").hidden = false;
  }
}

let stream = null;

function listen() {
  const isSeen = document.visibilityState === "visible";
  if (isSeen && stream === null) {
    stream = new EventSource(document.body.dataset.live);
    stream.addEventListener("changed", showChanges);
  } else if (!isSeen && stream !== null) {
    stream.close(); // A browser has few connections to a server, and each tab would hold one.
    stream = null;
    document.addEventListener("visibilitychange", showChanges, { once: true });
  }
}

if (document.body.dataset.live) {
  document.addEventListener("visibilitychange", listen);
  listen();
}
