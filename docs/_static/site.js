// Filters of the gallery and of the list of models: words that are typed, and buttons for kinds and families.
"use strict";

// An item says what it is by its classes, a row of a table by the columns that the bar names.
function tagsOf(item, columns) {
  const own = [...item.classList].filter((name) => /^(kind|family)-/.test(name));
  const told = (group) => {
    const cell = columns[group] && item.children[columns[group] - 1];
    return cell ? cell.textContent.split(",").map((word) => `${group}-${word.trim()}`) : [];
  };
  return [...own, ...told("kind"), ...told("family")];
}

function begin(bar) {
  const items = [...document.querySelectorAll(bar.dataset.filter)];
  if (!items.length) return;
  const tags = new Map(items.map((item) => [item, tagsOf(item, bar.dataset)]));
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
  const group = (name, said) => {
    const box = document.createElement("div");
    const label = document.createElement("span");
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", said);
    label.textContent = said;
    box.append(label, ...buttons.filter((one) => one.dataset.tag.startsWith(name)));
    return box;
  };
  bar.append(search, found, group("kind-", "data"), group("family-", "family"));
  bar.hidden = false;
  show();
}

addEventListener("DOMContentLoaded", () => {
  document.querySelectorAll(".filter").forEach(begin);
  // The name of a module breaks after its dots.
  document.querySelectorAll("h1").forEach((title) => {
    for (const text of [...title.childNodes].filter((node) => node.nodeType === Node.TEXT_NODE)) {
      const parts = text.data.split(/(?<=\w\.)(?=\w)/);
      text.replaceWith(...parts.flatMap((part, i) => (i ? [document.createElement("wbr"), part] : [part])));
    }
  });
  // What scrolls sideways can be reached by keyboard.
  document.querySelectorAll(".table-wrapper, .highlight pre").forEach((box) => {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  });
});
