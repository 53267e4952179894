// The time, as far as pages show how long ago something was: it goes on without anything else changing.

import { ref } from "vue";

const TICK = 5000;

export const now = ref(Date.now());

setInterval(() => {
  if (document.visibilityState === "visible") now.value = Date.now();
}, TICK);
