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
  day.dispatchEvent(new Event("change", { bubbles: true }));
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
