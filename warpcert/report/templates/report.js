"use strict";
for (const gallery of document.querySelectorAll(".gallery")) {
  const cards = [...gallery.querySelectorAll(".card")];
  const buttons = [...gallery.querySelectorAll("button[data-status]")];
  const search = gallery.querySelector("input");
  const empty = gallery.querySelector(".empty");
  let status = "";
  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const card of cards) {
      const tokens = card.dataset.search.split(" ");
      const fits = words.every((w) => tokens.some((t) => t.startsWith(w)));
      card.hidden = !(fits && (!status || card.dataset.status === status));
    }
    empty.hidden = cards.some((card) => !card.hidden);
  }
  for (const button of buttons) {
    button.addEventListener("click", () => {
      status = button.dataset.status;
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      show();
    });
  }
  search?.addEventListener("input", show); // one card alone has no filters
  gallery.addEventListener("keydown", (event) => {
    const card = event.target.closest(".card");
    if (!card) return;
    const open = cards.filter((c) => !c.hidden);
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (step && event.target.tagName === "SUMMARY") {
      const next = open[open.indexOf(card) + step];
      if (next) next.querySelector("summary").focus();
      event.preventDefault();
    } else if (event.key === "Escape") {
      card.open = false;
      card.querySelector("summary").focus();
    }
  });
}
