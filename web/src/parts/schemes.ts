// Light or dark: what the system has, unless this browser was told otherwise.

import { ref, watchEffect } from "vue";

export type Scheme = "system" | "light" | "dark";

const KEY = "sheaf.scheme";
const known: Scheme[] = ["system", "light", "dark"];
const kept = localStorage.getItem(KEY) as Scheme | null;

export const scheme = ref<Scheme>(kept !== null && known.includes(kept) ? kept : "system");

export function applyScheme() {
  watchEffect(() => {
    if (scheme.value === "system") delete document.documentElement.dataset.scheme;
    else document.documentElement.dataset.scheme = scheme.value;
    localStorage.setItem(KEY, scheme.value);
  });
}
