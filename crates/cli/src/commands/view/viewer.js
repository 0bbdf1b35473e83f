// The viewer's script: keys, and pages that follow a run. Pages work without it.
"use strict";
(() => {
  const items = () => [...document.querySelectorAll(".item")].filter((item) => item.offsetParent !== null);
  const selected = () => document.querySelector(".item.selected");
  const follow = (rel) => {
    const link = document.querySelector(`a[rel~="${rel}"]`);
    if (link) location.assign(link.href);
  };

  const select = (item) => {
    selected()?.classList.remove("selected");
    item.classList.add("selected");
    item.scrollIntoView({ block: "nearest" });
  };

  const move = (by) => {
    const all = items();
    if (all.length === 0) return;
    const at = all.indexOf(selected());
    const next = at < 0 ? (by > 0 ? 0 : all.length - 1) : Math.min(Math.max(at + by, 0), all.length - 1);
    select(all[next]);
  };

  const open = () => {
    const item = selected();
    if (!item) return;
    if (item instanceof HTMLDetailsElement) item.open = !item.open;
    else item.querySelector("a[href]")?.click();
  };

  const actions = {
    j: () => move(1),
    k: () => move(-1),
    n: () => follow("next"),
    p: () => follow("prev"),
    u: () => follow("up"),
    "/": () => document.querySelector('input[type="search"]')?.focus(),
    Enter: open,
  };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const target = event.target;
    if (target instanceof HTMLElement && target.closest("input, select, textarea")) {
      if (event.key === "Escape") target.blur();
      return;
    }
    if (event.key === "Enter" && target instanceof HTMLElement && target.closest("a, button, summary")) return;
    const action = actions[event.key];
    if (action) {
      event.preventDefault();
      action();
    }
  });

  // A choice is a form's whole content: it is sent at once, and the button is for browsers without scripts.
  document.addEventListener("change", (event) => {
    if (event.target instanceof HTMLSelectElement) event.target.form?.submit();
  });

  // A link to a turn opens it.
  const reveal = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const turn = target && target.closest("details");
    if (turn) {
      turn.open = true;
      select(turn);
      turn.scrollIntoView({ block: "center" });
    }
  };
  addEventListener("hashchange", reveal);
  reveal();

  // Asks for a few numbers, and for the page only if they have changed.
  const live = () => document.querySelector("main[data-live]");
  const update = async () => {
    const main = live();
    if (!main) return;
    if (!document.hidden) {
      try {
        const state = await (await fetch(main.dataset.live)).json();
        if (state.version !== main.dataset.version) {
          const text = await (await fetch(location.href)).text();
          const fresh = new DOMParser().parseFromString(text, "text/html").querySelector("main");
          if (fresh) {
            const open = [...main.querySelectorAll("details")].map((details) => details.open);
            main.replaceWith(fresh);
            fresh.querySelectorAll("details").forEach((details, index) => (details.open = open[index] ?? details.open));
          }
        }
      } catch {
        // The server has ended; it may come back.
      }
    }
    setTimeout(update, 3000);
  };
  if (live()) setTimeout(update, 3000);
})();
