// What whoever is signed in may see that no object says of itself.

import { reactive, ref, watch } from "vue";

import { post } from "./http";
import { person } from "./session";

interface Review {
  status?: { allowed?: boolean };
}

/** Whether the audit log is for them. Until it is known it is not offered. */
export const mayReadAudit = ref(false);

watch(
  () => person.value && `${person.value.id} ${person.value.mustChangePassword}`,
  async (now) => {
    mayReadAudit.value = false;
    if (now === undefined) return;
    const mayRead = await may({ nonResourceAttributes: { path: "/audit/events", verb: "get" } });
    // Somebody else may be here by now.
    if (person.value?.id === now.split(" ")[0]) mayReadAudit.value = mayRead;
  },
  { immediate: true },
);

/** Whether they may create something in each of these namespaces, asked once for each. Until it is known it is not offered. */
export function useMayCreate(group: string, resource: string, namespaces: () => string[]): (namespace: string) => boolean {
  const known = reactive(new Map<string, boolean>());
  watch(
    () => [...new Set(namespaces())].sort().join(" "),
    (all) => {
      for (const namespace of all.split(" ").filter((one) => one !== "" && !known.has(one))) {
        known.set(namespace, false);
        void may({ resourceAttributes: { group, resource, namespace, verb: "create" } }).then((allowed) => known.set(namespace, allowed));
      }
    },
    { immediate: true },
  );
  return (namespace) => known.get(namespace) === true;
}

async function may(spec: object): Promise<boolean> {
  try {
    const asked = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec };
    const review = await post<Review>("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked);
    return review.status?.allowed === true;
  } catch {
    return false;
  }
}
