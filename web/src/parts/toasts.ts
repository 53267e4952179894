// Short messages about what was done or refused. Refusals stay until they are closed: they say what to do next.

import { reactive } from "vue";

export interface Toast {
  id: number;
  kind: "good" | "bad";
  text: string;
}

const SHOWN_FOR = 6000;
/** More than these are too many to read: the oldest of what was done makes room. */
const READABLE = 5;
let next = 1;

export const toasts = reactive<Toast[]>([]);

export function say(text: string) {
  const toast = show("good", text);
  setTimeout(() => dismiss(toast.id), SHOWN_FOR);
}

export function complain(text: string) {
  // The same complaint of twenty machines is one.
  if (toasts.some((one) => one.kind === "bad" && one.text === text)) return;
  show("bad", text);
}

export function dismiss(id: number) {
  const index = toasts.findIndex((one) => one.id === id);
  if (index >= 0) toasts.splice(index, 1);
}

function show(kind: Toast["kind"], text: string): Toast {
  const toast = { id: next++, kind, text };
  toasts.push(toast);
  const oldest = toasts.find((one) => one.kind === "good");
  if (toasts.length > READABLE && oldest) dismiss(oldest.id);
  return toast;
}
