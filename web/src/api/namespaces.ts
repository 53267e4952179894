// Whose objects are looked at: those of one namespace, or of all.

import { ref, watch } from "vue";

const KEY = "sheaf.namespace";
/** Everybody sees it, and few may put something there. */
const PUBLIC = "harvester-public";

/** Empty is all of them. */
export const namespace = ref(localStorage.getItem(KEY) ?? "");

watch(namespace, (now) => localStorage.setItem(KEY, now));

/** Those that whoever is signed in may see; empty until it is known. */
export const seen = ref<string[]>([]);

/** Where something new is put: what is chosen, or what most have, or the first of somebody who has not even that. */
export function namespaceForNew(): string {
  if (namespace.value !== "") return namespace.value;
  if (seen.value.length === 0 || seen.value.includes("default")) return "default";
  const own = seen.value.filter((name) => !isOfTheSystem(name) && name !== PUBLIC).sort();
  return own[0] ?? "default";
}

/** What is chosen stays in the browser; who signs in next may not see it. */
export function learn(names: string[]) {
  seen.value = names;
  if (namespace.value !== "" && !names.includes(namespace.value)) namespace.value = "";
}

/** Those that the system made for itself: nobody puts a machine there. */
export function isOfTheSystem(name: string): boolean {
  return /^(kube-|cattle-|harvester-system|fleet-|longhorn-|sheaf-|local$)/.test(name);
}
