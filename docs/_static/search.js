// Search of the site: ranks the entries of search-index.js for what is typed. Works from disk; nothing is requested.
//
// An entry is a part of a page below one heading. Its score is BM25 (Robertson and Zaragoza, 2009) over its heading, the
// headings above it and its text. A word that is typed also finds its synonyms, other forms of it, and, if it is in no
// entry, words that begin with it or differ by a letter or two. Entries that have more of the words rank first, but none
// has to have all of them.
"use strict";

const STOP = new Set(
  ("a an and any are as at be by can could cutaway did do does for from get give has have how i if in into is it its me my " +
    "need of on or our own please should so that the their them then there this to use used using want was what when " +
    "where which why will with without would you your").split(" "),
);
const FIELDS = { title: 5, page: 3, above: 1.5, text: 1 }; // weights of one occurrence
const K = 1.2;
const B = 0.6; // of the length of the text
const SHOWN = 20; // pages
const PARTS = 3; // of a page
const LIST = "how_do_i"; // the page whose parts are answers that have nothing to do with each other

// Splits a text into lower-case words without accents. Identifiers such as class_weights are two words.
function tokens(text) {
  if (!/[^\x00-\x7f]/.test(text)) return text.toLowerCase().match(/[a-z0-9]+/g) || [];
  return text.normalize("NFKD").replace(/\p{M}+/gu, "").toLowerCase().match(/[\p{L}\p{N}]+/gu) || [];
}

// Removes the endings of English that forms of one word differ in: weights, weighted, weighting.
const stemmed = new Map();
function stem(word) {
  if (!stemmed.has(word)) stemmed.set(word, computeStem(word));
  return stemmed.get(word);
}

function computeStem(word) {
  if (word.length < 4 || /\d/.test(word)) return word;
  let w = word.replace(/(ss|sh|ch|x)es$/, "$1").replace(/ies$/, "y").replace(/([^su])s$/, "$1");
  w = w.replace(/(is|iz)(ation|e[drs]?|ing)$/, "iz").replace(/ations?$/, "at").replace(/ctions?$/, "ct");
  const cut = w.replace(/(ing|ed|er)$/, "");
  if (cut !== w && cut.length >= 4 - (w.endsWith("ed") || w.endsWith("ing") ? 1 : 0) && /[aeiouy]/.test(cut)) {
    w = cut.replace(/([bdgklmnprt])\1$/, "$1");
  }
  return w.length > 3 ? w.replace(/e$/, "").replace(/y$/, "i") : w;
}

const stems = (text) => tokens(text).map(stem);

// Builds the inverted index, once for a page that is opened.
function build(index) {
  const entries = [];
  const postings = new Map(); // stem -> [entry number, count in each field, …]
  let length = 0;
  for (const [page, pageTitle, weight, parts] of index.pages) {
    const path = [];
    for (const [anchor, level, title, text] of parts) {
      path.length = Math.max(level - 2, 0);
      const number = entries.length;
      const above = path.filter(Boolean);
      const texts = { title: title || pageTitle, page: title ? pageTitle : "", above: above.join(" "), text };
      const counts = new Map();
      let count = 0;
      for (const [field, value] of Object.entries(texts)) {
        for (const word of stems(value)) {
          counts.set(word, (counts.get(word) || 0) + FIELDS[field]);
          count += field === "text";
        }
      }
      for (const [word, weighted] of counts) {
        if (!postings.has(word)) postings.set(word, []);
        postings.get(word).push([number, weighted]);
      }
      entries.push({ page, pageTitle, title, above, anchor, text, weight, length: count, heading: new Set(stems(texts.title)) });
      length += count;
      if (level > 1) path[level - 2] = title;
    }
  }
  const synonyms = index.words.map(([typed, found]) => [typed.map(stems), found]);
  const typed = new Set(synonyms.flatMap(([phrases]) => phrases.flat()));
  return { entries, postings, synonyms, typed, mean: length / Math.max(entries.length, 1) };
}

// Returns whether two words differ by at most `most` inserted, removed, replaced or exchanged letters.
function near(a, b, most) {
  if (Math.abs(a.length - b.length) > most) return false;
  let before = [];
  let row = [...Array(b.length + 1).keys()];
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const changed = row[j - 1] + (a[i - 1] !== b[j - 1]);
      next[j] = Math.min(row[j] + 1, next[j - 1] + 1, changed);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) next[j] = Math.min(next[j], before[j - 2] + 1);
    }
    before = row;
    row = next;
  }
  return row[b.length] <= most;
}

// Returns a word that is in no entry and in no synonym as the most frequent word that differs by a letter or two.
function corrected(built, word, last) {
  if (word.length < 4 || built.postings.has(word) || built.typed.has(word)) return word;
  if (last && [...built.postings.keys()].some((other) => other.startsWith(word))) return word;
  const most = word.length > 7 ? 2 : 1;
  const count = (other) => built.postings.get(other)?.length || 0;
  let found = word;
  for (const other of [...built.postings.keys(), ...built.typed]) {
    if (other[0] === word[0] && count(other) >= count(found) && near(word, other, most)) found = other;
  }
  return found;
}

// Returns the stems of the index that a word stands for, each with a factor. The last one may not be typed to its end.
function forms(built, word, last) {
  if (built.postings.has(word)) return [[word, 1]];
  if (!last || word.length < 3) return [];
  return [...built.postings.keys()].filter((other) => other.startsWith(word)).map((other) => [other, 0.7]);
}

// Returns the score of every entry that has a word, by entry number.
function scoresOf(built, word, last) {
  const scores = new Map();
  for (const [form, factor] of forms(built, word, last)) {
    const those = built.postings.get(form);
    const idf = Math.log(1 + (built.entries.length - those.length + 0.5) / (those.length + 0.5));
    for (const [number, weighted] of those) {
      const norm = 1 - B + (B * built.entries[number].length) / built.mean;
      const score = (factor * idf * weighted * (K + 1)) / (weighted + K * norm);
      scores.set(number, Math.max(scores.get(number) || 0, score));
    }
  }
  return scores;
}

// Returns the concepts of a query: each is a list of alternatives, lists of words with a factor.
function concepts(built, query) {
  const plain = tokens(query);
  const words = plain.map(stem).map((word, k) => corrected(built, word, k === plain.length - 1));
  const found = [];
  for (let at = 0; at < words.length; ) {
    let taken = 0;
    const others = [];
    for (const [typed, targets] of built.synonyms) {
      for (const one of typed) {
        if (one.length < taken || !one.every((word, k) => words[at + k] === word)) continue;
        if (one.length > taken) others.length = 0;
        taken = one.length;
        others.push(...targets.map((target) => stems(target)).filter((target) => target.join() !== one.join()));
      }
    }
    const own = words.slice(at, at + Math.max(taken, 1));
    const last = at + own.length === words.length;
    if (taken || !STOP.has(plain[at])) {
      found.push([{ words: own, factor: 1, last }, ...others.map((other) => ({ words: other, factor: 0.9, last: false }))]);
    }
    at += own.length;
  }
  return found;
}

// Returns pages by rank, each with its best parts: [{page, title, score, parts: [{anchor, title, above, text, score}]}].
function search(built, query) {
  const asked = concepts(built, query);
  const total = new Map(); // entry number -> [score, concepts that it has]
  const ofPage = new Map(); // page -> concepts that it has in any of its entries
  const marked = new Set();
  for (const alternatives of asked) {
    const best = new Map();
    for (const { words, factor, last } of alternatives) {
      const each = words.filter((word) => words.length === 1 || !STOP.has(word)).map((word, k, all) => {
        marked.add(word);
        return scoresOf(built, word, last && k === all.length - 1);
      });
      const numbers = new Set(each.flatMap((scores) => [...scores.keys()]));
      for (const number of numbers) {
        const has = each.filter((scores) => scores.has(number)).length / each.length;
        const sum = each.reduce((value, scores) => value + (scores.get(number) || 0), 0) / Math.sqrt(each.length);
        const score = factor * sum * has * has;
        if (score > (best.get(number)?.[0] || 0)) best.set(number, [score, has]);
      }
    }
    const most = new Map();
    for (const [number, [score, has]] of best) {
      const [before, count] = total.get(number) || [0, 0];
      const { page } = built.entries[number];
      total.set(number, [before + score, count + has]);
      most.set(page, Math.max(most.get(page) || 0, has));
    }
    for (const [page, has] of most) ofPage.set(page, (ofPage.get(page) || 0) + has);
  }
  const pages = new Map();
  const ranked = [...total].map(([number, [score, count]]) => {
    const entry = built.entries[number];
    const covered = (3 * count + (entry.page === LIST ? count : ofPage.get(entry.page))) / (4 * asked.length);
    const heading = [...entry.heading].filter((word) => !STOP.has(word));
    const said = heading.filter((word) => marked.has(word)).length / Math.max(heading.length, 1);
    return [score * covered * covered * (1 + 0.5 * said) * entry.weight, entry];
  });
  for (const [score, entry] of ranked.sort((a, b) => b[0] - a[0])) {
    // Each answer of "How do I …" is a page of its own.
    const key = entry.page === LIST ? `${entry.page}#${entry.anchor}` : entry.page;
    if (!pages.has(key)) pages.set(key, { page: entry.page, title: entry.pageTitle, score: 0, parts: [] });
    const page = pages.get(key);
    page.score += score / 4 ** page.parts.length;
    page.parts.push({ ...entry, score });
  }
  return { marked, pages: [...pages.values()].sort((a, b) => b.score - a.score) };
}

// Returns about 200 characters of a text around the place with most of the marked words.
function excerpt(text, marked) {
  const words = [...text.matchAll(/[\p{L}\p{N}]+/gu)].filter((word) => marked.has(stem(tokens(word[0])[0] || "")));
  let best = 0;
  let most = 0;
  for (const word of words) {
    const inside = new Set(words.filter((one) => one.index >= word.index && one.index < word.index + 180).map((one) => one[0].toLowerCase()));
    if (inside.size > most) [best, most] = [word.index, inside.size];
  }
  const begin = best < 60 ? 0 : text.indexOf(" ", best - 40) + 1;
  const end = begin + 200 >= text.length ? text.length : text.lastIndexOf(" ", begin + 200);
  return (begin ? "… " : "") + text.slice(begin, end) + (end < text.length ? " …" : "");
}

// Adds a text to an element, with the words that were found marked.
function addMarked(element, text, marked) {
  for (const [piece] of text.matchAll(/[\p{L}\p{N}]+|[^\p{L}\p{N}]+/gu)) {
    const found = marked.has(stem(tokens(piece)[0] || ""));
    if (!found) element.append(piece);
    else element.append(Object.assign(document.createElement("mark"), { textContent: piece }));
  }
}

// Shows the results of what is typed in the search page, as it is typed.
function openSearchPage(form) {
  const built = build(globalThis.searchIndex);
  const input = form.querySelector("input");
  const status = document.getElementById("search-status");
  const list = document.getElementById("search-results");
  const link = (part, text) => {
    const element = document.createElement("a");
    element.href = `${part.page}.html${part.anchor ? `#${part.anchor}` : ""}`;
    element.append(text);
    return element;
  };
  const show = () => {
    const query = input.value.trim();
    const { pages, marked } = query ? search(built, query) : { pages: [], marked: new Set() };
    const shown = pages.slice(0, SHOWN);
    list.replaceChildren(
      ...shown.map(({ title, parts }) => {
        const item = document.createElement("li");
        const first = parts[0];
        const trail = document.createElement("p");
        const text = document.createElement("p");
        trail.className = "search-trail";
        trail.textContent = first.title ? [title, ...first.above].join(" › ") : "";
        addMarked(text, excerpt(first.text, marked), marked);
        const heading = document.createElement("h2");
        heading.append(link(first, first.title || title));
        item.append(heading, ...(first.title ? [trail] : []), text);
        const others = parts.slice(1, PARTS).filter((part) => part.title && part.score > first.score / 4);
        if (others.length) {
          const more = document.createElement("p");
          more.className = "search-more";
          more.append(...others.flatMap((part, k) => [k ? " · " : "Also: ", link(part, part.title)]));
          item.append(more);
        }
        return item;
      }),
    );
    if (!query) status.textContent = "";
    else if (!pages.length) status.textContent = `Nothing found for "${query}". Try fewer or other words.`;
    else status.textContent = `${pages.length} ${pages.length === 1 ? "result" : "results"}${pages.length > SHOWN ? `, the first ${SHOWN} shown` : ""}`;
  };
  input.value ||= new URLSearchParams(location.search).get("q") || "";
  input.addEventListener("input", () => {
    history.replaceState(null, "", `?q=${encodeURIComponent(input.value)}`);
    show();
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  show();
  input.focus();
}

if (typeof document !== "undefined") {
  addEventListener("DOMContentLoaded", () => {
    const form = document.getElementById("search-form");
    if (!form) return;
    const index = Object.assign(document.createElement("script"), { src: form.dataset.index }); // once the page is drawn
    index.addEventListener("load", () => openSearchPage(form));
    document.head.append(index);
  });
}
if (typeof module !== "undefined") module.exports = { build, search, stem, tokens };
