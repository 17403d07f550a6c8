// Keeps the page up to date: fetches it again and changes only what has changed, so that focus, scroll and selection stay.
"use strict";
(() => {
  const EVERY_MS = 2000, PATIENCE_MS = 8000;
  const main = document.getElementById("main"), offline = document.getElementById("offline"), pause = document.getElementById("pause");
  let paused = false, timer = 0;

  // Makes `old` like `fresh`, node by node.
  const update = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== fresh.nodeType || old.nodeName !== fresh.nodeName) return old.replaceWith(fresh);
    if (old.nodeType !== Node.ELEMENT_NODE) { old.nodeValue = fresh.nodeValue; return; }
    for (const { name } of [...old.attributes]) if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
    const olds = [...old.childNodes], news = [...fresh.childNodes];
    news.forEach((it, at) => at < olds.length ? update(olds[at], it) : old.append(it));
    olds.slice(news.length).forEach((it) => it.remove());
  };

  // A link that has the focus may have moved to another row.
  const keepFocus = (change) => {
    const focused = document.activeElement, href = focused && focused.getAttribute && focused.getAttribute("href");
    change();
    if (!href || (focused.isConnected && focused.getAttribute("href") === href)) return;
    const again = [...main.querySelectorAll("a")].find((it) => it.getAttribute("href") === href);
    if (again) again.focus({ preventScroll: true });
  };

  const isTyping = () => document.activeElement && document.activeElement.closest && document.activeElement.closest("form.filter");

  const refresh = async () => {
    if (paused || document.hidden || isTyping()) return;
    try {
      const answer = await fetch(location.href, { cache: "no-store", redirect: "error", signal: AbortSignal.timeout(PATIENCE_MS) });
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.getElementById("main");
      if (!fresh) throw new Error("no page");
      if (paused || isTyping()) return;
      keepFocus(() => update(main, document.importNode(fresh, true)));
      document.title = page.title;
      offline.hidden = true;
    } catch {
      offline.hidden = false;
    }
  };

  const tick = async () => {
    clearTimeout(timer);
    await refresh();
    clearTimeout(timer);
    timer = setTimeout(tick, EVERY_MS);
  };

  pause.hidden = false;
  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
    pause.textContent = paused ? "Paused" : "Pause";
    if (!paused) tick();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) tick(); });
  timer = setTimeout(tick, EVERY_MS);
})();
