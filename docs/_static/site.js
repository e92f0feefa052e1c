// Filters of the gallery and of the list of models: words that are typed, and buttons for kinds and families.
"use strict";

function begin(bar) {
  const items = [...document.querySelectorAll(bar.dataset.filter)];
  if (!items.length) return;
  const tags = new Map(items.map((item) => [item, [...item.classList].filter((name) => /^(kind|family)-/.test(name))]));
  const search = document.createElement("input");
  search.type = "search";
  search.placeholder = "Filter by words";
  search.setAttribute("aria-label", "Filter by words");
  const found = document.createElement("output");
  const buttons = [...new Set([...tags.values()].flat())].sort().map((tag) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.tag = tag;
    button.textContent = tag.replace(/^\w+-/, "");
    button.setAttribute("aria-pressed", "false");
    button.addEventListener("click", () => {
      button.setAttribute("aria-pressed", String(button.getAttribute("aria-pressed") !== "true"));
      show();
    });
    return button;
  });
  function show() {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const pressed = buttons.filter((one) => one.getAttribute("aria-pressed") === "true").map((one) => one.dataset.tag);
    let count = 0;
    for (const item of items) {
      const text = item.textContent.toLowerCase();
      const of = (group) => {
        const asked = pressed.filter((tag) => tag.startsWith(group));
        return !asked.length || asked.some((tag) => tags.get(item).includes(tag));
      };
      const shown = words.every((word) => text.includes(word)) && of("kind-") && of("family-");
      item.style.display = shown ? "" : "none";
      count += Number(shown);
    }
    found.textContent = `${count} of ${items.length}`;
  }
  search.addEventListener("input", show);
  bar.append(search, found, ...buttons);
  bar.hidden = false;
  show();
}

addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".filter").forEach(begin);
  // What scrolls sideways can be reached by keyboard.
  document.querySelectorAll(".table-wrapper, .highlight pre").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  });
});
