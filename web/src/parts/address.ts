// How a page is filtered stands in its address, so that a link leads to what somebody saw.

import { computed, type WritableComputedRef } from "vue";
import { useRoute, useRouter } from "vue-router";

export function inAddress(key: string): WritableComputedRef<string> {
  const route = useRoute();
  const router = useRouter();
  return computed({
    get: () => (typeof route.query[key] === "string" ? String(route.query[key]) : ""),
    set: (value) => void router.replace({ query: { ...route.query, [key]: value === "" ? undefined : value } }),
  });
}
