// Everything that helps others to find out what is wrong, in one file and without secrets.

import type { Condition, Thing } from "@/api/objects";
import { conditionOf } from "@/api/objects";
import type { Tone } from "@/parts/tone";
import { words } from "@/words";

export interface BundleSpec {
  description?: string;
  issueURL?: string;
  expiration?: number;
}

export interface BundleStatus {
  state?: string;
  progress?: number;
  filename?: string;
  filesize?: number;
  nodeName?: string;
  conditions?: Condition[];
}

export type Bundle = Thing<BundleSpec, BundleStatus>;

/** The only one that bundles are made in. */
export const BUNDLES = "harvester-system";

export const isReadyBundle = (bundle: Bundle) => bundle.status?.state === "ready";
export const isBeingMade = (bundle: Bundle) => !["ready", "error"].includes(bundle.status?.state ?? "");
export const failureOfBundle = (bundle: Bundle) => (bundle.status?.state === "error" ? (conditionOf(bundle, "Initialized")?.message ?? "") : "");

export function stateOfBundle(bundle: Bundle): { text: string; tone: Tone } {
  if (isReadyBundle(bundle)) return { text: words.support.ready, tone: "good" };
  if (bundle.status?.state === "error") return { text: words.support.failed, tone: "bad" };
  return bundle.status?.state ? { text: words.support.making, tone: "busy" } : { text: words.support.waiting, tone: "busy" };
}

/** With `retain`, since fetching it would delete it otherwise. */
export const downloadOf = (bundle: Bundle) => `/v1/harvester/supportbundles/${encodeURIComponent(bundle.metadata.name)}/download?retain=true`;
