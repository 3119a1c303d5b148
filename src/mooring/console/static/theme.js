// Light or dark: as the system says, or as chosen here.

const KEY = "mooring-theme";

/** @returns {"light" | "dark"} */
export function themeName() {
  const chosen = document.documentElement.dataset["theme"];
  if (chosen === "light" || chosen === "dark") return chosen;
  return matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
}

export function switchTheme() {
  const next = themeName() === "dark" ? "light" : "dark";
  document.documentElement.dataset["theme"] = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // The choice lasts as long as the page.
  }
}

try {
  const stored = localStorage.getItem(KEY);
  if (stored === "light" || stored === "dark") document.documentElement.dataset["theme"] = stored;
} catch {
  // Storage is off.
}
