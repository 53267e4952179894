// Images of disks.

import type { Condition, Thing } from "@/api/objects";
import { conditionOf } from "@/api/objects";
import type { Tone } from "@/parts/tone";

export interface ImageSpec {
  displayName: string;
  sourceType: string;
  url?: string;
  checksum?: string;
  description?: string;
}

export interface ImageStatus {
  /** Percent, and 100 only once it is imported. */
  progress?: number;
  /** Bytes: of the file, or of all that is still to come as soon as that is known. */
  size?: number;
  virtualSize?: number;
  storageClassName?: string;
  conditions?: Condition[];
}

export type Image = Thing<ImageSpec, ImageStatus>;

export const isImported = (image: Image) => conditionOf(image, "Imported")?.status === "True";
export const isDisc = (image: Image) => image.metadata.labels?.["harvesterhci.io/image-type"] === "iso" || /\.iso(\.\w+)?$/i.test(image.spec.url ?? image.spec.displayName);

/** What went wrong with it, in the server's words. */
export function failureOf(image: Image): string {
  const imported = conditionOf(image, "Imported");
  const limit = conditionOf(image, "RetryLimitExceeded");
  // That it was tried often enough is no reason; what happened each time is.
  if (limit?.status === "True") return imported?.message || limit.message || "";
  return imported?.status === "False" ? (imported.message ?? "") : "";
}

/** Why it is to be fetched once more, in the server's words; empty when nothing went wrong, or nothing is tried any more. */
export function setbackOf(image: Image): string {
  const imported = conditionOf(image, "Imported");
  return imported?.status === "Unknown" && failureOf(image) === "" ? (imported.message ?? "") : "";
}

export function toneOfImage(image: Image): Tone {
  if (isImported(image)) return "good";
  return failureOf(image) !== "" ? "bad" : "busy";
}
