// What whoever is signed in may see that no object says of itself.

import { ref, watch } from "vue";

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
    const mayRead = await may("get", "/audit/events");
    // Somebody else may be here by now.
    if (person.value?.id === now.split(" ")[0]) mayReadAudit.value = mayRead;
  },
  { immediate: true },
);

async function may(verb: string, path: string): Promise<boolean> {
  try {
    const asked = { apiVersion: "authorization.k8s.io/v1", kind: "SelfSubjectAccessReview", spec: { nonResourceAttributes: { path, verb } } };
    const review = await post<Review>("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", asked);
    return review.status?.allowed === true;
  } catch {
    return false;
  }
}
