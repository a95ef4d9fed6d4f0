// This script searches for a function by its Python or its Go name. The index is a script of its own, because a page that
// is opened from a file may fetch nothing else. The page loads it when the user begins to search.
(() => {
  "use strict";
  const MOST = 40;
  const root = document.documentElement.dataset.content_root || "./";
  let loading = null;

  function load() {
    loading ||= new Promise((resolve, reject) => {
      const script = document.createElement("script");
      script.src = `${root}_static/names.js`;
      script.onload = () => resolve(window.sideBySideNames);
      script.onerror = reject;
      document.head.append(script);
    });
    return loading;
  }

  const plain = (name) => name.replaceAll("_", "").toLowerCase();

  // A lower rank is better: the name as it is spelled, the name in the other language's spelling, its beginning, a part.
  function rank(name, text, wanted) {
    const whole = plain(name);
    const last = whole.slice(whole.lastIndexOf(".") + 1);
    if (name === text || name.endsWith(`.${text}`)) return 0;
    if (whole === wanted || last === wanted) return 1;
    if (last.startsWith(wanted)) return 2;
    return whole.includes(wanted) ? 3 : -1;
  }

  function find(names, text) {
    const wanted = plain(text.trim());
    if (wanted.length < 2) return [];
    return names
      .map((entry) => [rank(entry[0], text.trim(), wanted), entry])
      .filter(([order]) => order >= 0)
      .sort((a, b) => a[0] - b[0] || a[1][0].length - b[1][0].length)
      .slice(0, MOST)
      .map(([, entry]) => entry);
  }

  function show(list, entries) {
    list.replaceChildren(...entries.map(([name, path, address, side]) => {
      const item = document.createElement("li");
      const link = document.createElement("a");
      const where = document.createElement("small");
      item.setAttribute("role", "option");
      link.href = root + address;
      link.textContent = name;
      where.textContent = `${side} · ${path}`;
      link.append(where);
      item.append(link);
      return item;
    }));
    select(list, 0);
  }

  function select(list, number) {
    const links = [...list.querySelectorAll("a")];
    links.forEach((link, index) => link.setAttribute("aria-selected", String(index === number)));
    links[number]?.scrollIntoView({ block: "nearest" });
  }

  function start(box) {
    const input = box.querySelector("input");
    const list = box.querySelector("ul");
    const chosen = () => [...list.querySelectorAll("a")].findIndex((link) => link.getAttribute("aria-selected") === "true");
    input.addEventListener("focus", () => load());
    input.addEventListener("input", async () => show(list, find(await load(), input.value)));
    input.addEventListener("keydown", (event) => {
      const links = list.querySelectorAll("a");
      if (event.key === "ArrowDown") select(list, Math.min(chosen() + 1, links.length - 1));
      else if (event.key === "ArrowUp") select(list, Math.max(chosen() - 1, 0));
      else if (event.key === "Enter" && links.length) links[chosen()].click();
      else if (event.key === "Escape") { list.replaceChildren(); input.blur(); }
      else return;
      event.preventDefault();
    });
    list.addEventListener("click", () => list.replaceChildren());
    document.addEventListener("keydown", (event) => {
      const typing = event.target.closest?.("input, textarea, [contenteditable]");
      if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      input.focus();
    });
  }

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".names").forEach(start));
})();
