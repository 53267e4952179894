// What a state means to whoever looks at it.

import type { State } from "@/api/objects";

export type Tone = "good" | "busy" | "warn" | "bad" | "quiet";

const quiet = ["stopped", "halted", "off", "succeeded", "terminated", "inactive", "paused", "completed"];

/** Of a state as the server tells it. */
export function toneOf(state: State | undefined): Tone {
  if (state === undefined) return "quiet";
  if (state.error) return "bad";
  if (state.transitioning) return "busy";
  return quiet.includes(state.name.toLowerCase()) ? "quiet" : "good";
}
