// Whose objects are looked at: those of one namespace, or of all.

import { ref, watch } from "vue";

const KEY = "sheaf.namespace";

/** Empty is all of them. */
export const namespace = ref(localStorage.getItem(KEY) ?? "");

watch(namespace, (now) => localStorage.setItem(KEY, now));

/** Where something new is put. */
export const namespaceForNew = () => namespace.value || "default";

/** Those that the system made for itself: nobody puts a machine there. */
export function isOfTheSystem(name: string): boolean {
  return /^(kube-|cattle-|harvester-system|fleet-|longhorn-|sheaf-|local$)/.test(name);
}
