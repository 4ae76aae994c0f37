(page, document) => {
  const all = (selector) => [...document.querySelectorAll(selector)];
  const box = (one) => one.getBoundingClientRect();
  const shown = (one) => one.checkVisibility() && box(one).width > 0 && box(one).height > 0;
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = (color) => {
    const [r, g, b] = color.slice(0, 3).map((one) => {
      const share = one / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const color = rgb(page.getComputedStyle(at).backgroundColor);
      if (color.length === 3 || color[3] > 0.99) return color;
    }
    return [255, 255, 255];
  };
  const contrast = (one) => {
    const style = page.getComputedStyle(one);
    const inChip = one.classList.contains("chip-text");
    const behind = inChip
      ? rgb(page.getComputedStyle(one.parentElement.querySelector("rect")).fill)
      : ground(one);
    const [a, b] = [light(rgb(one.closest("svg") ? style.fill : style.color)), light(behind)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const texts = all("body *").filter(
    (one) => shown(one) && !["TITLE", "DESC", "STYLE", "title", "desc"].includes(one.tagName)
      && [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim()));
  const focusable = all("a[href], summary, input, button, select, [tabindex]")
    .filter((one) => shown(one) && one.tabIndex >= 0);
  return {
    width: page.innerWidth,
    scrollWidth: document.documentElement.scrollWidth,
    height: document.documentElement.scrollHeight,
    resources: page.performance.getEntriesByType("resource").map((one) => one.name),
    title: document.title,
    text: document.body.innerText,
    background: page.getComputedStyle(document.body).backgroundColor,
    outside: all("body *")
      .filter((one) => shown(one) && !one.closest(".skip, svg") && box(one).right > page.innerWidth + 0.5)
      .map((one) => one.outerHTML.slice(0, 100)),
    pale: texts.map((one) => [contrast(one).toFixed(2), one.outerHTML.slice(0, 100)])
      .filter(([ratio]) => ratio < 4.5),
    texts: texts.length,
    small: texts.filter((one) => parseFloat(page.getComputedStyle(one).fontSize) < 12)
      .map((one) => one.outerHTML.slice(0, 80)),
    landmarks: ["header", "nav", "main", "footer"].map((one) => all("body > .page > " + one + ", header > " + one).length),
    headings: all("h1, h2, h3, h4").filter(shown).map((one) => Number(one.tagName[1])),
    unscoped: all("th").filter((one) => !one.scope).length,
    headless: all("table").filter((one) => !one.querySelector("thead th")).length,
    unnamed: all("svg[role=img]").filter((one) => {
      const label = one.getAttribute("aria-label") || (one.getAttribute("aria-labelledby") || "")
        .split(" ").map((id) => document.getElementById(id)?.textContent || "").join(" ");
      return !label.trim();
    }).length,
    pictures: all("svg").filter((one) => !one.closest("[aria-hidden=true]") && one.getAttribute("role") !== "img").length,
    focusOrder: focusable.map((one) => one.tabIndex),
    inPicture: focusable.filter((one) => one.closest("svg")).length,
    unlabelled: focusable.filter((one) => !(one.textContent || "").trim() && !one.labels?.length).length,
    doubled: all("[id]").map((one) => one.id).filter((id, at, ids) => ids.indexOf(id) !== at),
    target: document.querySelector(":target") ? shown(document.querySelector(":target")) : null,
    timeline: all("svg.timeline").some(shown),
    list: all("ol.log").some(shown),
    flat: all("svg .bar").filter((one) => !box(one).width).length,
    bars: all("svg .bar").length,
  };
}
